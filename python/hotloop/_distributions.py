"""Random numbers of distributions with parameters, in hl.random."""

import fractions
import functools
import math

import numpy

from hotloop import _core, _draws, _names
from hotloop._control import while_loop
from hotloop._elementwise import _select
from hotloop._op import op
from hotloop._transforms import jvp, vmap

__all__ = ["gamma", "loggamma", "beta", "dirichlet", "chisquare", "t", "poisson", "multivariate_normal", "rademacher", "weibull_min", "pareto", "cauchy"]


def _parameters(name, shape, dtype, *parameters):
    """The parameters as arrays of `dtype` that have all of the shape, and the shape: what they broadcast to if none is given."""
    dtype = _draws.checked_float(dtype)
    parameters = [_core.cast(p, dtype) for p in parameters]
    shapes = [p.shape for p in parameters]
    try:
        shape = numpy.broadcast_shapes(*shapes) if shape is None else _draws.dims(shape)
        if numpy.broadcast_shapes(shape, *shapes) != shape:
            raise ValueError
    except ValueError:
        raise _core.UserError(f"[{name}] parameters must broadcast to the shape. Received: {' and '.join(map(str, shapes))}, shape={_names.kind_of(shape) if shape is None else shape}.") from None
    return [_core.broadcast_to(p, shape) for p in parameters], shape


def _finite(x):
    return _core.binary("lt", _core.unary("abs", x), math.inf)


def _stopped(x):
    return _core.append("stop_gradient", [x], {})


def _accepted(key, attempt, pending, start):
    """What `attempt(key)` gives, (values, bool), where it was accepted first, for each element by itself; `start` where nothing is pending.

    Attempt i is drawn from the i-th key for all elements, so that an element does not know of the others.
    """

    def step(carry):
        i, found, waits = carry
        values, is_good = attempt(_draws.fold_in(key, i))
        hit = _core.append("and", [waits, is_good], {})
        return i + 1, _select(hit, values, found), _core.append("and", [waits, _core.unary("not", is_good)], {})

    def any_waits(carry):
        waits = carry[2]
        return _core.append("reduce_max", [waits], {"axes": list(range(waits.ndim))}) if waits.ndim else waits

    return while_loop(any_waits, step, (_core.cast(0, "int32"), start, pending))[1]


def _gammas(key, a):
    """(number, its logarithm) of the gamma distribution, of which the logarithm has a derivative by a. a: an array."""
    _draws.checked_key(key)
    is_valid = _core.append("and", [_core.binary("gt", a, 0.0), _finite(a)], {})
    is_small = _core.binary("lt", a, 1.0)
    a1 = _select(is_valid, _select(is_small, a + 1.0, a), 1.0)
    known = _stopped(a1)
    # Marsaglia and Tsang, A simple method for generating gamma variables, ACM Trans. Math. Softw. 2000.
    d = known - 1 / 3
    c = 1 / 3 / _core.unary("sqrt", d)
    keys = _draws.split(key, 2)

    def attempt(k):
        both = _draws.split(k, 2)
        z, u = _draws.normal(both[0], a.shape, a.dtype), _draws.open_unit(both[1], a.shape, a.dtype)
        root = 1.0 + c * z
        is_positive = _core.binary("gt", root, 0.0)
        root = _select(is_positive, root, 1.0)
        v = root * root * root
        bound = 0.5 * z * z + d * (1.0 - v + _core.unary("log", v))
        return v, _core.append("and", [is_positive, _core.binary("lt", _core.unary("log", u), bound)], {})

    v = _accepted(keys[0], attempt, is_valid, _core.full(1.0, a.dtype, a.shape))
    # A number of a smaller shape is one of a + 1 times u^(1 / a).
    log_u = _core.unary("log", _draws.open_unit(keys[1], a.shape, a.dtype))
    log_power = _select(is_small, log_u / _select(is_small & is_valid, a, 1.0), 0.0)
    logarithm = _at_quantile(_stopped(_core.unary("log", d) + _core.unary("log", v)), a1, 0) + log_power
    number = d * v * _core.unary("exp", _stopped(log_power))
    number = number * _core.unary("exp", logarithm - _stopped(logarithm))
    is_zero, is_infinite = _core.binary("eq", a, 0.0), _core.binary("eq", a, math.inf)
    number = _select(is_valid, number, _select(is_zero, 0.0, _select(is_infinite, math.inf, math.nan)))
    return number, _select(is_valid, logarithm, _select(is_zero, -math.inf, _select(is_infinite, math.inf, math.nan)))


def _at_quantile(y, a, order):
    """y, the logarithm of a gamma distributed number, as the function of the shape a whose quantile stays the same (implicit reparametrization: Figurnov, Mohamed and Mnih,
    NeurIPS 2018)."""

    def rule(values):
        y, a, _, tangent = values
        if order == _most_order:
            return [y, tangent * math.nan]
        out = _at_quantile(y, a, order + 1)
        return [out, _core.cast(_slope(_core.cast(a, "float64"), _core.cast(out, "float64"), order), y.dtype) * tangent]

    return _core.call_with_jvp(lambda values: [values[0]], rule, rule, [y, a], "gamma")[0]


_most_order = 2


def _slope(a, y, order):
    """The derivative of y by a, float64: minus that of the distribution function by a, over that by y. For a >= 1."""

    def value(a, y):
        is_large = _core.binary("gt", a, _LARGE)
        of_series = _series(_select(is_large, 1.0, a), _select(is_large, 0.0, y))
        of_large = _expansion(_select(is_large, a, _LARGE), _select(is_large, y, math.log(_LARGE)))
        return _select(is_large, of_large, of_series)

    if order > 0:
        return value(a, y)

    def rule(values):
        a, y, tangent_a, tangent_y = values
        s = _slope(a, y, order + 1)
        by_a = jvp(lambda a: value(a, y), (a,), (_core.full(1.0, a.dtype, a.shape),))[1]
        # That by y follows from the density's, of which s is a ratio.
        by_y = (_core.unary("exp", y) - a) * s - (y - _core.composed_digamma(a))
        return [s, by_a * tangent_a + by_y * tangent_y]

    return _core.call_with_jvp(lambda values: [value(*values)], rule, rule, [a, y], "gamma_slope")[0]


def _series(a, y):
    """From x^a e^-x / Gamma(a + 1) times the sum of x^n / ((a + 1) ... (a + n)), the distribution function, whose factor cancels. Each number takes as many terms as it needs."""
    x = _core.unary("exp", y)

    def sums(a, x):
        zero = _core.cast(0.0, "float64")

        def step(carry):
            n, term, total, slope, slopes = carry
            n = n + 1.0
            below = 1.0 / (a + n)
            term = term * x * below
            slope = slope * x * below - term * below
            return n, term, total + term, slope, slopes + slope

        def goes_on(carry):
            n, term, total, _, _ = carry
            return _core.binary("or", _core.binary("gt", term, 1e-18 * total), _core.binary("lt", a + n, x))

        _, _, total, _, slopes = while_loop(goes_on, step, (zero, zero + 1.0, zero + 1.0, zero, zero))
        return total, slopes

    if a.ndim:
        total, slopes = (_core.reshape(v, a.shape) for v in vmap(sums)(_core.reshape(a, (a.size,)), _core.reshape(x, (a.size,))))
    else:
        total, slopes = sums(a, x)
    return -((y - _core.composed_digamma(a + 1.0)) * total + slopes) / a


_LARGE = 200.0


@functools.cache
def _expansion_coefficients(terms=5, degree=16):
    """Of t^j a^(-k - 1), k < terms. With t = y - log a the slope solves s' = a (e^t - 1) s - (t + log a - digamma(a)), and is smooth."""
    zero, count = fractions.Fraction(0), degree + terms + 2
    exponential = [fractions.Fraction(1, math.factorial(j + 1)) for j in range(count)]  # of (e^t - 1) / t
    remainders = [zero, fractions.Fraction(1, 2), fractions.Fraction(1, 12), zero, fractions.Fraction(-1, 120)]
    numerator = [zero, fractions.Fraction(1)] + [zero] * (count - 2)
    found = []
    for k in range(terms):
        numerator = numerator[1:]  # over t: it begins with 0
        quotient = []
        for j in range(len(numerator)):
            quotient.append(numerator[j] - sum((quotient[i] * exponential[j - i] for i in range(j)), zero))
        found.append([float(q) for q in quotient[:degree]])
        if k + 1 < terms:
            numerator = [(j + 1) * quotient[j + 1] for j in range(len(quotient) - 1)]
            numerator[0] += remainders[k + 1]
    return found


def _expansion(a, y):
    t, inverse, total = y - _core.unary("log", a), 1.0 / a, 0.0
    for coefficients in reversed(_expansion_coefficients()):
        of_t = 0.0
        for c in reversed(coefficients):
            of_t = of_t * t + c
        total = total * inverse + of_t
    return total * inverse


@op(2, ["a"])
def gamma(key, /, a, shape=None, dtype="float32"):
    """Gamma with shape parameter a > 0 and scale 1 (mean a, variance a).

    a: a number or an array, not negative; shape: of the result, a's if not given. By rejection (Marsaglia and Tsang 2000), each element by itself. Derivatives by a
    are those at a fixed quantile for a >= 1, and of u^(1 / a) times the number of a + 1 below: gradients of expectations without bias, of the first and the
    second order; a third one is refused in reverse mode and NaN in forward mode. a = 0 gives 0, a negative one NaN.
    """
    (a,), _ = _parameters("gamma", shape, dtype, a)
    return _gammas(key, a)[0]


@op(2, ["a"])
def loggamma(key, /, a, shape=None, dtype="float32"):
    """The logarithm of what `gamma` gives for the same key, also where that is too small to be a number, as of a small a."""
    (a,), _ = _parameters("loggamma", shape, dtype, a)
    return _gammas(key, a)[1]


@op(3, ["a", "b"])
def beta(key, /, a, b, shape=None, dtype="float32"):
    """Beta with parameters a, b > 0 (mean a / (a + b)): x / (x + y) of two gamma distributed numbers, with derivatives by both as of `gamma`."""
    (a, b), _ = _parameters("beta", shape, dtype, a, b)
    keys = _draws.split(key, 2)
    return _core.unary("sigmoid", _gammas(keys[0], a)[1] - _gammas(keys[1], b)[1])


@op(2, ["alpha"])
def dirichlet(key, /, alpha, shape=None, dtype="float32"):
    """Dirichlet with parameters alpha > 0, (..., n): probabilities (..., n) that sum to 1. Derivatives by alpha as of `gamma`.

    shape: of the result without its last axis, alpha's if not given.
    """
    alpha = _core.cast(alpha, _draws.checked_float(dtype))
    if alpha.ndim == 0:
        raise _core.UserError(f"[dirichlet] alpha must have an axis for the categories. Received: {alpha._type}.")
    shape = alpha.shape[:-1] if shape is None else _draws.dims(shape)
    (alpha,), _ = _parameters("dirichlet", (*shape, alpha.shape[-1]), dtype, alpha)
    return _core.softmax(_gammas(key, alpha)[1], alpha.ndim - 1)


@op(2, ["df"])
def chisquare(key, /, df, shape=None, dtype="float32"):
    """Chi-squared with df > 0 degrees of freedom (mean df, variance 2 df): twice a gamma distributed number of df / 2."""
    (df,), _ = _parameters("chisquare", shape, dtype, df)
    return 2.0 * _gammas(key, 0.5 * df)[0]


@op(2, ["df"])
def t(key, /, df, shape=None, dtype="float32"):
    """Student's t with df > 0 degrees of freedom, location 0 and scale 1: a normal number over the root of a chi-squared one's mean square."""
    (df,), shape = _parameters("t", shape, dtype, df)
    keys = _draws.split(key, 2)
    is_normal = _core.binary("eq", df, math.inf)
    half = 0.5 * _select(is_normal, 2.0, df)
    scale = _core.unary("exp", 0.5 * (_core.unary("log", half) - _gammas(keys[1], half)[1]))
    return _draws.normal(keys[0], shape, dtype) * _select(is_normal, 1.0, scale)


@op(2, ["rate"])
def poisson(key, /, rate, shape=None):
    """Poisson with mean `rate`, int32: at most 2^31 - 1; -1 for a rate that is negative or NaN. No derivative.

    By summing probabilities below 10, above by transformed rejection (Hoermann, The transformed rejection method for generating Poisson random variables, 1993).
    """
    (rate,), shape = _parameters("poisson", shape, "float64", rate)
    rate, keys = _stopped(rate), _draws.split(_draws.checked_key(key), 2)
    is_large = _core.binary("ge", rate, 10.0)
    is_valid = _core.append("and", [_core.binary("ge", rate, 0.0), _finite(rate)], {})
    small = _select(_core.append("or", [is_large, _core.unary("not", is_valid)], {}), 0.0, rate)
    u = _draws.open_unit(keys[0], shape, "float64")

    # The sum may end a little below 1, and u above it.
    def counts(carry):
        k, found, term, reached = carry
        waits = _core.binary("lt", reached, u)
        term = term * small / (k + 1.0)
        return k + 1.0, _select(waits, found + 1.0, found), term, _select(waits, reached + term, reached)

    def any_waits(carry):
        waits = _core.binary("lt", carry[3], u)
        waits = _core.append("reduce_max", [waits], {"axes": list(range(waits.ndim))}) if waits.ndim else waits
        return _core.append("and", [waits, _core.binary("lt", carry[0], 100.0)], {})

    none = _core.unary("exp", -small)
    below = while_loop(any_waits, counts, (_core.cast(0.0, "float64"), none * 0.0, none, none))[1]
    mean = _select(_core.append("and", [is_large, is_valid], {}), rate, 10.0)
    b = 0.931 + 2.53 * _core.unary("sqrt", mean)
    a = -0.059 + 0.02483 * b
    log_scale = _core.unary("log", 1.1239 + 1.1328 / (b - 3.4))
    log_mean = _core.unary("log", mean)

    def attempt(k):
        both = _draws.split(k, 2)
        u = _draws.open_unit(both[0], shape, "float64") - 0.5
        v = _draws.open_unit(both[1], shape, "float64")
        us = 0.5 - _core.unary("abs", u)
        k = _core.unary("floor", (2.0 * a / us + b) * u + mean + 0.43)
        at_once = _core.append("and", [_core.binary("ge", us, 0.07), _core.binary("le", v, 0.9277 - 3.6224 / (b - 2.0))], {})
        never = _core.append("or", [_core.binary("lt", k, 0.0), _core.append("and", [_core.binary("lt", us, 0.013), _core.binary("gt", v, us)], {})], {})
        safe = _core.binary("max", k, 0.0)
        fits = _core.binary("le", _core.unary("log", v) + log_scale - _core.unary("log", a / (us * us) + b), safe * log_mean - mean - _core.composed_lgamma(safe + 1.0))
        return safe, _core.append("or", [at_once, _core.append("and", [fits, _core.unary("not", never)], {})], {})

    above = _accepted(keys[1], attempt, _core.append("and", [is_large, is_valid], {}), mean)
    found = _select(is_valid, _select(is_large, above, below), _select(_core.binary("eq", rate, math.inf), math.inf, -1.0))
    return _core.cast(_core.binary("min", found, 2.0**31 - 1), "int32")


@op(3, ["mean", "cov"])
def multivariate_normal(key, /, mean, cov, shape=None, dtype="float32"):
    """Normal vectors (..., n) with mean (..., n) and covariance (..., n, n): mean + L z, of Cholesky's factor L. Derivatives by both; NaN for a covariance that is not positive definite.

    shape: of the result without its last axis; what those of mean and covariance broadcast to if not given.
    """
    from hotloop import linalg

    dtype = _draws.checked_float(dtype)
    mean, cov = _core.cast(mean, dtype), _core.cast(cov, dtype)
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-2:] != (mean.shape[-1], mean.shape[-1]):
        raise _core.UserError(f"[multivariate_normal] mean must be (..., n) and cov (..., n, n). Received: {mean._type} and {cov._type}.")
    n = mean.shape[-1]
    try:
        batch = numpy.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
        shape = batch if shape is None else _draws.dims(shape)
        if numpy.broadcast_shapes(shape, batch) != shape:
            raise ValueError
    except ValueError:
        raise _core.UserError(f"[multivariate_normal] the axes before those of mean and cov must broadcast to the shape. Received: {mean._type} and {cov._type}, shape={shape}.") from None
    factor = linalg.cholesky(cov)
    z = _draws.normal(key, (*shape, n), dtype)
    if factor.ndim == 2:
        return mean + _core.matmul(z, _core.append("transpose", [factor], {"permutation": [1, 0]}))
    return mean + _core.reshape(_core.matmul(factor, _core.reshape(z, (*z.shape, 1))), z.shape)


@op(1)
def rademacher(key, /, shape=(), dtype="int32"):
    """-1 or 1, equally likely."""
    words = _core.random_bits(_draws.checked_key(key), _draws.dims(shape))
    return _core.cast(1 - 2 * _core.cast(_core.binary("shr", words, _core.cast(31, "uint32")), "int32"), _core.dtype(dtype))


@op(3, ["scale", "concentration"])
def weibull_min(key, /, scale, concentration, shape=None, dtype="float32"):
    """Weibull: scale times the 1 / concentration-th power of an exponential number. Derivatives by both."""
    (scale, concentration), shape = _parameters("weibull_min", shape, dtype, scale, concentration)
    return scale * _core.unary("exp", _core.unary("log", _draws.exponential(key, shape, dtype)) / concentration)


@op(2, ["b"])
def pareto(key, /, b, shape=None, dtype="float32"):
    """Pareto on [1, inf) with P(x > y) = y^-b. Derivative by b."""
    (b,), shape = _parameters("pareto", shape, dtype, b)
    return _core.unary("exp", _draws.exponential(key, shape, dtype) / b)


@op(1)
def cauchy(key, /, shape=(), dtype="float32"):
    """Cauchy with location 0 and scale 1: tan(pi u / 2), u uniform in (-1, 1)."""
    u = _draws.symmetric(_draws.checked_key(key), _draws.dims(shape), dtype)
    # The cosine as a sine of the exact distance from the end.
    return _core.unary("sin", (math.pi / 2) * u) / _core.unary("sin", (math.pi / 2) * (1.0 - _core.unary("abs", u)))
