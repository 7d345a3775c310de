"""Times that steps of hl.ode must meet, times that say nothing, and what counts as an error where there is none."""

import hotloop as hl
import numpy as np
import pytest

EVERY = hl.ode.SaveAt(steps=True, t1=True)


def decay(t, y, args):
    return -y


def steps_of(solution):
    return np.asarray(solution.ts)[: int(solution.stats.num_accepted)]


# ---- times that differ by rounding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "bound"), [("ImplicitEuler", 0.02), ("Kvaerno3", 2e-5), ("Kvaerno5", 1e-8), ("Tsit5", 1e-8), ("Rosenbrock23", 1e-3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_of_steps_meets_a_time_but_for_rounding(solver, bound, dtype):
    at = np.arange(0.1, 1, 0.1)  # of which sums of 0.1 miss most
    clip = hl.ode.Clip(hl.ode.ConstantStep(), list(at))
    solution = hl.ode.solve(decay, getattr(hl.ode, solver)(), 0, 1, np.ones((), dtype), dt0=0.1, controller=clip, saveat=EVERY)
    assert int(solution.stats.num_steps) == 10
    assert np.array_equal(steps_of(solution)[:9], at.astype(dtype))
    assert abs(float(solution.y1) - np.exp(-1)) < bound + (1e-6 if dtype == "float32" else 0)


@pytest.mark.parametrize("solver", ["Kvaerno3", "Kvaerno5", "Tsit5"])
@pytest.mark.parametrize("twice", [[0.3, 0.1 * 3], [0.1 * 3, 0.3], [0.3, 1 - 1e-16], [0.3, 1 - 2e-16, 1.0]])
def test_times_that_differ_by_rounding_are_one(solver, twice):
    solves = [hl.ode.solve(decay, getattr(hl.ode, solver)(), 0, 1, np.float64(1), controller=hl.ode.Clip(hl.ode.PID(1e-6, 1e-8), at)) for at in ([0.3], twice)]
    assert int(solves[0].stats.num_steps) == int(solves[1].stats.num_steps) and int(solves[1].stats.num_rejected) == 0
    assert float(solves[1].t1) == 1 and np.isclose(float(solves[0].y1), float(solves[1].y1), rtol=1e-13)


# A step of any length leaves the next one a first stage with all digits.
@pytest.mark.parametrize("solver", ["ImplicitEuler", "Kvaerno3", "Kvaerno5"])
@pytest.mark.parametrize(("dtype", "shortest"), [("float64", [1e-13, 1e-10, 1e-7]), ("float32", [1e-4, 1e-3])])
def test_a_short_step_is_no_worse_than_the_next(solver, dtype, shortest):
    def end(at):
        return hl.ode.solve(decay, getattr(hl.ode, solver)(), 0, 1, np.ones((), dtype), dt0=0.1, controller=hl.ode.Clip(hl.ode.ConstantStep(), at)).y1

    for length in shortest:
        assert abs(float(end([0.35, 0.35 + length])) - float(end([0.35]))) < length * 0.05 + (1e-6 if dtype == "float32" else 1e-14)


def test_a_short_step_has_the_derivatives_of_its_stages():
    def end(rate, y0):
        clip = hl.ode.Clip(hl.ode.ConstantStep(), [0.35, 0.35 + 1e-12])
        return hl.ode.solve(lambda t, y, a: -a * y, hl.ode.Kvaerno5(), 0, 1, y0, args=rate, dt0=0.1, controller=clip).y1

    at = np.float64(1.5), np.float64(2)
    assert np.allclose(hl.jit(hl.grad(end, argnums=(0, 1)))(*at), [-2 * np.exp(-1.5), np.exp(-1.5)], rtol=1e-6)
    assert np.allclose(hl.jit(lambda a, y: hl.jvp(end, (a, y), (hl.ones_like(a), hl.ones_like(y)))[1])(*at), -np.exp(-1.5), rtol=1e-6)


# ---- how many steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("t0", "t1", "dt0", "dtype", "steps"), [(0, 10, 0.01, "float64", 1000), (0, 5, 0.01, "float64", 500), (0, 100, 0.1, "float64", 1000),
                                                                 (0, 1, 1e-4, "float64", 10000), (0, 1, 0.001, "float32", 1000), (-10, 0, 0.01, "float64", 1000),
                                                                 (10, 0, 0.01, "float32", 1000), (0, 1, 0.3, "float64", 4)])  # fmt: skip
def test_constant_steps_are_as_many_as_fit(t0, t1, dt0, dtype, steps):
    solution = hl.ode.solve(decay, hl.ode.RK4(), t0, t1, np.ones((), dtype), dt0=dt0, controller=hl.ode.ConstantStep(), max_steps=steps)
    assert int(solution.stats.num_steps) == steps and float(solution.t1) == t1
    assert np.isclose(float(solution.y1), np.exp(t0 - t1), rtol=1e-4)


def test_constant_steps_stay_where_multiples_are():
    solution = hl.ode.solve(decay, hl.ode.Euler(), 0, 100, np.float64(1), dt0=0.1, controller=hl.ode.ConstantStep(), saveat=EVERY)
    assert np.abs(steps_of(solution) - 0.1 * np.arange(1, 1001)).max() < 2e-14
    # After an event, or a time that cuts one short, they go on from there.
    event = hl.ode.Event(lambda t, y, args: t - 0.25, terminal=False)
    clip = hl.ode.Clip(hl.ode.ConstantStep(), [0.55])
    solution = hl.ode.solve(decay, hl.ode.Euler(), 0, 1, np.float64(1), dt0=0.1, controller=clip, saveat=EVERY, events=event)
    assert np.allclose(steps_of(solution), [0.1, 0.2, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1])


# ---- times that are wrong -------------------------------------------------------------------------------------------------------


def rows(ts, t0=0.0, t1=3.0):
    return hl.ode.solve(decay, hl.ode.Tsit5(), t0, t1, np.float64(1), controller=hl.ode.PID(1e-9, 1e-11), saveat=ts)


def test_known_times_are_checked_though_the_ends_are_traced():
    for wrong in ([2.0, 1.0, 0.5, 2.5], [0.5, 0.5, 1.0, 0.9], [2.0, 2.5, 1.0]):
        with pytest.raises(hl.UserError, match=r"ts must be sorted in the direction of integration. Received: ts\["):
            hl.jit(lambda t1, ts=wrong: rows(ts, 0.0, t1).ys)(np.float64(3))
    # Either way is one.
    end = hl.jit(lambda t0, t1: rows([2.0, 1.0, 0.5], t0, t1).ys)
    assert np.allclose(end(np.float64(3), np.float64(0)), np.exp([1, 2, 2.5]), rtol=1e-7)


def test_rows_are_right_or_infinite_whatever_their_times():
    of_ts = hl.jit(rows)
    for ts in ([2.0, 1.0, 0.5, 2.5], [-3.0, 1.0], [0.5, 4.0, 1.0], [np.nan, 1.0], [1.0, np.nan, 2.0], [0.0, 0.0, 3.0], [0.5, 1.0, 3.0]):
        ys = np.asarray(of_ts(np.float64(ts)).ys)
        known = np.isfinite(ys)
        assert np.allclose(ys[known], np.exp(-np.float64(ts)[known]), rtol=1e-7)
        outside = ~((np.float64(ts) >= 0) & (np.float64(ts) <= 3))
        assert not known[outside].any() and known[0] == (not outside[0])
        if np.all(np.diff(ts) >= 0) and not outside.any():
            assert known.all()
    ys = np.asarray(hl.jit(lambda t0: rows([-3.0, 1.0], t0).ys)(np.float64(0)))
    assert np.isinf(ys[0]) and np.isclose(ys[1], np.exp(-1))
    ys = np.asarray(hl.jit(lambda t0: rows([-3.0, 0.0], t0, t0).ys)(np.float64(0)))
    assert np.isinf(ys[0]) and ys[1] == 1


@pytest.mark.parametrize("controller", [hl.ode.PID(1e-6, 1e-8), hl.ode.ConstantStep()])
def test_rows_at_and_after_jumps_whose_times_are_traced(controller):
    clip = hl.ode.Clip(controller, [0.5], [1.0, 2.0])
    solve = hl.jit(lambda ts: hl.ode.solve(decay, hl.ode.Kvaerno5(), 0.0, 3.0, np.float64(1), dt0=0.1, controller=clip, saveat=ts).ys)
    ts = np.array([0, 0.5, 1, np.nextafter(1, 2), 1.1, 2, 3])
    assert np.allclose(solve(ts), np.exp(-ts), atol=1e-4)


@pytest.mark.parametrize(("t0", "t1"), [(np.nan, 1.0), (0.0, np.nan)])
def test_a_solve_to_or_from_nan_is_no_success(t0, t1):
    solution = hl.jit(lambda a, b: rows([0.5], a, b))(np.float64(t0), np.float64(t1))
    assert int(solution.result) == hl.ode.Result.NonFinite and np.isinf(solution.ys).all()


# ---- errors of nothing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["Tsit5", "Dopri8", "ImplicitEuler", "Kvaerno5", "Rodas5P", "Rosenbrock23"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("atol", [0.0, {"a": np.float64(0), "b": np.float64([1e-9, 0])}])
def test_what_stays_zero_has_no_error(solver, dtype, atol):
    def field(t, y, _):
        return {"a": -y["a"], "b": hl.stack([-y["b"][0], 0 * y["b"][1]])}

    y0 = {"a": np.ones((), dtype), "b": np.array([1, 0], dtype)}
    solution = hl.ode.solve(field, getattr(hl.ode, solver)(), 0, 1, y0, controller=hl.ode.PID(1e-4, atol))
    assert np.isclose(float(solution.y1["a"]), np.exp(-1), rtol=1e-2) and float(solution.y1["b"][1]) == 0


# ---- steps that were not solved -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["Kvaerno3", "Kvaerno5"])
@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("clipped", [False, True])
def test_a_step_that_newton_does_not_solve_is_not_taken_at_dtmin(solver, force, clipped):
    def van_der_pol(t, y, mu):
        return hl.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    controller = hl.ode.PID(1e-6, 1e-6, dtmin=2.0, force_dtmin=force)
    controller = hl.ode.Clip(controller, [15.0]) if clipped else controller
    solution = hl.ode.solve(van_der_pol, getattr(hl.ode, solver)(), 0, 20, np.float64([2, 0]), args=10.0, controller=controller, throw=False)
    failed = int(solution.result) == hl.ode.Result.NewtonFailed
    assert failed or (not force and int(solution.result) == hl.ode.Result.StepTooSmall)
    assert float(solution.t1) < 20 and int(solution.stats.num_steps) < 20


# ---- dense output of many steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_steps", [1, 2, 3, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("backwards", [False, True])
def test_dense_output_finds_the_step(max_steps, backwards):
    ends = (1.0, 0.0) if backwards else (0.0, 1.0)
    for steps in {1, max(1, max_steps // 2), max_steps}:
        solution = hl.ode.solve(lambda t, y, a: hl.cos(5 * t) + 0 * y, hl.ode.RK4(), *ends, np.float64(np.sin(5 * ends[0]) / 5), dt0=1 / steps,
                                controller=hl.ode.ConstantStep(), saveat=hl.ode.SaveAt(dense=True), max_steps=max_steps)  # fmt: skip
        ts = np.linspace(0, 1, 4 * steps + 1)
        ys = np.asarray(solution.evaluate(ts))
        at_ends = np.abs(ts[::4] * steps - np.round(ts[::4] * steps)).max()
        assert at_ends < 1e-9 and np.allclose(ys, np.sin(5 * ts) / 5, atol=2 / steps**4 + 1e-12)
    assert np.allclose(solution.evaluate(np.float64([ends[0], ends[1]])), np.sin(5 * np.float64(ends)) / 5, atol=2 / steps**4 + 1e-12)
