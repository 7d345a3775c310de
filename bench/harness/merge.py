"""Runs of the benchmark that were made one after the other, as the rounds of one: ./dev bench --merge RUN.json RUN.json ... --name NAME.

A row has the rounds of all runs that measured it, in their order. An implementation that failed in one of them has no time there, nor here.
"""

import json
import sys

from harness.matrix import Cell
from harness.task import all_tasks


def cell_of(fields):
    if "rounds" not in fields:
        return Cell(problem=fields["problem"])
    error = (fields["error"]["result"], fields["error"]["value"])
    return Cell(rounds=list(fields["rounds"]), error=error, prepared=fields["prepared_seconds"], versions=fields["versions"], note=fields["note"])


def add(known, cell):
    """The rounds of both, or the problem that either had."""
    known.problem = known.problem or cell.problem
    known.rounds = [] if known.problem else known.rounds + cell.rounds
    known.prepared = min(known.prepared, cell.prepared)


def joined(values):
    return ", ".join(dict.fromkeys(map(str, values)))


def merged(runs):
    """(results as a report takes them, what it says of the run) of runs as their JSON files have them."""
    machines = [run["machine"] for run in runs]
    kinds = [f"{m['cpu']}, {m.get('vectors')}" for m in machines]
    if len(set(kinds)) > 1:
        sys.exit("[bench] runs of one processor can be merged. Received: " + joined(kinds))
    tasks = {task.name: task for task in all_tasks()}
    cells = {}  # (task, threads) -> {implementation: Cell}
    for run in runs:
        for row in run["rows"]:
            found = cells.setdefault((row["task"], row["threads"]), {})
            for name, fields in row["implementations"].items():
                if name in found:
                    add(found[name], cell_of(fields))
                else:
                    found[name] = cell_of(fields)
    counts = [len(cell.rounds) for row in cells.values() for cell in row.values() if cell.rounds]
    order = list(tasks)
    rows = sorted(cells, key=lambda key: (key[1], order.index(key[0])))
    meta = {
        "machine": {**machines[-1], "revision": joined(m["revision"] for m in machines), "load_at_start": max(m["load_at_start"] for m in machines)},
        "rounds": " to ".join(dict.fromkeys(map(str, (min(counts), max(counts))))),
        "seconds": joined(run["seconds"] for run in runs),
        "threads": sorted({threads for _, threads in cells}),
        "pin": all(run["pin"] for run in runs),
        "quiet": all(run["quiet"] for run in runs),
        "versions": {name: version for run in runs for name, version in run["versions"].items()},
    }
    return [(tasks[name], threads, cells[name, threads]) for name, threads in rows], meta


def read(files):
    runs = []
    for file in files:
        try:
            runs.append(json.loads(file.read_text()))
            runs[-1]["rows"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            sys.exit(f"[bench] a run must be the JSON file of one. Received: {file} ({problem}). Try: what --json FILE wrote")
    return runs
