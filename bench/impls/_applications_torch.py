"""The applications of derivatives in PyTorch; see tasks/applications.py. Eager and compiled, the faster of the two, where its compiler takes them."""

import numpy as np
from harness.prepared import Prepared

from impls._fastest import fastest


def _prepared(f, arguments, names, compiled=True):
    import torch

    ways = {"eager": lambda: f(*arguments)}
    if compiled:
        fast = torch.compile(f, dynamic=False)
        try:
            fast(*arguments)
            ways["compiled"] = lambda: fast(*arguments)
        except Exception:  # noqa: BLE001  (what its compiler refuses is measured as it is)
            pass
    best, note = fastest(ways) if len(ways) > 1 else ("eager", "")
    results = ways[best]()
    note = f"{best} ({note})" if note else best
    return Prepared(ways[best], {k: a.detach().numpy().copy() for k, a in zip(names, results)}, note=note)


def _tensors(inputs):
    import torch

    return {k: torch.from_numpy(np.array(v)) for k, v in inputs.items()}


def _mlp(widths, theta, x):
    import torch

    at = 0
    for k, (a, b) in enumerate(zip(widths, widths[1:])):
        x = theta[at : at + a * b].reshape(b, a) @ x + theta[at + a * b : at + (a + 1) * b]
        at += (a + 1) * b
        if k + 2 < len(widths):
            x = torch.tanh(x)
    return x[0]


def least_squares(sizes, inputs):
    import torch
    from torch.func import grad_and_value, jvp, vmap

    widths = [int(w) for w in sizes["widths"].split("-")]
    e_x, e_t = torch.eye(2, dtype=torch.float64)

    def of_table(theta, x, y):
        return _mlp(widths, theta, x) - y

    def burgers(theta, point, weight):
        def u(p):
            return p[1] * (1 - p[0] ** 2) * _mlp(widths, theta, p) - torch.sin(torch.pi * p[0])

        u_x, u_xx = jvp(lambda p: jvp(u, (p,), (e_x,))[1], (point,), (e_x,))
        value, u_t = jvp(u, (point,), (e_t,))
        return (u_t + value * u_x - 0.01 / torch.pi * u_xx) * weight

    rows = vmap(grad_and_value(burgers if sizes["what"] == "burgers" else of_table), (None, 0, 0))

    def system(theta, x, y):
        j, r = rows(theta, x, y)
        return j.T @ j, j.T @ r, r @ r

    given = _tensors(inputs)
    return _prepared(system, [given[k] for k in ("theta", "x", "y")], ("jtj", "jtr", "loss"))


def kalman(sizes, inputs):
    import torch
    from torch.func import jacfwd, vmap


    h, b = sizes["H"], sizes["B"]
    given = _tensors(inputs)
    wi, wh, bias = (given[k] for k in ("weight_ih", "weight_hh", "bias"))
    unit = torch.eye(2 * h, dtype=torch.float64)
    measure = torch.cat([torch.ones(h, dtype=torch.float64), torch.zeros(h, dtype=torch.float64)])

    def dynamics(s, u):
        i, f, g, o = (wi @ u + wh @ s[:h] + bias).chunk(4)
        c = torch.sigmoid(f) * s[h:] + torch.sigmoid(i) * torch.tanh(g)
        s = torch.cat([torch.sigmoid(o) * torch.tanh(c), c])
        return s, s

    slopes = vmap(jacfwd(dynamics, has_aux=True))

    def step(s, p, u, z):
        j, predicted = slopes(s, u)
        p = j @ p @ j.mT + 0.02**2 * unit
        ph = p @ measure
        gain = ph / (ph @ measure + 0.3**2)[:, None]
        return predicted + gain * (z - predicted @ measure)[:, None], p - gain[:, :, None] * ph[:, None, :]

    def with_step(one):
        def run():
            s, p = torch.zeros(b, 2 * h, dtype=torch.float64), (0.1 * unit).repeat(b, 1, 1)
            estimates = []
            for u, z in zip(given["u"], given["z"]):
                s, p = one(s, p, u, z)
                estimates.append(s)
            return torch.stack(estimates), p

        return run

    ways = {"eager": with_step(step), "step compiled": with_step(torch.compile(step, dynamic=False))}
    best, note = fastest(ways)
    results = ways[best]()
    return Prepared(ways[best], {k: a.numpy().copy() for k, a in zip(("estimates", "covariance"), results)}, note=f"{best} ({note})")


def _score(p, x):
    """x (B, T) -> (B): its own GRU has no second derivative and no vmap over weights, so the loop is Python's."""
    import torch

    n = p["wo"].shape[0]
    h = x.new_zeros(x.shape[0], n)
    for a in (x.T[:, :, None] * p["weight_ih"][:, 0] + p["bias_ih"]).unbind(0):
        b = h @ p["weight_hh"].T + p["bias_hh"]
        r, z = (torch.sigmoid(a[:, k * n : (k + 1) * n] + b[:, k * n : (k + 1) * n]) for k in (0, 1))
        h = (1 - z) * torch.tanh(a[:, 2 * n :] + r * b[:, 2 * n :]) + z * h
    return h @ p["wo"] + p["bo"]


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "wo", "bo")


def gradient_penalty(sizes, inputs):
    from torch.func import grad, grad_and_value

    given = _tensors(inputs)
    p = {k: given.pop(k) for k in NAMES}

    def loss(p, real, fake, at):
        between = at * real + (1 - at) * fake
        g = grad(lambda x: _score(p, x).sum())(between)
        norms = ((g * g).sum(1) + 1e-12).sqrt()
        return _score(p, fake).mean() - _score(p, real).mean() + 10 * ((norms - 1) ** 2).mean()

    def f(p, real, fake, at):
        g, value = grad_and_value(loss)(p, real, fake, at)
        return value, *(g[k] for k in NAMES)

    return _prepared(f, (p, given["real"], given["fake"], given["at"]), ("loss", *NAMES))


def gru_ensemble(sizes, inputs):
    from torch.func import grad_and_value, vmap

    given = _tensors(inputs)
    p = {k: given.pop(k) for k in NAMES}

    def f(p, x, y):
        g, value = vmap(grad_and_value(lambda p, x, y: ((_score(p, x) - y) ** 2).mean()))(p, x, y)
        return value, *(g[k] for k in NAMES)

    return _prepared(f, (p, given["x"], given["y"]), ("losses", *NAMES))
