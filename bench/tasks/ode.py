"""Differential equations: a neural one trained as one program, an ensemble, and one gradient of a trained one.

`ode_training`: y' = w1 tanh(w0 y + b0) + b1 on Lorenz' trajectory (data at 101 times from 0 to 1), Tsit5, rtol 1e-3, atol 1e-6, first
step 0.01, sum of squares, Adam (0.01), 1000 iterations in one call. The first 50 losses are compared with diffrax' in float64; later
ones drift apart in f32, whoever computes them. `ode_training_deep`: the same with more layers, or with silu in place of tanh.
`ode_ensemble`: Lorenz' equations for 10,000 values of rho, y(1), adaptive Tsit5 at 1e-6.
`ode_gradient`: y' = w1 tanh(w0 y^3 + b0) + b1 with trained weights, 30 saves on [0, 1.5], Tsit5 at 1e-6, value and gradient of the sum of
squares to data a tenth away from what it was trained on (at the minimum itself a gradient in f32 is rounding).
`ode_sensitivity`: y(1) of y' = w1 tanh(w0 y + b0) + b1, 2-16-2 from (0.1, -0.1), tolerance 1e-4 in float64, and its derivative by all 82
parameters: `y1` (2) and, a parameter, (2, *its shape).
The references of the first and third are recorded by _record_ode.py.
"""

import functools
import json
import pathlib

import numpy as np
from harness.task import Task, Tolerance, rng

ORDER = 5
REFERENCE = pathlib.Path(__file__).with_name("ode_reference.json")
WEIGHTS = ("w0", "b0", "w1", "b1")
SAVES, COMPARED, ITERATIONS = 101, 50, 1000
WIDTHS = (100, 30)
DEEP = {"32_32": dict(width=32, depth=2, silu=0), "64_silu": dict(width=64, depth=1, silu=1)}
SPIRAL_TS = np.linspace(0, 1.5, 30)


@functools.cache
def recorded():
    return json.loads(REFERENCE.read_text())


def lorenz(y, rho):
    a, b, c = y
    return np.stack([10 * (b - a), a * (rho - c) - b, a * b - 8 / 3 * c])


def runge_kutta(y, rho, times, substeps):
    """Classical Runge-Kutta in float64 with steps so small that its error does not count."""
    out = []
    for t0, t1 in zip(times, times[1:]):
        h = (t1 - t0) / substeps
        for _ in range(substeps):
            k1 = lorenz(y, rho)
            k2 = lorenz(y + h / 2 * k1, rho)
            k3 = lorenz(y + h / 2 * k2, rho)
            k4 = lorenz(y + h * k3, rho)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out.append(y)
    return out


def training_inputs(sizes):
    """w0, b0, ..., y0 and data, for a network with `depth` hidden layers of `width`."""
    width, depth = sizes["width"], sizes.get("depth", 1)
    r = rng("lorenz", width) if training_name(sizes) == str(width) else rng("lorenz", training_name(sizes))
    start = np.array([1.0, 0.0, 0.0])
    data = np.stack([start, *runge_kutta(start, 28.0, np.linspace(0, 1, SAVES), 20)])
    given = {}
    for i, (n, m) in enumerate(zip([3] + [width] * depth, [width] * depth + [3])):
        given |= {f"w{i}": r.uniform(-1, 1, (m, n)) * n**-0.5, f"b{i}": r.uniform(-1, 1, m) * n**-0.5}
    return {k: v.astype(np.float32) for k, v in (given | {"y0": start, "data": data}).items()}


def training_reference(sizes, given, variant):
    return {"losses": np.array(recorded()["training"][training_name(sizes)]["losses"])}


def training_name(sizes):
    return next((name for name, s in DEEP.items() if all(sizes.get(k) == v for k, v in s.items())), str(sizes["width"]))


def ensemble_inputs(sizes):
    return {"rho": np.linspace(0, 21, sizes["N"]).astype(np.float32)}


def ensemble_reference(sizes, given, variant):
    rho = given["rho"].astype(np.float64)
    start = np.stack([np.ones_like(rho), np.zeros_like(rho), np.zeros_like(rho)])
    return {"y1": runge_kutta(start, rho, [0.0, 1.0], 2000)[0].T}


def gradient_inputs(sizes):
    spiral, dtype = recorded()["spiral"], np.float64 if sizes["f64"] else np.float32
    given = {k: np.array(v, dtype) for k, v in spiral["weights"].items()}
    return {**given, "y0": np.array([2.0, 0.0], dtype), "data": np.array(spiral["data"], dtype)}


def gradient_reference(sizes, given, variant):
    spiral = recorded()["spiral"]
    return {"loss": np.array(spiral["loss"]), **{k: np.array(v) for k, v in spiral["gradient"].items()}}


def sensitivity_inputs(sizes):
    r = rng("sensitivity")
    given = {k: 0.5 - r.uniform(0, 1, s) for k, s in {"w0": (16, 2), "b0": (16,), "w1": (2, 16), "b1": (2,)}.items()}
    return {**given, "y0": np.array([0.1, -0.1])}


def sensitivity_reference(sizes, given, variant):
    """Classical Runge-Kutta with 100 steps on the equations of the solution and its derivative by each parameter, side by side."""
    p = {k: given[k] for k in WEIGHTS}
    ends = np.cumsum([p[k].size for k in WEIGHTS])
    parts = {k: slice(e - p[k].size, e) for k, e in zip(WEIGHTS, ends)}

    def slope(y, s):
        h = np.tanh(p["w0"] @ y + p["b0"])
        d = 1 - h * h
        ds = (p["w1"] * d) @ p["w0"] @ s
        ds[:, parts["w0"]] += np.einsum("oh,hi->ohi", p["w1"] * d, np.broadcast_to(y, (16, 2))).reshape(2, -1)
        ds[:, parts["b0"]] += p["w1"] * d
        ds[:, parts["w1"]] += np.einsum("ok,h->okh", np.eye(2), h).reshape(2, -1)
        ds[:, parts["b1"]] += np.eye(2)
        return p["w1"] @ h + p["b1"], ds

    y, s, step = given["y0"], np.zeros((2, ends[-1])), 0.01
    for _ in range(100):
        k1 = slope(y, s)
        k2 = slope(y + step / 2 * k1[0], s + step / 2 * k1[1])
        k3 = slope(y + step / 2 * k2[0], s + step / 2 * k2[1])
        k4 = slope(y + step * k3[0], s + step * k3[1])
        y, s = (a + step / 6 * (b1 + 2 * b2 + 2 * b3 + b4) for a, b1, b2, b3, b4 in zip((y, s), k1, k2, k3, k4))
    return {"y1": y, **{k: s[:, parts[k]].reshape(2, *p[k].shape) for k in WEIGHTS}}


TASKS = [
    Task(
        name=f"ode_training_{w}", kind="ode_training", sizes=dict(width=w, iterations=ITERATIONS), inputs=training_inputs,
        reference=training_reference, tolerances={"losses": Tolerance(1e-3)}, required=("losses",), group="differential equations",
        title=f"neural ODE on Lorenz, 3-{w}-3, 1000 Adam iterations in one call", target=t,
    ) for w, t in zip(WIDTHS, ("<= 0.015 s and >= 15", ">= 8"))
] + [
    Task(
        name=f"ode_training_{name}", kind="ode_training_deep", sizes=sizes | dict(iterations=ITERATIONS), inputs=training_inputs,
        reference=training_reference, tolerances={"losses": Tolerance(1e-3)}, required=("losses",), group="differential equations",
        title=f"neural ODE on Lorenz, {title}, 1000 Adam iterations in one call", target=">= 8",
    ) for (name, sizes), title in zip(DEEP.items(), ("3-32-32-3", "3-64-3 with silu"))
] + [
    Task(
        name="ode_ensemble_10000", kind="ode_ensemble", sizes=dict(N=10000), inputs=ensemble_inputs, reference=ensemble_reference,
        tolerances={"y1": Tolerance(1e-4)}, required=("y1",), group="differential equations", title="10,000 Lorenz systems, adaptive, 1e-6",
        target=">= 15",
    ),
] + [
    Task(
        name="ode_gradient_spiral" + ("_f64" if f64 else ""), kind="ode_gradient", sizes=dict(f64=f64), inputs=gradient_inputs, reference=gradient_reference,
        # In f32 the error estimate at 1e-6 is partly rounding, so that steps differ from those in f64.
        tolerances={"*": Tolerance(1e-6 if f64 else 1e-3)}, required=("loss", *WEIGHTS), group="differential equations",
        title="spiral neural ODE 2-50-2, trained weights, value and gradient, " + ("f64" if f64 else "f32"), target=">= 8",
    ) for f64 in (False, True)
] + [
    Task(
        name="ode_sensitivity", kind="ode_sensitivity", sizes=dict(), inputs=sensitivity_inputs, reference=sensitivity_reference,
        tolerances={"*": Tolerance(1e-3)}, required=("y1", *WEIGHTS), group="differential equations",
        title="2-16-2 network as a field, derivative by 82 parameters, f64, 1e-4", target="<= 20 us",
    )
]  # fmt: skip
