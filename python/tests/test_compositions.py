"""Random compositions of the transforms against JAX: recorded values, and live where JAX is installed."""

import importlib.util
import json
import pathlib
import sys

import hypothesis
import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
_spec = importlib.util.spec_from_file_location("compositions", HERE / "compositions.py")
compositions = importlib.util.module_from_spec(_spec)
sys.modules["compositions"] = compositions  # which dataclasses look up
_spec.loader.exec_module(compositions)

CASES = json.loads((HERE / "data" / "jax_compositions.json").read_text())["cases"]


def check(case):
    names, value, gradient = compositions.results(compositions.hotloop_library(), case["seed"])
    assert names == case["transforms"]
    np.testing.assert_allclose(value, case["value"], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(gradient, case["gradient"], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['seed']}-{'-'.join(case['transforms'])}")
def test_recorded(case):
    check(case)


@pytest.mark.parametrize("seed", range(100, 140))
def test_live(seed):
    pytest.importorskip("jax")
    names, value, gradient = compositions.results(compositions.jax_library(), seed)
    check({"seed": seed, "transforms": names, "value": value, "gradient": gradient})


@hypothesis.given(seed=hypothesis.strategies.integers(1000, 10**9))
@hypothesis.settings(max_examples=20, deadline=None)
def test_live_with_programs_of_today(seed):
    """Others each time; Hypothesis says which seed failed."""
    pytest.importorskip("jax")
    names, value, gradient = compositions.results(compositions.jax_library(), seed)
    check({"seed": seed, "transforms": names, "value": value, "gradient": gradient})
