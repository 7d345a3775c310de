"""hl.ode against closed forms, recorded values of SciPy and diffrax, differences, and its own solves alone."""

import inspect
import json
import pathlib

import hotloop as hl
import numpy as np
import pytest
from hotloop import _core

RECORDED = pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity" / "data"
RATES = np.array([1.5, 1.0, 0.9, 3.0])
TIGHT = hl.ode.PID(1e-10, 1e-12)


def lotka_volterra(t, y, p):
    return {"a": p[0] * y["a"] - p[1] * y["a"] * y["b"], "b": p[2] * y["a"] * y["b"] - p[3] * y["b"]}


def hares(a=1.0, b=1.2):
    return {"a": np.float64(a), "b": np.float64(b)}


def decay(t, y, rate):
    return -rate * y


# ---- solvers, controllers and adjoints are those of the engine ------------------------------------------------------------------


def test_there_is_a_class_for_each_solver_and_adjoint():
    solvers = {c.__name__ for c in vars(hl.ode).values() if inspect.isclass(c) and issubclass(c, hl.ode.Solver)} - {"Solver"}
    assert len(solvers) == len(_core.solver_definitions()) >= 16
    assert solvers >= {"Euler", "RK4", "Tsit5", "Dopri8", "Vern7", "Leapfrog", "ImplicitEuler", "Rosenbrock23", "Rodas5P", "Kvaerno5"}
    adjoints = {c.__name__ for c in vars(hl.ode).values() if inspect.isclass(c) and issubclass(c, hl.ode.Adjoint)} - {"Adjoint"}
    assert len(adjoints) == len(_core.adjoint_definitions())
    assert adjoints >= {"Discrete", "FullSave", "Checkpointed", "Backsolve", "Interpolating", "Gauss"}
    assert set(hl.ode.__all__) >= solvers | adjoints
    assert hl.ode.Tsit5().order == 5 and hl.ode.RK4().error_order == 0 and hl.ode.Rodas5P().is_implicit
    assert repr(hl.ode.Tsit5()) == "Tsit5()"


def test_defaults_of_the_controller_are_the_engines():
    options = _core.PIDOptions()
    for name, parameter in inspect.signature(hl.ode.PID).parameters.items():
        if name not in ("rtol", "atol"):
            assert parameter.default == getattr(options, name), name


@pytest.mark.parametrize("name", sorted(d[0] for d in _core.solver_definitions()))
def test_every_solver_converges(name):
    from hotloop._components import class_name

    solver = getattr(hl.ode, class_name(name))()

    def error(steps):
        field = lambda t, y, _: {"q": y["v"], "v": -y["q"] + 0.5 * hl.sin(2 * t)}  # noqa: E731
        y0 = {"q": np.float64(0.3), "v": np.float64(-0.2)}
        y1 = hl.ode.solve(field, solver, 0, 1, y0, dt0=1 / steps, controller=hl.ode.ConstantStep()).y1
        q = 0.3 * np.cos(1) + (-0.2 + 1 / 3) * np.sin(1) - np.sin(2) / 6
        v = -0.3 * np.sin(1) + (-0.2 + 1 / 3) * np.cos(1) - np.cos(2) / 3
        return max(abs(float(y1["q"]) - q), abs(float(y1["v"]) - v))

    steps = 2 if solver.order >= 7 else 3 if solver.is_implicit and solver.order >= 5 else 16
    assert error(2 * steps) < error(steps) * 2.0 ** (0.4 - solver.order)


# ---- values --------------------------------------------------------------------------------------------------------------------


def test_a_closed_form_forward_and_backward():
    y = hl.ode.solve(decay, hl.ode.Tsit5(), 0, 2, np.array([1.0, -2.0]), args=0.7, controller=TIGHT)
    np.testing.assert_allclose(y.y1, np.exp(-1.4) * np.array([1, -2]), rtol=1e-9)
    assert float(y.t1) == 2 and y.message == "the solve reached t1" and int(y.result) == hl.ode.Result.Success
    back = hl.ode.solve(decay, hl.ode.Tsit5(), 2, 0, y.y1, args=0.7, controller=TIGHT, dt0=0.1)
    np.testing.assert_allclose(back.y1, [1, -2], rtol=1e-9)
    # Directions that are known when the program runs alone.
    run = hl.jit(lambda t0, t1, y0: hl.ode.solve(decay, hl.ode.Tsit5(), t0, t1, y0, args=0.7, controller=TIGHT).y1)
    np.testing.assert_allclose(run(0.0, 2.0, np.array([1.0, -2.0])), y.y1, rtol=1e-9)
    np.testing.assert_allclose(run(2.0, 0.0, y.y1), [1, -2], rtol=1e-9)


STIFF = {
    "robertson": lambda t, y, _: hl.stack([-0.04 * y[0] + 1e4 * y[1] * y[2], 0.04 * y[0] - 1e4 * y[1] * y[2] - 3e7 * y[1] ** 2, 3e7 * y[1] ** 2]),
    "van_der_pol_1000": lambda t, y, _: hl.stack([y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]]),
}


@pytest.mark.parametrize("name", STIFF)
def test_stiff_problems_against_recorded_values(name):
    case = next(c for c in json.loads((RECORDED / "scipy_ode.json").read_text())["stiff"] if c["problem"] == name)
    y0 = np.array(case["y0"])
    solution = hl.ode.solve(STIFF[name], hl.ode.Rodas5P(), 0, case["t1"], y0, controller=hl.ode.PID(1e-8, 1e-10), max_steps=20000)
    np.testing.assert_allclose(solution.y1, case["y1"], rtol=1e-5, atol=1e-9)
    explicit = hl.ode.solve(STIFF[name], hl.ode.Tsit5(), 0, case["t1"], y0, max_steps=200, throw=False)
    assert int(explicit.result) == hl.ode.Result.MaxSteps and "an implicit solver such as Kvaerno5()" in explicit.message


def test_output_in_all_forms():
    saveat = hl.ode.SaveAt(t0=True, ts=[0.0, 1.0, 2.5], steps=True, t1=True, dense=True)
    s = hl.ode.solve(lotka_volterra, hl.ode.Tsit5(), 0, 4, hares(), args=RATES, saveat=saveat, controller=hl.ode.PID(1e-6, 1e-8), max_steps=300)
    n = int(s.stats.num_accepted)
    assert s.ts.shape == (305,) and s.ys["a"].shape == (305,)
    np.testing.assert_array_equal(s.ts[:4], [0, 0, 1, 2.5])
    assert float(s.ts[4 + n - 1]) == 4 and np.isinf(np.asarray(s.ts)[4 + n : -1]).all() and float(s.ts[-1]) == 4
    assert float(s.ys["b"][-1]) == float(s.y1["b"])
    np.testing.assert_allclose(s.evaluate(2.5)["a"], s.ys["a"][3], rtol=1e-13)
    np.testing.assert_allclose(hl.vmap(s.evaluate)(np.array([1.0, 4.0]))["b"], [float(s.ys["b"][2]), float(s.y1["b"])], rtol=1e-11)
    assert int(s.stats.num_steps) == n + int(s.stats.num_rejected) and s.stats.num_events is None
    ends = hl.ode.solve(lotka_volterra, hl.ode.Tsit5(), 0, 4, hares(), args=RATES, saveat=hl.ode.SaveAt(dense=True))
    assert ends.ts is None and ends.ys is None and ends.interpolation is not None


def test_states_are_any_tree_and_numbers_take_the_dtype_of_the_others():
    field = lambda t, y, g: ((y[0][1], -g), [0.5])  # noqa: E731
    s = hl.ode.solve(field, hl.ode.Tsit5(), 0, 1, ((2, np.float64(0.1)), [1]), args=9.81)
    (h, v), (c,) = s.y1
    assert h.dtype == v.dtype == c.dtype == np.float64
    np.testing.assert_allclose([h, v, c], [2 + 0.1 - 9.81 / 2, 0.1 - 9.81, 1.5], rtol=1e-12)
    assert hl.ode.solve(decay, hl.ode.Tsit5(), 0, 1, 1, args=1.0).y1.dtype == np.float32


def test_arguments_are_any_tree_and_what_is_no_array_stays_what_it_is():
    args = {"rate": np.array([1.0, 2.0]), "power": 2, "name": "cubic", "fn": hl.sin, "scale": 0.1}

    def field(t, y, a):
        assert a["power"] == 2 and a["name"] == "cubic" and a["fn"] is hl.sin
        return -a["rate"] * y ** a["power"] * a["scale"]

    y1 = hl.ode.solve(field, hl.ode.Tsit5(), 0, 1, np.array([1.0, 2.0]), args=args, controller=TIGHT).y1
    np.testing.assert_allclose(y1, 1 / (1 / np.array([1.0, 2.0]) + np.array([0.1, 0.2])), rtol=1e-9)


def test_tolerances_may_be_trees():
    tolerances = {"b": 1e-9, "a": np.float64(1e-9)}  # matched by key
    s = hl.ode.solve(lotka_volterra, hl.ode.Tsit5(), 0, 4, hares(), args=RATES, controller=hl.ode.PID(tolerances, tolerances))
    one = hl.ode.solve(lotka_volterra, hl.ode.Tsit5(), 0, 4, hares(), args=RATES, controller=hl.ode.PID(1e-9, 1e-9))
    np.testing.assert_allclose(s.y1["a"], one.y1["a"], rtol=1e-12)
    assert int(s.stats.num_steps) == int(one.stats.num_steps)


def test_jumps_are_stepped_onto():
    field = lambda t, y, _: hl.where(t < 1, hl.ones_like(y), -2 * hl.ones_like(y))  # noqa: E731
    controller = hl.ode.PID(1e-8, 1e-8)
    clipped = hl.ode.solve(field, hl.ode.Tsit5(), 0, 2, np.float64(0), dt0=0.3, controller=hl.ode.Clip(controller, jump_ts=[1.0]))
    np.testing.assert_allclose(clipped.y1, -1, atol=1e-13)
    assert int(clipped.stats.num_rejected) == 0
    assert int(hl.ode.solve(field, hl.ode.Tsit5(), 0, 2, np.float64(0), dt0=0.3, controller=controller).stats.num_rejected) > 3


# ---- events --------------------------------------------------------------------------------------------------------------------


def fall(height, gravity, **keywords):
    field = lambda t, y, g: {"height": y["speed"], "speed": -g}  # noqa: E731
    y0 = {"height": height, "speed": 0.0 * height}
    return hl.ode.solve(field, hl.ode.Tsit5(), 0, 2.5, y0, args=gravity, controller=hl.ode.PID(1e-8, 1e-8), **keywords)


def test_a_ball_that_hits_the_floor():
    floor = hl.ode.Event(lambda t, y, g: y["height"], direction=-1)
    h, g = np.float64(1.7), np.float64(9.81)
    s = fall(h, g, events=floor, saveat=[0.5, 1.0])
    time = np.sqrt(2 * h / g)
    assert int(s.result) == hl.ode.Result.Event and s.message == "an event ended the solve" and int(s.stats.num_events) == 1
    np.testing.assert_allclose(s.t1, time, rtol=1e-12)
    assert np.isinf(float(s.ys["height"][1]))
    by_h, by_g = hl.grad(lambda h, g: fall(h, g, events=floor).t1, argnums=(0, 1))(h, g)
    np.testing.assert_allclose([by_h, by_g], [time / (2 * h), -time / (2 * g)], rtol=1e-9)


def test_a_ball_that_bounces_and_a_batch_of_them():
    floor = hl.ode.Event(lambda t, y, g: y["height"], direction=-1, terminal=False, change=lambda t, y, g: {"height": y["height"], "speed": -0.8 * y["speed"]})

    def height(t, h, g):
        start, speed = np.sqrt(2 * h / g), 0.8 * np.sqrt(2 * h * g)
        if t < start:
            return h - g * t * t / 2
        while t > start + 2 * speed / g:
            start, speed = start + 2 * speed / g, 0.8 * speed
        return speed * (t - start) - g * (t - start) ** 2 / 2

    h, g = np.array([1.7, 0.4, 3.0]), np.array([9.81, 5.0, 9.81])
    batch = hl.vmap(lambda h, g: fall(h, g, events=[floor]))(h, g)
    np.testing.assert_allclose(batch.y1["height"], [height(2.5, *hg) for hg in zip(h, g)], atol=1e-9)
    assert batch.message == "the solve reached t1" or batch.message.startswith("3 of 3: the solve reached t1")


def test_second_derivatives_through_events():
    def time(a):
        half = hl.ode.Event(lambda t, y, a: y - 0.5)
        return hl.ode.solve(lambda t, y, a: -a * y, hl.ode.Tsit5(), 0, 100, 1 + 0 * a, args=a, events=half, controller=hl.ode.PID(1e-10, 1e-10)).t1

    a = np.float64(0.1)
    np.testing.assert_allclose(hl.grad(hl.grad(time))(a), 2 * np.log(2) / a**3, rtol=1e-5)

    def dosed(p):  # by the rate and the time of a dose
        dose = hl.ode.Event(lambda t, y, p: t - p[1], direction=1, terminal=False, change=lambda t, y, p: y + 1)
        return hl.ode.solve(lambda t, y, p: -p[0] * y, hl.ode.Tsit5(), 0, 3, 0.5 + 0 * p[0], args=p, events=dose, controller=hl.ode.PID(1e-12, 1e-12)).y1

    k, c = p = np.array([0.7, 1.25])
    left = np.exp(-k * (3 - c))
    mixed = left * (1 - k * (3 - c))
    want = [[4.5 * np.exp(-3 * k) + (3 - c) ** 2 * left, mixed], [mixed, k * k * left]]
    np.testing.assert_allclose(hl.hessian(dosed)(p), want, rtol=1e-7)


# ---- derivatives and batches ---------------------------------------------------------------------------------------------------


def loss(rates, y0, **keywords):
    """Constant steps: adaptive ones change with the parameters in a difference, and are constants of the derivative."""
    settings = {"dt0": 0.05, "controller": hl.ode.ConstantStep(), "max_steps": 200, **keywords}
    s = hl.ode.solve(lotka_volterra, hl.ode.Tsit5(), 0, 3, y0, args=rates, saveat=hl.ode.SaveAt(ts=[0.7, 1.9, 3.0]), **settings)
    return sum((leaf**2).sum() for leaf in s.ys.values())


def difference(f, x, h=1e-3):
    """Of fourth order."""
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = h
        g[i] = (8 * (float(f(x + e)) - float(f(x - e))) - (float(f(x + 2 * e)) - float(f(x - 2 * e)))) / (12 * h)
    return g


@pytest.mark.parametrize("adjoint", [hl.ode.Discrete(), hl.ode.FullSave(), hl.ode.Checkpointed()], ids=repr)
def test_gradients(adjoint):
    f = hl.jit(lambda p, y: loss(p, y, adjoint=adjoint))
    by_rates, by_state = hl.jit(hl.grad(f, argnums=(0, 1)))(RATES, hares())
    np.testing.assert_allclose(by_rates, difference(lambda p: f(p, hares()), RATES), rtol=1e-8)
    for key in ("a", "b"):
        np.testing.assert_allclose(by_state[key], difference(lambda v, key=key: f(RATES, {**hares(), key: v}), hares()[key]), rtol=1e-8)
    forward = hl.vmap(lambda d: hl.jvp(lambda p: f(p, hares()), (RATES,), (d,))[1])(np.eye(4))
    np.testing.assert_allclose(forward, by_rates, rtol=1e-10)


EQUATION = {"rtol": 1e-11, "atol": 1e-13}


@pytest.mark.parametrize("adjoint", [hl.ode.Backsolve(**EQUATION), hl.ode.Interpolating(**EQUATION), hl.ode.Gauss(**EQUATION)], ids=lambda a: type(a).__name__)
def test_adjoints_of_the_equation(adjoint):
    settings = {"dt0": None, "controller": hl.ode.PID(1e-11, 1e-13), "max_steps": 2000}
    by_rates, by_state = hl.jit(hl.grad(lambda p, y: loss(p, y, adjoint=adjoint, **settings), argnums=(0, 1)))(RATES, hares())
    exact_rates, exact_state = hl.jit(hl.grad(lambda p, y: loss(p, y, **settings), argnums=(0, 1)))(RATES, hares())
    np.testing.assert_allclose(by_rates, exact_rates, rtol=1e-6)
    np.testing.assert_allclose(by_state["b"], exact_state["b"], rtol=1e-6)
    # What the field sees of its surroundings has its gradient too.
    f = lambda k: hl.ode.solve(lambda t, y, _: -k * y, hl.ode.Tsit5(), 0, 1, np.float64(1), controller=TIGHT, adjoint=adjoint).y1  # noqa: E731
    np.testing.assert_allclose(hl.grad(f)(np.float64(1)), -np.exp(-1), rtol=1e-7)
    assert repr(adjoint) == f"{type(adjoint).__name__}(rtol=1e-11, atol=1e-13)"


def test_a_tolerance_may_be_computed():
    f = hl.jit(lambda tol: hl.ode.solve(decay, hl.ode.Tsit5(), 0, 2, np.float64(1), args=0.7, controller=hl.ode.PID(tol, 1e-12)))
    loose, tight = f(1e-3), f(1e-9)
    assert int(tight.stats.num_steps) > 2 * int(loose.stats.num_steps)
    np.testing.assert_allclose(tight.y1, np.exp(-1.4), rtol=1e-8)


def test_a_solve_is_a_layer(rng):
    layer = hl.nn.ODE(hl.nn.Linear(3, 3), t1=0.5, rtol=1e-6, atol=1e-8)
    model = hl.nn.Sequential(hl.nn.Linear(2, 3), layer)
    params, x = model.init(0), rng.normal(size=(4, 2)).astype(np.float32)
    h = hl.nn.Linear(2, 3)(params["0"], x)
    one = lambda row: hl.ode.solve(hl.nn.Linear(3, 3), hl.ode.Tsit5(), 0, 0.5, row, args=params["1"], controller=hl.ode.PID(1e-6, 1e-8)).y1  # noqa: E731
    np.testing.assert_allclose(model(params, x), hl.vmap(one)(h), rtol=1e-5)


def test_second_order():
    v = np.array([0.3, -0.2, 0.1, 0.4])
    f = lambda p: loss(p, hares())  # noqa: E731
    product = hl.jit(lambda p: hl.hvp(f, p, v))(RATES)
    gradient = hl.jit(hl.grad(f))
    wanted = [difference(lambda s, i=i: gradient(RATES + s * v)[i], np.float64(0)) for i in range(4)]
    np.testing.assert_allclose(product, wanted, rtol=1e-8)


def test_gradients_through_an_implicit_solver():
    def f(rate):
        field = lambda t, y, r: hl.stack([-r * (y[0] - hl.cos(t)) - y[0] ** 2 * y[1], y[0] - 0.3 * y[1] ** 2])  # noqa: E731
        s = hl.ode.solve(field, hl.ode.Kvaerno5(), 0, 1, np.array([0.2, 0.6]), args=rate, dt0=0.05, controller=hl.ode.ConstantStep(), max_steps=30)
        return (s.y1**2).sum()

    np.testing.assert_allclose(hl.jit(hl.grad(f))(np.float64(50)), difference(hl.jit(f), np.float64(50), 0.05), rtol=1e-5)


def test_the_gradient_of_the_end_is_the_field():
    f = lambda t1: hl.ode.solve(decay, hl.ode.Tsit5(), 0, t1, np.float64(2), args=1.0, controller=TIGHT).y1  # noqa: E731
    np.testing.assert_allclose(hl.grad(f)(np.float64(1)), -2 * np.exp(-1), rtol=1e-7)


def test_times_may_be_computed():
    f = hl.jit(lambda ts, y: hl.ode.solve(decay, hl.ode.Tsit5(), 0, 2, y, args=1.0, controller=TIGHT, saveat=ts).ys)
    np.testing.assert_allclose(f(np.array([0.5, 1.0, 2.0]), np.float64(1)), np.exp([-0.5, -1, -2]), rtol=1e-8)
    f = hl.jit(lambda t, y: hl.ode.solve(decay, hl.ode.Tsit5(), 0, 2, y, args=1.0, controller=TIGHT, saveat=[0.5, t]).ys)
    np.testing.assert_allclose(f(1.0, np.float64(1)), np.exp([-0.5, -1]), rtol=1e-6)
    # Each of a batch to a time of its own, one of them backwards.
    ends = np.array([0.5, 1.0, -1.0])
    f = hl.vmap(lambda t1: hl.ode.solve(decay, hl.ode.Tsit5(), 0.0, t1, np.float64(1), args=1.0, controller=TIGHT).y1)
    np.testing.assert_allclose(f(ends), np.exp(-ends), rtol=1e-8)


def test_the_interpolant_at_many_times():
    y0 = {"a": np.float64(1), "b": np.array([1.0, 2.0], np.float32)}
    field = lambda t, y, k: {"a": -k * y["a"], "b": -0.5 * y["b"]}  # noqa: E731
    solve = lambda k, end=2.0: hl.ode.solve(field, hl.ode.Tsit5(), 0.0, end, y0, args=k, saveat=hl.ode.SaveAt(dense=True))  # noqa: E731
    for end in (2.0, -2.0):
        solution = solve(0.7, end)
        times = np.linspace(0, end, 12).reshape(3, 4)
        many = solution.evaluate(times)
        assert many["a"].shape == (3, 4) and many["b"].shape == (3, 4, 2) and many["b"].dtype == np.float32
        for at in np.ndindex(3, 4):
            one = solution.evaluate(times[at])
            assert float(one["a"]) == float(many["a"][at])
            np.testing.assert_array_equal(one["b"], np.asarray(many["b"])[at])
    np.testing.assert_array_equal(solve(0.7).evaluate([0.5, 1.0])["a"], solve(0.7).evaluate(np.array([0.5, 1.0]))["a"])
    assert solve(0.7).evaluate(np.zeros((0, 3)))["b"].shape == (0, 3, 2)
    # Its derivatives, by times and by what was solved, are those of one at a time.
    times = np.array([0.3, 1.1, 1.9])
    slope = hl.grad(lambda ts: solve(0.7).evaluate(ts)["a"].sum())(times)
    np.testing.assert_allclose(slope, -0.7 * np.exp(-0.7 * times), rtol=2e-3)
    by_rate = hl.grad(lambda k: solve(k).evaluate(times)["a"].sum())(np.float64(0.7))
    alone = sum(float(hl.grad(lambda k, t=t: solve(k).evaluate(t)["a"])(np.float64(0.7))) for t in times)
    np.testing.assert_allclose(by_rate, alone, rtol=1e-12)


def test_what_a_field_sees_of_its_surroundings_has_a_gradient():
    f = lambda k: hl.ode.solve(lambda t, y, _: -k * y, hl.ode.Tsit5(), 0, 1, np.float64(1), controller=TIGHT).y1  # noqa: E731
    np.testing.assert_allclose([f(np.float64(1)), -hl.grad(f)(np.float64(1)), hl.hessian(f)(np.float64(1))], np.exp(-1), rtol=1e-8)


def test_a_jacobian_of_a_batch_of_solves_is_block_diagonal():
    end = lambda y: hl.ode.solve(lorenz, hl.ode.Tsit5(), 0, 0.2, y, args=20.0, controller=TIGHT).y1  # noqa: E731
    y0 = np.array([[1.0, 1.1, 1.2], [2.0, 0.5, 3.0]])
    jac = hl.jit(hl.jacobian(hl.vmap(end)))(y0)
    assert jac.structure.paired == [(0, 0)] and jac.structure.forward_passes + jac.structure.reverse_passes == 3
    for i in range(2):
        np.testing.assert_allclose(jac.blocks[i], hl.jacrev(end)(y0[i]), rtol=1e-9, atol=1e-11)


def lorenz(t, y, rho):
    return hl.stack([10 * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_trajectory_is_the_same_bits_alone_and_in_a_batch(dtype):
    def one(rho, y0):
        s = hl.ode.solve(lorenz, hl.ode.Tsit5(), 0, 0.5, y0, args=rho, controller=hl.ode.PID(1e-6, 1e-6), saveat=[0.3, 0.5], max_steps=500)
        return s

    rho = (28 * ((np.arange(50) * 7919) % 1000) / 1000).astype(dtype)
    y0 = np.tile(np.array([1, 1.1, 1.2], dtype), (50, 1))
    batch, alone = hl.jit(hl.vmap(one))(rho, y0), hl.jit(one)
    assert len(set(np.asarray(batch.stats.num_steps).tolist())) > 3
    for i in (0, 7, 49):
        single = alone(rho[i], y0[i])
        np.testing.assert_array_equal(np.asarray(batch.ys[i]), np.asarray(single.ys))
        assert int(batch.stats.num_steps[i]) == int(single.stats.num_steps)
    few = hl.jit(hl.vmap(one))(rho[:7], y0[:7])
    np.testing.assert_array_equal(np.asarray(few.ys), np.asarray(batch.ys)[:7])


def test_a_training_step_with_a_module_is_one_program():
    net = hl.nn.Sequential(hl.nn.Linear(2, 16), hl.nn.Tanh(), hl.nn.Linear(16, 2))
    opt = hl.optim.Adam(1e-2)
    ts = np.linspace(0, 1, 11)
    y0 = np.array([[1.0, 0.0]], np.float32)
    truth = hl.ode.solve(lambda t, y, _: hl.stack([y[:, 1], -4 * y[:, 0]], axis=1), hl.ode.Tsit5(), 0, 1, y0, saveat=ts).ys

    @hl.jit
    def train(params, state):
        def step(carry, _):
            params, state = carry
            fit = lambda p: ((hl.ode.solve(net, hl.ode.Tsit5(), 0, 1, y0, args=p, saveat=ts).ys - truth) ** 2).mean()  # noqa: E731
            value, grads = hl.value_and_grad(fit)(params)
            return opt.update(grads, state, params), value

        carry, losses = hl.scan(step, (params, state), length=150)
        return carry, losses

    params = net.init(0)
    _, losses = train(params, opt.init(params))
    assert float(losses[-1]) < 0.02 * float(losses[0])
    assert "1 kernel" in hl.explain(train, params, opt.init(params)) or "kernels: 1" in hl.explain(train, params, opt.init(params))


# ---- what goes wrong -----------------------------------------------------------------------------------------------------------


def test_outcomes_are_raised_outside_a_program_and_codes_inside():
    field = lambda t, y, _: y**2  # noqa: E731
    with pytest.raises(hl.UserError, match=r"\[ode.solve\] the solve must reach t1. Received: the step size fell below.*Kvaerno5\(\)"):
        hl.ode.solve(field, hl.ode.Tsit5(), 0, 2, np.float64(1))
    s = hl.jit(lambda y: hl.ode.solve(field, hl.ode.Tsit5(), 0, 2, y, saveat=[0.5, 1.5]))(np.float64(1))
    assert int(s.result) == hl.ode.Result.StepTooSmall
    np.testing.assert_allclose(s.ys[0], 2, rtol=1e-2)  # what was reached is kept
    assert np.isinf(float(s.ys[1]))
    with pytest.raises(hl.UserError, match="the solve must reach t1"):
        s.check()
    few = hl.ode.solve(decay, hl.ode.Tsit5(), 0, 50, np.float64(1), args=1.0, dt0=0.5, max_steps=5, throw=False)
    assert int(few.result) == hl.ode.Result.MaxSteps and "larger max_steps" in few.message
    nan = hl.ode.solve(lambda t, y, _: -1 / hl.sqrt(y), hl.ode.Tsit5(), 0, 2, np.float64(1), dt0=0.1, controller=hl.ode.ConstantStep(), throw=False)
    assert int(nan.result) == hl.ode.Result.NonFinite
    batch = hl.vmap(lambda y: hl.ode.solve(field, hl.ode.Tsit5(), 0, 1.5, y))(np.array([0.1, 0.2, 1.0]))
    assert batch.message.startswith("2 of 3: the solve reached t1\n1 of 3: the step size fell below")
    with pytest.raises(hl.UserError, match=r"trajectory 2, 1 of 3"):
        batch.check()


Y = np.array([1.0, 2.0])
T5 = hl.ode.Tsit5()
MISUSE = {
    "unsorted": (dict(saveat=[0.5, 0.2]), r"ts must be sorted in the direction of integration. Received: ts\[1\]"),
    "outside": (dict(saveat=[0.5, 2.0]), "ts must lie between t0 and t1"),
    "no times": (dict(saveat=[]), "ts must have a time"),
    "matrix of times": (dict(saveat=[[0.5]]), r"ts must be a list of times. Received: an array of shape \(1, 1\)"),
    "no error estimate": (dict(solver=hl.ode.RK4()), r"an adaptive controller needs a solver with an error estimate. Received: rk4. Try: ConstantStep\(\)"),
    "no dt0": (dict(controller=hl.ode.ConstantStep()), "constant steps need dt0"),
    "negative dt0": (dict(dt0=-0.1), "dt0 must be positive, also backwards in time"),
    "max_steps": (dict(max_steps=0), "max_steps must be positive"),
    "no max_steps": (dict(max_steps=None), "max_steps must be an integer. Received: None"),
    "shape": (dict(field=lambda t, y, _: y.sum()), r"the field must give the state's shapes and dtypes, f64\[2\]. Received: dy/dt = f64\[\]"),
    "dtype": (dict(field=lambda t, y, _: y.astype("f32")), r"Received: dy/dt = f32\[2\]"),
    "tree": (dict(field=lambda t, y, _: {"y": y}), "the field must give a tree like y0"),
    "class": (dict(solver=hl.ode.Tsit5), r"solver must be a hl.ode.Solver. Received: the class Tsit5. Try: hl.ode.Tsit5\(\)"),
    "text": (dict(solver="tsit5"), "Received: a str"),
    "adjoint": (dict(adjoint=hl.ode.PID()), "adjoint must be an hl.ode.Adjoint. Received: a PID"),
    "field": (dict(field=3), r"the field must be a function of \(t, y, args\), or a module. Received: an int"),
    "integers": (dict(y0=np.array([1, 2])), "leaves of the state must be f32 or f64"),
    "time": (dict(t1="end"), "t1 must be a number or a float scalar. Received: 'end'"),
    "tolerance": (dict(controller=hl.ode.PID({"a": 1e-3})), "rtol must be a number or a tree like the state"),
    "tolerance shape": (dict(controller=hl.ode.PID(np.ones(3) * 1e-3)), "rtol must broadcast against the state"),
    "leapfrog": (dict(solver=hl.ode.Leapfrog(), dt0=0.1, controller=hl.ode.ConstantStep()), "position and velocity"),
    "event": (dict(events=[lambda t, y, a: y[0]]), r"events\[0\] must be an hl.ode.Event"),
    "event value": (dict(events=hl.ode.Event(lambda t, y, a: y)), "the function of an event must give a float scalar"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISUSE)
def test_misuse(case):
    given, message = MISUSE[case]
    settings = {"field": lambda t, y, _: -y, "solver": T5, "t0": 0, "t1": 1, "y0": Y, **given}
    with pytest.raises(hl.UserError, match=message):
        positional = [settings.pop(k) for k in ("field", "solver", "t0", "t1", "y0")]
        hl.ode.solve(*positional, **settings)


def test_misuse_of_parts():
    with pytest.raises(hl.UserError, match=r"factormin must be in \(0, 1\]"):
        hl.ode.PID(factormin=2)
    with pytest.raises(hl.UserError, match="direction must be -1, 0 or 1"):
        hl.ode.Event(lambda t, y, a: y, direction=2)
    with pytest.raises(hl.UserError, match="times must be finite"):
        hl.ode.Clip(hl.ode.PID(), [np.inf])
    with pytest.raises(TypeError, match=r"Tsit5\(\)"):
        hl.ode.Tsit5(5)
    end = hl.ode.solve(lambda t, y, _: -y, T5, 0, 1, Y)
    with pytest.raises(hl.UserError, match=r"the solve must have kept its interpolant. Received: another SaveAt. Try: SaveAt\(dense=True\)"):
        end.evaluate(0.5)
    with pytest.raises(hl.UserError, match="how a solve ended is known when the program has run"):
        hl.jit(lambda y: hl.ode.solve(lambda t, y, _: -y, T5, 0, 1, y).check().y1)(Y)
    batch = hl.vmap(lambda y: hl.ode.solve(lambda t, y, _: -y, T5, 0, 1, y, saveat=hl.ode.SaveAt(dense=True)))(Y)
    with pytest.raises(hl.UserError, match=r"of one solve. Received: a batch of shape \(2,\)"):
        batch.evaluate(0.5)


def robertson(t, y, k):
    a, b, c = k * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return hl.stack([b - a, a - b - c, c])


@pytest.mark.parametrize("solver", ["Tsit5", "Dopri8", "Bosh3", "Vern7"])
@pytest.mark.parametrize("adjoint", ["Discrete", "Checkpointed", "FullSave"])
def test_a_rejected_step_may_overflow(solver, adjoint):
    """What was infinite in it reaches no gradient, alone or in a batch."""

    def end(k):
        field = lambda t, y, k: -1e3 * k * y**2  # noqa: E731
        s = hl.ode.solve(field, getattr(hl.ode, solver)(), 0.0, 1.0, np.float64(1), args=k, dt0=1.0, adjoint=getattr(hl.ode, adjoint)())
        return s.y1, s.stats.num_rejected

    def value(k):
        return end(k)[0]

    ks = np.array([0.5, 1.0, 2.0])
    assert end(np.float64(1))[1] > 0
    forward = [hl.jvp(value, (k,), (np.float64(1),))[1] for k in ks]
    np.testing.assert_allclose(forward, -1e3 / (1 + 1e3 * ks) ** 2, rtol=1e-2)
    np.testing.assert_allclose([hl.grad(value)(k) for k in ks], forward, rtol=1e-10)
    np.testing.assert_allclose(hl.vmap(hl.grad(value))(ks), forward, rtol=1e-10)
    np.testing.assert_allclose(hl.grad(lambda ks: hl.sum(hl.vmap(value)(ks)))(ks), forward, rtol=1e-10)
    if solver in ("Tsit5", "Bosh3"):
        second = hl.jacfwd(hl.jacfwd(value))(ks[1])
        np.testing.assert_allclose(hl.grad(hl.grad(value))(ks[1]), second, rtol=1e-10)


@pytest.mark.parametrize("solver", ["Tsit5", "Dopri8", "Vern7", "Bosh3"])
def test_a_rejected_step_reaches_no_gradient_of_what_is_found_on_the_way(solver):
    """Rows at given times and times of events are read from inside of steps."""

    def solved(k, **options):
        field = lambda t, y, k: -1e3 * k * y**2  # noqa: E731
        return hl.ode.solve(field, getattr(hl.ode, solver)(), 0.0, 1.0, np.float64(1), args=k, dt0=1.0, **options)

    def row(k):
        return solved(k, saveat=[0.5, 1.0]).ys[0]

    def time(k):
        return solved(k, events=hl.ode.Event(lambda t, y, k: y - 0.05)).t1

    k = np.float64(1)
    assert solved(k).stats.num_rejected > 0
    for found, slope in ((row, -500 / 501**2), (time, -0.019)):  # y = 1 / (1 + 1000 k t)
        forward = hl.jvp(found, (k,), (np.float64(1),))[1]
        np.testing.assert_allclose(forward, slope, rtol=2e-2)
        np.testing.assert_allclose(hl.grad(found)(k), forward, rtol=1e-10)
        np.testing.assert_allclose(hl.vmap(hl.grad(found))(np.array([1.0, 2.0]))[0], forward, rtol=1e-10)


@pytest.mark.parametrize("at", ["end", "row"])
@pytest.mark.parametrize("solver", ["Kvaerno3", "Kvaerno5", "Rodas5P", "Rosenbrock23"])
def test_a_rejected_step_of_a_stiff_solver_may_fail(solver, at):
    def value(k):
        saveat = [100.0] if at == "row" else None
        s = hl.ode.solve(robertson, getattr(hl.ode, solver)(), 0, 100, np.array([1.0, 0, 0]), args=k, dt0=1.0, saveat=saveat)
        return s.ys[0, 0] if at == "row" else s.y1[0]

    k = np.float64(0.04)
    forward = hl.jvp(value, (k,), (np.float64(1),))[1]
    np.testing.assert_allclose(forward, -5.117, rtol=1e-2)
    np.testing.assert_allclose(hl.grad(value)(k), forward, rtol=1e-6)


@pytest.mark.parametrize("adjoint", [hl.ode.Discrete(), hl.ode.Checkpointed()], ids=lambda a: type(a).__name__)
def test_the_end_of_a_solve_of_no_length_moves_with_its_times(adjoint):
    def end(t0, t1, y0, rate):
        return hl.ode.solve(lambda t, y, a: -a * y + t, hl.ode.Tsit5(), t0, t1, y0, args=rate, adjoint=adjoint, dt0=0.1).y1

    at = (np.float64(0.5), np.float64(0.5), np.float64(2.0), np.float64(3.0))
    slope = -3 * 2 + 0.5
    gradient = hl.jit(hl.grad(end, argnums=(0, 1, 2, 3)))(*at)
    np.testing.assert_allclose(gradient, [-slope, slope, 1, 0], rtol=1e-12, atol=1e-12)
    # Beside it, and in a batch with it.
    times = np.array([0.5, 0.5 + 1e-6, 0.7, 0.5 - 1e-6])
    many = hl.jit(hl.vmap(hl.grad(end, argnums=1), in_axes=(None, 0, None, None)))(at[0], times, *at[2:])
    np.testing.assert_allclose(np.asarray(many)[[0, 1, 3]], slope, rtol=1e-4)


def test_second_derivatives_of_a_solve_of_no_length():
    def solved(t1, y0):
        return hl.ode.solve(lambda t, y, a: -y * y, hl.ode.Tsit5(), 0.0, t1, y0)

    one = np.float64(0.0), np.float64(2.0)
    np.testing.assert_allclose(hl.jit(lambda t, y: hl.jvp(lambda v: solved(v, y).y1, (t,), (np.float64(1),))[1])(*one), -4)
    np.testing.assert_allclose(hl.jit(hl.grad(hl.grad(lambda t, y: solved(t, y).y1, argnums=0), argnums=1))(*one), -4)  # d(-y^2)/dy
    np.testing.assert_allclose(hl.jit(hl.grad(lambda t, y: solved(t, y).t1))(*one), 1)


@pytest.mark.parametrize("backend", ["llvm", "interp"])
def test_the_pullback_of_a_solve_is_linear_in_the_cotangent(backend):
    """What ends the loop over steps does not depend on it, though one loop carries both."""
    half = hl.ode.Event(lambda t, y, a: y - 0.5)
    for of in (lambda s: s.t1, lambda s: s.y1 * s.t1):
        for events in (None, half):

            def solve(y0, rate, of=of, events=events):
                return of(hl.ode.solve(lambda t, y, a: -a * y * y, hl.ode.Tsit5(), 0.0, 2.0, y0, args=rate, events=events))

            own = hl.custom_vjp(solve)
            own.defvjp(lambda y, r: (own(y, r), (y, r)), lambda saved, ct: hl.vjp(solve, *saved)[1](ct))  # noqa: B023
            at, along = (np.float64(1.5), np.float64(0.7)), (np.float64(0.3), np.float64(-0.2))
            wanted = hl.jit(lambda y, r, dy, dr: hl.jvp(solve, (y, r), (dy, dr))[1])(*at, *along)  # noqa: B023
            found = hl.jit(lambda y, r, dy, dr: hl.jvp(own, (y, r), (dy, dr))[1], backend=backend)(*at, *along)  # noqa: B023
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-14)
            np.testing.assert_allclose(hl.jit(hl.grad(own, argnums=(0, 1)), backend=backend)(*at), hl.jit(hl.grad(solve, argnums=(0, 1)))(*at), rtol=1e-10, atol=1e-14)
