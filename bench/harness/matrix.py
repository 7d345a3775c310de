"""Runs tasks x implementations: results checked first, then times in turns."""

import dataclasses
import hashlib
import pathlib
import statistics
import sys
import tempfile
import types

import numpy as np

from harness import compare
from harness.implementations import CACHE
from harness.process import Failed

PREPARE_LIMIT = 900  # seconds; some rivals compile for minutes


@dataclasses.dataclass
class Cell:
    """What one implementation gave for one task."""

    rounds: list[dict] = dataclasses.field(default_factory=list)  # of {"median", "least", "calls"}, seconds
    problem: str = ""  # why there is no time
    unsupported: bool = False
    error: tuple[str, float] = ("", 0.0)  # the result that came closest to its tolerance, and its error
    prepared: float = 0.0  # seconds to build, compile and give the first results
    versions: str = ""
    note: str = ""

    @property
    def median(self):
        return statistics.median(r["median"] for r in self.rounds) if self.rounds else None

    @property
    def spread(self):
        medians = [r["median"] for r in self.rounds]
        return (min(medians), max(medians)) if medians else None

    def as_json(self):
        fields = {"seconds": self.median, "spread": self.spread, "rounds": self.rounds, "prepared_seconds": self.prepared,
                  "error": {"result": self.error[0], "value": self.error[1]}, "versions": self.versions, "note": self.note}  # fmt: skip
        return fields if self.rounds else {"problem": self.problem}


def reference_of(task, inputs, variant):
    """From the cache if these very inputs and this very code were seen before: some references take a minute."""
    digest = hashlib.sha256(f"{task.kind} {sorted(task.sizes.items())} {variant}".encode())
    for name in sorted(inputs):
        digest.update(name.encode() + np.ascontiguousarray(inputs[name]).tobytes())
    # Formulas that references share with implementations are in these modules.
    shared = [m.__file__ for m in vars(sys.modules[task.reference.__module__]).values() if isinstance(m, types.ModuleType) and m.__name__.startswith("impls.")]
    for source in (task.reference.__code__.co_filename, pathlib.Path(__file__).with_name("tape.py"), *shared):
        digest.update(pathlib.Path(source).read_bytes())
    file = CACHE / "references" / f"{digest.hexdigest()[:24]}.npz"
    if file.exists():
        with np.load(file) as stored:
            return dict(stored)
    reference = task.reference(task.sizes, inputs, variant)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **reference)
    return reference


def run_task(task, workers, rounds, seconds):
    """{implementation: Cell} for one task. `workers`: {name: Worker}."""
    inputs = task.make_inputs()
    cells = {name: Cell() for name in workers}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "in").mkdir()
        for name, array in inputs.items():
            np.save(pathlib.Path(folder) / "in" / f"{name}.npy", array)
        for name, worker in workers.items():
            _prepare(task, inputs, worker, folder, cells[name])
        ready = [name for name in workers if not cells[name].problem]
        for k in range(rounds):
            # Another order each round, so that none always follows the same neighbour.
            for name in ready[k % max(len(ready), 1) :] + ready[: k % max(len(ready), 1)]:
                if cells[name].problem:
                    continue
                try:
                    cells[name].rounds.append(workers[name].time(seconds, PREPARE_LIMIT))
                except Failed as failure:
                    cells[name].problem, cells[name].rounds = str(failure), []
        for worker in workers.values():
            try:
                worker.forget()
            except Failed:
                worker.stop()
    return cells


def _prepare(task, inputs, worker, folder, cell):
    try:
        answer, results = worker.prepare(task, folder, PREPARE_LIMIT)
    except Failed as failure:
        cell.problem = str(failure)
        print(f"[bench] {task.name}: {worker.impl.name} failed: {cell.problem}", file=sys.stderr, flush=True)
        return
    if "unsupported" in answer:
        cell.problem, cell.unsupported = answer["unsupported"], True
        return
    cell.prepared, cell.versions, cell.note = answer["prepared"], answer["versions"], answer.get("note", "")
    try:
        cell.error = compare.check(task, inputs, reference_of(task, inputs, answer.get("variant", "")), results)
    except compare.Mismatch as mismatch:
        cell.problem = f"wrong result: {mismatch}"
        print(f"[bench] {task.name}: {worker.impl.name} gives a WRONG RESULT: {mismatch}", file=sys.stderr, flush=True)


def ratios(cells, name, base, measure="median"):
    """time of `name` : time of `base`. measure: "median", of each turn's calls, a number a round (a pair of turns ran side by side);
    or "least", the fastest calls of all rounds, one number, which other programs on the machine disturb least."""
    a, b = cells.get(name), cells.get(base)
    if not a or not b or not a.rounds or not b.rounds:
        return None
    if measure == "least":
        return [min(r["least"] for r in a.rounds) / min(r["least"] for r in b.rounds)]
    return [x[measure] / y[measure] for x, y in zip(a.rounds, b.rounds)]
