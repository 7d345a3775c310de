"""Sums of products of shifted vectors, and integrals of samples."""

from hotloop import _core
from hotloop._op import checked_axis, exporter

__all__ = []
_export = exporter(__all__)
_MODES = ("full", "same", "valid")


def _vectors(name, a, v, mode):
    if mode not in _MODES:
        raise _core.UserError(f"[{name}] mode must be one of {', '.join(_MODES)}. Received: {mode!r}.")
    a, v = _core.promote(name, [a, v])
    if a.ndim != 1 or v.ndim != 1 or a.size == 0 or v.size == 0:
        raise _core.UserError(f"[{name}] there must be two vectors with at least one element each. Received: {a._type} and {v._type}. Try: hl.vmap() for several, hl.nn.Conv1d for a layer.")
    return tuple(_core.cast(x, "int32") if x.dtype.kind == "b" else x for x in (a, v))


def _sums(x, w, mode):
    """out[i] = sum over j of x[i + j] w[j] of a w that is no longer than x: for the places that `mode` says, beyond x's ends of zeros."""
    k = w.shape[0]
    low, high = {"full": (k - 1, k - 1), "same": (k // 2, k - k // 2 - 1), "valid": (0, 0)}[mode]
    if low or high:
        x = _core.append("pad", [x, _core.cast(_core.full(0.0, x.dtype, ()), x.dtype)], {"low": [low], "high": [high], "interior": [0]})
    return _core.correlate(x, w)


def _reversed(x):
    return _core.append("reverse", [x], {"axes": [0]})


@_export(2)
def convolve(a, v, /, mode="full"):
    """The convolution of two vectors, out[i] = sum over j of a[i - j] v[j], as numpy.convolve.

    mode: "full", all n + k - 1 places where they overlap; "same", as many as the longer one has, the middle ones; "valid", those where all of the shorter
    one lies within the longer one. By products, n k of them: for long ones of both no faster than that.
    """
    a, v = _vectors("convolve", a, v, mode)
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    return _sums(a, _reversed(v), mode)


@_export(2)
def correlate(a, v, /, mode="valid"):
    """The correlation of two vectors, out[i] = sum over j of a[i + j] v[j], as numpy.correlate. mode: as of `convolve`."""
    a, v = _vectors("correlate", a, v, mode)
    return _reversed(_sums(v, a, mode)) if v.shape[0] > a.shape[0] else _sums(a, v, mode)


@_export(3, ["x", "dx"])
def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral of y along `axis` by the trapezoidal rule; x: where the samples lie, a vector or of y's shape, else `dx` apart."""
    if x is None:
        y, dx = _core.promote("trapezoid", [y, dx], True)
    else:
        y, x = _core.promote("trapezoid", [y, x], True)
    axis = checked_axis("trapezoid", axis, y.ndim)
    before = (slice(None),) * axis
    steps = dx
    if x is not None:
        if x.ndim not in (1, y.ndim) or x.shape[0 if x.ndim == 1 else axis] != y.shape[axis]:
            raise _core.UserError(f"[trapezoid] x must be a vector of as many places as y has along the axis, or of y's shape. Received: {x._type} and {y._type}, axis {axis}.")
        if x.ndim == 1:
            x = _core.reshape(x, [n if a == axis else 1 for a, n in enumerate(y.shape)])
        key = (slice(None),) * axis
        steps = x[(*key, slice(1, None))] - x[(*key, slice(None, -1))]
    pieces = (y[(*before, slice(1, None))] + y[(*before, slice(None, -1))]) * steps
    return _core.append("reduce_sum", [pieces * 0.5], {"axes": [axis]})
