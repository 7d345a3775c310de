"""One step at a time: LSTM(8, H) and Linear(H, 1) on one row, the state carried from call to call.

Inputs: x (T, 8) and the parameters by PyTorch's names. Result: y (T), what each step gives from a zero state.
"""

import numpy as np
from harness import tape
from harness.task import Task, Tolerance

from tasks import recurrent

ORDER = 2
STEPS, FEATURES = 1000, 8


def inputs(sizes):
    given = recurrent.inputs(dict(cell="lstm", T=sizes["T"], I=sizes["I"], H=sizes["H"], B=1, layers=1, directions=1))
    given["x"] = given["x"][0]
    del given["y"]
    return given


def reference(sizes, given, variant):
    p = {k: tape.Var(v) for k, v in given.items() if k != "x"}
    shape = dict(cell="lstm", T=sizes["T"], I=sizes["I"], H=sizes["H"], B=1, layers=1, directions=1)
    ys = recurrent.outputs(shape, p, np.asarray(given["x"], np.float64)[None])
    return {"y": np.array([float((h @ p["head.weight"].T + p["head.bias"]).value[0, 0]) for h in ys])}


def task(kind, h, title, target):
    return Task(
        name=f"{kind}_H{h}",
        kind=kind,
        sizes=dict(T=STEPS, I=FEATURES, H=h),
        inputs=inputs,
        reference=reference,
        tolerances={"y": Tolerance(1e-5)},
        required=("y",),
        group="streaming",
        title=f"LSTM H{h}, {title}",
        target=target,
        flops=2.0 * (FEATURES + h) * 4 * h,
        unit="step",
    )


# A step a call: from Python, and from C++ (`stream_native`), which have rivals of their own. `stream_sequence`: all steps in one call.
TASKS = [task("stream", h, "a step, called from Python", t) for h, t in ((16, "<= 1.2 us"), (64, "<= 1.5 us"), (128, "<= 2.6 us"))]
TASKS += [task("stream_native", h, "a step, called from C++", t) for h, t in ((16, "<= 50 ns"), (64, "<= 380 ns"), (128, "<= 1500 ns"))]
TASKS += [task("stream_sequence", h, "1000 steps in one call", t) for h, t in ((16, "<= 60 ns"), (64, "<= 400 ns"), (128, "<= 1550 ns"))]
