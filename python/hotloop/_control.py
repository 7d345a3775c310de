"""Loops and branches that stay in the program. Carries are trees."""

import numpy

from hotloop import _core
from hotloop._names import kind_of
from hotloop._op import function, integer


def run_traced(name, fn, *args, **kwargs):
    """fn(*args, **kwargs) in the trace in progress; outside of one it is traced and run now, each time it is called."""
    if _core.is_tracing():
        return fn(*args, **kwargs)
    return _core.run_once(fn, name, *args, **kwargs)


def scan(body, init, xs=None, length=None, *, reverse=False):
    """carry, y_t = body(carry, xs[t]) for each t: (the last carry, the ys stacked along a new first axis).

    body is traced once, whatever the length, and the whole loop is part of the program. init: the first carry, a tree; body must
    give the same structure, shapes and dtypes. xs: a tree of arrays that are scanned along axis 0, or None with a `length`.
    reverse: from the last to the first. Differentiable in both modes; as jax.lax.scan.
    """
    if length is not None:
        length = integer("scan", "the length", length)
        if length < 0:
            raise _core.UserError(f"[scan] the length must not be negative. Received: {length}.")
    return run_traced("scan", _scan, body, init, xs, length, reverse)


def _scan(body, init, xs, length, reverse):
    function("scan", "the body", body)
    init_leaves, carry_structure = _core.tree_flatten(init)
    xs_leaves, xs_structure = _core.tree_flatten(xs)
    found = {}

    def flat_body(carry, x):
        result = body(carry_structure.unflatten(carry), xs_structure.unflatten(x))
        if not isinstance(result, tuple) or len(result) != 2:
            raise _core.UserError(f"[scan] the body must return (carry, y). Received: {kind_of(result)}. Try: return carry, None.")
        ys, found["ys"] = _core.tree_flatten(result[1])
        return carry_structure.flatten_like(result[0], "scan"), ys

    carry, ys = _core.scan(flat_body, init_leaves, xs_leaves, -1 if length is None else length, reverse)
    return carry_structure.unflatten(carry), found["ys"].unflatten(ys)


def while_loop(cond, body, init, max_steps=None):
    """carry = body(carry) as long as cond(carry), at most max_steps times; returns the carry.

    cond gives a bool scalar, and is tested before each step. A loop that reaches max_steps ends there, without an error: whether cond would
    still hold is for the caller to see in the carry. With `max_steps` it can be differentiated in both modes (as the steps that were
    taken), and memory for that many steps may be needed in reverse mode; without, in forward mode alone. Under vmap each lane stops by itself.
    """
    max_steps = _UNBOUNDED if max_steps is None else integer("while_loop", "max_steps", max_steps)
    return run_traced("while_loop", _while_loop, cond, body, init, max_steps)


_UNBOUNDED = 2**31 - 1


def _while_loop(cond, body, init, max_steps):
    function("while_loop", "the condition", cond)
    function("while_loop", "the body", body)
    leaves, structure = _core.tree_flatten(init)
    return structure.unflatten(
        _core.while_loop(
            lambda carry: [_scalar_bool("while_loop", cond(structure.unflatten(carry)))],
            lambda carry: structure.flatten_like(body(structure.unflatten(carry)), "while_loop"),
            leaves,
            max_steps,
        )
    )


def _scalar_bool(where, value):
    value = _core.to_tracer(value, where)
    if value.shape != () or value.dtype != numpy.bool_:
        raise _core.UserError(f"[{where}] the condition must be a bool scalar. Received: {value._type}. Try: hl.any or hl.all of it.")
    return value


def cond(predicate, true_fn, false_fn, *operands):
    """true_fn(*operands) if the predicate (a bool scalar) holds, else false_fn(*operands). Only the chosen one runs.

    Both are traced, and must give the same structure, shapes and dtypes. Under vmap both run, and where() chooses.
    """
    return run_traced("cond", _cond, predicate, true_fn, false_fn, *operands)


def _cond(predicate, true_fn, false_fn, *operands):
    function("cond", "true_fn", true_fn)
    function("cond", "false_fn", false_fn)
    leaves, structure = _core.tree_flatten(operands)
    found = {}

    def first(values):
        out, found["out"] = _core.tree_flatten(true_fn(*structure.unflatten(values)))
        return out

    def second(values):
        return found["out"].flatten_like(false_fn(*structure.unflatten(values)), "cond")

    return_values = _core.cond(_scalar_bool("cond", predicate), first, second, leaves)
    return found["out"].unflatten(return_values)
