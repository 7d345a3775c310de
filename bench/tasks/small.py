"""Small programs: perceptrons, one product, and what a call or a new process costs."""

import numpy as np
from harness import tape
from harness.task import Task, Tolerance, rng

ORDER = 3
STEPS = 5


def mlp_inputs(sizes):
    widths = [int(w) for w in sizes["widths"].split("-")]
    r = rng("mlp", *sizes.items())
    dtype = np.float64 if sizes.get("f64") else np.float32
    out = {"x": r.standard_normal((sizes["N"], widths[0])), "y": r.standard_normal((sizes["N"], widths[-1]))}
    for k, (a, b) in enumerate(zip(widths, widths[1:])):
        out[f"w{k}"], out[f"b{k}"] = r.uniform(-(a**-0.5), a**-0.5, (a, b)), r.uniform(-(a**-0.5), a**-0.5, b)
    return {k: v.astype(dtype) for k, v in out.items()}


def _loss(given):
    x, y = np.asarray(given["x"], np.float64), np.asarray(given["y"], np.float64)

    def loss(p):
        h, n = tape.of(x), len(p) // 2
        for k in range(n):
            h = h @ p[f"w{k}"] + p[f"b{k}"]
            h = h.tanh() if k + 1 < n else h
        return ((h - y) ** 2).mean()

    return loss


def train_reference(sizes, given, variant):
    losses, after = tape.adam(_loss(given), {k: v for k, v in given.items() if k not in "xy"}, STEPS)
    return {"losses": losses, **after}


def gradient_reference(sizes, given, variant):
    value, grads = tape.value_and_grad(_loss(given), {k: v for k, v in given.items() if k not in "xy"})
    return {"loss": np.array(value), **grads}


def descent_reference(sizes, given, variant):
    """The loss before each of `steps` steps of p -= rate * gradient."""
    p, losses = {k: np.asarray(v, np.float64) for k, v in given.items() if k not in "xy"}, []
    for _ in range(sizes["steps"]):
        value, grads = tape.value_and_grad(_loss(given), p)
        losses.append(value)
        p = {k: v - sizes["rate"] * grads[k] for k, v in p.items()}
    return {"losses": np.array(losses)}


def matvec_inputs(sizes):
    r = rng("matvec", *sizes.items())
    return {"a": r.standard_normal((sizes["M"], sizes["N"])).astype("f"), "v": r.standard_normal(sizes["N"]).astype("f")}


def mlp_flops(widths, n, times):
    widths = [int(w) for w in widths.split("-")]
    return times * 2.0 * n * sum(a * b for a, b in zip(widths, widths[1:]))


def matvec(m, n, target):
    return Task(
        name=f"matvec_{m}x{n}", kind="matvec", sizes=dict(M=m, N=n), inputs=matvec_inputs,
        reference=lambda s, given, _: {"y": given["a"].astype(float) @ given["v"].astype(float)}, tolerances={"y": Tolerance(1e-5)},
        required=("y",), group="calls", title=f"matrix {m}x{n} times vector", target=target, flops=2.0 * m * n,
    )  # fmt: skip


ADAM = {"losses": Tolerance(1e-4), "*": Tolerance(3e-2, pointwise=False, start=True)}
TASKS = [
    Task(
        name="mlp_train_4_32_16_4", kind="mlp_train", sizes=dict(widths="4-32-16-4", N=10000), inputs=mlp_inputs, reference=train_reference,
        tolerances=ADAM, required=("losses",), group="perceptrons", title="4-32-16-4 tanh, 10,000 samples, full-batch Adam step",
        target=">= 1.8", flops=mlp_flops("4-32-16-4", 10000, 3), unit="step",
    ),
    Task(
        name="mlp_gradient_24_8_2", kind="mlp_gradient", sizes=dict(widths="24-8-2", N=200, f64=True), inputs=mlp_inputs,
        reference=gradient_reference, tolerances={"loss": Tolerance(1e-10), "*": Tolerance(1e-10)}, required=("loss", "w0", "b0", "w1", "b1"),
        group="perceptrons", title="24-8-2 tanh, 200 samples, f64, value and gradient", target=">= 3",
        flops=mlp_flops("24-8-2", 200, 3),
    ),
    Task(
        name="mlp_descent_24_8_2", kind="mlp_descent", sizes=dict(widths="24-8-2", N=200, f64=True, steps=1000, rate=0.01), inputs=mlp_inputs,
        reference=descent_reference, tolerances={"losses": Tolerance(1e-9)}, required=("losses",), group="perceptrons",
        title="the same, 1000 steps of descent in one call", target="<= 4 us", flops=mlp_flops("24-8-2", 200, 3), unit="step",
    ),
    matvec(100, 100, "<= 1 us more than the kernel; C++ <= 0.05 us"),
    matvec(100, 3, "<= 1 us more than the kernel; C++ <= 0.05 us"),
    Task(
        name="cold_start", kind="cold_start", sizes=dict(N=1000), inputs=lambda s: {"x": rng("cold").standard_normal(s["N"]).astype("f")},
        reference=lambda s, given, _: {"y": np.array(np.tanh(given["x"].astype(float)).sum())}, tolerances={"y": Tolerance(1e-5)},
        required=("y",), group="calls", title="new process to the first tanh(x).sum(), compiled", target="<= 0.25 s", unit="process",
    ),
]  # fmt: skip
