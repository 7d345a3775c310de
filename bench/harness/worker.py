"""What runs inside an implementation's Python: reads commands from its input, one a line, and answers each with a line of JSON.

    prepare KIND FOLDER key=value...   builds the task from FOLDER/in/*.npy and writes FOLDER/out/<result>.npy
    time SECONDS                       calls it for about as long; seconds a unit: median, least, number of calls
    forget                             drops what was prepared

A file of bench/impls gives `versions() -> str`, `setup(threads)` (before the library is imported), and a function for each kind of
task that it knows: `kind(sizes, inputs) -> Prepared`. It may have `reset()`, which is called before each task.

usage: worker.py IMPLEMENTATION THREADS      (the name of a file in bench/impls, or a path)
"""

import gc
import importlib
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])


def parse(text):
    key, value = text.split("=", 1)
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            pass
    return key, value


def load(name):
    """A file of bench/impls, or any file, by its path."""
    if not name.endswith(".py"):
        return importlib.import_module(f"impls.{name}")
    spec = importlib.util.spec_from_file_location("implementation", name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(prepared, seconds):
    """Calls shorter than 100 us are timed several at once, so that the clock does not count."""
    call, clock = prepared.call, time.perf_counter
    start = clock()
    call()
    if clock() - start < seconds:
        start = clock()
        call()
    once = clock() - start
    block = max(1, min(10000, int(1e-4 / max(once, 1e-9))))
    times, begin = [], clock()
    gc.disable()
    fewest = 3 if once < seconds else 1  # rounds repeat it anyway
    while len(times) < fewest or (clock() - begin < seconds and len(times) < 100000):
        start = clock()
        for _ in range(block):
            call()
        times.append((clock() - start) / block)
    gc.enable()
    return {"median": statistics.median(times) / prepared.units, "least": min(times) / prepared.units, "calls": len(times) * block}


def main():
    name, threads = sys.argv[1], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(threads)

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    import numpy as np

    impl = load(name)
    impl.setup(threads)
    prepared = None
    for line in sys.stdin:
        command, *words = line.split()
        try:
            if command == "prepare":
                kind, folder, *sizes = words
                function = getattr(impl, kind, None)
                if function is None:
                    answer(unsupported=f"{name} has no {kind}")
                    continue
                folder = pathlib.Path(folder)
                inputs = {p.stem: np.load(p) for p in sorted((folder / "in").glob("*.npy"))}
                if hasattr(impl, "reset"):
                    impl.reset()
                start = time.perf_counter()
                prepared = function(dict(map(parse, sizes)), inputs)
                seconds = time.perf_counter() - start
                for key, value in prepared.results.items():
                    np.save(folder / "out" / f"{key}.npy", np.asarray(value))
                answer(prepared=seconds, variant=prepared.variant, versions=impl.versions(), note=prepared.note)
            elif command == "time":
                answer(**measure(prepared, float(words[0])))
            elif command == "forget":
                prepared = None
                gc.collect()
                answer(forgotten=True)
        except Exception as error:  # noqa: BLE001  (the harness reports it and goes on)
            if type(error).__name__ == "Unsupported":
                answer(unsupported=str(error))
            else:
                traceback.print_exc()
                answer(error=f"{type(error).__name__}: {error}"[:500])


if __name__ == "__main__":
    main()
