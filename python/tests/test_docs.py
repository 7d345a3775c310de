"""Every Python block of the README and the documentation runs; the blocks of a page share their names."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if "```python" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page, tmp_path, monkeypatch):
    text = page.read_text()
    names = {"__name__": page.stem}
    monkeypatch.chdir(tmp_path)
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        # Padded, so that a traceback shows the page's lines.
        exec(compile("\n" * text[: match.start(1)].count("\n") + match[1], str(page), "exec"), names)
