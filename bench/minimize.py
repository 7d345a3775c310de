#!/usr/bin/env python3
"""Whole minimisations, by Hotloop or beside it by SciPy with JAX's derivatives, optax and optimistix: seconds, values and evaluations.

Run by the interpreter that has the library; each program is written once for both. Prints a line a task and way, with processor time, so that it
is to be pinned to one core (taskset -c 0) and minds other jobs little. Start the two in turn, several times, and compare the least times.

usage: bench/minimize.py hotloop|jax [SECONDS a measurement]
"""

import sys
import time

import numpy as np

LIBRARY = sys.argv[1]
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
if LIBRARY == "hotloop":
    import hotloop as xp

    grad, vmap, jit = xp.grad, xp.vmap, xp.jit
else:
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as xp
    import optax
    import optimistix
    import scipy.optimize
    from jax import grad, jit, vmap
    from jax.flatten_util import ravel_pytree


def layers(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {"w": rng.uniform(-1, 1, (a, b)) / np.sqrt(a), "b": rng.uniform(-1, 1, b) / np.sqrt(a)} for a, b in zip(sizes, sizes[1:])
    ]


def net(params, x):
    for layer in params[:-1]:
        x = xp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


# Burgers' equation, u(t, x), as in docs/python_derivatives.md.
RNG = np.random.default_rng(1)
INSIDE = np.stack([RNG.uniform(0, 1, 500), RNG.uniform(-1, 1, 500)], 1)
START = np.stack([np.zeros(100), np.linspace(-1, 1, 100)], 1)
WALLS = np.stack([np.tile(np.linspace(0, 1, 50), 2), np.repeat([-1.0, 1.0], 50)], 1)


def burgers(params):
    def u(t, x):
        return net(params, xp.stack([t, x]))[0]

    def residual(point):
        t, x = point[0], point[1]
        return grad(u, argnums=0)(t, x) + u(t, x) * grad(u, argnums=1)(t, x) - 0.01 / np.pi * grad(grad(u, argnums=1), argnums=1)(t, x)

    inside = (vmap(residual)(INSIDE) ** 2).mean()
    return inside + ((net(params, START) + np.sin(np.pi * START[:, 1:])) ** 2).mean() + (net(params, WALLS) ** 2).mean()


X = RNG.uniform(-2, 2, (500, 2))
Y = np.sin(3 * X[:, :1]) * X[:, 1:]


def surface(params):
    return net(params, X) - Y


def rosenbrock(x):
    return ((1 - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()


STARTS = RNG.normal(size=(1000, 10))
ITERATIONS = 300


def report(task, way, run):
    """run() -> (value, evaluations), finished."""
    value, evaluations = run()
    times = []
    end = time.process_time() + SECONDS
    while not times or time.process_time() < end:
        start = time.process_time()
        value, evaluations = run()
        times.append(time.process_time() - start)
    print(f"{task:22} {way:34} {min(times) * 1e3:10.3f} ms   value {float(value):.3e}   evaluations {float(evaluations):.0f}", flush=True)


def with_hotloop():
    pinn, small = layers([2, 20, 20, 1]), layers([2, 12, 12, 1])
    solve = jit(lambda p: xp.minimize(burgers, p, max_iterations=ITERATIONS, gradient_tolerance=0, value_tolerance=0))
    report("burgers, 481 params", "hotloop minimize lbfgs", lambda: (lambda m: (m.value, m.evaluations))(solve(pinn)))
    fit = jit(lambda p: xp.least_squares(surface, p, max_iterations=100, gradient_tolerance=0, value_tolerance=0, step_tolerance=0))
    report("surface, 205 params", "hotloop least_squares lm", lambda: (lambda m: (m.value, m.evaluations))(fit(small)))
    for method in ("lbfgs", "bfgs"):
        many = jit(vmap(lambda x: xp.minimize(rosenbrock, x, method=method, gradient_tolerance=1e-6, value_tolerance=0)))  # noqa: B023
        run = lambda: (lambda m: (np.mean(np.asarray(m.value)), np.mean(np.asarray(m.evaluations))))(many(STARTS))  # noqa: E731, B023
        report("1000 starts, 10 params", f"hotloop minimize {method}", run)


def with_jax():
    pinn, small = layers([2, 20, 20, 1]), layers([2, 12, 12, 1])
    flat, unravel = ravel_pytree(pinn)
    objective = jit(jax.value_and_grad(lambda v: burgers(unravel(v))))

    def scipy_lbfgs():
        options = {"maxiter": ITERATIONS, "maxcor": 10, "ftol": 0, "gtol": 0, "maxfun": 10**6}
        r = scipy.optimize.minimize(lambda v: [np.asarray(a) for a in objective(v)], np.asarray(flat), jac=True, method="L-BFGS-B", options=options)
        return r.fun, r.nfev

    report("burgers, 481 params", "scipy L-BFGS-B, JAX gradient", scipy_lbfgs)
    lbfgs = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(burgers)

    @jit
    def optax_lbfgs(params):
        def step(carry, _):
            params, state = carry
            value, g = value_and_grad(params, state=state)
            updates, state = lbfgs.update(g, state, params, value=value, grad=g, value_fn=burgers)
            return (optax.apply_updates(params, updates), state), state[-1].info.num_linesearch_steps

        (params, _), counts = jax.lax.scan(step, (params, lbfgs.init(params)), length=ITERATIONS)
        return burgers(params), counts.sum()

    report("burgers, 481 params", "optax lbfgs in lax.scan", lambda: jax.block_until_ready(optax_lbfgs(pinn)))

    start, back = ravel_pytree(small)
    residuals = jit(lambda v: surface(back(v)).ravel())
    jacobian = jit(lambda v: vmap(grad(lambda w, x: net(back(w), x)[0]), in_axes=(None, 0))(v, X))  # a row's gradient each, the cheapest way

    def scipy_lm():
        r = scipy.optimize.least_squares(
            lambda v: np.asarray(residuals(v)), np.asarray(start), lambda v: np.asarray(jacobian(v)), method="lm", ftol=1e-15, xtol=1e-15, gtol=1e-15, max_nfev=108
        )
        return r.cost, r.nfev

    report("surface, 205 params", "scipy MINPACK lm, JAX Jacobian", scipy_lm)

    @jit
    def optimistix_lm(params):
        solver = optimistix.LevenbergMarquardt(rtol=1e-15, atol=1e-15)
        s = optimistix.least_squares(lambda p, _: surface(p), solver, params, max_steps=108, throw=False)
        return 0.5 * (surface(s.value) ** 2).sum(), s.stats["num_steps"]

    report("surface, 205 params", "optimistix LevenbergMarquardt", lambda: jax.block_until_ready(optimistix_lm(small)))

    @jit
    def many_bfgs(starts):
        def one(x):
            s = optimistix.minimise(lambda x, _: rosenbrock(x), optimistix.BFGS(rtol=1e-9, atol=1e-9), x, max_steps=1000, throw=False)
            return rosenbrock(s.value), s.stats["num_steps"]

        values, steps = vmap(one)(starts)
        return values.mean(), steps.mean()

    report("1000 starts, 10 params", "optimistix BFGS, vmap", lambda: jax.block_until_ready(many_bfgs(STARTS)))

    @jit
    def many_scipy_bfgs(starts):
        import jax.scipy.optimize

        def one(x):
            r = jax.scipy.optimize.minimize(rosenbrock, x, method="BFGS", options={"gtol": 1e-6})
            return r.fun, r.nfev

        values, counts = vmap(one)(starts)
        return values.mean(), counts.mean()

    report("1000 starts, 10 params", "jax.scipy BFGS, vmap", lambda: jax.block_until_ready(many_scipy_bfgs(STARTS)))
    rosenbrock_jax = jit(jax.value_and_grad(rosenbrock))

    def one_by_one():
        found = [
            scipy.optimize.minimize(lambda v: [np.asarray(a) for a in rosenbrock_jax(v)], x, jac=True, method="BFGS", options={"gtol": 1e-6}) for x in STARTS[:50]
        ]
        return np.mean([r.fun for r in found]), np.mean([r.nfev for r in found])

    report("50 starts, 10 params", "scipy BFGS, JAX gradient", one_by_one)


if __name__ == "__main__":
    with_hotloop() if LIBRARY == "hotloop" else with_jax()
