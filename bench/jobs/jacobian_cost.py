#!/usr/bin/env python3
"""Draws what the Jacobian of the 1-20-20-400 network costs against the number of rows: docs/jacobian_cost.svg.

usage: PYTHONPATH=build/release/python .venv/bin/python bench/jobs/jacobian_cost.py [--seconds 1] [--out docs/jacobian_cost.svg]

CPU time a call on one thread. The straight line is proportional to the rows, through the first point.
"""

import argparse
import math
import pathlib
import time

import hotloop as hl
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = [100, 1000, 10000, 100000]
WIDTHS = [1, 20, 20, 400]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 560, 340, 70, 50, 20


def network(x, weights):
    """tanh layers and a linear one."""
    for k, (w, b) in enumerate(weights):
        x = x @ w + b if k + 1 == len(weights) else hl.tanh(x @ w + b)
    return x


def cpu_us(rows, seconds):
    """CPU time of a call, in microseconds."""
    rng = np.random.default_rng(0)
    weights = [(rng.normal(0, m**-0.5, (m, n)).astype("f4"), np.zeros(n, "f4")) for m, n in zip(WIDTHS, WIDTHS[1:])]
    x = rng.normal(size=(rows, 1)).astype("f4")
    blocks = hl.jit(lambda x: hl.jacobian(lambda v: network(v, weights))(x).blocks, threads=1)
    blocks(x)
    calls, begin = 0, time.process_time()
    while calls < 5 or time.process_time() - begin < seconds:
        blocks(x)
        calls += 1
    return (time.process_time() - begin) / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--out", default=ROOT / "docs" / "jacobian_cost.svg")
    args = parser.parse_args()
    times = [cpu_us(n, args.seconds) for n in ROWS]
    low, high = math.floor(math.log10(times[0])), math.ceil(math.log10(times[-1]))

    def x(n):
        return LEFT + (math.log10(n) - 2) / 3 * (WIDTH - LEFT - 20)

    def y(t):
        return HEIGHT - BOTTOM - (math.log10(t) - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    def text(at, down, words, anchor="middle"):
        return f'<text x="{at:.0f}" y="{down:.0f}" text-anchor="{anchor}" font-size="13" font-family="sans-serif">{words}</text>'

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for n in ROWS:
        parts.append(f'<line x1="{x(n):.0f}" y1="{TOP}" x2="{x(n):.0f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(text(x(n), HEIGHT - BOTTOM + 18, f"{n:,}"))
    for power in range(low, high + 1):
        parts.append(f'<line x1="{LEFT}" y1="{y(10 ** power):.0f}" x2="{WIDTH - 20}" y2="{y(10 ** power):.0f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 8, y(10 ** power) + 4, f"{10 ** power:,}", "end"))
    line = times[0] / ROWS[0]
    parts.append(f'<line x1="{x(ROWS[0]):.0f}" y1="{y(line * ROWS[0]):.0f}" x2="{x(ROWS[-1]):.0f}" y2="{y(line * ROWS[-1]):.0f}" '
                 'stroke="#999" stroke-dasharray="4 4"/>')
    for n, t in zip(ROWS, times):
        parts.append(f'<circle cx="{x(n):.0f}" cy="{y(t):.0f}" r="4" fill="#1560bd"/>')
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 10, "rows; CPU time of the Jacobian (rows, 400, 1) in microseconds, one thread"))
    pathlib.Path(args.out).write_text("\n".join([*parts, "</svg>", ""]))
    for n, t in zip(ROWS, times):
        print(f"{n:7d} rows: {t:10.1f} us, {t / n:.3f} us a row")


if __name__ == "__main__":
    main()
