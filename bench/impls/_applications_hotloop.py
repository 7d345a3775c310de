"""The applications of derivatives, as examples/derivatives has them in C++; see tasks/applications.py."""

import numpy as np
from harness.prepared import Prepared

from impls._hotloop_options import OPTIONS


def _prepared(f, arguments, names, note=""):
    return Prepared(lambda: f(*arguments), {k: np.array(a) for k, a in zip(names, f(*arguments))}, note=note)


def _mlp(widths, theta, x):
    import hotloop as hl

    at = 0
    for k, (a, b) in enumerate(zip(widths, widths[1:])):
        x = theta[at : at + a * b].reshape((b, a)) @ x + theta[at + a * b : at + (a + 1) * b]
        at += (a + 1) * b
        if k + 2 < len(widths):
            x = hl.tanh(x)
    return x[0]


def least_squares(sizes, inputs):
    import hotloop as hl

    widths = [int(w) for w in sizes["widths"].split("-")]
    e_x, e_t = np.eye(2)

    def of_table(theta, x, y):
        return _mlp(widths, theta, x) - y

    def burgers(theta, point, weight):
        def u(p):
            return p[1] * (1 - p[0] ** 2) * _mlp(widths, theta, p) - hl.sin(np.pi * p[0])

        u_x, u_xx = hl.jvp(lambda p: hl.jvp(u, (p,), (e_x,))[1], (point,), (e_x,))
        value, u_t = hl.jvp(u, (point,), (e_t,))
        return (u_t + value * u_x - 0.01 / np.pi * u_xx) * weight

    residual = burgers if sizes["what"] == "burgers" else of_table

    @hl.jit(**OPTIONS)
    def system(theta, x, y):
        r, j = hl.vmap(hl.value_and_grad(residual), in_axes=(None, 0, 0))(theta, x, y)
        return j.T @ j, j.T @ r, (r * r).sum()

    return _prepared(system, [inputs[k] for k in ("theta", "x", "y")], ("jtj", "jtr", "loss"), "vmap(value_and_grad)")


def kalman(sizes, inputs):
    import hotloop as hl

    h, b = sizes["H"], sizes["B"]
    wi, wh, bias = (inputs[k] for k in ("weight_ih", "weight_hh", "bias"))
    measure, unit = (np.arange(2 * h) < h).astype(np.float64), np.eye(2 * h)

    def dynamics(s, u):
        i, f, g, o = hl.split(u @ wi.T + s[:, :h] @ wh.T + bias, 4, axis=1)
        c = hl.sigmoid(f) * s[:, h:] + hl.sigmoid(i) * hl.tanh(g)
        return hl.concat([hl.sigmoid(o) * hl.tanh(c), c], axis=1)

    def step(carry, x):
        (s, p), (u, z) = carry, x
        j, predicted = hl.jacobian(lambda s: dynamics(s, u))(s).blocks, dynamics(s, u)
        p = j @ p @ j.mT + 0.02**2 * unit
        ph = p @ measure
        gain = ph / (ph @ measure + 0.3**2)[:, None]
        s = predicted + gain * (z - predicted @ measure)[:, None]
        return (s, p - gain[:, :, None] * ph[:, None, :]), s

    @hl.jit(**OPTIONS)
    def run(u, z):
        first = hl.zeros((b, 2 * h), dtype="float64"), hl.asarray(np.tile(0.1 * unit, (b, 1, 1)))
        (_, p), estimates = hl.scan(step, first, (u, z))
        return estimates, p

    return _prepared(run, (inputs["u"], inputs["z"]), ("estimates", "covariance"), "jacobian().blocks in a scan")


def _score(p, x):
    import hotloop as hl

    n = p["wo"].shape[0]

    def step(h, x_t):
        a, b = x_t[:, None] @ p["weight_ih"].T + p["bias_ih"], h @ p["weight_hh"].T + p["bias_hh"]
        r, z = (hl.sigmoid(a[:, k * n : (k + 1) * n] + b[:, k * n : (k + 1) * n]) for k in (0, 1))
        return (1 - z) * hl.tanh(a[:, 2 * n :] + r * b[:, 2 * n :]) + z * h, None

    return hl.scan(step, hl.zeros((x.shape[0], n)), x.T)[0] @ p["wo"] + p["bo"]


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "wo", "bo")


def gradient_penalty(sizes, inputs):
    import hotloop as hl

    p = {k: inputs[k] for k in NAMES}

    def loss(p, real, fake, at):
        between = at * real + (1 - at) * fake
        g = hl.grad(lambda x: _score(p, x).sum())(between)
        norms = hl.sqrt((g * g).sum(1) + 1e-12)
        return _score(p, fake).mean() - _score(p, real).mean() + 10 * ((norms - 1) ** 2).mean()

    @hl.jit(**OPTIONS)
    def f(p, real, fake, at):
        value, g = hl.value_and_grad(loss)(p, real, fake, at)
        return value, *(g[k] for k in NAMES)

    return _prepared(f, (p, inputs["real"], inputs["fake"], inputs["at"]), ("loss", *NAMES))


def gru_ensemble(sizes, inputs):
    import hotloop as hl

    p = {k: inputs[k] for k in NAMES}

    @hl.jit(**OPTIONS)
    def f(p, x, y):
        value, g = hl.vmap(hl.value_and_grad(lambda p, x, y: ((_score(p, x) - y) ** 2).mean()))(p, x, y)
        return value, *(g[k] for k in NAMES)

    return _prepared(f, (p, inputs["x"], inputs["y"]), ("losses", *NAMES), "vmap(value_and_grad)")
