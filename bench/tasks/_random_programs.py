"""Networks drawn at random, and what is asked of each: outputs, gradient, derivatives of single samples, second derivatives (--random-programs).

References: the same formulas in NumPy in f64. First derivatives are by the complex step, second ones by central differences of first ones.
"""

import math
import types

import numpy as np
from harness.draws import spread
from harness.task import Task, Tolerance, rng
from impls import _programs, _random_programs
from impls._random_programs import ACTIVATIONS, GATES

from tasks.programs import scan

STEP = 1e-30
DIFFERENCE = 1e-5
ASKED = [(network, of) for network, all_of in {
    "perceptron": ("forward", "gradient", "jacobian", "hessian", "hvp", "persample"),
    "cell": ("forward", "gradient", "jvp", "hvp", "persample"),
    "flow": ("gradient",),
}.items() for of in all_of]  # fmt: skip
TITLES = {"forward": "outputs", "gradient": "value and gradient", "jvp": "outputs and their derivative along the parameters", "hvp": "Hessian times vector",
          "persample": "gradients of single samples", "jacobian": "Jacobians of single samples", "hessian": "Hessians of single samples"}  # fmt: skip


NUMPY = types.SimpleNamespace(
    tanh=np.tanh, sigmoid=lambda x: 1 / (1 + np.exp(-x)), relu=lambda x: np.where(x.real > 0, x, 0), softplus=lambda x: np.log(1 + np.exp(x)),
    sin=np.sin, sqrt=np.sqrt, mean=np.mean, sum=np.sum, permute_dims=np.transpose, scan=scan, zeros=lambda shape, like: np.zeros(shape),
)  # fmt: skip


def first(f, parameters, direction):
    """The derivative of f(parameters) along the direction."""
    return f({k: v + 1j * STEP * direction[k] if k in direction else v for k, v in parameters.items()}).imag / STEP


def second(f, parameters, one, other):
    """The derivative along one direction of that along another one."""
    ahead, behind = (first(f, {k: v + s * DIFFERENCE * other[k] for k, v in parameters.items()}, one) for s in (1, -1))
    return (ahead - behind) / (2 * DIFFERENCE)


def by_inputs(f, x):
    """Derivatives of f's outputs by the inputs of the same row, as the last axis."""
    return np.stack([f(x + 1j * STEP * e).imag / STEP for e in np.eye(x.shape[-1])], -1)


def reference(sizes, given, variant):
    parameters, data = _programs.split({k: v.astype(np.float64) for k, v in given.items()})
    x, y = data["x"], data["y"]
    directions = _programs.directions(sizes["name"], parameters)
    out = lambda p: _random_programs.outputs(NUMPY, sizes, p, x)  # noqa: E731
    loss = lambda p: _random_programs.loss(NUMPY, sizes, p, x, y)  # noqa: E731
    along = lambda derivative: {f"slope of {k}": np.array([derivative({k: v}) for v in vs]) for k, vs in directions.items()}  # noqa: E731
    match sizes["of"]:
        case "forward":
            return {"forward": out(parameters)}
        case "gradient":
            return {"loss": np.asarray(loss(parameters)), **along(lambda d: first(loss, parameters, d))}
        case "jvp":
            return {"value": out(parameters), "tangent": first(out, parameters, parameters)}
        case "hvp":
            return along(lambda d: second(loss, parameters, d, parameters))
        case "persample":
            axes = (0, 2) if sizes["network"] == "cell" else 1
            return along(lambda d: first(lambda p: np.mean((out(p) - y) ** 2, axis=axes), parameters, d))
        case "jacobian":
            return {"jacobian": by_inputs(lambda x: _random_programs.outputs(NUMPY, sizes, parameters, x), x)}
        case "hessian":
            gradient = lambda x: by_inputs(lambda x: _random_programs.outputs(NUMPY, sizes, parameters, x)[:, 0], x)  # noqa: E731
            columns = [(gradient(x + DIFFERENCE * e) - gradient(x - DIFFERENCE * e)) / (2 * DIFFERENCE) for e in np.eye(x.shape[-1])]
            return {"hessian": np.stack(columns, -1)}


def shapes(sizes):
    """(of parameters, of inputs, of targets); a parameter's deviation is 1 / sqrt(first axis), a bias's 0.3."""
    B = sizes["B"]
    if sizes["network"] == "cell":
        T, I, H = sizes["T"], sizes["I"], sizes["H"]
        count = GATES[sizes["update"]]
        one = {"w": (I, H), "u": (H, H), "b": (H,)}
        found = {k: (*s[:-1], count * H) for k, s in one.items()} if sizes["joined"] else {f"{k}{i}": s for i in range(count) for k, s in one.items()}
        found |= {"back": (H, H)} if sizes["update"] == "residual" else {"new_w": (I, H), "new_u": (H, H)} if sizes["update"] == "reset" else {}
        return found | {"out": (H, 1)}, (B, T, I), (T, B, 1)
    layers = _random_programs.widths(sizes)
    found = {f"w{i}": pair for i, pair in enumerate(zip(layers, layers[1:]))} | {f"b{i}": (n,) for i, n in enumerate(layers[1:])}
    return found, (B, layers[0]), (B, layers[-1])


def inputs(sizes):
    parameters, x, y = shapes(sizes)
    dtype = np.dtype(sizes["dtype"])
    draw = lambda k, shape: rng(sizes["name"], k).standard_normal(shape)  # noqa: E731
    return {f"p.{k}": (draw(k, s) * (0.3 if len(s) == 1 else s[0] ** -0.5)).astype(dtype) for k, s in parameters.items()} | {
        "d.x": draw("x", x).astype(dtype), "d.y": draw("y", y).astype(dtype)}  # fmt: skip


def required(sizes):
    alone = {"forward": ("forward",), "jacobian": ("jacobian",), "hessian": ("hessian",), "jvp": ("value", "tangent")}
    return alone.get(sizes["of"]) or (*(("loss",) if sizes["of"] == "gradient" else ()), *(f"slope of {k}" for k in shapes(sizes)[0]))


def draw_sizes(source, network, of, name):
    """Sizes spread evenly over their logarithms, choices evenly; a quarter in double precision."""
    smooth = [a for a in ACTIVATIONS if a != "relu" or of not in ("hvp", "hessian")]
    sizes = dict(name=name, network=network, of=of, activation=source.choice(smooth), dtype="float64" if source.random() < 0.25 else "float32", B=spread(source, 1, 1000))
    if network == "cell":
        sizes |= dict(update=source.choice(list(GATES)), norm=int(source.random() < 0.3), joined=int(source.random() < 0.5), T=spread(source, 5, 200), I=spread(source, 1, 64), H=spread(source, 3, 96))
    else:
        hidden = [spread(source, 4, 128) for _ in range(source.randint(1, 3))]
        ends = [spread(source, 2, 16)] * 2 if network == "flow" else [spread(source, 1, 40), spread(source, 1, 40)]
        sizes |= dict(widths="-".join(map(str, [ends[0], *hidden, ends[1]])))
        if network == "flow":
            sizes |= dict(T=spread(source, 4, 50))
    return sizes


def work(sizes):
    """(multiplications and additions of the outputs' products, numbers of the result)."""
    parameters, x, y = shapes(sizes)
    weights = sum(math.prod(s) for s in parameters.values())
    repeats = {"cell": sizes.get("T", 1), "flow": 4 * sizes.get("T", 1)}.get(sizes["network"], 1)
    numbers = {"persample": weights, "jacobian": x[-1] * y[-1], "hessian": x[-1] ** 2}.get(sizes["of"], 1)
    columns = {"jacobian": min(x[-1], y[-1]), "hessian": 2 * x[-1]}.get(sizes["of"], 1)
    return 2 * weights * sizes["B"] * repeats * columns, numbers * sizes["B"]


def title(sizes):
    if sizes["network"] == "cell":
        words = [sizes["update"], *(["normalised"] if sizes["norm"] else []), *([] if sizes["joined"] else ["gates apart"])]
        what = f"cell ({', '.join(words)}) T{sizes['T']} I{sizes['I']} H{sizes['H']}"
    else:
        what = f"{'perceptron' if sizes['network'] == 'perceptron' else str(sizes['T']) + ' Runge-Kutta steps of'} {sizes['widths']}"
    return f"{what} B{sizes['B']} {sizes['activation']}{' f64' if sizes['dtype'] == 'float64' else ''}: {TITLES[sizes['of']]}"


def task(sizes):
    single = sizes["dtype"] == "float32"
    return Task(
        name=sizes["name"], kind="random_program", sizes=sizes, inputs=inputs, reference=reference, tolerances={"*": Tolerance(1e-3 if single else 1e-7)},
        required=required(sizes), group="random programs", title=title(sizes), flops=work(sizes)[0],
    )  # fmt: skip
