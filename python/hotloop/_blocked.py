"""LU, Cholesky and triangular systems by blocks of columns (Golub and Van Loan, Matrix Computations, 4th ed., 3.2.11 and 4.2.9): what is left of a block
is products of matrices, so that a large matrix is done at their speed and not at that of memory.

A loop over blocks, so that a program's length does not grow with the matrix. Triangles are given as upper ones, `u`; whose blocks on the
diagonal are inverted first, all at once. Derivatives are those of the systems and factors, and not of the elimination.
"""

from hotloop import _core
from hotloop._control import scan
from hotloop._creation import arange, eye
from hotloop._elementwise import abs as _abs
from hotloop._elementwise import equal, greater, greater_equal, less, log, logical_or, sign, sqrt, where
from hotloop._linear import matmul
from hotloop._manipulation import dynamic_slice, dynamic_update, matrix_transpose, pad, reshape, scatter_add, take
from hotloop._reductions import argmax, prod
from hotloop._reductions import sum as _sum
from hotloop._transforms import custom_jvp, vmap

BLOCK = 16
SMALLEST = 33  # rows from which blocks are faster than one column after the other


def _block(n):
    return BLOCK if n >= SMALLEST else n


def _padded(a):
    """a with ones on the diagonal of rows and columns that fill a block."""
    n = a.shape[0]
    missing = -n % _block(n)
    if not missing:
        return a
    index = arange(n + missing)
    new = equal(index[:, None], index[None, :]) & greater_equal(index, n)[:, None]
    return where(new, 1.0, pad(a, ((0, missing), (0, missing))))


def _rows(a, k, n):
    return dynamic_slice(a, (k, 0), (n, a.shape[1]))


def _columns(a, k, n):
    return dynamic_slice(a, (0, k), (a.shape[0], n))


def _vector(x):
    return reshape(x, (x.shape[0] * x.shape[1],))


def _element(x, k):
    return reshape(dynamic_slice(x, (k,), (1,)), ())


def _starts(n):
    return arange(0, n, _block(n))


def _block_inverses(u):
    """Of the transposes of the blocks on u's diagonal: (blocks, rows of one, rows of one), lower triangles."""
    size = _block(u.shape[0])
    n = u.shape[0] // size
    index, within = arange(n), arange(size)
    parts = reshape(u, (n, size, n, size))
    own = _sum(where(equal(index[:, None], index[None, :])[:, None, :, None], parts, 0.0), axis=2)

    def inverse(u):
        def step(x, k):
            row = _vector(_rows(u, k, 1))
            found = _vector(_rows(x, k, 1)) / _element(row, k)
            below = where(greater(within, k), row, 0.0)
            return where(equal(within, k)[:, None], found[None, :], x - below[:, None] * found[None, :]), None

        return scan(step, eye(size, dtype=u.dtype), within)[0]

    return vmap(inverse)(own)


def _triangular(u, b, transposed):
    """x with u x = b, or with u^T x = b. u: (n, n), of whole blocks, zero below the diagonal; b: (n, k)."""
    inverses, size = _block_inverses(u), _block(u.shape[0])

    def step(x, xs):
        start, inverse = xs
        part = matrix_transpose(_columns(u, start, size)) if transposed else _rows(u, start, size)
        rest = _rows(b, start, size) - matmul(part, x)
        return dynamic_update(x, matmul(inverse if transposed else matrix_transpose(inverse), rest), (start, 0)), None

    return scan(step, _core.full(0.0, b.dtype, b.shape), (_starts(u.shape[0]), inverses), reverse=not transposed)[0]


def _padded_rows(b):
    n = b.shape[0]
    return pad(b, ((0, -n % _block(n)), (0, 0)))


def _factorize(a):
    """(L's transpose, U, the row that each came from): P a = L U. Rows keep their places until all are chosen."""
    n = a.shape[0]
    index, within = arange(n), arange(BLOCK)

    def block(carry, start):
        a, used = carry

        # The block lies on its side, so that a column is contiguous.
        def column(carry, k):
            panel, used = carry
            at_k = _vector(_rows(panel, k, 1))
            best = argmax(where(used, -1.0, _abs(at_k)))
            row = _vector(_columns(panel, best, 1))
            pivot = _element(row, k)
            used = logical_or(used, equal(index, best))
            # Below a pivot of zero all is zero: nothing is to be eliminated.
            factor = where(used, 0.0, at_k / where(equal(pivot, 0), 1.0, pivot))
            return (panel - row[:, None] * factor[None, :], used), (factor, best)

        (_, used), (factors, rows) = scan(column, (matrix_transpose(_columns(a, start, BLOCK)), used), within)
        own = where(equal(within[:, None], within[None, :]), 1.0, take(factors, rows, axis=1))
        u = matmul(_block_inverses(own)[0], take(a, rows, axis=0))
        u = where(greater_equal(index[None, :], start + within[:, None]), u, 0.0)
        return (a - matmul(matrix_transpose(factors), u), used), (factors, u, rows)

    _, (factors, u, rows) = scan(block, (a, less(index, 0)), _starts(n))
    rows = reshape(rows, (n,))
    lower = take(reshape(factors, (n, n)), rows, axis=1)
    return where(equal(index[:, None], index[None, :]), 1.0, lower), reshape(u, (n, n)), rows


def _parity(rows):
    """1 or -1: of how many pairs of rows that changed their order."""
    index = arange(rows.shape[0])
    swapped = less(index[:, None], index[None, :]) & greater(rows[:, None], rows[None, :])
    return 1 - 2 * (_sum(_core.cast(swapped, "int32")) % 2)


@custom_jvp
def _solve(a, b):
    lower, upper, rows = _factorize(a)
    return _triangular(upper, _triangular(lower, take(b, rows, axis=0), transposed=True), transposed=False)


@custom_jvp
def _solve_transposed(a, b):
    """x with a^T x = b, of the same factors."""
    lower, upper, rows = _factorize(a)
    x = _triangular(lower, _triangular(upper, b, transposed=True), transposed=False)
    return scatter_add(x * 0, rows, x)


def _flat(fn):
    return lambda values: [fn(*values)]


def _define_system(fn, transposed, name, matrix=lambda a: a):
    """The derivatives of x = fn(a, b), with matrix(a) x = b, and of the same with its transpose: those of the system, dx = a^-1 (db - da x)."""

    def define(fn, other, matrix):
        @fn.defjvp
        def rule(primals, tangents):
            (a, b), (da, db) = primals, tangents
            x = fn(a, b)
            return x, _core.linear_map(_flat(fn), _flat(other), [a], [db - matmul(matrix(da), x)], name)[0]

    define(fn, transposed, matrix)
    define(transposed, fn, lambda a: matrix_transpose(matrix(a)))
    transposed.share_order(fn)


_define_system(_solve, _solve_transposed, "solve")


def solve(a, b):
    """x with a x = b. a: (n, n); b: (n, k)."""
    return _solve(_padded(a), _padded_rows(b))[: b.shape[0]]


def slogdet(a):
    """(sign, logarithm of the absolute value) of a's determinant."""
    return _slogdet(_padded(a))


def det(a):
    return _det(_padded(a))


@custom_jvp
def _slogdet(a):
    _, upper, rows = _factorize(a)
    on_diagonal = _diagonal(upper)
    return _core.cast(_parity(rows), a.dtype) * prod(sign(on_diagonal)), _sum(log(_abs(on_diagonal)))


@_slogdet.defjvp
def _slogdet_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    value = _slogdet(a)
    inverse = _solve(a, eye(a.shape[0], dtype=a.dtype))
    return value, (value[0] * 0, _sum(matrix_transpose(inverse) * da))


def _diagonal(a):
    n = a.shape[0]
    return reshape(a, (n * n,))[:: n + 1]


@custom_jvp
def _det(a):
    _, upper, rows = _factorize(a)
    return _core.cast(_parity(rows), a.dtype) * prod(_diagonal(upper))


@_det.defjvp
def _det_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    value = _det(a)
    return value, value * _sum(matrix_transpose(_solve(a, eye(a.shape[0], dtype=a.dtype))) * da)


def _upper_factor(a):
    """u with u^T u = a, upper triangular, one row after the other."""
    index = arange(a.shape[0])

    def step(found, k):
        rest = _vector(_rows(a, k, 1)) - matmul(_vector(_columns(found, k, 1)), found)
        row = where(less(index, k), 0.0, rest / sqrt(_element(rest, k)))
        return where(equal(index, k)[:, None], row[None, :], found), None

    return scan(step, a * 0, index)[0]


@custom_jvp
def _substitute(u, b):
    """x with u x = b. u: zero below the diagonal."""
    return _triangular(u, b, transposed=False)


@custom_jvp
def _substitute_transposed(u, b):
    return _triangular(u, b, transposed=True)


def _upper(a):
    index = arange(a.shape[0])
    return where(less(index[None, :], index[:, None]), 0.0, a)


_define_system(_substitute, _substitute_transposed, "substitute", _upper)


def solve_triangular(u, b, transposed):
    """x with u x = b, or u^T x = b. Only the upper triangle of u is read. b: (n, k)."""
    return (_substitute_transposed if transposed else _substitute)(_padded(_upper(u)), _padded_rows(b))[: b.shape[0]]


def cholesky(a):
    """u with u^T u = a, upper triangular. a: symmetric."""
    n = a.shape[0]
    return _cholesky(_padded(a))[:n, :n]


@custom_jvp
def _cholesky(a):
    n = a.shape[0]
    index, within = arange(n), arange(BLOCK)

    def block(found, start):
        rest = _rows(a, start, BLOCK) - matmul(matrix_transpose(_columns(found, start, BLOCK)), found)
        own = _upper_factor(_columns(rest, start, BLOCK))
        rows = matmul(_block_inverses(own)[0], rest)
        return dynamic_update(found, where(less(index[None, :], start + within[:, None]), 0.0, rows), (start, 0)), None

    return scan(block, a * 0, _starts(n))[0]


# With u^T u = a: u^-T da u^-1 = w + w^T with w = du u^-1 upper (Murray, Differentiation of the Cholesky decomposition, 2016).
@_cholesky.defjvp
def _cholesky_jvp(primals, tangents):
    (a,), (da,) = primals, tangents
    u = _cholesky(a)
    half = _substitute_transposed(u, da)
    both = _substitute_transposed(u, matrix_transpose(half))
    index = arange(a.shape[0])
    w = where(greater(index[:, None], index[None, :]), 0.0, where(equal(index[:, None], index[None, :]), 0.5, 1.0) * both)
    return u, matmul(w, u)
