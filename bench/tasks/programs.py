"""Programs that nobody tuned for: the loss of each and its gradient by all parameters, one call (impls/_programs.py has them).

References: the same formulas in NumPy with complex numbers. The loss is the real part in f64; slopes are by the complex step (Squire and Trapp 1998),
exact to rounding.
"""

import types

import numpy as np
from harness.task import Task, Tolerance, rng
from impls import _programs

ORDER = 6
STEP = 1e-30


def scan(step, carry, xs, length=None):
    out = []
    for t in range(length or len(xs[0] if isinstance(xs, tuple) else xs)):
        carry, y = step(carry, None if xs is None else tuple(x[t] for x in xs) if isinstance(xs, tuple) else xs[t])
        out.append(y)
    return carry, None if out[0] is None else np.stack(out)


def logsumexp(x, axis):
    most = x.real.max(axis, keepdims=True)
    return np.log(np.exp(x - most).sum(axis)) + most.squeeze(axis)


def softmax(x, axis):
    e = np.exp(x - x.real.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


NUMPY = types.SimpleNamespace(
    scan=scan, logsumexp=logsumexp, softmax=softmax, sigmoid=lambda x: 1 / (1 + np.exp(-x)), take_rows=lambda table, at: table[at],
    one_hot=lambda at, n: np.eye(n)[at], concat=np.concatenate, permute_dims=np.transpose, reshape=np.reshape, sum=np.sum, mean=np.mean, exp=np.exp,
    tanh=np.tanh, sqrt=np.sqrt, log=np.log, sinh=np.sinh, cosh=np.cosh, stack=np.stack, take_along=np.take_along_axis,
)  # fmt: skip


def reference(sizes, given, variant):
    parameters, data = _programs.split({k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in given.items()})
    f = _programs.BY_NAME[sizes["program"]]

    def slope(k, direction):
        return f(NUMPY, parameters | {k: parameters[k] + 1j * STEP * direction}, data).imag / STEP

    slopes = {f"slope of {k}": np.array([slope(k, v) for v in vs]) for k, vs in _programs.directions(f.__name__, parameters).items()}
    return {"loss": np.asarray(f(NUMPY, parameters, data)), **slopes}


# What each program takes: shapes of parameters, which are normal with the standard deviation 1 / sqrt(first axis) unless another one follows, and
# of data, which are standard normal.
GRU = {"input": (16, 96), "state": (32, 96)}
SHAPES = {
    "gated_recurrence": ("gated linear recurrence, T256 I32 H64 B32", {"gate": (32, 64), "value": (32, 64), "out": (64, 1)}, {"x": (256, 32, 32), "y": (256, 32, 1)}),
    "attention_decoder": ("GRU with attention, T24 I16 H32 B32, 20 encoded steps", GRU | {"query": (32, 32), "out": (64, 8)}, {"encoded": (32, 20, 32), "x": (24, 32, 16), "y": (24, 32, 8)}),
    "hidden_markov": ("hidden Markov model, 16 states, T60 B32", {"moves": (16, 16), "emits": (16, 8)}, {"symbols": (60, 32, 8)}),
    "fast_weights": ("delta rule on a 16 x 16 state, T100 B16", {"key": (24, 16), "query": (24, 16), "value": (24, 16), "rate": (24, 1), "out": (16, 4)}, {"x": (100, 16, 24), "y": (100, 16, 4)}),
    "transformer_block": ("transformer block, 16 x 32 tokens of 32, 4 heads", {"qkv": (32, 96), "out": (32, 32), "wide": (32, 128), "narrow": (128, 32)}, {"x": (16, 32, 32), "y": (16, 32, 32)}),
    "deep_perceptron": ("perceptron 10-64 x 8-1 with silu, 256 samples", {"w0": (10, 64), "b0": (64,), **{f"w{i}": (64, 64) for i in range(1, 8)}, **{f"b{i}": (64,) for i in range(1, 8)}, "out": (64, 1)}, {"x": (256, 10), "y": (256, 1)}),
    "masked_cell": ("normalised LSTM on sequences of unequal length, T60 I12 H32 B48", {"input": (12, 128), "state": (32, 128), "gain": (128,), "out": (32, 1)}, {"x": (60, 48, 12), "valid": (60, 48, 1), "y": (48, 1)}),
    "causal_convolutions": ("four dilated convolutions of 16 channels, T100 B32", {"k0": (3, 4, 16), **{f"k{i}": (3, 16, 16) for i in (1, 2, 3)}, "out": (16, 1)}, {"x": (32, 100, 4), "y": (32, 100, 1)}),
    "runge_kutta": ("40 Runge-Kutta steps of an 8-40-8 field, B64", {"w1": (8, 40), "b1": (40,), "w2": (40, 8)}, {"x": (64, 8), "y": (64, 8)}),
    "bodies": ("32 bodies, 50 leapfrog steps", {"q": (32, 3, 1.0), "v": (32, 3, 0.1)}, {"seen": (32, 3)}),
    "pair_energy": ("network on all pairs of 40 points: energy and forces", {"q": (40, 3, 1.5), "w1": (16, 32), "w2": (32, 1)}, {"centres": (16,)}),
    "messages": ("messages in 16 graphs of 30 nodes, three rounds", {"from": (16, 32), "to": (16, 32), "update": (48, 16), "out": (16, 1)}, {"x": (16, 30, 16), "edges": (16, 30, 30), "y": (16,)}),
    "characters": ("GRU(64) on text of 64 characters, T64 B32", {"embedding": (64, 32), "input": (32, 192), "state": (64, 192), "out": (64, 64)}, {"text": (65, 32, 64)}),
    "ensemble": ("50 perceptrons 4-32-32-1, 200 samples", {"w1": (50, 4, 32, 0.5), "b1": (50, 32, 0.5), "w2": (50, 32, 32, 0.2), "b2": (50, 32, 0.5), "w3": (50, 32, 1, 0.2)}, {"x": (200, 4), "y": (200, 1)}),
    "connectionist": ("loss over all alignments (CTC), T50 B16, 8 of 20 labels", {"w1": (12, 32), "b1": (32,), "w2": (32, 20)}, {"x": (50, 16, 12), "labels": (16, 17, 20), "bar": (16, 17, 20)}),
    "selective_scan": ("selective state space, T64 B8, 32 channels of 8 numbers", {"in": (16, 64), "taps": (4, 32, 0.5), "rate": (32, 32), "bias": (32, 0.5), "b": (32, 8), "c": (32, 8), "decay": (32, 8, 0.5), "out": (32, 16)}, {"x": (8, 64, 16), "y": (8, 64, 16)}),
    "circuit": ("diode clipper, 1000 samples, 6 Newton iterations each", {"resistance": (1, 0.1), "capacitance": (1, 0.1), "current": (1, 0.1)}, {"signal": (1000,), "y": (1000, 0.3)}),
    "filters": ("four second-order filters, 2048 samples, B4", {"b": (4, 3, 0.3), "a": (4, 2, 0.1)}, {"x": (2048, 4), "y": (2048, 4)}),
    "external_memory": ("LSTM with 16 slots of memory, T30 H32 B16", {"input": (16, 128), "state": (32, 128), "write": (32, 10), "read": (32, 10), "erase": (32, 8), "add": (32, 8), "memory": (16, 8, 0.3), "out": (40, 8)}, {"x": (30, 16, 8), "y": (30, 16, 8)}),
    "single_samples": ("perceptron 8-32-32-1 learning from 300 samples, one by one", {"w1": (8, 32), "b1": (32, 0.1), "w2": (32, 32), "b2": (32, 0.1), "w3": (32, 0.2), "rate": (1, 0.1)}, {"x": (300, 8), "y": (300,)}),
    "time_warping": ("soft time warping, 40 by 40 steps, 8 pairs", {"map": (4, 8)}, {"x": (40, 8, 4), "y": (40, 8, 4)}),
    "waves": ("wave equation, 128 points, 500 steps", {"speed": (128, 0.1)}, {"start": (128,), "seen": (128,)}),
}  # fmt: skip


def draw(name, parameters, data):
    """Arrays of these shapes: parameters are normal with the standard deviation 1 / sqrt(first axis) unless another one follows, so are data with 1,
    but for the names below."""
    out = {}
    for k, shape in parameters.items():
        deviation = shape[-1] if isinstance(shape[-1], float) else shape[-2 if len(shape) > 2 else 0] ** -0.5
        shape = tuple(n for n in shape if isinstance(n, int))
        out["p." + k] = (deviation * rng(name, "p", k).standard_normal(shape)).astype(np.float32)
    for k, shape in data.items():
        r = rng(name, "d", k)
        deviation = shape[-1] if isinstance(shape[-1], float) else 1.0
        shape = tuple(n for n in shape if isinstance(n, int))
        if k in ("symbols", "text"):
            out["d." + k] = r.integers(0, shape[-1], shape[:-1]).astype(np.int32)
        elif k in ("labels", "bar"):
            # Blanks between the labels; from one label to the next but one where they differ.
            labels = np.zeros(shape[:-1], np.int32)
            labels[:, 1::2] = rng(name, "d", "labels").integers(1, shape[-1], labels[:, 1::2].shape)
            may_skip = np.zeros(labels.shape, bool)
            may_skip[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
            out["d." + k] = labels if k == "labels" else np.where(may_skip, 0, -1e5).astype(np.float32)
        elif k == "signal":
            out["d." + k] = (0.5 * np.sin(np.arange(*shape) * (2 * np.pi * 440 / 44100))).astype(np.float32)
        elif k == "valid":
            out["d." + k] = (np.arange(shape[0])[:, None, None] < r.integers(20, shape[0] + 1, (1, *shape[1:]))).astype(np.float32)
        elif k == "one":
            out["d." + k] = np.eye(*shape, dtype=np.float32)
        elif k == "edges":
            out["d." + k] = (r.random(shape) < 0.2).astype(np.float32)
        elif k == "centres":
            out["d." + k] = np.linspace(0, 4, *shape).astype(np.float32)
        else:
            out["d." + k] = (deviation * r.standard_normal(shape)).astype(np.float32)
    return out


def tasks_of(kind, shapes, reference):
    """A task for each program: {name: (title, shapes of parameters, shapes of data)}."""
    return [
        Task(
            name=name, kind=kind, sizes=dict(program=name), inputs=lambda sizes: draw(sizes["program"], *shapes[sizes["program"]][1:]), reference=reference,
            tolerances={"*": Tolerance(1e-3)}, required=("loss", *(f"slope of {k}" for k in parameters)), group="programs nobody tuned for", title=title,
            target="faster than the best rival",
        )
        for name, (title, parameters, _) in shapes.items()
    ]  # fmt: skip


TASKS = tasks_of("program", SHAPES, reference)
