"""Operators and methods of arrays, alike for Array and Tracer."""

import inspect
import weakref

import numpy

from hotloop import (
    _core,
    _dtypes,
    _elementwise,
    _indexing,
    _linear,
    _manipulation,
    _names,
    _numpy_functions,
    _reductions,
    _ufuncs,
)

_E, _M, _R = _elementwise, _manipulation, _reductions
_OPERATORS = {
    "add": _E.add,
    "sub": _E.subtract,
    "mul": _E.multiply,
    "truediv": _E.divide,
    "floordiv": _E.floor_divide,
    "mod": _E.remainder,
    "divmod": _E.divmod,
    "pow": _E.pow,
    "matmul": _linear.matmul,
    "and": _E.bitwise_and,
    "or": _E.bitwise_or,
    "xor": _E.bitwise_xor,
    "lshift": _E.bitwise_left_shift,
    "rshift": _E.bitwise_right_shift,
}
_COMPARISONS = {"eq": _E.equal, "ne": _E.not_equal, "lt": _E.less, "le": _E.less_equal, "gt": _E.greater, "ge": _E.greater_equal}


def _operand(x):
    return _core.is_tracer(x) or _core.is_array_like(x) or isinstance(x, list)


def _operator(fn, name):
    def method(self, other):
        return fn(self, other) if _operand(other) else NotImplemented

    method.__name__ = name
    return method


def _reflected(fn, name):
    def method(self, other):
        return fn(other, self) if _operand(other) else NotImplemented

    method.__name__ = name
    return method


def _round(self, decimals=None):
    return _E.round(self, 0 if decimals is None else decimals)


def _pow(self, exponent):
    # Small whole exponents are products: exact, and differentiable at 0 to any order.
    if type(exponent) is int and 1 <= exponent <= 3:
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result
    return _E.pow(self, exponent)


def _reshape(self, *shape):
    return _M.reshape(self, shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)


def _transpose(self, *axes):
    axes = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return _M.transpose(self, axes or None)


def _length(self):
    if not self.shape:
        raise TypeError("[len] a scalar has no length")
    return self.shape[0]


def _rows(self):
    if not self.shape:
        raise TypeError("[iter] a scalar cannot be iterated over")
    return (self[i] for i in range(self.shape[0]))


def _method(fn):
    known = list(inspect.signature(fn).parameters)[1:]

    def method(self, axis=None, keepdims=False, **others):
        for name in others:
            if name not in known:
                error = f"unexpected keyword argument {name!r}"
                raise TypeError(f"{fn.__name__}({', '.join(f'{k}=' for k in known)}): {error}{_names.try_setting(error, known)}")
        return fn(self, axis=axis, keepdims=keepdims, **others)

    method.__name__, method.__doc__ = fn.__name__, fn.__doc__
    return method


def _wanted(fn):
    """The names of the arguments without a default, which are given by place."""
    parameters = inspect.signature(fn).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _absent(self, name):
    import hotloop

    function = _names.FUNCTIONS.get(name, name)
    found, meant = vars(hotloop).get(function), _names.METHODS
    if callable(found):
        meant = {name: f"hl.{function}({', '.join(['x', *_wanted(found)[1:]])})", **meant}
    raise _names.absent_attribute(f"{type(self).__name__!r} object", name, meant, dir(type(self)))


def _common(cls):
    cls.__getattr__ = _absent
    for name, fn in _OPERATORS.items():
        setattr(cls, f"__{name}__", _operator(fn, f"__{name}__"))
        setattr(cls, f"__r{name}__", _reflected(fn, f"__r{name}__"))
    for name, fn in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _operator(fn, f"__{name}__"))
    cls.__pow__ = _pow
    cls.__hash__ = object.__hash__
    cls.__neg__ = lambda self: _E.negative(self)
    cls.__pos__ = lambda self: self
    cls.__abs__ = lambda self: _E.abs(self)
    cls.__round__ = _round
    cls.__invert__ = lambda self: _E.bitwise_invert(self)
    cls.__len__ = _length
    cls.__iter__ = _rows
    cls.__array_priority__ = 1000
    cls.__array_ufunc__ = _ufuncs.array_ufunc
    cls.__array_function__ = _numpy_functions.array_function
    cls.__setitem__ = _no_assignment
    cls.T = property(lambda self: _M.transpose(self), doc="Axes in reverse order.")
    cls.mT = property(lambda self: _M.matrix_transpose(self), doc="The last two axes exchanged.")
    cls.at = property(_indexing.At, doc=_indexing.At.__doc__)
    cls.reshape, cls.transpose = _reshape, _transpose
    for fn in (_R.sum, _R.prod, _R.max, _R.min, _R.mean, _R.var, _R.std, _R.any, _R.all, _R.argmax, _R.argmin):
        setattr(cls, fn.__name__, _method(fn))
    for fn in (_M.ravel, _M.squeeze):
        setattr(cls, fn.__name__, (lambda f: lambda self: f(self))(fn))
    cls.flatten = cls.ravel
    for fn in (_E.clip, _E.round, _M.take, _M.repeat):
        setattr(cls, fn.__name__, (lambda f: lambda self, *args, **kwargs: f(self, *args, **kwargs))(fn))
    cls.astype = lambda self, dtype: _dtypes.astype(self, dtype)


def _no_value(what, instead):
    def method(self, *_, **__):
        raise _core.UserError(
            f"[trace] {what} needs numbers, and while a function is traced there are none yet. Received: a traced {self._type}. "
            f"Try: {instead}."
        )

    return method


def _no_assignment(self, key, value):
    raise _core.UserError(
        "[array] arrays do not change. Received: x[key] = value. Try: x = x.at[key].set(value), hl.where(mask, value, x), or numpy.array(x) outside of "
        "a compiled function."
    )


def _format(self, spec):
    if not spec:
        return repr(self)
    raise _core.UserError(
        f"[trace] a format such as {spec!r} needs numbers, and while a function is traced there are none yet. Received: a traced {self._type}. "
        "Try: return the value, and print it where the function is called."
    )


def _array_format(self, spec):
    if not spec:
        return repr(self)
    if self.ndim > 0:
        raise _core.UserError(
            f"[array] a format such as {spec!r} is for one number. Received: {self.dtype}, of shape {self.shape}. "
            "Try: numpy.array2string(x, precision=3), or a format for each of x.tolist()."
        )
    return format(self.item(), spec)


def _tracer_repr(self):
    return f"Tracer({self._type})"


def _array_getitem(self, key):
    if _core.is_tracing():
        return _indexing.getitem(self, key)
    parts = key if isinstance(key, tuple) else (key,)
    for k in parts:
        if isinstance(k, bool):
            raise _core.UserError(f"[index] a single bool is no index. Received: {k}. Try: x[None] for a new axis.")
    try:
        found = self._numpy()[tuple(numpy.asarray(k) if isinstance(k, _core.Array) else k for k in parts)]
    except IndexError as error:
        raise _core.UserError(f"[index] the key must fit the array. Received: {error}, for shape {self.shape}.") from None
    return _core.asarray(found)


def _array_interface(self):
    # Who reads it keeps the array and not a view, so the array keeps the view: it can no longer be donated.
    view = self._numpy()
    weakref.finalize(self, lambda kept: None, view).atexit = False
    return view.__array_interface__


def _array_repr(self):
    if self.is_donated:
        return f"Array(donated, shape={self.shape}, dtype={self.dtype})"
    text = numpy.array2string(self._numpy(), separator=", ", prefix="Array(")
    return f"Array({text}, dtype={self.dtype})"


def _unpickled(numbers):
    """An Array of its own memory, which may be donated."""
    return _core.copy(_core.asarray(numbers))


def attach():
    """Gives both classes their operators and methods."""
    for cls in (_core.Array, _core.Tracer):
        _common(cls)
    array, tracer = _core.Array, _core.Tracer
    array.__module__ = tracer.__module__ = "hotloop"
    array.__getitem__, array.__repr__ = _array_getitem, _array_repr
    array.__format__ = _array_format
    array.__bool__ = lambda self: bool(self._numpy())
    array.__int__ = lambda self: int(self._numpy())
    array.__index__ = lambda self: self._numpy().__index__()
    array.__complex__ = lambda self: complex(self._numpy())
    array.__array_interface__ = property(_array_interface)
    array.__reduce__ = lambda self: (_unpickled, (numpy.array(self._numpy()),))
    # Copies, though nobody can write to an array: a call may take its memory.
    array.__copy__ = lambda self: _core.copy(self)
    array.__deepcopy__ = lambda self, memo: _core.copy(self)
    array.item = lambda self: self._numpy().item()
    array.tolist = lambda self: self._numpy().tolist()
    array.numpy = lambda self: self._numpy()
    array.__array_namespace__ = lambda self, api_version=None: __import__("hotloop")
    tracer.__getitem__, tracer.__repr__ = _indexing.getitem, _tracer_repr
    tracer.__format__ = _format
    tracer.__bool__ = _no_value("if, while, and, or, not", "hl.where(condition, a, b), hl.cond, hl.while_loop, or & | ~")
    for name in ("__int__", "__index__", "__float__", "__complex__", "item", "tolist", "numpy", "__array__"):
        setattr(tracer, name, _no_value("a conversion to a Python or NumPy number", "an hl function (hl.stack in place of np.array), or a static argument"))
