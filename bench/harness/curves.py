"""--curves: GFLOP/s of an LSTM's training step against batch, hidden size, length and layers, with the roofline drawn in."""

import json
import os
import subprocess

from harness import chart, machine
from harness.implementations import ROOT

BASE = dict(T=50, I=8, H=64, B=64)
SWEEPS = {
    "B": ("batch", [1, 4, 12, 32, 128, 512]),
    "H": ("hidden size", [8, 16, 32, 64, 128, 256]),
    "T": ("length", [5, 20, 50, 200, 800]),
    "layers": ("layers", [1, 2, 3, 4]),
}


def roofline(task, peak, bandwidth):
    """The most GFLOP/s that the task allows: the products at the machine's peak, or moving what must be moved at least once.

    Bytes: x, the parameters with Adam's moments read and written, and, where they are more than the 8 MB that a processor's caches may hold, the
    residuals (gates, c, h: 6 H floats a row, step and layer) written and read once.
    """
    s = task.sizes
    params = 4 * s["H"] * (s["I"] + s["H"] + 2) + (s["layers"] - 1) * 4 * s["H"] * (2 * s["H"] + 2)
    residuals = s["layers"] * s["T"] * s["B"] * 12 * s["H"]
    moved = 4.0 * (s["T"] * s["B"] * s["I"] + 6 * params + (0 if 4.0 * residuals <= 8e6 else residuals))
    return min(peak, bandwidth * task.flops / moved)


def measure_peak(build, pin):
    """(GFLOP/s of one core in f32, GB/s of its memory), as a program finds them now that does nothing else."""
    program = build / "bench" / "machine_peak"
    if not program.exists():
        raise SystemExit(f"[bench] the roofline needs machine_peak. Received: none in {program.parent}. Try: ninja -C {build} machine_peak")
    command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), str(program)] if pin else [str(program)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found["gflops_f32"], found["gb_s"]


def run(args, measure, present):
    from tasks import recurrent

    args.rivals = args.rivals if args.rivals is not None else ["torch", "jax"]
    args.threads = args.threads[:1]
    impls = present(args)
    impls.pop("hotloop_per_op", None)
    peak, bandwidth = measure_peak(args.build, args.pin)
    about = machine.describe()
    folder = args.out or ROOT / "docs/benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"machine": about, "peak_gflops": peak, "bandwidth_gb_s": bandwidth, "quiet": args.quiet_machine, "sweeps": {}}
    for axis, (label, values) in SWEEPS.items():
        tasks = [
            recurrent.task("lstm", *({**BASE, axis: v}[k] for k in "TIHB"), layers=v if axis == "layers" else 1, group="curves") for v in values
        ]
        results, _ = measure(args, tasks, impls)
        series = {}
        for task, _, cells in results:
            for name, cell in cells.items():
                if cell.rounds and name != "hotloop_per_op":
                    series.setdefault(name, []).append((task.sizes[axis], task.flops / cell.median / 1e9))
        roof = [(t.sizes[axis], roofline(t, peak, bandwidth)) for t in tasks]
        fixed = ", ".join(f"{k} {v}" for k, v in BASE.items() if k != axis)
        foot = f"{about['cpu']}, one thread; {about['date']}; {about['revision']}" + ("" if args.quiet_machine else "; other programs ran")
        (folder / f"curve_{axis}.svg").write_text(
            chart.curves(f"LSTM training step, {fixed}", label, "GFLOP/s of the products, f32", series, roof, foot)
        )
        record["sweeps"][axis] = {"fixed": fixed, "series": series, "roofline": roof}
        print(f"[bench] written: {folder}/curve_{axis}.svg", flush=True)
    (folder / "curves.json").write_text(json.dumps(record, indent=1) + "\n")
