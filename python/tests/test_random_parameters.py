"""Distributions with parameters of hl.random: what they draw, the same bits everywhere, and derivatives by the parameters.

Keys are fixed, so statistics are numbers: within five standard deviations, a Kolmogorov-Smirnov distance within what one of a thousand samples exceeds.
"""

import math

import hotloop as hl
import numpy as np
import pytest

KEY = hl.random.key(20261127)
N = 100_000


def gamma_cdf(a, x):
    """The lower incomplete gamma function, regularized: the series for x < a + 30, beyond the rest is less than any distance here."""
    x = np.minimum(np.asarray(x, np.float64), a + 12 * math.sqrt(a) + 40)
    term = total = np.ones_like(x)
    for n in range(1, 4000):
        term = term * x / (a + n)
        total = total + term
        if (term < 1e-17 * total).all():
            break
    with np.errstate(divide="ignore"):
        return np.exp(a * np.log(x) - x - math.lgamma(a + 1)) * total


def erf(x):
    return np.vectorize(math.erf)(x)


R = hl.random
# (draw(key, n, dtype), distribution function, mean, variance); None: infinite.
DISTRIBUTIONS = {
    **{f"gamma {a}": (lambda k, n, d, a=a: R.gamma(k, a, (n,), dtype=d), lambda x, a=a: gamma_cdf(a, x), a, a) for a in (0.3, 1.0, 2.7, 40.0, 3000.0)},
    "loggamma": (lambda k, n, d: R.loggamma(k, 1.0, (n,), dtype=d), lambda x: -np.expm1(-np.exp(x)), -0.5772156649015329, math.pi**2 / 6),
    "beta 2 3": (lambda k, n, d: R.beta(k, 2.0, 3.0, (n,), dtype=d), lambda x: 6 * x**2 - 8 * x**3 + 3 * x**4, 0.4, 0.04),
    "beta arcsine": (lambda k, n, d: R.beta(k, 0.5, b=0.5, shape=(n,), dtype=d), lambda x: 2 / np.pi * np.arcsin(np.sqrt(np.clip(x, 0, 1))), 0.5, 0.125),
    "chisquare 1": (lambda k, n, d: R.chisquare(k, 1.0, (n,), dtype=d), lambda x: erf(np.sqrt(x / 2)), 1, 2),
    "chisquare 7": (lambda k, n, d: R.chisquare(k, 7, (n,), dtype=d), lambda x: gamma_cdf(3.5, x / 2), 7, 14),
    "t 1": (lambda k, n, d: R.t(k, 1.0, (n,), dtype=d), lambda x: 0.5 + np.arctan(x) / np.pi, None, None),
    "t 2": (lambda k, n, d: R.t(k, 2.0, (n,), dtype=d), lambda x: 0.5 + x / (2 * np.sqrt(2 + x * x)), None, None),
    "t inf": (lambda k, n, d: R.t(k, np.inf, (n,), dtype=d), lambda x: 0.5 + 0.5 * erf(x / math.sqrt(2)), 0, 1),
    "weibull": (lambda k, n, d: R.weibull_min(k, 2.0, 1.5, (n,), dtype=d), lambda x: -np.expm1(-((x / 2) ** 1.5)), 2 * math.gamma(1 + 1 / 1.5), 4 * (math.gamma(1 + 2 / 1.5) - math.gamma(1 + 1 / 1.5) ** 2)),
    "pareto": (lambda k, n, d: R.pareto(k, 5.0, (n,), dtype=d), lambda x: 1 - x**-5.0, 5 / 4, None),
    "cauchy": (lambda k, n, d: R.cauchy(k, (n,), dtype=d), lambda x: 0.5 + np.arctan(x) / np.pi, None, None),
    "multivariate normal": (lambda k, n, d: R.multivariate_normal(k, np.array([1.0]), np.array([[4.0]]), (n,), dtype=d)[:, 0], lambda x: 0.5 + 0.5 * erf((x - 1) / math.sqrt(8)), 1, 4),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name, dtype):
    draw, cumulative, mean, variance = DISTRIBUTIONS[name]
    x = np.asarray(draw(KEY, N, dtype))
    assert x.dtype == dtype and x.shape == (N,) and np.isfinite(x).all()
    x = np.sort(x.astype(np.float64))
    reached = cumulative(x)
    distance = max((np.arange(1, N + 1) / N - reached).max(), (reached - np.arange(N) / N).max())
    assert distance * math.sqrt(N) < 1.95
    if mean is not None and variance is not None:
        assert abs(x.mean() - mean) < 5 * math.sqrt(variance / N)
        fourth = ((x - mean) ** 4).mean()
        assert abs(((x - mean) ** 2).mean() - variance) < 5 * math.sqrt((fourth - variance**2) / N)
    # A known parameter is computed with while compiling, another one in the program: alike to rounding.
    np.testing.assert_allclose(hl.jit(lambda k: draw(k, 50, dtype))(KEY), draw(KEY, 50, dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", [0.2, 3.0, 9.9, 10.0, 35.0, 1234.5])
def test_poisson(rate):
    x = np.asarray(hl.random.poisson(KEY, rate, (N,)))
    assert x.dtype == np.int32 and (x >= 0).all()
    assert abs(x.mean() - rate) < 5 * math.sqrt(rate / N) and abs(((x - rate) ** 2).mean() - rate) < 5 * math.sqrt((rate + 2 * rate**2) / N)
    k = np.arange(x.max() + 1)
    expected = N * np.exp(k * math.log(rate) - rate - np.vectorize(math.lgamma)(k + 1.0))
    counts = np.bincount(x, minlength=len(k))
    often = expected > 20
    chi_square = ((counts - expected)[often] ** 2 / expected[often]).sum()
    assert chi_square < often.sum() + 5 * math.sqrt(2 * often.sum())
    rare = counts[~often].sum(), N - expected[often].sum()
    assert abs(rare[0] - rare[1]) < 5 * math.sqrt(rare[1]) + 1


def test_ends_of_poisson():
    x = hl.random.poisson(KEY, np.array([0.0, -1.0, np.nan, np.inf, 1e12, 2e9], np.float32), (1000, 6))
    assert (np.asarray(x)[:, :5] == [0, -1, -1, 2**31 - 1, 2**31 - 1]).all() and abs(np.asarray(x)[:, 5].mean() - 2e9) < 5 * math.sqrt(2e9 / 1000)
    assert hl.random.poisson(KEY, 4).shape == () and hl.random.poisson(KEY, np.ones((2, 3))).shape == (2, 3)


def test_dirichlet_and_multivariate_normal():
    alpha = np.array([0.2, 1.0, 5.0])
    x = np.asarray(hl.random.dirichlet(KEY, alpha, (N,), dtype="float64"))
    assert x.shape == (N, 3) and np.allclose(x.sum(-1), 1)
    share, total = alpha / alpha.sum(), alpha.sum()
    variance = share * (1 - share) / (total + 1)
    assert (abs(x.mean(0) - share) < 5 * np.sqrt(variance / N)).all()
    covariance = (np.diag(share) - np.outer(share, share)) / (total + 1)
    assert abs(np.cov(x.T) - covariance).max() < 5e-4
    assert hl.random.dirichlet(KEY, np.ones((4, 3))).shape == (4, 3)
    tiny = np.asarray(hl.random.dirichlet(KEY, np.full(4, 1e-4, np.float32), (100,)))
    assert np.allclose(tiny.sum(-1), 1) and (tiny.max(-1) > 0.5).all()
    mean, matrix = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]])
    x = np.asarray(hl.random.multivariate_normal(KEY, mean, matrix, (N,), dtype="float64"))
    assert (abs(x.mean(0) - mean) < 5 * np.sqrt(np.diag(matrix) / N)).all() and abs(np.cov(x.T) - matrix).max() < 0.04
    many = hl.random.multivariate_normal(KEY, np.zeros((4, 1, 2)), np.stack([matrix] * 3), dtype="float64")
    assert many.shape == (4, 3, 2)
    # The same numbers: mean + L z.
    one = hl.random.multivariate_normal(KEY, mean, matrix, (5,), dtype="float64")
    np.testing.assert_allclose(one, mean + np.asarray(hl.random.normal(KEY, (5, 2), dtype="float64")) @ np.linalg.cholesky(matrix).T, rtol=1e-12)


def test_rademacher():
    x = np.asarray(hl.random.rademacher(KEY, (N,)))
    assert x.dtype == np.int32 and set(x.tolist()) == {-1, 1} and abs(x.sum()) < 5 * math.sqrt(N)
    assert np.array_equal(hl.random.rademacher(KEY, (9,), dtype="float32"), x[:9].astype("f4"))


DRAWS = {
    "gamma": lambda k, shape: hl.random.gamma(k, 0.7, shape), "beta": lambda k, shape: hl.random.beta(k, 2.0, 0.4, shape), "t": lambda k, shape: hl.random.t(k, 3.0, shape),
    "poisson": lambda k, shape: hl.random.poisson(k, 4.0, shape), "poisson, large": lambda k, shape: hl.random.poisson(k, 70.0, shape),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_bits_do_not_depend_on_who_is_drawn_beside(name):
    draw = DRAWS[name]
    keys = np.asarray(hl.random.split(KEY, 40))
    for shape in ((), (3,), (4, 5)):
        one = hl.jit(lambda k, s=shape: draw(k, s))
        assert np.array_equal(hl.jit(hl.vmap(one))(keys), [np.asarray(one(k)) for k in keys])
    long = np.asarray(hl.jit(lambda k: draw(k, (1000,)))(KEY))
    for shape in ((37,), (8, 125)):
        assert np.array_equal(long[: math.prod(shape)].reshape(shape), hl.jit(lambda k, s=shape: draw(k, s))(KEY))
    wanted = np.asarray(hl.jit(lambda k: draw(k, (20_001,)), threads=1)(KEY))
    for options in ({"threads": 2}, {"target": "avx2"}, {"backend": "c"}):
        assert np.array_equal(hl.jit(lambda k: draw(k, (20_001,)), **options)(KEY), wanted), options
    np.testing.assert_allclose(hl.jit(lambda k: draw(k, (301,)), backend="interp")(KEY), wanted[:301], rtol=1e-5)


# d log(x) / d a of a gamma distributed x at a fixed quantile, by differences of the incomplete gamma function with 50 digits: (a, x): slope.
SLOPES = {
    (1.0, 0.17147): 2.4319356807666694, (1.0, 0.70233): 1.3881945082401188, (1.0, 1.8258): 0.8580021026268243, (2.5, 0.084324): 1.468465488852481, (2.5, 1.0326): 0.6420660822263409, (2.5, 2.1813): 0.45717130520221155, (2.5, 3.9669): 0.33640662868078286, (50.0, 22.129): 0.029342154536649543, (50.0, 31.4): 0.025094462246603152, (50.0, 42.955): 0.021629058091427584, (50.0, 49.667): 0.020133918534395997, (50.0, 57.045): 0.018773241577758854, (199.0, 159.32): 0.005609276678709827, (199.0, 184.91): 0.005216261672750225, (199.0, 198.67): 0.005033511051368262, (199.0, 213.09): 0.004859269150112184, (200.0, 160.22): 0.005579539532341827, (200.0, 185.87): 0.005189733795019299, (200.0, 199.67): 0.005008301728055739, (200.0, 214.13): 0.004835304277283594, (1000.0, 907.79): 0.0010493257224455021, (1000.0, 968.38): 0.0010163207531446398, (1000.0, 999.67): 0.0010003317471382355, (1000.0, 1031.6): 0.0009846892579061864, (100000.0, 99054.0): 1.0047617183921436e-05, (100000.0, 99684.0): 1.0015850057486224e-05, (100000.0, 100000.0): 1.0000016666683334e-05, (100000.0, 100320.0): 9.984050691690249e-06,
}  # fmt: skip


def test_slopes_at_a_quantile():
    from hotloop import _distributions

    a, x = np.array(list(SLOPES)).T
    slope = hl.jit(lambda a, y: _distributions._slope(a, y, 0))(a, np.log(x))
    np.testing.assert_allclose(slope, list(SLOPES.values()), rtol=1e-11)
    # Its own derivatives, against differences.
    at = hl.jit(lambda a, y: _distributions._slope(a, y, 0))
    tangents = [hl.jit(hl.vmap(hl.grad(lambda a, y: _distributions._slope(a, y, 0), argnums=k)))(a, np.log(x)) for k in (0, 1)]
    h = 1e-5
    differences = [(np.asarray(at(a + h * a, np.log(x))) - np.asarray(at(a - h * a, np.log(x)))) / (2 * h * a), (np.asarray(at(a, np.log(x) + h)) - np.asarray(at(a, np.log(x) - h))) / (2 * h)]
    for got, wanted in zip(tangents, differences):
        near = (a * (1 - h) > 200) | (a * (1 + h) < 200)
        np.testing.assert_allclose(np.asarray(got)[near], wanted[near], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("a", [0.3, 1.0, 2.5, 150.0, 900.0])
def test_derivatives_by_the_shape(a):
    a = np.float64(a)
    draw = lambda a: hl.random.gamma(KEY, a, (N,), dtype="float64")  # noqa: E731
    # Of the moments: a, and a (a + 1), whose derivatives are 1 and 2 a + 1.
    slopes = np.asarray(hl.jit(hl.jacfwd(draw))(a))
    x = np.asarray(draw(a))
    for each, wanted in ((slopes, 1.0), (2 * x * slopes, 2 * a + 1)):
        assert abs(each.mean() - wanted) < 5 * each.std() / math.sqrt(N)
    assert np.isclose(hl.jit(hl.grad(lambda a: draw(a).mean()))(a), slopes.mean(), rtol=1e-10)
    # The second one of a (a + 1) (a + 2).
    cube = lambda a: draw(a) ** 3  # noqa: E731
    each = np.asarray(hl.jit(hl.jacfwd(hl.jacfwd(cube)))(a))
    assert abs(each.mean() - 6 * a - 6) < 5 * each.std() / math.sqrt(N)
    assert np.isclose(float(hl.jit(hl.grad(hl.grad(lambda a: cube(a).mean())))(a)), each.mean(), rtol=1e-8)
    # No third one.
    log_draw = lambda a: hl.random.loggamma(KEY, a + 1.0, dtype="float64")  # noqa: E731
    assert np.isnan(hl.jit(hl.jacfwd(hl.jacfwd(hl.jacfwd(log_draw))))(a))
    with pytest.raises(hl.UserError, match="reverse mode needs a bound"):
        hl.jit(hl.grad(hl.grad(hl.grad(log_draw))))(a)


def test_gradients_of_expectations():
    # E log(x) of a beta distribution is digamma(a) - digamma(a + b).
    a, b = np.float64(1.7), np.float64(0.6)
    slopes = hl.jit(hl.jacfwd(lambda a, b: hl.log(hl.random.beta(KEY, a, b, (N,), dtype="float64")), argnums=(0, 1)))(a, b)
    trigamma = lambda x: float(hl.polygamma(1, x))  # noqa: E731
    for each, wanted in zip(slopes, (trigamma(a) - trigamma(a + b), -trigamma(a + b))):
        each = np.asarray(each)
        assert abs(each.mean() - wanted) < 5 * each.std() / math.sqrt(N)
    # The variance of t is df / (df - 2).
    df = np.float64(9.0)
    each = np.asarray(hl.jit(hl.jacfwd(lambda df: hl.random.t(KEY, df, (N,), dtype="float64") ** 2))(df))
    assert abs(each.mean() + 2 / 49) < 5 * each.std() / math.sqrt(N)
    alpha = np.array([0.5, 2.0, 1.5])
    jacobian = np.asarray(hl.jit(hl.jacrev(lambda v: hl.random.dirichlet(KEY, v, (2000,), dtype="float64").mean(0)))(alpha))
    share = alpha / alpha.sum()
    assert abs(jacobian - (np.eye(3) - share[:, None]) / alpha.sum()).max() < 0.02
    # In float32 the slope is that of float64, rounded.
    slope = hl.grad(lambda a: hl.random.gamma(KEY, a, (1000,)).mean())(2.0)
    assert slope.dtype == np.float32 and abs(float(slope) - 1) < 0.1
    covariance = np.array([[2.0, 0.6], [0.6, 0.5]])
    one = hl.jacfwd(lambda c: hl.random.multivariate_normal(KEY, np.zeros(2), c, dtype="float64"))(covariance)
    assert one.shape == (2, 2, 2) and np.isfinite(one).all()
    scale, exponent = np.float64(2.0), np.float64(1.5)
    x = hl.random.weibull_min(KEY, scale, exponent, dtype="float64")
    slopes = hl.grad(lambda s, c: hl.random.weibull_min(KEY, s, c, dtype="float64"), argnums=(0, 1))(scale, exponent)
    assert np.allclose(slopes, [x / scale, -x * np.log(x / scale) / exponent])


def test_parameters_that_are_none():
    x = np.asarray(hl.random.gamma(KEY, np.array([0.0, -1.0, np.nan, np.inf, 1e-30], np.float32), (3, 5)))
    assert np.array_equal(x[:, :4], np.tile([0, np.nan, np.nan, np.inf], (3, 1)), equal_nan=True) and (x[:, 4] == 0).all()
    logs = np.asarray(hl.random.loggamma(KEY, np.float32(1e-30), (100,)))
    assert np.isfinite(logs).all() and (logs < -1e25).all()
    assert np.isnan(hl.random.multivariate_normal(KEY, np.zeros(2), -np.eye(2))).all()
    for call, message in (
        (lambda: hl.random.gamma(KEY, np.ones(3), (2,)), r"^\[gamma\] parameters must broadcast to the shape. Received: \(3,\), shape=\(2,\).$"),
        (lambda: hl.random.beta(KEY, np.ones(3), np.ones(2)), r"^\[beta\] parameters must broadcast to the shape. Received: \(3,\) and \(2,\), shape=None.$"),
        (lambda: hl.random.gamma(KEY, 1.0, dtype="int32"), r"^\[random\] the dtype must be float32 or float64. Received: int32.$"),
        (lambda: hl.random.gamma(None, 1.0), r"^\[random\] a key must be uint32\[2\]"),
        (lambda: hl.random.dirichlet(KEY, 1.0), r"^\[dirichlet\] alpha must have an axis for the categories. Received: f32\[\].$"),
        (lambda: hl.random.multivariate_normal(KEY, np.zeros(3), np.eye(2)), r"^\[multivariate_normal\] mean must be \(..., n\) and cov \(..., n, n\). Received: f32\[3\] and f32\[2,2\].$"),
    ):
        with pytest.raises(hl.UserError, match=message):
            call()
    with pytest.raises(AttributeError, match="hotloop.random.t$"):
        _ = hl.random.student_t
