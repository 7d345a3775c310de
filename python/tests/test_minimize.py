"""Minimisation inside the program."""

import hotloop as hl
import numpy as np
import pytest


def rosenbrock(x):
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


START = np.array([-1.2, 1.0])


@pytest.mark.parametrize("method", ["lbfgs", "bfgs", "nonlinear_cg"])
def test_alone_and_in_a_program(method):
    found = hl.minimize(rosenbrock, START, method=method)
    assert found.converged and found.message == "converged: the gradient is within its tolerance"
    np.testing.assert_allclose(found.params, [1, 1], atol=2e-5)
    compiled = hl.jit(lambda x: hl.minimize(rosenbrock, x, method=method))(START)
    np.testing.assert_array_equal(found.params, compiled.params)
    assert int(compiled.evaluations) == int(found.evaluations) and compiled.check() is compiled
    assert "gradient is within" in repr(compiled)


def test_trees_numbers_and_what_a_function_sees():
    data = np.linspace(0, 1, 20)
    fn = lambda p, shift: ((p["slope"] * data + p["line"][0] - 3 * data - shift) ** 2).mean()  # noqa: E731
    found = hl.minimize(fn, {"slope": 0.0, "line": [np.float64(1)]}, (0.5,))
    np.testing.assert_allclose([found.params["slope"], found.params["line"][0]], [3, 0.5], atol=1e-4)
    data = np.linspace(0, 2, 20)  # looked at anew
    assert abs(float(hl.minimize(fn, {"slope": 0.0, "line": [np.float64(1)]}, (-1,)).params["line"][0]) + 1) < 1e-4
    assert hl.minimize(lambda p: (p - 2) ** 2, 0.0).params.dtype == np.float32


def test_each_start_goes_its_own_way():
    starts = np.random.default_rng(0).normal(size=(17, 5))
    many = hl.jit(hl.vmap(lambda x: hl.minimize(rosenbrock, x)))
    found = many(starts)
    assert found.converged.shape == (17,) and len(set(np.asarray(found.iterations).tolist())) > 3
    assert "17" in found.message
    for i in (0, 5, 16):
        alone = hl.jit(lambda x: hl.minimize(rosenbrock, x))(starts[i])
        np.testing.assert_array_equal(alone.params, np.asarray(found.params)[i])
        assert int(alone.evaluations) == int(np.asarray(found.evaluations)[i])


def test_a_network_in_float32():
    x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    y = np.sin(x.sum(1, keepdims=True))
    net = hl.nn.Sequential(hl.nn.Linear(2, 8), hl.nn.Tanh(), hl.nn.Linear(8, 1))
    fit = hl.jit(lambda params, x, y: hl.minimize(lambda p: ((net(p, x) - y) ** 2).mean(), params, max_iterations=200))
    found = fit(net.init(0), x, y)
    assert float(found.value) < 2e-3 and int(found.iterations) <= 200


def test_derivatives_are_those_of_the_minimum():
    weight = np.array([1.0, 2.0, 5.0])
    best = lambda w: hl.minimize(lambda x: (w * hl.exp(x) - x).sum(), np.zeros(3), gradient_tolerance=1e-12, value_tolerance=0)  # noqa: E731
    # The minimum is at -log w, with the value sum(1 + log w).
    np.testing.assert_allclose(hl.jacrev(lambda w: best(w).params)(weight), np.diag(-1 / weight), atol=1e-10)
    np.testing.assert_allclose(hl.jacfwd(lambda w: best(w).params)(weight), np.diag(-1 / weight), atol=1e-10)
    np.testing.assert_allclose(hl.grad(lambda w: best(w).value)(weight), 1 / weight, rtol=1e-10)
    np.testing.assert_allclose(hl.hessian(lambda w: best(w).params.sum())(weight), np.diag(1 / weight**2), atol=1e-9)
    np.testing.assert_array_equal(hl.grad(lambda x: hl.minimize(rosenbrock, x).params.sum())(START), [0, 0])  # none in the start


def test_what_does_not_converge_is_told():
    found = hl.minimize(rosenbrock, START, max_iterations=3)
    assert int(found.status) == hl.Minimum.Status.MaxIterations and not found.converged and "larger maximum" in found.message
    with pytest.raises(hl.UserError, match="must converge"):
        found.check()
    found = hl.minimize(lambda x: hl.log(x).sum(), -np.ones(2))
    assert int(found.status) == hl.Minimum.Status.NonFinite and np.isnan(found.value)
    with pytest.raises(hl.UserError, match="traced minimum"):
        hl.jit(lambda x: hl.minimize(rosenbrock, x).message)(START)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hl.minimize(lambda x: x, START), r"float scalar. Received: f64\[2\].*least_squares"),
        (lambda: hl.minimize(rosenbrock, START, method="lbgfs"), "did you mean 'lbfgs'"),
        (lambda: hl.minimize(rosenbrock, START, histroy=3), "did you mean 'history'"),
        (lambda: hl.minimize(rosenbrock, START, history=0), "history must be positive"),
        (lambda: hl.minimize(rosenbrock, START, maxiter=5), "Try: max_iterations"),
        (lambda: hl.minimize(rosenbrock, START, jac=True), "derivatives are taken by themselves"),
        (lambda: hl.minimize(rosenbrock, np.array([1, 2])), "parameters must be floats"),
        (lambda: hl.minimize(rosenbrock, {}), "there must be a parameter"),
        (lambda: hl.minimize(3, START), "must be a function of the params"),
        (lambda: hl.minimize(rosenbrock, START, max_iterations=1.5), "max_iterations must be an integer"),
        (lambda: hl.minimize(rosenbrock, START, gradient_tolerance=-1), "gradient_tolerance must not be negative"),
    ],
)
def test_what_does_not_fit_is_an_error(call, message):
    with pytest.raises(hl.UserError, match=message):
        call()


def test_it_is_no_optimiser_of_batches():
    with pytest.raises(AttributeError, match="hl.minimize"):
        _ = hl.optim.LBFGS


TIMES = np.linspace(0, 4, 40)
SEEN = 3 * np.exp(-1.3 * TIMES) + 0.5 + 0.01 * np.sin(20 * TIMES)


def test_least_squares_alone_in_a_program_and_of_many():
    fn = lambda p: p["size"] * hl.exp(-p["rate"] * TIMES) + p["rest"] - SEEN  # noqa: E731
    start = {"size": np.float64(1), "rate": 1.0, "rest": 0.0}
    for scaled in (False, True):
        found = hl.least_squares(fn, start, scaled=scaled)
        np.testing.assert_allclose([found.params[k] for k in start], [3, 1.3, 0.5], atol=2e-3)
        assert found.converged and int(found.evaluations) < 10
    np.testing.assert_allclose(found.value, 0.5 * (np.asarray(fn(found.params)) ** 2).sum(), rtol=1e-12)
    many = hl.jit(hl.vmap(lambda rate: hl.least_squares(fn, {"size": hl.ones_like(rate), "rate": rate, "rest": 0.0})))(np.linspace(0.2, 5, 30))
    assert bool(np.asarray(many.converged).all()) and np.ptp(np.asarray(many.params["rate"])) < 1e-6


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_of_sizes_far_apart(dtype):
    t = np.linspace(0, 3000, 40).astype(dtype)
    fn = lambda p: p[0] * hl.exp(-p[1] * t) - (2.3e6 * np.exp(-1.1e-3 * t)).astype(dtype)  # noqa: E731
    start = np.array([1e6, 1e-3], dtype)
    found = hl.least_squares(fn, start, scaled=True)
    np.testing.assert_allclose(found.params, [2.3e6, 1.1e-3], rtol=1e-5)
    assert found.converged
    held = hl.least_squares(fn, start)  # by damping, which is no convergence
    assert int(held.iterations) > 0 and not held.converged and "scaled" in held.message


def test_a_network_by_levenberg_marquardt():
    x = np.linspace(-1, 1, 60).reshape(60, 1)
    y = np.sin(3 * x)
    net = hl.nn.Sequential(hl.nn.Linear(1, 6), hl.nn.Tanh(), hl.nn.Linear(6, 1))
    for dtype, most in (("float64", 1e-6), ("float32", 1e-5)):
        fit = hl.jit(lambda params, x, y: hl.least_squares(lambda p: net(p, x) - y, params, max_iterations=100))
        assert float(fit(net.init(0, dtype=dtype), x.astype(dtype), y.astype(dtype)).value) < most


def test_a_parameter_of_a_differential_equation_is_found():
    def residuals(rates):
        field = lambda t, y, r: hl.stack([r[0] * y[0] - r[1] * y[0] * y[1], r[1] * y[0] * y[1] - r[2] * y[1]])  # noqa: E731
        return hl.ode.solve(field, hl.ode.Tsit5(), 0, 5, np.array([1.0, 0.5]), args=rates, saveat=np.linspace(0.5, 5, 10), controller=hl.ode.PID(1e-8, 1e-8)).ys

    truth = np.array([1.5, 1.0, 3.0])
    seen = np.asarray(residuals(truth))
    found = hl.least_squares(lambda r: residuals(r) - seen, truth * [0.9, 1.1, 0.95])
    np.testing.assert_allclose(found.params, truth, rtol=1e-6)


def test_derivatives_of_a_fit():
    fn = lambda seen: hl.least_squares(lambda p: p[0] * TIMES + p[1] - seen, np.zeros(2)).params  # noqa: E731
    np.testing.assert_allclose(hl.jacrev(fn)(SEEN), np.linalg.pinv(np.stack([TIMES, np.ones(40)], 1)), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hl.least_squares(lambda x: hl.astype(x, hl.int32), START), "residuals must be floats"),
        (lambda: hl.least_squares(lambda x: [], START), "there must be a residual"),
        (lambda: hl.least_squares(rosenbrock, START, method="levenberg"), "the method must be one that exists"),
        (lambda: hl.least_squares(rosenbrock, START, initial_damping=0.0), "initial_damping must be positive"),
        (lambda: hl.least_squares(rosenbrock, START, step_tolerance=-1), "step_tolerance must not be negative"),
    ],
)
def test_what_least_squares_does_not_take(call, message):
    with pytest.raises(hl.UserError, match=message):
        call()


def powell(x):
    return hl.stack([x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2])


# Evaluations of SciPy 1.17.1's L-BFGS-B, BFGS and CG, and of MINPACK's lm, from the same starts with the same derivatives.
@pytest.mark.parametrize(("method", "evaluations"), [("lbfgs", 44), ("bfgs", 39), ("nonlinear_cg", 78)])
def test_about_as_many_evaluations_as_scipy(method, evaluations):
    found = hl.minimize(rosenbrock, START, method=method)
    assert float(found.value) < 1e-11 and int(found.evaluations) <= 1.2 * evaluations


@pytest.mark.parametrize(
    ("residuals", "start", "evaluations"),
    [
        (lambda x: hl.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]]), START, 21),
        (lambda p: p[0] * hl.exp(-p[1] * TIMES) + p[2] - SEEN, np.array([1.0, 1.0, 0.0]), 6),
        (powell, np.array([3.0, -1.0, 0.0, 1.0]), 33),
    ],
)
def test_about_as_many_evaluations_as_minpack(residuals, start, evaluations):
    found = hl.least_squares(residuals, start)
    assert found.converged and int(found.evaluations) <= 1.2 * evaluations
