"""hl.linalg.lstsq, cond and multi_dot against NumPy."""

import hotloop as hl
import numpy as np
import pytest
from hotloop import linalg

rng = np.random.default_rng(8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4), (1, 1), (5, 1), (1, 5), (40, 12)])
def test_lstsq_is_numpys(shape, dtype):
    tolerance = 2e-4 if dtype == np.float32 else 1e-10
    a = rng.normal(size=shape).astype(dtype)
    for b in (rng.normal(size=shape[0]).astype(dtype), rng.normal(size=(shape[0], 2)).astype(dtype)):
        got = hl.jit(linalg.lstsq)(a, b)
        x, _, rank, s = np.linalg.lstsq(a, b)
        assert got.x.dtype == dtype and got.x.shape == x.shape and got.rank.dtype == np.int32 and got.rank == rank
        np.testing.assert_allclose(got.x, x, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(got.singular_values, s, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(got.residuals, ((a @ x - b) ** 2).sum(0), rtol=tolerance, atol=tolerance)


def test_columns_that_depend_on_each_other():
    a = rng.normal(size=(9, 5))
    a[:, 4] = a[:, 0] - 2 * a[:, 1]
    b = rng.normal(size=9)
    got, (x, _, rank, _) = linalg.lstsq(a, b), np.linalg.lstsq(a, b)
    assert got.rank == rank == 4
    np.testing.assert_allclose(got.x, x, atol=1e-12)
    # Of small singular values as many as are asked for.
    got = linalg.lstsq(np.diag([1.0, 1e-3, 1e-6]), np.ones(3), rtol=1e-4)
    assert got.rank == 2 and np.allclose(got.x, [1, 1e3, 0])
    assert not linalg.lstsq(np.zeros((3, 2)), np.ones(3)).x.any() and linalg.lstsq(np.zeros((3, 2)), np.ones(3)).rank == 0
    for shape in ((0, 2), (2, 0)):
        got = linalg.lstsq(np.ones(shape), np.ones(shape[0]))
        assert got.x.shape == (shape[1],) and got.rank == 0 and got.residuals == shape[0]


def test_batches_of_fits():
    a, b = rng.normal(size=(3, 6, 2)), rng.normal(size=(3, 6, 4))
    got = hl.jit(linalg.lstsq)(a, b)
    assert got.residuals.shape == (3, 4) and got.rank.tolist() == [2, 2, 2]
    for i in range(3):
        np.testing.assert_allclose(got.x[i], np.linalg.lstsq(a[i], b[i])[0], atol=1e-12)
    np.testing.assert_allclose(hl.vmap(lambda a, b: linalg.lstsq(a, b).x)(a, b), got.x, atol=1e-12)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)])
def test_derivatives_are_the_differences(shape):
    a, b, da, db = (rng.normal(size=s) for s in (shape, shape[:1], shape, shape[:1]))
    h = 1e-6
    solution = lambda a, b: linalg.lstsq(a, b).x  # noqa: E731
    wanted = (np.linalg.lstsq(a + h * da, b + h * db)[0] - np.linalg.lstsq(a - h * da, b - h * db)[0]) / (2 * h)
    tangent = hl.jit(lambda *v: hl.jvp(solution, v[:2], v[2:])[1])(a, b, da, db)
    np.testing.assert_allclose(tangent, wanted, rtol=1e-6, atol=1e-6)
    weight = rng.normal(size=shape[1])
    slope = hl.jit(hl.grad(lambda a, b: hl.sum(hl.sin(solution(a, b)) * weight), argnums=(0, 1)))
    x = np.linalg.lstsq(a, b)[0]
    assert np.isclose(sum(np.vdot(g, d) for g, d in zip(slope(a, b), (da, db))), np.cos(x) * weight @ wanted, rtol=1e-5)
    # And of the gradient.
    second = hl.jit(lambda a, b: hl.jvp(slope, (a, b), (da, db))[1])(a, b)
    for k in (0, 1):
        difference = (np.asarray(slope(a + h * da, b + h * db)[k]) - np.asarray(slope(a - h * da, b - h * db)[k])) / (2 * h)
        np.testing.assert_allclose(second[k], difference, rtol=1e-4, atol=1e-4 * abs(difference).max())
    residual = hl.grad(lambda b: linalg.lstsq(a, b).residuals)(b)
    np.testing.assert_allclose(residual, 2 * (b - a @ x), atol=1e-10)


def test_cond():
    a, tall = rng.normal(size=(2, 4, 4)), rng.normal(size=(5, 3))
    for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"):
        np.testing.assert_allclose(linalg.cond(a, p), np.linalg.cond(a, p), rtol=1e-10)
    np.testing.assert_allclose(linalg.cond(tall), np.linalg.cond(tall), rtol=1e-10)
    assert linalg.cond(np.diag([1.0, 0.0])) == np.inf
    # log of s0 / s1 of a diagonal.
    np.testing.assert_allclose(hl.grad(lambda x: hl.log(linalg.cond(x)))(np.diag([3.0, 0.5])), np.diag([1 / 3, -2]), atol=1e-12)


def test_multi_dot():
    shapes = [(10, 30), (30, 5), (5, 60), (60, 2)]
    arrays = [rng.normal(size=s) for s in shapes]
    for chosen in (arrays, arrays[:2], [arrays[0][0], *arrays[1:]], [*arrays[:3], arrays[3][:, 0]], [arrays[0][0], arrays[1][:, 0]]):
        got, wanted = hl.jit(linalg.multi_dot)(chosen), np.linalg.multi_dot(chosen)
        assert got.shape == np.shape(wanted)
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)
    # With a vector at the end all products are of a matrix and a vector.
    text = hl.executable(hl.jit(linalg.multi_dot), [np.ones((60, 60), np.float32)] * 3 + [np.ones(60, np.float32)]).kernel_text()
    assert text.count("map inner_products") == 3 and text.count("f32 x 3600 argument") == text.count("f32 x 3600")


@pytest.mark.parametrize("call, message", [
    (lambda: linalg.lstsq(np.ones((3, 2)), np.ones(2)), "[lstsq] the right side must be (m,) or (..., m, k) for a matrix (..., m, n). Received: f64[3,2] and f64[2]."),
    (lambda: linalg.lstsq(np.ones(3), np.ones(3)), "[lstsq] the argument must be matrices, (..., m, n). Received: f64[3]."),
    (lambda: linalg.cond(np.ones((3, 2)), 1), "[cond] the argument must be square matrices, (..., n, n). Received: f64[3,2]."),
    (lambda: linalg.cond(np.ones((0, 2))), "[cond] matrices must have elements. Received: f64[0,2]."),
    (lambda: linalg.multi_dot([np.ones((2, 3)), np.ones((2, 3))]), "[multi_dot] there must be a list of two or more matrices that fit each other; the first and the last may be vectors. Received: f64[2,3], f64[2,3]."),
])  # fmt: skip
def test_errors(call, message):
    with pytest.raises(hl.UserError) as error:
        call()
    assert str(error.value) == message
