"""Elementwise functions, under the names of the Python array API standard.

Operands broadcast as in NumPy; dtypes are promoted by `hotloop.result_type`. Functions that are not exact on integers give
float32 for them. The functions of one primitive op come from the engine's registry, with its words; the rest is composed here.
"""

import builtins
import math
import sys

import numpy

from hotloop import _core
from hotloop._op import exporter, integer, op

# Array API names of primitives that have another name in the engine.
_NAMES = {
    "neg": "negative",
    "sub": "subtract",
    "mul": "multiply",
    "rint": "round",
    "max": "maximum",
    "min": "minimum",
    "not": "logical_not",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "shl": "bitwise_left_shift",
    "shr": "bitwise_right_shift",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_OTHERWISE = {"cast", "select", "div", "rem", "rint", "not", "copy", "bitcast", "fma", "pow", "stop_gradient"}  # below, or elsewhere


def _unary(name, primitive, summary):
    def fn(x, /):
        return _core.unary(primitive, x)

    return _named(fn, name, f"{summary}.\n\nx: array of any shape; the result has its shape.")


def _unless_whole(name, x, rounded):
    """rounded(x); integers are what they are."""
    x = _core.to_tracer(x, name)
    return x if x.dtype.kind in "iu" else rounded(x)


def _rounding(name, primitive, summary):
    def fn(x, /):
        return _unless_whole(name, x, lambda numbers: _core.unary(primitive, numbers))

    return _named(fn, name, f"{summary}. Integers stay integers.\n\nx: array of any shape; the result has its shape.")


def _binary(name, primitive, summary):
    def fn(x1, x2, /):
        return _core.binary(primitive, x1, x2)

    return _named(fn, name, f"{summary}.\n\nx1, x2: arrays or numbers whose shapes broadcast; UserError with both otherwise.")


def _named(fn, name, doc):
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    fn.__module__ = "hotloop"
    return fn


def _from_registry():
    found = {}
    for primitive, summary, elementwise, operands in _core.op_definitions():
        if not elementwise or primitive in _OTHERWISE or operands not in (1, 2):
            continue
        name = _NAMES.get(primitive, primitive)
        make = _rounding if primitive in ("floor", "ceil") else _unary if operands == 1 else _binary
        found[name] = op(operands)(make(name, primitive, summary[0].upper() + summary[1:]))
    return found


_REGISTERED = _from_registry()
globals().update(_REGISTERED)
_f = _REGISTERED
__all__ = list(_REGISTERED)
_export = exporter(__all__)


@_export(2)
def divide(x1, x2, /):
    """x1 / x2, in floating point: integers give float32."""
    return _core.binary("div", x1, x2, floats=True)


@_export(2)
def floor_divide(x1, x2, /):
    """The largest integer that is at most x1 / x2, in the promoted dtype; the derivative is 0. Of floats the one that goes with `remainder`, as in NumPy: 1.0 // 0.1
    is 9, of which 0.0999... remains. Division by zero gives 0 for integers, x1 / x2 for floats."""
    x1, x2 = _core.promote("floor_divide", [x1, x2])
    if x1.dtype.kind == "f":
        return _float_quotient(x1, x2)
    quotient = _core.binary("div", x1, x2)
    inexact = _core.binary("ne", _core.binary("mul", quotient, x2), x1)
    negative = _core.binary("ne", _core.binary("lt", x1, 0), _core.binary("lt", x2, 0))
    return _core.binary("sub", quotient, _core.cast(_core.binary("and", inexact, negative), quotient.dtype))


def _float_quotient(x1, x2):
    """floor(x1 / x2) of the exact quotient: what remains is taken off first. The derivative is 0."""
    x1, x2 = (_core.append("stop_gradient", [x], {}) for x in (x1, x2))
    rest, wrong = _remaining(x1, x2)
    ratio, quotient = x1 / x2, (x1 - rest) / x2 - _core.cast(wrong, x1.dtype)
    whole = _core.unary("floor", quotient)  # which rounding may have brought below the whole number that it is
    whole = _select(_core.binary("gt", quotient - whole, 0.5), whole + 1.0, whole)
    return _select(_core.binary("eq", x2, 0), ratio, _select(_core.binary("eq", quotient, 0), ratio * 0.0, whole))


def _remaining(x1, x2):
    """(x1 - trunc(x1 / x2) x2, where that has not the sign of x2)."""
    rest = _core.binary("rem", x1, x2)
    other_sign = _core.binary("ne", _core.binary("lt", rest, 0), _core.binary("lt", x2, 0))
    return rest, _core.binary("and", other_sign, _core.binary("ne", rest, 0))


@_export(2)
def remainder(x1, x2, /):
    """x1 - floor(x1 / x2) x2: the sign of x2, as Python's %; a zero has the sign of x1."""
    x1, x2 = _core.promote("remainder", [x1, x2])
    rest, wrong = _remaining(x1, x2)
    return _select(wrong, _core.binary("add", rest, x2), rest)


@_export(2)
def divmod(x1, x2, /):
    """(floor_divide(x1, x2), remainder(x1, x2))."""
    return floor_divide(x1, x2), remainder(x1, x2)


@_export(1)
def round(x, /, decimals=0):
    """The nearest whole number, of two the even one; with `decimals` the nearest multiple of 10^-decimals, as numpy.round computes it. Integers stay integers; the derivative is 0."""
    x, decimals = _core.to_tracer(x, "round"), integer("round", "decimals", decimals)
    if decimals >= 0 and x.dtype.kind in "iu":
        return x
    if decimals == 0 or x.dtype.kind == "b":
        return _core.unary("rint", x)
    if builtins.abs(decimals) > sys.float_info.max_10_exp:
        raise _core.UserError(f"[round] 10^decimals must be a float64: decimals from -{sys.float_info.max_10_exp} to {sys.float_info.max_10_exp}. Received: {decimals}.")
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return _core.binary("div", _core.unary("rint", _core.binary("mul", x, scale)), scale)
    wide = x if x.dtype.kind == "f" else _core.cast(x, "float64")
    return _core.cast(_core.binary("mul", _core.unary("rint", _core.binary("div", wide, scale)), scale), x.dtype)


def better(compare):
    """(old, new) -> what stays of them: the new value only where it compares so with the old one, or is NaN."""

    def choose(old, new):
        wins = _core.binary(compare, new, old)
        if new.dtype.kind == "f":
            wins = _core.binary("or", wins, _core.binary("ne", new, new))
        return _core.append("select", [wins, new, old], {})

    return choose


def pow(x1, x2, /):
    """x1 to the power of x2. NaN below 0 for powers that are not whole.

    Of integers an integer, without its upper bits where it has more than the dtype holds; an array's negative powers are 0, but of 1 and -1, and a negative number is
    a UserError.
    """
    if isinstance(x2, int) and x2 < 0 and (isinstance(x1, int) or getattr(getattr(x1, "dtype", None), "kind", "f") in "iu"):
        raise _core.UserError(f"[pow] an integer's power must not be negative. Received: {x2}. Try: x.astype(hl.float32).")
    return _pow(x1, x2)


pow.__module__ = "hotloop"
__all__.append("pow")


@op(2)
def _pow(x1, x2):
    x, n = _core.promote("pow", [x1, x2])
    if x.dtype.kind not in "iu":
        return _core.binary("pow", x1, x2)
    if isinstance(x2, int):
        return _core.broadcast_to(whole_power(x, x2), numpy.broadcast_shapes(x.shape, n.shape))
    x, n = _core.broadcast_arrays("pow", [x, n])
    result = _core.full(1, x.dtype, x.shape)
    if n.dtype.kind == "i":
        # 1 and -1 to the power of n are those of -n.
        is_unit = _core.binary("or", _core.binary("eq", x, 1), _core.binary("eq", x, -1))
        result = _select(_core.binary("or", _core.binary("ge", n, 0), is_unit), result, 0)
    for bit in range(8 * n.dtype.itemsize - (n.dtype.kind == "i")):
        has_bit = _core.binary("ne", _core.binary("and", _core.binary("shr", n, bit), 1), 0)
        result = result * _select(has_bit, x, 1)
        x = x * x
    return result


def whole_power(x, n):
    """x^n of a known integer n >= 0, by products."""
    result = _core.full(1, x.dtype, x.shape)
    while n:
        if n % 2:
            result = result * x
        x, n = (x * x if n > 1 else x), n // 2
    return result


@_export(1)
def logical_not(x, /):
    """True where x is false (zero)."""
    return _core.unary("not", _bool(x))


@_export(1)
def bitwise_invert(x, /):
    """All bits flipped; on bool the same as logical_not."""
    return _core.unary("not", x)


def _bool(x):
    return _core.cast(x, "bool")


def _logical(name, primitive):
    def fn(x1, x2, /):
        return _core.binary(primitive, _bool(x1), _bool(x2))

    return _export(2)(_named(fn, name, f"{name.split('_')[1]} of the truth of x1 and x2; what is not zero is true."))


logical_and = _logical("logical_and", "and")
logical_or = _logical("logical_or", "or")
logical_xor = _logical("logical_xor", "xor")


def _select(condition, a, b):
    a, b = _core.promote("where", [a, b])
    return _core.append("select", _core.broadcast_arrays("where", [condition, a, b]), {})


@_export(3)
def where(condition, x1, x2, /):
    """x1 where the condition holds, else x2; the three broadcast.

    Both are computed everywhere; a NaN in what was not chosen stays out of the result. In reverse mode it is given the
    cotangent 0, which an infinite derivative makes NaN: choose the argument first, as in sqrt(where(x > 0, x, 1)).
    """
    return _select(_bool(condition), x1, x2)


@op(2)
def filled(mask, x, value):
    """x where the mask holds, else a number, which is given the dtype of x: 0 among bools is False."""
    x = _core.to_tracer(x)
    return _select(_bool(mask), x, _core.fitted("where", value, x.dtype))


@_export(1)
def positive(x, /):
    """x itself, as an array."""
    return _core.to_tracer(x)


@_export(1)
def square(x, /):
    """x^2, in the dtype of x."""
    return _core.composed_square(x)


@_export(1)
def reciprocal(x, /):
    """1 / x."""
    return divide(1.0, x)


@_export(1)
def trunc(x, /):
    """The integer next to x toward zero. Integers stay integers."""
    return _unless_whole("trunc", x, lambda v: _select(_core.binary("lt", v, 0), _core.unary("ceil", v), _core.unary("floor", v)))


@_export(1)
def isnan(x, /):
    """True where x is NaN."""
    return _core.binary("ne", x, x)


@_export(1)
def isfinite(x, /):
    """True where x is neither infinite nor NaN."""
    return _core.binary("lt", _size(x), math.inf)


@_export(1)
def isinf(x, /):
    """True where x is +inf or -inf."""
    return _core.binary("eq", _size(x), math.inf)


def _size(x):
    x = _core.to_tracer(x)
    return x if x.dtype.kind == "b" else _core.unary("abs", x)


@_export(1)
def signbit(x, /):
    """True where x is negative, -0.0 included. The sign of a NaN is not looked at: False."""
    x = _core.promote("signbit", [x], True)[0]
    bits = _core.append("bitcast", [x], {"dtype": numpy.dtype("int32" if x.dtype.itemsize == 4 else "int64")})
    return _core.binary("and", _core.binary("lt", bits, 0), _core.binary("eq", x, x))


@_export(2)
def copysign(x1, x2, /):
    """|x1| with the sign of x2, that of a zero included."""
    x1, x2 = _core.promote("copysign", [x1, x2], True)
    size = _core.unary("abs", x1)
    return _select(signbit(x2), -size, size)


@_export(2)
def nextafter(x1, x2, /):
    """The next number after x1 towards x2, in their dtype; x2 where they are equal. Its derivative is zero.

    By arithmetic that rounds to it (Rump, Zimmermann, Boldo, Melquiond, "Computing predecessor and successor in rounding to nearest",
    BIT 2009).
    """
    x1, x2 = _core.promote("nextafter", [x1, x2], True)
    x1, x2 = (_core.append("stop_gradient", [x], {}) for x in (x1, x2))
    digits, smallest, largest = (24, 2.0**-149, (2 - 2.0**-23) * 2.0**127) if x1.dtype.itemsize == 4 else (53, 2.0**-1074, sys.float_info.max)
    unit = 2.0**-digits
    step = unit * (1 + 2 * unit)
    # Upwards in the direction of x2.
    x = _select(x1 < x2, x1, -x1)
    size = _core.unary("abs", x)
    scaled = x * 2.0**digits
    near_zero = _select(size < smallest * 2.0**digits, x + smallest, (scaled + _core.unary("abs", scaled) * step) * unit)
    upwards = _select(size < smallest * 2.0 ** (2 * digits - 1), near_zero, x + size * step)
    upwards = _select(_core.binary("eq", size, math.inf), -largest, upwards)
    result = _select(x1 < x2, upwards, -upwards)
    result = _select(_core.binary("eq", result, 0.0), x1 * 0.0, result)  # the zero on the side where x1 is
    result = _select(_core.binary("eq", x1, x2), x2, result)
    return _select(_core.binary("or", isnan(x1), isnan(x2)), math.nan, result)


@_export(1)
def conj(x, /):
    """x: there are no complex dtypes."""
    return _core.to_tracer(x)


@_export(1)
def real(x, /):
    """x: there are no complex dtypes."""
    return _core.to_tracer(x)


@_export(1)
def imag(x, /):
    """Zeros: there are no complex dtypes."""
    x = _core.to_tracer(x)
    return _core.cast(_core.full(0.0, x.dtype, x.shape), x.dtype)


@_export(1)
def tan(x, /):
    """sin(x) / cos(x)."""
    return divide(_core.unary("sin", x), _core.unary("cos", x))


@_export(2)
def atan2(x1, x2, /):
    """Angle of the point (x2, x1) in [-pi, pi]; signs of zeros count, as in C. The derivative at the origin is NaN."""
    return _core.atan2(x1, x2)


@_export(2)
def hypot(x1, x2, /):
    """sqrt(x1^2 + x2^2), scaled so that squares do not overflow; infinite where one of them is. The derivative at the origin is 0."""
    x1, x2 = _core.broadcast_arrays("hypot", _core.promote("hypot", [x1, x2], True))
    largest = _core.binary("max", _core.unary("abs", x1), _core.unary("abs", x2))
    is_origin = _core.binary("eq", largest, 0)
    # The scale cancels, so it counts as a constant: every derivative is that of the sum of squares.
    has_size = _core.append("and", [_core.binary("gt", largest, 0), _core.binary("lt", largest, math.inf)], {})
    scale = _core.append("stop_gradient", [_select(has_size, largest, 1.0)], {})
    a, b = x1 / scale, x2 / scale
    root = scale * _core.unary("sqrt", _select(is_origin, 1.0, a * a + b * b))
    is_infinite = _core.append("or", [_core.binary("eq", _core.unary("abs", v), math.inf) for v in (x1, x2)], {})
    return _select(is_infinite, math.inf, _select(is_origin, 0.0, root))


@_export(3, ["min", "max"])
def clip(x, /, min=None, max=None):
    """x limited to [min, max]; either may be None. A NaN stays NaN."""
    x = _core.to_tracer(x, "clip")
    if min is not None:
        x = _core.binary("max", x, min)
    return x if max is None else _core.binary("min", x, max)


@_export(1, ["nan", "posinf", "neginf"])
def nan_to_num(x, /, *, nan=0.0, posinf=None, neginf=None):
    """x with `nan` in place of NaN, and the largest and the lowest finite number, or `posinf` and `neginf`, in place of the infinities. What was
    replaced has no derivative."""
    x = _core.to_tracer(x, "nan_to_num")
    if x.dtype.kind != "f":
        return x
    most = float(numpy.finfo(x.dtype).max)
    infinite = [(_core.binary("eq", x, math.inf), most if posinf is None else posinf), (_core.binary("eq", x, -math.inf), -most if neginf is None else neginf)]
    for where_, number in [(isnan(x), nan), *infinite]:
        x = _select(where_, _core.fitted("nan_to_num", number, x.dtype), x)
    return x


def _composed(name, doc):
    def fn(x, /):
        return getattr(_core, "composed_" + name)(x)

    return _export(1)(_named(fn, name, doc))


relu = _composed("relu", "max(x, 0). The derivative at 0 is 0; a NaN stays NaN.")
softplus = _composed("softplus", "log(1 + e^x) without overflow.")
atan = _composed("atan", "Angle whose tangent is x, in [-pi/2, pi/2].")
asin = _composed("asin", "Angle whose sine is x, in [-pi/2, pi/2]; NaN beyond [-1, 1]. The derivative is NaN at -1 and 1.")
lgamma = _composed("lgamma", "log |Gamma(x)|: infinite at 0, at the negative integers and at both infinities. The derivative is `digamma(x)`.")
digamma = _composed("digamma", "Derivative of `lgamma(x)`: infinite at 0, NaN at the negative integers. `hl.grad` of it is the trigamma function, and so on.")
erfc = _composed("erfc", "1 - erf(x), with all digits where x is large and erf(x) rounds to 1.")
ndtr = _composed("ndtr", "The normal distribution function: the probability that a standard normal number is less than x.")
log_ndtr = _composed("log_ndtr", "log(ndtr(x)), also far below 0 where ndtr(x) itself is no number any more: of censored and of binary outcomes, of expected improvements.")
ndtri = _composed("ndtri", "The inverse of `ndtr`: what a standard normal number is less than with probability x. Infinite at 0 and 1, NaN beyond; the tail near 0 keeps all digits, and so does the derivative in float32.")
acos = _composed("acos", "Angle whose cosine is x, in [0, pi]; NaN beyond [-1, 1]. The derivative is NaN at -1 and 1.")


@_export(1)
def gelu(x, /, approximate=False):
    """x times the normal distribution function of x (Hendrycks and Gimpel 2016), or with `approximate` (True or "tanh") the paper's formula with tanh. JAX has True unless told."""
    if approximate in (False, "none"):
        return _core.composed_gelu(x)
    if approximate in (True, "tanh"):
        return _core.activation(x, "gelu_tanh")
    raise _core.UserError(f"[gelu] approximate must be False, True or 'tanh'. Received: {approximate!r}.")


def _activation(name, definition, doc):
    def fn(x, /):
        return _core.activation(x, definition)

    return _export(1)(_named(fn, name, doc))


selu = _activation("selu", "selu", "Self-normalising elu (Klambauer et al. 2017).")
mish = _activation("mish", "mish", "x tanh(softplus(x)) (Misra 2020).")
softsign = _activation("softsign", "softsign", "x / (1 + |x|).")
relu6 = _activation("relu6", "relu6", "x limited to [0, 6].")
hard_tanh = _activation("hard_tanh", "hard_tanh", "x limited to [-1, 1].")
hard_sigmoid = _activation("hard_sigmoid", "hard_sigmoid_keras3", "x / 6 + 0.5 limited to [0, 1], as in JAX, PyTorch and Keras 3.")


@_export(1, ["alpha"])
def elu(x, /, alpha=1.0):
    """x, or alpha (exp(x) - 1) below 0 (Clevert et al. 2016). alpha: a number, or an array that broadcasts with x; in x's dtype."""
    x = _core.promote("elu", [x], True)[0]
    above = _core.binary("gt", x, 0)
    return _select(above, x, _core.fitted("elu", alpha, x.dtype) * _core.unary("expm1", _select(above, 0, x)))


@_export(1, ["slope"])
def leaky_relu(x, /, slope=0.01):
    """x, or slope x below 0. slope: a number, or an array that broadcasts with x; in x's dtype."""
    x = _core.promote("leaky_relu", [x], True)[0]
    return _select(_core.binary("gt", x, 0), x, _core.fitted("leaky_relu", slope, x.dtype) * x)


@_export(1)
def silu(x, /):
    """x sigmoid(x)."""
    x = _core.promote("silu", [x], True)[0]
    return x * _core.unary("sigmoid", x)


@_export(1)
def log_sigmoid(x, /):
    """log(sigmoid(x)) = -softplus(-x)."""
    return -_core.composed_softplus(_core.unary("neg", x))
