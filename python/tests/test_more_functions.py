"""Functions beyond the array API standard against NumPy, or numbers with more digits: running extremes, convolutions, covariances, special functions."""

import math

import hotloop as hl
import numpy as np
import pytest

rng = np.random.default_rng(5)


def close(result, wanted, tolerance=1e-12):
    wanted = np.asarray(wanted)
    assert result.dtype == wanted.dtype and result.shape == wanted.shape
    np.testing.assert_allclose(np.asarray(result), wanted, rtol=tolerance, atol=tolerance)


def derivatives_agree(fn, *arguments, orders=2, tolerance=1e-6):
    """jvp and vjp of a float64 function along random directions against differences, and those of its gradient."""
    g = np.random.default_rng(11)
    arguments = [np.asarray(a, np.float64) for a in arguments]
    tangents = [g.normal(size=a.shape) for a in arguments]
    h = 1e-6
    wanted = (np.asarray(fn(*(a + h * t for a, t in zip(arguments, tangents)))) - np.asarray(fn(*(a - h * t for a, t in zip(arguments, tangents))))) / (2 * h)
    value, tangent = hl.jvp(fn, tuple(arguments), tuple(tangents))
    np.testing.assert_allclose(tangent, wanted, rtol=tolerance, atol=tolerance)
    cotangent = g.normal(size=np.shape(value))
    pulled = hl.vjp(fn, *arguments)[1](cotangent)
    assert np.isclose(sum(np.vdot(p, t) for p, t in zip(pulled, tangents)), np.vdot(cotangent, tangent), rtol=1e-10, atol=1e-12)
    if orders > 1:
        size = hl.grad(lambda *a: hl.sum(hl.sin(fn(*a)) * cotangent), argnums=tuple(range(len(arguments))))
        derivatives_agree(lambda *a: hl.concat([hl.ravel(x) for x in size(*a)]), *arguments, orders=orders - 1, tolerance=tolerance)


RUNNING = {"cumulative_max": np.maximum, "cumulative_min": np.minimum}


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32])
def test_running_extremes(name, dtype):
    x = np.rint(8 * rng.normal(size=(4, 7, 3))).astype(dtype)
    fn = getattr(hl, name)
    for axis in (0, 1, -1):
        close(fn(x, axis=axis), RUNNING[name].accumulate(x, axis=axis))
    close(hl.jit(fn)(x[0, :, 0]), RUNNING[name].accumulate(x[0, :, 0]))
    initial = fn(x, axis=1, include_initial=True)
    assert initial.shape == (4, 8, 3) and np.array_equal(initial[:, 1:], RUNNING[name].accumulate(x, axis=1))
    limit = {"f": math.inf, "i": None, "u": None}[x.dtype.kind] or np.iinfo(dtype).max
    if name == "cumulative_max":
        limit = -math.inf if x.dtype.kind == "f" else np.iinfo(dtype).min
    assert (np.asarray(initial[:, 0]) == limit).all()
    assert fn(x[:, :0], axis=1).shape == (4, 0, 3)


def test_running_extremes_of_nan_and_ties():
    x = np.array([-np.inf, 1.0, 1.0, np.nan, 2.0])
    close(hl.cumulative_max(x), np.maximum.accumulate(x))
    close(hl.cumulative_min(-x), np.minimum.accumulate(-x))
    close(hl.jacrev(hl.cumulative_max)(x[:3]), np.eye(3))  # of equal ones the last
    close(hl.jacfwd(hl.cumulative_min)(np.array([3.0, 1.0, 2.0])), [[1.0, 0, 0], [0, 1, 0], [0, 1, 0]])
    derivatives_agree(lambda v: hl.cumulative_max(v, axis=1), rng.normal(size=(3, 6)))
    close(hl.vmap(hl.cumulative_max)(np.array([[1.0, 0, 2], [3, 4, 1]])), [[1.0, 1, 2], [3, 4, 4]])
    with pytest.raises(hl.UserError, match=r"^\[cumulative_max\] the axis must be named unless x has one. Received: \(2, 2\).$"):
        hl.cumulative_max(np.ones((2, 2)))


@pytest.mark.parametrize("fn", [lambda v: hl.logaddexp(v[0], v[1]), hl.logsumexp], ids=["logaddexp", "logsumexp"])
def test_log_sums_of_nothing_are_flat(fn):
    nothing = np.array([-np.inf, -np.inf])
    for transform in (lambda f: f, hl.jit):
        assert float(transform(fn)(nothing)) == -np.inf
        close(transform(hl.grad(fn))(nothing), np.zeros(2))
        close(transform(hl.jacfwd(fn))(nothing), np.zeros(2))
        close(transform(hl.hessian(fn))(nothing), np.zeros((2, 2)))
        # A lane with nothing leaves the others alone.
        lanes = np.array([[-np.inf, -np.inf], [0.0, 0.0], [-np.inf, 2.0], [1e8, 1e8]])
        close(transform(hl.vmap(hl.grad(fn)))(lanes), [[0, 0], [0.5, 0.5], [0, 1], [0.5, 0.5]])
    one = np.array([1.0, 1.0])
    close(hl.hessian(fn)(one), [[0.25, -0.25], [-0.25, 0.25]])
    derivatives_agree(fn, [0.3, -1.2], orders=3, tolerance=1e-5)


def test_shares_of_logaddexp_add_up_to_1():
    # Where the logarithm of 2 is lost beside them, too.
    for a, b in ((3.0, 3.0), (1e17, 1e17), (np.inf, np.inf), (np.inf, 0.0), (-800.0, 0.0), (1e8, 1e8 + 1)):
        for dtype in (np.float32, np.float64):
            shares = [float(g) for g in hl.grad(hl.logaddexp, argnums=(0, 1))(dtype(a), dtype(b))]
            assert abs(sum(shares) - 1) < 2e-7, (a, b, shares)
            assert a != b or shares == [0.5, 0.5]


@pytest.mark.parametrize("shift, axis", [
    (1, (0, 1)), ((1, 2), 0), ((1,), (0, 1)), ((1, 2), (1, 0)), ((1, 2), (1,)), ([2], -1), ((1, 1), (0, 0)), (-1, (2, 0, 1)), ((), ()), (3, ()), ((), 1), ((1, 2), None), (7, [1]),
])  # fmt: skip
def test_shifts_and_axes_of_roll_broadcast(shift, axis):
    x = np.arange(24.0).reshape(2, 3, 4)
    wanted = np.roll(x, shift, axis=axis)
    close(hl.roll(x, shift, axis=axis), wanted)
    close(hl.jit(lambda v: hl.roll(v, shift, axis=axis))(x), wanted)
    with pytest.raises(hl.UserError, match=r"^\[roll\] there must be one shift an axis, or one for all. Received: shift \(1, 2, 3\) and axis \(0, 1\).$"):
        hl.roll(x, (1, 2, 3), axis=(0, 1))


def test_logcumsumexp():
    x = 30 * rng.normal(size=(5, 40))
    close(hl.logcumsumexp(x, axis=1), np.logaddexp.accumulate(x, axis=1), 1e-13)
    close(hl.logcumsumexp(x.astype("f4"), axis=0), np.logaddexp.accumulate(x.astype("f4"), axis=0), 1e-6)
    edges = np.array([-np.inf, -np.inf, -1000.0, -1001.0, 5.0, np.inf, 3.0])
    close(hl.logcumsumexp(edges), np.logaddexp.accumulate(edges))
    assert np.isnan(hl.logcumsumexp(np.array([1.0, np.nan, 2.0]))[1:]).all()
    # Masked ones in front have the derivative 0.
    slope = hl.jacrev(hl.logcumsumexp)(edges[:4])
    weight = 1 / (1 + math.exp(-1))
    close(slope, [[0.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, weight, 1 - weight]])
    derivatives_agree(lambda v: hl.logcumsumexp(v, axis=0), rng.normal(size=(5, 2)), orders=3, tolerance=1e-5)
    assert hl.logcumsumexp(hl.arange(3)).dtype == np.float32


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_convolutions(mode, dtype):
    tolerance = 1e-4 if dtype == np.float32 else 1e-11
    for n in (1, 2, 3, 4, 7, 8, 40):
        for k in (1, 2, 3, 4, 5, 8, 33):
            a, v = (np.rint(5 * rng.normal(size=m)).astype(dtype) for m in (n, k))
            close(hl.convolve(a, v, mode), np.convolve(a, v, mode), tolerance)
            close(hl.jit(lambda a, v: hl.correlate(a, v, mode=mode))(a, v), np.correlate(a, v, mode), tolerance)


@pytest.mark.parametrize("sizes", [(9, 4), (4, 9), (6, 6), (60, 30)])
def test_derivatives_of_convolutions(sizes):
    a, v = (rng.normal(size=m) for m in sizes)
    for mode in ("full", "same", "valid"):
        derivatives_agree(lambda a, v, mode=mode: hl.convolve(a, v, mode), a, v, orders=3 if max(sizes) < 10 else 2, tolerance=1e-4)
        derivatives_agree(lambda a, v, mode=mode: hl.correlate(a, v, mode), a, v, tolerance=1e-4)
    rows = rng.normal(size=(5, sizes[0]))
    close(hl.vmap(lambda r: hl.convolve(r, v))(rows), [np.convolve(r, v) for r in rows])
    slopes = hl.jit(hl.vmap(hl.grad(lambda r: hl.sum(hl.convolve(r, v) ** 2))))(rows)
    close(slopes, [2 * np.correlate(np.convolve(r, v), v, "valid") for r in rows], 1e-11)


def test_convolutions_say_what_does_not_fit():
    for call, message in (
        (lambda: hl.convolve(np.ones((2, 2)), np.ones(2)), r"^\[convolve\] there must be two vectors with at least one element each. Received: f64\[2,2\] and f64\[2\]"),
        (lambda: hl.correlate(np.ones(0), np.ones(2)), r"\[correlate\] there must be two vectors with at least one element"),
        (lambda: hl.convolve(np.ones(2), np.ones(2), mode="most"), r"^\[convolve\] mode must be one of full, same, valid. Received: 'most'.$"),
    ):
        with pytest.raises(hl.UserError, match=message):
            call()


def test_kron():
    for a, b in (((2, 3), (4, 5)), ((3,), (2,)), ((3,), (2, 2)), ((2, 2, 2), (3, 1)), ((), (3,)), ((0, 2), (3, 1))):
        x, y = rng.normal(size=a), rng.normal(size=b)
        close(hl.kron(x, y), np.kron(x, y))
    close(hl.kron(np.arange(4, dtype=np.int32).reshape(2, 2), np.eye(2, dtype=np.float32)), np.kron(np.arange(4).reshape(2, 2), np.eye(2)).astype(np.float32))
    derivatives_agree(hl.kron, rng.normal(size=(2, 2)), rng.normal(size=(2, 3)))
    assert np.array_equal(hl.jit(lambda x: np.kron(x, np.eye(2)))(np.ones((2, 2))), np.kron(np.ones((2, 2)), np.eye(2)))


def test_trapezoid():
    y, x = rng.normal(size=(4, 6, 3)), np.sort(rng.normal(size=6))
    close(hl.trapezoid(y[0, 0]), np.trapezoid(y[0, 0]))
    for axis in (0, 1, 2):
        close(hl.trapezoid(y, dx=0.3, axis=axis), np.trapezoid(y, dx=0.3, axis=axis))
    close(hl.trapezoid(y, x, axis=1), np.trapezoid(y, x, axis=1))
    close(hl.jit(lambda y, x: hl.trapezoid(y, x=x, axis=0))(y, y + 1), np.trapezoid(y, y + 1, axis=0))
    close(hl.trapezoid(y.astype("f4"), dx=0.5).astype("f8"), np.trapezoid(y.astype("f4"), dx=0.5).astype("f8"), 1e-6)
    derivatives_agree(lambda y, x: hl.trapezoid(y, x, axis=1), y, x)
    close(hl.grad(lambda dx: hl.trapezoid(y[0, 0], dx=dx))(np.float64(0.3)), np.trapezoid(y[0, 0]))
    with pytest.raises(hl.UserError, match=r"^\[trapezoid\] x must be a vector of as many places"):
        hl.trapezoid(y, x, axis=0)


def test_covariances():
    x, y = rng.normal(size=(3, 20)), rng.normal(size=(2, 20))
    close(hl.cov(x), np.cov(x))
    close(hl.cov(x[0]), np.cov(x[0]))
    close(hl.cov(x, y), np.cov(x, y))
    close(hl.cov(x[0], y[0], correction=0), np.cov(x[0], y[0], ddof=0))
    close(hl.cov(x.T, rowvar=False), np.cov(x.T, rowvar=False))
    close(hl.corrcoef(x, y=y), np.corrcoef(x, y))
    close(hl.corrcoef(x[0]), np.corrcoef(x[0]))
    close(hl.jit(lambda v: hl.corrcoef(v, rowvar=False))(x.T), np.corrcoef(x.T, rowvar=False))
    twice = np.asarray(hl.corrcoef(np.stack([x[0], 3 * x[0], -x[0]])))
    assert abs(twice).max() <= 1 and np.allclose(twice, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]])
    assert hl.cov(x.astype("f4")).dtype == np.float32 and np.isnan(hl.corrcoef(np.ones((2, 4)))).all()
    derivatives_agree(hl.cov, x[:, :5])
    derivatives_agree(hl.corrcoef, x[:, :5])
    close(hl.vmap(hl.cov)(np.stack([x, 2 * x])), [np.cov(x), np.cov(2 * x)])
    for call, message in (
        (lambda: hl.cov(x[:, :1]), r"^\[cov\] there must be more observations than the correction takes off. Received: 1 of 3 variables, correction=1.$"),
        (lambda: hl.cov(x, y[:, :5]), r"^\[cov\] x and y must have as many observations. Received: f64\[3,20\] and f64\[2,5\].$"),
        (lambda: hl.corrcoef(np.ones((2, 2, 2))), r"^\[corrcoef\] observations must be a vector, or \(variables, observations\)"),
    ):
        with pytest.raises(hl.UserError, match=message):
            call()
    with pytest.raises(TypeError, match="Try: correction"):
        hl.cov(x, ddof=0)


def test_what_is_close():
    values = np.array([0.0, -0.0, 1.0, 1.000001, 1.1, np.inf, -np.inf, np.nan, 1e-9, 1e300])
    a, b = np.meshgrid(values, values)
    for equal_nan in (False, True):
        assert np.array_equal(hl.isclose(a, b, equal_nan=equal_nan), np.isclose(a, b, equal_nan=equal_nan))
        assert np.array_equal(hl.jit(lambda a, b: hl.isclose(a, b, rtol=0.2, atol=0.0))(a, b), np.isclose(a, b, rtol=0.2, atol=0.0))
    assert bool(hl.allclose(values[:4], values[:4] + 1e-9)) and not hl.allclose(values, values) and hl.allclose(values, values, equal_nan=True)
    assert not hl.isclose(np.int32(2**30), np.int32(2**30 + 1), rtol=0.0) and hl.isclose(np.int32(5), np.int32(6), atol=1)
    assert hl.isclose(np.uint32(0), np.uint32(1), atol=2) and hl.isclose(True, True)
    assert hl.array_equal(values[:5], values[:5]) and not hl.array_equal(values, values) and not hl.array_equal(np.ones(2), np.ones((2, 1)))


def test_roots_and_powers():
    x = np.concatenate([rng.normal(size=200), 10.0 ** rng.uniform(-300, 300, 200), [0.0, -0.0, np.inf, -np.inf, 5e-324, -27.0, 1.7e308]])
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            v = x.astype(dtype)
        got, wanted = np.asarray(hl.jit(hl.cbrt)(v)), np.cbrt(v.astype(np.float64)).astype(dtype)
        finite = np.isfinite(wanted)
        assert got.dtype == dtype and (abs(got[finite] - wanted[finite]) <= 2 * np.spacing(abs(wanted[finite]))).all()
        assert np.array_equal(got[~finite], wanted[~finite]) and np.array_equal(np.signbit(got), np.signbit(wanted))
    assert np.isnan(hl.cbrt(np.nan)) and hl.grad(hl.cbrt)(0.0) == np.inf
    for order, wanted in ((1, 1 / 3 * 4), (2, -2 / 9 * 32 * -1), (3, 10 / 27 * 256)):  # at -1/8
        fn = hl.cbrt
        for _ in range(order):
            fn = hl.grad(fn)
        assert np.isclose(float(fn(np.float64(-0.125))), wanted, rtol=1e-12)
    whole = np.arange(-1074, 1024).astype(np.float64)
    assert np.array_equal(hl.exp2(whole), np.exp2(whole)) and hl.exp2(np.int32(5)) == 32 and hl.exp2(np.float32(-200)) == 0
    some = rng.normal(size=50)
    close(hl.exp2(some), np.exp2(some), 1e-15)
    close(hl.vmap(hl.grad(hl.grad(hl.exp2)))(some), math.log(2) ** 2 * np.exp2(some), 1e-13)
    close(hl.rsqrt(np.array([4.0, 0.0, np.inf])), [0.5, np.inf, 0.0])
    assert np.isnan(hl.rsqrt(-1.0)) and np.isclose(hl.grad(hl.grad(hl.rsqrt))(np.float64(4.0)), 0.75 / 32)
    assert np.array_equal(np.cbrt(hl.asarray(np.array([8.0]))), [2.0]) and hl.cbrt(8).dtype == np.float32


def test_logarithms_times_what_may_vanish():
    x, y = np.meshgrid([0.0, 1.0, -2.0, np.nan], [0.0, 3.0, -1.0, np.inf, np.nan])
    with np.errstate(all="ignore"):
        close(hl.xlogy(x, y), np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log(y)))
        close(hl.xlog1py(x, y), np.where((x == 0) & ~np.isnan(y), 0.0, x * np.log1p(y)))
    at = np.float64(0.0), np.float64(2.0)
    assert np.allclose(hl.grad(hl.xlogy, argnums=(0, 1))(*at), [math.log(2), 0]) and np.allclose(hl.grad(hl.xlog1py, argnums=(0, 1))(*at), [math.log(3), 0])
    # An entropy, and its gradient where one probability is 0.
    p = np.array([0.5, 0.0, 0.5])
    close(hl.grad(lambda p: hl.sum(hl.xlogy(p, p)))(p), [math.log(0.5) + 1, 0.0, math.log(0.5) + 1])
    derivatives_agree(hl.xlogy, rng.normal(size=4), rng.uniform(0.5, 2, 4))
    derivatives_agree(hl.xlog1py, rng.normal(size=4), rng.uniform(-0.5, 2, 4))


# With 40 digits.
POLYGAMMA_AT = np.array([1e-3, 0.25, 1.0, 3.7, 11.5, 40.0, -0.3, -2.6])
POLYGAMMA = {
    1: [1000001.6425331958, 17.19732915450711, 1.6449340668482264, 0.3100378576700383, 0.09084666127454623, 0.02531510384129103, 13.945160267805722, 10.591688362390217],
    2: [-2000000002.3976321, -129.32773993753693, -2.4041138063191885, -0.09539530872855403, -0.008247469050652217, -0.0006408202718352986, 67.63908119988317, -22.377796580409246],
    3: [6000000000006.469, 1538.7821440091884, 6.493939402266829, 0.058279217956563614, 0.001496464752269225, 3.24414001515635e-05, 766.6198904191685, 283.53838059773574],
    6: [-7.199999999999998e+23, -11796633.687743692, -726.0114797149845, -0.09576004675283734, -6.677381400689733e-05, -3.155817955236394e-08, 3283420.02651577, -413775.28186407645],
}  # fmt: skip


@pytest.mark.parametrize("n", POLYGAMMA)
def test_polygamma(n):
    close(hl.jit(lambda x: hl.polygamma(n, x))(POLYGAMMA_AT), POLYGAMMA[n], 1e-13)
    close(hl.polygamma(n, POLYGAMMA_AT.astype("f4"))[:6], np.float32(POLYGAMMA[n])[:6], 1e-6)
    if n + 1 in POLYGAMMA:
        close(hl.vmap(hl.grad(lambda x: hl.polygamma(n, x)))(POLYGAMMA_AT), POLYGAMMA[n + 1], 1e-12)


def test_ends_of_polygamma():
    close(hl.polygamma(0, POLYGAMMA_AT), hl.digamma(POLYGAMMA_AT))
    close(hl.polygamma(1, np.array([0.0, -3.0, np.inf, np.nan])), [np.inf, np.inf, 0.0, np.nan])
    close(hl.polygamma(2, np.array([0.0, -3.0, np.inf])), [-np.inf, np.nan, 0.0])
    for n, message in ((-1, r"^\[polygamma\] n must not be negative. Received: -1.$"), (0.5, r"^\[polygamma\] n must be an integer. Received: 0.5.$")):
        with pytest.raises(hl.UserError, match=message):
            hl.polygamma(n, 1.0)


# The same.
QUANTILES = {
    5e-324: -38.467405617144344, 1e-300: -37.0470962993612, 1e-20: -9.262340089798407, 1e-08: -5.612001244174789, 0.01: -2.326347874040841, 0.2499: -0.67480447011061, 0.25: -0.6744897501960817, 0.3: -0.5244005127080408, 0.4999: -0.00025066283008800747,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["llvm", "interp", "c"])
def test_quantiles_of_the_normal_distribution(backend):
    p, wanted = np.array(list(QUANTILES)), np.array(list(QUANTILES.values()))
    got = np.asarray(hl.jit(hl.ndtri, backend=backend)(p))
    assert (abs(got - wanted) <= 4 * np.spacing(abs(wanted))).all()
    above = np.array([0.75, 0.5, 1 - 2**-20, 0.9])
    close(hl.ndtr(hl.jit(hl.ndtri, backend=backend)(above)), above, 1e-15)
    single = hl.jit(hl.ndtri, backend=backend)(p[2:].astype("f4"))
    wanted = np.asarray(hl.ndtri(p[2:].astype("f4").astype("f8")))
    assert single.dtype == "f4" and (abs(np.asarray(single) - wanted) <= 3 * np.spacing(abs(wanted.astype("f4")))).all()


@pytest.mark.parametrize("backend", ["llvm", "interp", "c"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ends_of_these_quantiles(backend, dtype):
    p = np.array([0, -0.0, 1, 0.5, -0.1, 1.1, np.nan, np.inf, -np.inf], dtype)
    y, slope = hl.jit(hl.vmap(hl.value_and_grad(hl.ndtri)), backend=backend)(p)
    assert np.array_equal(y, [-np.inf, -np.inf, np.inf, 0, *[np.nan] * 5], equal_nan=True)
    assert not np.signbit(np.asarray(y)[3])
    assert np.array_equal(np.delete(slope, 3), [np.inf] * 3 + [np.nan] * 5, equal_nan=True)


def test_slopes_of_these_quantiles():
    # In float32 too: the smallest number, whose slope is beyond the largest, and a tail.
    p = np.float32([2**-149, 1e-30, 1e-8, 0.2, 1 - 2**-24])
    with np.errstate(over="ignore"):
        wanted = np.asarray(hl.vmap(hl.grad(hl.ndtri))(p.astype("f8"))).astype("f4")
    found = np.asarray(hl.vmap(hl.grad(hl.ndtri))(p))
    assert found[0] == wanted[0] == np.inf
    np.testing.assert_allclose(found[1:], wanted[1:], rtol=5e-7)
    # The n-th derivatives, for which y' = 1 / density(y) and so y'' = y y'^2.
    for p in (1e-30, 0.2, 0.5, 0.97):
        y = float(hl.ndtri(np.float64(p)))
        first = math.sqrt(2 * math.pi) * math.exp(y * y / 2)
        wanted = [first, y * first**2, (1 + 2 * y * y) * first**3, (7 * y + 6 * y**3) * first**4]
        fn = hl.ndtri
        for value in wanted:
            fn = hl.grad(fn)
            assert np.isclose(float(fn(np.float64(p))), value, rtol=1e-11, atol=1e-12)
    assert hl.jit(hl.vmap(hl.jacfwd(hl.ndtri)))(np.array([0.0, 1.0])).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_powers_of_integers_are_integers(dtype):
    x, n = np.arange(9).astype(dtype), np.array([0, 1, 2, 3, 5, 9, 31, 7, 40]).astype(dtype)
    if dtype != "uint32":
        x = x - 4
    with np.errstate(over="ignore"):
        wanted, squares = x**n, x * x
    for found, want in ((hl.pow(x, n), wanted), (hl.asarray(x) ** n, wanted), (hl.pow(x, 2), squares), (hl.pow(x[:, None], 5), (x**5)[:, None]), (hl.pow(x, 0), x**0)):
        assert found.dtype == dtype and np.array_equal(found, want)
    assert hl.pow(x, 2.0).dtype.kind == hl.pow(x, np.float32(0.5)).dtype.kind == "f"
    if dtype != "uint32":
        assert np.array_equal(hl.pow(x, np.full(9, -3, dtype)), [0, 0, 0, -1, 0, 1, 0, 0, 0])
        with pytest.raises(hl.UserError, match=r"\[pow\] an integer's power must not be negative. Received: -1. Try: x.astype"):
            hl.asarray(x) ** -1


def test_no_difference_is_the_array():
    assert np.array_equal(hl.diff(np.eye(3), n=0, prepend=np.eye(3)), np.eye(3))


NAN_REDUCTIONS = ["nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("name", NAN_REDUCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions_without_nan(name, dtype):
    x = np.rint(9 * rng.normal(size=(4, 5, 3)))
    if dtype != np.int32:
        x[rng.random(x.shape) < 0.3] = np.nan
        x[1, :, 2], x[2, 0, 1] = np.nan, np.inf  # a line of NaN alone
    x = x.astype(dtype)
    ours, theirs = getattr(hl, name), getattr(np, name)
    result_dtype = np.float32 if dtype == np.int32 and name in ("nanmean", "nanvar", "nanstd") else dtype
    for options in ({}, {"axis": 1}, {"axis": (0, -1), "keepdims": True}, {"axis": 0}):
        wanted = np.asarray(theirs(x, **options)).astype(result_dtype)
        for found in (ours(x, **options), hl.jit(lambda x, options=options: ours(x, **options))(x), hl.jit(lambda x, options=options: theirs(x, **options))(x)):
            close(found, wanted, 1e-5 if result_dtype == np.float32 else 1e-13)
    if name in ("nanvar", "nanstd"):
        close(ours(x[..., 0], axis=1, correction=1), theirs(x[..., 0], axis=1, ddof=1).astype(result_dtype), 1e-5)
        assert np.isnan(ours(np.array([1.0, np.nan]), correction=1)) and np.isnan(ours(np.array([1.0, np.nan]), correction=3))


@pytest.mark.parametrize("name", NAN_REDUCTIONS)
def test_derivatives_without_nan(name):
    x = rng.normal(size=(3, 6))
    x[0, 1] = x[2, 0] = x[2, 4] = np.nan
    fn = getattr(hl, name)
    slope = hl.jit(hl.grad(lambda x: hl.sum(hl.sin(fn(x, axis=1)))))(x)
    assert (np.asarray(slope)[np.isnan(x)] == 0).all()
    plain = getattr(hl, name[3:])
    for row, found in zip(x, np.asarray(slope)):
        close(found[~np.isnan(row)], hl.grad(lambda v: hl.sin(plain(v)))(row[~np.isnan(row)]), 1e-13)
        derivatives_agree(lambda v, row=row: fn(hl.asarray(row).at[~np.isnan(row)].set(v)), row[~np.isnan(row)])


def test_where_of_reductions_without_nan():
    x, mask = np.array([1.0, np.nan, 3.0, 5.0]), np.array([True, True, True, False])
    for name in ("nansum", "nanprod", "nanmean"):
        close(hl.jit(getattr(hl, name))(x, where=mask), getattr(np, name)(x, where=mask))
    assert hl.nansum(np.float32([1, np.nan]), dtype=hl.float64).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_linspace_of_traced_ends(dtype):
    ends = np.array([-3, 7], dtype)
    result = np.float32 if dtype == np.int32 else dtype
    for num in (0, 1, 2, 5, 64):
        for endpoint in (True, False):
            wanted = np.linspace(*ends, num, endpoint=endpoint).astype(result)
            for linspace in (hl.linspace, np.linspace):
                found = hl.jit(lambda x, linspace=linspace, num=num, endpoint=endpoint: linspace(x[0], x[1], num, endpoint=endpoint))(ends)
                close(found, wanted, 1e-6 if result == np.float32 else 1e-15)
            close(hl.linspace(*hl.asarray(ends), num, endpoint=endpoint), wanted, 1e-6 if result == np.float32 else 1e-15)
    close(hl.jit(lambda x: hl.linspace(x, 2, 4, dtype=hl.float64))(ends), np.linspace(ends.astype(np.float64), 2, 4), 1e-15)
    close(hl.jit(lambda x: hl.linspace(x[0], x[1], 8, dtype=hl.int32))(ends), np.linspace(*ends, 8, dtype=np.int32))
    if dtype != np.int32:
        third = np.array([0.1, 0.7], dtype)  # 3 * (0.6 / 3) + 0.1 is not 0.7
        assert np.asarray(hl.jit(lambda x: hl.linspace(x[0], x[1], 4))(third))[-1] == third[1]


def test_linspace_of_numbers_and_its_derivatives():
    close(hl.linspace(0.1, 0.7, 13), np.linspace(0.1, 0.7, 13).astype(np.float32), 0)
    close(hl.jacrev(lambda x: hl.linspace(x[0], x[1], 5))(np.array([2.0, 3.0])), np.stack([np.linspace(1, 0, 5), np.linspace(0, 1, 5)], 1))
    derivatives_agree(lambda a, b: hl.linspace(a, b, 7, endpoint=False) ** 2, 0.3, [1.0, 2.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_round_to_decimals(dtype):
    x = (100 * rng.normal(size=300)).astype(dtype)
    x[:4] = 25, 35, -15, 5
    for decimals in (0, 1, 3, -1, -2):
        wanted = np.round(x, decimals)
        for call in (hl.round, np.round, round, lambda x, d: x.round(d)):
            close(hl.jit(lambda x, call=call, decimals=decimals: call(x, decimals))(x), wanted, 0)
        close(round(hl.asarray(x), decimals), wanted, 0)
    close(round(hl.asarray(x)), np.rint(x).astype(dtype), 0)
    close(hl.grad(lambda x: hl.round(x, 1))(np.float64(0.33)), 0.0)
    with pytest.raises(hl.UserError, match=r"^\[round\] decimals must be an integer. Received: 1.5.$"):
        hl.round(x, 1.5)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_divmod(dtype):
    x, y = np.array([7, -7, 5, -1], dtype), np.array([2, 2, -3, 3], dtype)
    for call, of in ((lambda x: divmod(x, y), x), (lambda y: divmod(x, y), y), (lambda x: divmod(x, 2), x), (lambda y: divmod(7, y), y), (lambda x: np.divmod(x, y), x), (lambda x: hl.divmod(x, y), x)):
        wanted = call(of) if call(of)[0].__class__ is np.ndarray else np.divmod(x, y)
        for pair in (hl.jit(call)(of), call(hl.asarray(of))):
            assert isinstance(pair, tuple)
            for found, expected in zip(pair, wanted):
                close(found, expected, 0)
    slopes = hl.grad(lambda x, y: hl.sum(divmod(x, y)[1]), argnums=(0, 1))(np.float64(7), np.float64(2))
    assert [float(s) for s in slopes] == [1, -3]


def test_array_split():
    x = np.arange(21.0).reshape(7, 3)
    for sections in (1, 3, 4, 7, 9, np.int64(2), [2, 5], (1,)):
        for found, wanted in zip(hl.jit(lambda x, n=sections: hl.array_split(x, n))(x), np.array_split(x, sections), strict=True):
            close(found, wanted, 0)
    assert [part.shape for part in hl.array_split(hl.asarray(x), 2, axis=-1)] == [(7, 2), (7, 1)]
    assert [part.shape for part in hl.jit(lambda x: np.array_split(x, 2))(x)] == [(4, 3), (3, 3)]
    close(hl.grad(lambda x: hl.sum(hl.array_split(x, 2)[1] ** 2))(np.arange(3.0)), [0.0, 0, 4])
    with pytest.raises(hl.UserError, match=r"^\[array_split\] there must be at least one part. Received: 0.$"):
        hl.array_split(x, 0)
