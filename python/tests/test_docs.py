"""Every Python block of the README and the documentation runs; the blocks of a page share their names."""

import ast
import importlib.util
import inspect
import pathlib
import re

import hotloop as hl
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


def test_the_references_code_is_python():
    spec = importlib.util.spec_from_file_location("site_reference", ROOT / "scripts/site_reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    pages = dict(reference.reference_pages())
    codes = re.findall(r"^```python\n(.*?)^```", "\n".join(pages.values()), re.MULTILINE | re.DOTALL)
    assert len(codes) >= 10
    for code in codes:
        ast.parse(code)
    assert any("class Net(hl.nn.Module):\n    def __init__(self):\n        self.lstm" in code for code in codes)
    # A sentence that goes on in the next line stays one.
    assert "torch.manual\\_seed(seed) gives\n  the same layers" in pages["nn"] and "Ellipsis" not in pages["nn"]


def test_components_are_written_as_the_page_says():
    calls = re.findall(r"^`hl\.(nn|losses|optim|metrics)\.(\w+)\((.*)\)`$", (ROOT / "docs/components.md").read_text(), re.MULTILINE)
    assert len(calls) > 60
    for module, name, arguments in calls:
        parameters = inspect.signature(getattr(getattr(hl, module), name)).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty]
        assert [*required, *["..."] * (len(parameters) > len(required))] == [a for a in arguments.split(", ") if a], name
