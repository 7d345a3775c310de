"""Functions that reduce axes. `axis` is None for all, one axis, or several; with keepdims the axes stay, with extent 1. `where`: a mask of the
elements that count, which broadcasts with x."""

import math

import numpy

from hotloop import _core
from hotloop._elementwise import filled
from hotloop._op import checked_axes, checked_axis, checked_extent, exporter, number

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
    return x if where is None else filled(where, x, neutral)


def _extreme(name, x, axis, keepdims, initial, where):
    x = _core.to_tracer(x)
    if where is not None:
        if initial is None:
            raise _core.UserError(f"[{name}] with where there must be an initial value, for where the mask leaves nothing. Received: none. Try: initial={'-' if name == 'max' else ''}hl.inf.")
        x = _chosen(x, where, initial)
    if initial is None and x.size == 0:
        axes = checked_axes(name, axis, x.ndim)
        if math.prod(n for a, n in enumerate(x.shape) if a not in axes):
            raise _core.UserError(f"[{name}] of no elements there is none, without an initial value. Received: shape {tuple(x.shape)}, over the axes {tuple(axes)}. Try: initial={'-' if name == 'max' else ''}hl.inf.")
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
    """The largest element along `axis`, or `initial` if that is larger; NaN if there is one. Of no elements a UserError without `initial`."""
    return _extreme("max", x, axis, keepdims, initial, where)


@_export(1, ["where"])
def min(x, /, axis=None, *, keepdims=False, initial=None, where=None):
    """The smallest element along `axis`, or `initial` if that is smaller; NaN if there is one. Of no elements a UserError without `initial`."""
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
    if number("var", "correction", correction):
        return _reduce("sum", squares, axis, keepdims) / float(count - correction)
    return _keep(_core.mean(squares, axes), x, axes, keepdims)


@_export(1)
def std(x, /, axis=None, *, correction=0.0, keepdims=False):
    """The square root of var(x)."""
    return _core.unary("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))


def _numbers(x, where=None):
    """Where x is not NaN, and `where` holds; None if that is everywhere."""
    if x.dtype.kind != "f":
        return where
    known = _core.binary("eq", x, x)
    return known if where is None else _core.binary("and", known, _core.cast(where, "bool"))


@_export(1, ["where"])
def nansum(x, /, axis=None, *, dtype=None, keepdims=False, where=None):
    """sum(x) of the elements that are not NaN; 0 if all are."""
    x = _core.to_tracer(x, "nansum")
    return sum(x, axis=axis, dtype=dtype, keepdims=keepdims, where=_numbers(x, where))


@_export(1, ["where"])
def nanprod(x, /, axis=None, *, dtype=None, keepdims=False, where=None):
    """prod(x) of the elements that are not NaN; 1 if all are."""
    x = _core.to_tracer(x, "nanprod")
    return prod(x, axis=axis, dtype=dtype, keepdims=keepdims, where=_numbers(x, where))


@_export(1, ["where"])
def nanmean(x, /, axis=None, *, keepdims=False, where=None):
    """mean(x) of the elements that are not NaN; NaN if all are."""
    x = _core.to_tracer(x, "nanmean")
    return mean(x, axis=axis, keepdims=keepdims, where=_numbers(x, where))


def _known_extreme(name, x, axis, keepdims, least):
    x = _core.to_tracer(x, "nan" + name)
    if x.dtype.kind != "f":
        return _reduce(name, x, axis, keepdims)
    known = _numbers(x)
    found = _reduce(name, _chosen(x, known, least), axis, keepdims)
    return _chosen(found, any(known, axis=axis, keepdims=keepdims), math.nan)


@_export(1)
def nanmax(x, /, axis=None, *, keepdims=False):
    """max(x) of the elements that are not NaN; NaN if all are."""
    return _known_extreme("max", x, axis, keepdims, -math.inf)


@_export(1)
def nanmin(x, /, axis=None, *, keepdims=False):
    """min(x) of the elements that are not NaN; NaN if all are."""
    return _known_extreme("min", x, axis, keepdims, math.inf)


@_export(1)
def nanvar(x, /, axis=None, *, correction=0.0, keepdims=False):
    """var(x) of the elements that are not NaN; NaN where they are not more than `correction`."""
    x = _core.promote("nanvar", [x], True)[0]
    known = _numbers(x)
    # What is left out becomes 0 before it is squared: its cotangent would be 0 times NaN.
    apart = _chosen(x - mean(x, axis=axis, keepdims=True, where=known), known, 0)
    freedom = _reduce("sum", _core.cast(known, x.dtype), axis, keepdims) - (correction if hasattr(correction, "dtype") else number("nanvar", "correction", correction))
    squares = _reduce("sum", _core.composed_square(apart), axis, keepdims)
    return _chosen(squares / freedom, _core.binary("gt", freedom, 0), math.nan)


@_export(1)
def nanstd(x, /, axis=None, *, correction=0.0, keepdims=False):
    """The square root of nanvar(x)."""
    return _core.unary("sqrt", nanvar(x, axis=axis, correction=correction, keepdims=keepdims))


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
    """log(sum(exp(x))) along `axis` without overflow. Where all are -inf, the logarithm of 0, so is the result, and its derivatives are 0."""
    x = _core.promote("logsumexp", [x], True)[0]
    axes = checked_axes("logsumexp", axis, x.ndim)
    flat, axis, _ = _with_one_axis(x, axes)
    return _keep(_core.logsumexp(flat, axis), x, axes, keepdims)


def _with_one_axis(x, axes):
    """x with `axes` as its last one if they are not a single axis already, that one's place, and the function that puts them back."""
    if len(axes) == 1:
        return x, axes[0], lambda flat: flat
    rest = [a for a in range(x.ndim) if a not in axes]
    order = rest + axes
    moved = _core.append("transpose", [x], {"permutation": order}) if x.ndim else x
    flat = _core.reshape(moved, [*(x.shape[a] for a in rest), int(numpy.prod([x.shape[a] for a in axes], dtype=int))])

    def back(flat):
        moved = _core.reshape(flat, [x.shape[a] for a in order])
        return _core.append("transpose", [moved], {"permutation": [order.index(a) for a in range(x.ndim)]}) if x.ndim else moved

    return flat, flat.ndim - 1, back


@_export(1)
def softmax(x, /, axis=-1):
    """exp(x) / sum(exp(x)) along `axis`, without overflow."""
    x = _core.promote("softmax", [x], True)[0]
    return _core.softmax(x, checked_axis("softmax", axis, x.ndim))


@_export(1)
def log_softmax(x, /, axis=-1):
    """x - logsumexp(x) along `axis`, with all digits also where it is almost 0."""
    x = _core.promote("log_softmax", [x], True)[0]
    axes = checked_axes("log_softmax", axis, x.ndim)
    flat, axis, back = _with_one_axis(x, axes)
    return back(_core.log_softmax(flat, axis))


def _distance(x1, x2):
    """|x1 - x2|, of integers in float64."""
    if x1.dtype.kind == "f":
        return _core.unary("abs", x1 - x2)
    apart = _core.unary("abs", _core.cast(x1, "float64") - _core.cast(x2, "float64"))
    if x1.dtype != "int64":
        return apart
    # Of large numbers, each rounded alone, the difference may be lost; in int64 it is right wherever it fits.
    exact = _core.cast(_core.unary("abs", x1 - x2), "float64")
    return _core.append("select", [_core.binary("lt", apart, 2.0**62), exact, apart], {})


@_export(2, ["rtol", "atol"])
def isclose(x1, x2, /, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether |x1 - x2| <= atol + rtol |x2|, as in NumPy: bool, of the shape that both broadcast to. Infinities are close to themselves; `equal_nan`: NaN is to NaN."""
    x1, x2 = _core.broadcast_arrays("isclose", _core.promote("isclose", [x1, x2]))
    equal = _core.binary("eq", x1, x2)
    apart = _distance(x1, x2)
    x1, x2 = (x if x.dtype.kind == "f" else _core.cast(x, "float64") for x in (x1, x2))
    rtol, atol = (_core.to_tracer(x, "isclose") if x is None else x for x in (rtol, atol))
    near = _core.binary("and", _core.binary("le", apart, atol + rtol * _core.unary("abs", x2)), _core.binary("lt", _core.unary("abs", x2), math.inf))
    close = _core.binary("or", equal, near)
    if equal_nan:
        close = _core.binary("or", close, _core.binary("and", _core.binary("ne", x1, x1), _core.binary("ne", x2, x2)))
    return close


@_export(2, ["rtol", "atol"])
def allclose(x1, x2, /, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether all elements of x1 and x2 are close, by `isclose`: a bool scalar."""
    return all(isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan))


@_export(2)
def array_equal(x1, x2, /):
    """Whether x1 and x2 have one shape and equal elements: a bool scalar. NaN equals nothing."""
    x1, x2 = _core.to_tracer(x1, "array_equal"), _core.to_tracer(x2, "array_equal")
    return all(_core.binary("eq", *_core.promote("array_equal", [x1, x2]))) if x1.shape == x2.shape else _core.cast(_core.full(0.0, "int32", ()), "bool")


@_export(1)
def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """x[i+1] - x[i] along `axis`, n times; prepend, append: arrays that are put before and after x first, if n is not 0."""
    x, n = _core.to_tracer(x, "diff"), checked_extent("diff", "n", n)
    if n == 0:
        return x
    axis = checked_axis("diff", axis, x.ndim)
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = _core.concat(_core.promote("diff", parts), axis)
    for _ in range(n):
        before = (slice(None),) * axis
        x = x[before + (slice(1, None),)] - x[before + (slice(None, -1),)]
    return x
