"""Special functions: values, ends and derivatives."""

import math

import hotloop as hl
import numpy as np


def test_erfinv():
    x = np.concatenate([np.linspace(-1, 1, 20001), [0.0, -0.0, 1e-300, 5e-324, 1 - 2**-53, -1 + 2**-53]])
    y = np.asarray(hl.erfinv(x))
    inner = abs(x) < 1
    back = np.vectorize(math.erf)(y[inner])
    # What a unit of y's last place is of erf.
    assert (abs(back - x[inner]) <= 2**-52 * (3 * abs(y[inner]) * np.exp(-(y[inner] ** 2)) + abs(x[inner]))).all()
    assert np.array_equal(np.asarray(hl.erfinv(np.array([1.0, -1.0, 1.5, -2.0, np.nan, np.inf]))), [np.inf, -np.inf, *[np.nan] * 4], equal_nan=True)
    assert math.copysign(1, float(hl.erfinv(np.float32(-0.0)))) == -1
    at = np.float64(0.3)
    y = float(hl.erfinv(at))
    first = math.sqrt(math.pi) / 2 * math.exp(y * y)
    assert np.isclose(hl.grad(hl.erfinv)(at), first, rtol=1e-14)
    assert np.isclose(hl.jvp(hl.erfinv, (at,), (np.float64(2.0),))[1], 2 * first, rtol=1e-14)
    assert np.isclose(hl.grad(hl.grad(hl.erfinv))(at), 2 * y * first**2, rtol=1e-13)


def test_lgamma_makes_likelihoods():
    """The number of degrees of freedom of Student's t is found from a sample, by Newton's method: two derivatives of lgamma."""
    x = np.random.default_rng(0).standard_t(5.0, size=20000)

    def loss(log_nu):
        nu = hl.exp(log_nu)
        log_density = hl.lgamma((nu + 1) / 2) - hl.lgamma(nu / 2) - 0.5 * hl.log(nu * np.pi) - (nu + 1) / 2 * hl.log1p(x**2 / nu)
        return -hl.mean(log_density)

    step = hl.jit(lambda v: v - hl.grad(loss)(v) / hl.grad(hl.grad(loss))(v))
    v = np.float64(1.0)
    for _ in range(8):
        v = step(v)
    assert abs(float(np.exp(v)) - 5.0) < 0.5
    assert abs(float(hl.grad(loss)(v))) < 1e-12
    assert np.isclose(float(hl.lgamma(np.float64(0.5))), math.lgamma(0.5), rtol=1e-14)
    assert np.asarray(hl.lgamma(np.float32(3.5))).dtype == np.float32
    # Where reflection is not used its derivative, infinite at integers, is not either.
    assert np.isclose(float(hl.grad(hl.lgamma)(np.float64(3.0))), 0.9227843350984671, rtol=1e-14)


def test_the_complement_of_erf():
    x = np.concatenate([np.linspace(-6, 26, 20001), [0.5, -0.5, 0.49999999, 26.5, 1e-300]])
    want = np.vectorize(math.erfc)(x)
    assert (abs(np.asarray(hl.erfc(x)) - want) <= 5.5 * np.spacing(want)).all()  # half a unit is math.erfc's
    single = x[x < 9].astype(np.float32)
    want = np.vectorize(math.erfc)(single.astype(np.float64))
    got = hl.erfc(single)
    assert got.dtype == np.float32 and (abs(np.asarray(got) - want) <= 5 * np.spacing(want.astype(np.float32))).all()
    ends = np.array([np.inf, -np.inf, np.nan, 30, 1e200])
    assert np.array_equal(hl.erfc(ends), [0, 2, np.nan, 0, 0], equal_nan=True)
    at = np.array([-3.0, -0.2, 0.0, 0.7, 5.0, 30.0])
    first = -2 / np.sqrt(np.pi) * np.exp(-at * at)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.erfc))(at), first, rtol=1e-13)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.grad(hl.erfc)))(at), -2 * at * first, rtol=1e-13)
    np.testing.assert_allclose(hl.vmap(hl.jacfwd(hl.grad(hl.erfc)))(at), -2 * at * first, rtol=1e-13)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.grad(hl.grad(hl.erfc))))(at), (4 * at * at - 2) * first, rtol=1e-12)
    single = np.linspace(-9, 9, 1001, dtype=np.float32)  # slopes in the tail have their digits, too
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.erfc))(single), -2 / np.sqrt(np.pi) * np.exp(-single.astype(np.float64) ** 2), rtol=1e-6)


def test_the_normal_distribution_function():
    x = np.array([-37.0, -8.0, -2.0, -0.1, 0.0, 0.3, 3.0, 12.0])
    tail = np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2
    np.testing.assert_allclose(hl.ndtr(x), tail, rtol=2e-13)  # the argument of erfc is rounded
    np.testing.assert_allclose(hl.log_ndtr(x[:5]), np.log(tail[:5]), rtol=1e-13)
    np.testing.assert_allclose(hl.log_ndtr(x[5:]), np.log1p(-np.vectorize(math.erfc)(x[5:] / math.sqrt(2)) / 2), rtol=1e-13)
    # Where the function itself is no number: -x^2 / 2 - log(-x sqrt(2 pi)) - 1 / x^2, and so on.
    far = np.array([-100.0, -1e4, -1e8])
    np.testing.assert_allclose(hl.log_ndtr(far), -far * far / 2 - np.log(-far * math.sqrt(2 * np.pi)) - 1 / far**2, rtol=1e-11)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.log_ndtr))(far), -far - 1 / far + 2 / far**3, rtol=1e-11)
    assert np.array_equal(hl.log_ndtr(np.array([-np.inf, np.inf, np.nan])), [-np.inf, 0, np.nan], equal_nan=True)
    density = np.exp(-x * x / 2) / math.sqrt(2 * np.pi)
    slope = density / tail
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.ndtr))(x), density, rtol=2e-13)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.log_ndtr))(x), slope, rtol=3e-13)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.grad(hl.log_ndtr)))(x[1:]), (-slope * (x + slope))[1:], rtol=1e-9)
    assert hl.log_ndtr(np.float32(-20)).dtype == np.float32


def test_angles_far_from_and_near_to_the_origin():
    slopes = hl.jit(hl.grad(lambda y, x: hl.atan2(y, x), argnums=(0, 1)))
    for size in 1e-25, 1e-5, 1.0, 1e25:
        for y, x in (1.0, 1.0), (-2.0, 0.5), (0.0, 3.0):
            by_y, by_x = slopes(np.float32(y * size), np.float32(x * size))
            np.testing.assert_allclose([by_y, by_x], [x / (x * x + y * y) / size, -y / (x * x + y * y) / size], rtol=1e-6)
    second = hl.hessian(lambda v: hl.atan2(v[0], v[1]))(np.array([3e-100, 4e-100]))
    np.testing.assert_allclose(second, np.array([[-24, -7], [-7, 24]]) / 625 * 1e200, rtol=1e-12)
