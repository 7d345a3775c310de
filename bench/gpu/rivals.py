#!/usr/bin/env python3
"""What PyTorch and JAX take on a GPU, for small networks and differential equations; needs nothing but them and NumPy.

usage: bench/gpu/rivals.py OUT.json [--only NAME] [--budget SECONDS] [--cpu] [--quick]
                           [--f32] [--libraries NAMES] [--torch-python PATH] [--jax-python PATH]

Each library runs in a process of its own, one after the other: their copies of cuDNN do not meet, and a crash or a
compiler that does not come back costs that process alone. Every figure is of a function that has been called before.
Two figures each:
  call    a call and waiting for its results, by the clock of the host: the median of 30 calls or more, as far as 2 s
          allow
  stream  one call after the other without waiting, by the GPU's clock (CUDA events) for PyTorch, the host's for JAX
each with the products of float32 in float32 ("f32") and with what the library does by default ("default": TF32 in cuDNN
for PyTorch, whose other products are the same by default and are not measured again; in all products for JAX). What
matters least comes last, and is left out when the time is over. JAX compiles several functions at once, before the
first figure. "off by" compares results, and in training the gradient too, with those of the first row that has some.

"host" arrays: NumPy arrays in and out in each call. In training "host data" copies the batch in and the loss out, and
the parameters stay on the device; "host all" copies the parameters in and out, too. Recurrent inputs are time-major.

--f32 leaves "default" out; --libraries torch,jax,torch.compile takes some of them. With JAX_COMPILATION_CACHE_DIR JAX finds what an
earlier run compiled. --cpu runs on the CPU, without CUDA graphs; --quick takes few repetitions: to try the script, not to measure.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from rival_jax import jax_jobs
from rival_measure import PRECISIONS, append, run_jobs
from rival_torch import torch_jobs

LIBRARIES = {
    "torch": lambda options: torch_jobs(options, only_compiled=False),
    "jax": jax_jobs,
    "torch.compile": lambda options: torch_jobs(options, only_compiled=True),
}


def work(options):
    try:
        jobs = LIBRARIES[options.library](options)
    except Exception as error:  # noqa: BLE001  (a library that is not there is one row)
        append(options, {"library": options.library, "error": f"{type(error).__name__}: {error}".split("\n")[0]})
        return
    run_jobs(options.library.split(".")[0], jobs, options, ahead=max(4, (os.cpu_count() or 0) // 2) if options.library == "jax" else 0)


def start(library, seconds, options, rows):
    python = options.jax_python if library == "jax" else options.torch_python
    command = [python, os.path.abspath(__file__), options.out, "--library", library, "--rows", rows]
    command += ["--seconds", str(seconds), "--only", options.only]
    command += [f"--{flag}" for flag in ("cpu", "quick", "f32") if getattr(options, flag)]
    environment = dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false", TF_CPP_MIN_LOG_LEVEL="3")
    if options.cpu:
        environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    try:
        code = subprocess.run(command, env=environment, timeout=seconds + 2).returncode
        error = f"the process ended with {code}" if code else ""
    except subprocess.TimeoutExpired:
        error = "the process was ended: no time left"
    except OSError as reason:
        error = str(reason)
    if error:
        with open(rows, "a") as file:
            file.write(json.dumps({"library": library, "error": error}) + "\n")


def milliseconds(value):
    return "-" if value is None else f"{value:.4f}" if value < 1 else f"{value:.4g}"


def print_table(rows):
    cells = {}
    for row in rows:
        if "task" in row:
            key = (row["task"], row["library"], row["way"], row["arrays"])
            cells.setdefault(key, {})[row["precision"]] = row
    tasks = {}
    for key in cells:
        tasks.setdefault(key[0], []).append(key)
    heads = ["f32 call", "stream", "default call", "stream"]
    print(f"{'ms':50}" + "".join(f"{h:>14}" for h in heads) + f"{'off by':>10}")
    for task, keys in tasks.items():
        print(task)
        reference = next((c["f32"]["check"] for c in map(cells.get, keys) if "check" in c.get("f32", {})), None)
        for key in keys:
            cell, line = cells[key], ""
            for precision in PRECISIONS:
                row = cell.get(precision, {})
                line += "".join(f"{milliseconds(row.get(k)):>14}" for k in ("call_ms", "stream_ms"))
            check = cell.get("f32", {}).get("check")
            off = "-"
            if check is not None:
                off = f"{max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(check, reference)):.0e}"
            arrays = "" if key[3] == "device" else f", {key[3]}"
            print(f"{f'  {key[1]}, {key[2]}{arrays}':50}{line}{off:>10}")
            for error in dict.fromkeys(r["error"] for r in cell.values() if "error" in r):
                print(f"      {error}")
    for row in rows:
        if "error" in row and "task" not in row:
            print(f"{row['library']}: {row['error']}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="where the JSON goes")
    parser.add_argument("--only", default="", help="figures whose name holds this")
    parser.add_argument("--budget", type=float, default=95.0, help="seconds for all")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--f32", action="store_true")
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--jax-python", default=sys.executable)
    for internal in ("--library", "--rows"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    begin = time.monotonic()
    if options.library:
        options.deadline = begin + options.seconds
        work(options)
        sys.stderr.flush()
        os._exit(0)  # what still compiles is not waited for
    end = begin + options.budget
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        open(path, "w").close()
        # Compilers that take long come last, with what is left.
        wanted = [name for name in LIBRARIES if name in options.libraries.split(",")]
        for library, share in zip(wanted, {3: (0.4, 0.8, 1.0), 2: (0.5, 1.0)}.get(len(wanted), (1.0,))):
            left = end - time.monotonic() if share == 1 else options.budget * share - (time.monotonic() - begin)
            if left < 5:
                with open(path, "a") as file:
                    file.write(json.dumps({"library": library, "error": "left out: no time left"}) + "\n")
            else:
                start(library, left - 2, options, path)
        with open(path) as file:
            rows = [json.loads(line) for line in file]
    info = {"python": sys.version.split()[0], "seconds": round(time.monotonic() - begin, 1)}
    for row in rows:
        info |= row.get("info", {})
    print(", ".join(f"{k} {v}" for k, v in info.items()))
    rows = [row for row in rows if "info" not in row]
    print_table(rows)
    with open(options.out, "w") as file:
        json.dump({"info": info, "options": {"cpu": options.cpu, "quick": options.quick}, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
