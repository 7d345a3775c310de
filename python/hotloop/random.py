"""Random numbers as pure functions of a key: the same bits for any number of threads, batch layout or device.

A key is uint32[2]. Use each key once: split() or fold_in() give new ones. Under vmap a key that is not mapped gives every lane
the same numbers. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
"""

import math
import operator

import numpy

from hotloop import _core
from hotloop._op import op

__all__ = ["key", "split", "fold_in", "bits", "uniform", "normal", "bernoulli", "randint"]


def __dir__():
    return __all__


def key(seed):
    """The key of an integer seed of at most 64 bits."""
    seed = operator.index(seed)
    if not -(2**63) <= seed < 2**64:
        raise _core.UserError(f"[random] a seed has at most 64 bits. Received: {seed}.")
    return _core.asarray(numpy.array([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], dtype=numpy.uint32))


def checked_key(k):
    """k, if it is a key."""
    k = _core.to_tracer(k, "random")
    if k.shape != (2,) or k.dtype != numpy.uint32:
        raise _core.UserError(f"[random] a key must be uint32[2]. Received: {k._type}. Try: hl.random.key(seed).")
    return k


def _dims(shape):
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)


@op(1)
def split(key, num=2, /):
    """`num` independent keys: (num, 2)."""
    return _core.random_bits(checked_key(key), (num, 2))


@op(2)
def _folded(key, data, /):
    mixed = _core.binary("xor", _core.random_bits(checked_key(key), (2,)), _core.cast(data, "uint32"))
    return _core.random_bits(mixed, (2,))


def fold_in(key, data, /):
    """The key for number `data` (an integer of at most 32 bits, known or traced): for a step or an index."""
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
def bits(key, shape=(), /):
    """32 random bits an element: uint32."""
    return _core.random_bits(checked_key(key), _dims(shape))


def _unit(key, shape, dtype):
    """Uniform in [0, 1): 24 bits for float32, 53 for float64."""
    dtype = _core.dtype(dtype)
    if dtype == numpy.float32:
        high = _core.binary("shr", _core.random_bits(key, shape), _core.cast(8, "uint32"))
        return _core.cast(high, dtype) * 2.0**-24
    if dtype != numpy.float64:
        raise _core.UserError(f"[random] the dtype must be float32 or float64. Received: {dtype}.")
    words = _core.random_bits(key, (*shape, 2))
    high = _core.cast(_core.binary("shr", words[..., 0], _core.cast(5, "uint32")), dtype)
    low = _core.cast(_core.binary("shr", words[..., 1], _core.cast(6, "uint32")), dtype)
    return (high * 2.0**26 + low) * 2.0**-53


@op(1)
def uniform(key, shape=(), /, dtype="float32", low=0.0, high=1.0):
    """Uniform in [low, high)."""
    drawn = _unit(checked_key(key), _dims(shape), dtype) * (high - low) + low
    if isinstance(high, (int, float)) and isinstance(low, (int, float)) and low < high:
        # What rounding took to `high` is the number below it.
        drawn = _core.binary("min", drawn, float(numpy.nextafter(numpy.asarray(high, drawn.dtype), numpy.asarray(low, drawn.dtype))))
    return drawn


@op(1)
def normal(key, shape=(), /, dtype="float32"):
    """Normal with mean 0 and standard deviation 1, by the Box-Muller transform."""
    shape = _dims(shape)
    both = _unit(checked_key(key), (2, *shape), dtype)
    # 1 - u is in (0, 1], so its logarithm is finite.
    radius = _core.unary("sqrt", -2.0 * _core.unary("log", 1.0 - both[0]))
    return radius * _core.unary("cos", 2 * math.pi * both[1])


@op(2)
def bernoulli(key, p=0.5, shape=None, /):
    """True with probability p, a number or an array. shape: p's if not given."""
    return _core.binary("lt", _unit(checked_key(key), numpy.shape(p) if shape is None else _dims(shape), "float32"), p)


@op(1)
def randint(key, shape, low, high, /):
    """Integers (int32) in [low, high); their range at most 2^24, so that all are equally likely within 2^-24."""
    if not 0 < high - low <= 2**24:
        raise _core.UserError(f"[random] high - low must be in 1 .. 2^24. Received: {low} and {high}.")
    scaled = _unit(checked_key(key), _dims(shape), "float64") * float(high - low)
    return _core.cast(_core.unary("floor", scaled), "int32") + low
