"""The heavy part of each program of examples/derivatives, on its sizes: what it computes again and again.

`least_squares`: theta (P), rows of data -> J^T J, J^T r and r^T r of N residuals, what a Levenberg-Marquardt step solves with; `what`
is `table` (a network less a target) or `burgers` (the residual of Burgers' equation at N points, with second derivatives of a network).
`kalman`: a batch of extended Kalman filters whose dynamics are an LSTM, all steps; a Jacobian of the network in each.
`gradient_penalty`: a recurrent critic's loss with a penalty on its gradient by the input, and the gradient of that.
`gru_ensemble`: loss and gradients of GRUs with weights of their own each, on samples of their own.
References by the complex step (Squire and Trapp 1998), exact to rounding, many directions at once.
"""

import numpy as np
from harness.task import Task, Tolerance, rng

from tasks.derivatives import SEED, jacobian

ORDER = 5
STEP = 1e-30
NU = 0.01 / np.pi


def mlp(widths, theta, x):
    """tanh layers and a linear one, parameters in one vector (..., P): weights (out, in), bias; x (N, in) -> (..., N, out)."""
    at = 0
    for k, (a, b) in enumerate(zip(widths, widths[1:])):
        w = theta[..., at : at + a * b].reshape(*theta.shape[:-1], b, a)
        bias = theta[..., at + a * b : at + (a + 1) * b]
        at += (a + 1) * b
        x = x @ w.swapaxes(-1, -2) + bias[..., None, :]
        if k + 2 < len(widths):
            x = np.tanh(x)
    return x


def along(widths, theta, x, direction):
    """The network and its first and second derivatives along a direction of x."""
    at, d, dd = 0, np.broadcast_to(np.asarray(direction, float), x.shape), np.zeros_like(x)
    for k, (a, b) in enumerate(zip(widths, widths[1:])):
        w = theta[..., at : at + a * b].reshape(*theta.shape[:-1], b, a).swapaxes(-1, -2)
        x, d, dd = x @ w + theta[..., None, at + a * b : at + (a + 1) * b], d @ w, dd @ w
        at += (a + 1) * b
        if k + 2 < len(widths):
            x = np.tanh(x)
            slope = 1 - x * x
            d, dd = slope * d, slope * (dd - 2 * x * d * d)
    return x[..., 0], d[..., 0], dd[..., 0]


def burgers_residual(widths, theta, points, weights):
    """u = t (1 - x^2) net - sin(pi x); (u_t + u u_x - nu u_xx) weight."""
    x, t = points.T
    n, n_x, n_xx = along(widths, theta, points, (1, 0))
    n_t = along(widths, theta, points, (0, 1))[1]
    u = t * (1 - x * x) * n - np.sin(np.pi * x)
    u_x = t * ((1 - x * x) * n_x - 2 * x * n) - np.pi * np.cos(np.pi * x)
    u_xx = t * ((1 - x * x) * n_xx - 4 * x * n_x - 2 * n) + np.pi**2 * np.sin(np.pi * x)
    u_t = (1 - x * x) * (n + t * n_t)
    return (u_t + u * u_x - NU * u_xx) * weights


def widths_of(sizes):
    return [int(w) for w in sizes["widths"].split("-")]


def least_squares_inputs(sizes):
    widths, n = widths_of(sizes), sizes["N"]
    r = rng("least squares", sizes["what"])
    layers = [(r.standard_normal(a * b) * (2 / (a + b)) ** 0.5, 0.1 * r.standard_normal(b)) for a, b in zip(widths, widths[1:])]
    theta = np.concatenate([v for layer in layers for v in layer])
    if sizes["what"] == "table":
        return {"theta": theta, "x": r.standard_normal((n, widths[0])), "y": r.standard_normal(n)}
    return {"theta": theta, "x": r.uniform((-1, 0), (1, 1), (n, 2)), "y": np.sqrt(r.uniform(0.1, 2.8, n)) / n**0.5}


def by_complex_step(f, theta, chunk=16):
    """(value, derivative (P, ...)) of f(theta (K, P)) -> (K, ...)."""
    rows = []
    for start in range(0, len(theta), chunk):
        size = min(chunk, len(theta) - start)
        moved = np.repeat(theta[None].astype(complex), size, 0)
        moved[np.arange(size), start + np.arange(size)] += 1j * STEP
        rows.append(f(moved).imag / STEP)
    return f(theta[None].astype(complex))[0].real, np.concatenate(rows)


def least_squares_reference(sizes, given, variant):
    widths = widths_of(sizes)

    def residuals(theta):
        if sizes["what"] == "table":
            return mlp(widths, theta, given["x"])[..., 0] - given["y"]
        return burgers_residual(widths, theta, given["x"], given["y"])

    r, j = by_complex_step(residuals, given["theta"])
    return {"jtj": j @ j.T, "jtr": j @ r, "loss": np.array(r @ r)}


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


PROCESS, MEASUREMENT = 0.02**2, 0.3**2  # variances


def kalman_inputs(sizes):
    t, b, h = (sizes[k] for k in "TBH")
    r = rng("kalman")
    return {
        "weight_ih": r.uniform(-1.5, 1.5, (4 * h, 1)), "weight_hh": r.uniform(-1.5, 1.5, (4 * h, h)), "bias": r.uniform(-1.5, 1.5, 4 * h),
        "u": r.standard_normal((t, b, 1)), "z": r.standard_normal((t, b)),
    }  # fmt: skip


def kalman_reference(sizes, given, variant):
    t, b, h = (sizes[k] for k in "TBH")

    def dynamics(s, u):
        gates = u @ given["weight_ih"].T + s[..., :h] @ given["weight_hh"].T + given["bias"]
        i, f, g, o = (gates[..., k * h : (k + 1) * h] for k in range(4))
        c = sigmoid(f) * s[..., h:] + sigmoid(i) * np.tanh(g)
        return np.concatenate([sigmoid(o) * np.tanh(c), c], -1)

    state, p = np.zeros((b, 2 * h)), np.tile(0.1 * np.eye(2 * h), (b, 1, 1))
    measure = (np.arange(2 * h) < h).astype(float)
    estimates = []
    for k in range(t):
        moved = state[None] + 1j * STEP * np.eye(2 * h)[:, None]
        j = (dynamics(moved, given["u"][k]).imag / STEP).transpose(1, 2, 0)  # (B, rows, columns)
        predicted = dynamics(state, given["u"][k])
        p = j @ p @ j.swapaxes(1, 2) + PROCESS * np.eye(2 * h)
        ph = p @ measure
        gain = ph / (ph @ measure + MEASUREMENT)[:, None]
        state = predicted + gain * (given["z"][k] - predicted @ measure)[:, None]
        p = p - gain[:, :, None] * ph[:, None, :]
        estimates.append(state)
    return {"estimates": np.stack(estimates), "covariance": p}


GRU = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "wo", "bo")  # gates r, z, n


def gru_shapes(h):
    return {"weight_ih": (3 * h, 1), "weight_hh": (3 * h, h), "bias_ih": (3 * h,), "bias_hh": (3 * h,), "wo": (h,), "bo": ()}


def gru_steps(p, x):
    """Hidden states, and what is needed to go back: p leading axes (...), x (..., B, T)."""
    h = np.zeros((*np.broadcast_shapes(p["bo"].shape, x.shape[:-2]), x.shape[-2], p["wo"].shape[-1]), p["wo"].dtype)
    n, saved = h.shape[-1], []
    wi, wh = p["weight_ih"].swapaxes(-1, -2), p["weight_hh"].swapaxes(-1, -2)
    for t in range(x.shape[-1]):
        a, b = x[..., t : t + 1] @ wi + p["bias_ih"][..., None, :], h @ wh + p["bias_hh"][..., None, :]
        r, z = sigmoid(a[..., :n] + b[..., :n]), sigmoid(a[..., n : 2 * n] + b[..., n : 2 * n])
        m = np.tanh(a[..., 2 * n :] + r * b[..., 2 * n :])
        saved.append((h, r, z, m, b[..., 2 * n :]))
        h = (1 - z) * m + z * h
    return h, saved


def score(p, x):
    return (gru_steps(p, x)[0] @ p["wo"][..., None])[..., 0] + p["bo"][..., None]


def slope(p, x):
    """d score / d x (..., B, T), by hand."""
    h, saved = gru_steps(p, x)
    g, out = np.broadcast_to(p["wo"][..., None, :], h.shape), []
    for before, r, z, m, b in reversed(saved):
        dm = g * (1 - z) * (1 - m * m)
        dz = g * (before - m) * z * (1 - z)
        dr = dm * b * r * (1 - r)
        out.append(np.concatenate([dr, dz, dm], -1) @ p["weight_ih"])
        g = g * z + np.concatenate([dr, dz, dm * r], -1) @ p["weight_hh"]
    return np.concatenate(out[::-1], -1)


def flat(p, names, lead=0):
    return np.concatenate([p[k].reshape(*p[k].shape[:lead], -1) for k in names], -1)


def unflat(theta, shapes):
    out, at = {}, 0
    for k, s in shapes.items():
        n = int(np.prod(s))
        out[k] = theta[..., at : at + n].reshape((*theta.shape[:-1], *s))
        at += n
    return out


def gru_params(r, h, lead=()):
    return {k: r.uniform(-(h**-0.5), h**-0.5, (*lead, *s)) for k, s in gru_shapes(h).items()}


def penalty_inputs(sizes):
    r = rng("gradient penalty")
    t, b, h = (sizes[k] for k in "TBH")
    out = gru_params(r, h) | {"real": r.standard_normal((b, t)), "fake": r.standard_normal((b, t)), "at": r.uniform(0, 1, (b, 1))}
    return {k: v.astype(np.float32) for k, v in out.items()}


def penalty_reference(sizes, given, variant):
    shapes = gru_shapes(sizes["H"])
    given = {k: v.astype(np.float64) for k, v in given.items()}
    between = given["at"] * given["real"] + (1 - given["at"]) * given["fake"]

    def loss(theta):
        p = unflat(theta, shapes)
        g = slope(p, between)
        norms = np.sqrt((g * g).sum(-1) + 1e-12)
        return score(p, given["fake"]).mean(-1) - score(p, given["real"]).mean(-1) + 10 * ((norms - 1) ** 2).mean(-1)

    value, gradient = by_complex_step(loss, flat(given, GRU), 64)
    return {"loss": np.array(value), **unflat(gradient, shapes)}


def ensemble_inputs(sizes):
    r = rng("gru ensemble")
    m, t, b, h = (sizes[k] for k in "MTBH")
    out = gru_params(r, h, (m,)) | {"x": r.standard_normal((m, b, t)), "y": r.standard_normal((m, b))}
    return {k: v.astype(np.float32) for k, v in out.items()}


def ensemble_reference(sizes, given, variant):
    shapes = gru_shapes(sizes["H"])
    given = {k: v.astype(np.float64) for k, v in given.items()}

    def member(m):
        x, y = given["x"][m], given["y"][m]
        return by_complex_step(lambda theta: ((score(unflat(theta, shapes), x) - y) ** 2).mean(-1), flat({k: given[k][m] for k in GRU}, GRU), 64)

    losses, gradients = zip(*map(member, range(sizes["M"])))
    return {"losses": np.array(losses), **unflat(np.stack(gradients), shapes)}


def task(name, kind, sizes, inputs, reference, required, tolerance, title):
    return Task(
        name=name, kind=kind, sizes=sizes, inputs=inputs, reference=reference, tolerances={"*": Tolerance(tolerance)}, required=required,
        group="applications", title=title, target="faster than the best rival",
    )  # fmt: skip


SYSTEM = ("jtj", "jtr", "loss")
TASKS = [
    jacobian("jacobian_100000", SEED, 100_000, f"Jacobian of {SEED}, per sample, 100,000 samples", "faster than the best rival"),
    task("burgers", "least_squares", dict(what="burgers", widths="2-16-16-16-1", N=1600), least_squares_inputs, least_squares_reference,
         SYSTEM, 1e-9, "Burgers' equation: normal equations of 1600 residuals, 609 parameters, f64"),
    task("table", "least_squares", dict(what="table", widths="6-12-12-1", N=2803), least_squares_inputs, least_squares_reference,
         SYSTEM, 1e-9, "regression: normal equations of 2803 rows, 253 parameters, f64"),
    task("kalman", "kalman", dict(T=200, B=32, H=4), kalman_inputs, kalman_reference, ("estimates", "covariance"), 1e-9,
         "32 extended Kalman filters with an LSTM(4) inside, 200 steps, f64"),
    task("gradient_penalty", "gradient_penalty", dict(T=24, B=32, H=16), penalty_inputs, penalty_reference, ("loss", *GRU), 1e-3,
         "WGAN-GP, GRU(16) critic, T24 B32: loss with gradient penalty, and its gradient"),
    task("gru_ensemble", "gru_ensemble", dict(M=64, T=24, B=16, H=8), ensemble_inputs, ensemble_reference, ("losses", *GRU), 1e-4,
         "64 GRU(8) with weights of their own, T24 B16: losses and gradients"),
]  # fmt: skip
