"""Orthogonal decompositions of small dense matrices: QR by Householder reflections (Golub and Van Loan, Matrix Computations, 4th ed.,
5.2), eigenvalues of symmetric matrices and singular values. Those of a few rows by Jacobi's rotations (8.5; one-sided, 8.6.3), which a batch does in
all lanes; of more, where the sweeps would take several times as long, by _implicit_qr.py.

A sweep of Jacobi turns all pairs of columns once, as rounds of disjoint pairs (a round robin), so that a round is one rotation of a
whole matrix; sweeps go on until nothing is left to turn. Derivatives are those of the decomposition (Giles, Collected Matrix Derivative
Results for Forward and Reverse Mode Algorithmic Differentiation, 2008; Walter, Lehmann, Lamour, On evaluating higher-order derivatives of
the QR decomposition, 2012) and not of the rotations.
"""

import collections

import numpy

from hotloop import _core
from hotloop._control import scan, while_loop
from hotloop._creation import arange, eye, tril
from hotloop._dtypes import finfo
from hotloop._elementwise import abs as _abs
from hotloop._elementwise import equal, greater, less, logical_and, sign, sqrt, where
from hotloop._implicit_qr import scale_of, singular, symmetric
from hotloop._linear import matmul
from hotloop._manipulation import concat, dynamic_slice, flip, matrix_transpose, reshape, take
from hotloop._reductions import max as _max
from hotloop._reductions import sum as _sum
from hotloop._sorting import argsort
from hotloop._transforms import custom_jvp, stop_gradient

EighResult = collections.namedtuple("EighResult", ["eigenvalues", "eigenvectors"])
QRResult = collections.namedtuple("QRResult", ["Q", "R"])
SVDResult = collections.namedtuple("SVDResult", ["U", "S", "Vh"])

MOST_ROWS_OF_JACOBI, MOST_COLUMNS_OF_JACOBI = 6, 8  # up to which it is the faster one, measured: of eigh, of svd
MOST_SWEEPS = 30  # it converges quadratically: six to ten do for a hundred rows


def _rounds(n):
    """partner[r][i]: what column i is paired with in round r; i itself where it rests."""
    even = n + n % 2
    ring = list(range(even))
    table = []
    for _ in range(even - 1):
        partner = list(range(n))
        for a, b in zip(ring[: even // 2], reversed(ring[even // 2 :])):
            if a < n and b < n:
                partner[a], partner[b] = b, a
        table.append(partner)
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return numpy.array(table, numpy.int32).reshape(max(even - 1, 0), n)


def _turn(difference, product, partner):
    """(tangent, cosine) of each column's rotation with its partner's, which makes their product vanish. difference: the partner's
    square less the column's own."""
    index = arange(partner.shape[0])
    theta = difference / where(equal(product, 0), 1.0, 2 * product)
    toward = where(equal(theta, 0), where(less(index, partner), 1.0, -1.0), sign(theta))
    tangent = toward / (_abs(theta) + sqrt(theta * theta + 1))
    tangent = where(logical_and(product != 0, partner != index), tangent, 0.0)
    return tangent, 1 / sqrt(tangent * tangent + 1)


def _sweeps(round_, state, n, is_done):
    """round_(state, partner) for all rounds, again and again until is_done(state)."""
    if n < 2:
        return state
    table = _rounds(n)
    sweep = lambda carry: scan(lambda c, partner: (round_(c, partner), None), carry, table)[0]  # noqa: E731
    return while_loop(lambda carry: ~is_done(carry), sweep, state, max_steps=MOST_SWEEPS)


@custom_jvp
def eigh(a):
    """(eigenvalues, ascending; eigenvectors, in columns) of one symmetric matrix."""
    if a.shape[0] == 0:
        return _core.full(0.0, a.dtype, (0,)), a
    factor, back = scale_of(a)
    values, rows = (symmetric if a.shape[0] > MOST_ROWS_OF_JACOBI else _rotated)(a * factor)
    order = argsort(values)
    return take(values, order) * back, matrix_transpose(take(rows, order, axis=0))


def _rotated(a):
    """(eigenvalues in any order, eigenvectors in rows) of one symmetric matrix by Jacobi's rotations."""
    n = a.shape[0]
    index = arange(n)
    diagonal = equal(index[:, None], index[None, :])
    small = float(n * finfo(a.dtype).eps ** 2) * _sum(a * a)

    def round_(state, partner):
        a, v = state
        own = _sum(where(diagonal, a, 0.0), axis=1)
        product = _sum(where(equal(partner[:, None], index[None, :]), a, 0.0), axis=1)
        tangent, cosine = _turn(take(own, partner) - own, product, partner)
        a = (a - take(a, partner, axis=1) * tangent[None, :]) * cosine[None, :]
        a = (a - take(a, partner, axis=0) * tangent[:, None]) * cosine[:, None]
        # Symmetric to the bit, so that both of a pair turn by one angle.
        return (a + matrix_transpose(a)) * 0.5, (v - take(v, partner, axis=1) * tangent[None, :]) * cosine[None, :]

    # Not greater, so that a nan ends it.
    done = lambda state: ~greater(_sum(where(diagonal, 0.0, state[0] * state[0])), small)  # noqa: E731
    a, v = _sweeps(round_, (a, eye(n, dtype=a.dtype)), n, done)
    return where(less(small, float("inf")), _sum(where(diagonal, a, 0.0), axis=1), float("nan")), matrix_transpose(v)


def _between(values):
    """1 / (values[j] - values[i]), 0 where they are equal: what turns a vector into another one of its own value is not defined."""
    gap = values[None, :] - values[:, None]
    return where(equal(gap, 0), 0.0, 1 / where(equal(gap, 0), 1.0, gap))


@eigh.defjvp
def _eigh_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    w, v = eigh(a)
    inner = matmul(matrix_transpose(v), matmul(da, v))
    index = arange(a.shape[0])
    dw = _sum(where(equal(index[:, None], index[None, :]), inner, 0.0), axis=1)
    return (w, v), (dw, matmul(v, _between(w) * inner))


def householder(a):
    """(Q, all m columns of it; R) of one matrix (m, n)."""
    m, n = a.shape
    index = arange(m)

    def step(carry, k):
        q, r = carry
        x = where(less(index, k), 0.0, reshape(dynamic_slice(r, (0, k), (m, 1)), (m,)))
        x = x * scale_of(x)[0]  # for the squares; a reflection has no size
        below = where(greater(index, k), x, 0.0)
        head = _sum(where(equal(index, k), x, 0.0))
        rest = _sum(below * below)
        idle = equal(rest, 0)  # nothing to reflect, as LAPACK has it
        norm = sqrt(where(idle, 1.0, head * head + rest))
        u = where(equal(index, k), head + where(less(head, 0), -norm, norm), below)
        scale = where(idle, 0.0, 2 / where(idle, 1.0, _sum(u * u)))
        r = r - (scale * u)[:, None] * matmul(u, r)[None, :]
        return (q - matmul(q, u)[:, None] * (scale * u)[None, :], r), None

    start = eye(m, dtype=a.dtype), a
    q, r = scan(step, start, arange(min(m - 1, n)))[0] if min(m - 1, n) > 0 else start
    return q, where(greater(index[:, None], arange(n)[None, :]), 0.0, r)


@custom_jvp
def _qr(a):
    """Of one matrix with at least as many rows as columns: (m, n), (n, n)."""
    q, r = householder(a)
    return q[:, : a.shape[1]], r[: a.shape[1], :]


@_qr.defjvp
def _qr_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    q, r = _qr(a)
    # da r^-1, column after column.
    n = r.shape[0]
    index = arange(n)

    def step(found, k):
        column = reshape(dynamic_slice(r, (0, k), (n, 1)), (n,))
        own = _sum(where(equal(index, k), column, 0.0))
        new = (reshape(dynamic_slice(da, (0, k), (da.shape[0], 1)), (da.shape[0],)) - matmul(found, where(less(index, k), column, 0.0))) / own
        return where(equal(index, k)[None, :], new[:, None], found), None

    m = scan(step, da * 0, index)[0]
    inside = matmul(matrix_transpose(q), m)
    lower = tril(inside, k=-1)
    turned = lower - matrix_transpose(lower)
    return (q, r), (m + matmul(q, turned - inside), matmul(inside - turned, r))


def qr(a, complete):
    m, n = a.shape
    if 0 in (m, n):
        return eye(m, m if complete else 0, dtype=a.dtype), a if complete else a[:0]
    if complete and m > n:
        return householder(a)
    if m >= n:
        return _qr(a)
    q, left = _qr(a[:, :m])
    return q, concat([left, matmul(matrix_transpose(q), a[:, m:])], axis=1)


@custom_jvp
def svd(a):
    """(U, S, V) of one matrix with at least as many rows as columns: (m, n), (n,), (n, n); S descends."""
    m, n = a.shape
    factor, back = scale_of(a)
    a = a * factor
    if n <= MOST_COLUMNS_OF_JACOBI:
        u, s, v = _rotated_columns(a)
        return u, s * back, v
    q, a = _qr(a) if m > n else (None, a)
    s, left, right = singular(a)
    order = flip(argsort(s))
    u, v = (matrix_transpose(take(rows, order, axis=0)) for rows in (left, right))
    return u if q is None else matmul(q, u), take(s, order) * back, v


def _rotated_columns(a):
    """svd by Jacobi's rotations of columns, which find small values to their own precision."""
    n = a.shape[1]
    q, b = _qr(a)
    tolerance = float(4 * n * finfo(a.dtype).eps ** 2)

    def turns(b, partner):
        other = take(b, partner, axis=1)
        own = _sum(b * b, axis=0)
        return own, take(own, partner), _sum(b * other, axis=0), other

    def round_(state, partner):
        b, v, left = state
        own, others, product, other = turns(b, partner)
        product = where(greater(product * product, tolerance * own * others), product, 0.0)
        left = left + _sum(where(logical_and(product != 0, partner != arange(n)), 1.0, 0.0))
        tangent, cosine = _turn(others - own, product, partner)
        b = (b - other * tangent[None, :]) * cosine[None, :]
        return b, (v - take(v, partner, axis=1) * tangent[None, :]) * cosine[None, :], left

    # A sweep counts what it turned, and the next one starts at 0; the first has not been.
    table = _rounds(n)

    def sweep(state):
        b, v, _ = state
        return scan(lambda c, partner: (round_(c, partner), None), (b, v, _core.full(0.0, a.dtype, ())), table)[0]

    state = b, eye(n, dtype=a.dtype), _core.full(1.0, a.dtype, ())
    if n > 1:
        state = while_loop(lambda s: greater(s[2], 0), sweep, state, max_steps=MOST_SWEEPS)
    b, v, _ = state
    order = flip(argsort(_sum(b * b, axis=0)))
    b, v = take(b, order, axis=1), take(v, order, axis=1)
    # Its columns are orthogonal: their QR has the values on its diagonal, and completes the vectors where values are 0.
    u, r = _qr(b)
    s = _sum(where(equal(arange(n)[:, None], arange(n)[None, :]), r, 0.0), axis=1)
    return matmul(q, u * where(less(s, 0), -1.0, 1.0)[None, :]), _abs(s), v


def empty_svd(full):
    """svd, or full_svd, of matrices without columns."""

    def of(a):
        m, n = a.shape
        return eye(m, m if full else 0, dtype=a.dtype), _core.full(0.0, a.dtype, (0,)), eye(n, dtype=a.dtype)

    return of


@svd.defjvp
def _svd_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    u, s, v = svd(a)
    m, n = a.shape
    inner = matmul(matrix_transpose(u), matmul(da, v))
    ds = _sum(where(equal(arange(n)[:, None], arange(n)[None, :]), inner, 0.0), axis=1)
    between = _between(s * s)
    right = inner * s[None, :]
    left = s[:, None] * inner
    du = matmul(u, between * (right + matrix_transpose(right)))
    dv = matmul(v, between * (left + matrix_transpose(left)))
    if m > n:
        outside = matmul(da, v) - matmul(u, inner)
        du = du + outside / where(equal(s, 0), 1.0, s)[None, :]
    return (u, s, v), (du, ds, dv)


@custom_jvp
def full_svd(a):
    """The same with all m columns of U."""
    q, _ = householder(a)
    u, s, v = svd(a)
    return concat([u, q[:, a.shape[1] :]], axis=1), s, v


# The columns that complete the basis turn with the others, and not among themselves.
@full_svd.defjvp
def _full_svd_jvp(primals, tangents):
    (u, s, v), (du, ds, dv) = _svd_jvp(primals, tangents)
    rest = householder(primals[0])[0][:, primals[0].shape[1] :]
    drest = -matmul(u, matmul(matrix_transpose(du), rest))
    return (concat([u, rest], axis=1), s, v), (concat([du, drest], axis=1), ds, dv)


@custom_jvp
def pinv(a, tolerance):
    """Of one matrix; tolerance: of singular values, relative to the largest."""
    m, n = a.shape
    u, s, v = svd(a) if m >= n else svd(matrix_transpose(a))
    inverse = where(greater(s, tolerance * _max(s)), 1 / where(equal(s, 0), 1.0, s), 0.0)
    p = matmul(v * inverse[None, :], matrix_transpose(u))
    return p if m >= n else matrix_transpose(p)


# Golub and Pereyra, 1973.
@pinv.defjvp
def _pinv_jvp(primals, tangents):
    (a, tolerance), (da, _) = primals, tangents
    p = pinv(a, tolerance)
    t = matrix_transpose
    outside = t(da) - matmul(t(da), matmul(a, p))
    inside = t(da) - matmul(p, matmul(a, t(da)))
    return p, matmul(p, matmul(t(p), outside)) + matmul(inside, matmul(t(p), p)) - matmul(p, matmul(da, p))


@custom_jvp
def least_squares(a, b, u, s, v, tolerance):
    """The shortest x of least |a x - b|, of the factors of one a, which have no derivative here."""
    kept = greater(s, tolerance * _max(s))
    inverse = where(kept, 1 / where(kept, s, 1.0), 0.0)
    inverse = inverse if b.ndim == 1 else inverse[:, None]
    return matmul(v, inverse * matmul(matrix_transpose(u), b))


@least_squares.defjvp
def _least_squares_jvp(primals, tangents):
    (a, b, *factors), (da, db, *_) = primals, tangents
    t = matrix_transpose
    x, p = least_squares(a, b, *factors), pinv(a, factors[-1])
    rest = b - matmul(a, x)
    across = matmul(t(da), matmul(t(p), x))
    return x, matmul(p, db - matmul(da, x) + matmul(t(p), matmul(t(da), rest))) + across - matmul(p, matmul(a, across))


# Coefficients of the numerators of Pade approximants of exp; the denominators' are these with alternating signs. The bounds are up to which 1-norm
# their relative backward error is below the dtype's unit roundoff (Higham 2005, table 2.3, and 2.1 for single precision).
_PADE = {8: ((64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600, 670442572800, 33522128640,
              1323241920, 40840800, 960960, 16380, 182, 1), 5.371920351148152),
         4: ((17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1), 3.925724783138660)}  # fmt: skip
MOST_SQUARINGS = 64


def expm(a):
    """exp of one matrix, by scaling and squaring."""
    n = a.shape[0]
    if n == 0:
        return a
    coefficients, bound = _PADE[a.dtype.itemsize]
    size = _max(_sum(_abs(stop_gradient(a)), axis=0))
    halve = lambda carry: (carry[0] * 0.5, carry[1] * 0.5)  # noqa: E731
    size, factor = while_loop(lambda carry: greater(carry[0], bound), halve, (size, size * 0 + 1), max_steps=MOST_SQUARINGS)
    a = a * where(greater(size, bound), float("nan"), factor)
    unit, square = eye(n, dtype=a.dtype), matmul(a, a)
    # The odd and the even part as polynomials of the square, what lies above its third power as a multiple of that.
    powers = [unit, square, matmul(square, square)]
    powers.append(matmul(powers[2], square))

    def part(first, powers):
        return sum(float(c) * p for c, p in zip(coefficients[first::2], powers))

    odd, even = part(1, powers), part(0, powers)
    if len(coefficients) > 8:
        odd, even = odd + matmul(powers[3], part(9, powers[1:])), even + matmul(powers[3], part(8, powers[1:]))
    odd = matmul(a, odd)
    found = _core.solve(even - odd, even + odd)
    twice = lambda carry: (carry[0] * 2, matmul(carry[1], carry[1]))  # noqa: E731
    return while_loop(lambda carry: less(carry[0], 1.0), twice, (factor, found), max_steps=MOST_SQUARINGS)[1]
