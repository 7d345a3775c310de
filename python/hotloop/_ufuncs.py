"""NumPy's elementwise functions on arrays of ours: `np.cos(x)` is `hl.cos(x)`, traced or not.

The protocol is NEP 13. Arithmetic between a NumPy array and one of ours comes this way too, so `numpy_array * x` is `hl.multiply`.
"""


from hotloop import _core

# Names that NumPy has kept where the array API standard has another.
_RENAMED = {
    "absolute": "abs", "fabs": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "conjugate": "positive", "invert": "bitwise_invert", "left_shift": "bitwise_left_shift",
    "mod": "remainder", "power": "pow", "right_shift": "bitwise_right_shift", "rint": "round", "true_divide": "divide",
}  # fmt: skip


def _ours(ufunc):
    import hotloop

    name = _RENAMED.get(ufunc.__name__, ufunc.__name__)
    return getattr(hotloop, name, None), name


def array_ufunc(self, ufunc, method, *inputs, **options):
    """`__array_ufunc__` of Array and Tracer. UserError where NumPy would need numbers that a traced function does not have yet."""
    written = options.get("out") or ()
    traced = any(_core.is_tracer(x) for x in (*inputs, *written, *options.values()))
    function, name = _ours(ufunc)
    if method == "__call__" and not options and function is not None:
        return function(*inputs)
    if traced and written:
        raise _core.UserError(
            f"[trace] a NumPy array cannot be changed in place by what is traced. Received: numpy.{ufunc.__name__} into an array. "
            "Try: x = x + y in place of x += y."
        )
    if traced:
        said = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        known = f"hl.{name} without further arguments" if function else "the functions of hl, or a static argument"
        raise _core.UserError(
            f"[trace] numpy.{said} needs numbers, and while a function is traced there are none yet. "
            f"Received: a traced {next(x for x in inputs if _core.is_tracer(x))._type}. Try: {known}."
        )
    numbers = [x._numpy() if isinstance(x, _core.Array) else x for x in inputs]
    if any(isinstance(x, _core.Array) for x in written):
        raise _core.UserError(
            f"[array] arrays of hotloop are read-only. Received: one as out= of numpy.{ufunc.__name__}. Try: numpy.array(x) as out=."
        )
    return getattr(ufunc, method)(*numbers, **options)
