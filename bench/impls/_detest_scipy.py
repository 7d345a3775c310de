"""DETEST's fields for SciPy: name -> field(t, y). Python's floats and math where there are few unknowns, which is faster than NumPy there."""

from math import cos, sin, sqrt

import numpy as np

MASSES = np.array([0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778])


def _on_components(fn):
    return lambda t, y: fn(t, *y.tolist())


def _linear(matrix):
    return lambda t, y: matrix @ y


def _chain(rates):
    return _linear(np.diag(-np.append(rates, 0.0)) + np.diag(rates, -1))


def _heat(n):
    return _linear(np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1))


def _torus(t, a, b, c):
    r = sqrt(a * a + b * b)
    return [-b - a * c / r, a - b * c / r, a / r]


def _orbit(t, a, b, u, v):
    s = a * a + b * b
    r3 = s * sqrt(s)
    return [u, v, -a / r3, -b / r3]


_SUN, _OTHERS, _EYE = 1.00000597682 + MASSES, MASSES * (1 - np.eye(5)), np.eye(5)


def _planets(t, y):
    q = y[:15].reshape(3, 5)
    s = (q * q).sum(0)
    near_sun = q / (s * np.sqrt(s))
    apart = q[:, None, :] - q[:, :, None]  # [axis, j, k]: from j to k
    d = (apart * apart).sum(0)
    pull = _OTHERS * (apart / (d * np.sqrt(d) + _EYE) - near_sun[:, None, :])
    out = np.empty(30)
    out[:15] = y[15:]
    out[15:] = (2.95912208286 * (pull.sum(2) - _SUN * near_sun)).ravel()
    return out


FIELDS = {
    "A1": lambda t, y: -y,
    "A2": _on_components(lambda t, y: [-0.5 * y * y * y]),
    "A3": _on_components(lambda t, y: [y * cos(t)]),
    "A4": _on_components(lambda t, y: [0.25 * y * (1 - 0.05 * y)]),
    "A5": _on_components(lambda t, y: [(y - t) / (y + t)]),
    "B1": _on_components(lambda t, a, b: [2 * (a - a * b), a * b - b]),
    "B2": _on_components(lambda t, a, b, c: [b - a, a - 2 * b + c, b - c]),
    "B3": _on_components(lambda t, a, b, c: [-a, a - b * b, b * b]),
    "B4": _on_components(_torus),
    "B5": _on_components(lambda t, a, b, c: [b * c, -a * c, -0.51 * a * b]),
    "C1": _chain(np.ones(9)),
    "C2": _chain(np.arange(1.0, 10.0)),
    "C3": _heat(10),
    "C4": _heat(51),
    "C5": _planets,
    **{f"D{k}": _on_components(_orbit) for k in range(1, 6)},
    "E1": _on_components(lambda t, y, v: [v, -(v / (t + 1) + (1 - 0.25 / ((t + 1) * (t + 1))) * y)]),
    "E2": _on_components(lambda t, y, v: [v, (1 - y * y) * v - y]),
    "E3": _on_components(lambda t, y, v: [v, y * y * y / 6 - y + 2 * sin(2.78535 * t)]),
    "E4": _on_components(lambda t, y, v: [v, 0.032 - 0.4 * v * v]),
    "E5": _on_components(lambda t, y, v: [v, sqrt(1 + v * v) / (25 - t)]),
}
METHODS = ("DOP853", "LSODA", "RK45")


def solver(problem, method):
    """(y(0), tolerance) -> y(20). `odeint` is SciPy's older function, whose loop over the steps is compiled."""
    from scipy.integrate import odeint, solve_ivp

    field = FIELDS[problem]
    if method == "odeint":
        return lambda y0, tolerance: odeint(field, y0, (0, 20), rtol=tolerance, atol=tolerance, mxstep=100000, tfirst=True)[-1]
    return lambda y0, tolerance: solve_ivp(field, (0, 20), y0, method=method, rtol=tolerance, atol=tolerance).y[:, -1]
