"""What is computed: a task's sizes, inputs, reference result and tolerance."""

import dataclasses
import fnmatch
import importlib
import pathlib
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the reference: |result - reference| / |reference|, both in the 2-norm, or with `pointwise` the
    largest difference over the largest |reference|. `start` names an input: the change from it is compared instead, since a step
    of an optimiser moves a parameter by little."""

    relative: float
    pointwise: bool = True
    start: bool = False


@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    kind: str  # what an implementation provides a function for
    sizes: dict
    inputs: Callable[[dict], dict[str, np.ndarray]]  # of the sizes; the same numbers at every call
    # (sizes, inputs, variant) -> results in float64. A variant is a definition that a rival cannot leave (one bias in place of two).
    reference: Callable[[dict, dict, str], dict[str, np.ndarray]]
    tolerances: dict[str, Tolerance]  # by the name of the result; those with required=... must be given
    required: tuple[str, ...]
    group: str  # rows that stand together in the table
    title: str
    target: str = ""  # what the project asks of itself, as text
    flops: float = 0.0  # of one unit: multiplications and additions of the products alone
    unit: str = "call"

    def make_inputs(self):
        return self.inputs(self.sizes)


def rng(*words):
    """Random numbers that depend on these words alone."""
    return np.random.default_rng(list("/".join(map(str, words)).encode()))


def all_tasks():
    """The tasks of every file in bench/tasks, in the files' order of ORDER."""
    modules = [importlib.import_module(f"tasks.{p.stem}") for p in sorted((pathlib.Path(__file__).parents[1] / "tasks").glob("[!_]*.py"))]
    modules.sort(key=lambda m: m.ORDER)
    return [task for m in modules for task in m.TASKS]


def select(tasks, patterns):
    """Tasks whose name or group fits one of the patterns (shell wildcards, or a beginning)."""
    chosen = [t for t in tasks if any(fnmatch.fnmatch(t.name, p) or t.name.startswith(p) or t.group == p for p in patterns)]
    missing = [p for p in patterns if not any(fnmatch.fnmatch(t.name, p) or t.name.startswith(p) or t.group == p for t in tasks)]
    if missing:
        groups = sorted({t.group for t in tasks})
        raise SystemExit(f"[bench] a task must exist. Received: {missing[0]}. Try: --list; groups are {', '.join(groups)}")
    return chosen
