"""x[key] by NumPy's rules, and x.at[key] for what NumPy writes as an assignment.

Slices, integers, new axes and the ellipsis are changes of index and cost nothing; integer arrays gather. A computed index that
is out of range is limited to it (a known one is an error, as in NumPy). The mask of x[mask] must be known while tracing: with a computed
one the result's shape would depend on its values; use where(). x.at[mask] takes a computed mask, with one value for all its places.
"""

import math
import operator

import numpy

from hotloop import _core, _names
from hotloop._elementwise import better


def _is_mask(k):
    if isinstance(k, list):
        return bool(k) and all(_is_mask(v) if isinstance(v, list) else isinstance(v, (bool, numpy.bool_)) for v in k)
    return isinstance(k, bool) or getattr(k, "dtype", None) == numpy.bool_


def _no_bool(key):
    found = next(k for k in _parts(key) if isinstance(k, bool))
    return _core.UserError(f"[index] a single bool is no index. Received: {found}. Try: x[None] for a new axis.")


def _parts(key):
    return key if isinstance(key, tuple) else (key,)


def _as_index(k):
    """One part of a key: a slice, None, Ellipsis, an int, or an integer array (known or traced)."""
    if k is None or k is Ellipsis or isinstance(k, slice):
        return k
    if _core.is_tracer(k):
        if k.dtype.kind == "b":
            raise _core.UserError(
                f"[index] a mask must be known while tracing, since the result's shape depends on it. Received: a traced {k._type}. "
                "Try: hl.where(mask, x, 0)."
            )
        if k.dtype.kind == "f":
            raise _core.UserError(f"[index] an index must be an integer. Received: {k._type}. Try: hl.astype(i, hl.int32).")
        return k
    if hasattr(k, "__index__") and not isinstance(k, numpy.ndarray) and not isinstance(k, _core.Array):
        return operator.index(k)
    if isinstance(k, list) and any(_core.is_tracer(v) for v in k):
        return _as_index(_core.to_tracer([whole(v) for v in k]))
    array = numpy.asarray(k)
    if array.size == 0 and not isinstance(k, numpy.ndarray):
        array = array.astype(numpy.int32)
    if array.dtype.kind not in "iu":
        raise _core.UserError(f"[index] an index must be an integer, a slice, None, ... or an array of integers. Received: {k!r}.")
    return array


def _normalized(x, key):
    """The key as a list with one part for each axis of x, and None for new ones; and whether its arrays (integers count as such)
    stand side by side, which decides where their axes go. To NumPy an ellipsis parts them even where it stands for no axis."""
    key = _parts(key)
    parts, masks = [], []
    for k in key:
        if _is_mask(k) and not _core.is_tracer(k):
            if isinstance(k, bool):
                raise _no_bool(key)
            mask = numpy.asarray(k)
            masks.append((len(parts), mask.shape))
            parts.extend(mask.nonzero())
        else:
            parts.append(_as_index(k))
    used = sum(1 for k in parts if k is not None and k is not Ellipsis)
    if used > x.ndim:
        raise _core.UserError(f"[index] there must be at most one index an axis. Received: {used} for {x.shape}.")
    if sum(1 for k in parts if k is Ellipsis) > 1:
        raise _core.UserError(f"[index] there must be at most one ellipsis. Received: {key}.")
    places = [i for i, k in enumerate(parts) if k is not None and k is not Ellipsis and not isinstance(k, slice)]
    together = not places or places == list(range(places[0], places[-1] + 1))
    filler = [slice(None)] * (x.ndim - used)
    at = next((i for i, k in enumerate(parts) if k is Ellipsis), None)
    whole_key = parts + filler if at is None else parts[:at] + filler + parts[at + 1 :]
    for place, shape in masks:
        place += len(filler) - 1 if at is not None and place > at else 0
        axis = sum(1 for k in whole_key[:place] if k is not None)
        if x.shape[axis : axis + len(shape)] != shape:
            raise _core.UserError(f"[index] a mask must have the extents of its axes. Received: a mask {shape} for axis {axis} of {tuple(x.shape)}.")
    return whole_key, together


def _checked(k, extent, axis, shape):
    if not -extent <= k < extent:
        raise _core.UserError(f"[index] the index must lie within the axis. Received: {k} on axis {axis} of {shape}.")
    return k % extent


def _in_range(index, extent, axis, shape):
    """An index array counted from 0; known ones are checked."""
    dtype = position_dtype(extent)
    if isinstance(index, int):
        return numpy.asarray(_checked(index, extent, axis, shape), dtype=dtype)
    if not _core.is_tracer(index):
        if index.size and (index.min() < -extent or index.max() >= extent):
            raise _core.UserError(f"[index] indices must lie within the axis. Received: {index.min()} to {index.max()} on axis {axis} of {shape}.")
        return numpy.where(index < 0, index + extent, index).astype(dtype)
    index = whole(index)
    if dtype == "int64" and index.dtype != numpy.int64:
        index = _core.cast(index, dtype)
    # Limited before it is narrowed: cut off at 32 bits, 2^32 + 1 would be 1.
    if index.dtype.kind == "i":
        index = _core.append("select", [_core.binary("lt", index, 0), index + extent, index], {})
    limited = _core.binary("max", _core.binary("min", index, max(extent - 1, 0)), 0)
    return limited if index.dtype == dtype else _core.cast(limited, dtype)


def known_places(indices, extent):
    """Indices limited to an axis: known ones as an array that stays known, others traced."""
    parts = indices if isinstance(indices, (list, tuple)) else [indices]
    known = None if any(_core.is_tracer(i) for i in parts) else numpy.asarray(indices)
    if known is None or known.dtype.kind not in "iu" or extent == 0:
        return _core.to_tracer(whole(indices))
    return numpy.clip(numpy.where(known < 0, known + extent, known), 0, extent - 1)


def position_dtype(extent):
    """The dtype of positions on an axis: int32 where it reaches the end."""
    return "int32" if extent <= _MOST_INT32 else "int64"


_MOST_INT32 = 2**31 - 1


def whole(index):
    """A traced index with all its bits: a number that is an argument has 64. Anything else as it is."""
    if not _core.is_tracer(index):
        return index
    return _core.cast(index, "int64") if index.weak and index.dtype.kind == "i" else _core.to_tracer(index)


def narrowed(index, least=-_MOST_INT32 - 1, most=_MOST_INT32):
    """Traced integers limited to [least, most], as int32; those that are int32 as they are."""
    index = _core.to_tracer(whole(index))
    if index.dtype.kind not in "iu" or index.dtype == numpy.int32:
        return _core.cast(index, "int32")
    limited = _core.binary("min", index, most)
    if index.dtype.kind == "i":
        limited = _core.binary("max", limited, least)
    return _core.cast(limited, "int32")


def block_starts(starts, shape, sizes):
    """Where a block begins on each axis, as the int32 that the engine takes; it limits them so that the block fits."""
    if len(starts) != len(shape) or len(sizes) != len(shape):
        return [_core.cast(s, "int32") for s in starts]  # the engine says what is wrong
    rooms = [max(extent - size, 0) for extent, size in zip(shape, sizes)]
    return [min(max(s, 0), room) if type(s) is int else narrowed(s, 0, min(room, _MOST_INT32)) for s, room in zip(starts, rooms)]


def _sliced(x, parts):
    """The slices and known integers of a key applied: the array, with extent 1 where an integer was."""
    start, stop, step, reverse = [], [], [], []
    for axis, k in enumerate(parts):
        extent = x.shape[axis]
        if isinstance(k, int):
            k = _checked(k, extent, axis, x.shape)
            k = slice(k, k + 1)
        if not isinstance(k, slice):
            k = slice(None)
        if any(_core.is_tracer(v) for v in (k.start, k.stop, k.step)):
            raise _core.UserError(
                "[index] the bounds of a slice must be known while tracing, since the result's shape depends on them. "
                "Received: a traced bound. Try: hl.dynamic_slice(x, starts, sizes)."
            )
        first, last, by = k.indices(extent)
        count = len(range(first, last, by))
        if by < 0:
            # The same elements from the other end, then reversed.
            first, by = first + (count - 1) * by if count else 0, -by
            reverse.append(axis)
        start.append(first if count else 0)
        stop.append(first + (count - 1) * by + 1 if count else 0)
        step.append(by)
    if any(s or t != n or p != 1 for s, t, p, n in zip(start, stop, step, x.shape)):
        x = _core.append("slice", [x], {"start": start, "stop": stop, "step": step})
    reverse = [a for a in reverse if x.shape[a] > 1]
    return _core.append("reverse", [x], {"axes": reverse}) if reverse else x


def _joined(x, of_axes):
    """x with its slices taken and the axes that are indexed side by side as one axis; the index into that; where it is; and what undoes
    the order: the permutation that was taken, and the extents it gave."""
    # Beside an array, integers count as arrays (NumPy's rule).
    advanced = [a for a, k in enumerate(of_axes) if not isinstance(k, slice)]
    indices = [_in_range(of_axes[a], x.shape[a], a, x.shape) for a in advanced]
    x = _sliced(x, [k if isinstance(k, slice) else slice(None) for k in of_axes])
    order = [a for a in range(x.ndim) if a not in advanced]
    before = sum(1 for a in order if a < advanced[0])
    permutation = order[:before] + advanced + order[before:]
    x = _core.append("transpose", [x], {"permutation": permutation})
    permuted = list(x.shape)
    extents = permuted[before : before + len(advanced)]
    if len(indices) > 1:
        size = math.prod(extents)
        if any(_core.is_tracer(i) for i in indices):
            indices = _core.broadcast_arrays("index", [_core.cast(_core.to_tracer(i), position_dtype(size)) for i in indices])
        else:
            indices = numpy.broadcast_arrays(*[i.astype(position_dtype(size)) for i in indices])
        x = _core.reshape(x, [*permuted[:before], size, *permuted[before + len(extents) :]])
        index = indices[0]
        for i, e in zip(indices[1:], extents[1:]):
            index = index * e + i
    else:
        index = indices[0]
    return x, index, before, (permutation, permuted)


def getitem(x, key):
    """x[key] under trace."""
    x = _core.to_tracer(x)
    parts, together = _normalized(x, key)
    of_axes = [k for k in parts if k is not None]
    arrays = [a for a, k in enumerate(of_axes) if not isinstance(k, (slice, int))]
    if not arrays:
        shape = _sliced(x, of_axes)
        dims, axis = [], 0
        for k in parts:
            if k is None:
                dims.append(1)
            else:
                if not isinstance(k, int):
                    dims.append(shape.shape[axis])
                axis += 1
        return _core.reshape(shape, dims) if tuple(dims) != shape.shape else shape
    x, index, before, _ = _joined(x, of_axes)
    index = _core.to_tracer(index)
    gathered = _core.gather(x, index, before)
    rank = index.ndim
    # Axes now: before, index, after. Where they belong in the result, with new axes:
    if together:
        dims, taken, others = [], False, iter([*gathered.shape[:before], *gathered.shape[before + rank :]])
        for k in parts:
            if k is None:
                dims.append(1)
            elif isinstance(k, slice):
                dims.append(next(others))
            elif not taken:
                dims.extend(index.shape)
                taken = True
        return _core.reshape(gathered, dims) if tuple(dims) != gathered.shape else gathered
    front = list(range(before, before + rank))
    rest = [a for a in range(gathered.ndim) if a not in front]
    gathered = _core.append("transpose", [gathered], {"permutation": front + rest})
    dims, others = list(gathered.shape[:rank]), iter(gathered.shape[rank:])
    dims += [1 if k is None else next(others) for k in parts if k is None or isinstance(k, slice)]
    return _core.reshape(gathered, dims) if tuple(dims) != gathered.shape else gathered


class At:
    """x.at[key]: what NumPy does with an assignment to x[key], as a new array. x is unchanged. A computed index that is out of range is
    limited to it, as in x[key]. A computed mask is one of the parts of a key, beside slices and integers; what is written has no axis for
    its places, or one of extent 1, since their number is not known."""

    def __init__(self, x):
        self._x = x

    def __getitem__(self, key):
        return _Place(self._x, key)


class _Place:
    def __init__(self, x, key):
        self._x, self._key = x, key

    def set(self, values):
        """x with `values` at x[key]. Of several values for one place the last one stays."""
        return _put(self._x, values, self._key, "set")

    def add(self, values):
        """x with `values` added at x[key]; repeated indices add up."""
        return _put(self._x, values, self._key, "add")

    def subtract(self, values):
        """x with `values` subtracted at x[key]; repeated indices add up."""
        return _put(self._x, values, self._key, "subtract")

    def multiply(self, values):
        """x with x[key] multiplied by `values`; of several for one place by each, in their order."""
        return _put(self._x, values, self._key, "multiply")

    mul = multiply

    def divide(self, values):
        """x with x[key] divided by `values`; of several for one place by each, in their order."""
        return _put(self._x, values, self._key, "divide")

    def max(self, values):
        """x with the larger of x[key] and `values`; of several for one place the largest, NaN if there is one.

        The derivative goes to what won; of equal ones to x, then to the first.
        """
        return _put(self._x, values, self._key, "max")

    def min(self, values):
        """x with the smaller of x[key] and `values`; of several for one place the smallest, NaN if there is one.

        The derivative goes to what won; of equal ones to x, then to the first.
        """
        return _put(self._x, values, self._key, "min")

    def get(self):
        """x[key]."""
        return self._x[self._key]

    def __getattr__(self, name):
        raise _names.absent_attribute("x.at[key]", name, _names.PLACES, ())


def _put(x, values, key, how):
    from hotloop._control import run_traced

    if any(isinstance(k, bool) for k in _parts(key)):
        raise _no_bool(key)
    key = tuple(numpy.asarray(k) if isinstance(k, list) and _is_mask(k) else k for k in _parts(key))
    if not _core.is_tracing() and any(_is_mask(k) for k in _parts(key)) and not _has_one_value(numpy.shape(x), key, numpy.shape(values)):
        # One value for each place of the mask: where they are is known.
        key = tuple(i for k in _parts(key) for i in (numpy.asarray(k).nonzero() if _is_mask(k) and numpy.ndim(k) else [k]))
    if not _core.is_tracing():
        # Numbers as arrays and blocks by where they begin, so that one program serves all of them.
        if type(values) in (bool, int, float):
            values = _core.number_in("at", values, x.dtype)
        if all(k is Ellipsis or isinstance(k, slice) or type(k) is int for k in _parts(key)):
            block = _place_of_block(x, key)
            if block is not None:
                starts, sizes, kept = block
                return run_traced("at", _put_block, x, values, [numpy.int32(s) for s in starts], sizes, kept, how)
    return run_traced("at", _put_traced, x, values, key, how)


def _axes_behind_mask(ndim, key):
    """How many axes x[key] has behind that of the key's only mask, where all else are slices and integers beside it; else None."""
    parts = _parts(key)
    masks = [i for i, k in enumerate(parts) if _is_mask(k)]
    if len(masks) != 1:
        return None
    at = masks[0]
    others = [*parts[:at], *parts[at + 1 :]]
    if any(k is None or not (k is Ellipsis or isinstance(k, slice) or numpy.ndim(k) == 0) for k in others):
        return None
    kept = [k is Ellipsis or isinstance(k, slice) for k in parts]
    # Integers apart from the mask send its axis to the front.
    numbers = [i for i, keeps in enumerate(kept) if not keeps]
    if numbers != list(range(numbers[0], numbers[-1] + 1)):
        return None
    used = sum(1 for k in others if k is not Ellipsis) + numpy.ndim(parts[at])
    filled = max(ndim - used, 0)
    has_ellipsis_before = any(k is Ellipsis for k in parts[:at])
    return sum(1 for k in parts[at + 1 :] if isinstance(k, slice)) + (0 if has_ellipsis_before else filled)


def _has_one_value(shape, key, values_shape):
    """Whether values of that shape have one for all places of the key's mask."""
    behind = _axes_behind_mask(len(shape), key)
    return behind is not None and (len(values_shape) <= behind or values_shape[-1 - behind] == 1)


def _place_of_block(x, key):
    """(starts, sizes, extents of the axes that are there in x[key]) where the key names one block of x: slices with step 1, and integers, known or
    computed; else None."""
    parts, _ = _normalized(x, key)
    starts, sizes = [], []
    for axis, k in enumerate(parts):
        if k is None:
            return None
        extent = x.shape[axis]
        if isinstance(k, slice):
            if any(_core.is_tracer(v) for v in (k.start, k.stop, k.step)):
                return None
            first, last, by = k.indices(extent)
            if by != 1 or last <= first or extent - (last - first) > _MOST_INT32:
                return None
            starts.append(first)
            sizes.append(last - first)
        elif extent > _MOST_INT32:
            return None
        elif isinstance(k, int) or k.ndim == 0:
            starts.append(_in_range(k, extent, axis, x.shape))
            sizes.append(1)
        else:
            return None
    return starts, sizes, tuple(n for n, k in zip(sizes, parts) if isinstance(k, slice))


def _put_block(x, values, starts, sizes, shape, how):
    """One write of a block, in place in a loop."""
    x, starts = _core.to_tracer(x), [_core.cast(s, "int32") for s in starts]
    values = _core.reshape(_core.broadcast_to(_fitted(values, x.dtype, how), shape), sizes)
    if how != "set":
        values = _COMBINED[how](_core.dynamic_slice(x, starts, sizes), values)
    return _core.dynamic_update(x, values, starts)


# What is written in the place of an old value.
_COMBINED = {
    "add": lambda old, new: old + new, "subtract": lambda old, new: old - new, "multiply": lambda old, new: old * new, "divide": lambda old, new: old / new,
    "max": better("gt"), "min": better("lt"),
}  # fmt: skip


def _fitted(values, dtype, how):
    if how == "divide" and dtype.kind != "f":
        raise _core.UserError(f"[at] what is divided must be float. Received: {dtype}. Try: x.astype(hl.float32).at[key].divide(values).")
    return _core.fitted("at", values, dtype)


def _put_where(x, values, key, how):
    """x.at[key] of a computed mask: the old value where it does not hold."""
    parts = _parts(key)
    at = next(i for i, k in enumerate(parts) if _is_mask(k))
    mask, behind = parts[at], _axes_behind_mask(x.ndim, key)
    if behind is None:
        raise _core.UserError(
            f"[at] a mask that is computed must be the only one of a key, with slices and integers beside it. Received: {len(parts)} parts, "
            f"with a traced {mask._type} as part {at}. Try: hl.where(mask, values, x), with a mask that broadcasts with x."
        )
    values = _fitted(values, x.dtype, how)
    if not _has_one_value(x.shape, key, values.shape):
        raise _core.UserError(
            f"[at] with a mask that is computed there must be one value for all its places, since their number is not known. Received: "
            f"{values._type} for a mask {mask._type}. Try: hl.where(mask, values, x), with a value for each place of x."
        )
    if values.ndim > behind:
        values = _core.reshape(values, [*values.shape[: -1 - behind], *[1] * mask.ndim, *values.shape[values.ndim - behind :]])
    key = (*parts[:at], *[slice(None)] * mask.ndim, *parts[at + 1 :])
    old = getitem(x, key)
    extents = old.shape[old.ndim - behind - mask.ndim : old.ndim - behind]
    if mask.shape != extents:
        raise _core.UserError(f"[index] a mask must have the extents of its axes. Received: {mask._type} for {extents} of {x.shape}.")
    mask = _core.broadcast_to(_core.reshape(mask, [*mask.shape, *[1] * behind]), old.shape)
    new = values = _core.broadcast_to(values, old.shape)
    if how in ("multiply", "divide"):
        # An infinity that is not written to has no part in the derivative by what is.
        one = _core.full(1, x.dtype, old.shape)
        new = _COMBINED[how](_core.append("select", [mask, old, one], {}), _core.append("select", [mask, values, one], {}))
    elif how != "set":
        new = _COMBINED[how](old, values)
    written = _core.append("select", [mask, new, old], {})
    return written if all(k is Ellipsis or k == slice(None) for k in key) else _put_traced(x, written, key, "set")


def _is_whole(part, extent):
    """Whether a slice is all of an axis, in order."""
    return not any(_core.is_tracer(v) for v in (part.start, part.stop, part.step)) and range(extent)[part] == range(extent)


def _put_traced(x, values, key, how):
    x = _core.to_tracer(x)
    if any(_core.is_tracer(k) and k.dtype.kind == "b" for k in _parts(key)):
        return _put_where(x, values, key, how)
    block = _place_of_block(x, key)
    if block is not None:
        return _put_block(x, values, *block, how)
    parts, together = _normalized(x, key)
    indexes_rows = any(not isinstance(k, slice) for k in parts) and all(k is not None for k in parts)
    if not indexes_rows or not all(_is_whole(k, n) for k, n in zip(parts, x.shape) if isinstance(k, slice)):
        # The places as numbers: whatever the key is, indexing an array of positions by it finds them.
        positions = getitem(_core.reshape(_core.iota(position_dtype(x.size), (x.size,), 0), x.shape), key)
        values = _core.broadcast_to(_fitted(values, x.dtype, how), positions.shape)
        flat = _put_along(_core.reshape(x, (x.size,)), 0, _core.reshape(positions, (positions.size,)), _core.reshape(values, (values.size,)), how)
        return _core.reshape(flat, x.shape)
    joined, index, axis, (permutation, permuted) = _joined(x, parts)
    # The axes of the index stand first in x[key] where its arrays are not side by side.
    rank, rest = index.ndim, [*joined.shape[:axis], *joined.shape[axis + 1 :]]
    at = axis if together else 0
    shape = [*rest[:at], *index.shape, *rest[at:]]
    values = _core.broadcast_to(_fitted(values, x.dtype, how), shape)
    if at != axis:
        values = _core.append("transpose", [values], {"permutation": [*range(rank, rank + axis), *range(rank), *range(rank + axis, len(shape))]})
    size = math.prod(index.shape)
    values = _core.reshape(values, [*rest[:axis], size, *rest[axis:]])
    index = index.reshape(size) if isinstance(index, numpy.ndarray) else _core.reshape(index, (size,))
    written = _core.reshape(_put_along(joined, axis, index, values, how), permuted)
    return _core.append("transpose", [written], {"permutation": [permutation.index(a) for a in range(x.ndim)]})


def _put_along(x, axis, index, values, how):
    """x with `values`, which along `axis` has one for each of index (K,), added or assigned at these places of the axis."""
    if index.shape[0] == 0:
        return x
    if how in ("add", "subtract"):
        return _core.append("scatter_add", [x, _core.to_tracer(index), -values if how == "subtract" else values], {"axis": axis})
    if isinstance(index, numpy.ndarray):
        is_once = len(numpy.unique(index)) == len(index)
        if how == "set" or is_once:
            if how != "set":
                values = _COMBINED[how](_core.gather(x, _core.to_tracer(index), axis), values)
            # Which value each place gets is known: the last one.
            which = numpy.full(x.shape[axis], -1, numpy.int32)
            which[index] = numpy.arange(len(index), dtype=numpy.int32)
            taken = _core.gather(values, _core.to_tracer(numpy.maximum(which, 0)), axis)
            is_hit = _core.append("broadcast", [_core.to_tracer(which >= 0)], {"shape": list(x.shape), "axes": [axis]})
            return _core.append("select", [is_hit, taken, x], {})
    from hotloop._control import scan

    # One after the other, each in place.
    zero = _core.to_tracer(numpy.int32(0))
    parts = _core.append("transpose", [values], {"permutation": [axis, *(a for a in range(x.ndim) if a != axis)]})
    sizes = [1 if a == axis else n for a, n in enumerate(x.shape)]

    def write(table, at):
        place, part = at
        starts = [_core.cast(place, "int32") if a == axis else zero for a in range(x.ndim)]
        part = _core.reshape(part, sizes)
        if how != "set":
            part = _COMBINED[how](_core.dynamic_slice(table, starts, sizes), part)
        return _core.dynamic_update(table, part, starts), None

    return scan(write, x, (index, parts))[0]
