"""--compare REF: this tree beside another revision, by turns, through both interfaces."""

import dataclasses
import os
import statistics
import subprocess
import sys

from harness import implementations, matrix, report
from harness.process import Worker

ROOT, CACHE = implementations.ROOT, implementations.CACHE


def _git(*words):
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"[bench] git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def build(ref):
    """The revision's sources and build in .cache/bench/revisions/<hash>: built once, kept."""
    commit = _git("rev-parse", "--verify", f"{ref}^{{commit}}")
    folder = CACHE / "revisions" / commit[:12]
    if not (folder / "CMakeLists.txt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
        if archive.wait():
            raise SystemExit("[bench] git archive failed")
    print(f"[bench] building {commit[:12]} in {folder}", flush=True)
    environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
    options = ["-DHOTLOOP_BUILD_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}", "-DHOTLOOP_BUILD_BENCH=ON"]
    for command in (["cmake", "--preset", "release", *options], ["ninja", "-C", "build/release", "--quiet", "-k", "0", "python_package", "hotloop_worker"]):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode and "unknown target" in done.stderr:  # before there was such a program
            done = subprocess.run(command[:-1], cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"[bench] {' '.join(command)} failed in {folder}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return commit[:12], folder / "build/release"


def compare(args, tasks):
    commit, other = build(args.compare)
    impls = {}
    for name in ("hotloop", "hotloop_cpp"):
        for label, folder in ((name, args.build.resolve()), (f"{name}@{commit}", other)):
            impl = implementations.find(name, folder, args.python)
            if isinstance(impl, str):
                print(f"[bench] {label}: {impl}", file=sys.stderr)
            else:
                impls[label] = dataclasses.replace(impl, name=label, log=CACHE / f"{label}.log")
    print(f"\n| task | threads | interface | {commit} | now | {commit} : now |\n|---|---|---|---|---|---|")
    for threads in args.threads:
        workers = {label: Worker(impl, threads, args.pin) for label, impl in impls.items()}
        try:
            for task in tasks:
                cells = matrix.run_task(task, workers, args.rounds, args.seconds)
                for name in ("hotloop", "hotloop_cpp"):
                    now, then = cells.get(name), cells.get(f"{name}@{commit}")
                    if not now or not then or (now.unsupported and then.unsupported):
                        continue
                    values = matrix.ratios(cells, f"{name}@{commit}", name, "median" if args.quiet_machine else "least")
                    text = f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else ""
                    shown = [report.time_text(c.median) if c.rounds else c.problem[:60] for c in (then, now)]
                    print(f"| {task.title} | {threads} | {report.title(name)} | {shown[0]} | {shown[1]} | {text} |", flush=True)
        finally:
            for worker in workers.values():
                worker.stop()
