"""Ensembles of differential equations whose trajectories save on the way, are stiff, or are differentiated.

`ode_ensemble_saveat`: Lorenz' equations for 10,000 values of rho from 0 to 21 in random order, y at 20 times from 0 to 1, adaptive Tsit5 at 1e-6.
`ode_ensemble_stiff`: Robertson's reaction for 1,000 values of its slow rate, y(100), adaptive Kvaerno5 with rtol 1e-4 and atol 1e-8, float64.
`ode_ensemble_gradient`: of |y(1)|^2 by rho, for 1,000 Lorenz trajectories each by itself, adaptive Tsit5 at 1e-6, at most 256 steps.
"""

import numpy as np
from harness.task import Task, Tolerance, rng

from tasks.ode import lorenz, runge_kutta

ORDER = 5.1
TIMES = np.linspace(0, 1, 20)


def lorenz_inputs(sizes):
    return {"rho": rng("ensemble").permutation(np.linspace(0, 21, sizes["N"])).astype(np.float32)}


def start_of(rho):
    return np.stack([np.ones_like(rho), np.zeros_like(rho), np.zeros_like(rho)])


def saveat_reference(sizes, given, variant):
    rho = given["rho"].astype(np.float64)
    start = start_of(rho)
    return {"ys": np.stack([start, *runge_kutta(start, rho, TIMES, 100)]).transpose(2, 0, 1)}


def gradient_reference(sizes, given, variant):
    """Classical Runge-Kutta on the equations of the solution and its derivative by rho, side by side."""
    rho = given["rho"].astype(np.float64)

    def slope(z):
        (a, b, c), (da, db, dc) = z[:3], z[3:]
        moved = np.stack([10 * (db - da), da * (rho - c) - a * dc + a - db, da * b + a * db - 8 / 3 * dc])
        return np.concatenate([lorenz(z[:3], rho), moved])

    z, h = np.concatenate([start_of(rho), np.zeros((3, rho.size))]), 1 / 2000
    for _ in range(2000):
        k1 = slope(z)
        k2 = slope(z + h / 2 * k1)
        k3 = slope(z + h / 2 * k2)
        z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(z + h * k3))
    return {"gradient": (2 * z[:3] * z[3:]).sum(0)}


def stiff_inputs(sizes):
    return {"rate": rng("stiff").permutation(np.linspace(0.02, 0.06, sizes["N"]))}


def stiff_reference(sizes, given, variant):
    """Radau IIA of order 5 with steps that grow by a constant factor, its equations solved to rounding."""
    rate, root = given["rate"], np.sqrt(6.0)
    nodes = np.array([[(88 - 7 * root) / 360, (296 - 169 * root) / 1800, (-2 + 3 * root) / 225],
                      [(296 + 169 * root) / 1800, (88 + 7 * root) / 360, (-2 - 3 * root) / 225],
                      [(16 - root) / 36, (16 + root) / 36, 1 / 9]])  # fmt: skip

    def field(y):
        a, b, c = np.moveaxis(y, -1, 0)
        slow, back, fast = rate[:, None] * a, 1e4 * b * c, 3e7 * b * b
        return np.stack([back - slow, slow - back - fast, fast], -1)

    def jacobian(y):
        a, b, c = np.moveaxis(y, -1, 0)
        k, zero = np.broadcast_to(rate[:, None], a.shape), np.zeros_like(a)
        rows = [[-k, 1e4 * c, 1e4 * b], [k, -1e4 * c - 6e7 * b, -1e4 * b], [zero, 6e7 * b, zero]]
        return np.stack([np.stack(row, -1) for row in rows], -2)

    y, ends = np.broadcast_to([1.0, 0.0, 0.0], (rate.size, 3)), np.geomspace(1e-6, 100, 200)
    for t0, t1 in zip([0.0, *ends], ends):
        h, stages = t1 - t0, np.repeat(y[:, None], 3, 1)
        for _ in range(8):
            residual = stages - y[:, None] - h * np.einsum("ij,njd->nid", nodes, field(stages))
            matrix = -h * np.einsum("ij,njde->nidje", nodes, jacobian(stages)).reshape(-1, 9, 9) + np.eye(9)
            stages = stages - np.linalg.solve(matrix, residual.reshape(-1, 9, 1)).reshape(-1, 3, 3)
        y = stages[:, 2]
    return {"y1": y}


def task(name, n, inputs, reference, result, tolerance, title):
    return Task(name=name, kind=name, sizes=dict(N=n), inputs=inputs, reference=reference, tolerances={result: Tolerance(tolerance)},
                required=(result,), group="differential equations", title=title, target="faster than the best rival")  # fmt: skip


TASKS = [
    task("ode_ensemble_saveat", 10000, lorenz_inputs, saveat_reference, "ys", 1e-4, "10,000 Lorenz systems in random order, adaptive, 1e-6, at 20 times"),
    task("ode_ensemble_stiff", 1000, stiff_inputs, stiff_reference, "y1", 1e-3, "1,000 Robertson reactions, adaptive Kvaerno5, f64, 1e-4"),
    task("ode_ensemble_gradient", 1000, lorenz_inputs, gradient_reference, "gradient", 1e-3, "1,000 Lorenz systems, gradient of each by its parameter"),
]  # fmt: skip
