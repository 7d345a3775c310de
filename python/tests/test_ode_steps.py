"""Where the steps of hl.ode begin and end: jumps, events, shortest and first steps, solves of no length; and adjoints that do not get there."""

import hotloop as hl
import numpy as np
import pytest

TIGHT = hl.ode.PID(1e-9, 1e-11)
EVERY = hl.ode.SaveAt(steps=True)


def decay(t, y, args):
    return -y


def steps_of(solution):
    return np.asarray(solution.ts)[: int(solution.stats.num_accepted)]


# ---- jumps ----------------------------------------------------------------------------------------------------------------------


def square_wave(t, y, args):
    return hl.where(hl.floor(t) - 2 * hl.floor(t / 2) == 0, 1.0, -1.0) * hl.ones_like(y)


def triangle(t):
    return abs((t + 1) % 2 - 1)


@pytest.mark.parametrize("solver", ["Heun", "Bosh3", "Tsit5", "Kvaerno3", "Rosenbrock23"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("t0", "t1"), [(0.0, 5.0), (5.0, 0.0), (-3.0, 3.0), (3.0, -3.0), (0.5, 4.2)])
def test_jumps_at_both_ends_and_between_cost_no_rejections(solver, dtype, t0, t1):
    # Jumps at every integer: every branch of the field is a constant, so that any step within one is exact.
    times = np.array([t0, (t0 + t1) / 2, t1])
    controller = hl.ode.Clip(hl.ode.PID(1e-4, 1e-5), jump_ts=list(np.arange(-6.0, 7.0)))
    solution = hl.ode.solve(square_wave, getattr(hl.ode, solver)(), t0, t1, np.zeros((), dtype), dt0=0.1, controller=controller, saveat=times)
    assert int(solution.stats.num_rejected) == 0
    assert np.allclose(solution.ys, triangle(times) - triangle(t0), atol=1e-12 if dtype == "float64" else 2e-5)
    assert float(solution.t1) == np.dtype(dtype).type(t1)


@pytest.mark.parametrize("dt0", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("inner", [hl.ode.ConstantStep(), hl.ode.PID(1e-1, 1e-1)])
def test_a_jump_at_the_end_is_not_passed_and_its_row_is_saved(inner, dt0):
    def seen(t, y, args):
        return hl.where(t < 1, -1.0, np.inf) * y

    saveat = hl.ode.SaveAt(ts=[0.5, 1.0], steps=True, t1=True, dense=True)
    solution = hl.ode.solve(seen, hl.ode.Heun(), 0.0, 1.0, np.float64(1), dt0=dt0, controller=hl.ode.Clip(inner, jump_ts=[1.0]), saveat=saveat)
    ys, accepted = np.asarray(solution.ys), int(solution.stats.num_accepted)
    assert np.isfinite(ys[:2]).all() and np.isclose(ys[1], ys[-1], rtol=1e-15) and ys[-1] == float(solution.y1)
    assert float(solution.t1) == 1 and float(solution.ts[2 + accepted - 1]) == 1 and ys[2 + accepted - 1] == ys[-1]
    assert np.isclose(solution.evaluate(1.0), ys[1])


def test_derivatives_by_times_at_which_the_field_jumps():
    # y' = 2 before 0, 3 from 0 to 1, 5 after: one-sided, from within.

    def field(t, y, args):
        return hl.where(t < 0, 2.0, hl.where(t < 1, 3.0, 5.0)) + 0 * y

    def end(t0, t1):
        return hl.ode.solve(field, hl.ode.Tsit5(), t0, t1, np.float64(0), controller=hl.ode.Clip(hl.ode.PID(1e-6, 1e-6), jump_ts=[0.0, 1.0])).y1

    for t0, t1, wanted in ((0.0, 1.0, (-3, 3)), (-1.0, 2.0, (-2, 5)), (-1.0, 1.0, (-2, 3)), (0.0, 2.0, (-3, 5))):
        assert np.allclose(hl.jit(hl.grad(end, argnums=(0, 1)))(np.float64(t0), np.float64(t1)), wanted), (t0, t1)


@pytest.mark.parametrize("inner", [hl.ode.ConstantStep(), hl.ode.PID(1e-3, 1e-3)])
def test_the_step_after_an_event_ends_at_the_next_time_too(inner):
    event = hl.ode.Event(lambda t, y, args: t - 0.45, terminal=False)

    def late(t, y, args):
        return hl.where(t < 0.5, 0.0, 1.0) + 0 * y

    for times in ({"step_ts": [0.5]}, {"jump_ts": [0.5]}):
        clip = hl.ode.Clip(inner, **times)
        field = late if "jump_ts" in times else decay
        solution = hl.ode.solve(field, hl.ode.Tsit5(), 0.0, 1.0, np.float64(1), dt0=0.5, controller=clip, saveat=EVERY, events=event)
        assert np.allclose(steps_of(solution)[:2], [0.45, 0.5], rtol=1e-12)
        if "jump_ts" in times:
            assert np.isclose(float(solution.y1), 1.5, rtol=1e-14)
            assert int(solution.stats.num_rejected) == 0


# ---- the first step and the last ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dt0", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("solver", "controller"), [("RK4", hl.ode.ConstantStep()), ("Tsit5", hl.ode.PID(1e-1, 1e-1))])
def test_derivatives_by_the_times_where_the_first_step_ends_at_the_end(solver, controller, dt0):
    end = hl.jit(lambda t0, t1: hl.ode.solve(decay, getattr(hl.ode, solver)(), t0, t1, np.float64(1), dt0=dt0, controller=controller).y1)
    by_times = hl.grad(end, argnums=(0, 1))(np.float64(0), np.float64(1))
    assert np.allclose(by_times, [np.exp(-1), -np.exp(-1)], rtol=0.1)


@pytest.mark.parametrize("y0", [0.0, 1.0])
@pytest.mark.parametrize("t0", [100.0, 5000.0, 2e4, -5000.0])
def test_the_first_step_is_one_that_time_resolves(t0, y0):
    def field(t, y, args):
        return hl.cos(t - t0) + 0 * y

    solution = hl.ode.solve(field, hl.ode.Tsit5(), t0, t0 + 1, np.float32(y0), saveat=[t0, t0 + 1])
    assert np.allclose(solution.ys, [y0, y0 + np.sin(1)], atol=3e-3)


def test_a_step_below_what_time_resolves_is_said_to_be():
    solution = hl.ode.solve(decay, hl.ode.Euler(), 5000.0, 5001.0, np.float32(1), dt0=1e-6, controller=hl.ode.ConstantStep(), saveat=[5000.0, 5001.0], throw=False)
    assert int(solution.result) == hl.ode.Result.StepTooSmall
    assert float(solution.ys[0]) == 1 and np.isinf(solution.ys[1])


def test_rows_and_interpolant_of_a_solve_of_no_length():
    saveat = hl.ode.SaveAt(ts=[1.0, 1.0], t0=True, t1=True, dense=True)
    solution = hl.ode.solve(decay, hl.ode.Tsit5(), 1.0, 1.0, np.float64([1, 2]), saveat=saveat)
    assert np.array_equal(solution.ys, [[1, 2]] * 4) and np.array_equal(solution.evaluate(1.0), [1, 2])

    def rows(t0, t1):
        return hl.ode.solve(decay, hl.ode.Tsit5(), t0, t1, np.float64(1), saveat=hl.stack([t0, 0.5 * (t0 + t1), t1]), controller=TIGHT).ys

    t0, t1 = np.array([0.0, 1.0, 0.5]), np.array([1.0, 0.0, 0.5])
    times = np.stack([t0, (t0 + t1) / 2, t1], axis=1)
    assert np.allclose(hl.jit(hl.vmap(rows))(t0, t1), np.exp(t0[:, None] - times), rtol=1e-7)
    slopes = hl.jit(hl.vmap(hl.jacrev(rows, argnums=(0, 1))))(t0, t1)
    ahead, behind = np.array([0, 0.5, 1]), np.array([1, 0.5, 0])
    decayed = np.exp(t0[:, None] - times)
    assert np.allclose(slopes[0], decayed * (1 - behind), rtol=1e-6) and np.allclose(slopes[1], -decayed * ahead, rtol=1e-6)


def test_times_are_compared_in_the_dtype_of_the_state():
    times = np.linspace(0, 0.1, 3, dtype=np.float32)                 # ends at 0.10000000149
    solution = hl.ode.solve(decay, hl.ode.Tsit5(), 0, 0.1, np.float32(1), saveat=times)
    assert np.allclose(solution.ys, np.exp(-times), atol=1e-5)
    with pytest.raises(hl.UserError, match="ts must lie between t0 and t1"):
        hl.ode.solve(decay, hl.ode.Tsit5(), 0, 0.1, np.float32(1), saveat=[0.1001])


# ---- the shortest step ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t1", [0.2003, 0.4001, 1.0001, 3.00001])
def test_a_last_step_below_dtmin_is_no_failure(t1):
    controller = hl.ode.PID(1e-3, 1e-6, dtmin=0.01, dtmax=0.1, force_dtmin=False)
    for clip in (controller, hl.ode.Clip(controller, step_ts=[0.1, 0.1001])):
        solution = hl.ode.solve(decay, hl.ode.Tsit5(), 0.0, t1, np.float64(1), dt0=0.1, controller=clip)
        assert np.isclose(float(solution.y1), np.exp(-t1), rtol=1e-6)


def test_a_step_that_is_rejected_at_dtmin_is_a_failure_without_force():
    def field(t, y, args):
        return 1e4 * hl.cos(1e4 * t) + 0 * y

    ends = [hl.ode.solve(field, hl.ode.Tsit5(), 0.0, 0.1, np.float64(0), controller=hl.ode.PID(1e-8, 1e-8, dtmin=1e-3, force_dtmin=force), throw=False)
            for force in (True, False)]  # fmt: skip
    assert [int(end.result) for end in ends] == [hl.ode.Result.Success, hl.ode.Result.StepTooSmall]
    assert int(ends[0].stats.num_steps) <= 110


def test_a_step_after_one_that_was_cut_short_is_not_accepted_for_that():
    def field(t, y, args):
        return 100 * hl.cos(200 * t) * hl.where(t > 0.10001, 1.0, 0.0) + 0 * y

    controller = hl.ode.Clip(hl.ode.PID(1e-6, 1e-6, dtmin=1e-3), step_ts=[0.1], jump_ts=[0.10001])
    end = hl.ode.solve(field, hl.ode.Tsit5(), 0.0, 2.0, np.float64(0), dt0=1.0, controller=controller).y1
    assert np.isclose(float(end), (np.sin(400) - np.sin(20.002)) / 2, atol=1e-3)


# ---- events at one place --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(True, False), (False, True)])
def test_a_terminal_event_beside_another_at_its_place_ends_the_solve(order):
    def half(t, y, args):
        return y - 0.5

    solution = hl.ode.solve(decay, hl.ode.Tsit5(), 0.0, 3.0, np.float64(1), controller=TIGHT, events=[hl.ode.Event(half, terminal=k) for k in order])
    assert int(solution.result) == hl.ode.Result.Event and np.isclose(float(solution.t1), np.log(2))
    assert int(solution.stats.num_events) == 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("t0", [0.0, 1000.0])
def test_functions_with_one_root_happen_together(dtype, t0):
    events = [hl.ode.Event(lambda t, y, args: (t - t0) - 0.7, terminal=False), hl.ode.Event(lambda t, y, args: 3 * y - 2.1, terminal=False),
              hl.ode.Event(lambda t, y, args: hl.exp(0.7 - y) - 1)]  # fmt: skip
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        solution = hl.ode.solve(lambda t, y, args: hl.ones_like(y), hl.ode.Tsit5(), t0, t0 + 2, np.zeros((), dtype), events=[events[i] for i in order])
        assert int(solution.result) == hl.ode.Result.Event
        assert np.isclose(float(solution.t1), t0 + 0.7, rtol=1e-6)


def test_all_changes_at_one_place_are_made_in_order():
    def set_to(value):
        return lambda t, y, args: {"x": y["x"], "log": 10 * y["log"] + value}

    def cross(t, y, args):
        return y["x"] - 0.5

    events = [hl.ode.Event(cross, terminal=False, change=set_to(1.0)), hl.ode.Event(cross, terminal=False), hl.ode.Event(cross, terminal=False, change=set_to(2.0))]

    def field(t, y, args):
        return {"x": hl.ones_like(y["x"]), "log": hl.zeros_like(y["log"])}

    solution = hl.ode.solve(field, hl.ode.Tsit5(), 0.0, 1.0, {"x": np.float64(0), "log": np.float64(0)}, events=events)
    assert float(solution.y1["log"]) == 12 and int(solution.stats.num_events) == 3


def test_a_ball_in_a_corner_meets_both_walls_once():
    def field(t, y, args):
        return hl.stack([y[2], y[3], 0 * y[2], 0 * y[3]])

    def wall(i):
        return hl.ode.Event(lambda t, y, args: y[i] - 1.0, terminal=False, change=lambda t, y, args: y * np.where(np.arange(4) == 2 + i, -1.0, 1.0))

    counted = hl.ode.Event(lambda t, y, args: y[0] - 1.0, terminal=False)
    for start, end in (([0, 0, 1, 1], [0.5, 0.5, -1, -1]), ([0.1, 0.1, 0.7, 0.7], [0.85, 0.85, -0.7, -0.7]), ([0.1, 0.4, 0.9, 0.6], [0.55, 0.7, -0.9, -0.6])):
        solution = hl.ode.solve(field, hl.ode.Tsit5(), 0.0, 1.5, np.float64(start), events=[wall(0), wall(1)])
        assert np.allclose(solution.y1, end) and int(solution.stats.num_events) == 2
        solution = hl.ode.solve(field, hl.ode.Tsit5(), 0.0, 1.5, np.float64(start), events=[counted, wall(0), wall(1)])
        assert np.allclose(solution.y1, end) and int(solution.stats.num_events) == 3


# ---- adjoints of the equation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjoint", ["Backsolve", "Interpolating", "Gauss"])
def test_a_backward_solve_that_fails_gives_nan(adjoint):
    def end(rate, y0, max_steps):
        return hl.ode.solve(lambda t, y, a: -a * y, hl.ode.Tsit5(), 0.0, 10.0, y0, args=rate, adjoint=getattr(hl.ode, adjoint)(max_steps=max_steps), controller=TIGHT).y1

    at = np.float64(0.3), np.float64(1)
    assert np.isnan(hl.jit(hl.grad(lambda a, y: end(a, y, 3), argnums=(0, 1)))(*at)).all()
    assert np.allclose(hl.jit(hl.grad(lambda a, y: end(a, y, 400), argnums=(0, 1)))(*at), [-10 * np.exp(-3), np.exp(-3)], rtol=1e-4)


@pytest.mark.parametrize("adjoint", ["Backsolve", "Interpolating", "Gauss"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_forward_solve_that_fails_gives_a_gradient_of_nan(adjoint, saved):
    def loss(rate, y0, max_steps):
        saveat = hl.ode.SaveAt(ts=[0.1, 10.0] if saved else None, t1=True)
        solution = hl.ode.solve(lambda t, y, a: -a * y, hl.ode.Tsit5(), 0.0, 10.0, y0, args=rate, adjoint=getattr(hl.ode, adjoint)(), controller=hl.ode.PID(1e-8, 1e-8),
                                saveat=saveat, max_steps=max_steps)  # fmt: skip
        return solution.ys[0] if saved else solution.y1

    at = np.float64(0.3), np.float64(1)
    assert np.isnan(hl.jit(hl.grad(lambda a, y: loss(a, y, 6), argnums=(0, 1)))(*at)).all()
    assert np.isfinite(hl.jit(hl.grad(lambda a, y: loss(a, y, 400), argnums=(0, 1)))(*at)).all()
