"""hl.load_run: runs of the command line in Python."""

import copy
import csv
import pathlib
import pickle
import subprocess

import hotloop as hl
import numpy as np
import pytest

CLI = pathlib.Path(__file__).resolve().parents[2] / "build/release/hotloop"
NESTED = """
[[model]]
type = "conv1d"
filters = 6
kernel = 3
[[model]]
type = "batch_norm"
[[model]]
type = "residual"
[[model.layer]]
type = "gru"
hidden = 6
[[model.layer]]
type = "tanh"
[[model]]
type = "bidirectional"
[[model.layer]]
type = "lstm"
hidden = 4
[[model]]
type = "last"
[[model]]
type = "linear"
units = {units}
"""
FLAT = """
[[model]]
type = "flatten"
[[model]]
type = "linear"
units = 5
[[model]]
type = "leaky_relu"
slope = 0.1
[[model]]
type = "linear"
units = 1
"""


def table(rng):
    return {"id": np.repeat(np.arange(40), 5), "a": rng.normal(size=200), "b": rng.normal(size=200), "y": rng.normal(size=200), "kind": np.repeat(np.array(["up", "down"])[np.arange(40) % 2], 5)}


def write(path, columns):
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in zip(*(c.tolist() for c in columns.values())))]) + "\n")


@pytest.mark.skipif(not CLI.exists(), reason="the command line is not built")
@pytest.mark.parametrize("data, window, more, model", [
    ('target = "y"', "[window]\nlength = 4\n", '[train]\nepochs = 2\nprecision = "f64"\n', NESTED.format(units=1)),
    ('target = "y"', "[window]\nlength = 3\n", '[optimizer]\ntype = "adam"\n[[optimizer.wrapper]]\ntype = "ema"\n[train]\nepochs = 2\n', FLAT),
    ('target = "kind"\nsample = "id"\ntask = "classification"', "", '[loss]\ntype = "cross_entropy"\n[train]\nepochs = 2\nmetric = "accuracy"\n', NESTED.format(units=2)),
], ids=["nested", "flat", "series of classes"])  # fmt: skip
def test_predicts_what_the_command_does(tmp_path, rng, data, window, more, model):
    write(tmp_path / "t.csv", table(rng))
    (tmp_path / "job.toml").write_text(f'[data]\nfile = "t.csv"\ninputs = ["a", "b"]\n{data}\n{window}{more}{model}')
    for command in (["train", "job.toml"], ["predict", "runs/job", "t.csv", "-o", "out.csv"]):
        done = subprocess.run([CLI, *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    run = hl.load_run(tmp_path / "runs/job")
    assert run.preparation.input_names == ["a", "b"] and ("1" in run.buffers) == ("batch_norm" in model)
    (block,) = run.preparation.apply(tmp_path / "t.csv")
    outputs = hl.predict(run.model, run.params, block["x"], lengths=block["lengths"], buffers=run.buffers)
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    if run.preparation.classes:
        wanted = [[float(row[name]) for name in row if name.endswith(tuple(run.preparation.classes))] for row in rows]
        assert np.shape(wanted)[1] == 2
    else:
        wanted, outputs = [[float(row["y"])] for row in rows], run.preparation.unscale(outputs)
    np.testing.assert_allclose(outputs, wanted, rtol=2e-6, atol=1e-7)
    again = hl.fit(run.model, (block["x"], outputs), params=run.params, epochs=1, **({"buffers": run.buffers} if run.buffers else {}), dtype=outputs.dtype if "f64" in more else "float32")
    assert again.status == "finished"


def folder_of(path, model, params, layers):
    samples = hl.data.Samples(table(np.random.default_rng(1)), inputs=["a", "b"], targets="y", length=4)
    samples.preparation.save(path / "preparation.json")
    hl.save(path / "model.safetensors", params)
    (path / "config.toml").write_text(layers)
    return samples


def test_a_folder_written_here(tmp_path):
    model = hl.nn.Sequential(hl.nn.LSTM(2, 3), hl.nn.Last(), hl.nn.Linear(3, 1))
    layers = '[[model]]\ntype = "lstm"\nhidden = 3\n[[model]]\ntype = "last"\n[[model]]\ntype = "linear"\nunits = 1\n'
    samples = folder_of(tmp_path, model, model.init(4), layers)
    loaded, params, buffers, preparation = hl.load_run(str(tmp_path))
    assert buffers == {} and preparation.describe() == samples.preparation.describe()
    np.testing.assert_array_equal(hl.predict(loaded, params, samples.test), hl.predict(model, model.init(4), samples.test))


def test_a_run_that_is_being_replaced(tmp_path):
    model = hl.nn.Sequential(hl.nn.LSTM(2, 3), hl.nn.Last(), hl.nn.Linear(3, 1))
    layers = '[[model]]\ntype = "lstm"\nhidden = 3\n[[model]]\ntype = "last"\n[[model]]\ntype = "linear"\nunits = 1\n'
    (tmp_path / ".replaced").mkdir()
    folder_of(tmp_path / ".replaced", model, model.init(4), layers)
    folder_of(tmp_path, model, model.init(5), layers)
    np.testing.assert_array_equal(hl.load_run(tmp_path).params["2"]["weight"], model.init(5)["2"]["weight"])
    (tmp_path / "model.safetensors").unlink()
    np.testing.assert_array_equal(hl.load_run(tmp_path).params["2"]["weight"], model.init(4)["2"]["weight"])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["deepcopy", "pickle"])
def test_a_run_is_copied_and_pickled(tmp_path, again):
    model = hl.nn.Sequential(hl.nn.LSTM(2, 3), hl.nn.Last(), hl.nn.Linear(3, 1))
    layers = '[[model]]\ntype = "lstm"\nhidden = 3\n[[model]]\ntype = "last"\n[[model]]\ntype = "linear"\nunits = 1\n'
    samples = folder_of(tmp_path, model, model.init(4), layers)
    loaded, params, _, preparation = again(hl.load_run(tmp_path))
    assert preparation.describe() == samples.preparation.describe()
    np.testing.assert_array_equal(hl.predict(loaded, params, samples.test), hl.predict(model, model.init(4), samples.test))


def test_what_is_no_run(tmp_path):
    with pytest.raises(hl.UserError, match=r"\[load_run\] the folder must be a run of `hotloop train`.*, without config.toml, preparation.json, model.safetensors. Try: the folder that training named"):
        hl.load_run(tmp_path)
    (tmp_path / "model.toml").write_text("[input]\nfeatures = 1\n")
    with pytest.raises(hl.UserError, match=r"Try: hl.from_rtneural\(file\)"):
        hl.load_run(tmp_path)
    (tmp_path / "model.toml").unlink()
    folder_of(tmp_path, None, hl.nn.Linear(2, 1).init(0), "[train]\nepochs = 3\n")
    with pytest.raises(hl.UserError, match=r"config.toml must be a configuration with \[\[model\]\] tables. Received: 'model'"):
        hl.load_run(tmp_path)
    (tmp_path / "config.toml").write_text('[[model]]\ntype = "linaer"\n')
    with pytest.raises(hl.UserError, match=r"the type of a \[\[model\]\] table must be one of a layer. Received: 'linaer'"):
        hl.load_run(tmp_path)
    (tmp_path / "config.toml").write_text('[[model]]\ntype = "linear"\nunits = 1\n')
    with pytest.raises(hl.UserError, match=r"model.safetensors must have the arrays of `like`. Received: 0.weight is missing"):
        hl.load_run(tmp_path)
