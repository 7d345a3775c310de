"""Distinct values, and where something is: functions whose results are as long as the values say.

A compiled function's shapes must not depend on values, so there `size` says how long the results are. Outside of one it may be left out.
"""

import math
import typing

import numpy

from hotloop import _core
from hotloop._cumulative import cumulative_sum
from hotloop._indexing import whole
from hotloop._op import checked_extent, op

__all__ = ["unique_all", "unique_counts", "unique_inverse", "unique_values", "nonzero", "bincount"]


class UniqueAll(typing.NamedTuple):
    """Of hotloop.unique_all."""

    values: object
    indices: object
    inverse_indices: object
    counts: object


class UniqueCounts(typing.NamedTuple):
    """Of hotloop.unique_counts."""

    values: object
    counts: object


class UniqueInverse(typing.NamedTuple):
    """Of hotloop.unique_inverse."""

    values: object
    inverse_indices: object


def _size(name, x, size, count, instead, argument="size"):
    """`size`, or outside of a compiled function the number of results there are."""
    if size is not None:
        return checked_extent(name, argument, size)
    if _core.is_tracing():
        raise _core.UserError(
            f"[{name}] the number of results must not depend on the values, since shapes are known before there are any. Received: {_core.to_tracer(x, name)._type} and no {argument}. "
            f"Try: hl.{name}(x, {argument}=n), {instead}, or call it outside of the compiled function."
        )
    return int(count(x))


# ---- where x is not zero


@op(1)
def _count_nonzero(x):
    x = _core.to_tracer(x, "nonzero")
    return _core.append("reduce_sum", [_core.cast(_core.cast(_core.reshape(x, (x.size,)), "bool"), "int32")], {"axes": [0]})


@op(1)
def _nonzero(x, size, fill_value):
    x = _core.to_tracer(x, "nonzero")
    if x.ndim == 0:
        raise _core.UserError("[nonzero] the array must have an axis. Received: a scalar. Try: x != 0.")
    if x.size == 0 or size == 0:
        return tuple(_core.full(fill_value, "int32", (size,)) for _ in x.shape)
    flat = _core.cast(_core.reshape(x, (x.size,)), "bool")
    order = _core.argsort(flat, 0, True)  # true ones first, each as they were
    found, valid = _first(order, size), _core.binary("lt", _core.iota("int32", (size,), 0), _count_nonzero(x))
    positions = []
    for axis, extent in enumerate(x.shape):
        stride = math.prod(x.shape[axis + 1 :])
        place = _core.binary("rem", _core.binary("div", found, numpy.int32(stride)), numpy.int32(extent))
        positions.append(_core.append("select", [valid, place, _core.full(fill_value, "int32", (size,))], {}))
    return tuple(positions)


def _first(vector, size):
    """The first `size` elements, with zeros after the last."""
    found = vector[: min(size, vector.size)]
    if size > vector.size:
        found = _core.append("pad", [found, _core.cast(_core.to_tracer(0), "int32")], {"low": [0], "high": [size - vector.size], "interior": [0]})
    return found


def nonzero(x, /, *, size=None, fill_value=0):
    """Where x is not zero: a vector of positions (int32) for each axis, in row-major order.

    How many there are depends on the values, and a program's shapes must not: in a compiled function `size` says how many are
    returned, the rest filled with `fill_value` or dropped. UserError without it.
    """
    return _nonzero(x, _size("nonzero", x, size, _count_nonzero, "hl.where(x, y, 0) for a masked y, hl.count_nonzero(x)"), fill_value)


# ---- how often a number occurs


@op(2)
def _bincount(x, weights, length):
    x = _core.to_tracer(x, "bincount")
    weights = _core.full(1.0, "int32", x.shape) if weights is None else _core.to_tracer(weights, "bincount")
    if x.ndim != 1 or x.dtype.kind not in "iu" or weights.shape != x.shape:
        raise _core.UserError(
            f"[bincount] x must be a vector of integers, and weights of its shape. Received: {x._type}, weights {weights._type}. "
            "Try: hl.ravel(x), x.astype(hl.int32), or hl.vmap() for several vectors."
        )
    if weights.dtype.kind == "b":
        weights = _core.cast(weights, "int32")
    zeros = _core.cast(_core.full(0.0, "int32", (length,)), weights.dtype)
    return _core.append("scatter_add", [zeros, whole(x), weights], {"axis": 0})


@op(1)
def _length_of_count(x):
    x = _core.to_tracer(x, "bincount")
    return _core.append("reduce_max", [x], {"axes": [0]}) + 1 if x.ndim == 1 and x.size else _core.cast(_core.to_tracer(0), "int32")


def bincount(x, /, weights=None, minlength=0, *, length=None):
    """How often each of 0, 1, ..., length - 1 occurs in the vector of integers x: int32 (length,). With `weights`, of x's shape, the sum of those of each
    number, in their dtype, with a derivative in them.

    Numbers below 0 and from `length` on are not counted. Without a length it is one more than the largest number, as in NumPy, and at least `minlength`; in a compiled function
    it must be given, since a program's shapes must not depend on values: UserError without it.
    """
    minlength = checked_extent("bincount", "minlength", minlength)
    if length is not None:
        length = checked_extent("bincount", "length", length)
    return _bincount(x, weights, max(minlength if length is None else 0, _size("bincount", x, length, _length_of_count, "with every number below n", "length")))


# ---- distinct values


def _runs(x):
    """The elements in order, the positions that sort them, and for each the number of distinct values up to it."""
    flat = _core.reshape(x, (x.size,))
    order = _core.argsort(flat, 0, False)
    ordered = flat[order]
    begins = _core.binary("ne", ordered[1:], ordered[:-1])  # a NaN begins a run of its own
    first = _core.cast(_core.full(1.0, "int32", (1,)), "int32")
    begins = _core.append("concat", [first, _core.cast(begins, "int32")], {"axis": 0})
    return ordered, order, cumulative_sum(begins)


@op(1)
def _count_unique(x):
    x = _core.to_tracer(x, "unique")
    return _runs(x)[2][-1] if x.size else _core.cast(_core.to_tracer(0), "int32")


@op(1)
def _unique(x, size, fill_value):
    x = _core.to_tracer(x, "unique")
    if x.size == 0:
        if size and fill_value is None:
            raise _core.UserError(f"[unique] an empty array has no values to fill {size} places with. Received: {x._type}. Try: fill_value=0.")
        none = _core.cast(_core.full(0.0, "int32", (size,)), "int32")
        values = _core.full(0 if fill_value is None else fill_value, x.dtype, (size,))
        return values, none, _core.cast(_core.full(0.0, "int32", x.shape), "int32"), none
    ordered, order, number = _runs(x)
    wanted = _core.binary("add", _core.iota("int32", (size,), 0), numpy.int32(1))
    begin, end = (_core.searchsorted(number, wanted, right) for right in (False, True))
    there = _core.binary("lt", begin, end)
    values = ordered[_core.append("select", [there, begin, _core.full(0.0, "int32", (size,))], {})]
    if fill_value is not None:
        values = _core.append("select", [there, values, _core.full(fill_value, x.dtype, (size,))], {})
    positions = _core.append("select", [there, order[begin], _core.full(0.0, "int32", (size,))], {})
    back = _core.argsort(order, 0, False)
    inverse = _core.binary("sub", number[back], numpy.int32(1))
    return values, positions, _core.reshape(inverse, x.shape), _core.binary("sub", end, begin)


def _all(name, x, size, fill_value):
    return _unique(x, _size(name, x, size, _count_unique, "hl.sort(x)"), fill_value)


def unique_all(x, /, *, size=None, fill_value=None):
    """The distinct values of x in ascending order, the position (in x flattened) where each is first, for each element of x the place of
    its value among them, and how often each is there: a named tuple values, indices, inverse_indices, counts. A NaN equals none.

    In a compiled function `size` says how many values are returned. Further places have `fill_value` (without one the smallest value),
    position 0 and count 0; values beyond are dropped. UserError in a compiled function without it.
    """
    return UniqueAll(*_all("unique_all", x, size, fill_value))


def unique_counts(x, /, *, size=None, fill_value=None):
    """The distinct values of x in ascending order and how often each is there. See unique_all for size and fill_value."""
    values, _, _, counts = _all("unique_counts", x, size, fill_value)
    return UniqueCounts(values, counts)


def unique_inverse(x, /, *, size=None, fill_value=None):
    """The distinct values of x in ascending order and for each element of x the place of its value among them. See unique_all for
    size and fill_value."""
    values, _, inverse, _ = _all("unique_inverse", x, size, fill_value)
    return UniqueInverse(values, inverse)


def unique_values(x, /, *, size=None, fill_value=None):
    """The distinct values of x in ascending order. See unique_all for size and fill_value."""
    return _all("unique_values", x, size, fill_value)[0]


for _name in __all__:
    globals()[_name].__module__ = "hotloop"
