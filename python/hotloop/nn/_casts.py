"""An input in the dtype of the parameters it meets."""

import functools
import warnings

from hotloop import _core
from hotloop._names import callers_level


@functools.cache
def _tell_cast(given, wanted):
    warnings.warn(f"a model's {given} input is cast to its parameters' {wanted}; init(dtype=...) gives others", stacklevel=callers_level())


def in_params_dtype(params, x):
    if x.dtype.kind != "f":
        return x
    for leaf in _core.tree_flatten(params)[0]:
        dtype = getattr(leaf, "dtype", None)
        if dtype is not None and getattr(dtype, "kind", "") == "f":
            if dtype != x.dtype:
                _tell_cast(x.dtype.name, dtype.name)
                return _core.cast(x, dtype)
            return x
    return x
