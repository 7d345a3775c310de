"""Tasks drawn at random, and the distribution of the ratio to the best rival: what --random-shapes and --random-programs share.

Writes <stem>.md, .svg and .json.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable

from harness import chart, machine, report
from harness.implementations import ROOT
from harness.matrix import ratios

BEST = "best rival"


@dataclasses.dataclass(frozen=True)
class Draws:
    stem: str  # of the files
    heading: str
    intro: str  # what was drawn, after "<number> draws of "
    classes: tuple[tuple[str, Callable], ...]  # a row of the distribution each: its name, and whether a task belongs to it
    draw: Callable  # (number, seed) -> tasks
    rivals: tuple[str, ...]  # unless --rivals says others
    chart_title: str
    x_label: str
    x: Callable  # (task, seconds of a call of Hotloop's) -> where its point lies


def spread(source, low, high):
    """A whole number from low to high, even in the logarithm."""
    return round(math.exp(source.uniform(math.log(low), math.log(high))))


def collect(results, rivals, measure):
    """{rival: [(ratio, task)]}, worst first, with the best rival of each task besides."""
    found = {}
    for task, _, cells in results:
        each = {n: statistics.median(r) for n in rivals if n in cells and (r := ratios(cells, n, "hotloop", measure))}
        if each:
            each[BEST] = min(each.values())
        for name, value in each.items():
            found.setdefault(name, []).append((value, task))
    return {n: sorted(values, key=lambda v: v[0]) for n, values in found.items()}


def distribution(found, classes):
    """[(rival, class, number of tasks, worst, its task, quarter, median, three quarters, best)]."""
    rows = []
    for name, values in found.items():
        for label, fits in classes:
            chosen = [(v, t) for v, t in values if fits(t)]
            if chosen:
                numbers = [v for v, _ in chosen]
                at = lambda q, n=numbers: n[min(len(n) - 1, int(q * len(n)))]  # noqa: E731
                rows.append((name, label, len(numbers), numbers[0], chosen[0][1], at(0.25), statistics.median(numbers), at(0.75), numbers[-1]))
    return rows


def markdown(draws, found, rows, results, meta):
    name = lambda n: BEST if n == BEST else report.title(n)  # noqa: E731
    lines = [f"# {draws.heading}", "", *report.header(meta), "",
             f"{len(results)} draws of {draws.intro}, seed {meta['seed']}. Time of the rival : time of Hotloop.", "",
             "| rival | of | number | worst | quarter | median | three quarters | best |", "|" + "---|" * 8]  # fmt: skip
    lines += [f"| {name(n)} | {label} | {count} | {worst:.2f} | {a:.2f} | {b:.2f} | {c:.2f} | {best:.2f} |" for n, label, count, worst, _, a, b, c, best in rows]
    rivals = [n for n in found if n != BEST]
    lines += ["", "| task | " + " | ".join(map(name, [*rivals, BEST])) + " |", "|" + "---|" * (len(rivals) + 2)]
    by_task = {t.name: {} for _, t in found.get(BEST, [])}
    for n, values in found.items():
        for value, task in values:
            by_task[task.name][n] = value
    for _, task in found.get(BEST, []):
        cells = [f"{by_task[task.name][n]:.2f}" if n in by_task[task.name] else "" for n in [*rivals, BEST]]
        lines.append(f"| {task.title.removesuffix(', training step')} | " + " | ".join(cells) + " |")
    failed = [f"{t.title}: {report.title(n)}: {c.problem}" for t, _, cells in results for n, c in cells.items() if c.problem and not c.unsupported]
    return "\n".join(lines + (["", "Failed: " + "; ".join(failed)] if failed else [])) + "\n"


def run(draws, count, args, measure, present):
    args.rivals = args.rivals if args.rivals is not None else list(draws.rivals)
    args.threads = args.threads[:1]
    impls = present(args)
    impls.pop("hotloop_per_op", None)
    about = machine.describe()
    results, versions = measure(args, draws.draw(count, args.seed), impls)
    meta = {"machine": about, "rounds": args.rounds, "seconds": args.seconds, "threads": args.threads, "pin": args.pin,
            "quiet": args.quiet_machine, "versions": versions, "seed": args.seed}  # fmt: skip
    found = collect(results, [n for n in impls if n not in report.NO_RIVALS], "median" if args.quiet_machine else "least")
    rows = distribution(found, draws.classes)
    for name, label, number, worst, task, quarter, median, three, best in rows:
        if name == BEST:
            print(f"{name} : hotloop, {label}, {number} tasks (seed {args.seed}): worst {worst:.2f} ({task.title}), quarter {quarter:.2f}, "
                  f"median {median:.2f}, three quarters {three:.2f}, best {best:.2f}")  # fmt: skip
    folder = args.out or ROOT / "docs/benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{draws.stem}.md").write_text(markdown(draws, found, rows, results, meta))
    ours = {task.name: cells["hotloop"].median for task, _, cells in results}
    series = {n: [(draws.x(t, ours[t.name]), v, f"{t.title}: {v:.2f}") for v, t in values] for n, values in found.items() if n != BEST}
    (folder / f"{draws.stem}.svg").write_text(chart.scatter(draws.chart_title, draws.x_label, "time : Hotloop's", series, report.foot(meta)))
    (folder / f"{draws.stem}.json").write_text(report.as_json(results, meta))
    print(f"[bench] written: {folder}/{draws.stem}.md, .svg, .json")
