"""Networks drawn at random, as users write them, once for every library: a perceptron, a cell in a loop, a differential equation by Runge-Kutta
steps. tasks/_random_programs.py draws their sizes and choices, which are words here.

`xp` has tanh, sigmoid, relu, softplus, sin, sqrt, mean, sum, permute_dims, scan and zeros(shape, like). `results` says what each `of` is compared by.
"""

from impls import _programs

ACTIVATIONS = {
    "tanh": lambda xp, x: xp.tanh(x),
    "relu": lambda xp, x: xp.relu(x),
    "sigmoid": lambda xp, x: xp.sigmoid(x),
    "silu": lambda xp, x: x * xp.sigmoid(x),
    "gelu": lambda xp, x: 0.5 * x * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x))),
    "softplus": lambda xp, x: xp.softplus(x),
    "sin": lambda xp, x: xp.sin(x),
}
# How many products of input and state a cell's new state is made of.
GATES = {"plain": 1, "leaky": 1, "residual": 1, "mixed": 2, "reset": 2, "pair": 4}


def widths(sizes):
    return [int(w) for w in sizes["widths"].split("-")]


def perceptron(xp, sizes, p, x):
    layers = len(widths(sizes)) - 1
    for i in range(layers):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        if i + 1 < layers:
            x = ACTIVATIONS[sizes["activation"]](xp, x)
    return x


def normalised(xp, x):
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def gates(xp, sizes, p, h, x):
    """What enters each gate: one product whose columns are cut, or a product each."""
    norm = (lambda v: normalised(xp, v)) if sizes["norm"] else (lambda v: v)
    n, count = h.shape[-1], GATES[sizes["update"]]
    if sizes["joined"]:
        all_gates = norm(x @ p["w"] + h @ p["u"]) + p["b"]
        return [all_gates[..., i * n : (i + 1) * n] for i in range(count)]
    return [norm(x @ p[f"w{i}"] + h @ p[f"u{i}"]) + p[f"b{i}"] for i in range(count)]


def cell(xp, sizes, p, x):
    """x: (batch, steps, inputs) -> (steps, batch, 1)."""
    f = lambda v: ACTIVATIONS[sizes["activation"]](xp, v)  # noqa: E731

    def step(carry, x):
        h, c = carry
        g = gates(xp, sizes, p, h, x)
        match sizes["update"]:
            case "plain":
                h = f(g[0])
            case "leaky":
                h = 0.8 * h + 0.2 * f(g[0])
            case "residual":
                h = h + 0.1 * (f(g[0]) @ p["back"])
            case "mixed":
                z = xp.sigmoid(g[0])
                h = z * h + (1 - z) * xp.tanh(g[1])
            case "reset":
                r, z = xp.sigmoid(g[0]), xp.sigmoid(g[1])
                h = z * h + (1 - z) * f(x @ p["new_w"] + (r * h) @ p["new_u"])
            case "pair":
                c = xp.sigmoid(g[0]) * c + xp.sigmoid(g[1]) * xp.tanh(g[2])
                h = xp.sigmoid(g[3]) * xp.tanh(c)
        return (h, c), h

    start = xp.zeros((x.shape[0], p["out"].shape[0]), x)
    return xp.scan(step, (start, start), xp.permute_dims(x, (1, 0, 2)))[1] @ p["out"]


def flow(xp, sizes, p, x):
    """Where x goes in time 1 along a perceptron's field."""
    h = 1 / sizes["T"]
    field = lambda y: perceptron(xp, sizes, p, y)  # noqa: E731

    def step(y, _):
        a = field(y)
        b = field(y + h / 2 * a)
        c = field(y + h / 2 * b)
        return y + h / 6 * (a + 2 * b + 2 * c + field(y + h * c)), None

    return xp.scan(step, x, None, sizes["T"])[0]


NETWORKS = {"perceptron": perceptron, "cell": cell, "flow": flow}


def outputs(xp, sizes, p, x):
    return NETWORKS[sizes["network"]](xp, sizes, p, x)


def loss(xp, sizes, p, x, y):
    return xp.mean((outputs(xp, sizes, p, x) - y) ** 2)


def one_loss(xp, sizes, p, x, y):
    """Of one sample. y: (1, outputs), or a cell's (steps, 1)."""
    return loss(xp, sizes, p, x[None], y[:, None] if sizes["network"] == "cell" else y[None])


def one_output(xp, sizes, p, x):
    return outputs(xp, sizes, p, x[None])[0]


def per_sample_targets(sizes, d):
    """Targets with the samples first."""
    return d["y"].swapaxes(0, 1) if sizes["network"] == "cell" else d["y"]


def slopes(name, parameters, gradients, np, samples=False):
    """A gradient by its products with four directions, of which each has all of its entries: of all samples together, or of each."""
    found = {}
    for k, v in _programs.directions(name, parameters).items():
        gradient = np.asarray(gradients[k], np.float64)
        axes = list(range(1, v.ndim))
        found[f"slope of {k}"] = np.tensordot(v, gradient, (axes, axes if samples else [a - 1 for a in axes]))
    return found


def results(sizes, parameters, values, np):
    """What is compared of what `of` gives."""
    name = sizes["name"]
    match sizes["of"]:
        case "forward" | "jacobian" | "hessian":
            return {sizes["of"]: np.asarray(values, np.float64)}
        case "jvp":
            return {"value": np.asarray(values[0], np.float64), "tangent": np.asarray(values[1], np.float64)}
        case "gradient":
            return {"loss": np.asarray(values[0], np.float64), **slopes(name, parameters, values[1], np)}
        case "hvp":
            return slopes(name, parameters, values, np)
        case "persample":
            return slopes(name, parameters, values, np, samples=True)
