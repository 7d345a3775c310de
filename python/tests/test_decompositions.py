"""hl.linalg's orthogonal decompositions against NumPy, their derivatives against differences, and what they do in odd cases."""

import hotloop as hl
import numpy as np
import pytest

linalg = hl.linalg
SHAPES = [(1, 1), (4, 1), (3, 3), (7, 4), (4, 7), (2, 6, 5), (8, 8), (9, 9), (10, 14), (2, 14, 12), (33, 33), (64, 64)]


def t(x):
    return np.swapaxes(x, -1, -2)


def close(got, expected, scale):
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13 * scale * max(1, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype, scale", [(np.float64, 1), (np.float32, 1e9)])
def test_values_are_those_of_numpy(rng, shape, dtype, scale):
    a = rng.normal(size=shape).astype(dtype)
    exact, k = a.astype(np.float64), min(shape[-2:])
    for mode in ("reduced", "complete"):
        got = linalg.qr(a, mode=mode)
        assert got.Q.dtype == got.R.dtype == dtype
        for x, expected in zip(got, np.linalg.qr(exact, mode=mode), strict=True):
            close(x, expected, scale)
    values = np.linalg.svd(exact, compute_uv=False)
    close(linalg.svdvals(a), values, scale)
    for full in (True, False):
        u, s, vh = (np.asarray(x, np.float64) for x in linalg.svd(a, full_matrices=full))
        assert u.shape[-1] == (shape[-2] if full else k) and vh.shape[-2] == (shape[-1] if full else k)
        close(s, values, scale)
        close((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], exact, scale)
        close(t(u) @ u, np.broadcast_to(np.eye(u.shape[-1]), (*shape[:-2], u.shape[-1], u.shape[-1])), scale)
        close(vh @ t(vh), np.broadcast_to(np.eye(vh.shape[-2]), (*shape[:-2], vh.shape[-2], vh.shape[-2])), scale)
    close(linalg.pinv(a), np.linalg.pinv(exact), 20 * scale)
    assert np.all(np.asarray(linalg.matrix_rank(a)) == k)
    for ord in (2, -2, "nuc"):
        close(linalg.matrix_norm(a, ord=ord), np.linalg.norm(exact, ord, (-2, -1)), scale)
        assert linalg.matrix_norm(a, ord=ord, keepdims=True).shape == (*shape[:-2], 1, 1)


# Up to 6 rows are turned by Jacobi's rotations, more by sweeps over three diagonals.
@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, 7, 8, 12, 17, 33, 64])
@pytest.mark.parametrize("dtype, scale", [(np.float64, 1), (np.float32, 1e9)])
def test_symmetric_matrices(rng, n, dtype, scale):
    a = rng.normal(size=(2, n, n))
    a = (a + t(a)).astype(dtype)
    got = linalg.eigh(a)
    w, v = np.asarray(got.eigenvalues, np.float64), np.asarray(got.eigenvectors, np.float64)
    close(w, np.linalg.eigvalsh(a.astype(np.float64)), scale)
    close(linalg.eigvalsh(a), w, scale)
    close(a @ v, v * w[:, None, :], n * scale)
    close(t(v) @ v, np.broadcast_to(np.eye(n), (2, n, n)), scale)


def test_matrices_without_full_rank():
    ones = np.outer(np.arange(5.0), np.ones(3))
    half = np.random.default_rng(0).normal(size=(16, 8)) @ np.random.default_rng(1).normal(size=(8, 16))
    cases = ((ones, 1), (ones.T, 1), (np.zeros((4, 3)), 0), (np.diag([1.0, 1.0, 0.0]), 2), (np.ones((6, 6)), 1), (half, 8), (half[:, :12], 8), (half[:12], 8))
    for a, rank in (*cases, (np.zeros((16, 16)), 0), (np.ones((16, 16)), 1), (np.ones((20, 9)), 1), (np.diag([1.0, 0.0] * 8), 8)):
        u, s, vh = (np.asarray(x) for x in linalg.svd(a))
        close(u @ np.vstack([np.diag(s), np.zeros((len(u) - len(s), len(s)))])[:, : len(s)] @ vh[: len(s)], a, 10)
        close(u.T @ u, np.eye(len(u)), 10)
        assert int(linalg.matrix_rank(a)) == rank
        close(linalg.pinv(a), np.linalg.pinv(a), 10)
        close(linalg.qr(a).Q @ linalg.qr(a).R, a, 10)
    for n in (6, 7, 16):
        w, v = linalg.eigh(np.ones((n, n)))
        close(w, np.array([0.0] * (n - 1) + [n]), 10)
        close(t(np.asarray(v)) @ np.asarray(v), np.eye(n), 10)
    assert int(linalg.matrix_rank(np.diag([1.0, 0.1, 0.01]), rtol=0.05)) == 2


def test_small_singular_values_have_their_own_precision():
    a = np.diag([1.0, 1e-9, 1e-18]) @ np.array([[1.0, 1, 1], [0, 1, 1], [0, 0, 1]]) * np.array([1.0, 1.0, 1.0])
    product = np.prod(np.asarray(linalg.svdvals(a)))
    np.testing.assert_allclose(product, 1e-27, rtol=1e-13)  # the determinant


def symmetric_cases(n):
    rng = np.random.default_rng(n)
    a, q, beside = rng.normal(size=(n, n)), np.linalg.qr(rng.normal(size=(n, n)))[0], np.diag(np.ones(n - 1), 1)
    graded = np.outer(10.0 ** -np.arange(n), 10.0 ** -np.arange(n)) * (a + a.T)
    return {
        "zeros": np.zeros((n, n)),
        "unit": np.eye(n),
        "ones": np.ones((n, n)),
        "diagonal": np.diag(rng.normal(size=n)),
        "tridiagonal": np.diag(rng.normal(size=n)) + beside + beside.T,
        "zeros on the diagonal": beside + beside.T,
        "pairs that nearly agree": np.diag(np.abs(np.arange(n) - n // 2).astype(float)) + beside + beside.T,  # Wilkinson's
        "blocks": np.kron(np.eye(n), np.ones((2, 2)))[:n, :n],
        "a cluster": q @ np.diag(1 + 1e-6 * rng.normal(size=n)) @ q.T,
        "equal values": q @ np.diag(np.arange(n) % 3.0) @ q.T,
        "rank one": np.outer(a[0], a[0]),
        "graded": graded,
        "graded upwards": graded[::-1, ::-1],
        "large": (a + a.T) * 1e30,
        "small": (a + a.T) * 1e-30,
        "very large": (a + a.T) * 1e300,
        "very small": (a + a.T) * 1e-300,
    }


def precise(got, expected, dtype, units):
    np.testing.assert_allclose(got, expected, rtol=0, atol=units * np.finfo(dtype).eps)


@pytest.mark.parametrize("n", [2, 5, 6, 7, 9, 16, 33])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_odd_symmetric_matrices(n, dtype):
    for name, a in symmetric_cases(n).items():
        if "very" in name and dtype == np.float32:
            continue
        a = ((a + a.T) * 0.5).astype(dtype)
        w, v = (np.asarray(x) for x in linalg.eigh(a))
        np.testing.assert_array_equal(linalg.eigvalsh(a), w, err_msg=name)
        size = max(np.abs(a.astype(np.float64)).max(), np.finfo(dtype).tiny)
        a, w, v = a / size.astype(np.float64), w / size.astype(np.float64), v.astype(np.float64)
        expected = np.linalg.eigvalsh(a)
        norm = max(1.0, np.abs(expected).max())
        assert np.all(np.diff(w) >= 0)
        precise(w, expected, dtype, norm * (10 + n / 3))
        precise(a @ v, v * w, dtype, norm * (10 + n / 3))
        precise(v.T @ v, np.eye(n), dtype, 10 + n)


def rectangular_cases(m, n):
    rng = np.random.default_rng(m)
    a, unit, above = rng.normal(size=(m, n)), np.eye(m, n), np.eye(m, n, 1)
    left, right = np.linalg.qr(rng.normal(size=(m, m)))[0][:, :n], np.linalg.qr(rng.normal(size=(n, n)))[0]
    diagonal, columns, rows = rng.normal(size=n), 10.0 ** -np.arange(n), 10.0 ** -np.arange(m)[:, None]
    holes = [np.where(np.arange(n) == k, 0, diagonal) for k in (0, n // 2, n - 1)]
    return {
        "zeros": np.zeros((m, n)),
        "unit": unit,
        "ones": np.ones((m, n)),
        "diagonal": unit * diagonal,
        "bidiagonal": unit * diagonal + above,
        "a zero first": unit * holes[0] + above,
        "a zero inside": unit * holes[1] + above,
        "a zero last": unit * holes[2] + above,
        "nilpotent": above,
        "a cluster": left * (1 + 1e-6 * rng.normal(size=n)) @ right.T,
        "equal values": left * (np.arange(n) % 3) @ right.T,
        "half the rank": left * (np.arange(n) < n // 2) @ right.T,
        "rank one": np.outer(a[:, 0], a[0]),
        "graded columns": a * columns,
        "graded rows": rows * a,
        "graded": rows * a * columns,
        "graded upwards": (rows * a * columns)[::-1, ::-1],
        "small values that no diagonal shows": np.triu(unit - 0.9 * (unit == 0)) * 0.4 ** np.arange(m)[:, None],  # Kahan's
        "large": a * 1e30,
        "small": a * 1e-30,
        "very large": a * 1e300,
        "very small": a * 1e-300,
    }


@pytest.mark.parametrize("shape", [(2, 2), (8, 8), (9, 9), (16, 16), (20, 9), (33, 33)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_odd_matrices(shape, dtype):
    n = shape[1]
    for name, a in rectangular_cases(*shape).items():
        if "very" in name and dtype == np.float32:
            continue
        a = a.astype(dtype)
        u, s, vh = (np.asarray(x) for x in linalg.svd(a, full_matrices=False))
        np.testing.assert_array_equal(linalg.svdvals(a), s, err_msg=name)
        size = max(np.abs(a.astype(np.float64)).max(), np.finfo(dtype).tiny).astype(np.float64)
        a, u, s, vh = a / size, u.astype(np.float64), s / size, vh.astype(np.float64)
        expected = np.linalg.svd(a, compute_uv=False)
        norm = max(1.0, expected.max())
        assert s.min() >= 0
        precise(s, expected, dtype, norm * (10 + n / 3))
        precise(u * s @ vh, a, dtype, norm * (10 + n / 3))
        precise(u.T @ u, np.eye(n), dtype, 10 + n)
        precise(vh @ vh.T, np.eye(n), dtype, 10 + n)


@pytest.mark.parametrize("n", [9, 12, 33])
@pytest.mark.parametrize("above", [1.0, 10.0, 100.0])
def test_small_values_of_two_diagonals_have_their_own_precision(n, above):
    for diagonal in (np.ones(n), 10.0 ** -np.arange(n), 3.0 ** np.arange(n)):
        s = np.asarray(linalg.svdvals(np.diag(diagonal) + above * np.diag(diagonal[:-1], k=1)))
        np.testing.assert_allclose(np.sum(np.log(s)), np.sum(np.log(diagonal)), rtol=1e-13, atol=1e-12)  # of the determinant


@pytest.mark.parametrize("dtype, size", [(np.float32, 1e30), (np.float32, 1e-30), (np.float64, 1e300), (np.float64, 1e-300)])
def test_reflections_square_numbers_of_any_size(rng, dtype, size):
    for m, n in ((3, 3), (9, 7), (20, 16)):
        a = rng.normal(size=(m, n))
        for mode in ("reduced", "complete"):
            q, r = (np.asarray(x, np.float64) for x in linalg.qr((a * size).astype(dtype), mode=mode))
            precise(q.T @ q, np.eye(q.shape[1]), dtype, 10 + n)
            precise(q @ (r / size), a, dtype, 10 + n)


@pytest.mark.parametrize("n", [2, 8, 9, 16])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_singular_values_of_infinite_and_missing_numbers(rng, n, number):
    for place in ((0, 0), (0, n - 1), (n - 1, n - 1), (n - 1, 0), (slice(None), slice(None))):
        for extra in (0, 3):
            a = rng.normal(size=(n + extra, n))
            a[place] = number
            assert np.isnan(np.asarray(linalg.svdvals(a))).any()


@pytest.mark.parametrize("n", [2, 6, 7, 16])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_eigenvalues_of_infinite_and_missing_numbers(rng, n, number):
    a = rng.normal(size=(n, n))
    for place in ((0, 0), (0, n - 1), (slice(None), slice(None))):
        b = a + a.T
        b[place] = b.T[place] = number
        assert np.isnan(np.asarray(linalg.eigvalsh(b))).any()


def test_infinite_and_missing_numbers_end():
    assert np.isnan(np.asarray(linalg.eigvalsh(np.array([[np.nan, 1.0], [1.0, 2.0]])))).any()
    assert np.isnan(np.asarray(linalg.svdvals(np.array([[np.inf, 1.0], [1.0, 2.0]])))).any()


SQUARE, TALL, WIDE = (np.random.default_rng(k).normal(size=s) for k, s in ((1, (4, 4)), (2, (6, 4)), (3, (6, 6))))
PROGRAMS = {
    "eigh": ((4, 4), lambda x: (lambda r: hl.sum(hl.sin(r[0])) + hl.sum(r[1] ** 2 * SQUARE))(linalg.eigh(x))),
    "qr": ((6, 4), lambda x: (lambda r: hl.sum(r[0] * TALL) + hl.sum(r[1] ** 2 * SQUARE))(linalg.qr(x))),
    "qr of a wide matrix": ((4, 6), lambda x: (lambda r: hl.sum(r[0] * SQUARE) + hl.sum(r[1] ** 2 * TALL.T))(linalg.qr(x))),
    "complete qr": ((6, 4), lambda x: hl.sum(linalg.qr(x, mode="complete").R ** 2 * TALL)),
    "svd": ((6, 4), lambda x: (lambda r: hl.sum(hl.sin(r[1])) + hl.sum(r[0] ** 2 * TALL) + hl.sum(r[2] ** 2 * SQUARE))(linalg.svd(x, full_matrices=False))),
    "svd of a wide matrix": ((4, 6), lambda x: (lambda r: hl.sum(r[0] ** 2 * SQUARE) + hl.sum(r[2] ** 2 * TALL.T))(linalg.svd(x, full_matrices=False))),
    "full svd": ((6, 4), lambda x: (lambda u: hl.sum((u @ hl.matrix_transpose(u)) * WIDE))(linalg.svd(x).U[:, 4:])),
    "pinv": ((6, 4), lambda x: hl.sum(linalg.pinv(x) * TALL.T)),
    "pinv of a wide matrix": ((4, 6), lambda x: hl.sum(linalg.pinv(x) * TALL)),
    "norms": ((4, 6), lambda x: linalg.matrix_norm(x, ord="nuc") + linalg.matrix_norm(x, ord=2)),
}


SQUARE12 = np.random.default_rng(4).normal(size=(12, 12))
TALL12, SVD12 = np.random.default_rng(5).normal(size=(14, 12)), lambda x: linalg.svd(x, full_matrices=False)
PROGRAMS["svd of twelve columns"] = (
    (14, 12),
    lambda x: (lambda r: hl.sum(hl.sin(r[1])) + hl.sum(r[0] ** 2 * TALL12) + hl.sum(r[2] ** 2 * SQUARE12))(SVD12(x)),
)
PROGRAMS["svd of twelve rows"] = ((12, 12), lambda x: (lambda r: hl.sum(r[0] ** 2 * SQUARE12) + hl.sum(r[2] ** 2 * SQUARE12.T))(SVD12(x)))
PROGRAMS["norms of twelve rows"] = ((12, 14), lambda x: linalg.matrix_norm(x, ord="nuc") + linalg.matrix_norm(x, ord=2))
PROGRAMS["pinv of twelve columns"] = ((14, 12), lambda x: hl.sum(linalg.pinv(x) * TALL12.T))
PROGRAMS["eigh of twelve rows"] = ((12, 12), lambda x: (lambda r: hl.sum(hl.sin(r[0])) + hl.sum(r[1] ** 2 * SQUARE12))(linalg.eigh(x)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_are_the_differences(rng, name):
    shape, f = PROGRAMS[name]
    x, d, h = rng.normal(size=shape), rng.normal(size=shape), 1e-5
    value, gradient = hl.jit(f), hl.jit(hl.grad(f))
    slope = (float(value(x + h * d)) - float(value(x - h * d))) / (2 * h)
    np.testing.assert_allclose(np.sum(np.asarray(gradient(x)) * d), slope, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(hl.jit(lambda x, d: hl.jvp(f, (x,), (d,))[1])(x, d), slope, rtol=1e-6, atol=1e-7)
    second = hl.jit(hl.grad(lambda y: hl.sum(hl.grad(f)(y) * d)))(x)
    change = (np.asarray(gradient(x + h * d)) - np.asarray(gradient(x - h * d))) / (2 * h)
    np.testing.assert_allclose(second, change, rtol=1e-5, atol=1e-5 * np.abs(change).max())


def test_equal_eigenvalues_have_a_derivative_where_their_vectors_do_not_matter():
    x = np.diag([1.0, 1.0, 3.0])
    gradient = hl.grad(lambda x: hl.sum(linalg.eigvalsh(x) ** 2))(x)  # the square of the Frobenius norm
    np.testing.assert_allclose(gradient, 2 * x, atol=1e-14)


def test_a_batch_is_one_loop_and_gives_each_matrix_its_bits(rng):
    a = rng.normal(size=(9, 5, 5)).astype(np.float32)
    together = np.asarray(linalg.svdvals(a))
    for one, expected in zip(a, together):
        np.testing.assert_array_equal(linalg.svdvals(one), expected)
    np.testing.assert_array_equal(hl.jit(hl.vmap(linalg.svdvals))(a), together)
    assert "1 kernel" in hl.explain(lambda x: linalg.eigh(x), a)


@pytest.mark.parametrize("n", [6, 7, 12, 33, 64])
@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_a_matrix_in_a_batch_has_the_bits_of_one_alone(rng, name, n):
    f = getattr(linalg, name)
    a = rng.normal(size=(21, n, n)).astype(np.float32)
    a[3], a[4], a[5, 0] = 0, np.eye(n), np.nan  # done at once, and never
    together = f(a)
    for i in (*range(6), 13, 20):
        for one, all_ in zip(f(a[i]), together, strict=True):
            np.testing.assert_array_equal(one, np.asarray(all_)[i])
    for alone, all_ in zip(hl.jit(hl.vmap(f))(a), together, strict=True):
        np.testing.assert_array_equal(alone, all_)


def test_values_alone_turn_no_vectors():
    a = np.ones((40, 40), np.float32)
    with_rows_around = f"f32 x {48 * 40} "
    for values, both in ((linalg.eigvalsh, linalg.eigh), (linalg.svdvals, linalg.svd)):
        assert with_rows_around in hl.executable(hl.jit(lambda x, both=both: tuple(both(x))), a).kernel_text()
        assert with_rows_around not in hl.executable(hl.jit(values), a).kernel_text()


def test_bad_arguments():
    with pytest.raises(hl.UserError, match=r"\[qr\] mode must be"):
        linalg.qr(np.ones((2, 2)), mode="r")
    with pytest.raises(hl.UserError, match=r"\[eigh\] the argument must be square"):
        linalg.eigh(np.ones((2, 3)))
    with pytest.raises(hl.UserError, match=r"\[svd\] the elements must be floats"):
        linalg.svd(np.ones((2, 3), np.int32))
