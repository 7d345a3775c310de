"""Contractions."""

from hotloop import _core
from hotloop._op import checked_axis, op

__all__ = ["matmul", "tensordot", "vecdot", "outer", "einsum", "dot_general"]


@op(2)
def matmul(x1, x2, /):
    """The matrix product, by NumPy's rule for vectors, matrices and stacks of matrices."""
    return _core.matmul(x1, x2)


@op(2)
def dot_general(lhs, rhs, lhs_contract, rhs_contract, lhs_batch=(), rhs_batch=(), /):
    """The engine's one contraction: out[batch..., lhs free..., rhs free...] = sum over the contracted axes of lhs rhs."""
    return _core.dot(lhs, rhs, list(lhs_contract), list(rhs_contract), list(lhs_batch), list(rhs_batch))


@op(2)
def tensordot(x1, x2, /, *, axes=2):
    """Sum over the last `axes` axes of x1 and the first of x2, or over the two given lists of axes."""
    x1, x2 = _core.to_tracer(x1), _core.to_tracer(x2)
    if isinstance(axes, int):
        lhs, rhs = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        lhs, rhs = ([a] if isinstance(a, int) else list(a) for a in axes)
    lhs = [checked_axis("tensordot", a, x1.ndim) for a in lhs]
    rhs = [checked_axis("tensordot", a, x2.ndim) for a in rhs]
    return _core.dot(x1, x2, lhs, rhs, [], [])


@op(2)
def vecdot(x1, x2, /, *, axis=-1):
    """The inner products along `axis`; the other axes broadcast."""
    product = _core.to_tracer(x1) * _core.to_tracer(x2)
    return _core.append("reduce_sum", [product], {"axes": [checked_axis("vecdot", axis, product.ndim)]})


@op(2)
def outer(x1, x2, /):
    """x1[i] x2[j] for two vectors."""
    x1, x2 = (_core.reshape(v, (v.size,)) for v in (_core.to_tracer(x1), _core.to_tracer(x2)))
    return _core.dot(x1, x2, [], [], [], [])


@op(2)
def _einsum_pair(x1, x2, subscripts):
    a, b, out = subscripts
    x1, x2 = _core.to_tracer(x1), _core.to_tracer(x2)
    # What occurs in one operand alone and not in the result is summed first.
    x1, a = _sum_out(x1, a, set(b) | set(out))
    x2, b = _sum_out(x2, b, set(a) | set(out))
    batch = [c for c in a if c in b and c in out]
    contracted = [c for c in a if c in b and c not in out]
    position = lambda text, letters: [text.index(c) for c in letters]  # noqa: E731
    product = _core.dot(x1, x2, position(a, contracted), position(b, contracted), position(a, batch), position(b, batch))
    letters = "".join(batch) + "".join(c for c in a if c not in b) + "".join(c for c in b if c not in a)
    return _core.append("transpose", [product], {"permutation": [letters.index(c) for c in out]})


def _sum_out(x, letters, kept):
    axes = [i for i, c in enumerate(letters) if c not in kept]
    if not axes:
        return x, letters
    return _core.append("reduce_sum", [x], {"axes": axes}), "".join(c for c in letters if c in kept)


@op(1)
def _einsum_one(x, subscripts):
    a, out = subscripts
    x, a = _sum_out(_core.to_tracer(x), a, set(out))
    return _core.append("transpose", [x], {"permutation": [a.index(c) for c in out]})


def einsum(subscripts, /, *operands):
    """Sums of products in Einstein's notation, "ij,jk->ik": one to any number of operands, contracted from the left.

    A letter may occur once in an operand (no diagonals), and there is no ellipsis. The result's letters must be given or, as in
    NumPy, are those that occur once, in alphabetical order.
    """
    text = subscripts.replace(" ", "")
    inputs, arrow, out = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        out = "".join(sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1))
    problem = None
    if len(terms) != len(operands):
        problem = f"{len(terms)} terms for {len(operands)} operands"
    elif any(len(set(t)) != len(t) for t in [*terms, out]) or not all(c.isalpha() for t in [*terms, out] for c in t):
        problem = "a letter twice in one term, or something that is no letter"
    elif set(out) - set("".join(terms)):
        problem = "a letter of the result that no operand has"
    if problem:
        raise _core.UserError(f"[einsum] subscripts must fit the operands. Received: {subscripts!r}: {problem}.")
    if len(operands) == 1:
        return _einsum_one(operands[0], (terms[0], out))
    value, letters = operands[0], terms[0]
    for i in range(1, len(operands)):
        later = set(out) | set("".join(terms[i + 1 :]))
        result = out if i == len(operands) - 1 else "".join(dict.fromkeys(c for c in letters + terms[i] if c in later))
        value = _einsum_pair(value, operands[i], (letters, terms[i], result))
        letters = result
    return value
