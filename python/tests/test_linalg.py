"""hl.linalg against NumPy, its derivatives against JAX (recorded: scripts/record_linalg.py), and the structure of its programs."""

import importlib.util
import json
import pathlib
import re

import hotloop as hl
import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
_spec = importlib.util.spec_from_file_location("linalg_programs", HERE / "linalg_programs.py")
programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)
RECORDED = json.loads((HERE / "data" / "jax_linalg.json").read_text())

SHAPES = [(1, 1), (2, 2), (5, 5), (3, 4, 4), (2, 3, 6, 6), (7, 7), (5, 9, 9), (33, 33), (45, 45), (2, 48, 48)]  # all sides of what is unrolled, and of blocks


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype, scale", [(np.float64, 1), (np.float32, 3e8)])
def test_values_are_those_of_numpy(shape, dtype, scale):
    a = (programs.matrices(3, *shape) + 2 * np.eye(shape[-1])).astype(dtype)
    b = programs.matrices(4, *shape[:-1], 2).astype(dtype)
    exact = a.astype(np.float64)
    p = programs.positive(5, *shape).astype(dtype)
    for got, expected in [
        (hl.linalg.solve(a, b), np.linalg.solve(exact, b)),
        (hl.linalg.inv(a), np.linalg.inv(exact)),
        (hl.linalg.det(a), np.linalg.det(exact)),
        (hl.linalg.slogdet(a)[0], np.linalg.slogdet(exact)[0]),
        (hl.linalg.slogdet(a)[1], np.linalg.slogdet(exact)[1]),
        (hl.linalg.cholesky(p), np.linalg.cholesky(p.astype(np.float64))),
        (hl.linalg.cholesky(p, upper=True), np.swapaxes(np.linalg.cholesky(p.astype(np.float64)), -1, -2)),
        (hl.linalg.solve_triangular(np.tril(p) + np.triu(a, 1), b, lower=True), np.linalg.solve(np.tril(p), b.astype(np.float64))),
        (hl.linalg.solve_triangular(np.triu(p) + np.tril(a, -1), b, upper=True), np.linalg.solve(np.triu(p), b.astype(np.float64))),
        (hl.linalg.matrix_power(a, 3), np.linalg.matrix_power(exact, 3)),
        (hl.linalg.matrix_power(a, 0), np.linalg.matrix_power(exact, 0)),
        (hl.linalg.matrix_power(a, -2), np.linalg.matrix_power(exact, -2)),
    ]:
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=1e-12 * scale, atol=1e-12 * scale * np.abs(expected).max())


def test_the_right_side_broadcasts():
    a, v, b = programs.matrices(1, 3, 4, 4), programs.matrices(2, 4), programs.matrices(3, 4, 2)
    np.testing.assert_allclose(hl.linalg.solve(a, b), np.linalg.solve(a, b))
    np.testing.assert_allclose(hl.linalg.solve(a[0], v), np.linalg.solve(a[0], v))
    np.testing.assert_allclose(hl.linalg.solve(a, v), np.stack([np.linalg.solve(m, v) for m in a]))


@pytest.mark.parametrize("offset", range(-4, 6))
def test_diagonals_and_traces(offset):
    a = programs.matrices(1, 2, 4, 5)
    np.testing.assert_array_equal(hl.linalg.diagonal(a, offset=offset), np.diagonal(a, offset, -2, -1))
    np.testing.assert_allclose(hl.linalg.trace(a, offset=offset), np.trace(a, offset, -2, -1), atol=1e-15)


def test_norms_and_products():
    a, v = programs.matrices(1, 4, 3), programs.matrices(2, 5)
    for ord in (None, "fro", 1, -1, np.inf, -np.inf):
        np.testing.assert_allclose(hl.linalg.norm(a, ord), np.linalg.norm(a, ord))
        np.testing.assert_allclose(hl.linalg.norm(a, ord, axis=(1, 0), keepdims=True), np.linalg.norm(a, ord, axis=(1, 0), keepdims=True))
    for ord in (None, 0, 1, 2, 3, np.inf, -np.inf):
        np.testing.assert_allclose(hl.linalg.norm(v, ord), np.linalg.norm(v, ord))
        np.testing.assert_allclose(hl.linalg.norm(a, ord, axis=0), np.linalg.norm(a, ord, axis=0))
    np.testing.assert_allclose(hl.linalg.vector_norm(a), np.linalg.norm(a.ravel()))
    np.testing.assert_allclose(hl.linalg.cross(a, a[::-1]), np.cross(a, a[::-1]))
    np.testing.assert_allclose(hl.linalg.cross(a, a[0]), np.cross(a, a[0]))  # of all rows with one
    np.testing.assert_allclose(hl.linalg.cross(a.T, a.T[:, ::-1], axis=0), np.cross(a.T, a.T[:, ::-1], axis=0))
    c = programs.matrices(3, 4, 3)
    slopes = hl.grad(lambda x: (hl.linalg.cross(x, a) * c).sum())(c)
    np.testing.assert_allclose(slopes, np.cross(a, c))  # (x cross a) c = (a cross c) x
    np.testing.assert_array_equal(hl.linalg.matrix_transpose(a), a.T)
    np.testing.assert_allclose(hl.linalg.matmul(a.T, a), a.T @ a)
    np.testing.assert_allclose(hl.linalg.outer(v, v), np.outer(v, v))
    np.testing.assert_allclose(hl.linalg.vecdot(a, a), (a * a).sum(-1))


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_derivatives_are_those_of_jax(name):
    program, arguments = programs.PROGRAMS[name]
    results = hl.jit(program(hl, hl))(*arguments)
    results = [np.asarray(r) for r in (results if isinstance(results, (tuple, list)) else [results])]
    assert len(results) == len(RECORDED[name])
    for got, expected in zip(results, RECORDED[name]):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("n", [4, 8])
def test_high_orders(n):
    """Of x(t) = (A + t I)^-1 v along t: (-1)^k k! A^-(k+1) v."""
    a, v = programs.matrices(3, n, n) + 3 * np.eye(n), programs.matrices(2, n)
    inverse, expected, along = np.linalg.inv(a), v, lambda m: hl.linalg.solve(m, v)
    for order in range(1, 5):
        along = (lambda f: lambda m: hl.jvp(f, (m,), (np.eye(n),))[1])(along)
        expected = -order * (inverse @ (expected if order > 1 else inverse @ v))
        np.testing.assert_allclose(hl.jit(along)(a), expected, rtol=1e-9)


@pytest.mark.parametrize("n", [3, 5, 8, 40])
def test_a_batch_gives_the_bits_of_each(n):
    a, b = programs.matrices(1, 37, n, n).astype(np.float32), programs.matrices(2, 37, n, 3).astype(np.float32)
    together = np.asarray(hl.linalg.solve(a, b))
    for i in (0, 17, 36):
        np.testing.assert_array_equal(together[i], hl.linalg.solve(a[i : i + 1], b[i : i + 1])[0])
        if n < 33:  # a matrix that has no batch may add up its products in another order
            np.testing.assert_array_equal(together[i], hl.linalg.solve(a[i], b[i]))


@pytest.mark.parametrize("n", [20, 36, 64])  # column by column, in blocks, in whole blocks
@pytest.mark.parametrize(
    "loss",
    [
        lambda a: hl.sin(hl.linalg.solve(a, hl.linspace(-1, 1, a.shape[0], dtype="float64"))).sum(),
        lambda a: hl.linalg.slogdet(a)[1],
        lambda a: hl.linalg.det(a / 2),
        lambda a: hl.sin(hl.linalg.cholesky(a)).sum(),
        lambda a: hl.sin(hl.linalg.solve_triangular(a, a[:, :3], lower=True)).sum(),
        lambda a: hl.sin(hl.linalg.solve_triangular(a, a[:, :3], upper=True)).sum(),
    ],
)
def test_both_orders_in_both_modes(n, loss):
    """Against differences of values, and of gradients."""
    a = programs.positive(3, n, n) / n
    d = programs.matrices(4, n, n)
    d, step = d + d.T, 1e-5
    differences = lambda f: (float(f(a + step * d)) - float(f(a - step * d))) / (2 * step)  # noqa: E731
    slope = hl.jit(lambda a: (hl.grad(loss)(a) * d).sum())
    expected, second = differences(hl.jit(loss)), differences(slope)
    np.testing.assert_allclose([slope(a), hl.jit(lambda a: hl.jvp(loss, (a,), (d,))[1])(a)], expected, rtol=1e-6)
    np.testing.assert_allclose([(hl.grad(slope)(a) * d).sum(), hl.jvp(slope, (a,), (d,))[1]], second, rtol=1e-6)


@pytest.mark.parametrize("n", [20, 40, 72, 100])
def test_residuals_are_those_of_elimination(n):
    """Backward errors of f32, also where a matrix is nearly singular; what is not read may be anything."""
    left, right = (np.linalg.qr(programs.matrices(seed, n, n))[0] for seed in (1, 2))
    b = programs.matrices(3, n).astype(np.float32)
    for condition in (1e2, 1e6):
        a = ((left * np.logspace(0, -np.log10(condition), n)) @ right).astype(np.float32)
        x = np.asarray(hl.linalg.solve(a, b)).astype(np.float64)
        assert abs(a @ x - b).max() < 2e-6 * abs(a).max() * abs(x).max()
        lower = np.tril(a) + np.eye(n, dtype=np.float32) * 0.1
        x = np.asarray(hl.linalg.solve_triangular(np.where(np.tri(n) > 0, lower, np.float32(np.nan)), b, upper=False)).astype(np.float64)
        assert abs(lower @ x - b).max() < 1e-6 * abs(lower).max() * abs(x).max()


@pytest.mark.parametrize("f", [lambda a: hl.linalg.cholesky(a).sum(), lambda a: hl.linalg.slogdet(a)[1], lambda a: hl.linalg.inv(a).sum()])
def test_a_gradient_keeps_no_matrix_of_each_column(f):
    def memory(n):
        text = hl.explain(hl.jit(hl.grad(f)), np.eye(n))
        amount, unit = re.search(r"arena ([\d.]+) (kB|MB)", text).groups()
        return float(amount) * {"kB": 1e3, "MB": 1e6}[unit] / (8 * n * n)

    assert memory(96) < 24  # matrices of its size


def test_a_gradient_of_a_solve_eliminates_once():
    f = lambda a, b: (hl.linalg.solve(a, b) ** 2).sum()  # noqa: E731
    count = lambda g: len(re.findall("argmax", hl.executable(hl.jit(g), np.eye(64), np.ones(64)).kernel_text()))  # noqa: E731
    assert count(hl.grad(f)) == count(f) > 0


def cofactors(a):
    def minor(i, j):
        return np.linalg.det(np.delete(np.delete(a, i, 0), j, 1))

    return np.array([[(-1) ** (i + j) * minor(i, j) for j in range(len(a))] for i in range(len(a))])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 7, 12, 46])
def test_derivatives_of_a_determinant_are_cofactors(n, rng):
    regular = rng.normal(size=(n, n)) * 1.5 / np.sqrt(n)
    gradient = hl.jit(hl.grad(hl.linalg.det))
    matrices = [regular]
    for k in {0, n // 2, n - 1}:  # without a pivot in one column
        matrices += [regular.copy(), regular.copy()]
        matrices[-2][:, k] = 0
        matrices[-1][k] = 0
    if n > 2:
        matrices.append(np.round(regular * 3 * np.sqrt(n)))
        matrices[-1][:, 1] = matrices[-1][:, 0]
        matrices.append(regular.copy())
        matrices[-1][:, [0, 2]] = 0
    for a in matrices:
        wanted = cofactors(a)
        np.testing.assert_allclose(gradient(a), wanted, rtol=1e-9, atol=1e-10 * max(1, np.abs(wanted).max()))
    if n > 12:
        matrices = [regular]
    for a in matrices[:3]:
        v, h = rng.normal(size=(n, n)), 1e-5
        change = (cofactors(a + h * v) - cofactors(a - h * v)) / (2 * h)
        scale = max(1, np.abs(change).max())
        np.testing.assert_allclose(hl.hvp(hl.linalg.det, a, v), change, atol=1e-6 * scale)
        backward = hl.grad(lambda x, v=v: (hl.grad(hl.linalg.det)(x) * v).sum())(a)
        np.testing.assert_allclose(backward, change, atol=1e-6 * scale)


def test_what_has_no_solution_is_a_number():
    singular = np.zeros((3, 3))
    assert float(hl.linalg.det(singular)) == 0
    assert float(hl.linalg.slogdet(singular)[1]) == -np.inf
    assert not np.isfinite(hl.linalg.inv(singular)).any()
    assert np.isnan(hl.linalg.cholesky(-np.eye(2))).any()


def test_programs_do_not_grow_with_the_matrix():
    def nodes(n):
        f = hl.jit(hl.grad(lambda a, b: hl.linalg.solve(a, b).sum(), argnums=(0, 1)))
        text = hl.explain(f, np.eye(n), np.ones(n))
        return int(re.search(r"(\d+) nodes", text)[1]), text.count("loops") and int(re.search(r"(\d+) loops", text)[1])

    assert nodes(7) == nodes(24) and nodes(48) == nodes(96)
    assert nodes(24)[1] <= 7  # eliminated once; four substitutions, and what moves data beside them


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hl.linalg.inv(np.ones((2, 3))), r"\[inv\] the argument must be square matrices, \(..., n, n\). Received: f64\[2,3\]"),
        (lambda: hl.linalg.det(np.ones(3)), r"\[det\] the argument must be square matrices"),
        (lambda: hl.linalg.inv(np.ones((2, 2), int)), r"\[inv\] the elements must be floats. Received: i64\[2,2\]. Try: hl.astype"),
        (lambda: hl.linalg.solve(np.eye(3), np.ones(2)), r"\[solve\] the right side must be \(n,\) or \(..., n, k\)"),
        (lambda: hl.linalg.solve(np.ones((2, 3, 3)), np.ones((4, 3, 1))), r"\[linalg\] leading axes must broadcast"),
        (lambda: hl.linalg.matrix_norm(np.eye(2), ord="nuclear"), r"\[matrix_norm\] ord must be"),
        (lambda: hl.linalg.cross(np.ones(2), np.ones(2)), r"\[cross\] vectors must have three elements"),
    ],
)
def test_errors(call, message):
    with pytest.raises(hl.UserError, match=message):
        call()


def test_solve_triangular_wants_to_be_told_which_triangle():
    for which in ({}, {"upper": True, "lower": True}):
        with pytest.raises(hl.UserError, match=r"\[solve_triangular\] either upper or lower says which triangle is meant"):
            hl.linalg.solve_triangular(np.eye(2), np.ones(2), **which)


def test_matrices_without_elements_are_numpys():
    none, batch = np.zeros((0, 0)), np.zeros((2, 0, 0))
    for name in ("cholesky", "eigh", "eigvalsh", "svd", "det", "slogdet", "inv", "qr", "pinv", "matrix_rank"):
        for x in (none, batch):
            got, wanted = getattr(hl.linalg, name)(x), getattr(np.linalg, name)(x)
            for a, b in zip(got, wanted) if isinstance(got, tuple) else [(got, wanted)]:
                np.testing.assert_array_equal(a, b)
                assert a.shape == np.shape(b), name
    for shape in ((0,), (0, 3)):
        assert hl.linalg.solve(none, np.zeros(shape)).shape == shape
        assert hl.linalg.solve_triangular(none, np.zeros(shape), lower=True).shape == shape
    assert hl.linalg.solve(np.eye(3), np.zeros((3, 0))).shape == hl.linalg.solve_triangular(np.eye(3), np.zeros((3, 0)), upper=True).shape == (3, 0)
    for shape in ((0, 3), (3, 0)):
        x = np.zeros(shape)
        assert hl.linalg.pinv(x).shape == shape[::-1] and int(hl.linalg.matrix_rank(x)) == 0
        for ours, numpys in [(hl.linalg.svd(x, full_matrices=f), np.linalg.svd(x, full_matrices=f)) for f in (True, False)] + [
            (hl.linalg.qr(x, mode=m), np.linalg.qr(x, mode=m)) for m in ("reduced", "complete")
        ]:
            for a, b in zip(ours, numpys):
                np.testing.assert_array_equal(a, b)
                assert a.shape == b.shape
    assert hl.jit(hl.grad(hl.linalg.det))(none).shape == (0, 0)


@pytest.mark.parametrize("dtype, scale", [(np.float64, 1), (np.float32, 4e8)])
def test_exponentials_of_matrices(dtype, scale):
    """By eigenvalues where they are known, each matrix of a batch scaled by its own norm."""
    rotations = np.array([[[0.0, -t], [t, 0.0]] for t in (0.0, 1e-3, 1.0, 4.0, 30.0)], dtype)
    angles = rotations[:, 1, 0].astype(np.float64)
    expected = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)], -1).reshape(-1, 2, 2)
    got = hl.linalg.expm(rotations)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, expected, atol=1e-14 * scale)
    np.testing.assert_array_equal(got[3], hl.linalg.expm(rotations[3]))
    for n, size in [(1, 1.0), (3, 0.01), (6, 3.0), (12, 20.0)]:
        s = programs.positive(n, n, n)
        s = (size / np.linalg.norm(s, 1) * s).astype(dtype)
        w, v = np.linalg.eigh(s.astype(np.float64))
        for sign in (1, -1):
            expected = v * np.exp(sign * w) @ v.T
            np.testing.assert_allclose(hl.linalg.expm(sign * s), expected, atol=1e-14 * scale * (1 + size) * np.abs(expected).max())
    shift = np.triu(np.ones((4, 4), dtype), 1)
    np.testing.assert_allclose(hl.linalg.expm(shift), np.eye(4) + shift + shift @ shift / 2 + shift @ shift @ shift / 6, atol=1e-14 * scale)
    assert hl.linalg.expm(np.zeros((3, 0, 0), dtype)).shape == (3, 0, 0)
    for huge in (np.inf, np.nan, 1e25):
        assert np.isnan(hl.linalg.expm(np.full((2, 2), huge, dtype))).all()


def test_derivatives_of_exponentials():
    """Along e they are a block of a larger exponential (Najfeld and Havel 1995), and those of a norm where nothing is squared are no other ones."""
    weights = programs.matrices(2, 4, 4)
    for size in (0.1, 2.0, 15.0):
        a, e = (size * m / np.linalg.norm(m, 1) for m in programs.matrices(1, 2, 4, 4))
        block = np.asarray(hl.linalg.expm(np.block([[a, e], [np.zeros((4, 4)), a]])))
        value, slope = hl.jvp(hl.linalg.expm, (a,), (e,))
        np.testing.assert_allclose(value, block[:4, :4], atol=1e-12 * np.abs(block).max())
        np.testing.assert_allclose(slope, block[:4, 4:], atol=1e-12 * np.abs(block).max())
        gradient = hl.grad(lambda x: hl.sum(hl.linalg.expm(x) * weights))(a)
        np.testing.assert_allclose(np.sum(gradient * e), np.sum(slope * weights), rtol=1e-10)
    # y' = x @ y: the second derivative along t is x @ x @ expm(t * x).
    second = hl.grad(hl.grad(lambda t: hl.linalg.expm(t * a)[1, 2]))(np.float64(0.5))
    np.testing.assert_allclose(second, (a @ a @ np.asarray(hl.linalg.expm(0.5 * a)))[1, 2], rtol=1e-9)
