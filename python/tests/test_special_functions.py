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
