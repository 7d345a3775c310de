"""Eigenvalues of symmetric matrices and singular values by the QR iteration with implicit shifts on a matrix of two or three diagonals, which reflections
make first (Golub and Van Loan, Matrix Computations, 4th ed., 5.4.8, 8.3.1, 8.3.5 and 8.6.3).

A sweep is a chain of rotations, each of which takes the place of two neighbours. Its scalars come first, for as many sweeps as a list holds; then
vectors are turned by all of the list in one loop, which changes rows of one matrix in place. So matrices of a batch do not wait for each other at
the end of each sweep, and where nobody asks for vectors that loop and the list are dead. All is written for numbers about 1 (scale_of).
"""

from hotloop import _core
from hotloop._control import scan, while_loop
from hotloop._creation import arange, eye
from hotloop._dtypes import finfo
from hotloop._elementwise import abs as _abs
from hotloop._elementwise import maximum, minimum, sqrt, where
from hotloop._linear import matmul
from hotloop._manipulation import broadcast_to, concat, dynamic_slice, dynamic_update, matrix_transpose, pad, reshape
from hotloop._reductions import max as _max
from hotloop._reductions import min as _min
from hotloop._reductions import sum as _sum
from hotloop._transforms import stop_gradient

MOST_SWEEPS = 30  # for each value, as in LAPACK; two or three are usual
GROUP = 4  # rotations that pass over rows at once


def scale_of(a):
    """(factor, 1 / factor), powers of two: a * factor has its largest number in [1, 2), or as near to it as the range of such powers allows."""
    whole, digits, most = ("int32", 23, 254) if a.dtype.itemsize == 4 else ("int64", 52, 2046)
    bits = _core.append("bitcast", [_max(_abs(stop_gradient(a)))], {"dtype": _core.full(0, whole, ()).dtype})
    exponent = maximum(minimum(bits // 2**digits, most - 1), 1)
    power = lambda e: _core.append("bitcast", [e * 2**digits], {"dtype": a.dtype})  # noqa: E731
    return power(most - exponent), power(exponent)


def _whole(x):
    return _core.full(x, "int32", ())


def _at(x, i):
    return reshape(dynamic_slice(x, (i,), (1,)), ())


def _put(x, i, value):
    return dynamic_update(x, reshape(value, (1,)), (i,))


def _row(x, i):
    return reshape(dynamic_slice(x, (i, 0), (1, x.shape[1])), (x.shape[1],))


def _negligible(dtype):
    """Of numbers about 1: what may count as zero, and the squares of which still have all digits."""
    info = finfo(dtype)
    return float((info.smallest_normal / info.eps) ** 0.5)


def _reflection(x, k):
    """(v, beta, first): x - beta (v x) v has `first` at k, zeros behind it and what x has before it."""
    index = arange(x.shape[0])
    head, behind = _at(x, k), where(index > k, x, 0.0)
    rest = _sum(behind * behind)
    idle = rest <= _negligible(x.dtype) ** 2  # nothing to reflect; not so of a nan
    norm = sqrt(where(idle, 1.0, head * head + rest))
    norm = where(head < 0, -norm, norm)
    v = where(index == k, head + norm, behind)
    return v, where(idle, 0.0, 1 / where(idle, 1.0, norm * (head + norm))), where(idle, head, -norm)


def _reduced(step, a, others, count):
    """scan() of step((a, *others), k) over k < count, which leaves rows and columns up to k alone afterwards: the last carry and all ys, a list of each
    kind. From 32 rows on it goes on with what is left of a after each quarter, of which k counts the rows."""
    n, done, found = a.shape[0], 0, []
    starts = (0, n // 4, n // 2, 3 * n // 4) if n >= 32 else (0,)
    for first, last in zip(starts, (*starts[1:], count)):
        a = a[first - done :, first - done :]
        (a, *others), ys = scan(step, (a, *others), arange(last - first))
        done = first
        found.append(ys)
    return (a, *others), list(zip(*found))


def _product_transposed(vs, betas):
    """Of the reflections that _reduced() gave, the first one at the left of the product: from the last on, when it is the unit matrix outside of the window."""
    turn = lambda x, r: (x - (r[1] * r[0])[:, None] * matmul(r[0], x)[None, :], None)  # noqa: E731
    x = eye(vs[-1].shape[1], dtype=vs[-1].dtype)
    for v, beta in zip(reversed(vs), reversed(betas)):
        more = v.shape[1] - x.shape[0]
        x = concat([eye(more, v.shape[1], dtype=x.dtype), pad(x, ((0, 0), (more, 0)))], axis=0) if more else x
        x = scan(turn, x, (v, beta), reverse=True)[0]
    return matrix_transpose(x)


def _rotation(f, g, negligible):
    """(c, s, r) with c f + s g = r, c g - s f = 0; none of what is too small for its squares."""
    square = f * f + g * g
    active = square > negligible**2
    r = sqrt(where(active, square, 1.0))
    return where(active, f / r, 1.0), where(active, g / r, 0.0), where(active, r, f)


def _until_diagonal(sweep, is_small, d, e, bound, factors):
    """The diagonals after as many sweeps as it takes, and the factors with what turned them.

    sweep(d, e, bound, first, last, step) -> d, e, bound, ((c, s) of (n,) for each factor): of rotations k = 0, 1, ... of rows first + step k and the next one in
    direction `step`, 1 or -1, up to `last`; c = 1 and s = 0 behind them. The side at `last` is the one with the small numbers. bound: what a sweep tells
    the next one, 0 for another block. is_small(d, e): (n,), which e count as zero, the last one always.
    """
    n, index = d.shape[0], arange(d.shape[0])
    groups = -(-n // GROUP)
    room = -(-n * n // (2 * GROUP)) + groups  # of a list, in groups: one or two lists are filled

    def window(d, e):
        """The first block that is not diagonal; (n - 1, n - 1) if there is none."""
        small = is_small(d, e)
        low = _min(where(small, n - 1, index))
        return low, _min(where(small & (index >= low), index, n - 1))

    def swept(state):
        d, e, low, high, before, falls, bound, turns, lists, count = state
        # It stays with its direction as long as it stays with its block.
        is_new = (low > before[1]) | (high < before[0])
        falls = where(is_new, _abs(_at(d, low)) > _abs(_at(d, high)), falls)
        first, last, step = where(falls, low, high), where(falls, high, low), where(falls, _whole(1), _whole(-1))
        d, e, bound, found = sweep(d, e, where(is_new & (turns > 0), 0.0, bound), first, last, step)
        places, steps, rotations = lists
        places = dynamic_update(places, first + step * GROUP * arange(groups), (count,))
        steps = dynamic_update(steps, broadcast_to(step, (groups,)), (count,))
        tail = groups * GROUP - n
        padded = lambda x, value: concat([x, _core.full(value, d.dtype, (tail,))], axis=0) if tail else x  # noqa: E731
        write = lambda table, x, value: dynamic_update(table, reshape(padded(x, value), (groups, GROUP)), (count, 0))  # noqa: E731
        rotations = tuple((write(cs, c, 1.0), write(ss, s, 0.0)) for (cs, ss), (c, s) in zip(rotations, found))
        count = count + (high - low + (GROUP - 1)) // GROUP
        return d, e, *window(d, e), (low, high), falls, bound, turns + 1, (places, steps, rotations), count

    def is_open(low, high, turns):
        return (low < high) & (turns < MOST_SWEEPS * n)

    def turned(x, at, step, cs, ss, j):
        """x after one group: the row of the chain goes along in registers."""
        row, new = _row(x, at), []
        for k in range(GROUP):
            c, s = (reshape(dynamic_slice(table, (j, k), (1, 1)), ()) for table in (cs, ss))
            other = _row(x, at + step * (k + 1))
            new.append(c * row + s * other)
            row = c * other - s * row
        for k, value in enumerate([*new, row]):
            x = dynamic_update(x, value[None, :], (at + step * k, 0))
        return x

    def filled(state):
        d, e, low, high, before, falls, bound, turns, factors = state
        table = _core.full(0.0, d.dtype, (room, GROUP))
        lists = _core.full(0, "int32", (room,)), _core.full(0, "int32", (room,)), tuple((table, table) for _ in factors)
        has_more = lambda s: is_open(s[2], s[3], s[7]) & (s[9] <= room - groups)  # noqa: E731
        state = d, e, low, high, before, falls, bound, turns, lists, _whole(0)
        *state, (places, steps, rotations), count = while_loop(has_more, swept, state)

        def group(carry):
            j, factors = carry
            at, step = _at(places, j) + GROUP, _at(steps, j)
            return j + 1, tuple(turned(x, at, step, cs, ss, j) for x, (cs, ss) in zip(factors, rotations))

        return *state, while_loop(lambda c: c[0] < count, group, (_whole(0), factors))[1]

    # The last group of a sweep may reach beyond the first or the last row.
    factors = tuple(pad(x, ((GROUP, GROUP), (0, 0))) for x in factors)
    state = d, e, *window(d, e), (_whole(-1), _whole(-1)), _whole(0) == 0, bound, _whole(0), factors
    d, _, low, high, *_, factors = while_loop(lambda s: is_open(s[2], s[3], s[7]), filled, state)
    return where(low < high, float("nan"), d), tuple(x[GROUP:-GROUP] for x in factors)


def _tridiagonal(a):
    """(diagonal, the one beside it and a 0 behind it, Q transposed) of a symmetric matrix a = Q T Q^T (8.3.1)."""
    n = a.shape[0]

    def step(carry, k):
        (a,) = carry
        x = _row(a, k)
        v, beta, beside = _reflection(x, k + 1)
        p = matmul(v, a) * beta
        w = p - (beta * 0.5 * _sum(p * v)) * v
        return (a - (v[:, None] * w[None, :] + w[:, None] * v[None, :]),), (_at(x, k), beside, v, beta)

    (a,), (d, e, vs, betas) = _reduced(step, a, (), n - 2)
    d, e = [*d, a[-2, -2:-1], a[-1, -1:]], [*e, a[-2, -1:], _core.full(0.0, a.dtype, (1,))]
    return concat(d, axis=0), concat(e, axis=0), _product_transposed(vs, betas)


def symmetric(a):
    """(eigenvalues in any order, eigenvectors in rows) of one symmetric matrix of three rows or more, with numbers about 1."""
    d, e, qt = _tridiagonal(a)
    n, index = d.shape[0], arange(d.shape[0])
    eps, negligible = float(finfo(d.dtype).eps), _negligible(d.dtype)

    def is_small(d, e):
        size = sqrt(_abs(d))
        near = concat([size[1:], size[-1:]], axis=0)
        return ~(_abs(e) > maximum(eps * size * near, negligible)) | (index == n - 1)

    def sweep(d, e, bound, first, last, step):
        side = where(step == 1, _whole(0), _whole(-1))  # e[i + side] stands between i and i + step
        end, beside = _at(d, last), _at(e, last - step + side)
        g = (_at(d, last - step) - end) / (2 * beside)
        shift = end - beside / (g + where(g < 0, -1.0, 1.0) * sqrt(g * g + 1))  # Wilkinson's

        # As the QL of EISPACK's tql2, in either direction.
        def turn(carry):
            k, d, e, cs, ss, c, s, p, g, own = carry
            at = first + step * k
            beside = _at(e, at + side)
            f, b = s * beside, c * beside
            c, s, r = _rotation(g, f, negligible)
            e = _put(e, at - step + side, r)  # in the first step that is none of the block's, and is a 0 again below
            own, other = own - p, _at(d, at + step)
            r = (other - own) * s + 2 * c * b
            p = s * r
            return k + 1, _put(d, at, own + p), e, _put(cs, k, c), _put(ss, k, s), c, s, p, c * r - b, other

        zero, one, zeros = _core.full(0.0, d.dtype, ()), _core.full(1.0, d.dtype, ()), _core.full(0.0, d.dtype, (n,))
        carry = _whole(0), d, e, zeros + 1, zeros, one, one, zero, _at(d, first) - shift, _at(d, first)
        count = _abs(last - first)
        _, d, e, cs, ss, _, _, p, g, own = while_loop(lambda c: c[0] < count, turn, carry)
        e = _put(e, last - step + side, g)
        outside = (index == maximum(first, last)) | (index == minimum(first, last) - 1)
        return _put(d, last, own - p), where(outside, 0.0, e), bound, ((cs, ss),)

    d, (vt,) = _until_diagonal(sweep, is_small, d, e, _core.full(0.0, d.dtype, ()), (qt,))
    return d, vt


def _next_mu(mu, own, beside):
    """Demmel and Kahan's bound of the least singular value of a block, after one more number on its diagonal and the one beside it before that: 1 at first."""
    whole = mu + _abs(beside)
    return _abs(own) * where(whole > 0, mu / where(whole > 0, whole, 1.0), 1.0)


def _bidiagonal(a):
    """(diagonal, the one above it and a 0 behind it, a bound of the least singular value, U transposed, V transposed) of a square matrix
    a = U B V^T (5.4.8)."""
    n = a.shape[0]

    def step(carry, k):
        a, before, mu, least = carry
        u, left, own = _reflection(reshape(dynamic_slice(a, (0, k), (a.shape[0], 1)), (a.shape[0],)), k)
        p = matmul(u, a) * left
        v, right, beside = _reflection(_row(a, k) - _at(u, k) * p, k + 1)
        w = (matmul(a, v) - _sum(p * v) * u) * right
        mu = _next_mu(mu, own, before)
        return (a - (u[:, None] * p[None, :] + w[:, None] * v[None, :]), beside, mu, minimum(least, mu)), (own, beside, u, left, v, right)

    zero, one = _core.full(0.0, a.dtype, ()), _core.full(1.0, a.dtype, ())
    (a, before, mu, least), (d, e, us, lefts, vs, rights) = _reduced(step, a, (zero, one, one * float("inf")), n - 1)
    d, e = concat([*d, a[-1, -1:]], axis=0), concat([*e, zero[None]], axis=0)
    bound = minimum(least, _next_mu(mu, a[-1, -1], before))
    return d, e, bound, _product_transposed(us, lefts), _product_transposed(vs, rights)


def singular(a):
    """(singular values in any order, their left and right vectors in rows) of one square matrix of two rows or more, with numbers about 1.

    A sweep of Demmel and Kahan (Accurate singular values of bidiagonal matrices, SIAM J. Sci. Stat. Comput. 1990), without a shift where that would cost the
    digits of small values, which also ends with a zero beside the last number where there is one on the diagonal. A number beside the diagonal counts
    as zero where that changes no value by more than a few roundings of its own (their section 4).
    """
    d, e, bound, ut, vt = _bidiagonal(a)
    n, dtype, index = d.shape[0], d.dtype, arange(d.shape[0])
    eps, negligible = float(finfo(dtype).eps), _negligible(dtype)
    tolerance = 8 * eps

    def is_small(d, e):
        return ~(_abs(e) > negligible) | (index == n - 1)

    def kept(beside, mu):
        return where(_abs(beside) <= tolerance * mu, 0.0, beside)

    def sweep(d, e, bound, first, last, step):
        side = where(step == 1, _whole(0), _whole(-1))  # e[i + side] stands between i and i + step
        low, high = minimum(first, last), maximum(first, last)
        largest = _max(where((index >= low) & (index <= high), maximum(_abs(d), where(index < high, _abs(e), 0.0)), 0.0))
        x, y, z = _abs(_at(d, last - step)), _at(e, last - step + side), _abs(_at(d, last))
        # The smaller singular value of the last two rows and columns.
        shift = 2 * x * z / (sqrt((x + z) * (x + z) + y * y) + sqrt((x - z) * (x - z) + y * y))
        start = _at(d, first)
        is_plain = (100 * n * minimum(shift, bound) <= largest) | (shift * shift <= eps * start * start)
        count = high - low

        def shifted(carry):
            k, d, e, rights, lefts, f, g, own, beside, mu, least = carry
            at = first + step * k
            c, s, r = _rotation(f, g, negligible)
            r = kept(r, mu)
            e = _put(e, at - step + side, r)  # in the first step that is none of the block's, and is a 0 again below
            rights = _put(rights[0], k, c), _put(rights[1], k, s)
            other, behind = _at(d, at + step), _at(e, at + step + side)
            f, beside, g, other = c * own + s * beside, c * beside - s * own, s * other, c * other
            c, s, own = _rotation(f, g, negligible)
            lefts = _put(lefts[0], k, c), _put(lefts[1], k, s)
            mu = _next_mu(mu, own, where(k == 0, 0.0, r))
            d, f, g, own, beside = _put(d, at, own), c * beside + s * other, s * behind, c * other - s * beside, c * behind
            return k + 1, d, e, rights, lefts, f, g, own, beside, mu, minimum(least, mu)

        def plain(carry):
            k, d, e, rights, lefts, c, left, mu, least = carry
            at = first + step * k
            c, s, r = _rotation(_at(d, at) * c, _at(e, at + side), negligible)
            beside = kept(left[1] * r, mu)
            e = _put(e, at - step + side, beside)
            rights = _put(rights[0], k, c), _put(rights[1], k, s)
            *left, own = _rotation(left[0] * r, _at(d, at + step) * s, negligible)
            lefts = _put(lefts[0], k, left[0]), _put(lefts[1], k, left[1])
            mu = _next_mu(mu, own, where(k == 0, 0.0, beside))
            return k + 1, _put(d, at, own), e, rights, lefts, c, tuple(left), mu, minimum(least, mu)

        zero, one, zeros = _core.full(0.0, dtype, ()), _core.full(1.0, dtype, ()), _core.full(0.0, dtype, (n,))
        divisor = where(start == 0, 1.0, start)
        f = (_abs(start) - shift) * (where(start < 0, -1.0, 1.0) + shift / divisor)
        beside = _at(e, first + side)
        carry = _whole(0), d, e, (zeros + 1, zeros), (zeros + 1, zeros), f, beside, start, beside, one, largest
        _, d, e, rights, lefts, f, _, own, _, mu, least = while_loop(lambda c: ~is_plain & (c[0] < count), shifted, carry)
        carry = _whole(0), d, e, rights, lefts, one, (one, zero), where(is_plain, one, mu), where(is_plain, largest, least)
        _, d, e, rights, lefts, c, left, mu, least = while_loop(lambda c: is_plain & (c[0] < count), plain, carry)
        rest = _at(d, last) * c
        own, beside = where(is_plain, rest * left[0], own), kept(where(is_plain, rest * left[1], f), mu)
        beside = kept(beside, _abs(own))
        least = where(beside == 0, least, minimum(least, _next_mu(mu, own, beside)))  # of what stays together
        e = _put(e, last - step + side, beside)
        outside = (index == high) | (index == low - 1)
        # Read backwards, rows are columns.
        turns = tuple(tuple(where(step == 1, a, b) for a, b in zip(*pair)) for pair in ((lefts, rights), (rights, lefts)))
        return _put(d, last, own), where(outside, 0.0, e), least, turns

    d, (ut, vt) = _until_diagonal(sweep, is_small, d, e, bound, (ut, vt))
    return _abs(d), ut, vt * where(d < 0, -1.0, 1.0)[:, None]
