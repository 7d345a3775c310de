"""The applications of derivatives in JAX; see tasks/applications.py."""

import numpy as np
from harness.prepared import Prepared


def _x64():
    import jax

    jax.config.update("jax_enable_x64", True)


def _prepared(f, arguments, names, note=""):
    import jax

    results = f(*arguments)
    return Prepared(lambda: jax.block_until_ready(f(*arguments)), {k: np.array(a) for k, a in zip(names, results)}, note=note)


def _mlp(widths, theta, x):
    import jax.numpy as jnp

    at = 0
    for k, (a, b) in enumerate(zip(widths, widths[1:])):
        x = theta[at : at + a * b].reshape(b, a) @ x + theta[at + a * b : at + (a + 1) * b]
        at += (a + 1) * b
        if k + 2 < len(widths):
            x = jnp.tanh(x)
    return x[0]


def least_squares(sizes, inputs):
    _x64()
    import jax
    import jax.numpy as jnp

    widths = [int(w) for w in sizes["widths"].split("-")]

    def of_table(theta, x, y):
        return _mlp(widths, theta, x) - y

    def burgers(theta, point, weight):
        def u(p):
            return p[1] * (1 - p[0] ** 2) * _mlp(widths, theta, p) - jnp.sin(jnp.pi * p[0])

        e_x, e_t = jnp.eye(2)
        u_x, u_xx = jax.jvp(lambda p: jax.jvp(u, (p,), (e_x,))[1], (point,), (e_x,))
        value, u_t = jax.jvp(u, (point,), (e_t,))
        return (u_t + value * u_x - 0.01 / jnp.pi * u_xx) * weight

    residual = burgers if sizes["what"] == "burgers" else of_table

    @jax.jit
    def system(theta, x, y):
        r, j = jax.vmap(jax.value_and_grad(residual), (None, 0, 0))(theta, x, y)
        return j.T @ j, j.T @ r, r @ r

    return _prepared(system, [jnp.asarray(inputs[k]) for k in ("theta", "x", "y")], ("jtj", "jtr", "loss"), "vmap(value_and_grad)")


def kalman(sizes, inputs):
    _x64()
    import jax
    import jax.numpy as jnp

    h, b = sizes["H"], sizes["B"]
    wi, wh, bias, u, z = (jnp.asarray(inputs[k]) for k in ("weight_ih", "weight_hh", "bias", "u", "z"))
    measure, unit = jnp.where(jnp.arange(2 * h) < h, 1.0, 0.0), jnp.eye(2 * h)

    def dynamics(s, u):
        i, f, g, o = jnp.split(wi @ u + wh @ s[:h] + bias, 4)
        c = jax.nn.sigmoid(f) * s[h:] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jnp.concatenate([jax.nn.sigmoid(o) * jnp.tanh(c), c])

    def one(s, p, u, z):
        j, predicted = jax.jacfwd(dynamics)(s, u), dynamics(s, u)
        p = j @ p @ j.T + 0.02**2 * unit
        ph = p @ measure
        gain = ph / (ph @ measure + 0.3**2)
        return predicted + gain * (z - predicted @ measure), p - gain[:, None] * ph[None]

    def step(carry, x):
        s, p = jax.vmap(one)(*carry, *x)
        return (s, p), s

    @jax.jit
    def run(u, z):
        (_, p), estimates = jax.lax.scan(step, (jnp.zeros((b, 2 * h)), jnp.tile(0.1 * unit, (b, 1, 1))), (u, z))
        return estimates, p

    return _prepared(run, (u, z), ("estimates", "covariance"), "scan of vmap(jacfwd)")


def _score(p, x):
    """x (B, T) -> (B)."""
    import jax
    import jax.numpy as jnp

    n = p["wo"].shape[0]

    def step(h, a):
        b = h @ p["weight_hh"].T + p["bias_hh"]
        r, z = (jax.nn.sigmoid(a[:, k * n : (k + 1) * n] + b[:, k * n : (k + 1) * n]) for k in (0, 1))
        return (1 - z) * jnp.tanh(a[:, 2 * n :] + r * b[:, 2 * n :]) + z * h, None

    xs = x.T[:, :, None] * p["weight_ih"][:, 0] + p["bias_ih"]
    return jax.lax.scan(step, jnp.zeros((x.shape[0], n)), xs)[0] @ p["wo"] + p["bo"]


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "wo", "bo")


def gradient_penalty(sizes, inputs):
    import jax
    import jax.numpy as jnp

    given = {k: jnp.asarray(v) for k, v in inputs.items()}
    p = {k: given.pop(k) for k in NAMES}

    def loss(p, real, fake, at):
        between = at * real + (1 - at) * fake
        g = jax.grad(lambda x: _score(p, x).sum())(between)
        norms = jnp.sqrt((g * g).sum(1) + 1e-12)
        return _score(p, fake).mean() - _score(p, real).mean() + 10 * ((norms - 1) ** 2).mean()

    @jax.jit
    def f(p, real, fake, at):
        value, g = jax.value_and_grad(loss)(p, real, fake, at)
        return value, *(g[k] for k in NAMES)

    return _prepared(f, (p, given["real"], given["fake"], given["at"]), ("loss", *NAMES))


def gru_ensemble(sizes, inputs):
    import jax
    import jax.numpy as jnp

    given = {k: jnp.asarray(v) for k, v in inputs.items()}
    p = {k: given.pop(k) for k in NAMES}

    @jax.jit
    def f(p, x, y):
        value, g = jax.vmap(jax.value_and_grad(lambda p, x, y: ((_score(p, x) - y) ** 2).mean()))(p, x, y)
        return value, *(g[k] for k in NAMES)

    return _prepared(f, (p, given["x"], given["y"]), ("losses", *NAMES), "vmap(value_and_grad)")
