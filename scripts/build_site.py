#!/usr/bin/env python3
"""Builds the documentation site: README.md and docs/ as they are, and a reference of the Python package from its docstrings.

The site's pages lie as they do in the repository, so their links hold; a link to a file that is no page becomes its text. Warnings are errors.

usage: build_site.py OUT_FOLDER        (hotloop must be importable; OUT_FOLDER/html/index.html is the result)
"""

import pathlib
import re
import shutil
import subprocess
import sys

from site_reference import reference_pages

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The sidebar. Pages of docs/ that are named nowhere come after the topics.
GROUPS = {
    "First steps": ["docs/python", "docs/cpp", "docs/cli", "docs/data", "docs/checkpoints"],
    "Coming from": ["docs/from_keras", "docs/from_pytorch", "docs/from_jax"],
    "Topics": ["docs/array_api", "docs/derivatives", "docs/python_derivatives", "docs/minimize", "docs/ode", "docs/python_ode", "docs/streaming", "docs/probabilistic", "docs/precision", "docs/gpu", "docs/components"],
    "Measured": ["docs/bet", "docs/tasks", "docs/benchmarks/README", "docs/benchmarks/results", "docs/benchmarks/threads",
                 "docs/benchmarks/inference", "docs/benchmarks/random_shapes", "docs/benchmarks/random_programs", "docs/benchmarks/programs", "docs/benchmarks/precision", "docs/benchmarks/precision_xeon", "docs/benchmarks/latency", "docs/benchmarks/machines", "docs/benchmarks/zen5", "docs/benchmarks/zen4", "docs/benchmarks/xeon", "docs/benchmarks/avx2", "docs/benchmarks/gpu", "docs/platforms"],
    "Python reference": [],
    "Inside": ["ARCHITECTURE", "docs/adding", "CHANGELOG", "THIRD_PARTY"],
}
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
PAIR = re.compile(r"^```py\n(.*?)^```\n+```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LIBRARIES = {"from_keras": "Keras", "from_pytorch": "PyTorch", "from_jax": "JAX"}


def pages():
    """Paths of all pages, relative to the root."""
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "THIRD_PARTY.md")]
    found = [p for p in top if p.exists()] + sorted(p for p in (ROOT / "docs").rglob("*.md") if "site" not in p.parts)
    return [p.relative_to(ROOT) for p in found]


def relinked(text, page, known):
    """Links to files that the site does not have become their texts; those to the README lead to the first page."""

    def replaced(match):
        label, target = match.groups()
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        at = (ROOT / page.parent / path).resolve()
        if at == ROOT / "README.md":
            return f"[{label}]({'../' * len(page.parent.parts)}index.md)"
        inside = at.is_relative_to(ROOT) and at.relative_to(ROOT) in known
        return match[0] if inside or at.suffix in (".svg", ".png") else label if label.startswith("`") else f"`{label}`"

    return LINK.sub(replaced, text)


def shown(text, page):
    """A page's text as the site shows it: tables of CSV as plain text, pairs of programs beside each other."""
    text = re.sub(r"^```csv.*$", "```text", text, flags=re.MULTILINE)
    library = LIBRARIES.get(page.stem)
    if library:
        beside = f":::::{{container}} beside\n```{{code-block}} python\n:caption: {library}\n\\1```\n\n```{{code-block}} python\n:caption: Hotloop\n\\2```\n:::::\n"
        text = PAIR.sub(beside, text)
    return text


def sidebar(known, reference):
    """The toctrees of the first page."""
    named = {name for group in GROUPS.values() for name in group}
    stems = [str(p.with_suffix("")) for p in known]
    rest = [s for s in stems if s.startswith("docs/") and s not in named and "/decisions/" not in s]
    groups = {caption: [name for name in names if name in stems] for caption, names in GROUPS.items()}
    groups["Topics"] += rest
    groups["Python reference"] = reference
    groups["Inside"] += [s for s in stems if "/decisions/" in s]
    return "\n".join(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```" for caption, names in groups.items() if names)


def write_sources(folder):
    """The site's sources."""
    shutil.rmtree(folder, ignore_errors=True)
    known = pages()
    reference = []
    for name, text in reference_pages():
        path = folder / "reference" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        reference.append(f"reference/{name}")
    for page in known:
        text = shown(relinked((ROOT / page).read_text(), page, set(known)), page)
        if page.name == "README.md" and page.parent == pathlib.Path():
            page, text = pathlib.Path("index.md"), text + "\n" + sidebar(known, reference)
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for picture in [*ROOT.glob("docs/**/*.svg"), *ROOT.glob("docs/**/*.png")]:
        (folder / picture.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, folder / picture.relative_to(ROOT))


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    write_sources(out / "source")
    shutil.rmtree(out / "html", ignore_errors=True)
    command = ["-W", "--keep-going", "-q", "-b", "html", "-c", ROOT / "docs/site", "-d", out / "doctrees", out / "source", out / "html"]
    status = subprocess.run([sys.executable, "-m", "sphinx", *map(str, command)]).returncode
    if status == 0:
        count = len(list((out / "html").rglob("*.html")))
        size = sum(p.stat().st_size for p in (out / "html").rglob("*") if p.is_file()) / 1e6
        print(f"{count} pages, {size:.1f} MB: {out}/html/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
