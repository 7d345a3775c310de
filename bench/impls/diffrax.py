"""diffrax on JAX: Tsit5, its own PID controller, its default adjoint, all in one jit."""

import numpy as np
from harness.prepared import Prepared

from impls.jax import reset, setup  # noqa: F401

WEIGHTS = ("w0", "b0", "w1", "b1")


def versions():
    import diffrax
    import jax

    return f"diffrax {diffrax.__version__} on jax {jax.__version__}"


def _solve(field, t1, y0, args, tolerances, ts=None):
    import diffrax

    saveat = diffrax.SaveAt(t1=True) if ts is None else diffrax.SaveAt(ts=ts)
    return diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, t1, 0.01, y0, args, saveat=saveat,
                               stepsize_controller=diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1])).ys  # fmt: skip


def _net(p, x):
    import jax.numpy as jnp

    return p["w1"] @ jnp.tanh(p["w0"] @ x + p["b0"]) + p["b1"]


def _arrays(inputs):
    import jax.numpy as jnp

    given = {k: jnp.asarray(v) for k, v in inputs.items()}
    return {k: given[k] for k in WEIGHTS}, given["y0"], given["data"]


def ode_training(sizes, inputs):
    import jax
    import jax.numpy as jnp
    import optax

    p = {k: jnp.asarray(v) for k, v in inputs.items()}
    y0, data = p.pop("y0"), p.pop("data")
    ts, adam = jnp.linspace(0, 1, 101), optax.adam(0.01)
    depth, activation = sizes.get("depth", 1), jax.nn.silu if sizes.get("silu") else jnp.tanh

    def field(t, y, p):
        for i in range(depth):
            y = activation(p[f"w{i}"] @ y + p[f"b{i}"])
        return p[f"w{depth}"] @ y + p[f"b{depth}"]

    def loss(p):
        return jnp.sum((_solve(field, 1.0, y0, p, (1e-3, 1e-6), ts) - data) ** 2)

    def step(carry, _):
        p, state = carry
        value, grads = jax.value_and_grad(loss)(p)
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(p, updates), state), value

    run = jax.jit(lambda p, s: jax.lax.scan(step, (p, s), None, length=sizes["iterations"])[1])
    losses = np.array(run(p, adam.init(p)))
    return Prepared(lambda: run(p, adam.init(p)).block_until_ready(), {"losses": losses[:50]}, note=f"last loss {losses[-1]:.1f}")


ode_training_deep = ode_training


def ode_ensemble(sizes, inputs):
    import jax
    import jax.numpy as jnp

    def lorenz(t, u, rho):
        return jnp.stack([10 * (u[1] - u[0]), u[0] * (rho - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]])

    rho, y0 = jnp.asarray(inputs["rho"]), jnp.array([1.0, 0.0, 0.0])
    run = jax.jit(jax.vmap(lambda rho: _solve(lorenz, 1.0, y0, rho, (1e-6, 1e-6))[0]))
    return Prepared(lambda: run(rho).block_until_ready(), {"y1": np.array(run(rho))})


def _lorenz(t, u, rho):
    import jax.numpy as jnp

    return jnp.stack([10 * (u[1] - u[0]), u[0] * (rho - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]])


def ode_ensemble_saveat(sizes, inputs):
    import jax
    import jax.numpy as jnp

    rho, y0, ts = jnp.asarray(inputs["rho"]), jnp.array([1.0, 0.0, 0.0]), jnp.linspace(0, 1, 20)
    run = jax.jit(jax.vmap(lambda rho: _solve(_lorenz, 1.0, y0, rho, (1e-6, 1e-6), ts)))
    return Prepared(lambda: run(rho).block_until_ready(), {"ys": np.array(run(rho))})


def ode_ensemble_gradient(sizes, inputs):
    import diffrax
    import jax
    import jax.numpy as jnp

    rho, y0 = jnp.asarray(inputs["rho"]), jnp.array([1.0, 0.0, 0.0])

    def loss(rho):
        controller = diffrax.PIDController(rtol=1e-6, atol=1e-6)
        return jnp.sum(diffrax.diffeqsolve(diffrax.ODETerm(_lorenz), diffrax.Tsit5(), 0.0, 1.0, 0.01, y0, rho, stepsize_controller=controller, max_steps=256).ys ** 2)

    run = jax.jit(jax.vmap(jax.grad(loss)))
    return Prepared(lambda: run(rho).block_until_ready(), {"gradient": np.array(run(rho))})


def ode_ensemble_stiff(sizes, inputs):
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    rate, y0 = jnp.asarray(inputs["rate"]), jnp.array([1.0, 0.0, 0.0])

    def robertson(t, y, rate):
        slow, back, fast = rate * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
        return jnp.stack([back - slow, slow - back - fast, fast])

    def one(rate):
        controller = diffrax.PIDController(rtol=1e-4, atol=1e-8)
        return diffrax.diffeqsolve(diffrax.ODETerm(robertson), diffrax.Kvaerno5(), 0.0, 100.0, None, y0, rate, stepsize_controller=controller, max_steps=1000).ys[0]

    run = jax.jit(jax.vmap(one))
    return Prepared(lambda: run(rate).block_until_ready(), {"y1": np.array(run(rate))})


def ode_gradient(sizes, inputs):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", bool(sizes["f64"]))
    p, y0, data = _arrays(inputs)
    ts = jnp.linspace(0, 1.5, 30, dtype=data.dtype)
    f = jax.jit(jax.value_and_grad(lambda p: jnp.sum((_solve(lambda t, y, p: _net(p, y**3), 1.5, y0, p, (1e-6, 1e-6), ts) - data) ** 2)))
    value, grads = f(p)
    return Prepared(lambda: jax.block_until_ready(f(p)), {"loss": np.array(value), **{k: np.array(v) for k, v in grads.items()}})


def ode_sensitivity(sizes, inputs):
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    p, y0 = {k: jnp.asarray(inputs[k]) for k in WEIGHTS}, jnp.asarray(inputs["y0"])

    # ForwardMode came with diffrax 0.7. Before, a solve without a bound on its steps is the loop that forward mode goes through.
    forward = {"adjoint": diffrax.ForwardMode()} if hasattr(diffrax, "ForwardMode") else {"adjoint": diffrax.DirectAdjoint(), "max_steps": None}

    def solve(p):
        y1 = diffrax.diffeqsolve(diffrax.ODETerm(lambda t, y, p: _net(p, y)), diffrax.Tsit5(), 0.0, 1.0, None, y0, p, **forward,
                                 stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-4)).ys[0]  # fmt: skip
        return y1, y1

    f = jax.jit(jax.jacfwd(solve, has_aux=True))
    sensitivities, y1 = f(p)
    return Prepared(lambda: jax.block_until_ready(f(p)), {"y1": np.array(y1), **{k: np.array(v) for k, v in sensitivities.items()}})
