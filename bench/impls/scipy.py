"""SciPy's solve_ivp on equations written with NumPy, as its user would."""

import numpy as np
from harness.prepared import Prepared

WEIGHTS = ("w0", "b0", "w1", "b1")


def setup(threads):
    pass


def versions():
    import scipy

    return f"scipy {scipy.__version__}"


def ode_sensitivity(sizes, inputs):
    from scipy.integrate import solve_ivp

    p, n = {k: inputs[k] for k in WEIGHTS}, inputs["b0"].size
    ends = np.cumsum([p[k].size for k in WEIGHTS])
    count, (w0, b0, w1, b1) = ends[-1], (slice(e - p[k].size, e) for k, e in zip(WEIGHTS, ends))
    slope_s, identity = np.zeros((2, count)), np.eye(2)

    def slope(t, state):
        y, s = state[:2], state[2:].reshape(2, count)
        h = np.tanh(p["w0"] @ y + p["b0"])
        a = p["w1"] * (1 - h * h)
        slope_s[:] = (a @ p["w0"]) @ s
        slope_s[:, w0] += (a[:, :, None] * y).reshape(2, -1)
        slope_s[:, b0] += a
        slope_s[0, w1.start : w1.start + n] += h
        slope_s[1, w1.start + n : w1.stop] += h
        slope_s[:, b1] += identity
        return np.concatenate([p["w1"] @ h + p["b1"], slope_s.ravel()])

    start = np.concatenate([inputs["y0"], np.zeros(2 * count)])
    call = lambda: solve_ivp(slope, (0, 1), start, method="DOP853", rtol=1e-4, atol=1e-4).y[:, -1]  # noqa: E731
    end = call()
    s = end[2:].reshape(2, count)
    parts = {k: s[:, e - p[k].size : e].reshape(2, *p[k].shape) for k, e in zip(WEIGHTS, ends)}
    return Prepared(call, {"y1": end[:2], **parts}, note="DOP853")


def ode_detest(sizes, inputs, function="scipy"):
    from tasks import detest

    from impls import _detest_scipy

    chosen = {name: detest.setting(function, sizes, name) for name in inputs}
    return detest.prepared(inputs, {name: (_detest_scipy.solver(name, method), tolerance) for name, (method, tolerance) in chosen.items()})
