"""DETEST's fields for Hotloop: name -> field(t, y, args) of one array of components."""

import hotloop as hl
import numpy as np

from impls._detest_fields import MASSES, MATRICES, components


def _on_components(fn):
    return lambda t, y, _: hl.stack(fn(t, *(y[i] for i in range(y.shape[0]))))


def _linear(matrix):
    return lambda t, y, _: matrix @ y


def _planets(t, state, _):
    q, v = state[:15].reshape(3, 5), state[15:]
    s = (q * q).sum(0)
    near_sun = q / (s * hl.sqrt(s))
    apart = q[:, None, :] - q[:, :, None]  # [axis, j, k]: from j to k
    d = (apart * apart).sum(0)
    pull = MASSES * (apart / (d * hl.sqrt(d) + np.eye(5)) - near_sun[:, None, :])
    others = (pull * (1 - np.eye(5))).sum(2)
    force = 2.95912208286 * (others - (1.00000597682 + MASSES) * near_sun)
    return hl.concat([v, force.reshape(15)])


FIELDS = {
    "A1": lambda t, y, _: -y,
    "A2": lambda t, y, _: -0.5 * y * y * y,
    "A3": lambda t, y, _: y * hl.cos(t),
    "A4": lambda t, y, _: 0.25 * y * (1 - 0.05 * y),
    "A5": lambda t, y, _: (y - t) / (y + t),
    **{name: _linear(matrix) for name, matrix in MATRICES.items()},
    "C5": _planets,
    **{name: _on_components(fn) for name, fn in components(hl.sqrt, hl.sin).items()},
}
METHODS = ("Tsit5", "Vern7", "Dopri8")


def solver(problem, method, options):
    """(y(0), tolerance) -> y(20), how the solve ended."""

    def run(y0, tolerance):
        controller = hl.ode.PID(tolerance, tolerance)
        solution = hl.ode.solve(FIELDS[problem], getattr(hl.ode, method)(), 0, 20, y0, controller=controller, max_steps=100000)
        return solution.y1, solution.result

    return hl.jit(run, **options)
