"""What was measured, as JSON, a table in Markdown, and lines on the terminal."""

import json
import statistics

from harness.matrix import ratios

TITLES = {"hotloop": "Hotloop", "hotloop_per_op": "Hotloop, op by op", "hotloop_cpp": "Hotloop, C++", "by_hand": "by hand", "torch": "PyTorch",
          "jax": "JAX", "jax_0_4_31": "JAX 0.4.31", "keras": "Keras", "onnxruntime": "ONNX Runtime", "numpy": "NumPy", "scipy": "SciPy", "scipy_odeint": "SciPy, odeint",
          "rtneural": "RTNeural", "rtneural_stl": "RTNeural, STL", "rtneural_xsimd": "RTNeural, xsimd", "rtneural_xsimd_256": "RTNeural, xsimd AVX2"}  # fmt: skip
OURS = ("hotloop", "hotloop_cpp")
NO_RIVALS = ("hotloop", "hotloop_cpp", "hotloop_per_op", "by_hand")


def title(name):
    return TITLES.get(name, name)


def time_text(seconds):
    if seconds is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def ours_of(cells):
    """What rivals are compared with: the Python package, as they are in Python, and the C++ interface where only that does the task."""
    return next((n for n in OURS if n in cells and cells[n].rounds), None)


def best_rival(cells, measure="median"):
    timed = [n for n in cells if n not in NO_RIVALS and cells[n].rounds]
    fastest = lambda n: cells[n].median if measure == "median" else min(r["least"] for r in cells[n].rounds)  # noqa: E731
    return min(timed, key=fastest) if timed else None


def _ratio_text(values):
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.2f}" + (f" ({low:.2f} to {high:.2f})" if len(values) > 1 else "")


def _cell_text(cell):
    if cell.rounds:
        low, high = cell.spread
        return time_text(cell.median) + (f" ±{50 * (high - low) / cell.median:.0f}%" if len(cell.rounds) > 1 else "")
    return "wrong result" if cell.problem.startswith("wrong") else "" if cell.unsupported else "failed"


def _shown(cells, name, ours, measure):
    """A time; on a busy machine a multiple of ours."""
    if name not in cells:
        return ""
    if measure == "least" and ours and cells[name].rounds:
        return "1" if name == ours else _ratio_text(ratios(cells, name, ours, measure))
    return _cell_text(cells[name])


def markdown(results, meta, names, name=None):
    """results: [(task, threads, cells)]; `name` of the report, if it is not of everything."""
    lines, measure = [], "median" if meta["quiet"] else "least"
    for group in dict.fromkeys(task.group for task, _, _ in results):
        rows = [r for r in results if r[0].group == group]
        shown = [n for n in names if any(n in cells and (cells[n].rounds or not cells[n].unsupported) for _, _, cells in rows)]
        several = len({t for _, t, _ in rows}) > 1
        head = ["task", *(["threads"] if several else []), *map(title, shown), "best rival : ours", "target", "ours op by op : fused"]
        lines += ["", f"## {group}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for task, threads, cells in rows:
            ours, rival = ours_of(cells), best_rival(cells, measure)
            per_op = ratios(cells, "hotloop_per_op", "hotloop", measure)
            line = [f"{task.title}, a {task.unit}" if task.unit not in task.title else task.title, *([str(threads)] if several else [])]
            line += [_shown(cells, n, ours, measure) for n in shown]
            line += [_ratio_text(ratios(cells, rival, ours, measure)) if ours and rival else "", task.target, _ratio_text(per_op)]
            lines.append("| " + " | ".join(line) + " |")
    head_line = f"# Results: {name}" if name else "# Results"
    return "\n".join([head_line, "", *header(meta), *lines, *(_details(results, meta, names) if meta["quiet"] else [])]) + "\n"


def _details(results, meta, names):
    return _thread_gains(results, meta, names) + _precision_costs(results, meta, names) + _first_results(results, meta, names)


def _precision_costs(results, meta, names):
    """Time in another precision : time in f32 of the tasks that were measured in both; not taken in turns."""
    by_name = {(task.name, threads): cells for task, threads, cells in results}
    time = lambda cells, n: cells[n].median if n in cells and cells[n].rounds else None  # noqa: E731
    rows = []
    for task, threads, cells in results:
        other = task.sizes.get("dtype")
        single = by_name.get((task.name.removesuffix(f"_{other}"), threads)) if other else None
        if single and threads == meta["threads"][0]:
            rows.append((task, {n: time(cells, n) / time(single, n) for n in names if time(cells, n) and time(single, n)}))
    shown = [n for n in names if n != "hotloop_per_op" and any(n in costs for _, costs in rows)]
    if not rows:
        return []
    lines = ["", "## Other precisions: time in f64 or with bfloat16 factors : time in f32", "", "| task | " + " | ".join(map(title, shown)) + " |", "|" + "---|" * (len(shown) + 1)]
    return lines + [f"| {task.title} | " + " | ".join(f"{costs[n]:.2f}" if n in costs else "" for n in shown) + " |" for task, costs in rows]


def _thread_gains(results, meta, names):
    """Time with the first number of threads : time with the others; not taken in turns, since the processes are others."""
    if len(meta["threads"]) < 2:
        return []
    first, *others = meta["threads"]
    by_task = {}
    for task, threads, cells in results:
        by_task.setdefault(task.name, (task, {}))[1][threads] = cells
    time = lambda cells, n: cells[n].median if n in cells and cells[n].rounds else None  # noqa: E731
    shown = [n for n in names if n != "hotloop_per_op" and any(time(by[t], n) for _, by in by_task.values() for t in others if t in by)]
    lines = ["", f"## Gain of {', '.join(map(str, others))} threads over {first}", "", "| task | threads | " + " | ".join(map(title, shown)) + " |"]
    lines.append("|" + "---|" * (len(shown) + 2))
    for task, by in by_task.values():
        for t in [t for t in others if t in by and first in by]:
            pairs = [(time(by[first], n), time(by[t], n)) for n in shown]
            lines.append("| " + " | ".join([task.title, str(t), *(f"{a / b:.2f}" if a and b else "" for a, b in pairs)]) + " |")
    return lines


def _first_results(results, meta, names):
    """Building, compiling and the first calls (five training steps), with nothing from caches on disk."""
    rows = [(task, cells) for task, threads, cells in results if threads == meta["threads"][0] and task.kind != "cold_start"]
    shown = [n for n in names if n != "hotloop_per_op" and any(n in c and c[n].rounds for _, c in rows)]
    lines = ["", "## Until the first results", "", "Tracing, compiling and the first calls (five steps of a training), no cache on disk.", ""]
    lines += ["| task | " + " | ".join(map(title, shown)) + " |", "|" + "---|" * (len(shown) + 1)]
    for task, cells in rows:
        lines.append("| " + " | ".join([task.title, *(time_text(cells[n].prepared) if n in cells and cells[n].rounds else "" for n in shown)]) + " |")
    return lines


def header(meta):
    m = meta["machine"]
    machine = ", ".join(filter(None, [m["cpu"], m.get("vectors"), f"{m['cores']} cores"]))
    lines = [
        f"{machine}; {m['date']}; revision {m['revision']}; {meta['rounds']} rounds in turns of about {meta['seconds']} s; "
        f"threads {', '.join(map(str, meta['threads']))}{', pinned' if meta['pin'] else ''}. Load at the start: {m['load_at_start']}. "
        f"OPENBLAS_CORETYPE: {m['OPENBLAS_CORETYPE']}.",
        "",
        "Versions: " + "; ".join(f"{title(k)}: {v}" for k, v in meta["versions"].items()) + ".",
    ]
    if not meta["quiet"]:
        lines += ["", "**The machine was busy with other work, so there are no times here**: each implementation has its fastest call of all turns as a multiple of "
                  "Hotloop's, which other work disturbs least. On a quiet machine ratios are other and times stand here."]  # fmt: skip
    return lines


def foot(meta):
    """The line below a picture."""
    m = meta["machine"]
    return f"{m['cpu']}; {m['date']}; {m['revision']}" + ("" if meta["quiet"] else "; other programs ran: ratios of the fastest calls")


def as_json(results, meta):
    rows = [{"task": task.name, "group": task.group, "title": task.title, "unit": task.unit, "target": task.target, "flops": task.flops,
             "threads": threads, "implementations": {n: c.as_json() for n, c in cells.items() if not c.unsupported}}
            for task, threads, cells in results]  # fmt: skip
    return json.dumps({**meta, "rows": rows}, indent=1) + "\n"


def terminal(task, threads, cells, quiet):
    measure = "median" if quiet else "least"
    ours, rival = ours_of(cells), best_rival(cells, measure)
    parts = [f"{title(n)} {_cell_text(c)}" for n, c in cells.items() if not c.unsupported]
    tail = []
    if ours and rival:
        tail.append(f"{title(rival)} : ours {_ratio_text(ratios(cells, rival, ours, measure))}" + (f", target {task.target}" if task.target else ""))
    if per_op := ratios(cells, "hotloop_per_op", "hotloop", measure):
        tail.append(f"op by op : fused {_ratio_text(per_op)}")
    return f"{task.name} [{threads}]: " + ", ".join(parts) + ("; " + "; ".join(tail) if tail else "")
