"""Trees as files: what is saved and loaded besides parameters of models."""

import dataclasses
import typing

import hotloop as hl
import numpy as np
import pytest


@dataclasses.dataclass
class Weights:
    w: typing.Any
    parts: typing.Any
    name: str = dataclasses.field(default="gru", metadata={"static": True})


class Pair(typing.NamedTuple):
    first: typing.Any
    second: typing.Any


def test_dataclasses(tmp_path):
    tree = {"cell": Weights(np.ones(2, np.float32), [np.arange(3), Weights(np.zeros(1), None)])}
    hl.save(tmp_path / "a.safetensors", tree)
    assert set(hl.load(tmp_path / "a.safetensors")["cell"]) == {"w", "parts"}
    found = hl.load(tmp_path / "a.safetensors", like=tree)
    assert hl.tree.structure(found) == hl.tree.structure(tree)
    for a, b in zip(hl.tree.leaves(found), hl.tree.leaves(tree), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)
    with pytest.raises(hl.UserError, match="cell.parts.1.w is missing"):
        hl.load({"cell.w": np.ones(2, np.float32), "cell.parts.0": np.arange(3)}, like=tree)


def test_numbers(tmp_path):
    path = tmp_path / "a.safetensors"
    tree = {"w": np.ones(2), "step": 3, "far": 2**40, "rate": 0.5, "on": True, "of": Pair(np.int64(2), [4.0])}
    hl.save(path, tree)
    found = hl.load(path, like=tree)
    assert {name: (type(v), v) for name, v in found.items() if name not in ("w", "of")} == {"step": (int, 3), "far": (int, 2**40), "rate": (float, 0.5), "on": (bool, True)}
    assert found["of"].first.dtype == np.int64 and int(found["of"].first) == 2 and found["of"].second == [4.0]
    for wrong, text in (({"step": 3.0}, "step is int32(), wanted a number, float"), ({"w": 1.0}, "w is float64(2,), wanted a number, float"), ({"step": np.zeros(2)}, "step is int32(), wanted float64(2,)")):
        with pytest.raises(hl.UserError) as told:
            hl.load(path, like={**tree, **wrong})
        assert text in str(told.value)
