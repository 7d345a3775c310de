"""A locale whose decimal point is a comma changes no file, and nothing that is read from one."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import locale, sys
import hotloop as hl, numpy as np

if sys.argv[1] != "C":
    locale.setlocale(locale.LC_ALL, sys.argv[1])
    assert locale.localeconv()["decimal_point"] == ","
model = hl.nn.Sequential(hl.nn.LSTM(2, 3), hl.nn.Linear(3, 1))
print(hl.export_c(model, model.init(0), 2).source)
twice = hl.jit(lambda x: hl.sin(0.1 * x) % 0.3, backend="c")
print(np.asarray(twice(np.linspace(-3, 1e9, 7, dtype=np.float32))).tobytes().hex())
print(sorted(hl.losses.Quantile(quantiles=[0.025, 0.5]).statistics(np.zeros((1, 2), np.float32))))
table = {"x": np.arange(40.0), "y": np.array(["1.5", "10.25", "2.25", "-3"] * 10)}
samples = hl.data.Samples(table, inputs=["x"], targets="y", task="classification")
print(samples.preparation.classes, samples.describe())
"""


@pytest.fixture(scope="module")
def comma(tmp_path_factory):
    """The environment of a process that finds a German locale, which need not be installed."""
    folder = tmp_path_factory.mktemp("locales")
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    made = subprocess.run(["localedef", "-f", "UTF-8", "-i", "de_DE", folder / "de_DE.UTF-8"], capture_output=True, text=True, check=False)
    if not (folder / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip(f"localedef has no sources: {made.stderr}")
    return os.environ | {"LOCPATH": str(folder)}


def test_a_decimal_comma_changes_nothing(comma):
    def output(name):
        ran = subprocess.run([sys.executable, "-c", PROGRAM, name], env=comma, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    text = output("C")
    assert "['q2_5', 'q50']" in text and "['-3', '1.5', '2.25', '10.25']" in text
    assert output("de_DE.UTF-8") == text
