"""RTNeural's models against what RTNeural gave for them (tests/data/rtneural/record.py)."""

import json
import pathlib

import hotloop as hl
import numpy as np
import pytest

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/data/rtneural"


@pytest.mark.parametrize("name", ["dense", "lstm", "gru", "conv1d"])
def test_sequences_and_steps(name):
    model, params = hl.from_rtneural(DATA / f"{name}.json")
    features = json.loads((DATA / f"{name}.json").read_text())["in_shape"][-1]
    rows = np.loadtxt(DATA / f"{name}.csv", delimiter=",")
    x, wanted = rows[:, :features].astype(np.float32), rows[:, features:]
    np.testing.assert_allclose(model(params, x[None])[0], wanted, rtol=0, atol=2e-6)
    bound, state = model.bind(params), None
    for row, y in zip(x, wanted):
        out, state = bound.step(state, row[None])
        np.testing.assert_allclose(out[0], y, rtol=0, atol=2e-6)


def test_what_cannot_be_read_is_named_at_once(tmp_path):
    file = tmp_path / "model.json"
    layers = [{"type": "conv2d", "shape": [None, None, 2], "weights": []}, {"type": "activation", "activation": "swish", "shape": [None, 2]}]
    file.write_text(json.dumps({"in_shape": [None, None, 2], "layers": layers}))
    with pytest.raises(hl.UserError, match=r"\[rtneural\] .*Received: layer 1 \(conv2d\); layer 2 \(activation\) with activation swish. Try: dense, gru"):
        hl.from_rtneural(file)
