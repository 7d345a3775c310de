"""Recurrent networks: training steps and inference, of the library's cells and of cells written by a user.

Inputs: x (B, T, I), y (B, 1), the parameters by PyTorch's names (`weight_ih_l0` (4H, I), gates i, f, g, o; GRU r, z, n) and the
head's `head.weight` (1, D H), `head.bias` (1); f32, or f64 where the sizes say `dtype=f64`; with `dtype=bf16` they are f32 and the factors of products
are rounded to bfloat16, which are added in f32. A training step is forward, mean squared error of the head on the last output,
backward and Adam (1e-3) on all parameters. Results: the losses of the first five steps and the parameters after them.
"""

import numpy as np
from harness import tape
from harness.task import Task, Tolerance, rng

ORDER = 1
STEPS = 5
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def inputs(sizes):
    cell, t, i, h, b, layers, directions = (sizes[k] for k in ("cell", "T", "I", "H", "B", "layers", "directions"))
    r = rng(*sizes.items())
    bound = h**-0.5
    out = {"x": r.standard_normal((b, t, i)), "y": r.standard_normal((b, 1))}
    u = lambda *shape: r.uniform(-bound, bound, shape)  # noqa: E731
    width = h * directions
    if cell in GATES:
        n = GATES[cell] * h
        for layer in range(layers):
            for end in ("", "_reverse")[:directions]:
                suffix = f"_l{layer}{end}"
                out["weight_ih" + suffix] = u(n, i if layer == 0 else width)
                out["weight_hh" + suffix] = u(n, h)
                out["bias_ih" + suffix], out["bias_hh" + suffix] = u(n), u(n)
    elif cell == "ln_lstm":
        for gate in "ifgo":
            out["W_" + gate], out["U_" + gate] = u(h, i), u(h, h)
            out["gain_" + gate], out["bias_" + gate] = 1 + 0.1 * u(h), u(h)
        out["gain_c"], out["bias_c"] = 1 + 0.1 * u(h), u(h)
    else:
        for gate in "fgo":
            out["W_" + gate], out["U_" + gate], out["b_" + gate] = u(h, i), u(h, h), u(h)
        out["peep_f"], out["peep_o"], out["rate"] = u(h), u(h), u(h)
        width = 2 * h
    if not sizes.get("infer"):
        out["head.weight"], out["head.bias"] = u(1, width), u(1)
    return {k: v.astype(np.float64 if sizes.get("dtype") == "f64" else np.float32) for k, v in out.items()}


def _layer_norm(x, gain, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * ((centred * centred).mean(-1, keepdims=True) + 1e-5) ** -0.5 * gain + bias


def _step(cell, p, suffix, state, x):
    """(state after, output), as PyTorch defines its cells and tests/user_cells.h the others."""
    if cell == "ln_lstm":
        h, c = state
        gate = {g: _layer_norm(x @ p["W_" + g].T + h @ p["U_" + g].T, p["gain_" + g], p["bias_" + g]) for g in "ifgo"}
        c = gate["f"].sigmoid() * c + gate["i"].sigmoid() * gate["g"].tanh()
        h = gate["o"].sigmoid() * _layer_norm(c, p["gain_c"], p["bias_c"]).tanh()
        return (h, c), h
    if cell == "coupled":
        h, fast, slow = state
        total = {g: x @ p["W_" + g].T + h @ p["U_" + g].T + p["b_" + g] for g in "fgo"}
        f = (total["f"] + p["peep_f"] * fast).sigmoid()
        fast = f * fast + (1.0 - f) * (total["g"].softplus() - 0.69)
        keep = p["rate"].sigmoid()
        slow = keep * slow + (1.0 - keep) * fast
        o = (total["o"] + p["peep_o"] * fast).sigmoid()
        h = o * (fast - slow).tanh()
        return (h, fast, slow), tape.concat([h, slow], 1)
    n = p["weight_hh" + suffix].shape[1]
    a = x @ p["weight_ih" + suffix].T + p["bias_ih" + suffix]
    b = state[0] @ p["weight_hh" + suffix].T
    if "bias_hh" + suffix in p:
        b = b + p["bias_hh" + suffix]
    cut = lambda v, k: v[:, k * n : (k + 1) * n]  # noqa: E731
    if cell == "rnn":
        h = (a + b).tanh()
        return (h,), h
    if cell == "gru":
        r, z = (cut(a, 0) + cut(b, 0)).sigmoid(), (cut(a, 1) + cut(b, 1)).sigmoid()
        h = (1.0 - z) * (cut(a, 2) + r * cut(b, 2)).tanh() + z * state[0]
        return (h,), h
    gates = a + b
    c = cut(gates, 1).sigmoid() * state[1] + cut(gates, 0).sigmoid() * cut(gates, 2).tanh()
    h = cut(gates, 3).sigmoid() * c.tanh()
    return (h, c), h


def outputs(sizes, p, x):
    """The output of the last layer at each step, a list of (B, D H)."""
    b, h = sizes["B"], sizes["H"]
    xs = [tape.of(x[:, t]) for t in range(x.shape[1])]
    start = {"lstm": [0, 0], "ln_lstm": [0, 0], "coupled": [0, 0, 0.5]}.get(sizes["cell"], [0])
    for layer in range(sizes["layers"]):
        sides = []
        for end in ("", "_reverse")[: sizes["directions"]]:
            state, ys = tuple(tape.Var(np.full((b, h), float(v))) for v in start), []
            for x_t in reversed(xs) if end else xs:
                state, y = _step(sizes["cell"], p, f"_l{layer}{end}", state, x_t)
                ys.append(y)
            sides.append(ys[::-1] if end else ys)
        xs = sides[0] if len(sides) == 1 else [tape.concat(list(pair), 1) for pair in zip(*sides)]
    return xs


def loss_of(sizes, given):
    x, y = np.asarray(given["x"], np.float64), np.asarray(given["y"], np.float64)

    def loss(p):
        last = outputs(sizes, p, x)[-1]
        return ((last @ p["head.weight"].T + p["head.bias"] - y) ** 2).mean()

    return loss


def one_bias(params):
    """The same network with bias_hh added to bias_ih, as libraries with one bias hold it (not a GRU: there they differ)."""
    out = dict(params)
    for k in list(out):
        if k.startswith("bias_hh"):
            out[k.replace("_hh", "_ih")] = out[k.replace("_hh", "_ih")] + out.pop(k)
    return out


def train_reference(sizes, given, variant):
    params = {k: v for k, v in given.items() if k not in ("x", "y")}
    losses, after = tape.adam(loss_of(sizes, given), one_bias(params) if variant == "one bias" else params, STEPS)
    return {"losses": losses, **(after if variant != "one bias" else {})}


def infer_reference(sizes, given, variant):
    p = {k: tape.Var(v) for k, v in given.items() if k not in ("x", "y")}
    return {"outputs": np.stack([y.value for y in outputs(sizes, p, np.asarray(given["x"], np.float64))], 1)}


def flops(s, train):
    """Of the products: input, recurrent; backward twice as much, without the first layer's input gradient."""
    gates = {"lstm": 4, "gru": 3, "rnn": 1, "ln_lstm": 4, "coupled": 3}[s["cell"]]
    total = 0.0
    for layer in range(s["layers"]):
        width = s["I"] if layer == 0 else s["H"] * s["directions"]
        x, h = 2.0 * width * gates * s["H"], 2.0 * s["H"] * gates * s["H"]
        total += s["T"] * s["B"] * s["directions"] * ((x * (2 if layer == 0 else 3) + 3 * h) if train else x + h)
    return total


def name_of(s):
    layers = f"_L{s['layers']}" if s["layers"] > 1 else ""
    return f"{s['cell']}_{'infer' if s.get('infer') else 'train'}_T{s['T']}_I{s['I']}_H{s['H']}_B{s['B']}{layers}" + (
        "_bi" if s["directions"] == 2 else ""
    ) + (f"_{s['dtype']}" if "dtype" in s else "")


def task(cell, t, i, h, b, *, infer=False, layers=1, directions=1, dtype="f32", group="", target=""):
    sizes = dict(cell=cell, T=t, I=i, H=h, B=b, layers=layers, directions=directions, infer=infer) | ({} if dtype == "f32" else {"dtype": dtype})
    label = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN", "ln_lstm": "LayerNorm-LSTM", "coupled": "a user's cell"}[cell]
    title = f"{'bidirectional ' if directions == 2 else ''}{label} T{t} I{i} H{h} B{b}" + (f", {layers} layers" if layers > 1 else "") + ("" if dtype == "f32" else f", {dtype}")
    # Adam divides by the gradient's size: where that is rounding noise, a parameter's step is too. Hence the norm over each array.
    # 8 significant bits leave as many gradients without a sure sign.
    outputs, losses, params = {"f32": (2e-4, 1e-4, 3e-2), "f64": (1e-12, 1e-11, 1e-6), "bf16": (1e-2, 5e-3, 0.3)}[dtype]
    return Task(
        name=name_of(sizes),
        kind="recurrent_infer" if infer else "recurrent_train",
        sizes=sizes,
        inputs=inputs,
        reference=infer_reference if infer else train_reference,
        tolerances={"outputs": Tolerance(outputs)} if infer else {"losses": Tolerance(losses), "*": Tolerance(params, pointwise=False, start=True)},
        required=("outputs",) if infer else ("losses",),
        group=group or ("inference" if infer else "training"),
        title=title + (", inference" if infer else ", training step"),
        target=target,
        flops=flops(sizes, not infer),
        unit="call" if infer else "step",
    )


# The rows that the project set itself: PyTorch, JAX and Keras need 0.9 ms to 0.5 s for a step of them.
SHAPES = [
    (50, 8, 32, 32, 1, ">= 2.8", ">= 1.7"),
    (50, 8, 64, 32, 1, ">= 1.6", ">= 1.3"),
    (50, 8, 64, 512, 1, ">= 1.65", ">= 1.15"),
    (120, 14, 32, 256, 1, ">= 2.1", ">= 1.3"),
    (100, 32, 128, 64, 1, ">= 1.3", ">= 1.05"),
    (100, 64, 256, 128, 1, ">= 1.08", ">= 1.0"),
    (100, 64, 512, 64, 2, ">= 1.0", ">= 0.95"),
]
TASKS = [task("lstm", t, i, h, b, layers=n, target=train) for t, i, h, b, n, train, _ in SHAPES]
TASKS += [task("lstm", t, i, h, b, layers=n, infer=True, target=infer) for t, i, h, b, n, _, infer in SHAPES]
# Vectors hold half as many numbers: a step in f64 is to take at most about twice the time.
TASKS += [task("lstm", t, i, h, b, dtype="f64", group="double precision", target="<= 2 x f32") for t, i, h, b, n, _, _ in SHAPES if n == 1 and h <= 128]
# Master weights and sums in f32. Twice the products an instruction where the processor has AVX512-BF16.
TASKS += [task("lstm", t, i, h, b, layers=n, dtype="bf16", group="bfloat16 factors", target=">= 1.4 x f32" if h >= 256 else "") for t, i, h, b, n, _, _ in SHAPES]
TASKS += [task(c, 60, 12, 48, 48, group="cells", target=w) for c, w in (("lstm", ""), ("gru", ""), ("rnn", ""), ("ln_lstm", ">= 2.5"), ("coupled", ""))]
TASKS += [task("gru", 50, 8, 64, 32, group="cells")]
# Of an issue of oneDNN (837): one row at a time, both directions, which it reports as too slow.
TASKS += [task("lstm", t, i, 32, 1, directions=2, infer=True, group="one row") for t, i in ((63, 24), (31, 48), (15, 96))]
# What threads can share of one row: directions, and stacked layers that follow each other.
TASKS += [task("lstm", 60, 16, 64, 1, directions=2, group="one row")]
TASKS += [task("lstm", 100, 32, 128, 1, layers=2, infer=infer, group="one row") for infer in (True, False)]
