"""Newton's method in implicit solvers: down to the rounding of the state, and what is said where it fails."""

import hotloop as hl
import numpy as np
import pytest

NEWTON = ["ImplicitEuler", "Kvaerno3", "Kvaerno5"]


def relaxation(t, y, rate):
    return -rate * (y - hl.cos(t))


def van_der_pol(t, y, mu):
    return hl.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


def robertson(t, y, _):
    a, b, c = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
    return hl.stack([b - a, a - b - c, c])


@pytest.mark.parametrize("solver", NEWTON)
@pytest.mark.parametrize("problem", ["relaxation", "square"])
def test_constant_steps_in_float32(solver, problem):
    field, rate = (relaxation, 1000.0) if problem == "relaxation" else (lambda t, y, _: -y * y, 1.0)
    ends = [hl.ode.solve(field, getattr(hl.ode, solver)(), 0, 2.0, np.array([1.5, 0.2, 3], dtype), args=rate, dt0=0.05, controller=hl.ode.ConstantStep()).y1
            for dtype in ("float32", "float64")]  # fmt: skip
    assert np.allclose(*ends, rtol=2e-5)


@pytest.mark.parametrize("solver", NEWTON)
@pytest.mark.parametrize("rtol", [1e-4, 1e-5])
def test_tolerances_near_the_rounding_of_float32(solver, rtol):
    solves = [hl.ode.solve(van_der_pol, getattr(hl.ode, solver)(), 0, 5.0, np.array([2.0, 0], dtype), args=50.0, controller=hl.ode.PID(rtol, rtol / 100))
              for dtype in ("float32", "float64")]  # fmt: skip
    assert np.allclose(solves[0].y1, solves[1].y1, rtol=1e-5)
    rejected = [int(s.stats.num_rejected) for s in solves]
    assert rejected[0] <= rejected[1] + 1


# The sum of the three is constant but for rounding, which long steps do not damp.
@pytest.mark.parametrize("solver", ["Kvaerno3", "Kvaerno5"])
def test_corrections_that_rounding_keeps_from_shrinking(solver):
    solution = hl.ode.solve(robertson, getattr(hl.ode, solver)(), 0, 1e5, np.float32([1, 0, 0]), controller=hl.ode.PID(1e-5, 1e-9))
    assert np.allclose(solution.y1, [1.78659e-2, 7.27475e-8, 0.982134], rtol=1e-4)
    assert int(solution.stats.num_rejected) < 10


@pytest.mark.parametrize("solver", NEWTON)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_relative_tolerance_of_what_starts_at_zero(solver, dtype):
    def field(t, y, _):
        return hl.stack([hl.cos(t) + 0 * y[0], -100 * (y[1] - y[0])])

    solution = hl.ode.solve(field, getattr(hl.ode, solver)(), 0, 1.0, np.array([0, 1.0], dtype), dt0=0.01, controller=hl.ode.PID(1e-3, 0.0))
    assert np.isclose(float(solution.y1[0]), np.sin(1), rtol=2e-2)


def test_a_layer_of_constant_implicit_steps_in_float32(rng):
    layer = hl.nn.ODE(hl.nn.Linear(2, 2), controller="constant", dt0=0.1, solver="kvaerno5")
    x = rng.normal(size=(5, 2)).astype(np.float32)
    params = layer.init(0)
    exact = hl.nn.ODE(hl.nn.Linear(2, 2), rtol=1e-6, atol=1e-6)
    assert np.allclose(layer(params, x), exact(params, x), atol=1e-5)


@pytest.mark.parametrize("solver", NEWTON)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equations_that_newton_does_not_solve_are_said_to_be(solver, dtype):
    def cubic(t, y, _):
        return -1e6 * y**3

    solution = hl.ode.solve(cubic, getattr(hl.ode, solver)(), 0.0, 1.0, np.array(10, dtype), dt0=0.5, controller=hl.ode.ConstantStep(), throw=False)
    assert int(solution.result) == hl.ode.Result.NewtonFailed == 5
    assert "Newton's method did not solve" in solution.message and "dt0" in solution.message
    # Where it blows up beside what is looked at.
    solution = hl.ode.solve(robertson, getattr(hl.ode, solver)(), 0.0, 10.0, np.array([1, 0, 0], dtype), dt0=1.0, controller=hl.ode.ConstantStep(), throw=False)
    assert int(solution.result) == hl.ode.Result.NewtonFailed and np.isfinite(solution.y1).all()


@pytest.mark.parametrize("solver", NEWTON)
@pytest.mark.parametrize("controller", [hl.ode.ConstantStep(), hl.ode.PID(1e-4, 1e-6)])
def test_a_field_that_is_nan_is_said_to_be(solver, controller):
    def field(t, y, _):
        return hl.where(t > 0.3, np.nan, -1.0) * y

    solution = hl.ode.solve(field, getattr(hl.ode, solver)(), 0.0, 1.0, np.float64(1), dt0=0.1, controller=controller, throw=False)
    assert int(solution.result) == hl.ode.Result.NonFinite
