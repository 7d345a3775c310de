"""DETEST's fields for SciPy: name -> field(t, y). Python's floats and math where there are few unknowns, which is faster than NumPy there."""

from math import cos, sin, sqrt

import numpy as np

from impls._detest_fields import MASSES, MATRICES, components


def _on_components(fn):
    return lambda t, y: fn(t, *y.tolist())


def _linear(matrix):
    return lambda t, y: matrix @ y


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
    **{name: _linear(matrix) for name, matrix in MATRICES.items()},
    "C5": _planets,
    **{name: _on_components(fn) for name, fn in components(sqrt, sin).items()},
}
METHODS = ("DOP853", "LSODA", "RK45")


def solver(problem, method):
    """(y(0), tolerance) -> y(20). `odeint` is SciPy's older function, whose loop over the steps is compiled."""
    from scipy.integrate import odeint, solve_ivp

    field = FIELDS[problem]
    if method == "odeint":
        return lambda y0, tolerance: odeint(field, y0, (0, 20), rtol=tolerance, atol=tolerance, mxstep=100000, tfirst=True)[-1]
    return lambda y0, tolerance: solve_ivp(field, (0, 20), y0, method=method, rtol=tolerance, atol=tolerance).y[:, -1]
