"""--random-shapes K: LSTM training steps of sizes that nobody tuned for, and the distribution of the ratio to the best rival.

Writes random_shapes.md, .svg and .json.
"""

import math
import random
import statistics

from harness import chart, machine, report
from harness.implementations import ROOT
from harness.matrix import ratios

CLASSES = (("H <= 64", lambda h: h <= 64), ("H > 64", lambda h: h > 64))
BEST = "best rival"


def draw(count, seed):
    """Sizes spread evenly over their logarithms: T 8..200, I 1..64, H 8..256, B 1..512, at most about 4 GFLOP a step."""
    from tasks import recurrent

    source, tasks = random.Random(seed), []
    spread = lambda low, high: round(math.exp(source.uniform(math.log(low), math.log(high))))  # noqa: E731
    while len(tasks) < count:
        task = recurrent.task("lstm", spread(8, 200), spread(1, 64), spread(8, 256), spread(1, 512), group="random shapes")
        if task.flops <= 4e9 and task.name not in {t.name for t in tasks}:
            tasks.append(task)
    return tasks


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


def distribution(found):
    """[(rival, class of sizes, number of shapes, worst, its task, quarter, median, three quarters, best)]."""
    rows = []
    for name, values in found.items():
        for label, fits in CLASSES:
            chosen = [(v, t) for v, t in values if fits(t.sizes["H"])]
            if chosen:
                numbers = [v for v, _ in chosen]
                at = lambda q, n=numbers: n[min(len(n) - 1, int(q * len(n)))]  # noqa: E731
                rows.append((name, label, len(numbers), numbers[0], chosen[0][1], at(0.25), statistics.median(numbers), at(0.75), numbers[-1]))
    return rows


def markdown(found, rows, results, meta, seed):
    name = lambda n: BEST if n == BEST else report.title(n)  # noqa: E731
    lines = ["# Shapes that nobody tuned for", "", *report.header(meta), "",
             f"Training steps of an LSTM in f32, {len(results)} draws of T 8..200, I 1..64, H 8..256, B 1..512, even in the logarithm, at most 4 GFLOP a step, "
             f"seed {seed}. Time of the rival : time of Hotloop.", "",
             "| rival | shapes | number | worst | quarter | median | three quarters | best |", "|" + "---|" * 8]  # fmt: skip
    lines += [f"| {name(n)} | {label} | {count} | {worst:.2f} | {a:.2f} | {b:.2f} | {c:.2f} | {best:.2f} |" for n, label, count, worst, _, a, b, c, best in rows]
    rivals = [n for n in found if n != BEST]
    lines += ["", "| shape | " + " | ".join(map(name, [*rivals, BEST])) + " |", "|" + "---|" * (len(rivals) + 2)]
    by_task = {t.name: {} for _, t in found.get(BEST, [])}
    for n, values in found.items():
        for value, task in values:
            by_task[task.name][n] = value
    for _, task in found.get(BEST, []):
        cells = [f"{by_task[task.name][n]:.2f}" if n in by_task[task.name] else "" for n in [*rivals, BEST]]
        lines.append(f"| {task.title.removesuffix(', training step')} | " + " | ".join(cells) + " |")
    failed = [f"{t.title}: {report.title(n)}: {c.problem}" for t, _, cells in results for n, c in cells.items() if c.problem and not c.unsupported]
    return "\n".join(lines + (["", "Failed: " + "; ".join(failed)] if failed else [])) + "\n"


def run(args, measure, present):
    args.rivals = args.rivals if args.rivals is not None else ["torch", "jax"]
    args.threads = args.threads[:1]
    impls = present(args)
    impls.pop("hotloop_per_op", None)
    about = machine.describe()
    results, versions = measure(args, draw(args.random_shapes, args.seed), impls)
    meta = {"machine": about, "rounds": args.rounds, "seconds": args.seconds, "threads": args.threads, "pin": args.pin,
            "quiet": args.quiet_machine, "versions": versions}  # fmt: skip
    found = collect(results, [n for n in impls if n not in report.NO_RIVALS], "median" if args.quiet_machine else "least")
    rows = distribution(found)
    for name, label, count, worst, task, quarter, median, three, best in rows:
        print(f"{name} : hotloop, {label}, {count} shapes (seed {args.seed}): worst {worst:.2f} ({task.title}), quarter {quarter:.2f}, "
              f"median {median:.2f}, three quarters {three:.2f}, best {best:.2f}")  # fmt: skip
    folder = args.out or ROOT / "docs/benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "random_shapes.md").write_text(markdown(found, rows, results, meta, args.seed))
    series = {n: [(t.sizes["H"], v, f"{t.title}: {v:.2f}") for v, t in values] for n, values in found.items() if n != BEST}
    foot = report.foot(meta)
    title = "LSTM training step, random T, I, H and B: time as a multiple of Hotloop's"
    (folder / "random_shapes.svg").write_text(chart.scatter(title, "hidden size", "time : Hotloop's", series, foot))
    (folder / "random_shapes.json").write_text(report.as_json(results, {**meta, "seed": args.seed}))
    print(f"[bench] written: {folder}/random_shapes.md, .svg, .json")
