#!/usr/bin/env python3
"""Records what JAX computes of the random compositions of python/tests/compositions.py, in float64.

Writes python/tests/data/jax_compositions.json. Needs jax.

usage: scripts/record_jax_compositions.py [NUMBER]     (default 24)
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python" / "tests"))

import compositions  # noqa: E402
import jax  # noqa: E402


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    library = compositions.jax_library()
    cases = []
    path = ROOT / "python" / "tests" / "data" / "jax_compositions.json"
    for seed in range(number):
        names, value, gradient = compositions.results(library, seed)
        cases.append({"seed": seed, "transforms": names, "value": value, "gradient": gradient})
        path.write_text(json.dumps({"jax": jax.__version__, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
