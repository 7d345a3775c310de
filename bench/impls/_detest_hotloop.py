"""DETEST's fields for Hotloop: name -> field(t, y, args) of one array of components."""

import hotloop as hl
import numpy as np

MASSES = np.array([0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778])


def _on_components(fn):
    return lambda t, y, _: hl.stack(fn(t, *(y[i] for i in range(y.shape[0]))))


def _linear(matrix):
    return lambda t, y, _: matrix @ y


def _chain(rates):
    return _linear(np.diag(-np.append(rates, 0.0)) + np.diag(rates, -1))


def _heat(n):
    return _linear(np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1))


def _torus(t, a, b, c):
    r = hl.sqrt(a * a + b * b)
    return [-b - a * c / r, a - b * c / r, a / r]


def _orbit(t, a, b, u, v):
    s = a * a + b * b
    r3 = s * hl.sqrt(s)
    return [u, v, -a / r3, -b / r3]


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
    "E3": _on_components(lambda t, y, v: [v, y * y * y / 6 - y + 2 * hl.sin(2.78535 * t)]),
    "E4": _on_components(lambda t, y, v: [v, 0.032 - 0.4 * v * v]),
    "E5": _on_components(lambda t, y, v: [v, hl.sqrt(1 + v * v) / (25 - t)]),
}
METHODS = ("Tsit5", "Vern7", "Dopri8")


def solver(problem, method, options):
    """(y(0), tolerance) -> y(20), how the solve ended."""

    def run(y0, tolerance):
        controller = hl.ode.PID(tolerance, tolerance)
        solution = hl.ode.solve(FIELDS[problem], getattr(hl.ode, method)(), 0, 20, y0, controller=controller, max_steps=100000)
        return solution.y1, solution.result

    return hl.jit(run, **options)
