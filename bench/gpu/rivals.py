#!/usr/bin/env python3
"""What PyTorch and JAX take on a GPU, for small networks and differential equations; needs nothing but them and NumPy.

usage: bench/gpu/rivals.py OUT.json [--only NAME] [--budget SECONDS] [--cpu] [--quick]
                           [--torch-python PATH] [--jax-python PATH]

Each library runs in a process of its own, one after the other: their copies of cuDNN do not meet, and a crash or a
compiler that does not come back costs that process alone. Every figure is of a function that has been called before. Two
figures each:
  call    a call and waiting for its results, by the clock of the host: the median of 30 calls or more, as far as 2 s allow
  stream  one call after the other without waiting, by the GPU's clock (CUDA events) for PyTorch, the host's for JAX
each with the products of float32 in float32 ("f32") and with what the library does by default ("default": TF32 in cuDNN
for PyTorch, whose other products are the same by default and are not measured again; in all products for JAX). What
matters least comes last, and is left out when the time is over. JAX compiles several functions at once, before the first
figure. "off by" compares results, and in training the gradient too, with those of the first row that has some.

"host" arrays: NumPy arrays in and out in each call. In training "host data" copies the batch in and the loss out, and the
parameters stay on the device; "host all" copies the parameters in and out, too. Recurrent inputs are time-major.

--cpu runs on the CPU, without CUDA graphs; --quick takes few repetitions: to try the script, not to measure.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from functools import partial
from statistics import median

import numpy as np

LSTM_SHAPES = [
    {"I": 8, "H": 64, "B": 512, "T": 100},
    {"I": 8, "H": 32, "B": 32, "T": 200},
    {"I": 12, "H": 128, "B": 256, "T": 60},
]
LN_SHAPE = {"I": 12, "H": 48, "B": 48, "T": 60}
JACOBIAN_WIDTHS, JACOBIAN_BATCHES = (1, 20, 20, 400), (100, 1000)
LORENZ = {"systems": 8192, "steps": 1000, "dt": 0.002}
FIELD = {"widths": (3, 100, 3), "steps": 40, "batch": 128, "dt": 0.025}
LEARNING_RATE = 0.05  # so that a step shows the gradient to three digits
PRECISIONS = ("f32", "default")


# The inputs, the same for both libraries.


def label(shape):
    return " ".join(f"{k}{v}" for k, v in shape.items())


def uniform(rng, *shape, fan_in):
    return (rng.uniform(-1, 1, shape) / np.sqrt(fan_in)).astype(np.float32)


def lstm_inputs(shape, normed=False):
    """Gates in the order i, f, g, o. Weights multiply from the right."""
    rng = np.random.default_rng(7)
    i, h, b, t = (shape[k] for k in "IHBT")
    p = {
        "w": uniform(rng, i, 4 * h, fan_in=h),
        "u": uniform(rng, h, 4 * h, fan_in=h),
        "b": uniform(rng, 4 * h, fan_in=h),
        "wo": uniform(rng, h, 1, fan_in=h),
        "bo": uniform(rng, 1, fan_in=h),
    }
    if normed:
        p |= {"gain": np.ones((4, h), np.float32), "gain_c": np.ones(h, np.float32), "bias_c": np.zeros(h, np.float32)}
        p["b"] = p["b"].reshape(4, h)
    x = rng.standard_normal((t, b, i)).astype(np.float32)
    y = rng.standard_normal((b, 1)).astype(np.float32)
    return p, x, y


def mlp_inputs(widths, batch):
    rng = np.random.default_rng(8)
    p = [(uniform(rng, a, b, fan_in=a), uniform(rng, b, fan_in=a)) for a, b in zip(widths, widths[1:])]
    return p, rng.standard_normal((batch, widths[0])).astype(np.float32)


def lorenz_inputs():
    rng = np.random.default_rng(9)
    return (rng.standard_normal((3, LORENZ["systems"])) + np.array([[0], [1], [20]])).astype(np.float32)


def size(array):
    return float(np.abs(np.asarray(array, np.float64)).mean())


def size_of_gradient(before, after):
    return size((np.asarray(after, np.float64) - np.asarray(before, np.float64)) / LEARNING_RATE)


# Measuring.


class Clock:
    """Times calls: `call` starts work, `wait` waits for it, `span(k)` gives the milliseconds of k calls in a row."""

    def __init__(self, quick):
        self.least, self.soft_s, self.hard_s = (3, 0.01, 0.1) if quick else (30, 0.15, 2.0)

    def measure(self, call, wait, span=None):
        for _ in range(2):
            wait(call())
        times, start = [], time.perf_counter()
        while True:
            before = time.perf_counter()
            wait(call())
            now = time.perf_counter()
            times.append(now - before)
            spent = now - start
            if spent > self.hard_s or (len(times) >= self.least and spent > self.soft_s):
                break
        result = {"call_ms": 1e3 * median(times), "repetitions": len(times)}
        if span is not None:
            k = max(2, min(len(times), int(self.soft_s / 3 / median(times))))
            result["stream_ms"] = median(span(k) / k for _ in range(3 if median(times) < 0.05 else 1))
        return result


class Job:
    """One figure. `prepare(precision)` gives call, wait, span or None, and numbers by which results are compared."""

    def __init__(self, task, way, prepare, arrays="device", precisions=PRECISIONS, rank=0):
        self.task, self.way, self.prepare, self.arrays = task, way, prepare, arrays
        self.precisions, self.rank = precisions, rank

    def name(self):
        return f"{self.task}, {self.way}, {self.arrays}"


def run_jobs(library, jobs, options, ahead=0):
    """Appends a line to the file of results after each figure, so that nothing is lost when this process ends early.

    With `ahead`, so many threads prepare what works on the device before anything is measured; the rest finds it
    compiled.
    """
    clock = Clock(options.quick)
    figures = [(job, p) for job in jobs for p in job.precisions]
    # All of the first rank in float32, then by default, then what matters less.
    figures.sort(key=lambda f: (f[0].rank, f[1] != "f32"))
    figures = [f for f in figures if options.only.lower() in f"{library} {f[0].name()}".lower()]
    prepared = {}
    if ahead:
        pool = ThreadPoolExecutor(ahead)
        prepared = {f: pool.submit(f[0].prepare, f[1]) for f in figures if f[0].arrays == "device"}
        wait_for(prepared.values(), timeout=0.6 * (options.deadline - time.monotonic()))
        pool.shutdown(wait=False, cancel_futures=True)
    for job, precision in figures:
        row = {"task": job.task, "library": library, "way": job.way, "arrays": job.arrays, "precision": precision}
        start = time.monotonic()
        if start > options.deadline - 1:
            row["error"] = "left out: no time left"
        else:
            try:
                if (job, precision) in prepared:
                    future = prepared[job, precision]
                    if not future.done() or future.cancelled():
                        raise TimeoutError("left out: not compiled in time")
                    call, wait, span, row["check"] = future.result()
                else:
                    call, wait, span, row["check"] = job.prepare(precision)
                row |= clock.measure(call, wait, span)
            except Exception as error:  # noqa: BLE001  (one failure is one row)
                row["error"] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
                print(f"{library}, {job.name()}, {precision}:", file=sys.stderr)
                traceback.print_exc(limit=-3)
        row["seconds"] = round(time.monotonic() - start, 2)  # with compiling
        append(options, row)


def append(options, row):
    with open(options.rows, "a") as file:
        file.write(json.dumps(row) + "\n")


# PyTorch.


def torch_jobs(options, only_compiled):
    import torch

    device = torch.device("cpu" if options.cpu else "cuda")
    if not options.cpu and not torch.cuda.is_available():
        raise RuntimeError("PyTorch finds no CUDA device")
    info = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    if not options.cpu:
        info |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
        info["cudnn"] = torch.backends.cudnn.version()
    append(options, {"info": info})
    by_default = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)

    def choose(precision):
        of_matmul, of_cudnn = by_default if precision == "default" else (False, False)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = of_matmul, of_cudnn

    def wait(_):
        if not options.cpu:
            torch.cuda.synchronize()

    def spanned(call):
        def span(k):
            if options.cpu:
                start = time.perf_counter()
                for _ in range(k):
                    call()
                return 1e3 * (time.perf_counter() - start)
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(k):
                call()
            last.record()
            torch.cuda.synchronize()
            return first.elapsed_time(last)

        return span

    def on_device(array):
        return torch.from_numpy(np.array(array)).to(device)

    def graphed(function, warm=3):
        """Its launches, recorded once. What it returns is overwritten by each replay."""
        if options.cpu:
            raise RuntimeError("CUDA graphs need CUDA")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm):
                function()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = function()

        def replay():
            graph.replay()
            return result

        return replay

    def finished(call, *checks, with_span=True):
        return call, wait, spanned(call) if with_span else None, list(checks)

    def to_numpy(tensor):
        return tensor.detach().cpu().numpy()

    class LSTM(torch.nn.Module):
        def __init__(self, p):
            super().__init__()
            i, h = p["w"].shape[0], p["u"].shape[0]
            self.lstm, self.out = torch.nn.LSTM(i, h), torch.nn.Linear(h, 1)
            self.to(device)
            own, out = self.lstm, self.out
            self.places = [own.weight_ih_l0, own.weight_hh_l0, own.bias_ih_l0, out.weight, out.bias]
            self.values = [np.ascontiguousarray(p[k].T) for k in ("w", "u", "b", "wo", "bo")]
            with torch.no_grad():
                own.bias_hh_l0.zero_()
            self.load()

        def load(self):
            with torch.no_grad():
                for place, value in zip(self.places, self.values):
                    place.copy_(torch.from_numpy(value))

        def recurrent(self):
            return to_numpy(self.lstm.weight_hh_l0)

        def forward(self, x):
            return self.out(self.lstm(x)[0][-1])

    class LayerNormLSTM(torch.nn.Module):
        def __init__(self, p, compiled):
            super().__init__()
            self.p = torch.nn.ParameterDict({k: torch.nn.Parameter(on_device(v)) for k, v in p.items()})
            self.values = p
            self.step = torch.compile(self.cell, dynamic=False) if compiled else self.cell

        def load(self):
            with torch.no_grad():
                for k, value in self.values.items():
                    self.p[k].copy_(torch.from_numpy(value))

        def recurrent(self):
            return to_numpy(self.p["u"])

        @staticmethod
        def cell(wx, h, c, u, gain, bias, gain_c, bias_c):
            size = (h.shape[-1],)
            z = (wx + h @ u).view(-1, 4, *size)
            i, f, g, o = (torch.nn.functional.layer_norm(z, size) * gain + bias).unbind(1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(torch.nn.functional.layer_norm(c, size, gain_c, bias_c)), c

        def forward(self, x):
            p = self.p
            h = c = x.new_zeros(x.shape[1], p["u"].shape[0])
            for wx in (x @ p["w"]).unbind(0):
                h, c = self.step(wx, h, c, p["u"], p["gain"], p["b"], p["gain_c"], p["bias_c"])
            return h @ p["wo"] + p["bo"]

    def training(model, x, y):
        parameters = [p for n, p in model.named_parameters() if "bias_hh" not in n]

        def step():
            loss = torch.nn.functional.mse_loss(model(x), y)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-LEARNING_RATE)
            return loss.detach()

        return step

    def train(make, inputs, graph, arrays, precision):
        choose(precision)
        p, x, y = inputs
        model = make(p)
        x_there, y_there = on_device(x), on_device(y)
        step = training(model, x_there, y_there)
        if graph:
            step = graphed(step)
        model.load()
        before = model.recurrent().copy()
        loss = size(to_numpy(step()))
        checks = loss, size_of_gradient(before, model.recurrent())
        if arrays == "device":
            return finished(step, *checks)

        def call():
            if arrays == "host all":
                model.load()
            x_there.copy_(torch.from_numpy(x))
            y_there.copy_(torch.from_numpy(y))
            loss = to_numpy(step())
            return loss, [to_numpy(v) for v in model.places] if arrays == "host all" else None

        return finished(call, *checks, with_span=False)

    def infer(inputs, graph, arrays, precision):
        choose(precision)
        p, x, _ = inputs
        model = LSTM(p).eval()
        x_there = on_device(x)

        def run():
            with torch.inference_mode():
                return model(x_there)

        if graph:
            run = graphed(run)
        check = size(to_numpy(run()))
        if arrays == "device":
            return finished(run, check)

        def call():
            with torch.inference_mode():
                x_there.copy_(torch.from_numpy(x))
            return to_numpy(run())

        return finished(call, check, with_span=False)

    def mlp(p, x):
        for k, (w, b) in enumerate(p):
            x = x @ w + b
            x = torch.tanh(x) if k + 1 < len(p) else x
        return x

    def jacobian(mode, batch, graph, precision):
        choose(precision)
        p, x = mlp_inputs(JACOBIAN_WIDTHS, batch)
        p, x = [(on_device(w), on_device(b)) for w, b in p], on_device(x)
        one = torch.func.vmap(mode(partial(mlp, p)))
        call = (lambda: one(x)) if not graph else graphed(lambda: one(x))
        return finished(call, size(to_numpy(call())))

    def lorenz_step(s):
        dt = LORENZ["dt"]

        def field(s):
            x, y, z = s.unbind(0)
            return torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z))

        k1 = field(s)
        k2 = field(s + dt / 2 * k1)
        k3 = field(s + dt / 2 * k2)
        k4 = field(s + dt * k3)
        return s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def lorenz(compiled, graph, precision):
        choose(precision)
        step = torch.compile(lorenz_step, dynamic=False) if compiled else lorenz_step
        start = on_device(lorenz_inputs())
        state = start.clone()
        in_graph = 100  # of the steps: recording all of them takes longer than it saves

        def several(k):
            s = state
            for _ in range(k):
                s = step(s)
            state.copy_(s)

        with torch.no_grad():
            replay = graphed(partial(several, in_graph), warm=1) if graph else None

        def call():
            with torch.no_grad():
                state.copy_(start)
                if replay is None:
                    several(LORENZ["steps"])
                else:
                    for _ in range(LORENZ["steps"] // in_graph):
                        replay()
            return state

        return finished(call, size(to_numpy(call())))

    def neural_ode(graph, precision):
        choose(precision)
        p, y0 = mlp_inputs(FIELD["widths"], FIELD["batch"])
        p, y0, dt = [(on_device(w), on_device(b)) for w, b in p], on_device(y0), FIELD["dt"]
        leaves = [v.requires_grad_() for pair in p for v in pair]

        def gradient():
            y = y0
            for _ in range(FIELD["steps"]):
                k1 = mlp(p, y)
                k2 = mlp(p, y + dt / 2 * k1)
                k3 = mlp(p, y + dt / 2 * k2)
                k4 = mlp(p, y + dt * k3)
                y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return torch.autograd.grad((y**2).mean(), leaves)

        call = graphed(gradient) if graph else gradient
        return finished(call, size(to_numpy(call()[0])))

    # Only cuDNN's precision differs by default, unless somebody chose otherwise.
    of_matmul = PRECISIONS if by_default[0] else ("f32",)
    ways = [("", False)] if options.cpu else [("", False), (", graph", True)]
    inputs_normed, task_normed = lstm_inputs(LN_SHAPE, normed=True), f"LayerNorm-LSTM training {label(LN_SHAPE)}"
    jobs = []
    if only_compiled:
        for suffix, graph in ways:
            jobs.append(Job("Lorenz", "compiled step" + suffix, partial(lorenz, True, graph), precisions=("f32",)))
            prepare = partial(train, partial(LayerNormLSTM, compiled=True), inputs_normed, graph, "device")
            jobs.append(Job(task_normed, "compiled cell" + suffix, prepare, precisions=of_matmul))
        return jobs
    for shape in LSTM_SHAPES:
        inputs = lstm_inputs(shape)
        for suffix, graph in ways:
            way = "nn.LSTM" + suffix
            for arrays in ("device", "host data", "host all"):
                prepare, precisions = (
                    partial(train, LSTM, inputs, graph, arrays),
                    PRECISIONS if arrays == "device" else ("f32",),
                )
                jobs.append(Job(f"LSTM training {label(shape)}", way, prepare, arrays, precisions))
            for arrays in ("device", "host"):
                prepare, precisions = (
                    partial(infer, inputs, graph, arrays),
                    PRECISIONS if arrays == "device" else ("f32",),
                )
                jobs.append(Job(f"LSTM inference {label(shape)}", way, prepare, arrays, precisions))
    for suffix, graph in ways:
        prepare = partial(train, partial(LayerNormLSTM, compiled=False), inputs_normed, graph, "device")
        jobs.append(Job(task_normed, "eager" + suffix, prepare, precisions=of_matmul))
        for batch in JACOBIAN_BATCHES:
            for name in ("jacrev", "jacfwd"):
                prepare = partial(jacobian, getattr(torch.func, name), batch, graph)
                way = f"vmap({name}){suffix}"
                jobs.append(Job(f"Jacobian batch {batch}", way, prepare, precisions=of_matmul, rank=int(graph)))
        jobs.append(Job("Lorenz", "eager" + suffix, partial(lorenz, False, graph), precisions=("f32",), rank=1))
        jobs.append(
            Job("neural ODE gradient", "eager" + suffix, partial(neural_ode, graph), precisions=of_matmul, rank=1)
        )
    return jobs


# JAX.


def jax_jobs(options):
    import jax
    import jax.numpy as jnp

    device = jax.devices()[0]
    if not options.cpu and device.platform == "cpu":
        raise RuntimeError("JAX finds no GPU")
    append(options, {"info": {"jax": jax.__version__, "jax device": getattr(device, "device_kind", str(device))}})

    def compiled(function, precision):
        """A function of its own for each precision, since JAX keeps what it compiled by the function."""
        name = "float32" if precision == "f32" else None

        def traced(*arguments):
            with jax.default_matmul_precision(name):
                return function(*arguments)

        return jax.jit(traced)

    def finished(call, *checks, with_span=True):
        def span(k):
            start = time.perf_counter()
            for _ in range(k):
                last = call()
            jax.block_until_ready(last)
            return 1e3 * (time.perf_counter() - start)

        return call, jax.block_until_ready, span if with_span else None, list(checks)

    def lstm(unroll, p, x):
        xs, zero = x @ p["w"] + p["b"], jnp.zeros((x.shape[1], p["u"].shape[0]), x.dtype)

        def cell(state, wx):
            h, c = state
            i, f, g, o = jnp.split(wx + h @ p["u"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        (h, _), _ = jax.lax.scan(cell, (zero, zero), xs, unroll=unroll)
        return h @ p["wo"] + p["bo"]

    def fused_lstm(p, x):
        from jax.experimental import rnn

        t, b, i = x.shape
        h = p["u"].shape[0]
        weights = jnp.concatenate([p["w"].T.ravel(), p["u"].T.ravel(), p["b"], jnp.zeros_like(p["b"])])
        zero = jnp.zeros((1, b, h), x.dtype)
        y, _, _ = rnn.lstm(x.transpose(1, 0, 2), zero, zero, weights, jnp.full((b,), t, jnp.int32), i, h, 1, 0.0, False)
        return y[:, -1] @ p["wo"] + p["bo"]

    def normed(x):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def layer_norm_lstm(unroll, p, x):
        h = p["u"].shape[0]
        xs, zero = x @ p["w"], jnp.zeros((x.shape[1], h), x.dtype)

        def cell(state, wx):
            h_before, c = state
            z = normed((wx + h_before @ p["u"]).reshape(-1, 4, h)) * p["gain"] + p["b"]
            i, f, g, o = (z[:, k] for k in range(4))
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(normed(c) * p["gain_c"] + p["bias_c"]), c), None

        (last, _), _ = jax.lax.scan(cell, (zero, zero), xs, unroll=unroll)
        return last @ p["wo"] + p["bo"]

    steps = {}  # compiled once for the ways to hand arrays over

    def train(forward, inputs, arrays, key, precision):
        p, x, y = inputs

        def step(p, x, y):
            loss, gradient = jax.value_and_grad(lambda p: ((forward(p, x) - y) ** 2).mean())(p)
            return jax.tree.map(lambda v, g: v - LEARNING_RATE * g, p, gradient), loss

        if (key, precision) not in steps:
            steps[key, precision] = compiled(step, precision)
        step = steps[key, precision]
        there = jax.device_put((p, x, y))
        after, loss = step(*there)
        checks = size(loss), size_of_gradient(p["u"], after["u"])
        if arrays == "host all":
            return finished(lambda: jax.device_get(step(p, x, y)), *checks, with_span=False)
        state = [there[0]]

        def call():
            state[0], loss = step(state[0], *(there[1:] if arrays == "device" else (x, y)))
            return (state[0], loss) if arrays == "device" else (state[0], np.asarray(loss))

        return finished(call, *checks, with_span=arrays == "device")

    def infer(forward, inputs, arrays, key, precision):
        p, x, _ = inputs
        if ("inference", key, precision) not in steps:
            steps["inference", key, precision] = compiled(forward, precision)
        run = steps["inference", key, precision]
        p, x_there = jax.device_put((p, x))
        if arrays == "device":
            return finished(lambda: run(p, x_there), size(run(p, x_there)))
        return finished(lambda: np.asarray(run(p, x)), size(run(p, x)), with_span=False)

    def mlp(p, x):
        for k, (w, b) in enumerate(p):
            x = x @ w + b
            x = jnp.tanh(x) if k + 1 < len(p) else x
        return x

    def jacobian(mode, batch, precision):
        run = compiled(lambda p, x: jax.vmap(mode(partial(mlp, p)))(x), precision)
        p, x = jax.device_put(mlp_inputs(JACOBIAN_WIDTHS, batch))
        return finished(lambda: run(p, x), size(run(p, x)))

    def runge_kutta(field, dt, y):
        k1 = field(y)
        k2 = field(y + dt / 2 * k1)
        k3 = field(y + dt / 2 * k2)
        k4 = field(y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def lorenz(unroll, precision):
        def field(s):
            x, y, z = s
            return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

        def all_steps(s):
            one = jax.vmap(partial(runge_kutta, field, LORENZ["dt"]), in_axes=1, out_axes=1)
            return jax.lax.scan(lambda s, _: (one(s), None), s, length=LORENZ["steps"], unroll=unroll)[0]

        run, start = compiled(all_steps, precision), jax.device_put(lorenz_inputs())
        return finished(lambda: run(start), size(run(start)))

    def neural_ode(unroll, precision):
        def loss(p, y0):
            def step(y, _):
                return runge_kutta(partial(mlp, p), FIELD["dt"], y), None

            y, _ = jax.lax.scan(step, y0, length=FIELD["steps"], unroll=unroll)
            return (y**2).mean()

        run = compiled(jax.grad(loss), precision)
        p, y0 = jax.device_put(mlp_inputs(FIELD["widths"], FIELD["batch"]))
        return finished(lambda: run(p, y0), size(run(p, y0)[0][0]))

    jobs = []
    ways = [("scan", partial(lstm, 1), 0), ("scan, unroll=8", partial(lstm, 8), 1)]
    if not options.cpu:
        ways.append(("experimental.rnn (cuDNN)", fused_lstm, 1))
    for shape in LSTM_SHAPES:
        inputs = lstm_inputs(shape)
        for way, forward, rank in ways:
            key = f"{way} {label(shape)}"
            for arrays in ("device", "host data", "host all") if rank == 0 else ("device",):
                prepare = partial(train, forward, inputs, arrays, key)
                precisions = PRECISIONS if arrays == "device" else ("f32",)
                jobs.append(Job(f"LSTM training {label(shape)}", way, prepare, arrays, precisions, rank))
            for arrays in ("device", "host") if rank == 0 else ("device",):
                prepare = partial(infer, forward, inputs, arrays, key)
                precisions = PRECISIONS if arrays == "device" else ("f32",)
                jobs.append(Job(f"LSTM inference {label(shape)}", way, prepare, arrays, precisions, rank))
    inputs = lstm_inputs(LN_SHAPE, normed=True)
    for unroll in (1, 8):
        way, rank = ("scan", 0) if unroll == 1 else (f"scan, unroll={unroll}", 1)
        prepare = partial(train, partial(layer_norm_lstm, unroll), inputs, "device", f"normed {unroll}")
        jobs.append(Job(f"LayerNorm-LSTM training {label(LN_SHAPE)}", way, prepare, rank=rank))
        jobs.append(Job("Lorenz", way, partial(lorenz, unroll), precisions=("f32",), rank=rank))
        jobs.append(Job("neural ODE gradient", way, partial(neural_ode, unroll), rank=rank))
    for batch in JACOBIAN_BATCHES:
        jobs.append(Job(f"Jacobian batch {batch}", "vmap(jacfwd)", partial(jacobian, jax.jacfwd, batch)))
    return jobs


# Processes and the table.

LIBRARIES = {
    "torch": lambda options: torch_jobs(options, only_compiled=False),
    "jax": jax_jobs,
    "torch.compile": lambda options: torch_jobs(options, only_compiled=True),
}


def work(options):
    try:
        jobs = LIBRARIES[options.library](options)
    except Exception as error:  # noqa: BLE001  (a library that is not there is one row)
        append(options, {"library": options.library, "error": f"{type(error).__name__}: {error}".split("\n")[0]})
        return
    run_jobs(options.library.split(".")[0], jobs, options, ahead=4 if options.library == "jax" else 0)


def start(library, seconds, options, rows):
    python = options.jax_python if library == "jax" else options.torch_python
    command = [python, os.path.abspath(__file__), options.out, "--library", library, "--rows", rows]
    command += ["--seconds", str(seconds), "--only", options.only]
    command += [flag for flag, wanted in (("--cpu", options.cpu), ("--quick", options.quick)) if wanted]
    environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false", TF_CPP_MIN_LOG_LEVEL="3")
    if options.cpu:
        environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    try:
        code = subprocess.run(command, env=environment, timeout=seconds + 2).returncode
        error = f"the process ended with {code}" if code else ""
    except subprocess.TimeoutExpired:
        error = "the process was ended: no time left"
    except OSError as reason:
        error = str(reason)
    if error:
        with open(rows, "a") as file:
            file.write(json.dumps({"library": library, "error": error}) + "\n")


def milliseconds(value):
    return "-" if value is None else f"{value:.4f}" if value < 1 else f"{value:.4g}"


def print_table(rows):
    cells = {}
    for row in rows:
        if "task" in row:
            key = (row["task"], row["library"], row["way"], row["arrays"])
            cells.setdefault(key, {})[row["precision"]] = row
    tasks = {}
    for key in cells:
        tasks.setdefault(key[0], []).append(key)
    heads = ["f32 call", "stream", "default call", "stream"]
    print(f"{'ms':50}" + "".join(f"{h:>14}" for h in heads) + f"{'off by':>10}")
    for task, keys in tasks.items():
        print(task)
        reference = next((c["f32"]["check"] for c in map(cells.get, keys) if "check" in c.get("f32", {})), None)
        for key in keys:
            cell, line = cells[key], ""
            for precision in PRECISIONS:
                row = cell.get(precision, {})
                line += "".join(f"{milliseconds(row.get(k)):>14}" for k in ("call_ms", "stream_ms"))
            check = cell.get("f32", {}).get("check")
            off = "-"
            if check is not None:
                off = f"{max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(check, reference)):.0e}"
            arrays = "" if key[3] == "device" else f", {key[3]}"
            print(f"{f'  {key[1]}, {key[2]}{arrays}':50}{line}{off:>10}")
            for error in dict.fromkeys(r["error"] for r in cell.values() if "error" in r):
                print(f"      {error}")
    for row in rows:
        if "error" in row and "task" not in row:
            print(f"{row['library']}: {row['error']}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="where the JSON goes")
    parser.add_argument("--only", default="", help="figures whose name holds this")
    parser.add_argument("--budget", type=float, default=95.0, help="seconds for all")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--jax-python", default=sys.executable)
    for internal in ("--library", "--rows"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    begin = time.monotonic()
    if options.library:
        options.deadline = begin + options.seconds
        work(options)
        sys.stderr.flush()
        os._exit(0)  # what still compiles is not waited for
    end = begin + options.budget
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        open(path, "w").close()
        # Compilers that take long come last, with what is left.
        for library, share in (("torch", 0.4), ("jax", 0.8), ("torch.compile", 1.0)):
            left = end - time.monotonic() if share == 1 else options.budget * share - (time.monotonic() - begin)
            if left < 5:
                with open(path, "a") as file:
                    file.write(json.dumps({"library": library, "error": "left out: no time left"}) + "\n")
            else:
                start(library, left - 2, options, path)
        with open(path) as file:
            rows = [json.loads(line) for line in file]
    info = {"python": sys.version.split()[0], "seconds": round(time.monotonic() - begin, 1)}
    for row in rows:
        info |= row.get("info", {})
    print(", ".join(f"{k} {v}" for k, v in info.items()))
    rows = [row for row in rows if "info" not in row]
    print_table(rows)
    with open(options.out, "w") as file:
        json.dump({"info": info, "options": {"cpu": options.cpu, "quick": options.quick}, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
