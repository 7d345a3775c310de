"""Programs that nobody tuned for, with derivatives, linear systems and fixed points in their loss (impls/_programs_derivatives.py has them).

References: the same formulas in NumPy in f64. First derivatives by points are by the complex step, higher ones by Cauchy's integral over a circle,
slopes by central differences of the loss.
"""

import math
import types

import numpy as np
from impls import _programs, _programs_derivatives

from tasks.programs import scan, tasks_of

ORDER = 6.1
STEP = 1e-5


def jacobians(f):
    """Of f at each row of x: (rows, outputs, inputs)."""

    def at(x):
        columns = [f(x + 1e-30j * e).imag * 1e30 for e in np.eye(x.shape[-1])]
        return np.stack(columns, -1)

    return at


def derivative(f, order):
    """The order-th derivative by x, from 32 points on a circle around each."""
    turns = np.exp(2j * np.pi * np.arange(32) / 32)
    radius = 0.4

    def at(t, x):
        return math.factorial(order) * np.mean([f(t, x + radius * a) * a**-order for a in turns], axis=0).real / radius**order

    return at


def fixed_point(f, z, *arguments):
    for _ in range(500):
        z = f(z, *arguments)
    return z


NUMPY = types.SimpleNamespace(
    scan=scan, concat=np.concatenate, stack=lambda parts, axis: np.stack(np.broadcast_arrays(*parts), axis), reshape=np.reshape, sum=np.sum, mean=np.mean, exp=np.exp, log=np.log,
    tanh=np.tanh, pad=lambda x: np.pad(x, 1), cholesky=np.linalg.cholesky, solve=np.linalg.solve, slogdet=np.linalg.slogdet, solve_triangular=np.linalg.solve,
    matrix_transpose=lambda x: np.swapaxes(x, -1, -2), gradients=jacobians, jacobians=jacobians, derivative=derivative, fixed_point=fixed_point,
)  # fmt: skip


def reference(sizes, given, variant):
    parameters, data = _programs.split({k: v.astype(np.float64) for k, v in given.items()})
    f = _programs_derivatives.BY_NAME[sizes["program"]]

    def slope(k, direction):
        ahead, behind = (f(NUMPY, parameters | {k: parameters[k] + step * direction}, data) for step in (STEP, -STEP))
        return (ahead - behind) / (2 * STEP)

    slopes = {f"slope of {k}": np.array([slope(k, v) for v in vs]) for k, vs in _programs.directions(f.__name__, parameters).items()}
    return {"loss": np.asarray(f(NUMPY, parameters, data)), **slopes}


def perceptron(*widths):
    layers = list(zip(widths, widths[1:]))
    return {f"w{i}": pair for i, pair in enumerate(layers)} | {f"b{i}": (pair[1], 0.3) for i, pair in enumerate(layers[:-1])}


# What each program takes, drawn as tasks.programs does: shapes of parameters, and of data.
SHAPES = {
    "hamiltonian": ("Hamiltonian network 4-32-32-1, 20 Runge-Kutta steps, B32", perceptron(4, 32, 32, 1), {"start": (32, 4), "seen": (32, 4)}),
    "normalising_flow": ("continuous flow with the trace of its Jacobian, 2-32-32-2, B64", perceptron(2, 32, 32, 2), {"x": (64, 2)}),
    "solitons": ("third derivatives of a network 2-24-24-1 in its loss, 256 points", perceptron(2, 24, 24, 1), {"points": (256, 2)}),
    "phase_field": ("Allen and Cahn's equation, 48 x 48 points, 60 steps", {"rates": (3, 0.3), "start": (48, 48, 1.0)}, {"seen": (48, 48)}),
    "deep_kernel": ("Gaussian process on a network of 80 samples", {**perceptron(5, 24, 3), "noise": (1,)}, {"x": (80, 5), "y": (80, 1), "one": (80, 80)}),
    "equilibrium": ("equilibrium layer of 32, B64", {"w": (32, 32, 0.08), "u": (8, 32), "out": (32, 1)}, {"x": (64, 8), "y": (64, 1)}),
    "gaussians": ("1000 densities with covariances of 6 x 6", {"w": (8, 36)}, {"x": (1000, 8), "y": (1000, 6), "one": (6, 6)}),
    "extended_kalman": ("extended Kalman filter on a network 4-20-4, T40 B16", {**perceptron(4, 20, 4), "q": (1,), "r": (1,)}, {"seen": (40, 16, 2), "one": (4, 4)}),
}  # fmt: skip

TASKS = tasks_of("derivative_program", SHAPES, reference)
