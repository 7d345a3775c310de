"""Functions that move elements: shapes, joining, repeating, taking."""

import math

import numpy

from hotloop import _core
from hotloop._indexing import block_starts, known_places, position_dtype, whole
from hotloop._names import kind_of
from hotloop._op import checked_axes, checked_axis, exporter, extents, integer, integers, is_several, op, shaped

__all__ = []
_export = exporter(__all__)


def _public(fn):
    fn.__module__ = "hotloop"
    __all__.append(fn.__name__)
    return fn


@op(1)
def diagonal_of(x, offset, /):
    """The elements x[..., i, i + offset] of matrices: (..., number of them)."""
    m, n = x.shape[-2:]
    first_row, first = (0, offset) if offset >= 0 else (-offset, 0)
    count = min(m - first_row, n - first)
    if count <= 0:
        return _core.full(0.0, x.dtype, (*x.shape[:-2], 0))
    # In the flattened matrix they stand n + 1 apart.
    flat = _core.reshape(x, (*x.shape[:-2], m * n))
    start = first_row * n + first
    return flat[..., start : start + (count - 1) * (n + 1) + 1 : n + 1]


def resolved_shape(x, shape):
    """`shape` with its -1 replaced."""
    shape = [integer("reshape", "an extent", n) for n in (shape if isinstance(shape, (tuple, list)) else [shape])]
    if shape.count(-1) > 1 or any(n < -1 for n in shape):
        raise _core.UserError(f"[reshape] extents must not be negative, but for one -1. Received: {tuple(shape)}.")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0 or x.size % rest:
            raise _core.UserError(f"[reshape] the extents must divide the number of elements. Received: {x.shape} to {tuple(shape)}.")
        shape[shape.index(-1)] = x.size // rest
    return tuple(shape)


@_export(1)
def reshape(x, shape, /):
    """x in another shape of as many elements, in row-major order; one extent may be -1."""
    x = _core.to_tracer(x)
    return _core.reshape(x, resolved_shape(x, shape))


@_export(1)
def ravel(x, /):
    """x as one axis."""
    x = _core.to_tracer(x)
    return _core.reshape(x, (x.size,))


@_export(1)
def permute_dims(x, axes, /):
    """x with its axes in another order: axis i of the result is axis axes[i] of x."""
    x = _core.to_tracer(x)
    permutation = [checked_axis("permute_dims", a, x.ndim) for a in integers("permute_dims", "an axis", axes)]
    return _core.append("transpose", [x], {"permutation": permutation})


@_public
def transpose(x, axes=None, /):
    """permute_dims; without axes, their reverse order."""
    return permute_dims(x, tuple(reversed(range(_ndim("transpose", x)))) if axes is None else tuple(integers("transpose", "an axis", axes)))


@_public
def matrix_transpose(x, /):
    """The last two axes exchanged."""
    n = _ndim("matrix_transpose", x)
    if n < 2:
        raise _core.UserError(f"[matrix_transpose] the array must have two axes or more. Received: {n}.")
    return permute_dims(x, (*range(n - 2), n - 1, n - 2))


@_public
def moveaxis(x, source, destination, /):
    """x with the axes `source` moved to the places `destination`; the others keep their order."""
    n = _ndim("moveaxis", x)
    source = [checked_axis("moveaxis", a, n) for a in (source if isinstance(source, (tuple, list)) else [source])]
    destination = [checked_axis("moveaxis", a, n) for a in (destination if isinstance(destination, (tuple, list)) else [destination])]
    if len(source) != len(destination):
        raise _core.UserError(f"[moveaxis] there must be one destination a source. Received: {source} and {destination}.")
    if len(set(source)) != len(source) or len(set(destination)) != len(destination):
        raise _core.UserError(f"[moveaxis] an axis may be named once. Received: {source} and {destination}.")
    order = [a for a in range(n) if a not in source]
    for to, fro in sorted(zip(destination, source, strict=True)):
        order.insert(to, fro)
    return permute_dims(x, tuple(order))


def _ndim(where, x):
    return len(shaped(where, x).shape)


@_export(1)
def expand_dims(x, /, axis=0):
    """x with new axes of extent 1 at the places `axis` of the result."""
    x = _core.to_tracer(x)
    n = x.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1)
    shape = list(x.shape)
    for a in checked_axes("expand_dims", axis, n):
        shape.insert(a, 1)
    return _core.reshape(x, shape)


@_export(1)
def squeeze(x, /, axis=None):
    """x without the axes `axis`, which must have extent 1; None: all such axes."""
    x = _core.to_tracer(x)
    axes = [a for a in range(x.ndim) if x.shape[a] == 1] if axis is None else checked_axes("squeeze", axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise _core.UserError(f"[squeeze] the axis must have extent 1. Received: axis {a} of {x.shape}. Try: reshape.")
    return _core.reshape(x, [n for a, n in enumerate(x.shape) if a not in axes])


def several(where, arrays):
    try:
        return list(arrays)
    except TypeError:
        raise _core.UserError(f"[{where}] arrays must be a list or tuple of arrays. Received: {kind_of(arrays)}.") from None


@_export(1)
def concat(arrays, /, axis=0):
    """Arrays one after another along `axis` (None: of their flattened selves); the other extents must agree."""
    arrays = _core.promote("concat", several("concat", arrays))
    if not arrays:
        raise _core.UserError("[concat] there must be at least one array. Received: none.")
    if axis is None:
        arrays, axis = [_core.reshape(a, (a.size,)) for a in arrays], 0
    return _core.concat(arrays, checked_axis("concat", axis, arrays[0].ndim))


@_export(1)
def stack(arrays, /, axis=0):
    """Arrays of one shape along a new axis."""
    arrays = _core.promote("stack", several("stack", arrays))
    if not arrays:
        raise _core.UserError("[stack] there must be at least one array. Received: none.")
    axis = checked_axis("stack", axis, arrays[0].ndim + 1)
    for a in arrays:
        if a.shape != arrays[0].shape:
            raise _core.UserError(f"[stack] the arrays must have one shape. Received: {', '.join(str(a.shape) for a in arrays)}. Try: concat.")
    return _core.concat([_core.reshape(a, a.shape[:axis] + (1,) + a.shape[axis:]) for a in arrays], axis)


@_public
def unstack(x, /, axis=0):
    """The arrays along `axis`, as a tuple."""
    x = shaped("unstack", x)
    axis = checked_axis("unstack", axis, _ndim("unstack", x))
    return tuple(x[(slice(None),) * axis + (i,)] for i in range(x.shape[axis]))


@_public
def split(x, indices_or_sections, /, axis=0):
    """x cut along `axis`: into that many equal parts, or before each of the given indices. A list."""
    x = shaped("split", x)
    axis = checked_axis("split", axis, _ndim("split", x))
    extent = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or extent % indices_or_sections:
            raise _core.UserError(
                f"[split] the number of parts must divide the axis. Received: {indices_or_sections} parts of axis {axis} of {x.shape}. "
                "Try: a list of indices."
            )
        step = extent // indices_or_sections
        bounds = list(range(0, extent + 1, step))
    else:
        bounds = [0, *integers("split", "an index", indices_or_sections), extent]
    return _cut(x, bounds, axis)


def _cut(x, bounds, axis):
    return [x[(slice(None),) * axis + (slice(a, b),)] for a, b in zip(bounds[:-1], bounds[1:])]


@_public
def array_split(x, indices_or_sections, /, axis=0):
    """As split; a number of parts need not divide the axis: the first ones are then longer by one."""
    if is_several(indices_or_sections):
        return split(x, indices_or_sections, axis)
    x = shaped("array_split", x)
    axis, count = checked_axis("array_split", axis, _ndim("array_split", x)), integer("array_split", "the number of parts", indices_or_sections)
    if count < 1:
        raise _core.UserError(f"[array_split] there must be at least one part. Received: {count}.")
    each, longer = divmod(x.shape[axis], count)
    return _cut(x, [i * each + min(i, longer) for i in range(count + 1)], axis)


@_export(1)
def flip(x, /, axis=None):
    """x in reverse order along `axis` (None: all)."""
    x = _core.to_tracer(x)
    return _core.append("reverse", [x], {"axes": checked_axes("flip", axis, x.ndim)})


@_export(1)
def roll(x, shift, /, axis=None):
    """Elements moved on by `shift` along `axis`; those that leave at the end come back at the start. None: of the flat array.

    Several shifts and axes are pairs; one shift is for all axes, and one axis is moved by all shifts.
    """
    x = _core.to_tracer(x)
    if axis is None:
        return _core.reshape(roll(_core.reshape(x, (x.size,)), shift, axis=0), x.shape)
    shifts, axes = ([*given] if isinstance(given, (tuple, list)) else [given] for given in (shift, axis))
    if len(shifts) == 1:
        shifts *= len(axes)
    elif len(axes) == 1:
        axes *= len(shifts)
    if len(shifts) != len(axes):
        raise _core.UserError(f"[roll] there must be one shift an axis, or one for all. Received: shift {shift} and axis {axis}.")
    for s, a in zip(shifts, axes, strict=True):
        a, s = checked_axis("roll", a, x.ndim), integer("roll", "the shift", s)
        if x.shape[a] == 0 or s % x.shape[a] == 0:
            continue
        cut = x.shape[a] - s % x.shape[a]
        before = (slice(None),) * a
        x = _core.concat([x[before + (slice(cut, None),)], x[before + (slice(0, cut),)]], a)
    return x


@_export(1)
def broadcast_to(x, shape, /):
    """x repeated to `shape` by NumPy's rule."""
    return _core.broadcast_to(x, extents("broadcast_to", shape))


@_public
def broadcast_arrays(*arrays):
    """The arrays on their common shape."""
    return _broadcast_all(list(arrays))


@op(1)
def _broadcast_all(arrays):
    return _core.broadcast_arrays("broadcast_arrays", arrays)


@_export(1)
def tile(x, repetitions, /):
    """x laid side by side, as numpy.tile."""
    x = _core.to_tracer(x)
    repetitions = extents("tile", repetitions)
    n = max(x.ndim, len(repetitions))
    shape = (1,) * (n - x.ndim) + tuple(x.shape)
    repetitions = (1,) * (n - len(repetitions)) + repetitions
    doubled = [v for extent in shape for v in (1, extent)]
    wide = [v for r, extent in zip(repetitions, shape) for v in (r, extent)]
    return _core.reshape(_core.broadcast_to(_core.reshape(x, doubled), wide), [r * e for r, e in zip(repetitions, shape)])


@_export(1)
def repeat(x, repeats, /, axis=None):
    """Each element `repeats` times along `axis` (None: of the flat array): one integer for all, or known numbers, one for each."""
    x = _core.to_tracer(x)
    if not _core.is_tracer(repeats) and numpy.ndim(repeats):
        return _repeat_each(x, numpy.asarray(repeats), axis)
    if integer("repeat", "repeats", repeats) < 0:
        raise _core.UserError(f"[repeat] repeats must not be negative. Received: {repeats}.")
    if axis is None:
        x, axis = _core.reshape(x, (x.size,)), 0
    axis = checked_axis("repeat", axis, x.ndim)
    shape = x.shape
    wide = shape[: axis + 1] + (repeats,) + shape[axis + 1 :]
    repeated = _core.broadcast_to(_core.reshape(x, shape[: axis + 1] + (1,) + shape[axis + 1 :]), wide)
    return _core.reshape(repeated, shape[:axis] + (shape[axis] * repeats,) + shape[axis + 1 :])


def _repeat_each(x, repeats, axis):
    x, axis = (_core.reshape(x, (x.size,)), 0) if axis is None else (x, checked_axis("repeat", axis, x.ndim))
    if repeats.dtype.kind not in "iu" or repeats.shape != (x.shape[axis],) or (repeats < 0).any():
        raise _core.UserError(f"[repeat] repeats must be one integer that is not negative, or one for each of the {x.shape[axis]} elements. Received: {repeats!r}.")
    return x[(slice(None),) * axis + (numpy.repeat(numpy.arange(x.shape[axis], dtype="int32"), repeats),)]


_PADDINGS = ("constant", "edge", "reflect", "symmetric", "wrap")


def _continued(x, axis, low, high, mode):
    """x with `low` and `high` more elements along the axis, which continue it by one of _PADDINGS."""
    n = x.shape[axis]
    if low == high == 0:
        return x
    most = {"reflect": n - 1, "symmetric": n, "wrap": n}.get(mode, n and low + high)
    if low > most or high > most:
        raise _core.UserError(f"[pad] by {mode} there are at most {most} elements to pad {n} with. Received: {(low, high)}, for axis {axis} of {x.shape}.")

    def part(start, stop):
        return x[(slice(None),) * axis + (slice(start, stop),)]

    if mode == "edge":
        before, after = (repeat(part(at, at + 1), number, axis=axis) if number else part(0, 0) for at, number in ((0, low), (n - 1, high)))
    elif mode == "wrap":
        before, after = part(n - low, n), part(0, high)
    else:
        skip = 1 if mode == "reflect" else 0
        before, after = flip(part(skip, skip + low), axis=axis), flip(part(n - skip - high, n - skip), axis=axis)
    return concat([p for p in (before, x, after) if p.shape[axis]], axis=axis)


@_export(1, ["constant_values"])
def pad(x, pad_width, /, mode="constant", *, constant_values=0):
    """x with something around it; pad_width: one number, (before, after), or one such pair an axis.

    mode: "constant" for `constant_values`, "edge" for the outermost element, "reflect" for the elements from there inwards without it, "symmetric" with
    it, "wrap" for those of the other end.
    """
    if mode not in _PADDINGS:
        raise _core.UserError(f"[pad] mode must be one of {', '.join(_PADDINGS)}. Received: {mode!r}.")
    x = _core.to_tracer(x)
    try:
        widths = numpy.asarray(pad_width)
        widths = [[integer("pad", "a width", w) for w in pair] for pair in numpy.broadcast_to(widths, (x.ndim, 2)).tolist()]
    except ValueError as error:
        if isinstance(error, _core.UserError):
            raise
        raise _core.UserError(f"[pad] pad_width must be one number, (before, after), or such a pair for each of the {x.ndim} axes. Received: {pad_width!r}.") from None
    if any(w < 0 for pair in widths for w in pair):
        raise _core.UserError(f"[pad] widths must not be negative. Received: {pad_width}. Try: slicing.")
    if mode != "constant":
        for axis, (low, high) in enumerate(widths):
            x = _continued(x, axis, low, high, mode)
        return x
    value = _core.fitted("pad", constant_values, x.dtype)
    if value.shape != ():
        raise _core.UserError(f"[pad] constant_values must be one number. Received: {value._type}. Try: hl.pad for each side that has a number of its own.")
    return _core.append("pad", [x, value], {"low": [w[0] for w in widths], "high": [w[1] for w in widths], "interior": [0] * x.ndim})


@_export(2)
def take(x, indices, /, axis=None):
    """x[..., indices, ...] along `axis` (None: of the flat array). Negative indices count from the end; those still out of range
    are limited to it, in NumPy an error."""
    x = _core.to_tracer(x)
    if axis is None:
        x, axis = _core.reshape(x, (x.size,)), 0
    axis = checked_axis("take", axis, x.ndim)
    return x[(slice(None),) * axis + (known_places(indices, x.shape[axis]),)]


@_export(2)
def take_along_axis(x, indices, /, axis=-1):
    """out[i, j, k] = x[indices[i, j, k], j, k] (for axis 0): indices of the shape of x but for `axis`."""
    x, indices = _core.to_tracer(x), _core.to_tracer(indices)
    axis = checked_axis("take_along_axis", axis, x.ndim)
    if indices.ndim != x.ndim:
        raise _core.UserError(f"[take_along_axis] indices must have as many axes as x. Received: {indices.shape} for {x.shape}.")
    key = []
    for a in range(x.ndim):
        if a == axis:
            key.append(indices)
        else:
            shape = [1] * x.ndim
            shape[a] = x.shape[a]
            key.append(_core.iota(position_dtype(x.shape[a]), shape, a))
    return x[tuple(key)]


@_export(3)
def scatter_add(x, indices, updates, /, axis=0):
    """x with updates[i] added at indices[i] along `axis`; indices out of range are dropped. The adjoint of take."""
    x, updates = _core.promote("scatter_add", [x, updates])
    return _core.append("scatter_add", [x, whole(indices), updates], {"axis": checked_axis("scatter_add", axis, x.ndim)})


@_export(2)
def dynamic_slice(x, starts, sizes, /):
    """x[starts[0]:starts[0]+sizes[0], ...]: starts may be computed, sizes are known. Limited so that it fits."""
    x, starts, sizes = _core.to_tracer(x), _starts("dynamic_slice", starts), integers("dynamic_slice", "a size", sizes)
    return _core.dynamic_slice(x, block_starts(starts, x.shape, sizes), sizes)


@_export(3)
def dynamic_update(x, update, starts, /):
    """x with `update` written at the computed position `starts`, limited so that it fits."""
    x = _core.to_tracer(x)
    update = _core.fitted("dynamic_update", update, x.dtype)
    return _core.dynamic_update(x, update, block_starts(_starts("dynamic_update", starts), x.shape, update.shape))


def _starts(where, starts):
    if not isinstance(starts, (tuple, list)) and getattr(starts, "ndim", 0) != 1:
        raise _core.UserError(f"[{where}] starts must be a list or tuple of integers, one an axis. Received: {kind_of(starts)}.")
    return starts


@_export(1)
def sliding_window_view(x, window, /, axis=0, *, stride=1, dilation=1):
    """Strided windows: the axis of extent n becomes (number of windows, window): out[w, k] = x[w stride + k dilation]. NumPy's function of this
    name puts the window behind all axes."""
    x = _core.to_tracer(x)
    axis = checked_axis("sliding_window_view", axis, x.ndim)
    sizes = {name: integer("sliding_window_view", f"the {name}", n) for name, n in (("size", window), ("stride", stride), ("dilation", dilation))}
    return _core.append("windows", [x], {"axis": axis, **sizes})
