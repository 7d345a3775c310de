"""What DETEST's fields are whoever solves them: name -> the derivatives of single components, or the matrix of a linear system."""

import numpy as np

MASSES = np.array([0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778])


def _chain(rates):
    return np.diag(-np.append(rates, 0.0)) + np.diag(rates, -1)


def _heat(n):
    return np.diag(np.full(n, -2.0)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)


MATRICES = {"C1": _chain(np.ones(9)), "C2": _chain(np.arange(1.0, 10.0)), "C3": _heat(10), "C4": _heat(51)}


def components(sqrt, sin):
    """{name: fn(t, *components) -> their derivatives}, with a library's functions of one number."""

    def torus(t, a, b, c):
        r = sqrt(a * a + b * b)
        return [-b - a * c / r, a - b * c / r, a / r]

    def orbit(t, a, b, u, v):
        s = a * a + b * b
        r3 = s * sqrt(s)
        return [u, v, -a / r3, -b / r3]

    return {
        "B1": lambda t, a, b: [2 * (a - a * b), a * b - b],
        "B2": lambda t, a, b, c: [b - a, a - 2 * b + c, b - c],
        "B3": lambda t, a, b, c: [-a, a - b * b, b * b],
        "B4": torus,
        "B5": lambda t, a, b, c: [b * c, -a * c, -0.51 * a * b],
        **{f"D{k}": orbit for k in range(1, 6)},
        "E1": lambda t, y, v: [v, -(v / (t + 1) + (1 - 0.25 / ((t + 1) * (t + 1))) * y)],
        "E2": lambda t, y, v: [v, (1 - y * y) * v - y],
        "E3": lambda t, y, v: [v, y * y * y / 6 - y + 2 * sin(2.78535 * t)],
        "E4": lambda t, y, v: [v, 0.032 - 0.4 * v * v],
        "E5": lambda t, y, v: [v, sqrt(1 + v * v) / (25 - t)],
    }
