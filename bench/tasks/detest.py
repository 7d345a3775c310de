"""DETEST: 25 problems that are not stiff, from t = 0 to 20 (Hull, Enright, Fellen, Sedgwick 1972), one call a problem.

Compared at equal accuracy: each side has, problem by problem, the method and the loosest tolerance with which its error at t = 20 is below
10^-digits of the largest component. _record_detest.py searches them (detest_settings.json); every result is checked against that
accuracy before it is timed. References are closed forms or DOP853 at its limit: tests/parity/data/scipy_ode.json. `only` selects one problem.
"""

import functools
import json
import pathlib

import numpy as np
from harness.prepared import Prepared
from harness.task import Task, Tolerance

ORDER = 5.5
ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = pathlib.Path(__file__).with_name("detest_settings.json")
DIGITS = (3, 6, 9)


@functools.cache
def recorded():
    return {c["problem"]: c for c in json.loads((ROOT / "tests/parity/data/scipy_ode.json").read_text())["detest"]}


def setting(implementation, sizes, problem):
    """(method, tolerance)"""
    return json.loads(SETTINGS.read_text())[implementation][str(sizes["digits"])][problem]


def inputs(sizes):
    return {name: np.array(case["y0"]) for name, case in recorded().items() if sizes.get("only", name) == name}


def reference(sizes, given, variant):
    """States at t = 0 and 20: an error counts beside the largest number of both."""
    return {name: np.array([y0, recorded()[name]["ys"][-1]]) for name, y0 in given.items()}


def prepared(given, solvers):
    """`solvers`: a problem's name -> (function of y(0) and tolerance, tolerance)."""
    runs = [(solve, given[name], tolerance) for name, (solve, tolerance) in solvers.items()]
    results = {name: np.stack([given[name], np.array(solve(given[name], tolerance))]) for name, (solve, tolerance) in solvers.items()}

    def call():
        for solve, y0, tolerance in runs:
            solve(y0, tolerance)

    return Prepared(call, results)


TASKS = [
    Task(
        name=f"ode_detest_{digits}", kind="ode_detest", sizes=dict(digits=digits), inputs=inputs, reference=reference,
        tolerances={"*": Tolerance(10.0**-digits)}, required=tuple(recorded()), group="differential equations",
        title=f"DETEST, 25 problems one after the other, {digits} digits", target=">= 100",
    ) for digits in DIGITS
]  # fmt: skip
