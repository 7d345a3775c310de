#!/usr/bin/env python3
"""Records how diffrax trains a neural ODE on Lorenz' equations, for tests/parity/ode_training_test.cpp.

Writes tests/parity/data/diffrax_lorenz.json: the initial weights of a 3-100-3 tanh network, the trajectory it is fitted to, and of
1000 Adam iterations the accepted and rejected steps and the losses, in float32 and again in float64 from the same weights. Where the
two part tells how much of a loss is rounding. Needs diffrax and optax; their versions are written into the file.

Also diffrax_lorenz_spread.json: steps and last losses in float32 from weights that differ from these by a millionth, for what rounding makes
of 1000 iterations.

usage: scripts/record_lorenz.py [folder]     (default tests/parity/data)
"""
import json
import pathlib
import sys

import jax

jax.config.update("jax_enable_x64", True)
import diffrax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

ITERATIONS, WIDTH, SAVES, SEED = 1000, 100, 101, 7
TS = np.linspace(0, 1, SAVES)


def lorenz(t, u, args):
    return jnp.stack([10 * (u[1] - u[0]), u[0] * (28 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]])


def solve(field, args, dtype, rtol, atol):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Tsit5(), jnp.array(0, dtype), jnp.array(1, dtype), jnp.array(0.01, dtype),
        jnp.array([1, 0, 0], dtype), args, saveat=diffrax.SaveAt(ts=jnp.array(TS, dtype)),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol))


def net(t, y, p):
    return p["2.weight"] @ jnp.tanh(p["0.weight"] @ y + p["0.bias"]) + p["2.bias"]


def train(params, data, dtype):
    params = {name: jnp.array(value, dtype) for name, value in params.items()}
    data, adam = jnp.array(data, dtype), optax.adam(0.01)

    def loss(p):
        sol = solve(net, p, dtype, 1e-3, 1e-6)
        return jnp.sum((sol.ys - data) ** 2), (sol.stats["num_accepted_steps"], sol.stats["num_rejected_steps"])

    def step(carry, _):
        p, state = carry
        (value, steps), grads = jax.value_and_grad(loss, has_aux=True)(p)
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(p, updates), state), (value, *steps)

    run = jax.jit(lambda p, s: jax.lax.scan(step, (p, s), None, length=ITERATIONS)[1])
    losses, accepted, rejected = (np.asarray(x) for x in run(params, adam.init(params)))
    assert losses.dtype == dtype
    return {"loss": losses[:50].tolist(), "accepted": accepted[:50].tolist(), "rejected": rejected[:50].tolist(),
            "all_accepted": int(accepted.sum()), "all_rejected": int(rejected.sum()), "final_loss": float(losses[-1]),
            "least_loss": float(losses.min()), "last_losses": losses[-100:].tolist()}


def spread(params, data, runs=96):
    steps, losses = [], []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        moved = {name: (value * (1 + 1e-6 * rng.standard_normal(value.shape))).astype(np.float32) for name, value in params.items()}
        r = train(moved, data, np.float32)
        steps.append(r["all_accepted"] + r["all_rejected"])
        losses.append(r["final_loss"])
    return {"versions": {"diffrax": diffrax.__version__, "jax": jax.__version__}, "steps": steps, "final_losses": losses}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/parity/data")
    data = np.asarray(solve(lorenz, None, np.float64, 1e-9, 1e-9).ys, np.float32)
    rng = np.random.default_rng(SEED)

    def uniform(inputs, shape):  # PyTorch's bounds
        return rng.uniform(-1, 1, shape).astype(np.float32) / np.float32(np.sqrt(inputs))

    params = {"0.weight": uniform(3, (WIDTH, 3)), "0.bias": uniform(3, (WIDTH,)), "2.weight": uniform(WIDTH, (3, WIDTH)),
              "2.bias": uniform(WIDTH, (3,))}

    def array(x):
        return {"shape": list(x.shape), "data": [float(f"{v:.9g}") for v in x.ravel()]}

    record = {"versions": {"diffrax": diffrax.__version__, "jax": jax.__version__, "optax": optax.__version__},
              "params": {name: array(value) for name, value in params.items()}, "data": array(data),
              "f32": train(params, data, np.float32), "f64": train(params, data, np.float64)}
    for dtype in ("f32", "f64"):
        r = record[dtype]
        print(dtype, "steps", r["all_accepted"], "+", r["all_rejected"], "loss", r["loss"][0], r["loss"][-1], r["final_loss"])
    (folder / "diffrax_lorenz.json").write_text(json.dumps(record) + "\n")
    (folder / "diffrax_lorenz_spread.json").write_text(json.dumps(spread(params, data)) + "\n")


if __name__ == "__main__":
    main()
