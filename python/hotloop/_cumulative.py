"""Running sums, products, extremes and logarithms of sums along an axis, which a 1-d array need not name."""

import math

import numpy

from hotloop import _core
from hotloop._elementwise import better
from hotloop._op import checked_axis, exporter
from hotloop._reductions import _number

__all__ = []
_export = exporter(__all__)


@_export(1)
def cumulative_sum(x, /, *, axis=None, include_initial=False):
    """The sums of the elements up to each place along `axis`."""
    return _cumulative("cumulative_sum", x, axis, include_initial, 0.0, lambda total, value: total + value)


@_export(1)
def cumulative_prod(x, /, *, axis=None, include_initial=False):
    """The products of the elements up to each place along `axis`."""
    return _cumulative("cumulative_prod", x, axis, include_initial, 1.0, lambda total, value: total * value)


@_export(1)
def cumulative_max(x, /, *, axis=None, include_initial=False):
    """The largest of the elements up to each place along `axis`; NaN from the first NaN on. include_initial: what is larger than nothing, -inf, comes first.

    The derivative goes to the largest; of equal ones to the last.
    """
    return _extremes("cumulative_max", x, axis, include_initial, "ge", False)


@_export(1)
def cumulative_min(x, /, *, axis=None, include_initial=False):
    """The smallest of the elements up to each place along `axis`; NaN from the first NaN on. include_initial: what is smaller than nothing, inf, comes first.

    The derivative goes to the smallest; of equal ones to the last.
    """
    return _extremes("cumulative_min", x, axis, include_initial, "le", True)


def _extremes(name, x, axis, include_initial, compare, is_min):
    x = _number(x)
    limits = (-math.inf, math.inf) if x.dtype.kind == "f" else (numpy.iinfo(x.dtype).min, numpy.iinfo(x.dtype).max)
    return _cumulative(name, x, axis, include_initial, limits[is_min], better(compare))


@_export(1)
def logcumsumexp(x, /, *, axis=None):
    """log of the running sums of exp(x) along `axis`, without overflow; -inf is the logarithm of 0. The derivative is a running softmax."""
    from hotloop._control import scan

    x = _core.promote("logcumsumexp", [x], True)[0]
    moved, back = _moved("logcumsumexp", x, axis)
    nothing = _core.full(-math.inf, x.dtype, moved.shape[1:])
    zero = _core.cast(_core.full(0.0, x.dtype, moved.shape[1:]), x.dtype)

    # What is carried are the largest so far and the sum of the exponentials of what the others are less. The largest is any number that keeps them small.
    def step(carry, value):
        largest, total = carry
        most = _core.append("stop_gradient", [_core.binary("max", largest, value)], {})
        shift = _finite(most)
        total = total * _core.unary("exp", largest - shift) + _core.unary("exp", value - shift)
        return (most, total), (shift, total)

    shifts, totals = scan(step, (nothing, zero), moved)[1]
    is_zero = _core.binary("eq", totals, 0.0)
    logs = shifts + _core.unary("log", _core.append("select", [is_zero, _core.full(1.0, x.dtype, totals.shape), totals], {}))
    return back(_core.append("select", [is_zero, _core.full(-math.inf, x.dtype, totals.shape), logs], {}))


def _finite(x):
    """x, or 0 in place of an infinity or NaN."""
    return _core.append("select", [_core.binary("lt", _core.unary("abs", x), math.inf), x, _core.cast(_core.full(0.0, x.dtype, x.shape), x.dtype)], {})


def _moved(name, x, axis):
    """x with `axis` first, and what moves it back."""
    if axis is None and x.ndim != 1:
        raise _core.UserError(f"[{name}] the axis must be named unless x has one. Received: {x.shape}.")
    axis = checked_axis(name, 0 if axis is None else axis, x.ndim)
    order = [axis, *(a for a in range(x.ndim) if a != axis)]
    return _core.append("transpose", [x], {"permutation": order}), lambda y: _core.append("transpose", [y], {"permutation": [order.index(a) for a in range(x.ndim)]})


def _cumulative(name, x, axis, include_initial, neutral, combine):
    from hotloop._control import scan

    x = _number(x)
    moved, back = _moved(name, x, axis)
    start = _core.cast(_core.full(neutral, x.dtype, moved.shape[1:]), x.dtype)

    def step(total, value):
        total = combine(total, value)
        return total, total

    totals = scan(step, start, moved)[1]
    if include_initial:
        totals = _core.concat([_core.reshape(start, (1, *moved.shape[1:])), totals], 0)
    return back(totals)
