#!/usr/bin/env python3
"""Records the references of tasks/ode.py with diffrax in float64: bench/tasks/ode_reference.json, with the versions it was made by.

usage: bench/tasks/_record_ode.py        (a Python with jax, diffrax, optax: ./dev bench --install jax)
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import diffrax  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402

from tasks import ode  # noqa: E402


def training(sizes):
    given = {k: jnp.asarray(v, jnp.float64) for k, v in ode.training_inputs(sizes).items()}
    params = {k: v for k, v in given.items() if k not in ("y0", "data")}
    ts = jnp.linspace(0, 1, ode.SAVES)
    adam = optax.adam(0.01)

    depth, activation = sizes.get("depth", 1), jax.nn.silu if sizes.get("silu") else jnp.tanh

    def field(t, y, p):
        for i in range(depth):
            y = activation(p[f"w{i}"] @ y + p[f"b{i}"])
        return p[f"w{depth}"] @ y + p[f"b{depth}"]

    def loss(p):
        solution = diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.01, given["y0"], p, saveat=diffrax.SaveAt(ts=ts),
                                       stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6))  # fmt: skip
        stats = solution.stats
        return jnp.sum((solution.ys - given["data"]) ** 2), (stats["num_accepted_steps"], stats["num_rejected_steps"])

    def step(carry, _):
        p, state = carry
        (value, steps), grads = jax.value_and_grad(loss, has_aux=True)(p)
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(p, updates), state), (value, *steps)

    _, (losses, accepted, rejected) = jax.jit(lambda p: jax.lax.scan(step, (p, adam.init(p)), None, length=ode.COMPARED))(params)
    return {"losses": losses.tolist(), "accepted": int(accepted.sum()), "rejected": int(rejected.sum())}


def spiral():
    """Weights after 3000 steps of Adam, and the value and gradient there for data a tenth away: at the minimum itself a gradient in
    f32 is rounding."""
    ts = jnp.asarray(ode.SPIRAL_TS)
    controller = diffrax.PIDController(rtol=1e-6, atol=1e-6)
    y0 = jnp.array([2.0, 0.0])

    def solve(field, args):
        return diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.5, 0.01, y0, args, saveat=diffrax.SaveAt(ts=ts),
                                   stepsize_controller=controller).ys  # fmt: skip

    true = jnp.array([[-0.1, 2.0], [-2.0, -0.1]])
    data = solve(lambda t, y, a: (y**3) @ true, None)
    r = ode.rng("spiral")
    p = {"w0": r.standard_normal((50, 2)) * 0.5, "b0": np.zeros(50), "w1": r.standard_normal((2, 50)) * 0.14, "b1": np.zeros(2)}
    p = {k: jnp.asarray(v) for k, v in p.items()}

    def loss(p):
        return jnp.sum((solve(lambda t, y, q: q["w1"] @ jnp.tanh(q["w0"] @ y**3 + q["b0"]) + q["b1"], p) - data) ** 2)

    adam = optax.adam(0.01)

    def step(carry, _):
        p, state = carry
        updates, state = adam.update(jax.grad(loss)(p), state)
        return (optax.apply_updates(p, updates), state), None

    (p, _), _ = jax.jit(lambda p: jax.lax.scan(step, (p, adam.init(p)), None, length=3000))(p)
    # Rounded to f32, which is what the task is given.
    p = {k: jnp.asarray(np.asarray(v, np.float32), jnp.float64) for k, v in p.items()}
    data = jnp.asarray(np.asarray(data + 0.1, np.float32), jnp.float64)
    value, grads = jax.jit(jax.value_and_grad(lambda p: jnp.sum((solve(lambda t, y, q: q["w1"] @ jnp.tanh(q["w0"] @ y**3 + q["b0"]) + q["b1"], p) - data) ** 2)))(p)
    numbers = lambda tree: {k: np.asarray(v).tolist() for k, v in tree.items()}  # noqa: E731
    return {"weights": numbers(p), "data": np.asarray(data).tolist(), "loss": float(value), "gradient": numbers(grads)}


def main():
    record = {"versions": {"diffrax": diffrax.__version__, "jax": jax.__version__},
              "training": {str(w): training({"width": w}) for w in ode.WIDTHS} | {name: training(s) for name, s in ode.DEEP.items()},
              "spiral": spiral()}  # fmt: skip
    ode.REFERENCE.write_text(json.dumps(record) + "\n")
    print({w: (t["losses"][0], t["losses"][-1], t["accepted"], t["rejected"]) for w, t in record["training"].items()}, record["spiral"]["loss"])


if __name__ == "__main__":
    main()
