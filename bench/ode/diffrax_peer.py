#!/usr/bin/env python3
"""The workloads of bench/ode/lorenz.cpp and bench/ode/ensemble.cpp by diffrax on one core: 1000 Adam iterations in one jit, and
10,000 Lorenz systems under vmap. Run in turns with ours; only ratios count.

usage: diffrax_peer.py [width]
"""
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax

TS, U0 = jnp.linspace(0, 1, 101), jnp.array([1.0, 0.0, 0.0])


def lorenz(t, u, rho):
    return jnp.stack([10 * (u[1] - u[0]), u[0] * (rho - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]])


def solve(field, args, saveat, rtol, atol):
    controller = diffrax.PIDController(rtol=rtol, atol=atol)
    return diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.01, U0, args, saveat=saveat,
                               stepsize_controller=controller).ys


def best_of(repeats, fn):
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        result = jax.block_until_ready(fn())
        best = min(best, time.perf_counter() - start)
    return best, result


def train(width):
    key, saveat = jax.random.PRNGKey(0), diffrax.SaveAt(ts=TS)
    data = solve(lorenz, 28.0, saveat, 1e-3, 1e-6)
    sizes = [3, width, 3]
    params = [(jax.random.normal(jax.random.fold_in(key, i), (a, b)) / np.sqrt(a), jnp.zeros(b))
              for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    adam = optax.adam(0.01)

    def net(t, y, p):
        return jnp.tanh(y @ p[0][0] + p[0][1]) @ p[1][0] + p[1][1]

    def step(carry, _):
        p, state = carry
        loss, grads = jax.value_and_grad(lambda q: jnp.sum((solve(net, q, saveat, 1e-3, 1e-6) - data) ** 2))(p)
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(p, updates), state), loss

    run = jax.jit(lambda p, s: jax.lax.scan(step, (p, s), None, length=1000))
    first, _ = best_of(1, lambda: run(params, adam.init(params)))
    best, result = best_of(5, lambda: run(params, adam.init(params)))
    print(f"diffrax {diffrax.__version__}, jax {jax.__version__}, width {width}: run {best:.4f} s, first call {first:.2f} s, "
          f"loss {float(result[1][-1]):.1f}")


def ensemble():
    run = jax.jit(jax.vmap(lambda rho: solve(lorenz, rho, diffrax.SaveAt(t1=True), 1e-6, 1e-6)))
    rho = jnp.linspace(0, 21, 10000)
    best_of(1, lambda: run(rho))
    print(f"diffrax, 10,000 Lorenz systems: {best_of(20, lambda: run(rho))[0] * 1e3:.2f} ms")


train(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
ensemble()
