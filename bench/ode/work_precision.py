#!/usr/bin/env python3
"""Draws work against precision of the solvers of differential equations, with SciPy's beside them: docs/ode_work_precision.svg.

Each result's error is its distance from the recorded reference (tests/parity/data/scipy_ode.json); the script stops where a solver failed,
or where its most accurate result is not near the reference. Evaluations of the field are exact counts; times are the best of five on
whatever else the machine does.

usage: bench/ode/work_precision.py [--build build/release] [--out docs/ode_work_precision.svg]
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import time

import numpy as np
from scipy.integrate import solve_ivp

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import record_scipy_ode as formulas  # noqa: E402

EXPLICIT = ["bosh3", "tsit5", "dopri5", "vern7", "dopri8"]
IMPLICIT = ["rosenbrock23", "rodas5p", "kvaerno3", "kvaerno5"]
PANELS = [("B1", "conflict of two species"), ("D3", "orbit, eccentricity 0.5"), ("E2", "van der Pol"),
          ("hires", "8 unknowns, stiff"), ("pollution", "20 unknowns, stiff"), ("van_der_pol_1000", "2 unknowns, stiff")]
COLOURS = {"bosh3": "#9333ea", "tsit5": "#2563eb", "dopri5": "#0891b2", "vern7": "#16a34a", "dopri8": "#ca8a04", "rosenbrock23": "#9333ea",
           "rodas5p": "#2563eb", "kvaerno3": "#0891b2", "kvaerno5": "#16a34a", "RK45": "#dc2626", "DOP853": "#7f1d1d", "Radau": "#dc2626",
           "BDF": "#7f1d1d"}


def distance(y, reference):
    y, reference = np.asarray(y), np.asarray(reference)
    return float(np.max(np.abs(y - reference) / np.maximum(np.abs(reference), 1e-9)))


def ours(build, problem, solver, t1, y0, reference, tolerances):
    command = [build / "bench" / "ode_work_precision", problem, solver, t1, ",".join(map(repr, y0)), ",".join(map(str, tolerances))]
    lines = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout.splitlines()
    points = []
    for line in lines:
        tolerance, seconds, steps, evaluations, result, *y = map(float, line.split())
        assert result == 0, (problem, solver, tolerance, result)
        points.append({"error": distance(y, reference), "seconds": seconds, "evaluations": evaluations})
    return points


def scipys(field, problem, method, t1, y0, reference, tolerances):
    points = []
    for rtol in tolerances:
        atol = rtol * (1e-6 if len(problem) > 2 else 1)
        best = math.inf
        for _ in range(2):
            start = time.perf_counter()
            solution = solve_ivp(field, (0, t1), y0, method=method, rtol=rtol, atol=atol)
            best = min(best, time.perf_counter() - start)
        assert solution.status == 0, (problem, method, rtol)
        points.append({"error": distance(solution.y[:, -1], reference), "seconds": best, "evaluations": solution.nfev})
    return points


def measure(build):
    recorded = json.loads((ROOT / "tests/parity/data/scipy_ode.json").read_text())
    references = {c["problem"]: (20.0, c["y0"], c["ys"][-1]) for c in recorded["detest"]}
    references |= {c["problem"]: (c["t1"], c["y0"], c["y1"]) for c in recorded["stiff"]}
    results = {}
    for problem, _ in PANELS:
        t1, y0, reference = references[problem]
        stiff = len(problem) > 2
        tolerances = [10.0**-k for k in (range(3, 9) if stiff else range(3, 12))]
        field = (formulas.STIFF if stiff else formulas.DETEST)[problem][0]
        of = {}
        for solver in IMPLICIT if stiff else EXPLICIT:
            mine = [t for t in tolerances if t >= (1e-6 if solver in ("rosenbrock23", "kvaerno3") else 1e-8 if solver == "bosh3" else 0)]
            of[solver] = ours(build, problem, solver, t1, y0, reference, mine)
        for method in ["Radau", "BDF"] if stiff else ["RK45", "DOP853"]:
            of[method] = scipys(field, problem, method, t1, y0, reference, tolerances)
        for name, points in of.items():
            least = min(p["error"] for p in points)
            assert least < (1e-2 if name in ("rosenbrock23", "kvaerno3", "bosh3") else 1e-4), (problem, name, least)
        results[problem] = of
        print(problem, {name: f"{points[-1]['error']:.1e}" for name, points in of.items()}, flush=True)
    return results


def panel(x0, y0, width, height, title, of, key, label):
    points = [(p["error"], p[key]) for series in of.values() for p in series]
    lows = [math.floor(math.log10(max(min(v), 1e-14))) for v in zip(*points)]
    highs = [math.ceil(math.log10(max(v))) for v in zip(*points)]

    def at(error, work):
        fx = (highs[0] - math.log10(max(error, 1e-14))) / (highs[0] - lows[0])  # accuracy grows to the right
        fy = (math.log10(work) - lows[1]) / (highs[1] - lows[1])
        return x0 + fx * width, y0 + height - fy * height

    out = [f'<text x="{x0}" y="{y0 - 12}" class="title">{title}</text>']
    for k in range(lows[0], highs[0] + 1, 2):
        x, _ = at(10.0**k, 10.0 ** lows[1])
        out.append(f'<line x1="{x:.1f}" y1="{y0}" x2="{x:.1f}" y2="{y0 + height}" class="grid"/>'
                   f'<text x="{x:.1f}" y="{y0 + height + 15}" text-anchor="middle">1e{k}</text>')
    for k in range(lows[1], highs[1] + 1):
        _, y = at(10.0 ** lows[0], 10.0**k)
        out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" class="grid"/>'
                   f'<text x="{x0 - 5}" y="{y + 4:.1f}" text-anchor="end">1e{k}</text>')
    out.append(f'<text x="{x0 + width / 2}" y="{y0 + height + 30}" text-anchor="middle">error</text>')
    out.append(f'<text transform="translate({x0 - 38} {y0 + height / 2}) rotate(-90)" text-anchor="middle">{label}</text>')
    for name, series in of.items():
        dash = "" if name in EXPLICIT + IMPLICIT else ' stroke-dasharray="5 3"'
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(p["error"], p[key]) for p in series))
        out.append(f'<path d="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.7"{dash}/>')
    return out


def legend(x, y, names):
    out = []
    for name in names:
        dash = "" if name in EXPLICIT + IMPLICIT else ' stroke-dasharray="5 3"'
        text = name if name in EXPLICIT + IMPLICIT else "SciPy " + name
        out.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{COLOURS[name]}" stroke-width="2"{dash}/>'
                   f'<text x="{x + 25}" y="{y}">{text}</text>')
        x += 45 + 8 * len(text)
    return out


def draw(results, path):
    width, height = 250, 190
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 620" role="img" aria-label="work against precision">',
           '<style>text { font: 12px sans-serif; fill: #374151 } .title { font-size: 13px; font-weight: 600 } .grid { stroke: #e5e7eb }</style>',
           '<rect width="980" height="620" fill="white"/>']
    for i, (problem, words) in enumerate(PANELS):
        stiff = len(problem) > 2
        name = problem.replace("_", " ")
        out += panel(60 + i % 3 * 315, 60 + i // 3 * 300, width, height, f"{name}: {words}", results[problem],
                     "seconds" if stiff else "evaluations", "seconds" if stiff else "evaluations of the field")
    out += legend(60, 24, EXPLICIT + ["RK45", "DOP853"]) + legend(60, 325, IMPLICIT + ["Radau", "BDF"])
    path.write_text("\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/ode_work_precision.svg")
    options = parser.parse_args()
    draw(measure(options.build), options.out)


main()
