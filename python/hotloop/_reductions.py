"""Functions that reduce axes. `axis` is None for all, one axis, or several; with keepdims the axes stay, with extent 1. `where`: a mask of the
elements that count, which broadcasts with x."""

import math

import numpy

from hotloop import _core
from hotloop._op import checked_axes, checked_axis, exporter

__all__ = []
_export = exporter(__all__)


def _keep(reduced, x, axes, keepdims):
    return _core.reshape(reduced, [1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else reduced


def _reduce(name, x, axis, keepdims):
    axes = checked_axes(name, axis, x.ndim)
    reduced = _core.append("reduce_" + name, [x], {"axes": axes}) if axes else x
    return _keep(reduced, x, axes, keepdims)


def _chosen(x, where, neutral):
    """x, or where the mask does not hold the number that changes nothing."""
    if where is None:
        return x
    x, mask = _core.broadcast_arrays("where", [x, _core.cast(where, "bool")])
    return _core.append("select", [mask, x, _core.broadcast_to(_core.fitted("where", neutral, x.dtype), x.shape)], {})


def _extreme(name, x, axis, keepdims, initial, where):
    x = _core.to_tracer(x)
    if where is not None:
        if initial is None:
            raise _core.UserError(f"[{name}] with where there must be an initial value, for where the mask leaves nothing. Received: none. Try: initial={'-' if name == 'max' else ''}hl.inf.")
        x = _chosen(x, where, initial)
    found = _reduce(name, x, axis, keepdims)
    return found if initial is None else _core.binary(name, found, _core.fitted(name, initial, x.dtype))


def _number(x):
    """x with bool raised to int32."""
    x = _core.to_tracer(x)
    return _core.cast(x, "int32") if x.dtype.kind == "b" else x


@_export(1, ["where"])
def sum(x, /, axis=None, *, dtype=None, keepdims=False, where=None):
    """The sum along `axis`, in the dtype of x (int32 for bool). The order of the additions is fixed by the shape alone."""
    x = _number(x) if dtype is None else _core.cast(x, dtype)
    return _reduce("sum", _chosen(x, where, 0), axis, keepdims)


@_export(1, ["where"])
def prod(x, /, axis=None, *, dtype=None, keepdims=False, where=None):
    """The product along `axis`."""
    x = _number(x) if dtype is None else _core.cast(x, dtype)
    return _reduce("prod", _chosen(x, where, 1), axis, keepdims)


@_export(1, ["where"])
def max(x, /, axis=None, *, keepdims=False, initial=None, where=None):
    """The largest element along `axis`, or `initial` if that is larger; NaN if there is one."""
    return _extreme("max", x, axis, keepdims, initial, where)


@_export(1, ["where"])
def min(x, /, axis=None, *, keepdims=False, initial=None, where=None):
    """The smallest element along `axis`, or `initial` if that is smaller; NaN if there is one."""
    return _extreme("min", x, axis, keepdims, initial, where)


@_export(1, ["where"])
def any(x, /, axis=None, *, keepdims=False, where=None):
    """Whether any element along `axis` is true (not zero)."""
    return _reduce("max", _chosen(_core.cast(x, "bool"), where, False), axis, keepdims)


@_export(1, ["where"])
def all(x, /, axis=None, *, keepdims=False, where=None):
    """Whether all elements along `axis` are true (not zero)."""
    return _reduce("min", _chosen(_core.cast(x, "bool"), where, True), axis, keepdims)


@_export(1)
def count_nonzero(x, /, axis=None, *, keepdims=False):
    """How many elements along `axis` are not zero: int32."""
    x = _core.to_tracer(x)
    count = math.prod(x.shape[a] for a in checked_axes("count_nonzero", axis, x.ndim))
    if count > 2**31 - 1:
        raise _core.UserError(f"[count_nonzero] there must be at most 2^31 - 1 elements to count, since the number is int32. Received: {count}. Try: hl.sum(x != 0, dtype=hl.int64).")
    return _reduce("sum", _core.cast(_core.cast(x, "bool"), "int32"), axis, keepdims)


@_export(1, ["where"])
def mean(x, /, axis=None, *, keepdims=False, where=None):
    """The mean along `axis`; integers give float32."""
    x = _core.promote("mean", [x], True)[0]
    if where is not None:
        x, mask = _core.broadcast_arrays("where", [x, _core.cast(where, "bool")])
        return _reduce("sum", _chosen(x, mask, 0), axis, keepdims) / _reduce("sum", _core.cast(mask, x.dtype), axis, keepdims)
    axes = checked_axes("mean", axis, x.ndim)
    return _keep(_core.mean(x, axes), x, axes, keepdims)


@_export(1)
def var(x, /, axis=None, *, correction=0.0, keepdims=False):
    """The variance along `axis`: squared distances from the mean, summed and divided by their number less `correction`."""
    x = _core.promote("var", [x], True)[0]
    axes = checked_axes("var", axis, x.ndim)
    mean_ = _keep(_core.mean(x, axes), x, axes, True)
    count = numpy.prod([x.shape[a] for a in axes], dtype=float)
    squares = _core.composed_square(x - mean_)
    if correction:
        return _reduce("sum", squares, axis, keepdims) / float(count - correction)
    return _keep(_core.mean(squares, axes), x, axes, keepdims)


@_export(1)
def std(x, /, axis=None, *, correction=0.0, keepdims=False):
    """The square root of var(x)."""
    return _core.unary("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))


def _flat_or_axis(name, x, axis):
    x = _core.to_tracer(x)
    if axis is None:
        return _core.reshape(x, (x.size,)), 0
    return x, checked_axis(name, axis, x.ndim)


def _place(name, x, axis, keepdims):
    ndim = _core.to_tracer(x).ndim
    flat, a = _flat_or_axis(name, x, axis)
    found = _core.append(name, [flat], {"axis": a})
    if not keepdims:
        return found
    return _core.reshape(found, [1] * ndim if axis is None else [1 if i == a else n for i, n in enumerate(flat.shape)])


@_export(1)
def argmax(x, /, axis=None, *, keepdims=False):
    """The position (int32) of the largest element along `axis`, the first of equals. A NaN counts as the largest."""
    return _place("argmax", x, axis, keepdims)


@_export(1)
def argmin(x, /, axis=None, *, keepdims=False):
    """The position (int32) of the smallest element along `axis`, the first of equals. A NaN counts as the smallest."""
    return _place("argmin", x, axis, keepdims)


@_export(1)
def logsumexp(x, /, axis=None, *, keepdims=False):
    """log(sum(exp(x))) along `axis` without overflow."""
    x = _core.promote("logsumexp", [x], True)[0]
    axes = checked_axes("logsumexp", axis, x.ndim)
    if len(axes) != 1:
        rest = [a for a in range(x.ndim) if a not in axes]
        moved = _core.append("transpose", [x], {"permutation": rest + axes}) if x.ndim else x
        flat = _core.reshape(moved, [*(x.shape[a] for a in rest), int(numpy.prod([x.shape[a] for a in axes], dtype=int))])
        return _keep(_core.logsumexp(flat, len(rest)), x, axes, keepdims)
    return _keep(_core.logsumexp(x, axes[0]), x, axes, keepdims)


@_export(1)
def softmax(x, /, axis=-1):
    """exp(x) / sum(exp(x)) along `axis`, without overflow."""
    x = _core.promote("softmax", [x], True)[0]
    return _core.softmax(x, checked_axis("softmax", axis, x.ndim))


@_export(1)
def log_softmax(x, /, axis=-1):
    """x - logsumexp(x) along `axis`."""
    x = _core.promote("log_softmax", [x], True)[0]
    return x - logsumexp(x, axis=axis, keepdims=True)


@_export(1)
def cumulative_sum(x, /, *, axis=None, include_initial=False):
    """The sums of the elements up to each place along `axis` (which a 1-d array need not name)."""
    return _cumulative("cumulative_sum", x, axis, include_initial, 0.0, lambda total, value: total + value)


@_export(1)
def cumulative_prod(x, /, *, axis=None, include_initial=False):
    """The products of the elements up to each place along `axis` (which a 1-d array need not name)."""
    return _cumulative("cumulative_prod", x, axis, include_initial, 1.0, lambda total, value: total * value)


def _cumulative(name, x, axis, include_initial, neutral, combine):
    from hotloop._control import scan

    x = _number(x)
    if axis is None and x.ndim != 1:
        raise _core.UserError(f"[{name}] the axis must be named unless x has one. Received: {x.shape}.")
    axis = checked_axis(name, 0 if axis is None else axis, x.ndim)
    order = [axis, *(a for a in range(x.ndim) if a != axis)]
    moved = _core.append("transpose", [x], {"permutation": order})
    start = _core.cast(_core.full(neutral, x.dtype, moved.shape[1:]), x.dtype)

    def step(total, value):
        total = combine(total, value)
        return total, total

    totals = scan(step, start, moved)[1]
    if include_initial:
        totals = _core.concat([_core.reshape(start, (1, *moved.shape[1:])), totals], 0)
    return _core.append("transpose", [totals], {"permutation": [order.index(a) for a in range(x.ndim)]})


@_export(1)
def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """x[i+1] - x[i] along `axis`, n times; prepend, append: arrays that are put before and after x first."""
    x = _core.to_tracer(x, "diff")
    axis = checked_axis("diff", axis, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = _core.concat(_core.promote("diff", parts), axis)
    for _ in range(n):
        before = (slice(None),) * axis
        x = x[before + (slice(1, None),)] - x[before + (slice(None, -1),)]
    return x
