#!/usr/bin/env python3
"""The bet, measured side by side: our training step, the hand-written one and PyTorch's, in turns, on one thread.

usage: bench/bet/run.py [--build build] [--rounds 5] [--torch PYTHON] [--json FILE]

Each round runs every implementation of every row once (about a second each); ratios are taken within a round and the median over
the rounds is printed. --torch names a Python that has PyTorch; without it that column is empty.
"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = [  # cell, T, I, H, B
    ("lstm", 50, 8, 32, 32),
    ("lstm", 50, 8, 64, 32),
    ("lstm", 50, 8, 64, 512),
    ("lstm", 120, 14, 32, 256),
    ("lstm", 100, 32, 128, 64),
    ("lstm", 60, 12, 48, 48),
    ("gru", 50, 8, 64, 32),
    ("gru", 60, 12, 48, 48),
    ("ln_lstm", 60, 12, 48, 48),
    ("coupled", 60, 12, 48, 48),
]
TORCH = """
import json, statistics, sys, time, torch, torch.nn as nn
torch.set_num_threads(int(sys.argv[6])); torch.manual_seed(0)
cell, T, I, H, B = sys.argv[1], *map(int, sys.argv[2:6])
net = (nn.LSTM if cell == "lstm" else nn.GRU)(I, H); head = nn.Linear(H, 1)
adam = torch.optim.Adam([*net.parameters(), *head.parameters()], 1e-3, fused=True)
x, y = torch.randn(T, B, I), torch.randn(B, 1)
def step():
    adam.zero_grad(); out, _ = net(x); loss = ((head(out[-1]) - y)**2).mean(); loss.backward(); adam.step()
for _ in range(3): step()
times, begin = [], time.perf_counter()
while len(times) < 5 or time.perf_counter() - begin < float(sys.argv[7]):
    start = time.perf_counter(); step(); times.append(time.perf_counter() - start)
print(json.dumps(dict(ms=statistics.median(times) * 1e3, version=torch.__version__)))
"""


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--torch", metavar="PYTHON")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", help="rows whose cell has this name")
    args = parser.parse_args()
    ours = ROOT / args.build / "bench" / "train_step"
    ceiling = ROOT / args.build / "bench" / "ceiling_lstm"
    results = []
    torch_version = ""
    for row in ROWS:
        cell, *sizes = row
        if args.only and cell != args.only:
            continue
        times = {"ours": [], "ceiling": [], "torch": []}
        for _ in range(args.rounds):
            times["ours"].append(json.loads(run([ours, *row, 1, args.seconds]))["ms"])
            if cell == "lstm":
                times["ceiling"].append(float(run([ceiling, *sizes, 12]).split("train")[1].split()[0]))
            if args.torch and cell in ("lstm", "gru"):
                answer = json.loads(run([args.torch, "-c", TORCH, *row, 1, args.seconds]))
                times["torch"].append(answer["ms"])
                torch_version = answer["version"]
        ratio = lambda a, b: statistics.median(x / y for x, y in zip(times[a], times[b])) if times[b] else None
        results.append(dict(cell=cell, T=sizes[0], I=sizes[1], H=sizes[2], B=sizes[3],
                            **{k: statistics.median(v) if v else None for k, v in times.items()},
                            of_ceiling=ratio("ours", "ceiling"),
                            torch_over_ours=1 / ratio("ours", "torch") if times["torch"] else None))
        print(f"{cell} {sizes}: {results[-1]}", file=sys.stderr, flush=True)
    show = lambda x, digits: "" if x is None else f"{x:.{digits}f}"
    print(f"One thread, f32, {args.rounds} rounds in turns, medians; {cpu_name()}; PyTorch {torch_version or 'not run'}.\n")
    print("| training step | ours, ms | by hand, ms | ours : by hand | PyTorch, ms | PyTorch : ours |")
    print("|---|---|---|---|---|---|")
    for r in results:
        print(f"| {r['cell']} T{r['T']} I{r['I']} H{r['H']} B{r['B']} | {show(r['ours'], 3)} | {show(r['ceiling'], 3)} | "
              f"{show(r['of_ceiling'], 2)} | {show(r['torch'], 2)} | {show(r['torch_over_ours'], 2)} |")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(dict(rows=results, cpu=cpu_name(), torch=torch_version), indent=1))


if __name__ == "__main__":
    main()
