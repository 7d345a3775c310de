"""Functions that make arrays. The default dtypes are float32 and int32."""

import math

import numpy

from hotloop import _core
from hotloop._dtypes import dtype_of, float32, int32, int64
from hotloop._elementwise import filled, where
from hotloop._manipulation import diagonal_of, moveaxis, pad
from hotloop._names import kind_of
from hotloop._op import checked_axis, checked_extent, extents, integer, number, op

__all__ = ["asarray", "from_dlpack", "zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like", "arange", "linspace", "eye", "diag", "tril", "triu", "meshgrid", "one_hot"]


def asarray(x, dtype=None, *, copy=None):
    """x as an array: numbers, lists of numbers, NumPy arrays, and whatever has `__dlpack__`, the buffer protocol or `__array__`.

    Memory is shared where the layout allows (contiguous, aligned, native byte order) unless `copy` is true. Python floats become
    float32 and integers int32 (int64 where they do not fit). UserError for what holds no numbers of at most 64 bits, and with copy=False for what
    cannot be shared.
    """
    if _core.is_tracing() and not isinstance(x, (numpy.ndarray, _core.Array)):
        traced = _core.to_tracer(x)
        return traced if dtype is None else _core.cast(traced, dtype)
    if copy is False:
        return _shared(x, dtype)
    array = _core.asarray(x)
    if dtype is not None and _core.dtype(dtype) != array.dtype:
        # Integers of a list may need all their 64 bits.
        return _core.cast(_core.asarray(numpy.asarray(x)) if isinstance(x, (list, tuple)) else array, dtype)
    return _core.copy(array) if copy else array


def _shared(x, dtype):
    """x as an array without a copy."""
    if isinstance(x, _core.Array):
        array = x
    else:
        try:
            # Whatever holds no array, as a list, NumPy refuses.
            array = _core.asarray(x if hasattr(x, "__dlpack__") else numpy.asarray(x, copy=False))
        except ValueError as error:
            if isinstance(error, _core.UserError):
                raise
            array = None
    is_of_another = array is not None and dtype is not None and _core.dtype(dtype) != array.dtype
    if array is None or is_of_another or (array is not x and _core.is_own(array)):
        what = f"an array of {array.dtype}, for {_core.dtype(dtype)}" if is_of_another else kind_of(x)
        raise _core.UserError(f"[asarray] with copy=False an array must lie in memory as it is wanted: contiguous, aligned, in its dtype. Received: {what}. Try: copy=None.")
    return array


def from_dlpack(x, /, *, device=None, copy=None):
    """The array of anything that has `__dlpack__` and lies in the CPU's memory, without a copy unless `copy` is true."""
    if not hasattr(x, "__dlpack__"):
        raise _core.UserError(f"[from_dlpack] the argument must have __dlpack__. Received: {kind_of(x)}. Try: hl.asarray(x).")
    if device not in (None, "cpu"):
        raise _core.UserError(f"[from_dlpack] the device must be None or 'cpu'. Received: {device!r}.")
    return asarray(x, copy=copy)


def full(shape, fill_value, dtype=None):
    """An array of one value; the dtype is the value's if not given."""
    return _full("full", shape, fill_value, dtype)


def _full(where, shape, fill_value, dtype):
    shape = extents(where, shape)
    if math.prod(n for n in shape if n) > 2**59:
        raise _core.UserError(f"[{where}] an array must have at most 2^59 elements. Received: {shape}.")
    if _core.is_tracer(fill_value):
        return _core.broadcast_to(fill_value if dtype is None else _core.cast(fill_value, dtype), shape)
    if dtype is None:
        dtype = _core.asarray(fill_value).dtype
    if _core.is_tracing():
        return _core.broadcast_to(_core.fitted(where, fill_value, dtype), shape)
    if type(fill_value) in (bool, int, float):
        fill_value = _core.number_in(where, fill_value, dtype)
    else:
        _core.asarray(fill_value, where)  # refused in the function's name
        fill_value = asarray(fill_value, dtype)
    try:
        return _core.copy(_core.asarray(numpy.full(shape, fill_value)))
    except ValueError:
        raise _core.UserError(f"[{where}] the value must broadcast to the shape. Received: {fill_value.shape} for {shape}.") from None


def zeros(shape, dtype=float32):
    """Zeros."""
    return _full("zeros", shape, 0, dtype)


def ones(shape, dtype=float32):
    """Ones."""
    return _full("ones", shape, 1, dtype)


def empty(shape, dtype=float32):
    """Zeros: here no memory is left uninitialised."""
    return _full("empty", shape, 0, dtype)


def full_like(x, /, fill_value, dtype=None):
    """`fill_value` in the shape and dtype of x."""
    return _like("full_like", x, fill_value, dtype)


def _like(where, x, fill_value, dtype):
    x = x if hasattr(x, "shape") and hasattr(x, "dtype") else asarray(x)
    return _full(where, tuple(x.shape), fill_value, dtype_of(where, x) if dtype is None else dtype)


def zeros_like(x, /, dtype=None):
    """Zeros in the shape and dtype of x."""
    return _like("zeros_like", x, 0, dtype)


def ones_like(x, /, dtype=None):
    """Ones in the shape and dtype of x."""
    return _like("ones_like", x, 1, dtype)


def empty_like(x, /, dtype=None):
    """Zeros in the shape and dtype of x."""
    return _like("empty_like", x, 0, dtype)


def _from_numpy(values, dtype):
    """Values that are known while tracing, as an array or a constant."""
    array = _core.copy(_core.asarray(numpy.ascontiguousarray(values, dtype=None if dtype is None else _core.dtype(dtype))))
    return _core.to_tracer(array) if _core.is_tracing() else array


def arange(start, /, stop=None, step=1, dtype=None):
    """start, start + step, ... up to and without stop. int32 if all are integers (int64 where they do not fit), else float32. All must
    be known numbers."""
    for name, given in (("start", start), ("stop", stop), ("step", step)):
        if name != "stop" or given is not None:
            number("arange", name, given)
    if step == 0:
        raise _core.UserError("[arange] the step must not be 0. Received: 0. Try: hl.full(n, start).")
    values = numpy.arange(start, step=step) if stop is None else numpy.arange(start, stop, step)
    ends = values[[0, -1]].tolist() if values.size else [0, 0]
    if dtype is None:
        dtype = float32 if values.dtype.kind == "f" else int32 if _fits(ends, int32) else int64
    if not _fits(ends, _core.dtype(dtype)):
        raise _core.UserError(f"[arange] the dtype must hold all numbers. Received: {ends[0]} to {ends[1]} in {_core.dtype(dtype)}. Try: hl.int64.")
    return _from_numpy(values, dtype)


def _fits(numbers, dtype):
    return dtype.kind not in "iu" or all(numpy.iinfo(dtype).min <= n <= numpy.iinfo(dtype).max for n in numbers)


def linspace(start, stop, /, num, dtype=None, *, endpoint=True, axis=0):
    """`num` numbers from start to stop, evenly spaced; the last one is stop, or with endpoint=False one step before it.

    Of numbers float32; of ends that are arrays, traced or not, their floating dtype, with the derivatives of start + i step. Ends with axes, which broadcast,
    give (num, ...); `axis`: where the axis of num stands among those.
    """
    num = checked_extent("linspace", "num", num)
    if any(isinstance(end, (_core.Tracer, _core.Array, numpy.ndarray)) for end in (start, stop)):
        values = _spaced(start, stop, num, dtype, bool(endpoint))
        return moveaxis(values, 0, axis) if axis != 0 else values
    checked_axis("linspace", axis, 1)
    return _from_numpy(numpy.linspace(start, stop, num, endpoint=endpoint), float32 if dtype is None else dtype)


@op(2)
def _spaced(start, stop, num, dtype, endpoint, /):
    if dtype is not None and _core.dtype(dtype) != float32:
        start, stop = _core.cast(start, "float64"), _core.cast(stop, "float64")
    start, stop = _core.broadcast_arrays("linspace", _core.promote("linspace", [start, stop], True))
    place = numpy.arange(num).reshape(num, *[1] * start.ndim)
    values = start + place.astype(start.dtype) * ((stop - start) / max(num - 1 if endpoint else num, 1))
    if endpoint and num > 1:
        values = where(place == num - 1, stop, values)
    if dtype is None:
        return values
    return _core.cast(_core.unary("floor", values) if _core.dtype(dtype).kind in "iu" else values, dtype)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=float32):
    """Ones on the k-th diagonal."""
    rows, columns = extents("eye", (n_rows, n_rows if n_cols is None else n_cols))
    return _from_numpy(numpy.eye(rows, columns, integer("eye", "k", k)), dtype)


def diag(x, /, *, k=0):
    """The matrix with the vector x on its k-th diagonal and zeros elsewhere; of a matrix its k-th diagonal. As numpy.diag."""
    x, k = x if isinstance(x, _core.Tracer) else _core.asarray(x, "diag"), integer("diag", "k", k)
    if x.ndim == 2:
        return diagonal_of(x, k)
    if x.ndim != 1:
        raise _core.UserError(f"[diag] the argument must be a vector or a matrix. Received: {x.ndim} axes. Try: hl.vmap of it, or hl.linalg.diagonal.")
    rows = pad(x, (max(-k, 0), max(k, 0)))
    return filled(numpy.eye(rows.shape[0], k=k, dtype=bool), rows[:, None], 0)


def _matrices(name, x):
    x = x if isinstance(x, _core.Tracer) else asarray(x)
    if x.ndim < 2:
        raise _core.UserError(f"[{name}] the array must have two axes or more. Received: {tuple(x.shape)}. Try: hl.{name}(hl.broadcast_to(x, (len(x), len(x)))), as NumPy does of a vector.")
    return x


def tril(x, /, k=0):
    """x with zeros above the k-th diagonal of its last two axes."""
    x = _matrices("tril", x)
    return filled(numpy.tri(*x.shape[-2:], integer("tril", "k", k), dtype=bool), x, 0)


def triu(x, /, k=0):
    """x with zeros below the k-th diagonal of its last two axes."""
    x = _matrices("triu", x)
    return filled(~numpy.tri(*x.shape[-2:], integer("triu", "k", k) - 1, dtype=bool), x, 0)


def meshgrid(*arrays, indexing="xy"):
    """Coordinate matrices from 1-d arrays, as numpy.meshgrid gives them."""
    from hotloop._manipulation import broadcast_arrays, reshape

    n = len(arrays)
    order = list(range(n))
    if indexing == "xy" and n > 1:
        order[0], order[1] = 1, 0
    elif indexing not in ("xy", "ij"):
        raise _core.UserError(f"[meshgrid] indexing must be 'xy' or 'ij'. Received: {indexing!r}.")
    placed = [reshape(a, tuple(-1 if axis == order[i] else 1 for axis in range(n))) for i, a in enumerate(arrays)]
    return list(broadcast_arrays(*placed))


def one_hot(indices, /, num_classes, dtype=float32):
    """(...) integers -> (..., num_classes): 1 at the index, 0 elsewhere; all 0 for an index out of range."""
    from hotloop._dtypes import astype
    from hotloop._elementwise import equal
    from hotloop._manipulation import expand_dims

    classes = numpy.arange(checked_extent("one_hot", "num_classes", num_classes), dtype="int32")
    return astype(equal(expand_dims(asarray(indices), axis=-1), classes), dtype)
