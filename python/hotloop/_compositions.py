"""Functions of NumPy's that others here make up."""

import math

import numpy

from hotloop import _core, _manipulation, _reductions
from hotloop._creation import _from_numpy, linspace
from hotloop._dtypes import float32
from hotloop._op import checked_axis, checked_extent, exporter, extents, integer, number, pair

__all__ = ["tri", "tril_indices", "triu_indices", "diag_indices", "logspace"]
_export = exporter(__all__)


@_export(1)
def deg2rad(x, /):
    """Degrees as radians: x pi / 180."""
    return _core.promote("deg2rad", [x], True)[0] * (math.pi / 180)


@_export(1)
def rad2deg(x, /):
    """Radians as degrees: x 180 / pi."""
    return _core.promote("rad2deg", [x], True)[0] * (180 / math.pi)


def tri(n, m=None, /, k=0, dtype=float32):
    """(n, m) with ones on the k-th diagonal and below, zeros above; m is n if not given."""
    n, m = extents("tri", (n, n if m is None else m))
    return _from_numpy(numpy.tri(n, m, integer("tri", "k", k)), dtype)


def _places(mask):
    return tuple(_from_numpy(places, "int32") for places in mask.nonzero())


def _lower(name, n, k, m):
    n, m = extents(name, (n, n if m is None else m))
    return numpy.tri(n, m, k, dtype=bool)


def tril_indices(n, /, k=0, m=None):
    """(rows, columns), int32, of the elements of an (n, m) matrix on the k-th diagonal and below, row by row: x[hl.tril_indices(len(x))]."""
    return _places(_lower("tril_indices", n, integer("tril_indices", "k", k), m))


def triu_indices(n, /, k=0, m=None):
    """(rows, columns), int32, of the elements of an (n, m) matrix on the k-th diagonal and above, row by row."""
    return _places(~_lower("triu_indices", n, integer("triu_indices", "k", k) - 1, m))


def diag_indices(n, /, ndim=2):
    """The places of the main diagonal of an array with `ndim` axes of n elements: `ndim` times 0 .. n - 1, int32."""
    n = checked_extent("diag_indices", "n", n)
    return tuple(_from_numpy(numpy.arange(n), "int32") for _ in range(integer("diag_indices", "ndim", ndim)))


def logspace(start, stop, /, num=50, endpoint=True, base=10.0, dtype=None, *, axis=0):
    """base**start to base**stop, the exponents evenly spaced, as `linspace` spaces them."""
    if any(isinstance(end, (_core.Tracer, _core.Array, numpy.ndarray)) for end in (start, stop, base)):
        powers = (base if hasattr(base, "dtype") else number("logspace", "base", base)) ** linspace(start, stop, num, endpoint=endpoint, axis=axis)
        return powers if dtype is None else _core.cast(powers, dtype)
    return _from_numpy(numpy.logspace(*(number("logspace", name, v) for name, v in (("start", start), ("stop", stop))), checked_extent("logspace", "num", num), endpoint=endpoint, base=number("logspace", "base", base), axis=axis), float32 if dtype is None else dtype)


@_export(2)
def geomspace(start, stop, /, num=50, endpoint=True, dtype=None, *, axis=0):
    """`num` numbers from start to stop, of which each is the same multiple of the one before. Both ends must be of one sign, and not 0, where they are arrays
    without a check."""
    start, stop = _core.promote("geomspace", [start, stop], True)
    sizes = (_core.unary("log", _core.unary("abs", end)) for end in (start, stop))
    values = _core.unary("exp", linspace(*sizes, num, endpoint=endpoint))
    values = _manipulation.moveaxis(values * _core.unary("sign", start), 0, axis)
    return values if dtype is None else _core.cast(values, dtype)


@_export(1)
def atleast_2d(x, /):
    """x with axes of extent 1 in front, so that it has two at least."""
    x = _core.to_tracer(x)
    return _core.reshape(x, (*[1] * (2 - x.ndim), *x.shape))


@_export(1)
def column_stack(arrays, /):
    """Vectors as the columns of a matrix, and matrices beside them."""
    arrays = [_core.to_tracer(a) for a in _manipulation.several("column_stack", arrays)]
    return _manipulation.concat([_core.reshape(a, (a.size, 1)) if a.ndim < 2 else a for a in arrays], axis=1)


@_export(2)
def append(x, values, /, axis=None):
    """x, and `values` behind it along `axis`; None: of the flat arrays. A new array each time: of many, hl.stack or hl.concat at the end."""
    return _manipulation.concat([x, values], axis=axis)


@_export(1)
def ptp(x, /, axis=None, *, keepdims=False):
    """The largest element along `axis` less the smallest."""
    return _reductions.max(x, axis=axis, keepdims=keepdims) - _reductions.min(x, axis=axis, keepdims=keepdims)


@_export(1)
def vander(x, n=None, /, increasing=False):
    """The matrix (len(x), n) of powers of the vector x, from n - 1 down to 0, or up with `increasing`; n is len(x) if not given."""
    x = _core.to_tracer(x)
    if x.ndim != 1:
        raise _core.UserError(f"[vander] x must be a vector. Received: {x._type}. Try: hl.vmap() for several.")
    n = checked_extent("vander", "n", x.size if n is None else n)
    powers = [_core.cast(_core.full(1.0, "int32", x.shape), x.dtype)]
    while len(powers) < n:
        powers.append(powers[-1] * x)
    return _manipulation.stack(powers if increasing else powers[::-1], axis=1)[:, :n]


@_export(2)
def polyval(p, x, /):
    """The polynomial with the coefficients p, the highest power first, at x, by Horner's rule."""
    p, x = _core.promote("polyval", [p, x])
    if p.ndim != 1:
        raise _core.UserError(f"[polyval] the coefficients must be a vector. Received: {p._type}.")
    value = _core.cast(_core.full(0.0, "int32", x.shape), x.dtype)
    for i in range(p.size):
        value = value * x + p[i]
    return value


@_export(1)
def rot90(x, k=1, /, axes=(0, 1)):
    """x turned by k quarters in the plane of two axes, from the first towards the second."""
    x = _core.to_tracer(x)
    first, second = (checked_axis("rot90", a, x.ndim) for a in pair("rot90", "axes", axes))
    if first == second:
        raise _core.UserError(f"[rot90] axes must be two different ones. Received: {axes}.")
    k = integer("rot90", "k", k) % 4
    if k == 2:
        return _manipulation.flip(x, axis=(first, second))
    if k == 1:
        x = _manipulation.flip(x, axis=second)
    if k:
        order = list(range(x.ndim))
        order[first], order[second] = second, first
        x = _manipulation.permute_dims(x, order)
    return _manipulation.flip(x, axis=second) if k == 3 else x


@_export(1, ["to_end", "to_begin"])
def ediff1d(x, /, *, to_end=None, to_begin=None):
    """The differences of neighbours in the flat array, between `to_begin` and `to_end`."""
    x = _manipulation.ravel(x)
    parts = [_manipulation.ravel(part) for part in (to_begin, x[1:] - x[:-1], to_end) if part is not None]
    return parts[0] if len(parts) == 1 else _manipulation.concat(parts)
