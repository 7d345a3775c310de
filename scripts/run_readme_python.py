#!/usr/bin/env python3
"""Runs the Python block of the README as a newcomer would, and says where the package came from and how long its import took.

usage: run_readme_python.py
"""

import pathlib
import re
import time


def main():
    start = time.perf_counter()
    import numpy  # noqa: F401

    between = time.perf_counter()
    import hotloop

    print(f"numpy imported in {between - start:.3f} s, hotloop in {time.perf_counter() - between:.3f} s more, from {hotloop.__file__}")
    text = (pathlib.Path(__file__).resolve().parent.parent / "README.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


if __name__ == "__main__":
    main()
