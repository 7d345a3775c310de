"""Random numbers as pure functions of a key: the same bits for any number of threads, batch layout or device.

A key is uint32[2]. Use each key once: split() or fold_in() give new ones. Under vmap a key that is not mapped gives every lane
the same numbers. Philox2x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): element i of an array drawn from a
key is word i % 2 at the counter (i / 2, second key word) under the first key word. A key gives at most 2^32 words.
"""

import math

import numpy

from hotloop import _core, _cumulative, _distributions, _manipulation, _names
from hotloop._distributions import *  # noqa: F403
from hotloop._draws import (
    below,
    bits,
    checked_float,
    checked_key,
    dims,
    exponential,
    fold_in,
    key,
    normal,
    open_unit,
    split,
    symmetric,
    uniform,
    unit,
)
from hotloop._elementwise import _select
from hotloop._indexing import whole
from hotloop._names import kind_of
from hotloop._op import checked_axis, op, shaped

__all__ = [
    "key", "split", "fold_in", "bits", "uniform", "normal", "truncated_normal", "exponential", "gumbel", "laplace", "logistic", "bernoulli", "randint",
    "categorical", "permutation", "choice", *_distributions.__all__,
]  # fmt: skip


def __dir__():
    return __all__


def __getattr__(name):
    raise _names.absent("hotloop.random", name, __all__, _names.RANDOM, _names.IN_RANDOM)


@op(3)
def truncated_normal(key, lower, upper, /, shape=None, dtype="float32"):
    """Normal with mean 0 and standard deviation 1 under the condition that it lies in [lower, upper].

    lower, upper: numbers or arrays, with derivatives; shape: what they broadcast to if not given. By the inverse of the distribution function, on the
    side of 0 where less of the interval lies above it: bounds that both lie beyond 13 in float32 (38 in float64), where that function leaves the
    normal numbers, give the nearer bound.
    """
    dtype = checked_float(dtype)
    lower, upper = _core.cast(lower, dtype), _core.cast(upper, dtype)
    shape = _core.broadcast_arrays("random", [lower, upper])[0].shape if shape is None else dims(shape)
    # Below 0 the function has all its digits, above it only those of 1 - ndtr(-x): an interval that lies rather above is mirrored.
    mirrored = _core.binary("gt", _core.unary("abs", upper), _core.unary("abs", lower))
    first, last = _select(mirrored, -upper, lower), _select(mirrored, -lower, upper)
    low, high = _core.composed_ndtr(first), _core.composed_ndtr(last)
    drawn = open_unit(checked_key(key), shape, dtype) * (high - low) + low
    drawn = _core.composed_ndtri(_core.binary("max", drawn, float(numpy.finfo(dtype).tiny)))
    drawn = _core.binary("min", _core.binary("max", drawn, first), last)
    return _select(mirrored, -drawn, drawn)


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
    """True with probability p, a number or an array, to the nearest multiple of 2^-32. shape: p's if not given."""
    return below(checked_key(key), numpy.shape(p) if shape is None else dims(shape), p)


def randint(key, /, shape, low, high):
    """Integers (int32) in [low, high): the upper half of their number, up to 2^32, times 64 random bits, equally likely within 2^-32.

    low, high: from -2^31 to 2^31, integers or arrays of them, which broadcast to `shape`. The numbers of arrays are not checked: where high is not above low
    the result is low.
    """
    if not isinstance(low, (int, numpy.integer)) or not isinstance(high, (int, numpy.integer)):
        return _randint_between(key, low, high, dims(shape))
    low, high = int(low), int(high)
    if not -(2**31) <= low < high <= 2**31:
        raise _core.UserError(f"[random] low and high must be in -2^31 .. 2^31, and high above low. Received: {low} and {high}.")
    return _randint(key, numpy.int64(high - low), numpy.int64(low), dims(shape))


@op(3)
def _randint(key, count, low, shape, /):
    return _drawn_below(key, shape, count, low)


@op(3)
def _randint_between(key, low, high, shape, /):
    low, high = (_core.to_tracer(whole(bound), "random") for bound in (low, high))
    for name, bound in (("low", low), ("high", high)):
        if bound.dtype.kind not in "iu" or len(bound.shape) > len(shape) or any(n not in (1, m) for n, m in zip(reversed(bound.shape), reversed(shape), strict=False)):
            raise _core.UserError(f"[random] {name} must be integers that broadcast to the shape {shape}. Received: {bound._type}. Try: x.astype(hl.int32), or a larger shape.")
    low, high = (_core.binary("max", _core.binary("min", _core.cast(bound, "int64"), 2**31), -(2**31)) for bound in (low, high))
    return _drawn_below(key, shape, _core.binary("max", high - low, 1), _core.binary("min", low, 2**31 - 1))


def _drawn_below(key, shape, count, low):
    """low + the upper half of count (int64, 1 to 2^32) times 64 random bits. Twice half of the count, and what is odd: products of 2^64 do not fit."""
    words = _core.cast(_core.random_bits(checked_key(key), (*shape, 2)), "int64")
    one, almost = _core.cast(1, "int64"), _core.cast(31, "int64")
    half, odd = _core.binary("shr", count, one), _core.binary("and", count, one)

    def upper(word, carried):
        return _core.binary("shr", word * half + _core.binary("shr", word * odd + carried, one), almost)

    return _core.cast(upper(words[..., 0], upper(words[..., 1], 0)) + low, "int32")


@op(2)
def categorical(key, logits, /, axis=-1, shape=None):
    """Which category (int32), with probabilities softmax(logits) along `axis`: the place of the largest logits + gumbel.

    shape: of the result, which ends as the shape of logits without `axis` does, or that if not given. No derivative (of logits + gumbel
    a softmax has one: Jang et al. 2017).
    """
    logits = _core.to_tracer(logits, "random")
    axis = checked_axis("random", axis, logits.ndim)
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
        x = shaped("random", x)
        if not x.shape:
            raise _core.UserError(f"[random] {where} takes an integer or an array that has the axis. Received: {kind_of(x)} without axes.")
        return x.shape[checked_axis("random", axis, len(x.shape))], x
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
    drawn = reached[-1] * (1.0 - unit(checked_key(key), (count,), p.dtype))  # in (0, sum]
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
