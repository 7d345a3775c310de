"""Logarithms to other bases, and the functions of exponentials and logarithms that are accurate where a formula of those is not."""

import math

import numpy

from hotloop import _core
from hotloop._elementwise import _select
from hotloop._op import exporter
from hotloop._transforms import custom_jvp

__all__ = []
_export = exporter(__all__)


def _with_derivative(derivative):
    """A function of one array with its derivative by hand, which at 0 is not what |x| and sign(x) in a formula would give."""

    def declare(fn):
        custom = custom_jvp(fn)
        custom.defjvp(lambda primals, tangents: (custom(*primals), tangents[0] * derivative(*primals)))
        return custom

    return declare


def _of_parts(name, base, high, low):
    """The logarithm to a base of which high + low is that of 2; high is a number of few digits, so that its product with an exponent is exact."""

    @_with_derivative(lambda x: 1 / (x * math.log(base)))
    def logarithm(x):
        word, digits, bias = ("int32", 23, 127) if x.dtype.itemsize == 4 else ("int64", 52, 1023)
        # x = 2^exponent m, m in [sqrt(1/2), sqrt(2)), of the bits as they stand beyond those of sqrt(1/2). Numbers below the normal range are scaled into it.
        is_small = _core.binary("lt", x, 2.0 ** (1 - bias))
        scaled = _select(is_small, x * 2.0 ** (digits + 1), x)
        root = int(numpy.array(math.sqrt(0.5), x.dtype).view(word))
        above = _core.append("bitcast", [scaled], {"dtype": numpy.dtype(word)}) - root
        exponent = _core.cast(_core.binary("shr", above, digits), x.dtype) - _select(is_small, digits + 1.0, 0.0)
        m = _core.append("bitcast", [_core.binary("and", above, 2**digits - 1) + root], {"dtype": x.dtype})
        is_regular = _core.append("and", [_core.binary("gt", x, 0.0), _core.binary("lt", x, math.inf)], {})
        exponent = _select(is_regular, exponent, 0.0)
        rest = _core.unary("log", _select(is_regular, m, x)) * (1 / math.log(base))
        return exponent * high + (rest + exponent * low if low else rest)

    return logarithm


# log10(2) to 11 binary digits, and what that leaves.
_log2 = _of_parts("log2", 2, 1.0, 0.0)
_log10 = _of_parts("log10", 10, 0.301025390625, 4.605038981195214e-06)


@_export(1)
def log2(x, /):
    """Logarithm to base 2; of a power of 2 the whole number."""
    return _log2(*_core.promote("log2", [x], True))


@_export(1)
def log10(x, /):
    """Logarithm to base 10; of a power of 10 the whole number."""
    return _log10(*_core.promote("log10", [x], True))


def _exponentials(x):
    """(x < 0, u, e, f) with sinh(|x|) = f (u + u / e) and cosh(x) = f (e + 1 / e): e = e^s and u = e - 1, of s = |x|, or far out, where e^s
    overflows before its half does, of 64 less."""
    far, most = (80.0, 88.0) if x.dtype == numpy.float32 else (700.0, 709.0)
    is_below = _core.binary("lt", x, 0)
    size = _select(is_below, -x, x)  # not abs(), whose derivative at 0 is 0
    is_far = _core.binary("gt", size, far)
    u = _core.unary("expm1", _core.binary("min", _select(is_far, size - 64.0, size), most))
    return is_below, u, 1 + u, _select(is_far, _core.full(0.5 * math.exp(64.0), x.dtype, ()), 0.5)


# Of numbers of one sign, so that nothing cancels; who takes both has one exponential for them.
@_with_derivative(lambda x: _cosh(x))
def _sinh(x):
    is_below, u, e, half = _exponentials(x)
    size = (u + u / e) * half
    return _select(is_below, -size, size)


@_with_derivative(lambda x: _sinh(x))
def _cosh(x):
    _, _, e, half = _exponentials(x)
    return (e + 1 / e) * half


_cosh.share_rules(_sinh)


def _unless_large(x, otherwise):
    """(where 1 adds nothing to the square of x, which may overflow; x where it does, else the number)."""
    large = _core.binary("gt", _core.unary("abs", x), 1e9)
    return large, _select(large, otherwise, x)


def _asinh_slope(x):
    large, b = _unless_large(x, 1.0)
    return 1 / _select(large, _core.unary("abs", x), _core.unary("sqrt", b * b + 1))


@_with_derivative(_asinh_slope)
def _asinh(x):
    a = _core.unary("abs", x)
    large, b = _unless_large(a, 1.0)
    small = b + b * b / (1 + _core.unary("sqrt", b * b + 1))
    found = _core.unary("log1p", _select(large, a - 1.0, small))
    return _core.unary("sign", x) * _select(large, found + math.log(2), found)


@_export(1)
def sinh(x, /):
    """(e^x - e^-x) / 2, accurate near 0."""
    return _sinh(*_core.promote("sinh", [x], True))


@_export(1)
def cosh(x, /):
    """(e^x + e^-x) / 2."""
    return _cosh(*_core.promote("cosh", [x], True))


@_export(1)
def asinh(x, /):
    """Inverse of sinh: sign(x) log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), accurate near 0."""
    return _asinh(*_core.promote("asinh", [x], True))


@_export(1)
def acosh(x, /):
    """Inverse of cosh on [1, inf): log1p(x - 1 + sqrt(x - 1) sqrt(x + 1)), accurate near 1. NaN below 1."""
    x = _core.promote("acosh", [x], True)[0]
    large, b = _unless_large(x, 2.0)
    small = b - 1 + _core.unary("sqrt", b - 1) * _core.unary("sqrt", b + 1)
    found = _core.unary("log1p", _select(large, x - 1.0, small))
    return _select(large, found + math.log(2), found)


@_export(1)
def atanh(x, /):
    """Inverse of tanh on (-1, 1): log1p(2 |x| / (1 - |x|)) / 2 with the sign of x."""
    x = _core.promote("atanh", [x], True)[0]
    is_below = _core.binary("lt", x, 0)
    size = _select(is_below, -x, x)  # not abs(), whose derivative at 0 is 0
    half = 0.5 * _core.unary("log1p", 2 * size / (1 - size))
    return _select(is_below, -half, half)


@custom_jvp
def _logaddexp(x1, x2):
    largest = _core.binary("max", x1, x2)
    # Two infinities of one sign are not apart.
    apart = _select(_core.binary("eq", x1, x2), 0.0, x1 - x2)
    return largest + _core.unary("log1p", _core.unary("exp", -_core.unary("abs", apart)))


@_logaddexp.defjvp
def _logaddexp_jvp(primals, tangents):
    total, (x1, x2) = _logaddexp(*primals), primals
    # Shares of a half each where both are one infinity; of nothing nobody has a share.
    apart = _select(_core.binary("and", _core.binary("eq", x1, x2), _core.binary("eq", _core.unary("abs", x1), math.inf)), 0.0, x1 - x2)
    shares = [_select(_core.binary("eq", total, -math.inf), 0.0, _core.unary("sigmoid", to)) for to in (apart, -apart)]
    return total, tangents[0] * shares[0] + tangents[1] * shares[1]


@_export(2)
def logaddexp(x1, x2, /):
    """log(e^x1 + e^x2) without overflow; -inf is the logarithm of 0, also twice: then all derivatives are 0, as those of logsumexp, since no finite step leads
    away from there."""
    return _logaddexp(*_core.broadcast_arrays("logaddexp", _core.promote("logaddexp", [x1, x2], True)))
