"""Elementwise functions of SciPy's and NumPy's that the array API standard does not name."""

import math

import numpy

from hotloop import _core
from hotloop._elementwise import _select, signbit, whole_power
from hotloop._op import exporter, integer, op

__all__ = ["polygamma"]
_export = exporter(__all__)


@_export(1)
def cbrt(x, /):
    """The cube root, of the sign of x. Its derivative at 0 is infinite."""
    x = _core.promote("cbrt", [x], True)[0]
    is_below = signbit(x)
    size = _select(is_below, -x, x)
    root = _core.binary("pow", size, 1 / 3)
    # A step of Newton's method corrects the exponent's rounding. It is rounding too: every derivative is that of the power.
    step = (root - size / (root * root)) / 3.0
    step = _select(_core.binary("lt", _core.unary("abs", step), 1e-3 * root), step, 0.0)
    root = root - _core.append("stop_gradient", [step], {})
    return root * _select(is_below, -1.0, 1.0)  # a product, which keeps the sign of a zero


@_export(1)
def exp2(x, /):
    """2 to the power of x."""
    x = _core.promote("exp2", [x], True)[0]
    return _core.binary("pow", _core.full(2.0, x.dtype, x.shape), x)


@_export(1)
def rsqrt(x, /):
    """1 / sqrt(x): infinite at 0, NaN below."""
    return 1.0 / _core.unary("sqrt", _core.promote("rsqrt", [x], True)[0])


def _times_log(name, log, usual, x, y):
    x, y = _core.broadcast_arrays(name, _core.promote(name, [x, y], True))
    # Where the logarithm is infinite or NaN, but for that of NaN, and x is 0, another y of which nothing is left.
    is_regular = _core.append("and", [_core.binary("gt", y, usual), _core.binary("lt", y, math.inf)], {})
    vanishes = _core.append("and", [_core.binary("eq", x, 0), _core.unary("not", _core.append("or", [is_regular, _core.binary("ne", y, y)], {}))], {})
    return x * _core.unary(log, _select(vanishes, 1.0, y))


@_export(2)
def xlogy(x1, x2, /):
    """x1 log(x2), and 0 where x1 is 0, whatever x2 is but NaN: terms of entropies and of likelihoods. Where x1 and x2 are both 0 the derivatives are 0."""
    return _times_log("xlogy", "log", 0.0, x1, x2)


@_export(2)
def xlog1py(x1, x2, /):
    """x1 log(1 + x2), and 0 where x1 is 0, whatever x2 is but NaN. Where x1 is 0 and x2 is -1 the derivatives are 0."""
    return _times_log("xlog1py", "log1p", -1.0, x1, x2)


def polygamma(n, x):
    """The n-th derivative of `digamma` at x; n: a known integer, at least 0. Infinite at 0; at the negative integers infinite for odd n, NaN for even n."""
    n = integer("polygamma", "n", n)
    if n < 0:
        raise _core.UserError(f"[polygamma] n must not be negative. Received: {n}.")
    return _polygamma(x, n)


polygamma.__module__ = "hotloop"
_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]


@op(1)
def _polygamma(x, n):
    given = _core.promote("polygamma", [x], True)[0]
    if n == 0:
        return _core.composed_digamma(given)
    x = _core.cast(given, "float64")
    is_below = _core.binary("lt", x, 0)
    at = _select(is_below, 1.0 - x, x)
    # (-1)^(n + 1) n! times the sum of 1 / (at + i)^(n + 1): the first terms one by one, the rest by Euler and Maclaurin's formula.
    shifts = 12 + n
    shifted, total = at, 0.0
    for i in range(shifts):
        takes = _core.binary("lt", at, float(shifts - i))
        total = total + _select(takes, _power(at + float(i), -n - 1), 0.0)
        shifted = shifted + _select(takes, 1.0, 0.0)
    inverse = 1.0 / shifted
    rest = inverse / 2 + 1.0 / n
    square, term = inverse * inverse, float(n + 1) / 2
    power = square
    for k, number in enumerate(_BERNOULLI, 1):
        rest = rest + power * (term * number)
        power = power * square
        term *= (n + 2 * k) * (n + 2 * k + 1) / ((2 * k + 1) * (2 * k + 2))
    above = (total + _power(inverse, n) * rest) * ((-1.0) ** (n + 1) * math.factorial(n))
    # Reflection: the n-th derivative of pi cot(pi x), a polynomial of the cotangent.
    cotangent = numpy.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        cotangent = -cotangent.deriv() * numpy.polynomial.Polynomial([1.0, 0.0, 1.0])
    to_integer = x - _core.append("stop_gradient", [_core.unary("rint", x)], {})
    is_pole = _core.append("and", [is_below, _core.binary("eq", to_integer, 0.0)], {})
    angle = math.pi * _select(_core.append("or", [is_pole, _core.unary("not", is_below)], {}), 0.25, to_integer)
    cot, turned = _core.unary("cos", angle) / _core.unary("sin", angle), 0.0
    for coefficient in cotangent.coef[::-1]:
        turned = turned * cot + float(coefficient)
    below = (-1.0) ** n * above - math.pi ** (n + 1) * turned
    found = _select(is_pole, math.inf if n % 2 else math.nan, _select(is_below, below, above))
    return _core.cast(found, given.dtype)


def _power(x, n):
    """x^n of a known integer n, by products."""
    return 1.0 / whole_power(x, -n) if n < 0 else whole_power(x, n)
