#!/usr/bin/env python3
"""Records what JAX computes for python/tests/linalg_programs.py, in f64: python/tests/data/jax_linalg.json.

usage: record_linalg.py   (in an environment with JAX)
"""

import json
import pathlib
import sys

import jax
import numpy as np

TESTS = pathlib.Path(__file__).parent.parent / "python" / "tests"
sys.path.insert(0, str(TESTS))

import linalg_programs  # noqa: E402

jax.config.update("jax_enable_x64", True)
recorded = {"jax": jax.__version__}
for name, (program, arguments) in linalg_programs.PROGRAMS.items():
    results = jax.tree.leaves(program(jax.numpy, jax)(*map(jax.numpy.asarray, arguments)))
    recorded[name] = [np.asarray(r).tolist() for r in results]
(TESTS / "data" / "jax_linalg.json").write_text(json.dumps(recorded) + "\n")
