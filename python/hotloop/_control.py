"""Loops and branches that stay in the program. Carries are trees."""

import operator

import numpy

from hotloop import _core
from hotloop._names import checked_call, kind_of
from hotloop._op import checked_axis, function, integer


def run_traced(name, fn, *args, **kwargs):
    """fn(*args, **kwargs) in the trace in progress; outside of one it is traced and run now, each time it is called."""
    if _core.is_tracing():
        return fn(*args, **kwargs)
    return _core.run_once(fn, name, *args, **kwargs)


@checked_call("hl.scan(body, init, xs)")
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
        return _carried("scan", found["init"], carry_structure.flatten_like(result[0], "scan")), ys

    def run(leaves):
        found["init"] = leaves
        return _core.scan(flat_body, leaves, xs_leaves, -1 if length is None else length, reverse)

    carry, ys = _from_numbers("scan", run, init_leaves)
    return carry_structure.unflatten(carry), found["ys"].unflatten(ys)


class _OtherDtypesError(Exception):
    """Of a body that gives another dtype where the carry began with a number of Python: the dtypes, None where one stays."""


def _from_numbers(where, run, init):
    """run(init), whose numbers of Python take the dtypes that the body gives them, as they follow any array that they meet."""
    for _ in init:  # a number that follows may make another one follow
        try:
            return run(init)
        except _OtherDtypesError as found:
            init = [x if dtype is None else _core.promote(where, [x, _core.full(0, dtype, ())])[0] for x, dtype in zip(init, found.args[0])]
    return run(init)


def _followed(number, value):
    """The dtype of the traced `value` that a number of Python may take; None if it has it, or if it is no such number."""
    if not (number.weak if _core.is_tracer(number) else type(number) in (int, float)) or not _core.is_tracer(value):
        return None
    own = _core.to_tracer(number, "number").dtype
    fits = value.shape == () and value.dtype != own and (value.dtype.kind == "f" or (value.dtype.kind == own.kind == "i"))
    return value.dtype if fits else None


def _carried(where, init, leaves):
    """`leaves`, the next carry; UserError that says where float64 may come from if that is all it differs in. The engine finds what else does not fit."""
    dtypes = [_followed(a, b) for a, b in zip(init, leaves, strict=True)]
    if any(dtypes):
        raise _OtherDtypesError(dtypes)
    if not any(_is_wider(a, b) for a, b in zip(init, leaves, strict=True)):
        return leaves
    pairs = [(_core.to_tracer(a, where), _core.to_tracer(b, where)) for a, b in zip(init, leaves, strict=True)]
    if any(a.shape != b.shape or (a.dtype != b.dtype and not _is_wider(a, b)) for a, b in pairs):
        return leaves
    first, then = (", ".join(str(v._type) for v in side) for side in zip(*pairs, strict=True))
    raise _core.UserError(
        f"[{where}] the body must give a carry of the types of the initial one, {first}. Received: {then}. Try: float(np.log(2)) in place of np.log(2), "
        "since numbers and arrays of NumPy are float64 and make what they meet float64 too; or an initial value of dtype=hl.float64."
    )


def _is_wider(a, b):
    return getattr(a, "dtype", None) == numpy.float32 and getattr(b, "dtype", None) == numpy.float64


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

    def run(init):
        return _core.while_loop(
            lambda carry: [_scalar_bool("while_loop", cond(structure.unflatten(carry)))],
            lambda carry: _carried("while_loop", init, structure.flatten_like(body(structure.unflatten(carry)), "while_loop")),
            init,
            max_steps,
        )

    return structure.unflatten(_from_numbers("while_loop", run, leaves))


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


def switch(index, branches, *operands):
    """branches[index](*operands), index an integer scalar, limited to the branches there are. Only the chosen one runs; as jax.lax.switch.

    branches: a list of functions, of which all are traced; they must give the same structure, shapes and dtypes. An index that is known while tracing
    traces its own branch alone. Differentiable in both modes. Under vmap all run, and where() chooses.
    """
    branches = list(branches) if isinstance(branches, (list, tuple)) else branches
    if not isinstance(branches, list) or not branches:
        raise _core.UserError(f"[switch] the branches must be a list of functions. Received: {kind_of(branches) if branches != [] else 'an empty list'}.")
    for branch in branches:
        function("switch", "each branch", branch)
    if isinstance(index, (int, numpy.integer)) and not isinstance(index, bool):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    return run_traced("switch", _switch, index, branches, *operands)


def _switch(index, branches, *operands):
    index = _core.to_tracer(index, "switch")
    if index.shape != () or index.dtype.kind not in "iu":
        raise _core.UserError(f"[switch] the index must be an integer scalar. Received: {index._type}. Try: hl.vmap() for several, x.astype(hl.int32).")
    leaves, structure = _core.tree_flatten(operands)
    found = {}

    def run(branch, values):
        result = branch(*structure.unflatten(values))
        if "out" in found:
            return found["out"].flatten_like(result, "switch")
        out, found["out"] = _core.tree_flatten(result)
        return out

    # By halves, so that as many comparisons lead to a branch as its number has bits.
    def choose(first, last, values):
        if last - first == 1:
            return run(branches[first], values)
        middle = (first + last) // 2
        return _core.cond(index < middle, lambda v: choose(first, middle, v), lambda v: choose(middle, last, v), values)

    out = choose(0, len(branches), leaves)
    return found["out"].unflatten(out)


def fori_loop(lower, upper, body, init, *, max_steps=None):
    """carry = body(i, carry) for i in lower, ..., upper - 1; returns the carry, a tree. As jax.lax.fori_loop.

    Bounds that are known while tracing make a scan, which is differentiable in both modes. Bounds that are computed make a while_loop: with
    `max_steps`, a most number of steps after which the loop ends, it is differentiable in both modes too, without in forward mode alone. i: an int32 scalar.
    """
    function("fori_loop", "the body", body)
    bounds = [_known_integer(bound) for bound in (lower, upper)]
    if None not in bounds:
        first, last = bounds
        count = max(last - first, 0) if max_steps is None else min(max(last - first, 0), integer("fori_loop", "max_steps", max_steps))

        def counted(init):
            numbers = _core.binary("add", _core.iota("int32", (count,), 0), numpy.int32(first))
            return scan(lambda carry, k: (body(k, carry), None), init, numbers)[0]

        return run_traced("fori_loop", counted, init)

    def loop(lower, upper, init):
        bounds = [_core.to_tracer(bound, "fori_loop") for bound in (lower, upper)]
        for bound in bounds:
            if bound.shape != () or bound.dtype.kind not in "iu":
                raise _core.UserError(f"[fori_loop] the bounds must be integer scalars. Received: {bound._type}. Try: x.astype(hl.int32).")
        first, last = (_core.cast(bound, "int32") for bound in bounds)
        return while_loop(lambda c: c[0] < last, lambda c: (c[0] + 1, body(c[0], c[1])), (first, init), max_steps)[1]

    return run_traced("fori_loop", loop, lower, upper, init)


def _known_integer(value):
    """The integer that `value` is, None for what is traced or no integer."""
    try:
        return None if _core.is_tracer(value) else operator.index(value)
    except TypeError:
        return None


def associative_scan(fn, xs, axis=0, reverse=False):
    """The running results x[0], fn(x[0], x[1]), fn(fn(x[0], x[1]), x[2]), ... along `axis`, for an associative fn of two trees of arrays like xs, or parts
    of them along that axis; as jax.lax.associative_scan. reverse: from the end on.

    fn is called on whole slices, about 2 log2(n) times, and combines less than 2 n pairs in all (Blelloch, Prefix Sums and Their Applications, 1990). It is for
    functions that are written with it already: scan() combines n pairs one after another, all in registers, and was the faster one in all that was measured
    (docs/from_jax.md). Sums and products have cumulative_sum and cumulative_prod. Differentiable in both modes. Errors: UserError where extents along the axis differ, or fn gives
    another structure, shape or dtype.
    """
    function("associative_scan", "fn", fn)
    return run_traced("associative_scan", _associative_scan, fn, xs, axis, reverse)


def _associative_scan(fn, xs, axis, reverse):
    leaves, structure = _core.tree_flatten(xs)
    leaves = [_core.to_tracer(x, "associative_scan") for x in leaves]
    if not leaves:
        return xs
    axes = [checked_axis("associative_scan", axis, x.ndim) for x in leaves]
    lengths = {x.shape[a] for x, a in zip(leaves, axes)}
    if len(lengths) != 1:
        raise _core.UserError(f"[associative_scan] all arrays must have one extent along axis {axis}. Received: {', '.join(x._type for x in leaves)}.")

    def slices(xs, *bounds):
        return [_slice_of(x, a, *bounds) for x, a in zip(xs, axes)]

    def combine(first, second):
        result = structure.flatten_like(fn(structure.unflatten(first), structure.unflatten(second)), "associative_scan")
        result = [_core.to_tracer(r, "associative_scan") for r in result]
        if [(r.shape, r.dtype) for r in result] != [(x.shape, x.dtype) for x in first]:
            raise _core.UserError(
                "[associative_scan] fn must give what it takes, in shapes and dtypes. "
                f"Received: {', '.join(r._type for r in result)} of {', '.join(x._type for x in first)}."
            )
        return result

    def joined(pieces):
        return [_core.append("concat", list(of_leaf), {"axis": a}) for a, of_leaf in zip(axes, zip(*pieces))]

    def alternating(even, odd):
        """even[0], odd[0], even[1], ...: as many of both, or one more that are even."""
        result = []
        for a, x, y in zip(axes, even, odd):
            count = y.shape[a]
            pair = [_core.reshape(v, (*v.shape[:a], count, 1, *v.shape[a + 1 :])) for v in (_slice_of(x, a, 0, count), y)]
            both = _core.reshape(_core.append("concat", pair, {"axis": a + 1}), (*y.shape[:a], 2 * count, *y.shape[a + 1 :]))
            result.append(both if x.shape[a] == count else _core.append("concat", [both, _slice_of(x, a, count, None)], {"axis": a}))
        return result

    def running(xs):
        count = xs[0].shape[axes[0]]
        if count < 2:
            return xs
        odd = running(combine(slices(xs, 0, count - 1, 2), slices(xs, 1, None, 2)))
        before = odd if count % 2 else slices(odd, 0, -1)
        rest = slices(xs, 2, None, 2)
        even = joined([slices(xs, 0, 1), combine(before, rest)]) if count > 2 else slices(xs, 0, 1)
        return alternating(even, odd)

    if reverse:
        leaves = [_core.append("reverse", [x], {"axes": [a]}) for x, a in zip(leaves, axes)]
    result = running(leaves)
    if reverse:
        result = [_core.append("reverse", [x], {"axes": [a]}) for x, a in zip(result, axes)]
    return structure.unflatten(result)


def _slice_of(x, axis, *bounds):
    return x[(slice(None),) * axis + (slice(*bounds),)]
