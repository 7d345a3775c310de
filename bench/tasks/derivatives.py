"""Jacobians of a perceptron, and derivatives of an LSTM that fused kernels refuse.

Jacobian: `x` (N, 1st width), w0 (a, b), b0 (b), ...: tanh layers and a linear one. `blocks` (N, outputs, inputs) is each sample's
own Jacobian; `dense` (N, outputs, N, inputs) is the array that is zero outside of its batch diagonal.
LSTM: wx (I, 4H), wh (H, 4H), b (4H), wo (H, 1), bo (1), x (T, B, I), y (B, 1), gates i, f, g, o, mean squared error of the head on the
last output; `hvp`: Hessian times (v_wx, ..., v_bo); `per_sample`: each row's own gradient; `hvp_x` and `per_sample_x`: the same by x, the
weights fixed; `jvp`: all outputs (T, B, H) and their derivative along v_x.
"""

import numpy as np
from harness import tape
from harness.task import Task, Tolerance, rng

ORDER = 4
PARAMS = ("wx", "wh", "b", "wo", "bo")


def mlp_inputs(sizes):
    widths = [int(w) for w in sizes["widths"].split("-")]
    r = rng("jacobian", sizes["widths"])
    out = {"x": rng("jacobian", sizes["N"]).uniform(0, 1, (sizes["N"], widths[0]))}
    for k, (a, b) in enumerate(zip(widths, widths[1:])):
        out[f"w{k}"], out[f"b{k}"] = r.standard_normal((a, b)) * a**-0.5, 0.1 * r.standard_normal(b)
    return {k: v.astype(np.float32) for k, v in out.items()}


def jacobian_reference(sizes, given, variant):
    """Forward: the derivative of each layer's output by the input, sample by sample."""
    p = {k: v.astype(np.float64) for k, v in given.items()}
    h, n = p["x"], (len(p) - 1) // 2
    d = np.broadcast_to(np.eye(h.shape[1]), (len(h), h.shape[1], h.shape[1]))
    for k in range(n):
        h, d = h @ p[f"w{k}"] + p[f"b{k}"], d @ p[f"w{k}"]
        if k + 1 < n:
            h = np.tanh(h)
            d = d * (1 - h * h)[:, None, :]
    blocks = d.swapaxes(1, 2)
    if not sizes.get("dense"):
        return {"jacobian": blocks}
    dense = np.zeros((*blocks.shape[:2], *given["x"].shape))
    dense[np.arange(len(h)), :, np.arange(len(h)), :] = blocks
    return {"jacobian": dense}


def lstm_inputs(sizes):
    t, i, h, b = (sizes[k] for k in "TIHB")
    r = rng("lstm derivative")
    shapes = {"wx": (i, 4 * h), "wh": (h, 4 * h), "b": (4 * h,), "wo": (h, 1), "bo": (1,)}
    out = {k: r.uniform(-(h**-0.5), h**-0.5, s) for k, s in shapes.items()}
    out["x"], out["y"] = r.standard_normal((t, b, i)), r.standard_normal((b, 1))
    if sizes["what"] == "hvp":
        out |= {"v_" + k: r.standard_normal(s) for k, s in shapes.items()}
    elif sizes["what"] in ("jvp", "hvp_x"):
        out["v_x"] = r.standard_normal((t, b, i))
    return {k: v.astype(np.float32) for k, v in out.items()}


def _outputs(p, x):
    n = p["wh"].shape[0]
    h = c = tape.Var(np.zeros((x[0].shape[0], n)))
    ys = []
    for x_t in x:
        gates = x_t @ p["wx"] + h @ p["wh"] + p["b"]
        i, f, g, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        ys.append(h)
    return ys


def lstm_reference(sizes, given, variant):
    """Second derivatives by central differences of the gradient and first ones of the outputs, in float64: good to nine digits."""
    p = {k: given[k].astype(np.float64) for k in PARAMS}
    x, y = given["x"].astype(np.float64), given["y"].astype(np.float64)

    def gradient(params, x, y):
        return tape.value_and_grad(lambda q: ((_outputs(q, x)[-1] @ q["wo"] + q["bo"] - y) ** 2).mean(), params)[1]

    def outputs(x):
        return np.stack([h.value for h in _outputs({k: tape.Var(v) for k, v in p.items()}, x)])

    def gradient_by_x(x):
        loss = lambda q: ((_outputs(p, [q[k] for k in range(len(x))])[-1] @ p["wo"] + p["bo"] - y) ** 2).mean()  # noqa: E731
        by_step = tape.value_and_grad(loss, dict(enumerate(x)))[1]
        return np.stack([by_step[k] for k in range(len(x))])

    if sizes["what"] == "per_sample_x":  # a row's own loss is not divided by the number of rows
        return {"x": gradient_by_x(x) * len(y)}
    if sizes["what"] == "per_sample":
        rows = [gradient(p, x[:, k : k + 1], y[k : k + 1]) for k in range(len(y))]
        return {k: np.stack([r[k] for r in rows]) for k in PARAMS}
    step = 1e-5
    if sizes["what"] == "jvp":
        v = given["v_x"].astype(np.float64)
        return {"outputs": outputs(x), "tangents": (outputs(x + step * v) - outputs(x - step * v)) / (2 * step)}
    if sizes["what"] == "hvp_x":
        v = given["v_x"].astype(np.float64)
        return {"x": (gradient_by_x(x + step * v) - gradient_by_x(x - step * v)) / (2 * step)}
    ahead, behind = (gradient({k: p[k] + s * given["v_" + k] for k in PARAMS}, x, y) for s in (step, -step))
    return {k: (ahead[k] - behind[k]) / (2 * step) for k in PARAMS}


def jacobian(name, widths, n, title, target, dense=False):
    return Task(
        name=name, kind="jacobian", sizes=dict(widths=widths, N=n, dense=dense), inputs=mlp_inputs, reference=jacobian_reference,
        tolerances={"jacobian": Tolerance(1e-5)}, required=("jacobian",), group="derivatives", title=title, target=target,
    )  # fmt: skip


def lstm(what, required, title, target):
    return Task(
        name=f"lstm_{what}", kind="lstm_derivative", sizes=dict(what=what, T=60, I=12, H=48, B=48), inputs=lstm_inputs,
        reference=lstm_reference, tolerances={"*": Tolerance(1e-4)}, required=required, group="derivatives",
        title=f"LSTM T60 I12 H48 B48, {title}", target=target,
    )  # fmt: skip


SEED = "1-20-20-400"
TASKS = [
    jacobian("jacobian_dense_100", SEED, 100, f"Jacobian of {SEED}, 100 samples, dense (100, 400, 100, 1)", ">= 1.5", dense=True),
    jacobian("jacobian_100", SEED, 100, f"Jacobian of {SEED}, per sample, 100 samples", ">= 2"),
    jacobian("jacobian_1000", SEED, 1000, f"Jacobian of {SEED}, per sample, 1000 samples", ">= 1.5"),
    jacobian("jacobian_3_64_5", "3-64-5", 128, "Jacobian of 3-64-5, per sample, 128 samples", "<= 35 us"),
    lstm("hvp", PARAMS, "Hessian-vector product by its weights", ">= 1.8"),
    lstm("per_sample", PARAMS, "per-sample gradients by its weights", ">= 2.0"),
    lstm("hvp_x", ("x",), "Hessian-vector product by its inputs", ">= 1.8"),
    lstm("per_sample_x", ("x",), "per-sample gradients by its inputs", ">= 2.0"),
    lstm("jvp", ("outputs", "tangents"), "jvp by its inputs", ">= 1.25"),
]
