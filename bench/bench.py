#!/usr/bin/env python3
"""The benchmark: tasks x implementations, results checked before any time counts, times taken in turns.

    ./dev bench                                        every task, everything that is installed
    ./dev bench lstm_train 'mlp*' --rivals torch,jax   some tasks (names, wildcards, groups), some rivals
    ./dev bench --list                                 the tasks
    ./dev bench --install torch,jax                    rivals, each into a virtual environment of its own
    ./dev bench --compare REF [TASK ...]               this tree beside another revision
    ./dev bench --random-shapes 20                     shapes that nobody tuned for
    ./dev bench --random-programs 60                   programs drawn at random, with their derivatives
    ./dev bench --curves                               throughput against batch, hidden size, length and layers
    ./dev bench --merge A.json B.json --name NAME      runs one after the other, as the rounds of one report

A whole run writes results.json, results.md and results.svg into docs/benchmarks, a run of some tasks into .cache/bench/last, or with
--name NAME into docs/benchmarks/NAME.*.
"""

import argparse
import os
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent)
# Before NumPy is imported, here and in the workers. OpenBLAS takes kernels for AVX2 on processors whose AVX-512 it does not know, which
# takes rivals that use it twice the time; what the environment says is not asked, since each rival gets its best.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if "avx512f" in pathlib.Path("/proc/cpuinfo").read_text():
    os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"

from harness import implementations, machine, matrix, report  # noqa: E402
from harness.process import Worker  # noqa: E402
from harness.task import all_tasks, select  # noqa: E402

ROOT = implementations.ROOT


def words(text):
    return [w for w in text.split(",") if w]


def parse_args():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--list", action="store_true", help="the tasks, and which implementations are there")
    parser.add_argument("--rivals", type=words, metavar="NAMES", help="these alone (default: all that are installed; none: '')")
    parser.add_argument("--ours", type=words, metavar="NAMES", default=list(implementations.OURS), help="of " + ", ".join(implementations.OURS))
    parser.add_argument("--threads", type=lambda t: [int(w) for w in words(t)], default=[1], metavar="1,2")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.4, help="of each turn")
    parser.add_argument("--pin", action="store_true", help="each process to as many cores as it has threads")
    parser.add_argument("--quiet-machine", action="store_true", help="say in the report that nothing else ran")
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="a Python that has rivals, besides those of --install")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=pathlib.Path, metavar="FOLDER", help="where the report goes")
    parser.add_argument("--name", metavar="NAME", help="of the report's files (default: results)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the JSON also here")
    parser.add_argument("--install", type=words, metavar="NAMES")
    parser.add_argument("--compare", metavar="REF")
    parser.add_argument("--random-shapes", type=int, metavar="K")
    parser.add_argument("--random-programs", type=int, metavar="K")
    parser.add_argument("--seed", type=int, default=0, help="of --random-shapes and --random-programs")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--merge", type=pathlib.Path, nargs="+", metavar="FILE", help="what --json wrote")
    return parser.parse_args()


def present(args, quiet=False):
    """{name: Implementation} of what can run; says what cannot."""
    rivals = args.rivals if args.rivals is not None else [*implementations.RIVALS, *implementations.RTNEURAL]
    found = {}
    for name in [*args.ours, *rivals]:
        impl = implementations.find(name, args.build.resolve(), args.python)
        if isinstance(impl, str):
            if not quiet:
                print(f"[bench] {impl}", file=sys.stderr)
        else:
            found[impl.name] = impl
    return found


def measure(args, tasks, impls, on_result=None):
    """([(task, threads, cells)], versions)."""
    results, versions = [], {}
    for threads in args.threads:
        workers = {name: Worker(impl, threads, args.pin) for name, impl in impls.items()}
        try:
            for task in tasks:
                cells = matrix.run_task(task, workers, args.rounds, args.seconds)
                for name, cell in cells.items():
                    if cell.versions:
                        versions[name] = cell.versions
                results.append((task, threads, cells))
                print(report.terminal(task, threads, cells, args.quiet_machine), flush=True)
                if on_result:
                    on_result(results, versions)
        finally:
            for worker in workers.values():
                worker.stop()
    return results, versions


def meta_of(args, versions, about):
    return {"machine": about, "rounds": args.rounds, "seconds": args.seconds, "threads": args.threads, "pin": args.pin,
            "quiet": args.quiet_machine, "versions": versions}  # fmt: skip


def write(args, folder, results, meta, names):
    from harness import chart

    folder.mkdir(parents=True, exist_ok=True)
    text = report.as_json(results, meta)
    stem = args.name or "results"
    (folder / f"{stem}.json").write_text(text)
    (folder / f"{stem}.md").write_text(report.markdown(results, meta, names, args.name))
    (folder / f"{stem}.svg").write_text(chart.ratios(results, meta))
    if args.json:
        args.json.write_text(text)


def main():
    args = parse_args()
    if args.install:
        return implementations.install(args.install)
    tasks = all_tasks()
    if args.list:
        for task in tasks:
            print(f"{task.name:44} {task.group:12} {task.title}")
        print("present: " + ", ".join(present(args)))
        return
    if args.compare:
        from harness import revisions

        return revisions.compare(args, select(tasks, args.tasks) if args.tasks else tasks)
    if args.random_shapes or args.random_programs:
        from harness import draws, random_programs, random_shapes

        drawn = random_shapes if args.random_shapes else random_programs
        return draws.run(drawn.DRAWS, args.random_shapes or args.random_programs, args, measure, present)
    if args.curves:
        from harness import curves

        return curves.run(args, measure, present)
    if args.merge:
        from harness import merge

        results, meta = merge.merged(merge.read(args.merge))
        names = {n for _, _, cells in results for n in cells}
        return write(args, args.out or ROOT / "docs/benchmarks", results, meta, [n for n in report.TITLES if n in names])
    chosen = select(tasks, args.tasks) if args.tasks else tasks
    impls = present(args)
    about = machine.describe()
    folder = args.out or (ROOT / ".cache/bench/last" if args.tasks and not args.name else ROOT / "docs/benchmarks")

    def on_result(results, versions):  # after each task: a long run that is stopped leaves what it has
        write(args, folder, results, meta_of(args, versions, about), list(impls))

    results, _ = measure(args, chosen, impls, on_result)
    print(f"[bench] written: {folder}/{args.name or 'results'}.json, .md, .svg")
    wrong = [f"{t.name}: {n}" for t, _, cells in results for n, c in cells.items() if c.problem.startswith("wrong")]
    if wrong:
        sys.exit("[bench] wrong results: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
