"""Derivatives and batching: functions of functions. All compose, with each other and with jit, scan and while_loop.

Outside a trace a transformed function is traced and run at each call; put hl.jit around it when it is called often.
"""

import functools
import threading

from hotloop import _core
from hotloop._control import run_traced
from hotloop._names import kind_of
from hotloop._op import checked_axis, function, integer


def _flat(fn, structure, keep):
    """fn of one argument list, as a function from leaves to leaves; what it returned is described in `keep`."""

    def flat(leaves):
        result = fn(*structure.unflatten(leaves))
        out, keep["out"] = _core.tree_flatten(result)
        return out

    return flat


def differentiated(flat):
    """`flat`, of which a derivative is taken where it is traced: rules in it are used then, not only looked at."""

    def traced(leaves):
        before, _looks.in_rule = _looks.in_rule, False
        try:
            return flat(leaves)
        finally:
            _looks.in_rule = before

    return traced


def _name(fn):
    return getattr(fn, "__name__", type(fn).__name__)


def _transformed(fn, traced, doc):
    """`traced` as what users call, named after fn."""

    @functools.wraps(fn, updated=())
    def wrapped(*args, **kwargs):
        return run_traced(_name(fn), traced, *args, **kwargs)

    wrapped.__doc__ = doc
    return wrapped


def _argnums(where, argnums, args):
    nums = [integer(where, "a position in argnums", n) for n in (argnums if isinstance(argnums, (tuple, list)) else [argnums])]
    for n in nums:
        if not -len(args) <= n < len(args):
            raise _core.UserError(f"[{where}] argnums must be positions of arguments. Received: {n} for {len(args)} arguments.")
    return [n % len(args) for n in nums]


def _is_float(x):
    return _core.to_tracer(x).dtype.kind == "f"


def checked_floats(where, nums, args):
    """The leaves of the arguments that derivatives are taken of, and their structure. UserError that names the leaf which is no float."""
    leaves, structure = _core.tree_flatten(tuple(args[n] for n in nums))
    for x, path in zip(leaves, structure.paths(), strict=True):
        x = _core.to_tracer(x, where)
        if x.dtype.kind == "f":
            continue
        place, _, inside = path.removeprefix("[").partition("]")
        kind = "derivatives are taken with respect to f32 or f64 inputs"
        if inside:
            meant = "a float there, or the tree without it, with respect to a part of it: lambda part: f({**tree, **part})"
            raise _core.UserError(f"[{where}] {kind}. Received: {x._type} in the leaf {inside} of argument {nums[int(place)]}. Try: {meant}.")
        raise _core.UserError(f"[{where}] {kind}. Received: argument {nums[int(place)]} = {x._type}. Try: x.astype(hl.float32), or leave it out of argnums.")
    return leaves, structure


def value_and_grad(fn, argnums=0, has_aux=False):
    """(fn(...), d fn / d argument): fn must return a float scalar, or (scalar, anything) with has_aux.

    argnums: the position of the argument, or several; each may be a tree of float arrays, and its gradient has its structure,
    shapes and dtypes. All in one program, forward and backward.
    """

    return _value_and_grad(fn, argnums, has_aux, "grad")


def _value_and_grad(fn, argnums, has_aux, where):
    """value_and_grad for the function `where`, which errors name."""
    function(where, "what is differentiated", fn)

    def traced(*args, **kwargs):
        nums = _argnums(where, argnums, args)
        wanted, structure = checked_floats(where, nums, args)
        keep = {}

        def flat(leaves):
            given = list(args)
            for n, value in zip(nums, structure.unflatten(leaves)):
                given[n] = value
            result = fn(*given, **kwargs)
            if has_aux and not (isinstance(result, tuple) and len(result) == 2):
                raise _core.UserError(f"[{where}] with has_aux the function must return (loss, aux). Received: {kind_of(result)}.")
            loss, aux = result if has_aux else (result, None)
            loss_leaves = _core.tree_flatten(loss)[0]
            if len(loss_leaves) != 1:
                raise _core.UserError(
                    f"[{where}] the function must return one scalar. Received: {len(loss_leaves)} values. Try: has_aux=True, or hl.vjp."
                )
            loss_type = _core.to_tracer(loss_leaves[0], where)
            if loss_type.shape != () or loss_type.dtype.kind != "f":
                raise _core.UserError(
                    f"[{where}] the first output of the function must be an f32 or f64 scalar. Received: {loss_type._type}. Try: a sum over it, or hl.vjp."
                )
            aux_leaves, keep["aux"] = _core.tree_flatten(aux)
            return loss_leaves + aux_leaves

        outputs = _core.value_and_grad(differentiated(flat), list(range(len(wanted))), wanted)
        num_outputs = len(outputs) - len(wanted)
        value = outputs[0]
        if has_aux:
            value = (value, keep["aux"].unflatten(outputs[1:num_outputs]))
        gradients = structure.unflatten(outputs[num_outputs:])
        return value, gradients if isinstance(argnums, (tuple, list)) else gradients[0]

    return _transformed(fn, traced, f"({_name(fn)}(...), its gradient).")


def grad(fn, argnums=0, has_aux=False):
    """d fn / d argument, as value_and_grad gives it; with has_aux, (gradient, aux)."""
    return _grad(fn, argnums, has_aux, "grad")


def _grad(fn, argnums, has_aux, where):
    both = _value_and_grad(fn, argnums, has_aux, where)

    def traced(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return _transformed(fn, traced, f"The gradient of {_name(fn)}.")


def jvp(fn, primals, tangents):
    """(fn(*primals), its derivative along the tangents): forward mode.

    primals, tangents: tuples of trees of one structure; the tangents of integers are ignored, and must not be floats.
    """
    return run_traced(_name(fn), functools.partial(_jvp, fn), *checked_directions("jvp", fn, primals, tangents))


def checked_directions(where, fn, primals, tangents):
    """(primals, tangents) as tuples, of a function."""
    function(where, "what is differentiated", fn)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, (tuple, list)):
            raise _core.UserError(f"[{where}] {name} must be a tuple, one for each argument. Received: {kind_of(given)}. Try: ({name[:-1]},).")
    return tuple(primals), tuple(tangents)


def _jvp(fn, primals, tangents, where="jvp"):
    leaves, structure = _core.tree_flatten(primals)
    directions = structure.flatten_like(tangents, where)
    for d, x in zip(directions, leaves):
        if _is_float(d) and not _is_float(x):
            raise _core.UserError(f"[{where}] what has a tangent must be f32 or f64. Received: {_core.to_tracer(d)._type} for {_core.to_tracer(x)._type}. Try: floats, such as 2.0 for 2.")
    directions = [_like(d, x, where) if _is_float(x) else None for d, x in zip(directions, leaves)]
    keep = {}
    outputs, derivatives = _core.jvp(differentiated(_flat(fn, structure, keep)), leaves, directions)
    derivatives = [_zeros(y) if d is None else d for y, d in zip(outputs, derivatives)]
    return keep["out"].unflatten(outputs), keep["out"].unflatten(derivatives)


def _like(tangent, x, where="jvp"):
    """A number as a tangent of x."""
    x = _core.to_tracer(x)
    tangent = _core.to_tracer(tangent)
    if tangent.shape != x.shape:
        raise _core.UserError(f"[{where}] a tangent must have the shape of its primal. Received: {tangent._type} for {x._type}.")
    return _core.cast(tangent, x.dtype)


def _zeros(x):
    return _core.full(0.0, x.dtype, x.shape)


def vjp(fn, *primals):
    """(fn(*primals), pullback): reverse mode. pullback(cotangent of the result) gives a tuple of cotangents, one an argument.

    In a trace, forward work is shared with the pullback. What was made outside of one holds the primals, and runs fn again: at a call, or in the trace
    of the function that calls it, such as hl.vmap(pullback).
    """
    return _traced_or_twice(_vjp, fn, primals)


def _kept(primals, where):
    """The primals for later, with copies of what others may write to: that must not move the place of a derivative."""
    leaves, structure = _core.tree_flatten(primals)
    numbers = (bool, int, float)  # which take the dtype of what they meet
    return structure.unflatten([_core.snapshot(x, where) if type(x) not in numbers and _core.is_array_like(x) else x for x in leaves])


def _traced_or_twice(traced, fn, primals):
    """What `traced` gives, (value, pullback), in a trace; outside of one the value, and a pullback that runs fn again, in the trace in which it is called."""
    function("vjp", "what is differentiated", fn)
    if _core.is_tracing():
        return traced(fn, *primals)
    primals = _kept(primals, "vjp")
    value = _core.run_once(fn, _name(fn), *primals)

    def pullback(cotangent):
        """Cotangents of the arguments."""
        return run_traced(_name(fn), lambda arguments, ct: traced(fn, *arguments)[1](ct), primals, cotangent)

    return value, pullback


def _vjp(fn, *primals):
    leaves, structure = _core.tree_flatten(primals)
    keep = {}
    outputs, flat_pullback = _core.vjp(differentiated(_flat(fn, structure, keep)), leaves)
    out = keep["out"]

    def pullback(cotangent):
        """Cotangents of the arguments."""
        given = [_like(ct, y) for ct, y in zip(out.flatten_like(cotangent, "vjp"), outputs)]
        return structure.unflatten(flat_pullback(given))

    return out.unflatten(outputs), pullback


def linearize(fn, *primals):
    """(fn(*primals), its linear map): map(*tangents) gives the derivative along them. Primal work is shared in a trace."""
    function("linearize", "what is differentiated", fn)
    if not _core.is_tracing():
        primals = _kept(primals, "linearize")
        value = _core.run_once(fn, _name(fn), *primals)
        return value, lambda *tangents: jvp(fn, primals, tangents)[1]
    leaves, structure = _core.tree_flatten(primals)
    keep = {}
    outputs, linear = _core.linearize(differentiated(_flat(fn, structure, keep)), leaves)

    def apply(*tangents):
        given = structure.flatten_like(tangents, "linearize")
        return keep["out"].unflatten(linear([_like(t, x) for t, x in zip(given, leaves)]))

    return keep["out"].unflatten(outputs), apply


def _prefix(axes, tree, where):
    """One axis (or None) for each leaf of `tree`, from a prefix of its structure."""
    if axes is None or isinstance(axes, int):
        return [axes] * len(_core.tree_flatten(tree)[0])
    if isinstance(axes, (tuple, list)) and isinstance(tree, (tuple, list)) and len(axes) == len(tree):
        return [a for sub, t in zip(axes, tree) for a in _prefix(sub, t, where)]
    if isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys():
        return [a for key in tree for a in _prefix(axes[key], tree[key], where)]
    raise _core.UserError(f"[{where}] axes must be an integer, None, or follow the structure of what they are for. Received: {axes!r}. Try: one for each argument, in a tuple.")


def vmap(fn, in_axes=0, out_axes=0):
    """fn applied to each element along an axis of its arguments: one program, no loop in Python.

    in_axes: the axis for every argument, or one an argument (a tree prefix); None: the same value for all elements.
    out_axes: where the new axis of the results goes, likewise.
    """

    return _vmap(fn, in_axes, out_axes, "vmap")


def _vmap(fn, in_axes, out_axes, where):
    function(where, "what is mapped", fn)

    def traced(*args, **kwargs):
        leaves, structure = _core.tree_flatten(args)
        axes = _prefix(in_axes, args, where)
        leaves = [x if a is None else _core.to_tracer(x, where) for x, a in zip(leaves, axes)]
        mapped = [i for i, a in enumerate(axes) if a is not None]
        if not mapped:
            raise _core.UserError(f"[{where}] at least one argument must be mapped. Received: None for every one.")
        for i in mapped:
            if not -leaves[i].ndim <= axes[i] < leaves[i].ndim:
                raise _core.UserError(
                    f"[{where}] the mapped axis must be one of the argument's. Received: axis {axes[i]} of argument{structure.paths()[i]} = "
                    f"{leaves[i]._type}."
                )
        keep = {}

        def flat(values):
            given = list(leaves)
            for i, value in zip(mapped, values):
                given[i] = value
            out, keep["out"] = _core.tree_flatten(fn(*structure.unflatten(given), **kwargs))
            return out

        outputs = _core.vmap(flat, [axes[i] % leaves[i].ndim for i in mapped], [leaves[i] for i in mapped])
        result = keep["out"].unflatten(outputs)
        if out_axes == 0:
            return result
        to = _prefix(out_axes, result, where)
        return keep["out"].unflatten([y[0] if a is None else _with_first_axis_at(y, checked_axis(where, a, y.ndim)) for y, a in zip(outputs, to)])

    return _transformed(fn, traced, f"{_name(fn)} for each element along an axis.")


def _with_first_axis_at(x, axis):
    order = list(range(1, x.ndim))
    order.insert(axis, 0)
    return _core.append("transpose", [x], {"permutation": order})


def checkpoint(fn):
    """fn, whose backward pass computes it again instead of keeping what it computed: less memory, more work."""

    def traced(*args, **kwargs):
        leaves, structure = _core.tree_flatten((args, kwargs))
        arrays = [i for i, x in enumerate(leaves) if _core.is_array_like(x) or _core.is_tracer(x)]
        keep = {}

        def flat(values):
            given = list(leaves)
            for i, value in zip(arrays, values):
                given[i] = value
            inner_args, inner_kwargs = structure.unflatten(given)
            out, keep["out"] = _core.tree_flatten(fn(*inner_args, **inner_kwargs))
            return out

        outputs = _core.checkpoint(flat, [leaves[i] for i in arrays])
        return keep["out"].unflatten(outputs)

    return _transformed(fn, traced, fn.__doc__)


def stop_gradient(x):
    """x, with derivative zero. A tree."""
    return run_traced("stop_gradient", _stop_gradient, x)


def _stop_gradient(x):
    leaves, structure = _core.tree_flatten(x)
    return structure.unflatten([_core.append("stop_gradient", [leaf], {}) for leaf in leaves])


class _Looks(threading.local):
    """What a thread has seen of rules inside of the call that it traces."""

    calls = None  # those whose rules have been traced once, by function, structure and types
    in_rule = False  # whether it traces a rule to see what that uses


_looks = _Looks()


class _Custom:
    """A function with a derivative of its own. Rules call the function again, for derivatives of derivatives: a rule is traced where a derivative is
    taken, of any order, and once before, to see what it uses of its surroundings and whether it is right. Of that nothing else is kept, and so a call in there whose rule has been
    looked at in the body, or earlier in the rule, is not looked at again: functions in functions would double the work with each level."""

    def __init__(self, fn):
        self._fn = fn
        self._in_rule = set()  # threads
        functools.update_wrapper(self, fn)

    def share_rules(self, other):
        """For functions that are in each other's rules."""
        self._in_rule = other._in_rule

    def __call__(self, *args):
        return run_traced(_name(self._fn), self._traced, *args)

    def _call(self, args, rule):
        thread = threading.get_ident()
        if thread in self._in_rule:
            return self._fn(*args)
        leaves, structure = _core.tree_flatten(args)
        leaves = [_core.to_tracer(x) for x in leaves]
        keep = {}
        n = len(leaves)

        def flat_rule(values):
            primals, tangents = structure.unflatten(values[:n]), structure.unflatten(values[n:])
            outputs, derivatives = rule(primals, tangents)
            outputs = keep["out"].flatten_like(outputs, _name(self._fn))
            derivatives = keep["out"].flatten_like(derivatives, _name(self._fn))
            outputs = [_core.to_tracer(y) for y in outputs]
            return outputs + [_like(d, y) for d, y in zip(derivatives, outputs)]

        # Without an end of rules in rules.
        def rule_at_first(values):
            self._in_rule.add(thread)
            before, _looks.in_rule = _looks.in_rule, True
            try:
                return flat_rule(values)
            finally:
                _looks.in_rule = before
                self._in_rule.discard(thread)

        around, call = _looks.calls, (self, structure, tuple((x.dtype, x.shape) for x in leaves))
        seen = around if _looks.in_rule else set()
        look = None if call in seen else rule_at_first
        _looks.calls = seen
        try:
            results = _core.call_with_jvp(_flat(self._fn, structure, keep), look, flat_rule, leaves, _name(self._fn))
        finally:
            _looks.calls = around
        seen.add(call)
        if around is not None:
            around |= seen
        return keep["out"].unflatten(results)


class custom_jvp(_Custom):
    """A function whose derivative is given by hand, in forward mode; reverse mode is made of it.

        @hl.custom_jvp
        def f(x): ...

        @f.defjvp
        def f_jvp(primals, tangents): ...   # -> (f(*primals), tangent of the result), linear in the tangents
    """

    def defjvp(self, rule):
        """Sets the rule; returns it."""
        self._rule = rule
        return rule

    def _traced(self, *args):
        if not hasattr(self, "_rule"):
            raise _core.UserError(f"[custom_jvp] {_name(self._fn)} must have a rule. Received: none. Try: @{_name(self._fn)}.defjvp.")
        return self._call(args, self._rule)


class custom_vjp(_Custom):
    """A function whose derivative is given by hand, in reverse mode.

        @hl.custom_vjp
        def f(x, y): ...

        f.defvjp(forward, backward)
        # forward(x, y) -> (f(x, y), residuals); backward(residuals, cotangent) -> (cotangent of x, cotangent of y)

    None stands for a zero cotangent. Where backward is linear in the cotangent, as every derivative is, forward mode is made of it by
    transposing. It need not be: it may clip the cotangent, or iterate until something has settled. Such a function has reverse mode alone.
    """

    def defvjp(self, forward, backward):
        """Sets both rules."""
        self._forward, self._backward = forward, backward

    def _traced(self, *args):
        name = _name(self._fn)
        if not hasattr(self, "_forward"):
            raise _core.UserError(f"[custom_vjp] {name} must have rules. Received: none. Try: {name}.defvjp(forward, backward).")

        def rule(primals, tangents):
            outputs, residuals = self._forward(*primals)
            output_leaves, output_structure = _core.tree_flatten(outputs)
            output_leaves = [_core.to_tracer(y) for y in output_leaves]
            primal_leaves = [_core.to_tracer(x) for x in _core.tree_flatten(primals)[0]]
            floats = [i for i, x in enumerate(primal_leaves) if x.dtype.kind == "f"]
            float_outputs = [i for i, y in enumerate(output_leaves) if y.dtype.kind == "f"]

            def backward(cotangents):
                given = [_zeros(y) for y in output_leaves]
                for i, ct in zip(float_outputs, cotangents):
                    given[i] = ct
                result = self._backward(residuals, output_structure.unflatten(given))
                return [cts for i, cts in enumerate(_cotangents(name, result, primals, primal_leaves)) if i in floats]

            tangent_leaves = _core.tree_flatten(tangents)[0]
            derivatives = [_zeros(y) for y in output_leaves]
            transposed = _core.transpose_linear(
                backward, [_zeros(output_leaves[i]) for i in float_outputs], [tangent_leaves[i] for i in floats], name
            )
            for i, d in zip(float_outputs, transposed):
                derivatives[i] = d
            return output_structure.unflatten(output_leaves), output_structure.unflatten(derivatives)

        return self._call(args, rule)


def _cotangents(name, result, primals, primal_leaves):
    if not isinstance(result, tuple) or len(result) != len(primals):
        raise _core.UserError(
            f"[{name}] the backward function must return a tuple with a cotangent for each of the {len(primals)} arguments. "
            f"Received: {kind_of(result)}" + (f" of {len(result)}." if isinstance(result, tuple) else ".")
        )
    out = []
    for primal, cotangent in zip(primals, result):
        leaves, structure = _core.tree_flatten(primal)
        out += [None] * len(leaves) if cotangent is None else structure.flatten_like(cotangent, name)
    return [_zeros(x) if ct is None else _like(ct, x) for ct, x in zip(out, primal_leaves)]
