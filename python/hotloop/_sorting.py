"""Sorting and searching. A NaN counts as the largest number."""

import math

import numpy

from hotloop import _core
from hotloop._op import checked_axis, exporter

__all__ = []
_export = exporter(__all__)


def _along(name, x, axis):
    x = _core.to_tracer(x, name)
    return x, checked_axis(name, axis, x.ndim)


@_export(1)
def sort(x, /, *, axis=-1, descending=False, stable=True):
    """x with its elements along `axis` in order, equal ones as they were. The derivative goes with the elements."""
    x, axis = _along("sort", x, axis)
    return _core.sort(x, axis, bool(descending))


@_export(1)
def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """The positions (int32) that sort x along `axis`, those of equal elements in order."""
    x, axis = _along("argsort", x, axis)
    return _core.argsort(x, axis, bool(descending))


@_export(2)
def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """For each element of x2 how many of the ascending vector x1 come before it ("left"), or are not after it ("right"): int32.

    sorter: positions that sort x1, which then need not be.
    """
    if side not in ("left", "right"):
        raise _core.UserError(f"[searchsorted] side must be 'left' or 'right'. Received: {side!r}.")
    if sorter is not None:
        x1 = _core.to_tracer(x1)[_core.to_tracer(sorter)]
    return _core.searchsorted(x1, x2, side == "right")


@_export(2)
def isin(x1, x2, /, *, invert=False):
    """For each element of x1 whether it is among the elements of x2, an array of any shape: bool. A NaN equals nothing."""
    x1, x2 = _core.promote("isin", [x1, x2])
    if x2.size == 0:
        found = _core.cast(_core.full(0.0, "int32", x1.shape), "bool")
    else:
        ordered = _core.sort(_core.reshape(x2, (x2.size,)), 0, False)
        place = _core.searchsorted(ordered, x1, False)
        found = _core.binary("eq", ordered[place], x1)  # a place beyond the end is limited to the last
    return _core.unary("not", found) if invert else found


@_export(1)
def nonzero(x, /, *, size=None, fill_value=0):
    """Where x is not zero: a vector of positions (int32) for each axis, in row-major order.

    How many there are depends on the values, and a program's shapes must not: `size` says how many are returned, the rest filled with
    `fill_value` or dropped. UserError without it.
    """
    x = _core.to_tracer(x, "nonzero")
    if size is None:
        raise _core.UserError(
            f"[nonzero] the number of results must not depend on the values, since shapes are known before there are any. Received: {x._type} and no size. "
            "Try: hl.nonzero(x, size=n), hl.where(x, y, 0) for a masked y, hl.count_nonzero(x), or numpy.nonzero outside of a compiled function."
        )
    if x.ndim == 0:
        raise _core.UserError("[nonzero] the array must have an axis. Received: a scalar. Try: x != 0.")
    size = int(size)
    flat = _core.cast(_core.reshape(x, (x.size,)), "bool")
    if x.size == 0 or size == 0:
        return tuple(_core.cast(_core.full(float(fill_value), "int32", (size,)), "int32") for _ in x.shape)
    order = _core.argsort(flat, 0, True)  # true ones first, each as they were
    count = _core.append("reduce_sum", [_core.cast(flat, "int32")], {"axes": [0]})
    found = order[: min(size, x.size)]
    if size > x.size:
        found = _core.append("pad", [found, _core.cast(_core.to_tracer(0), "int32")], {"low": [0], "high": [size - x.size], "interior": [0]})
    valid = _core.binary("lt", _core.iota("int32", (size,), 0), count)
    positions = []
    for axis, extent in enumerate(x.shape):
        stride = math.prod(x.shape[axis + 1 :])
        place = _core.binary("rem", _core.binary("div", found, numpy.int32(stride)), numpy.int32(extent))
        positions.append(_core.append("select", [valid, place, _core.full(float(fill_value), "int32", (size,))], {}))
    return tuple(positions)
