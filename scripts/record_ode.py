#!/usr/bin/env python3
"""Records what diffrax computes, for tests/parity/ode_test.cpp.

Writes tests/parity/data/diffrax.json: for a set of problems, solvers and controllers the numbers of accepted and rejected steps and
the solution, in float64, and the first steps that its rule chooses (diffeqsolve of 0.7.2 takes 0.01 instead when it is given none,
since it wraps the term in another). Needs diffrax; its version is written into the file.

usage: scripts/record_ode.py [folder]     (default tests/parity/data)
"""
import json
import pathlib
import sys

import jax

jax.config.update("jax_enable_x64", True)
import diffrax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optimistix  # noqa: E402
from diffrax._step_size_controller.pid import _select_initial_step  # noqa: E402

# The same formulas stand in tests/ode_problems.h.
PROBLEMS = {
    "decay": (lambda t, y, a: -y, 0.0, 5.0, [1.0, -2.0]),
    "oscillator": (lambda t, y, a: jnp.stack([y[1], -4 * y[0]]), 0.0, 6.0, [1.0, 0.5]),
    "lotka_volterra": (
        lambda t, y, a: jnp.stack([1.5 * y[0] - y[0] * y[1], y[0] * y[1] - 3 * y[1]]), 0.0, 10.0, [1.0, 1.0]),
    "lorenz": (
        lambda t, y, a: jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]),
        0.0, 2.0, [1.0, 0.0, 0.0]),
    "van_der_pol": (lambda t, y, a: jnp.stack([y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]]), 0.0, 12.0, [2.0, 0.0]),
    "forced": (lambda t, y, a: jnp.cos(3 * t) * y - 0.1 * y * y, 0.0, 8.0, [0.7]),
    "backwards": (lambda t, y, a: jnp.stack([y[1], -jnp.sin(y[0]) - 0.1 * t * y[1]]), 3.0, -1.0, [0.4, 0.1]),
}
SOLVERS = {"heun": diffrax.Heun, "midpoint": diffrax.Midpoint, "ralston": diffrax.Ralston, "bosh3": diffrax.Bosh3,
           "tsit5": diffrax.Tsit5, "dopri5": diffrax.Dopri5, "dopri8": diffrax.Dopri8}
CONTROLLERS = {"I": (0, 1, 0), "PI": (0.4, 0.3, 0), "PID": (0.2, 0.3, 0.1)}


def record(problem, solver, controller, rtol, dt0, saves):
    field, t0, t1, y0 = PROBLEMS[problem]
    p, i, d = CONTROLLERS[controller]
    ts = np.linspace(t0, t1, saves)
    sol = diffrax.diffeqsolve(
        diffrax.ODETerm(field), SOLVERS[solver](), t0, t1, dt0 if t1 > t0 else -dt0, jnp.array(y0),
        saveat=diffrax.SaveAt(ts=ts, t1=True), max_steps=20000,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * 1e-2, pcoeff=p, icoeff=i, dcoeff=d))
    return {"problem": problem, "solver": solver, "controller": controller, "rtol": rtol, "dt0": dt0, "saves": saves,
            "accepted": int(sol.stats["num_accepted_steps"]), "rejected": int(sol.stats["num_rejected_steps"]),
            "ys": {"shape": list(sol.ys.shape), "data": np.asarray(sol.ys).ravel().tolist()}}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/parity/data")
    cases = []
    for problem in PROBLEMS:
        for solver in SOLVERS:
            cases.append(record(problem, solver, "I", 1e-5, 0.01, 7))
        for controller in ("PI", "PID"):
            cases.append(record(problem, "tsit5", controller, 1e-6, 0.01, 5))
        cases.append(record(problem, "tsit5", "I", 1e-8, 0.01, 5))
        cases.append(record(problem, "bosh3", "PI", 1e-4, 0.01, 5))
    first = []
    for problem, (field, t0, t1, y0) in PROBLEMS.items():
        sign = 1 if t1 > t0 else -1
        for rtol, order in ((1e-3, 5), (1e-8, 3)):
            dt = _select_initial_step(
                diffrax.ODETerm(lambda s, y, a, sign=sign, field=field: sign * field(sign * s, y, a)), sign * t0, jnp.array(y0), None,
                lambda terms, t, y, a: terms.vf(t, y, a), order, rtol, rtol * 1e-2, optimistix.rms_norm)
            first.append({"problem": problem, "rtol": rtol, "order": order, "dt": float(dt)})
    (folder / "diffrax.json").write_text(
        json.dumps({"versions": {"diffrax": diffrax.__version__, "jax": jax.__version__}, "initial_steps": first, "solves": cases}) + "\n")


main()
