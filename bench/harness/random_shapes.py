"""--random-shapes K: LSTM training steps of sizes that nobody tuned for, and the distribution of the ratio to PyTorch."""

import math
import random
import statistics

from harness.matrix import ratios


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


def run(args, measure, present):
    args.rivals = args.rivals if args.rivals is not None else ["torch"]
    impls = present(args)
    impls.pop("hotloop_per_op", None)
    results, _ = measure(args, draw(args.random_shapes, args.seed), impls)
    for rival in [n for n in impls if n not in ("hotloop", "hotloop_cpp", "by_hand")]:
        for label, fits in (("H <= 64", lambda h: h <= 64), ("H > 64", lambda h: h > 64)):
            values = []
            for task, _, cells in results:
                each = ratios(cells, rival, "hotloop", "median" if args.quiet_machine else "least")
                if fits(task.sizes["H"]) and each:
                    values.append((statistics.median(each), task.title))
            if not values:
                continue
            values.sort()
            numbers = [v for v, _ in values]
            quarter = lambda q, n=numbers: n[min(len(n) - 1, int(q * len(n)))]  # noqa: E731
            print(f"\n{rival} : hotloop, {label}, {len(values)} shapes (seed {args.seed}): worst {numbers[0]:.2f} ({values[0][1]}), quarter {quarter(0.25):.2f}, "
                  f"median {statistics.median(numbers):.2f}, three quarters {quarter(0.75):.2f}, best {numbers[-1]:.2f} ({values[-1][1]})")  # fmt: skip
