"""What bench/gpu/rivals.py measures with: shapes and inputs, the same for both libraries, the clock and the jobs."""

import json
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from statistics import median

import numpy as np

LSTM_SHAPES = [
    {"I": 8, "H": 64, "B": 512, "T": 100},
    {"I": 8, "H": 32, "B": 32, "T": 200},
    {"I": 12, "H": 128, "B": 256, "T": 60},
    {"I": 64, "H": 256, "B": 128, "T": 100},
    {"I": 64, "H": 512, "B": 64, "T": 100, "layers": 2},
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
    """Gates in the order i, f, g, o. Weights multiply from the right. "above": of the layers above the first."""
    rng = np.random.default_rng(7)
    i, h, b, t = (shape[k] for k in "IHBT")

    def layer(inputs):
        return {
            "w": uniform(rng, inputs, 4 * h, fan_in=h),
            "u": uniform(rng, h, 4 * h, fan_in=h),
            "b": uniform(rng, 4 * h, fan_in=h),
        }

    p = layer(i) | {"wo": uniform(rng, h, 1, fan_in=h), "bo": uniform(rng, 1, fan_in=h)}
    if normed:
        p |= {"gain": np.ones((4, h), np.float32), "gain_c": np.ones(h, np.float32), "bias_c": np.zeros(h, np.float32)}
        p["b"] = p["b"].reshape(4, h)
    else:
        p["above"] = [layer(h) for _ in range(1, shape.get("layers", 1))]
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
    figures = [(job, p) for job in jobs for p in job.precisions if p == "f32" or not options.f32]
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
