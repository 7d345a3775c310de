#!/usr/bin/env python3
"""Records solutions of stiff and of standard problems, for tests/parity/ode_test.cpp and ode_detest_test.cpp.

Writes tests/parity/data/scipy_ode.json. Stiff problems: end states by SciPy's Radau at tolerances near the last digits of float64,
with how far BDF is from them. DETEST (Hull, Enright, Fellen, Sedgwick 1972): states at four times, in closed form where there is
one, else by DOP853, with how far DOP853 is from the closed form, or from itself at ten times the tolerance. Needs scipy; its version
is written into the file.

usage: scripts/record_scipy_ode.py [folder]     (default tests/parity/data)
"""
import json
import pathlib
import sys

import numpy as np
import scipy
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import brentq
from scipy.special import ellipj

# Verwer 1994: 25 reactions of 20 species of air pollution. Each: rate constant, species that meet, change of species (from 1).
POLLUTION = [
    (0.35, [1], {1: -1, 2: 1, 3: 1}), (26.6, [2, 4], {2: -1, 4: -1, 1: 1}), (12300.0, [5, 2], {5: -1, 2: -1, 6: 1, 1: 1}),
    (0.00086, [7], {7: -1, 5: 2, 8: 1}), (0.00082, [7], {7: -1, 8: 1}), (15000.0, [7, 6], {7: -1, 6: -1, 5: 1, 8: 1}),
    (0.00013, [9], {9: -1, 5: 1, 8: 1, 10: 1}), (24000.0, [9, 6], {9: -1, 6: -1, 11: 1}),
    (16500.0, [11, 2], {11: -1, 2: -1, 1: 1, 10: 1, 12: 1}), (9000.0, [11, 1], {11: -1, 1: -1, 13: 1}),
    (0.022, [13], {13: -1, 11: 1, 1: 1}), (12000.0, [10, 2], {10: -1, 2: -1, 14: 1, 1: 1}),
    (1.88, [14], {14: -1, 7: 1, 5: 1}), (16300.0, [1, 6], {1: -1, 6: -1, 15: 1}), (4.8e6, [3], {3: -1, 4: 1}),
    (0.00035, [4], {4: -1, 16: 1}), (0.0175, [4], {4: -1, 3: 1}), (1e8, [16], {16: -1, 6: 2}), (4.44e11, [16], {16: -1, 3: 1}),
    (1240.0, [17, 6], {17: -1, 6: -1, 18: 1, 5: 1}), (2.1, [19], {19: -1, 2: 1}), (5.78, [19], {19: -1, 3: 1, 1: 1}),
    (0.0474, [1, 4], {1: -1, 4: -1, 19: 1}), (1780.0, [19, 1], {19: -1, 1: -1, 20: 1}), (3.12, [20], {20: -1, 19: 1, 1: 1}),
]


def pollution(t, y):
    dy = np.zeros(20)
    for k, meeting, change in POLLUTION:
        rate = k * np.prod([y[i - 1] for i in meeting])
        for i, amount in change.items():
            dy[i - 1] += amount * rate
    return dy


# The same formulas stand in tests/ode_problems.h. Robertson 1966; van der Pol; HIRES (Schaefer 1975); Orego (Field and Noyes 1974).
STIFF = {
    "robertson": (lambda t, y: [-0.04 * y[0] + 1e4 * y[1] * y[2], 0.04 * y[0] - 1e4 * y[1] * y[2] - 3e7 * y[1] ** 2,
                                3e7 * y[1] ** 2], 1e4, [1.0, 0.0, 0.0]),
    "van_der_pol_1000": (lambda t, y: [y[1], 1000 * (1 - y[0] ** 2) * y[1] - y[0]], 1500.0, [2.0, 0.0]),
    "hires": (lambda t, y: [
        -1.71 * y[0] + 0.43 * y[1] + 8.32 * y[2] + 0.0007, 1.71 * y[0] - 8.75 * y[1],
        -10.03 * y[2] + 0.43 * y[3] + 0.035 * y[4], 8.32 * y[1] + 1.71 * y[2] - 1.12 * y[3],
        -1.745 * y[4] + 0.43 * y[5] + 0.43 * y[6], -280 * y[5] * y[7] + 0.69 * y[3] + 1.71 * y[4] - 0.43 * y[5]
        + 0.69 * y[6], 280 * y[5] * y[7] - 1.81 * y[6], -280 * y[5] * y[7] + 1.81 * y[6]],
        321.8122, [1.0, 0, 0, 0, 0, 0, 0, 0.0057]),
    "orego": (lambda t, y: [77.27 * (y[1] + y[0] * (1 - 8.375e-6 * y[0] - y[1])), (y[2] - (1 + y[0]) * y[1]) / 77.27,
                            0.161 * (y[0] - y[2])], 360.0, [1.0, 2.0, 3.0]),
    "pollution": (pollution, 60.0, [0, 0.2, 0, 0.04, 0, 0, 0.1, 0.3, 0.01, 0, 0, 0, 0, 0, 0, 0, 0.007, 0, 0, 0]),
}

TIMES = [5.0, 10.0, 15.0, 20.0]


def chain(rates, n):
    a = np.zeros((n, n))
    for i, rate in enumerate(rates):
        a[i, i] -= rate
        a[i + 1, i] += rate
    return a


def heat(n):
    return np.diag(-2.0 * np.ones(n)) + np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1)


def linear(a, y0):
    return lambda t, y: a @ y, list(y0), lambda t: expm(a * t) @ np.array(y0)


def unit(n):
    return [1.0] + [0.0] * (n - 1)


def a5(t):
    angle = brentq(lambda x: 4 * np.exp(np.pi / 2 - x) * np.cos(x) - t, -0.7, np.pi / 2, xtol=1e-15, rtol=1e-15)
    return [4 * np.exp(np.pi / 2 - angle) * np.sin(angle)]


def torus(t, y):
    r = np.hypot(y[0], y[1])
    return [-y[1] - y[0] * y[2] / r, y[0] - y[1] * y[2] / r, y[0] / r]


MASSES = np.array([0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778])
PLANETS = [
    3.42947415189, 6.64145542550, 11.2630437207, -30.1552268759, -21.1238353380, 3.35386959711, 5.97156957878, 14.6952576794,
    1.65699966404, 28.4465098142, 1.35494901715, 2.18231499728, 6.27960525067, 1.43785752721, 15.3882659679,
    -0.557160570446, -0.415570776342, -0.325325669158, -0.024047625417, -0.176860753121, 0.505696783289, 0.365682722812,
    0.189706021964, -0.287659532608, -0.216393453025, 0.230578543901, 0.169143213293, 0.087726532278, -0.117219543175,
    -0.014864789309]


def planets(t, y):
    q = y[:15].reshape(3, 5)
    r3 = np.sum(q**2, axis=0) ** 1.5
    apart = q[:, None, :] - q[:, :, None]  # [axis, j, k]: from j to k
    d3 = np.sum(apart**2, axis=0) ** 1.5 + np.eye(5)
    pull = MASSES * (apart / d3 - (q / r3)[:, None, :]) * (1 - np.eye(5))
    return np.concatenate([y[15:], (2.95912208286 * (-(1.00000597682 + MASSES) * q / r3 + pull.sum(axis=2))).ravel()])


def orbit(e):
    def exact(t):
        u = t
        for _ in range(200):
            u -= (u - e * np.sin(u) - t) / (1 - e * np.cos(u))
        w, d = np.sqrt(1 - e * e), 1 - e * np.cos(u)
        return [np.cos(u) - e, w * np.sin(u), -np.sin(u) / d, w * np.cos(u) / d]

    def field(t, y):
        r3 = (y[0] ** 2 + y[1] ** 2) ** 1.5
        return [y[2], y[3], -y[0] / r3, -y[1] / r3]

    return field, [1 - e, 0.0, 0.0, np.sqrt((1 + e) / (1 - e))], exact


def bessel(t):
    x, c = t + 1, np.sqrt(2 / np.pi)
    return [c * np.sin(x) / np.sqrt(x), c * (np.cos(x) / np.sqrt(x) - np.sin(x) / (2 * x**1.5))]


def pursuit(t):
    s = 1 - t / 25
    return [12.5 * (-np.log(s) - (1 - s * s) / 2), (1 / s - s) / 2]


def falling(t):
    a = np.sqrt(0.08)
    return [30 + np.log(np.cosh(0.4 * a * t)) / 0.4, a * np.tanh(0.4 * a * t)]


# Field, y(0), closed form or None. The same formulas stand in tests/detest.h.
DETEST = {
    "A1": (lambda t, y: -y, [1.0], lambda t: [np.exp(-t)]),
    "A2": (lambda t, y: -0.5 * y**3, [1.0], lambda t: [1 / np.sqrt(t + 1)]),
    "A3": (lambda t, y: y * np.cos(t), [1.0], lambda t: [np.exp(np.sin(t))]),
    "A4": (lambda t, y: y / 4 * (1 - y / 20), [1.0], lambda t: [20 / (1 + 19 * np.exp(-t / 4))]),
    "A5": (lambda t, y: (y - t) / (y + t), [4.0], a5),
    "B1": (lambda t, y: [2 * (y[0] - y[0] * y[1]), -(y[1] - y[0] * y[1])], [1.0, 3.0], None),
    "B2": linear(np.array([[-1.0, 1, 0], [1, -2, 1], [0, 1, -1]]), [2.0, 0.0, 1.0]),
    "B3": (lambda t, y: [-y[0], y[0] - y[1] ** 2, y[1] ** 2], [1.0, 0.0, 0.0], None),
    "B4": (torus, [3.0, 0.0, 0.0], None),
    "B5": (lambda t, y: [y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]], [0.0, 1.0, 1.0], lambda t: ellipj(t, 0.51)[:3]),
    "C1": linear(chain(np.ones(9), 10), unit(10)),
    "C2": linear(chain(np.arange(1.0, 10.0), 10), unit(10)),
    "C3": linear(heat(10), unit(10)),
    "C4": linear(heat(51), unit(51)),
    "C5": (planets, PLANETS, None),
    "D1": orbit(0.1), "D2": orbit(0.3), "D3": orbit(0.5), "D4": orbit(0.7), "D5": orbit(0.9),
    "E1": (lambda t, y: [y[1], -(y[1] / (t + 1) + (1 - 0.25 / (t + 1) ** 2) * y[0])], bessel(0.0), bessel),
    "E2": (lambda t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]], [2.0, 0.0], None),
    "E3": (lambda t, y: [y[1], y[0] ** 3 / 6 - y[0] + 2 * np.sin(2.78535 * t)], [0.0, 0.0], None),
    "E4": (lambda t, y: [y[1], 0.032 - 0.4 * y[1] ** 2], [30.0, 0.0], falling),
    "E5": (lambda t, y: [y[1], np.sqrt(1 + y[1] ** 2) / (25 - t)], [0.0, 0.0], pursuit),
}


def far(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return float(np.max(np.abs(a - b) / np.maximum(1, np.abs(b))))


def record_stiff(name):
    field, t1, y0 = STIFF[name]

    def end(method, rtol, atol):
        return solve_ivp(field, (0, t1), y0, method=method, rtol=rtol, atol=atol).y[:, -1]

    y1, bdf = end("Radau", 1e-11, 1e-16), end("BDF", 1e-9, 1e-14)
    return {"problem": name, "t1": t1, "y0": list(map(float, y0)), "y1": y1.tolist(),
            "bdf": float(np.max(np.abs(bdf - y1) / (np.abs(y1) + 1e-12)))}


def record_detest(name):
    field, y0, exact = DETEST[name]

    def states(rtol):
        return solve_ivp(field, (0, 20), y0, method="DOP853", t_eval=TIMES, rtol=rtol, atol=rtol * 1e-2, max_step=0.05).y.T

    ys = states(3e-14)
    reference = np.array([exact(t) for t in TIMES]) if exact else ys
    uncertain = far(ys, reference) if exact else far(states(3e-13), ys)
    return {"problem": name, "y0": list(map(float, y0)), "ts": TIMES, "closed": exact is not None, "uncertain": uncertain,
            "ys": reference.tolist()}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/parity/data")
    record = {"versions": {"scipy": scipy.__version__, "numpy": np.__version__},
              "stiff": [record_stiff(name) for name in STIFF], "detest": [record_detest(name) for name in DETEST]}
    for case in record["stiff"]:
        print(case["problem"], "BDF is off by", case["bdf"])
    for case in record["detest"]:
        print(case["problem"], "closed form" if case["closed"] else "DOP853", "uncertain by", case["uncertain"])
    (folder / "scipy_ode.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
