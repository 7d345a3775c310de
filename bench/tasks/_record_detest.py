#!/usr/bin/env python3
"""Searches the method and tolerance of each DETEST problem with which an implementation is fastest at 3, 6 and 9 digits, for tasks/detest.py.

Of each method the loosest tolerance is taken, among half powers of ten, whose result is accurate enough; of these methods the one that takes
the least processor time. Writes the implementation's part of detest_settings.json.

usage: bench/tasks/_record_detest.py scipy|scipy_odeint|hotloop     (each with the Python that has it)
"""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402

from tasks import detest  # noqa: E402


def seconds(call):
    start = time.process_time()
    call()
    times = max(1, int(0.01 / max(time.process_time() - start, 1e-7)))
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for _ in range(times):
            call()
        best = min(best, (time.process_time() - start) / times)
    return best


def solvers(implementation):
    if implementation == "hotloop":
        from impls import _detest_hotloop as fields

        def solver(problem, method):
            solve = fields.solver(problem, method, {"threads": 1})

            def run(y0, tolerance):
                y1, result = solve(y0, tolerance)
                return np.array(y1) if int(result) == 0 else np.full_like(y0, np.inf)

            return run

        return fields.METHODS, solver
    from impls import _detest_scipy as fields

    return ("odeint",) if implementation == "scipy_odeint" else fields.METHODS, fields.solver


def main():
    implementation = sys.argv[1]
    methods, solver = solvers(implementation)
    chosen = {str(digits): {} for digits in detest.DIGITS}
    for name, case in detest.recorded().items():
        y0, y1 = np.array(case["y0"]), np.array(case["ys"][-1])
        size = max(np.abs(y0).max(), np.abs(y1).max())
        fastest = dict.fromkeys(chosen, (float("inf"), None, None))
        for method in methods:
            run = solver(name, method)
            wanted = list(detest.DIGITS)
            for tolerance in (float(f"{10.0**-k:.4g}") for k in np.arange(1, 14.1, 0.5)):
                error = np.abs(run(y0, tolerance) - y1).max() / size
                while wanted and error < 10.0 ** -wanted[0]:
                    digits = str(wanted.pop(0))
                    fastest[digits] = min(fastest[digits], (seconds(lambda: run(y0, tolerance)), method, tolerance))  # noqa: B023
                if not wanted:
                    break
        for digits, (_, method, tolerance) in fastest.items():
            assert method, (name, digits)
            chosen[digits][name] = [method, tolerance]
        print(name, {d: f"{m} {t:g} {s * 1e6:.0f} us" for d, (s, m, t) in fastest.items()}, flush=True)
    document = json.loads(detest.SETTINGS.read_text()) if detest.SETTINGS.exists() else {}
    document[implementation] = chosen
    detest.SETTINGS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
