#!/usr/bin/env python3
"""Writes examples/lorenz.csv: Lorenz' equations (sigma 10, rho 28, beta 8/3; Lorenz 1963) from (1, 0, 0), at 0, 0.01, ..., 1.

Solved by SciPy's DOP853 at 1e-12.

usage: scripts/make_lorenz.py [file]
"""
import pathlib
import sys

import numpy as np
from scipy.integrate import solve_ivp


def lorenz(t, u):
    return [10 * (u[1] - u[0]), u[0] * (28 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]]


def main():
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "examples/lorenz.csv")
    ts = np.linspace(0, 1, 101)
    states = solve_ivp(lorenz, (0, 1), [1, 0, 0], method="DOP853", t_eval=ts, rtol=1e-12, atol=1e-12).y.T
    rows = [f"{t:.2f},{x:.7g},{y:.7g},{z:.7g}" for t, (x, y, z) in zip(ts, states)]
    path.write_text("\n".join(["t,x,y,z", *rows]) + "\n")


main()
