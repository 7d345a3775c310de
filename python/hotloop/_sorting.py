"""Sorting and searching. A NaN counts as the largest number."""


from hotloop import _core
from hotloop._op import checked_axis, exporter

__all__ = []
_export = exporter(__all__)


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
