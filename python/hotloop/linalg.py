"""Linear algebra of small dense matrices, under the names of the array API standard's `linalg` extension.

Matrices are the last two axes; the axes before them are a batch. Decompositions are inside the kernel (LU with row pivoting; Golub and
Van Loan, Matrix Computations, 4th ed., 3.4 and 4.2): systems of a few unknowns as straight code, a system in each lane of a vector,
larger ones as loops over columns or blocks of them, so that a program's length does not grow with the size of a matrix. All have derivatives of every order and can be mapped. A number tells that a matrix
has no solution: where NumPy raises LinAlgError the result holds inf or nan.
"""

import collections
import functools

from hotloop import _core, _decompositions, _names
from hotloop._creation import eye
from hotloop._dtypes import finfo, result_type
from hotloop._elementwise import abs as _abs
from hotloop._elementwise import greater, sqrt
from hotloop._elementwise import pow as _pow
from hotloop._linear import matmul, outer, tensordot, vecdot
from hotloop._manipulation import broadcast_to, concat, diagonal_of, matrix_transpose, permute_dims, reshape
from hotloop._op import checked_axes, checked_axis, integer, op
from hotloop._reductions import max as _max
from hotloop._reductions import min as _min
from hotloop._reductions import sum as _sum
from hotloop._transforms import stop_gradient, vmap

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "expm", "inv", "lstsq", "matmul", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def __dir__():
    return __all__


def __getattr__(name):
    raise _names.absent("hotloop.linalg", name, __all__, _names.LINALG, _names.IN_LINALG)


LstsqResult = collections.namedtuple("LstsqResult", ["x", "residuals", "rank", "singular_values"])
SlogdetResult = collections.namedtuple("SlogdetResult", ["sign", "logabsdet"])


def _matrix(where_, x, square=False):
    x = _core.to_tracer(x, where_)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        wanted = "square matrices, (..., n, n)" if square else "matrices, (..., m, n)"
        raise _core.UserError(f"[{where_}] the argument must be {wanted}. Received: {x._type}.")
    return x


def _float_matrix(where_, x, square=True):
    x = _matrix(where_, x, square)
    if x.dtype.kind != "f":
        raise _core.UserError(f"[{where_}] the elements must be floats. Received: {x._type}. Try: hl.astype(x, hl.float32).")
    return x


def _each(fn, *arrays):
    """fn of single matrices over the common leading axes of `arrays`, each given with its number of own axes."""
    shapes = [x.shape[: x.ndim - own] for x, own in arrays]
    batch = ()
    for shape in shapes:
        longer, shorter = (batch, shape) if len(batch) >= len(shape) else (shape, batch)
        shorter = (1,) * (len(longer) - len(shorter)) + shorter
        if any(a != b and 1 not in (a, b) for a, b in zip(longer, shorter)):
            raise _core.UserError(f"[linalg] leading axes must broadcast. Received: {' and '.join(x._type for x, _ in arrays)}.")
        batch = tuple(b if a == 1 else a for a, b in zip(longer, shorter))
    if not batch:
        return fn(*(x for x, _ in arrays))
    size = 1
    for n in batch:
        size *= n
    flat = [reshape(broadcast_to(x, (*batch, *x.shape[x.ndim - own :])), (size, *x.shape[x.ndim - own :])) for x, own in arrays]
    result = vmap(fn)(*flat)
    restore = lambda y: reshape(y, (*batch, *y.shape[1:]))  # noqa: E731
    return tuple(restore(y) for y in result) if isinstance(result, tuple) else restore(result)


@op(2)
def solve(x1, x2, /):
    """x with x1 @ x = x2. x1: (..., n, n); x2: (n,), or (..., n, k). A matrix that cannot be inverted gives inf or nan.

    Errors: UserError for integers, and shapes that do not fit. By LU with row pivoting; the derivative is the system's own.
    """
    return _system("solve", _core.solve, x1, x2)


def _system(where_, fn, x1, x2):
    """fn of single systems over batches."""
    x1 = _float_matrix(where_, x1)
    x2 = _core.to_tracer(x2, where_)
    if x2.ndim == 0 or x2.shape[0 if x2.ndim == 1 else -2] != x1.shape[-1]:
        raise _core.UserError(
            f"[{where_}] the right side must be (n,) or (..., n, k) for a matrix (..., n, n). Received: {x1._type} and {x2._type}."
        )
    dtype = result_type(x1, x2)
    return _each(fn, (_core.cast(x1, dtype), 2), (_core.cast(x2, dtype), min(x2.ndim, 2)))


@op(2)
def solve_triangular(x1, x2, /, *, upper=None, lower=None):
    """x with x1 @ x = x2 for a triangular x1 (..., n, n); the other triangle is not read. x2: (n,), or (..., n, k). With the Cholesky factor
    of a matrix it solves its systems: L, then the transpose of L.

    upper=True or lower=True: which triangle. One of them is to be said, as functions of this name differ in what they take by themselves.
    """
    if (upper is None) == (lower is None):
        received = "none" if upper is None else "both"
        raise _core.UserError(f"[solve_triangular] either upper or lower says which triangle is meant. Received: {received}. Try: lower=True with a factor of cholesky().")
    is_upper = bool(upper) if lower is None else not lower
    return _system("solve_triangular", lambda a, b: _core.solve_triangular(a, b, is_upper), x1, x2)


@op(1)
def inv(x, /):
    """The inverse. x: (..., n, n). Where it is to be multiplied with, solve() is faster and more exact."""
    x = _float_matrix("inv", x)
    return _each(lambda a: _core.solve(a, eye(a.shape[0], dtype=a.dtype)), (x, 2))


@op(1)
def det(x, /):
    """The determinant: (...) of (..., n, n). Its derivative is the matrix of cofactors, of singular matrices too."""
    x = _float_matrix("det", x)
    return _each(_core.det, (x, 2))


@op(1)
def slogdet(x, /):
    """(sign, logarithm of the absolute value) of the determinant, which itself may overflow: each (...) of (..., n, n)."""
    return SlogdetResult(*_each(lambda a: tuple(_core.slogdet(a)), (_float_matrix("slogdet", x), 2)))


@op(1)
def cholesky(x, /, *, upper=False):
    """L with L @ L.T = x, lower triangular; with `upper` its transpose. x: (..., n, n), symmetric (its symmetric part is taken) and
    positive definite: another one gives nan."""
    x = _float_matrix("cholesky", x)
    found = _each(_core.cholesky, ((x + matrix_transpose(x)) * 0.5, 2))
    return matrix_transpose(found) if upper else found


@op(1)
def eigh(x, /):
    """(eigenvalues, ascending (..., n); eigenvectors in columns (..., n, n)), a named tuple. x: (..., n, n), symmetric (its symmetric
    part is taken). By Jacobi's rotations up to six rows, by reflections to three diagonals and QL with implicit shifts above. Values are exact to the dtype's
    precision times the largest. Where a matrix has nan or inf, values are nan. Signs of vectors are not defined, and where values are equal neither are the vectors: the
    derivative leaves out what turns them into each other."""
    x = _float_matrix("eigh", x)
    return _decompositions.EighResult(*_each(_decompositions.eigh, ((x + matrix_transpose(x)) * 0.5, 2)))


@op(1)
def expm(x, /):
    """The exponential of matrices: I + x + x @ x / 2 + ..., (..., n, n) of (..., n, n). What expm(t * x) @ y0 gives solves y' = x @ y exactly.

    By scaling and squaring (Higham, The scaling and squaring method for the matrix exponential revisited, SIAM J. Matrix Anal. Appl. 2005): halved
    until its 1-norm allows for a Pade approximant of degree 13 (f32: 7), which is then squared as often, each matrix of a batch by its own
    norm. Derivatives of every order are those of these steps. Not finite elements give nan, and so does a norm of 2**64 and more.
    """
    return _each(_decompositions.expm, (_float_matrix("expm", x), 2))


@op(1)
def eigvalsh(x, /):
    """The eigenvalues of eigh alone: (..., n)."""
    x = _float_matrix("eigvalsh", x)
    return _each(lambda a: _decompositions.eigh(a)[0], ((x + matrix_transpose(x)) * 0.5, 2))


@op(1)
def qr(x, /, *, mode="reduced"):
    """(Q, R), a named tuple, with Q @ R = x, Q's columns orthonormal and R upper triangular. x: (..., m, n); "reduced": (..., m, k) and
    (..., k, n) with k the smaller of m and n; "complete": (..., m, m) and (..., m, n). By Householder's reflections, with LAPACK's signs.
    The derivative wants columns that are independent."""
    if mode not in ("reduced", "complete"):
        raise _core.UserError(f"[qr] mode must be 'reduced' or 'complete'. Received: {mode!r}.")
    return _decompositions.QRResult(*_each(lambda a: _decompositions.qr(a, mode == "complete"), (_float_matrix("qr", x, square=False), 2)))


def _svd(where_, x, full=False):
    """U, S, V of matrices that may lie on their side."""
    x = _float_matrix(where_, x, square=False)
    m, n = x.shape[-2:]
    of = _decompositions.empty_svd(full) if 0 in (m, n) else _decompositions.full_svd if full and m != n else _decompositions.svd
    if m >= n:
        return _each(of, (x, 2))
    v, s, u = _each(of, (matrix_transpose(x), 2))
    return u, s, v


@op(1)
def svd(x, /, *, full_matrices=True):
    """(U, S, Vh), a named tuple, with U[..., :k] * S @ Vh[..., :k, :] = x, k the smaller of m and n. x: (..., m, n); S (..., k)
    descends. U (..., m, m) and Vh (..., n, n) are orthogonal, without `full_matrices` (..., m, k) and (..., k, n). Up to eight
    columns (of x or its transpose, the fewer) by one-sided Jacobi, which finds small values too to their own precision; above by reflections to two
    diagonals and QR sweeps of Demmel and Kahan, exact to the dtype's precision times the largest value, and to their own where x has numbers on its
    diagonal and the one above alone. Where a matrix has nan or inf, values are nan. Derivatives as of eigh."""
    u, s, v = _svd("svd", x, full_matrices)
    return _decompositions.SVDResult(u, s, matrix_transpose(v))


@op(1)
def svdvals(x, /):
    """The singular values, descending: (..., k) of (..., m, n), k the smaller of m and n."""
    return _svd("svdvals", x)[1]


def _tolerance(x, rtol):
    return float(max(x.shape[-2:]) * finfo(x.dtype).eps) if rtol is None else rtol


@op(1, ["rtol"])
def matrix_rank(x, /, *, rtol=None):
    """How many singular values are greater than rtol (None: max(m, n) times the dtype's precision) times the largest: int32 (...)."""
    x = _float_matrix("matrix_rank", x, square=False)
    s = svdvals(x)
    if s.shape[-1] == 0:
        return _core.cast(_core.full(0.0, "int32", s.shape[:-1]), "int32")
    return _sum(_core.cast(greater(s, _tolerance(x, rtol) * _max(s, axis=-1, keepdims=True)), "int32"), axis=-1)


@op(1, ["rtol"])
def pinv(x, /, *, rtol=None):
    """Moore and Penrose's inverse (..., n, m) of (..., m, n). Singular values up to rtol (None: max(m, n) times the dtype's precision)
    times the largest count as zero. The derivative is the inverse's own, right where the rank does not change."""
    x = _float_matrix("pinv", x, square=False)
    if 0 in x.shape[-2:]:
        return matrix_transpose(x)
    return _each(lambda a: _decompositions.pinv(a, _core.full(_tolerance(x, rtol), x.dtype, ())), (x, 2))


@op(2, ["rtol"])
def lstsq(x1, x2, /, *, rtol=None):
    """(x, residuals, rank, singular_values), a named tuple: the x of least |x1 @ x - x2|, the shortest of them where there are several.

    x1: (..., m, n), of any rank; x2: (m,), or (..., m, k). x: (n,) or (..., n, k); residuals: the sums of squares that are left, () or (..., k), also where NumPy leaves them out;
    rank: int32 (...). Singular values up to rtol (None: max(m, n) times the dtype's precision) times the largest count as zero. By the singular value decomposition. The derivative of x
    is right where the rank does not change. For a tall x1 of full rank, solve() of x1.mT @ x1 is faster, and less exact.
    """
    x1, x2 = _float_matrix("lstsq", x1, square=False), _core.to_tracer(x2, "lstsq")
    m, n = x1.shape[-2:]
    if x2.ndim == 0 or x2.shape[0 if x2.ndim == 1 else -2] != m:
        raise _core.UserError(f"[lstsq] the right side must be (m,) or (..., m, k) for a matrix (..., m, n). Received: {x1._type} and {x2._type}.")
    dtype, own = result_type(x1, x2), min(x2.ndim, 2)
    x1, x2 = _core.cast(x1, dtype), _core.cast(x2, dtype)
    rtol = _core.full(_tolerance(x1, rtol), dtype, ())

    def solved(a, b):
        if 0 in (m, n):
            s = _core.full(0.0, dtype, (0,))
            x, rank = _core.cast(_core.full(0.0, dtype, (n, *b.shape[1:])), dtype), _core.cast(_core.full(0.0, "int32", ()), "int32")
        else:
            u, s, v = _svd("lstsq", a)
            x = _decompositions.least_squares(a, b, *(stop_gradient(f) for f in (u, s, v)), rtol)
            rank = _sum(_core.cast(greater(s, rtol * _max(s)), "int32"))
        rest = b - matmul(a, x)
        return x, _sum(rest * rest, axis=0), rank, s

    return LstsqResult(*_each(solved, (x1, 2), (x2, own)))


@op(1)
def cond(x, /, p=None):
    """The condition number (...) of (..., m, n): the largest over the smallest singular value (p None or 2; the reverse: -2), or of square matrices matrix_norm(x) * matrix_norm(inv(x))
    of the order p: "fro", "nuc", 1, -1, inf, -inf. Infinite, or nan, for a matrix without an inverse."""
    x = _float_matrix("cond", x, square=p not in (None, 2, -2))
    if 0 in x.shape[-2:]:
        raise _core.UserError(f"[cond] matrices must have elements. Received: {x._type}.")
    if p in (None, 2, -2):
        s = svdvals(x)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    return matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)


@op(1)
def multi_dot(arrays, /):
    """The product of two or more matrices, in the order that takes the fewest multiplications; the first and the last may be vectors. arrays: a list."""
    arrays = [_core.to_tracer(x, "multi_dot") for x in arrays] if isinstance(arrays, (list, tuple)) else []
    ranks = [x.ndim for x in arrays]
    fits = len(arrays) >= 2 and all(r == 2 for r in ranks[1:-1]) and all(r in (1, 2) for r in ranks)
    if not fits or any(a.shape[-1] != b.shape[0] for a, b in zip(arrays, arrays[1:])):
        received = ", ".join(x._type for x in arrays) or "none"
        raise _core.UserError(f"[multi_dot] there must be a list of two or more matrices that fit each other; the first and the last may be vectors. Received: {received}.")
    extents = [1 if ranks[0] == 1 else arrays[0].shape[0], *(x.shape[0] for x in arrays[1:]), 1 if ranks[-1] == 1 else arrays[-1].shape[1]]

    @functools.cache
    def cheapest(first, last):
        """(multiplications, where to part) of arrays first .. last - 1."""
        if last - first == 1:
            return 0, None
        ends = extents[first] * extents[last]
        return min((cheapest(first, k)[0] + cheapest(k, last)[0] + ends * extents[k], k) for k in range(first + 1, last))

    def product(first, last):
        k = cheapest(first, last)[1]
        return arrays[first] if k is None else matmul(product(first, k), product(k, last))

    return product(0, len(arrays))


@op(1)
def diagonal(x, /, *, offset=0):
    """The elements x[..., i, i + offset]: (..., number of them)."""
    return diagonal_of(_matrix("diagonal", x), integer("diagonal", "offset", offset))


@op(1)
def trace(x, /, *, offset=0, dtype=None):
    """The sum of the diagonal: (...) of (..., m, n)."""
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@op(1)
def matrix_power(x, n, /):
    """x @ x @ ..., n times; of the inverse for a negative n. x: (..., n, n); the exponent is an integer that is known."""
    x = _float_matrix("matrix_power", x)
    if not isinstance(n, int):
        raise _core.UserError(f"[matrix_power] the exponent must be an integer. Received: {n!r}.")
    x, n = (inv(x), -n) if n < 0 else (x, n)
    result = None
    while n:
        if n % 2:
            result = x if result is None else matmul(result, x)
        x, n = matmul(x, x) if n > 1 else x, n // 2
    return broadcast_to(eye(x.shape[-1], dtype=x.dtype), x.shape) if result is None else result


def _norm(x, ord, axes, keepdims):
    if ord == 2:
        return sqrt(_sum(x * x, axis=axes, keepdims=keepdims))
    size = _abs(x)
    if ord in (float("inf"), float("-inf")):
        return (_max if ord > 0 else _min)(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return _sum(_core.cast(greater(size, 0), x.dtype), axis=axes, keepdims=keepdims)
    if ord == 1:
        return _sum(size, axis=axes, keepdims=keepdims)
    return _pow(_sum(_pow(size, ord), axis=axes, keepdims=keepdims), 1 / ord)


@op(1)
def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """(sum of |x|**ord) ** (1 / ord) along `axis` (None: over all elements); inf and -inf: largest and smallest; 0: how many are not 0."""
    x = _core.to_tracer(x, "vector_norm")
    if x.dtype.kind != "f":
        x = _core.cast(x, "float32")
    return _norm(x, ord, tuple(checked_axes("vector_norm", axis, x.ndim)), keepdims)


@op(1)
def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """A norm of the matrices (..., m, n): "fro"; 1, -1, inf, -inf: the largest or smallest sum of a column, of a row; 2, -2: the largest
    or smallest singular value; "nuc": their sum."""
    x = _float_matrix("matrix_norm", x, square=False)
    if ord == "fro":
        return _norm(x, 2, (x.ndim - 2, x.ndim - 1), keepdims)
    if ord in (2, -2, "nuc"):
        result = (_sum if ord == "nuc" else _max if ord > 0 else _min)(svdvals(x), axis=-1)
        return reshape(result, (*result.shape, 1, 1)) if keepdims else result
    if ord not in (1, -1, float("inf"), float("-inf")):
        raise _core.UserError(f"[matrix_norm] ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf. Received: {ord!r}.")
    summed = -2 if abs(ord) == 1 else -1
    sums = _sum(_abs(x), axis=summed, keepdims=True)
    largest = (_max if ord > 0 else _min)(sums, axis=-1 if summed == -2 else -2, keepdims=True)
    return largest if keepdims else reshape(largest, x.shape[:-2])


@op(1)
def norm(x, /, ord=None, axis=None, keepdims=False):
    """NumPy's norm: vector_norm of all elements or along an axis, matrix_norm along two."""
    x = _core.to_tracer(x, "norm")
    if axis is None and ord is not None and x.ndim == 2:
        axis = (0, 1)
    if isinstance(axis, (tuple, list)) and len(axis) == 2:
        if ord in (None, "fro"):
            return vector_norm(x, axis=tuple(axis), keepdims=keepdims)
        axes = [checked_axis("norm", a, x.ndim) for a in axis]
        rest = [a for a in range(x.ndim) if a not in axes]
        result = matrix_norm(permute_dims(x, (*rest, *axes)), ord=ord)
        return reshape(result, [1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else result
    return vector_norm(x, axis=axis, keepdims=keepdims, ord=2 if ord is None else ord)


@op(2)
def cross(x1, x2, /, *, axis=-1):
    """The cross product of vectors of three elements along `axis`."""
    x1, x2 = _core.to_tracer(x1, "cross"), _core.to_tracer(x2, "cross")
    if any(x.shape[checked_axis("cross", axis, x.ndim)] != 3 for x in (x1, x2)):
        raise _core.UserError(f"[cross] vectors must have three elements. Received: {x1._type} and {x2._type} along axis {axis}.")
    # Column by column: each is read and written as it lies, also on the way back.
    columns = lambda x: [x[(slice(None),) * checked_axis("cross", axis, x.ndim) + (slice(k, k + 1),)] for k in range(3)]  # noqa: E731
    a, b = columns(x1), columns(x2)
    return concat([a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))], axis=axis)
