#!/usr/bin/env python3
"""Writes NAME.json, random models in RTNeural's format, and NAME.csv, what RTNeural gives for them: inputs, then outputs, a line a step.

usage: record.py RTNEURAL      (its sources: ./dev bench --install rtneural puts them into .cache/bench/rtneural)
"""

import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).parent
STEPS = 24


def uniform(source, *shape):
    return round(source.uniform(-0.7, 0.7), 4) if not shape else [uniform(source, *shape[1:]) for _ in range(shape[0])]


def layer(kind, size, weights, **more):
    return {"type": kind, "activation": "", "shape": [None, None, size], "weights": weights, **more}


def dense(source, inputs, units, activation=""):
    return {**layer("dense", units, [uniform(source, inputs, units), uniform(source, units)]), "activation": activation}


def lstm(source, inputs, hidden):
    return layer("lstm", hidden, [uniform(source, inputs, 4 * hidden), uniform(source, hidden, 4 * hidden), uniform(source, 4 * hidden)])


def gru(source, inputs, hidden):
    return layer("gru", hidden, [uniform(source, inputs, 3 * hidden), uniform(source, hidden, 3 * hidden), uniform(source, 2, 3 * hidden)])


def conv(source, inputs, filters, kernel, dilation, groups=1, activation=""):
    weights = [uniform(source, kernel, inputs // groups, filters), uniform(source, filters)]
    return {**layer("conv1d", filters, weights, kernel_size=[kernel], dilation=[dilation], groups=groups), "activation": activation}


def batchnorm(source, features, affine):
    scales = [uniform(source, features), uniform(source, features)] if affine else []
    positive = [abs(v) + 0.1 for v in uniform(source, features)]
    return layer("batchnorm", features, [*scales, uniform(source, features), positive], epsilon=0.001)


def models(source):
    yield "dense", 3, [dense(source, 3, 5, "tanh"), dense(source, 5, 4, "relu"), dense(source, 4, 4, "sigmoid"),
                       dense(source, 4, 5, "elu"), {**dense(source, 5, 3), "type": "time-distributed-dense"},
                       {**layer("activation", 3, []), "activation": "softmax"}]  # fmt: skip
    yield "lstm", 2, [lstm(source, 2, 5), dense(source, 5, 1)]
    yield "gru", 1, [gru(source, 1, 6), gru(source, 6, 4), dense(source, 4, 2)]
    yield "conv1d", 2, [conv(source, 2, 4, 3, 1, activation="tanh"), batchnorm(source, 4, True), conv(source, 4, 6, 2, 4, groups=2), batchnorm(source, 6, True),
                        layer("prelu", 6, [[uniform(source, 6)]]), dense(source, 6, 3), batchnorm(source, 3, False), conv(source, 3, 1, 1, 1)]  # fmt: skip


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "record"
        subprocess.run(["g++", "-O2", "-std=c++17", "-w", "-DRTNEURAL_USE_STL=1", "-DRTNEURAL_DEFAULT_ALIGNMENT=16", f"-I{sys.argv[1]}",
                        str(FOLDER / "record.cpp"), "-o", str(program)], check=True)  # fmt: skip
        for name, features, layers in models(random.Random(11)):
            file = FOLDER / f"{name}.json"
            file.write_text(json.dumps({"in_shape": [None, None, features], "layers": layers}) + "\n")
            rows = [" ".join(f"{math.sin(0.37 * t * (f + 1)) + 0.2 * f:.6f}" for f in range(features)) for t in range(STEPS)]
            done = subprocess.run([str(program), str(file)], input="\n".join(rows) + "\n", capture_output=True, text=True, check=True)
            (FOLDER / f"{name}.csv").write_text("".join(f"{a.replace(' ', ',')},{b}\n" for a, b in zip(rows, done.stdout.split())))


if __name__ == "__main__":
    main()
