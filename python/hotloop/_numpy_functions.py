"""NumPy's functions of arrays on arrays of ours, by the protocol of NEP 18; elementwise ones are in _ufuncs.

On an Array they are NumPy's, and give NumPy arrays. On what is traced they are Hotloop's of the same meaning, or a UserError.
"""

from hotloop import _core
from hotloop._names import FUNCTIONS

# Those whose arguments mean the same here.
_SAME = {
    "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "argsort", "array_equal", "array_split", "bincount", "broadcast_to", "clip", "concatenate", "convolve", "corrcoef", "correlate",
    "count_nonzero", "cov", "cumprod", "cumsum", "diff", "einsum",
    "expand_dims", "flip", "full_like", "interp", "isclose", "isin", "kron", "linspace", "max", "mean", "median", "min", "moveaxis", "nan_to_num", "nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar", "ones_like", "outer", "prod", "quantile", "ravel", "repeat", "reshape", "roll", "round", "searchsorted",
    "sort", "squeeze", "stack", "std", "sum", "take", "take_along_axis", "tensordot", "tile", "transpose", "trapezoid", "tril", "triu", "var", "where", "zeros_like",
}  # fmt: skip


def _numbers(value):
    if isinstance(value, _core.Array):
        return value._numpy()
    if type(value) in (list, tuple):
        return type(value)(_numbers(v) for v in value)
    return value


def array_function(self, function, types, args, kwargs):
    """`__array_function__` of Array and Tracer."""
    import hotloop

    if not any(issubclass(t, _core.Tracer) for t in types):
        return function(*_numbers(args), **{k: _numbers(v) for k, v in kwargs.items()})
    name = function.__name__
    if name in ("ndim", "shape", "size") and len(args) == 1 and not kwargs:  # known while a function is traced
        return getattr(args[0], name)
    ours = getattr(hotloop, FUNCTIONS.get(name, name), None)
    if name in _SAME and ours is not None:
        return ours(*args, **kwargs)
    known = f"hl.{FUNCTIONS.get(name, name)}" if callable(ours) else "the functions of hl, or a static argument"
    raise _core.UserError(
        f"[trace] {function.__module__}.{name} needs numbers, and while a function is traced there are none yet. Received: what is traced. Try: {known}."
    )
