"""The benchmark's harness: what it refuses, and that a small task goes through."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
RIVAL = '''
import numpy as np
from harness.prepared import Prepared

def setup(threads):
    print("what a library prints does not disturb the protocol")

def versions():
    return "rival 1"

def recurrent_infer(sizes, inputs):
    outputs = np.load(inputs and {truth!r})
    {change}
    return Prepared(lambda: None, {{"outputs": outputs}})
'''


@pytest.fixture
def harness(monkeypatch, tmp_path):
    """The harness' modules, which stand beside no package."""
    monkeypatch.syspath_prepend(str(BENCH))
    from harness import implementations, matrix

    monkeypatch.setattr(matrix, "CACHE", tmp_path)
    monkeypatch.setattr(implementations, "CACHE", tmp_path)
    yield implementations
    for name in [m for m in sys.modules if m.split(".")[0] in ("harness", "tasks", "impls")]:
        del sys.modules[name]


def run(harness, task, rivals, tmp_path):
    from harness import matrix
    from harness.process import Worker

    worker = str(BENCH / "harness/worker.py")
    path = os.pathsep.join(p for p in sys.path if p and p != str(BENCH))
    impls = {"hotloop": harness.Implementation("hotloop", (sys.executable, worker, "hotloop"), {"PYTHONPATH": path}, tmp_path / "hotloop.log")}
    truth = tmp_path / "truth.npy"
    np.save(truth, task.reference(task.sizes, task.make_inputs(), "")["outputs"])
    for name, change in rivals.items():
        file = tmp_path / f"{name}.py"
        file.write_text(RIVAL.format(truth=str(truth), change=change))
        impls[name] = harness.find(str(file), tmp_path, [sys.executable])
    workers = {name: Worker(impl, 1) for name, impl in impls.items()}
    try:
        return matrix.run_task(task, workers, rounds=2, seconds=0.001)
    finally:
        for worker in workers.values():
            worker.stop()


def test_wrong_numbers_give_no_time(harness, tmp_path, capfd):
    from tasks import recurrent

    task = recurrent.task("lstm", 3, 2, 4, 2, infer=True)
    rivals = {
        "right": "pass",
        "wrong": "outputs[0, -1, 2] += 1e-3",
        "not_a_number": "outputs[:] = np.nan",
        "short": "outputs = outputs[:1]",
        "broken": "raise RuntimeError('no such cell')",
        "dead": "import os; os._exit(3)",
    }
    cells = run(harness, task, rivals, tmp_path)
    for name in ("hotloop", "right"):
        assert len(cells[name].rounds) == 2 and cells[name].median > 0, (name, cells[name].problem)
    for name, problem in {
        "wrong": "wrong result: outputs differs from the reference by",
        "not_a_number": "wrong result: outputs is not finite",
        "short": "wrong result: outputs has shape (1, 3, 4), the reference (2, 3, 4)",
        "broken": "RuntimeError: no such cell",
        "dead": "ended with status 3",
    }.items():
        assert cells[name].rounds == [] and cells[name].problem.startswith(problem), (name, cells[name].problem)
    assert "wrong gives a WRONG RESULT" in capfd.readouterr().err

    from harness import chart, report

    meta = {"machine": dict(cpu="a cpu", cores=2, date="2026-01-01", revision="abc", load_at_start=0.0, OPENBLAS_CORETYPE="not set"),
            "rounds": 2, "seconds": 0.001, "threads": [1], "pin": False, "quiet": False, "versions": {"right": "rival 1"}}  # fmt: skip
    results = [(task, 1, cells)]
    row = next(line for line in report.markdown(results, meta, list(cells)).splitlines() if line.startswith("| LSTM T3"))
    assert row.count("wrong result") == 3 and row.count("failed") == 2
    assert '"problem": "wrong result' in report.as_json(results, meta)
    svg = chart.ratios(results, meta)
    assert "right" in svg and "wrong" not in svg.replace("wrong result", "")


def test_training_and_op_by_op(harness, tmp_path):
    """Gradients and Adam against the harness' own NumPy reference, fused and dispatched."""
    from harness import matrix
    from harness.process import Worker
    from tasks import recurrent

    worker = str(BENCH / "harness/worker.py")
    path = os.pathsep.join(p for p in sys.path if p and p != str(BENCH))
    workers = {
        name: Worker(harness.Implementation(name, (sys.executable, worker, name), {"PYTHONPATH": path}, tmp_path / f"{name}.log"), 1)
        for name in ("hotloop", "hotloop_per_op")
    }
    try:
        for cell in ("lstm", "ln_lstm"):
            cells = matrix.run_task(recurrent.task(cell, 3, 2, 4, 2), workers, rounds=1, seconds=0.001)
            for name, c in cells.items():
                assert len(c.rounds) == 1, (name, c.problem)
    finally:
        for w in workers.values():
            w.stop()


def test_programs_drawn_at_random(harness, tmp_path):
    """Each kind of network, with each thing that is asked of it, gives the reference's numbers; and the page about them."""
    from harness import draws, matrix, random_programs
    from harness.process import Worker
    from tasks import _random_programs

    tasks = random_programs.draw(len(_random_programs.ASKED), seed=1, work=1e6)
    assert [(t.sizes["network"], t.sizes["of"]) for t in tasks] == _random_programs.ASKED
    worker = str(BENCH / "harness/worker.py")
    path = os.pathsep.join(p for p in sys.path if p and p != str(BENCH))
    ours = Worker(harness.Implementation("hotloop", (sys.executable, worker, "hotloop"), {"PYTHONPATH": path}, tmp_path / "hotloop.log"), 1)
    try:
        results = [(t, 1, matrix.run_task(t, {"hotloop": ours}, rounds=1, seconds=0.001)) for t in tasks]
    finally:
        ours.stop()
    for task, _, cells in results:
        assert len(cells["hotloop"].rounds) == 1, (task.title, cells["hotloop"].problem)
    # Beside a rival that takes twice the time, but for one task with which it fails.
    for _, _, cells in results:
        cells["jax"] = matrix.Cell(rounds=[{k: 2 * v for k, v in r.items()} for r in cells["hotloop"].rounds])
    results[0][2]["jax"] = matrix.Cell(problem="no such cell")
    found = draws.collect(results, ["jax"], "median")
    rows = draws.distribution(found, random_programs.DRAWS.classes)
    assert ("jax", "all", len(tasks) - 1, 2.0) in [row[:4] for row in rows]
    meta = {"machine": dict(cpu="a cpu", cores=2, date="2026-01-01", revision="abc", load_at_start=0.0, OPENBLAS_CORETYPE="not set"),
            "rounds": 1, "seconds": 0.001, "threads": [1], "pin": False, "quiet": True, "versions": {}, "seed": 1}  # fmt: skip
    page = draws.markdown(random_programs.DRAWS, found, rows, results, meta)
    assert "12 draws of a perceptron" in page and page.count("| 2.00 | 2.00 |\n") >= len(tasks) - 1
    assert f"Failed: {tasks[0].title}: JAX: no such cell" in page


def test_tasks_have_distinct_names_and_references(harness):
    from harness.task import all_tasks, select

    tasks = all_tasks()
    assert len({t.name for t in tasks}) == len(tasks)
    small = next(t for t in tasks if t.name == "mlp_gradient_24_8_2")
    reference = small.reference(small.sizes, small.make_inputs(), "")
    assert set(small.required) <= set(reference)
    with pytest.raises(SystemExit, match="a task must exist. Received: lsmt"):
        select(tasks, ["lsmt"])


def one_run(rounds, problem="", cpu="one", **implementations):
    """What --json writes of a run of one task, as far as --merge reads it."""
    measured = {name: {"rounds": [{"median": t, "least": t / 2, "calls": 1} for t in times], "prepared_seconds": 1.0, "versions": name, "note": "",
                       "error": {"result": "outputs", "value": 0.0}} for name, times in implementations.items()}  # fmt: skip
    if problem:
        measured["torch"] = {"problem": problem}
    row = {"task": "matvec_100x100", "threads": 1, "implementations": measured}
    machine = {"cpu": cpu, "cores": 2, "date": "today", "revision": "abc", "load_at_start": 0.5, "OPENBLAS_CORETYPE": "x"}
    return {"machine": machine, "rounds": rounds, "seconds": 0.1, "threads": [1], "pin": True, "quiet": True, "versions": {n: n for n in implementations}, "rows": [row]}


def test_runs_one_after_the_other_are_merged_as_rounds_of_one(harness):
    from harness import matrix, merge, report

    (row,), meta = merge.merged([one_run(2, hotloop=[1, 2], torch=[4, 6]), one_run(1, hotloop=[3], torch=[9])])
    task, threads, cells = row
    assert (task.name, threads, cells["hotloop"].median, cells["hotloop"].spread) == ("matvec_100x100", 1, 2, (1, 3))
    assert matrix.ratios(cells, "torch", "hotloop") == [4, 3, 3]
    assert meta["rounds"] == "3" and meta["quiet"] and meta["machine"]["revision"] == "abc"
    assert "3 rounds in turns of about 0.1 s" in report.markdown([row], meta, ["hotloop", "torch"], "both")
    # One that failed once has no time; who was there once has the rounds of that run.
    ((_, _, cells),), meta = merge.merged([one_run(2, hotloop=[1, 2], jax=[5, 5]), one_run(1, problem="it crashed", hotloop=[3])])
    assert cells["torch"].problem == "it crashed" and not cells["torch"].rounds and len(cells["jax"].rounds) == 2
    assert meta["rounds"] == "2 to 3"
    with pytest.raises(SystemExit, match="of one processor can be merged. Received: one, None, another, None"):
        merge.merged([one_run(1, hotloop=[1]), one_run(1, hotloop=[1], cpu="another")])


def test_merging_says_what_is_no_run(harness, tmp_path):
    from harness import merge

    (tmp_path / "other.json").write_text("[1, 2]")
    for name in ("other.json", "absent.json"):
        with pytest.raises(SystemExit, match=r"must be the JSON file of one. Received: .*Try: what --json FILE wrote"):
            merge.read([tmp_path / name])


def test_a_missing_rival_is_said_with_the_command(harness, tmp_path):
    assert harness.find("heyoka", tmp_path, ["/no/such/python"]) == "heyoka is not installed: ./dev bench --install heyoka"
    done = subprocess.run([sys.executable, str(BENCH / "bench.py"), "--install", "pytorch"], capture_output=True, text=True)
    assert done.returncode == 1 and "Received: pytorch. Try: one of" in done.stderr
