#!/usr/bin/env python3
"""DETEST problem by problem: how many times faster than SciPy, at equal accuracy (tasks/detest.py tells how that is made equal).

Each problem is a task of its own: results are compared with the reference first, then both sides are timed in turns, pinned to one core.

usage: bench/ode/detest.py [--build build/release] [--rival scipy|scipy_odeint] [--rounds 3]
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import compare, implementations  # noqa: E402
from harness.process import Worker  # noqa: E402
from harness.task import Task, Tolerance  # noqa: E402
from tasks import detest  # noqa: E402


def ratio(name, digits, workers, rounds):
    task = Task(name=name, kind="ode_detest", sizes=dict(digits=digits, only=name), inputs=detest.inputs, reference=detest.reference,
                tolerances={"*": Tolerance(10.0**-digits)}, required=(name,), group="", title="")  # fmt: skip
    given = task.make_inputs()
    for worker in workers:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "in").mkdir()
            np.save(pathlib.Path(folder) / "in" / f"{name}.npy", given[name])
            _, results = worker.prepare(task, folder, 60)
            compare.check(task, given, detest.reference(task.sizes, given, ""), results)
    times = [[worker.time(0.03, 60)["median"] for worker in workers] for _ in range(rounds)]
    return statistics.median(theirs / ours for ours, theirs in times), [statistics.median(t) for t in zip(*times, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=implementations.ROOT / "build" / "release")
    parser.add_argument("--rival", default="scipy")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    workers = []
    for name in ("hotloop", options.rival):
        found = implementations.find(name, options.build, ())
        if isinstance(found, str):
            raise SystemExit(f"[bench] {found}")
        workers.append(Worker(found, 1, pin=True))
    for digits in detest.DIGITS:
        ratios = {}
        for name in detest.recorded():
            ratios[name], (ours, theirs) = ratio(name, digits, workers, options.rounds)
            print(f"{name} {digits} digits: {ours * 1e6:8.1f} us, {options.rival} {theirs * 1e6:8.0f} us, {ratios[name]:6.0f} times", flush=True)
        ordered = sorted(ratios.values())
        print(f"{digits} digits: median {statistics.median(ordered):.0f}, least {ordered[0]:.0f}, quarters {ordered[6]:.0f} to {ordered[18]:.0f}, "
              f"most {ordered[-1]:.0f}", flush=True)  # fmt: skip
    for worker in workers:
        worker.stop()


if __name__ == "__main__":
    main()
