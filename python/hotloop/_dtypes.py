"""Dtypes are NumPy's: hotloop.float32 is numpy.dtype("float32").

Promotion, in one table. Arrays of two dtypes meet in the larger one of

    bool < int32, uint32 < int64 < float32 < float64        (int32 with uint32: int64)

A Python number has no dtype of its own: it takes that of the array it meets, raised to float32 for a float that meets
integers or bools, and to int32 for an integer that meets bools. Alone, a float is float32 and an integer int32 (int64 where it does
not fit). An integer that does not fit the integers it meets is refused. NumPy scalars count as arrays. Other NumPy dtypes are converted on the way in: int8, int16, uint8, uint16 to int32, float16 to float32,
uint64 to int64 where its values fit; complex, object, string and time dtypes are refused.
"""

import builtins
import functools

import numpy

from hotloop import _core
from hotloop._op import op

bool = numpy.dtype("bool")
int32 = numpy.dtype("int32")
uint32 = numpy.dtype("uint32")
int64 = numpy.dtype("int64")
float32 = numpy.dtype("float32")
float64 = numpy.dtype("float64")

__all__ = ["bool", "int32", "uint32", "int64", "float32", "float64", "result_type", "can_cast", "isdtype", "astype", "finfo", "iinfo"]

finfo = numpy.finfo
iinfo = numpy.iinfo


def result_type(*arrays_and_dtypes):
    """The dtype in which these meet; Python numbers follow the others.

    hotloop.result_type(hotloop.int32, hotloop.float32) is float32.
    """
    dtypes = [dtype_of("result_type", d) if hasattr(d, "dtype") else _core.dtype(d) for d in arrays_and_dtypes if not _is_number(d)]
    numbers = [d for d in arrays_and_dtypes if _is_number(d)]
    if not arrays_and_dtypes:
        raise _core.UserError("[result_type] there must be at least one array or dtype. Received: none.")
    kinds = [float32 if isinstance(n, float) else bool if isinstance(n, builtins.bool) else int32 if -(2**31) <= n < 2**31 else int64 for n in numbers]
    weak = functools.reduce(_core.promote_types, kinds) if kinds else None
    result = functools.reduce(_core.promote_types, dtypes) if dtypes else weak
    if weak is not None and ((weak.kind == "f" and result.kind != "f") or (weak.kind != "b" and result.kind == "b")):
        result = weak
    for number in numbers:
        _core.number_in("result_type", number, result)
    return result


def dtype_of(where, x):
    """The dtype of x as an array: of another one of NumPy's that to which it is converted on the way in."""
    if isinstance(x, (_core.Array, _core.Tracer)):
        return x.dtype
    dtype = getattr(x, "dtype", None)
    return _core.asarray(numpy.empty(0, dtype) if isinstance(dtype, numpy.dtype) else x, where).dtype


def can_cast(from_, to, /):
    """Whether promotion leads from one dtype (or an array's) to another: hotloop.can_cast(hotloop.int32, hotloop.float64) is True."""
    from_ = dtype_of("can_cast", from_) if hasattr(from_, "dtype") else _core.dtype(from_)
    return _core.promote_types(from_, _core.dtype(to)) == _core.dtype(to)


_KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f", "complex floating": "", "numeric": "iuf",
}  # fmt: skip


def isdtype(dtype, kind):
    """Whether the dtype is `kind`: a dtype, a name ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex
    floating", "numeric"), or a tuple of these, of which one must fit."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind not in _KINDS:
        raise _core.UserError(f"[isdtype] the kind must be a dtype or one of {', '.join(_KINDS)}. Received: {kind!r}.")
    return _core.dtype(dtype).kind in _KINDS[kind] if isinstance(kind, str) else _core.dtype(dtype) == _core.dtype(kind)


def _is_number(x):
    return type(x) in (builtins.bool, int, float)


@op(1)
def astype(x, dtype, /):
    """x in another dtype. Floats to integers: truncated, limited to the dtype's range, NaN gives 0.

    Derivatives pass between float dtypes; through an integer they are zero.
    """
    return _core.cast(x, dtype)
