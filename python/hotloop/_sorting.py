"""Sorting and searching. A NaN counts as the largest number."""

import collections

import numpy

from hotloop import _core
from hotloop._elementwise import _select
from hotloop._manipulation import moveaxis, take_along_axis
from hotloop._op import checked_axes, checked_axis, exporter, integer

__all__ = []
_export = exporter(__all__)

TopKResult = collections.namedtuple("TopKResult", ["values", "indices"])


def _along(name, x, axis):
    x = _core.to_tracer(x, name)
    return x, checked_axis(name, axis, x.ndim)


@_export(1)
def sort(x, /, axis=-1, *, descending=False, stable=True):
    """x with its elements along `axis` in order, equal ones as they were. The derivative goes with the elements."""
    x, axis = _along("sort", x, axis)
    return _core.sort(x, axis, bool(descending))


@_export(1)
def argsort(x, /, axis=-1, *, descending=False, stable=True):
    """The positions (int32) that sort x along `axis`, those of equal elements in order."""
    x, axis = _along("argsort", x, axis)
    return _core.argsort(x, axis, bool(descending))


@_export(1)
def top_k(x, k, /, axis=-1):
    """The k largest elements of x along `axis`, the largest first, equal ones as they were, and their positions (int32).

    Both have k in place of the axis's extent. The derivative goes with the elements.
    """
    x, axis = _along("top_k", x, axis)
    return TopKResult(*_core.top_k(x, integer("top_k", "k", k), axis))


def _in_rows(name, x, axis):
    """x in floats with the elements along `axis` as its last axis, and a function that gives results, of levels if there are any, their shape."""
    x = _core.to_tracer(x, name)
    if x.dtype.kind != "f":
        x = _core.cast(x, "float32")
    axes = checked_axes(name, axis, x.ndim)
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = x.shape
    x = _core.append("transpose", [x], {"permutation": kept + axes}) if x.ndim else x
    x = _core.reshape(x, (*(shape[a] for a in kept), int(numpy.prod([shape[a] for a in axes]))))

    def shaped(found, keepdims):
        if not keepdims:
            return found
        levels = found.shape[: found.ndim - len(kept)]
        return _core.reshape(found, (*levels, *(1 if a in axes else n for a, n in enumerate(shape))))

    return x, shaped


@_export(2)
def quantile(x, q, /, axis=None, *, keepdims=False):
    """What lies at the levels q, between 0 and 1, of the sorted elements along `axis` (None: all, one, or several); NaN if there is one.

    q: a number, or a vector, whose axis is then the first of the result. Element q (n - 1) counted from 0; between two elements a straight
    line, NumPy's and PyTorch's "linear". Derivatives by x and by q.
    """
    rows, shaped = _in_rows("quantile", x, axis)
    return shaped(_core.quantile(rows, _core.cast(q, rows.dtype), rows.ndim - 1), keepdims)


@_export(1)
def median(x, /, axis=None, *, keepdims=False):
    """The middle one of the sorted elements along `axis` (None: all, one, or several), or the mean of the two in the middle; NaN if there is one."""
    return quantile(x, 0.5, axis=axis, keepdims=keepdims)


@_export(2)
def nanquantile(x, q, /, axis=None, *, keepdims=False):
    """quantile(x, q) of the elements that are not NaN; NaN where all are."""
    rows, shaped = _in_rows("nanquantile", x, axis)
    q = _core.cast(q, rows.dtype)
    if q.ndim > 1 or rows.shape[-1] == 0:
        raise _core.UserError(
            "[nanquantile] there must be elements along the axis, and levels, one or a vector. "
            f"Received: {tuple(rows.shape)} and levels of {tuple(q.shape)}."
        )
    last = rows.ndim - 1
    ordered = _core.sort(rows, last, False)  # what is NaN comes last
    known = _core.append("reduce_sum", [_core.cast(_core.binary("eq", rows, rows), "int32")], {"axes": [last]})
    end = _core.cast(_core.reshape(_core.binary("max", known - 1, 0), (*known.shape, 1)), rows.dtype)
    place = end * q  # levels are the last axis
    below = _core.unary("floor", _core.binary("min", _core.append("stop_gradient", [place], {}), end))
    part = place - below

    def element(position):
        return take_along_axis(ordered, _core.cast(position, "int32"), last)

    low, high = element(below), element(_core.binary("min", below + 1.0, end))
    # Beside an infinity a part of nothing is nothing.
    found = _select(_core.binary("eq", part, 0.0), low, low + (high - low) * part)
    return shaped(moveaxis(found, -1, 0) if q.ndim else _core.reshape(found, known.shape), keepdims)


@_export(1)
def nanmedian(x, /, axis=None, *, keepdims=False):
    """median(x) of the elements that are not NaN; NaN where all are."""
    return nanquantile(x, 0.5, axis=axis, keepdims=keepdims)


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
