"""Keys, and the bits and numbers that are drawn from one: what every distribution of hl.random is made of."""

import math
import operator

import numpy

from hotloop import _core
from hotloop._op import checked_extent, extents, integer, number, op, with_signature


def key(seed):
    """The key of an integer seed of at most 64 bits, known or traced; of several seeds `hl.vmap(hl.random.key)(seeds)`."""
    if _core.is_tracer(seed):
        return _key_of_traced(seed)
    seed = integer("random", "a seed", seed)
    if not -(2**63) <= seed < 2**64:
        raise _core.UserError(f"[random] a seed has at most 64 bits. Received: {seed}.")
    return _core.asarray(numpy.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], dtype=numpy.uint32))


def _key_of_traced(seed):
    if seed.dtype.kind not in "iu" or seed.shape != ():
        hint = " Try: hl.vmap(hl.random.key)(seeds)." if seed.shape else " Try: seed.astype(hl.int64)."
        raise _core.UserError(f"[random] a seed must be one integer. Received: a traced {seed._type}.{hint}")
    seed = _core.cast(seed, "int64")
    words = [_core.binary("and", word, 0xFFFFFFFF) for word in (seed, _core.binary("shr", seed, 32))]
    return _core.cast(_core.concat([_core.reshape(word, (1,)) for word in words], 0), "uint32")


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
    return extents("random", shape)


@op(1)
def split(key, num=2, /):
    """`num` independent keys: (num, 2). They differ: for one key, Philox is a permutation of its counters."""
    return _core.random_bits(checked_key(key), (checked_extent("random", "the number of keys", num), 2))


# The fractional digits of the square root of 2, in binary.
_FOLDED = 0x6A09E667


@op(2)
def _folded(key, data, /):
    # The data go into the second word, the counter's, so that different data give different keys; the first one is another than that of the
    # key's first child by split(), whose children they would be.
    words = _core.random_bits(checked_key(key), (2,))
    data = _core.concat([_core.reshape(_core.cast(numpy.uint32(_FOLDED), "uint32"), (1,)), _core.reshape(_core.cast(data, "uint32"), (1,))], 0)
    return _core.random_bits(_core.binary("xor", words, data), (2,))


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


def below(key, shape, p):
    """True with probability p, to the nearest multiple of 2^-32: never where it is 0 (or no number), always where it is 1."""
    p = _core.to_tracer(p, "random")
    count = (p if p.dtype.kind == "f" else _core.cast(p, "float32")) * 2.0**32
    # Of 2^32 words these are below their number, which as a word is one too few if all are.
    few = _core.binary("lt", _core.random_bits(key, shape), _core.cast(_core.unary("rint", count), "uint32"))
    return _core.binary("or", few, _core.binary("ge", count, 2.0**32))


def checked_float(dtype):
    """`dtype`, if numbers are drawn in it."""
    dtype = _core.dtype(dtype)
    if dtype not in (numpy.float32, numpy.float64):
        raise _core.UserError(f"[random] the dtype must be float32 or float64. Received: {dtype}.")
    return dtype


def unit(key, shape, dtype):
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


@with_signature
def uniform(key, /, shape=(), dtype="float32", low=0.0, high=1.0):
    """Uniform in [low, high), from 24 random bits for float32 and 53 for float64."""
    shape, dtype = dims(shape), checked_float(dtype)
    if not (isinstance(high, (int, float)) and isinstance(low, (int, float))):
        return _uniform_between(key, *(number("random", name, x) if x is None else x for name, x in (("low", low), ("high", high))), shape, dtype)
    if (low, high) == (0, 1):
        return _uniform(key, None, None, None, shape, dtype)
    # Of numbers of the dtype one program serves all. What rounding took to `high` is the number below it.
    span, first, end = (_core.number_in("random", x, dtype) for x in (high - low, low, high))
    last = numpy.nextafter(numpy.asarray(end), numpy.asarray(first)) if low < high else None
    return _uniform(key, span, first, last, shape, dtype)


@op(4)
def _uniform(key, span, low, last, shape, dtype, /):
    drawn = unit(checked_key(key), shape, dtype)
    if span is not None:
        drawn = drawn * span + low
    return drawn if last is None else _core.binary("min", drawn, last)


@op(3)
def _uniform_between(key, low, high, shape, dtype, /):
    return unit(checked_key(key), shape, dtype) * (high - low) + low


@op(1)
def normal(key, /, shape=(), dtype="float32"):
    """Normal with mean 0 and standard deviation 1: sqrt(2) erfinv(u), u uniform in (-1, 1). float32 reaches 5.3, float64 8.2."""
    return math.sqrt(2) * _core.unary("erfinv", symmetric(checked_key(key), dims(shape), dtype))


@op(1)
def exponential(key, /, shape=(), dtype="float32"):
    """Exponential with mean 1: -log(u), u uniform in (0, 1)."""
    return -_core.unary("log", open_unit(checked_key(key), dims(shape), dtype))
