"""Random numbers as pure functions of a key: the same bits for any number of threads, batch layout or device.

A key is uint32[2]. Use each key once: split() or fold_in() give new ones. Under vmap a key that is not mapped gives every lane
the same numbers. Philox2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): element i of an array drawn from a
key is word i % 2 at the counter (i / 2, second key word) under the first key word. A key gives at most 2^32 words.
"""

import math
import operator

import numpy

from hotloop import _core, _cumulative, _distributions, _manipulation, _names
from hotloop._distributions import *  # noqa: F403
from hotloop._op import op

__all__ = [
    "key", "split", "fold_in", "bits", "uniform", "normal", "truncated_normal", "exponential", "gumbel", "laplace", "logistic", "bernoulli", "randint",
    "categorical", "permutation", "choice", *_distributions.__all__,
]  # fmt: skip


def __dir__():
    return __all__


def __getattr__(name):
    raise _names.absent("hotloop.random", name, __all__, _names.RANDOM)


def key(seed):
    """The key of an integer seed of at most 64 bits."""
    seed = operator.index(seed)
    if not -(2**63) <= seed < 2**64:
        raise _core.UserError(f"[random] a seed has at most 64 bits. Received: {seed}.")
    return _core.asarray(numpy.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], dtype=numpy.uint32))


def checked_key(k):
    """k, if it is a key."""
    if k is None:
        raise _core.UserError("[random] a key must be uint32[2]. Received: None. Try: model(params, x, key=hl.random.key(seed)); without a key, as for a validation, a layer draws nothing: if key is None.")
    k = _core.to_tracer(k, "random")
    if k.shape != (2,) or k.dtype != numpy.uint32:
        raise _core.UserError(f"[random] a key must be uint32[2]. Received: {k._type}. Try: hl.random.key(seed).")
    return k


def dims(shape):
    """A shape, or its only extent, as a tuple."""
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


@op(1)
def split(key, num=2, /):
    """`num` independent keys: (num, 2). They differ: for one key, Philox is a permutation of its counters."""
    return _core.random_bits(checked_key(key), (num, 2))


@op(2)
def _folded(key, data, /):
    # The data go into the second word, the counter's, so that different data give different keys.
    words = _core.random_bits(checked_key(key), (2,))
    counter = _core.binary("xor", words[1:2], _core.reshape(_core.cast(data, "uint32"), (1,)))
    return _core.random_bits(_core.concat([words[0:1], counter], 0), (2,))


def fold_in(key, data, /):
    """The key for number `data` (an integer of at most 32 bits, known or traced): for a step or an index. Different data give different keys."""
    if getattr(data, "dtype", None) is None:
        try:
            data = operator.index(data)
        except TypeError:
            raise _core.UserError(f"[random] fold_in takes an integer. Received: {data!r}.") from None
        if not -(2**31) <= data < 2**32:
            raise _core.UserError(f"[random] fold_in takes an integer of at most 32 bits. Received: {data}. Try: fold_in() twice, by parts.")
        data = numpy.uint32(data & 0xFFFFFFFF)
    elif numpy.dtype(data.dtype).kind not in "iu":
        raise _core.UserError(f"[random] fold_in takes an integer. Received: {data.dtype}.")
    return _folded(key, data)


@op(1)
def bits(key, /, shape=()):
    """32 random bits an element: uint32."""
    return _core.random_bits(checked_key(key), dims(shape))


def _signed_bits(key, shape, shift):
    """The upper 32 - shift of 32 random bits as a signed integer."""
    return _core.binary("shr", _core.cast(_core.random_bits(key, shape), "int32"), _core.cast(shift, "int32"))


def _upper_bits(words, shift):
    """The upper 32 - shift bits of words, as int32: processors turn these into floats, not uint32."""
    return _core.cast(_core.binary("shr", words, _core.cast(shift, "uint32")), "int32")


def checked_float(dtype):
    """`dtype`, if numbers are drawn in it."""
    dtype = _core.dtype(dtype)
    if dtype not in (numpy.float32, numpy.float64):
        raise _core.UserError(f"[random] the dtype must be float32 or float64. Received: {dtype}.")
    return dtype


def _unit(key, shape, dtype):
    """Uniform in [0, 1): 24 bits for float32, 53 for float64."""
    dtype = checked_float(dtype)
    if dtype == numpy.float32:
        return _core.cast(_upper_bits(_core.random_bits(key, shape), 8), dtype) * 2.0**-24
    words = _core.random_bits(key, (*shape, 2))
    high, low = _core.cast(_upper_bits(words[..., 0], 5), dtype), _core.cast(_upper_bits(words[..., 1], 6), dtype)
    return (high * 2.0**26 + low) * 2.0**-53


def symmetric(key, shape, dtype):
    """Uniform in (-1, 1): the odd multiples of 2^-24 for float32, of 2^-53 for float64, as many below 0 as above."""
    dtype = checked_float(dtype)
    if dtype == numpy.float32:
        return _core.cast(_signed_bits(key, shape, 8), dtype) * 2.0**-23 + 2.0**-24
    words = _core.random_bits(key, (*shape, 2))
    high = _core.cast(_core.binary("shr", _core.cast(words[..., 0], "int32"), _core.cast(5, "int32")), dtype)
    return high * 2.0**-26 + (_core.cast(_upper_bits(words[..., 1], 6), dtype) * 2.0**-52 + 2.0**-53)


def open_unit(key, shape, dtype):
    """Uniform in (0, 1): the odd multiples of 2^-24 for float32, of 2^-53 for float64."""
    dtype = checked_float(dtype)
    if dtype == numpy.float32:
        return _core.cast(_upper_bits(_core.random_bits(key, shape), 9), dtype) * 2.0**-23 + 2.0**-24
    words = _core.random_bits(key, (*shape, 2))
    high = _core.cast(_upper_bits(words[..., 0], 6), dtype)
    return high * 2.0**-26 + (_core.cast(_upper_bits(words[..., 1], 6), dtype) * 2.0**-52 + 2.0**-53)


@op(1)
def uniform(key, /, shape=(), dtype="float32", low=0.0, high=1.0):
    """Uniform in [low, high), from 24 random bits for float32 and 53 for float64."""
    drawn = _unit(checked_key(key), dims(shape), dtype)
    known = isinstance(high, (int, float)) and isinstance(low, (int, float))
    if known and (low, high) == (0, 1):
        return drawn
    drawn = drawn * (high - low) + low
    if known and low < high:
        # What rounding took to `high` is the number below it.
        drawn = _core.binary("min", drawn, float(numpy.nextafter(numpy.asarray(high, drawn.dtype), numpy.asarray(low, drawn.dtype))))
    return drawn


@op(1)
def normal(key, /, shape=(), dtype="float32"):
    """Normal with mean 0 and standard deviation 1: sqrt(2) erfinv(u), u uniform in (-1, 1). float32 reaches 5.3, float64 8.2."""
    return math.sqrt(2) * _core.unary("erfinv", symmetric(checked_key(key), dims(shape), dtype))


@op(3)
def truncated_normal(key, lower, upper, /, shape=None, dtype="float32"):
    """Normal with mean 0 and standard deviation 1 under the condition that it lies in [lower, upper].

    lower, upper: numbers or arrays, with derivatives; shape: what they broadcast to if not given. By the inverse of the distribution function: of
    bounds that both lie beyond 4 in float32 (6 in float64), few different numbers are left.
    """
    dtype = checked_float(dtype)
    lower, upper = _core.cast(lower, dtype), _core.cast(upper, dtype)
    shape = numpy.broadcast_shapes(lower.shape, upper.shape) if shape is None else dims(shape)
    low, high = (_core.unary("erf", bound * math.sqrt(0.5)) for bound in (lower, upper))
    drawn = open_unit(checked_key(key), shape, dtype) * (high - low) + low
    most = float(numpy.nextafter(dtype.type(1), dtype.type(0)))  # rounding may reach 1, which is infinitely far
    drawn = _core.binary("min", _core.binary("max", drawn, -most), most)
    drawn = math.sqrt(2) * _core.unary("erfinv", drawn)
    return _core.binary("min", _core.binary("max", drawn, lower), upper)


@op(1)
def exponential(key, /, shape=(), dtype="float32"):
    """Exponential with mean 1: -log(u), u uniform in (0, 1)."""
    return -_core.unary("log", open_unit(checked_key(key), dims(shape), dtype))


def _gumbel(key, shape, dtype):
    return -_core.unary("log", -_core.unary("log", open_unit(checked_key(key), shape, dtype)))


@op(1)
def gumbel(key, /, shape=(), dtype="float32"):
    """Gumbel with location 0 and scale 1: -log(-log(u)), u uniform in (0, 1)."""
    return _gumbel(key, dims(shape), dtype)


@op(1)
def laplace(key, /, shape=(), dtype="float32"):
    """Laplace with mean 0 and scale 1 (variance 2): -sign(u) log(1 - |u|), u uniform in (-1, 1)."""
    u = symmetric(checked_key(key), dims(shape), dtype)
    return -_core.unary("sign", u) * _core.unary("log1p", -_core.unary("abs", u))


@op(1)
def logistic(key, /, shape=(), dtype="float32"):
    """Logistic with mean 0 and scale 1 (variance pi^2 / 3): log((1 + u) / (1 - u)), u uniform in (-1, 1)."""
    u = symmetric(checked_key(key), dims(shape), dtype)
    t = _core.unary("abs", u)
    return _core.unary("sign", u) * _core.unary("log1p", 2.0 * t / (1.0 - t))


@op(2, ["p"])
def bernoulli(key, /, p=0.5, shape=None):
    """True with probability p, a number or an array. shape: p's if not given."""
    return _core.binary("lt", _unit(checked_key(key), numpy.shape(p) if shape is None else dims(shape), "float32"), p)


@op(1)
def randint(key, /, shape, low, high):
    """Integers (int32) in [low, high), their range at most 2^31: the upper half of range times 64 random bits, equally likely within 2^-33."""
    low, high = operator.index(low), operator.index(high)
    if not (0 < high - low <= 2**31 and low >= -(2**31) and high <= 2**31):
        raise _core.UserError(f"[random] high - low must be in 1 .. 2^31, of int32. Received: {low} and {high}.")
    words = _core.cast(_core.random_bits(checked_key(key), (*dims(shape), 2)), "int64")
    count, half = _core.cast(high - low, "int64"), _core.cast(32, "int64")
    carried = _core.binary("shr", words[..., 1] * count, half)
    return _core.cast(_core.binary("shr", words[..., 0] * count + carried, half) + low, "int32")


@op(2)
def categorical(key, logits, /, axis=-1, shape=None):
    """Which category (int32), with probabilities softmax(logits) along `axis`: the place of the largest logits + gumbel.

    shape: of the result, which ends as the shape of logits without `axis` does, or that if not given. No derivative (of logits + gumbel
    a softmax has one: Jang et al. 2017).
    """
    logits = _core.to_tracer(logits, "random")
    if not -logits.ndim <= axis < logits.ndim:
        raise _core.UserError(f"[random] axis must be one of the logits. Received: {axis} and {logits._type}.")
    axis %= logits.ndim
    dtype = logits.dtype if logits.dtype.kind == "f" else numpy.dtype("float32")
    rest = tuple(n for i, n in enumerate(logits.shape) if i != axis)
    shape = rest if shape is None else dims(shape)
    more = len(shape) - len(rest)
    if more < 0 or any(n not in (1, wanted) for n, wanted in zip(rest, shape[more:])):
        raise _core.UserError(f"[random] shape must end as that of the logits without their axis, {rest}. Received: {shape}.")
    drawn = list(shape)
    drawn.insert(more + axis, logits.shape[axis])
    return _core.append("argmax", [_gumbel(key, tuple(drawn), dtype) + _core.cast(logits, dtype)], {"axis": more + axis})


@op(1)
def _shuffled(key, num, /):
    # Sorts by random words. Rounds, since equal words stay in order: with 3 log(num) / log(2^32) of them two numbers have all words equal with a
    # probability of 1 / num, as in JAX.
    order = _core.iota("int32", (num,), 0)
    rounds = max(math.ceil(3 * math.log(max(num, 1)) / math.log(2**32)), 1)
    words = _core.random_bits(checked_key(key), (rounds, num))
    for i in range(rounds):
        order = order[_core.argsort(words[i], 0, False)]
    return order


def permutation(key, x, /, axis=0):
    """0 .. x - 1 in random order (int32) of an integer x; the slices of an array x along `axis` in random order. All orders are equally likely."""
    num, x = _range(x, axis, "permutation")
    order = _shuffled(key, num)
    return order if x is None else _manipulation.take(x, order, axis=axis)


def _range(x, axis, where):
    """How many there are to choose from, and the array if x is one."""
    if not isinstance(x, (int, numpy.integer)):
        shape = numpy.shape(x)
        if not -len(shape) <= axis < len(shape):
            raise _core.UserError(f"[random] {where} takes an integer or an array that has the axis. Received: shape {shape} and axis {axis}.")
        return shape[axis], x
    if not 0 <= x < 2**31:
        raise _core.UserError(f"[random] {where} takes an integer in 0 .. 2^31 - 1. Received: {x}.")
    return int(x), None


@op(2)
def _chosen(key, p, count, replace, /):
    p = _core.to_tracer(p, "random")
    p = p if p.dtype.kind == "f" else _core.cast(p, "float32")
    if not replace:
        # The largest of log p + gumbel are a draw without replacement (Vieira 2014).
        return _core.argsort(_gumbel(key, p.shape, p.dtype) + _core.unary("log", p), 0, True)[:count]
    reached = _cumulative.cumulative_sum(p)
    drawn = reached[-1] * (1.0 - _unit(checked_key(key), (count,), p.dtype))  # in (0, sum]
    return _core.cast(_core.searchsorted(reached, drawn, False), "int32")


def choice(key, a, /, shape=(), replace=True, p=None, axis=0):
    """Draws from 0 .. a - 1 (int32), or from the slices of an array a along `axis`, which `shape` then stands in place of.

    replace: whether one may come several times. p: (n,), probabilities or weights, not negative, else all are equally likely. Without
    replacement at least as many weights as are drawn must be positive.
    """
    num, a = _range(a, axis, "choice")
    shape = dims(shape)
    count = math.prod(shape)
    if p is not None and numpy.shape(p) != (num,):
        raise _core.UserError(f"[random] p must have a number for each of {num}. Received: {numpy.shape(p)}.")
    if count > 0 and (num == 0 or (not replace and count > num)):
        raise _core.UserError(f"[random] {num} are too few to choose {count} from. Received: shape {shape}, replace={replace}.")
    if p is not None:
        which = _chosen(key, p, count, replace)
    elif replace:
        which = randint(key, (count,), 0, max(num, 1))
    else:
        which = _shuffled(key, num)[:count]
    if a is None:
        return _manipulation.reshape(which, shape)
    axis %= len(numpy.shape(a))
    rest = numpy.shape(a)
    return _manipulation.reshape(_manipulation.take(a, which, axis=axis), (*rest[:axis], *shape, *rest[axis + 1 :]))
