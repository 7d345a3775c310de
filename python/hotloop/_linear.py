"""Contractions."""

import string

import numpy

from hotloop import _core
from hotloop._names import kind_of
from hotloop._op import checked_axis, checked_extent, integers, is_several, op, pair

__all__ = ["matmul", "tensordot", "vecdot", "outer", "einsum", "dot_general", "kron"]


@op(2)
def matmul(x1, x2, /):
    """The matrix product, by NumPy's rule for vectors, matrices and stacks of matrices."""
    return _core.matmul(x1, x2)


@op(2)
def dot_general(lhs, rhs, lhs_contract, rhs_contract, lhs_batch=(), rhs_batch=(), /):
    """The engine's one contraction: out[batch..., lhs free..., rhs free...] = sum over the contracted axes of lhs rhs."""
    return _core.dot(lhs, rhs, *(integers("dot_general", "an axis", axes) for axes in (lhs_contract, rhs_contract, lhs_batch, rhs_batch)))


@op(2)
def tensordot(x1, x2, /, *, axes=2):
    """Sum over the last `axes` axes of x1 and the first of x2, or over the two given lists of axes."""
    x1, x2 = _core.to_tracer(x1), _core.to_tracer(x2)
    if not is_several(axes):
        axes = checked_extent("tensordot", "axes", axes)
        lhs, rhs = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        lhs, rhs = (integers("tensordot", "an axis", a) for a in pair("tensordot", "axes", axes))
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
def kron(x1, x2, /):
    """The Kronecker product: blocks x1[i, j] * x2, for arrays of any number of axes; the one with fewer gets axes of extent 1 in front."""
    x1, x2 = _core.promote("kron", [x1, x2])
    ndim = max(x1.ndim, x2.ndim)
    x1, x2 = (_core.reshape(x, (*(1,) * (ndim - x.ndim), *x.shape)) for x in (x1, x2))
    spread = [_core.reshape(x, [n for m in x.shape for n in ((m, 1) if first else (1, m))]) for x, first in ((x1, True), (x2, False))]
    return _core.reshape(_core.binary("mul", *spread), [m * n for m, n in zip(x1.shape, x2.shape)])


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

    A letter twice in an operand takes its diagonal. "..." stands for axes that broadcast, aligned at their ends, and comes out where the
    result has it. The result's letters must be given or, as in NumPy, are those that occur once, in alphabetical order, after what "..." stands for.
    """
    if not isinstance(subscripts, str):
        raise _core.UserError(f"[einsum] the subscripts must be a text. Received: {kind_of(subscripts)}. Try: hl.einsum(\"ij,jk->ik\", a, b).")
    text = subscripts.replace(" ", "")
    if "..." in text and text.partition("->")[0].count(",") + 1 == len(operands):
        text, operands = _spell_ellipses(subscripts, text, operands)
    inputs, arrow, out = text.partition("->")
    terms = inputs.split(",")
    if not arrow:
        out = "".join(sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1))
    problem = None
    if len(terms) != len(operands):
        problem = f"{len(terms)} terms for {len(operands)} operands"
    elif len(set(out)) != len(out) or not all(c.isalpha() for t in [*terms, out] for c in t):
        problem = "a letter twice in the result, or something that is no letter"
    elif set(out) - set("".join(terms)):
        problem = "a letter of the result that no operand has"
    else:
        problem = _misfit(terms, [numpy.shape(x) for x in operands])
    if problem:
        raise _core.UserError(f"[einsum] subscripts must fit the operands. Received: {subscripts!r}: {problem}.")
    operands, terms = list(operands), list(terms)
    for i, term in enumerate(terms):
        while (repeated := next((c for c in term if term.count(c) > 1), None)) is not None and len(term) == numpy.ndim(operands[i]):
            first, second = [k for k, c in enumerate(term) if c == repeated][:2]
            operands[i] = _diagonal(operands[i], first, second)
            term = "".join(c for k, c in enumerate(term) if k not in (first, second)) + repeated
        terms[i] = term
    if len(operands) == 1:
        return _einsum_one(operands[0], (terms[0], out))
    value, letters = operands[0], terms[0]
    for i in range(1, len(operands)):
        later = set(out) | set("".join(terms[i + 1 :]))
        result = out if i == len(operands) - 1 else "".join(dict.fromkeys(c for c in letters + terms[i] if c in later))
        value = _einsum_pair(value, operands[i], (letters, terms[i], result))
        letters = result
    return value


def _misfit(terms, shapes):
    """What is wrong with terms for operands of these shapes, or None."""
    extents = {}
    for term, shape in zip(terms, shapes):
        if len(term) != len(shape):
            return f"{term!r} names {len(term)} axes of an operand {shape}, which has {len(shape)}"
        for letter, extent in zip(term, shape):
            if extents.setdefault(letter, extent) != extent:
                return f"the axes of {letter!r} have the extents {extents[letter]} and {extent}, in operands {' and '.join(map(str, shapes))}"
    return None


def _spell_ellipses(subscripts, text, operands):
    """The subscripts with letters in place of "...", and the operands without axes of extent 1 that broadcast there."""
    inputs, arrow, out = text.partition("->")
    terms, operands = inputs.split(","), [x if hasattr(x, "shape") else _core.asarray(x) for x in operands]
    counts = [len(x.shape) - len(t.replace("...", "")) if "..." in t else 0 for t, x in zip(terms, operands)]
    longest = max(counts)
    if arrow and longest > 0 and "..." not in out:
        raise _core.UserError(f"[einsum] what '...' stands for must be in the result. Received: {subscripts!r}. Try: '...' behind the arrow.")
    letters = [c for c in string.ascii_letters if c not in text][: max(longest, 0)]
    if min(counts) < 0 or len(letters) < longest:
        raise _core.UserError(f"[einsum] subscripts must fit the operands. Received: {subscripts!r} for {' and '.join(str(tuple(x.shape)) for x in operands)}.")
    extents = [1] * longest
    for t, x, n in zip(terms, operands, counts):
        first = t.find("...")
        for k in range(n):
            extents[longest - n + k] = max(extents[longest - n + k], x.shape[first + k])
    for i, (t, x, n) in enumerate(zip(terms, operands, counts)):
        first, own = t.find("..."), letters[longest - n :]
        broadcast = [k for k in range(n) if x.shape[first + k] == 1 and extents[longest - n + k] != 1]
        if broadcast:
            operands[i] = _reshape(x, tuple(e for axis, e in enumerate(x.shape) if axis - first not in broadcast))
        terms[i] = t.replace("...", "".join(c for k, c in enumerate(own) if k not in broadcast))
    spelled = "".join(letters)
    if not arrow:
        out = spelled + "".join(sorted(c for c in set(inputs) - set(",.") if inputs.count(c) == 1))
    return f"{','.join(terms)}->{out.replace('...', spelled)}", operands


@op(1)
def _reshape(x, shape):
    return _core.reshape(_core.to_tracer(x), shape)


@op(1)
def _diagonal(x, first, second):
    """The elements with one index along both axes, which comes last."""
    x = _core.to_tracer(x)
    n = x.shape[first]
    rest = [axis for axis in range(x.ndim) if axis not in (first, second)]
    turned = _core.append("transpose", [x], {"permutation": [*rest, first, second]})
    flat = _core.reshape(turned, (*turned.shape[:-2], n * n))
    return flat[..., :: n + 1]
