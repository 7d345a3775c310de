"""Charts as SVG, without a library: readable on a light and on a dark page."""

import html
import math
import statistics

from harness import matrix, report

COLOURS = {  # Okabe and Ito 2008, told apart by colour-blind readers too; the same in both themes
    "torch": "#d55e00", "jax": "#0072b2", "jax_0_4_31": "#56b4e9", "keras": "#cc79a7", "onnxruntime": "#b59f00", "diffrax": "#8a6be2",
    "by_hand": "#808080", "hotloop_cpp": "#00b386", "hotloop": "#009e73", "rtneural": "#e69f00", "rtneural_stl": "#f0c000", "rtneural_xsimd": "#d8a020", "rtneural_xsimd_256": "#c08a18", "heyoka": "#b5651d",
}  # fmt: skip
SHAPES = ("circle", "square", "diamond", "triangle")
STYLE = """<style>
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .small { font-size: 11px; fill: #57606a }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .one { stroke: #24292f; stroke-width: 1.5 }
  .paper { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9da7b3 } .grid { stroke: #30363d } .one { stroke: #e6edf3 } .paper { fill: #0d1117 }
  }
</style>"""


def colour(name):
    return COLOURS.get(name, "#7f7f7f")


def marker(name, names, x, y, label):
    shape, fill = SHAPES[names.index(name) % len(SHAPES)], colour(name)
    head = f'<g><title>{html.escape(label)}</title>'
    if shape == "circle":
        body = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}"/>'
    elif shape == "square":
        body = f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{fill}"/>'
    elif shape == "diamond":
        body = f'<path d="M{x:.1f} {y - 6:.1f} l6 6 l-6 6 l-6 -6 z" fill="{fill}"/>'
    else:
        body = f'<path d="M{x:.1f} {y - 6:.1f} l5.5 10 h-11 z" fill="{fill}"/>'
    return head + body + "</g>"


def _ticks(low, high):
    ticks = [m * 10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    if high / low > 300:
        ticks = [t for t in ticks if f"{t:e}".startswith("1.0")]
    return [t for t in ticks if low <= t <= high]


def document(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">{STYLE}'
            f'<rect class="paper" width="{width}" height="{height}"/>{body}</svg>\n')  # fmt: skip


def ratios(results, meta):
    """Every implementation's time as a multiple of ours, a row a task, on a logarithmic axis."""
    rows = []
    for task, threads, cells in results:
        ours = report.ours_of(cells)
        if ours is None:
            continue
        base = cells[ours].median
        measure = "median" if meta["quiet"] else "least"
        points = {n: statistics.median(matrix.ratios(cells, n, ours, measure)) for n, c in cells.items() if c.rounds and n not in ("hotloop", "hotloop_cpp", "hotloop_per_op")}
        if points:
            label = task.title + (f", {threads} thread{'s' if threads > 1 else ''}" if len(meta["threads"]) > 1 else "")
            rows.append((task.group, label, base, points))
    if not rows:
        return document(400, 40, '<text x="10" y="25">nothing was measured beside a rival</text>')
    names = [n for n in COLOURS if any(n in p for _, _, _, p in rows)] + sorted({n for r in rows for n in r[3]} - set(COLOURS))
    values = [v for r in rows for v in r[3].values()]
    low, high = min(0.8, min(values) / 1.15), max(2.0, max(values) * 1.15)
    right, step = 30, 24
    left = max(300.0, 30 + 6.4 * max(len(label) for _, label, _, _ in rows))
    width = round(left + 570)
    scale = lambda v: left + (width - left - right) * math.log(v / low) / math.log(high / low)  # noqa: E731
    body, group = [], None
    body.append('<text x="12" y="24" style="font-size:15px;font-weight:600">Time as a multiple of Hotloop\'s: right of the line, Hotloop is faster</text>')
    x, y = 12.0, 44
    for n in names:
        if x + 17 + 7.2 * len(report.title(n)) > width - 12:
            x, y = 12.0, y + 20
        body.append(marker(n, names, x + 6, y, report.title(n)) + f'<text x="{x + 17:.0f}" y="{y + 4}">{html.escape(report.title(n))}</text>')
        x += 34 + 7.2 * len(report.title(n))
    top = y = y + 26
    marks = []
    for row_group, label, base, points in rows:
        if row_group != group:
            group = row_group
            y += 8
            marks.append(f'<text class="small" x="12" y="{y + 4}" style="font-weight:600">{html.escape(group)}</text>')
            y += step - 4
        marks.append(f'<text x="{left - 14}" y="{y + 4}" text-anchor="end">{html.escape(label)}</text>')
        marks.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y}" y2="{y}" stroke-dasharray="1 4"/>')
        for n, v in sorted(points.items(), key=lambda p: -p[1]):
            marks.append(marker(n, names, scale(v), y, f"{report.title(n)}: {v:.2f} times {report.time_text(base)}"))
        y += step
    bottom = y - step + 16
    for t in _ticks(low, high):
        body.append(f'<line class="{"one" if t == 1 else "grid"}" x1="{scale(t):.1f}" x2="{scale(t):.1f}" y1="{top - 8}" y2="{bottom}"/>')
        body.append(f'<text class="small" x="{scale(t):.1f}" y="{bottom + 16}" text-anchor="middle">{t:g}</text>')
    body.append(f'<text class="small" x="12" y="{bottom + 40}">{html.escape(report.foot(meta))}</text>')
    return document(width, bottom + 54, "".join(body + marks))


def curves(title, x_label, y_label, series, roofline, foot):
    """Lines over a logarithmic x; series {name: [(x, y)]}, roofline [(x, y)] drawn dashed."""
    width, height, left, right, top, bottom = 760, 420, 70, 150, 50, 60
    xs = [x for s in series.values() for x, _ in s] + [x for x, _ in roofline]
    ys = [y for s in series.values() for _, y in s] + [y for _, y in roofline]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys) / 1.3, max(ys) * 1.3
    if x0 == x1:
        x1 = 2 * x0
    sx = lambda x: left + (width - left - right) * math.log(x / x0) / math.log(x1 / x0)  # noqa: E731
    sy = lambda y: height - bottom - (height - bottom - top) * math.log(y / y0) / math.log(y1 / y0)  # noqa: E731
    body = [f'<text x="12" y="24" style="font-size:15px;font-weight:600">{html.escape(title)}</text>']
    for t in sorted(set(xs)):
        body.append(f'<line class="grid" x1="{sx(t):.1f}" x2="{sx(t):.1f}" y1="{top}" y2="{height - bottom}"/>')
        body.append(f'<text class="small" x="{sx(t):.1f}" y="{height - bottom + 16}" text-anchor="middle">{t:g}</text>')
    for t in _ticks(y0, y1):
        body.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{sy(t):.1f}" y2="{sy(t):.1f}"/>')
        body.append(f'<text class="small" x="{left - 6}" y="{sy(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
    body.append(f'<text class="small" x="{(left + width - right) / 2}" y="{height - bottom + 34}" text-anchor="middle">{html.escape(x_label)}</text>')
    body.append(f'<text class="small" transform="translate(16 {(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_label)}</text>')
    if roofline:
        points = " ".join(f"{sx(x):.1f},{sy(y):.1f}" for x, y in sorted(roofline))
        body.append(f'<polyline class="one" points="{points}" fill="none" stroke-dasharray="6 4"/>')
        x, y = max(roofline)
        body.append(f'<text class="small" x="{sx(x) + 10:.1f}" y="{sy(y) + 4:.1f}">roofline</text>')
    names, taken = list(series), [sy(y) + 4] if roofline else []  # labels at the right end, kept apart
    for n, points in sorted(series.items(), key=lambda s: -max(s[1])[1]):  # the highest end first: its label stays in place
        line = " ".join(f"{sx(x):.1f},{sy(y):.1f}" for x, y in sorted(points))
        body.append(f'<polyline points="{line}" fill="none" stroke="{colour(n)}" stroke-width="2"/>')
        body += [marker(n, names, sx(x), sy(y), f"{report.title(n)}: {y:.3g} at {x:g}") for x, y in points]
        x, y = max(points)
        at = sy(y) + 4
        while any(abs(at - t) < 13 for t in taken):
            at += 13
        taken.append(at)
        body.append(f'<text x="{sx(x) + 10:.1f}" y="{at:.1f}">{html.escape(report.title(n))}</text>')
    body.append(f'<text class="small" x="12" y="{height - 8}">{html.escape(foot)}</text>')
    return document(width, height, "".join(body))


def scatter(title, x_label, y_label, series, foot):
    """Points on logarithmic axes, with a line where times are equal; series {name: [(x, y, label)]}."""
    width, height, left, right, top, bottom = 760, 440, 70, 30, 80, 60
    xs, ys = ([p[k] for points in series.values() for p in points] for k in (0, 1))
    if not xs:
        return document(400, 40, '<text x="10" y="25">nothing was measured beside a rival</text>')
    x0, x1, y0, y1 = min(xs) / 1.1, max(xs) * 1.1, min(0.8, min(ys) / 1.15), max(2.0, max(ys) * 1.15)
    sx = lambda x: left + (width - left - right) * math.log(x / x0) / math.log(x1 / x0)  # noqa: E731
    sy = lambda y: height - bottom - (height - bottom - top) * math.log(y / y0) / math.log(y1 / y0)  # noqa: E731
    body = [f'<text x="12" y="24" style="font-size:15px;font-weight:600">{html.escape(title)}</text>']
    names, x = list(series), 12.0
    for n in names:
        body.append(marker(n, names, x + 6, 48, report.title(n)) + f'<text x="{x + 17:.0f}" y="52">{html.escape(report.title(n))}</text>')
        x += 34 + 7.2 * len(report.title(n))
    for t in [2.0**k for k in range(20) if x0 <= 2**k <= x1]:
        body.append(f'<line class="grid" x1="{sx(t):.1f}" x2="{sx(t):.1f}" y1="{top}" y2="{height - bottom}"/>')
        body.append(f'<text class="small" x="{sx(t):.1f}" y="{height - bottom + 16}" text-anchor="middle">{t:g}</text>')
    for t in _ticks(y0, y1):
        body.append(f'<line class="{"one" if t == 1 else "grid"}" x1="{left}" x2="{width - right}" y1="{sy(t):.1f}" y2="{sy(t):.1f}"/>')
        body.append(f'<text class="small" x="{left - 6}" y="{sy(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
    body.append(f'<text class="small" x="{(left + width - right) / 2}" y="{height - bottom + 34}" text-anchor="middle">{html.escape(x_label)}</text>')
    body.append(f'<text class="small" transform="translate(16 {(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_label)}</text>')
    body += [marker(n, names, sx(x), sy(y), f"{report.title(n)}: {label}") for n, points in series.items() for x, y, label in points]
    body.append(f'<text class="small" x="12" y="{height - 8}">{html.escape(foot)}</text>')
    return document(width, height, "".join(body))
