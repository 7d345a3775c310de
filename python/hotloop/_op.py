"""How a function of arrays becomes one that works in a trace and outside of one."""

import functools
import inspect
import operator
from collections.abc import Iterable

from hotloop import _core, _names

_OPTIONS = _core.options(threads=1)


def op(num_arrays=1, keywords=()):
    """Declares that the first `num_arrays` positional arguments, and those that `keywords` names, are arrays (or trees of them); all others are static.

    Inside a trace the function runs as it is, and appends to the program. Outside it is compiled for the shapes and dtypes it
    is called with, once each, and run.
    """

    def declare(fn):
        call = with_signature(fn)
        names = [p.name for p in inspect.signature(fn).parameters.values() if p.kind is not p.KEYWORD_ONLY] if keywords else []
        arrays = {*range(num_arrays), *(names.index(k) for k in keywords if k in names)}
        first_static = max(arrays, default=-1) + 1
        static = [i for i in range(first_static) if i not in arrays]
        compiled = _core.jit(call, fn.__name__, static, list(keywords), first_static, _OPTIONS)
        return functools.update_wrapper(compiled, fn)

    return declare


def with_signature(fn):
    """fn, whose TypeErrors for arguments that do not fit it say more."""

    @functools.wraps(fn)
    def call(*args, **kwargs):
        try:
            return fn(*args, **kwargs)
        except TypeError:
            _check_call(fn, args, kwargs)
            raise

    return call


def _check_call(fn, args, kwargs):
    """A TypeError that shows the signature, and what another library's name of an argument is here, if the arguments do not fit it."""
    signature = inspect.signature(fn)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{fn.__name__}{signature}: {error}{_names.try_setting(error, list(signature.parameters))}") from None


def exporter(names):
    """op() for a module whose public functions are listed in `names`, its __all__, and shown as hotloop's own."""

    def export(num_arrays, keywords=()):
        declare = op(num_arrays, keywords)

        def exported(fn):
            fn.__module__ = "hotloop"
            names.append(fn.__name__)
            return declare(fn)

        return exported

    return export


def integer(where, name, value):
    """`value` as an int; UserError for what is none, such as 1.5."""
    try:
        return operator.index(value)
    except TypeError:
        raise _core.UserError(f"[{where}] {name} must be an integer. Received: {value!r}.") from None


def is_several(values):
    """Whether these are values in a list, a tuple or an array, and not one."""
    return isinstance(values, Iterable) and not isinstance(values, (str, dict)) and getattr(values, "ndim", 1) > 0


def integers(where, name, values):
    """Several integers, or one, as a list."""
    return [integer(where, name, v) for v in (values if is_several(values) else [values])]


def pair(where, name, values):
    """The two of `values`."""
    two = list(values) if is_several(values) else []
    if len(two) != 2:
        raise _core.UserError(f"[{where}] {name} must be a pair. Received: {values!r}.")
    return two


def number(where, name, value):
    """`value`, which must be a number that is known."""
    try:
        if isinstance(value, str):
            raise TypeError
        float(value)
    except (TypeError, ValueError) as error:
        if isinstance(error, _core.UserError):  # of a traced one
            raise
        raise _core.UserError(f"[{where}] {name} must be a number. Received: {_names.kind_of(value)}.") from None
    except OverflowError:  # an integer
        pass
    return value


def shaped(where, x):
    """x, which has a shape: lists and numbers as arrays."""
    if hasattr(x, "shape"):
        return x
    return _core.to_tracer(x, where) if _core.is_tracing() else _core.asarray(x, where)


def checked_extent(where, name, value):
    """`value` as an integer that is not negative."""
    value = integer(where, name, value)
    if value < 0:
        raise _core.UserError(f"[{where}] {name} must not be negative. Received: {value}.")
    return value


def extents(where, shape):
    """A shape, or its only extent, as a tuple of integers that are not negative."""
    shape = tuple(integer(where, "an extent", n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    if any(n < 0 for n in shape):
        raise _core.UserError(f"[{where}] extents must not be negative. Received: {shape}.")
    return shape


def function(where, name, value):
    """`value`, which must be callable."""
    if not callable(value):
        raise _core.UserError(f"[{where}] {name} must be a function. Received: {_names.kind_of(value)}. Try: lambda x: ...")
    return value


def checked_axis(where, axis, ndim):
    """`axis` counted from 0."""
    axis = integer(where, "the axis", axis)
    if not -ndim <= axis < ndim:
        raise _core.UserError(
            f"[{where}] the axis must be one of the array's {ndim} axes. Received: {axis}. "
            f"Try: an axis from {-ndim} to {ndim - 1}."
            if ndim
            else f"[{where}] a scalar has no axes. Received: axis {axis}."
        )
    return axis % ndim


def checked_axes(where, axis, ndim):
    """`axis` (None: all, an integer, or several) as a sorted list counted from 0."""
    if axis is None:
        return list(range(ndim))
    axes = [axis] if not isinstance(axis, (tuple, list)) else list(axis)
    axes = sorted(checked_axis(where, a, ndim) for a in axes)
    if len(set(axes)) != len(axes):
        raise _core.UserError(f"[{where}] an axis may be named once. Received: {axis}.")
    return axes
