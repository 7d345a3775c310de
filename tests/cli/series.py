"""A small table and configuration for tests of the command line."""
import math
import pathlib

CONFIG = """
[data]
file = "series.csv"
target = "load"
inputs = ["load_lag", "day"]

[[data.lag]]
name = "load_lag"
column = "load"
steps = 3

[[data.periodic]]
name = "day"
period = 6

[window]
length = 4

[[model]]
type = "{layer}"
hidden = 3

[[model]]
type = "last"

[[model]]
type = "linear"
units = 1

[optimizer]
type = "adam"
learning_rate = {learning_rate}

[train]
epochs = 3
batch_size = 16
seed = 1
precision = "{dtype}"
backend = "{backend}"

[[baseline]]
type = "column"
column = "load_lag"
name = "three rows ago"

[[baseline]]
type = "ridge"
lambdas = [0.1, 1]
"""

CLASSES = """
[data]
file = "utterances.csv"
target = "voice"
task = "classification"
inputs = ["a", "b"]
sample = "utterance"

[split]
by = "random"

[[model]]
type = "lstm"
hidden = 4

[[model]]
type = "dropout"
rate = 0.25

[[model]]
type = "last"

[[model]]
type = "batch_norm"

[[model]]
type = "linear"
units = 3

[loss]
type = "cross_entropy"

[optimizer]
type = "adam"
learning_rate = 0.03

[train]
epochs = 4
batch_size = 16
seed = 1
metric = "accuracy"
class_weights = [1.0, 2.0, 0.5]
backend = "{backend}"
"""


def write_utterances(folder, backend="interp", count=75):
    """utterances.csv, series of 2 to 6 steps in three classes, and job.toml; returns the path of the latter."""
    folder = pathlib.Path(folder)
    with open(folder / "utterances.csv", "w") as file:
        file.write("utterance,voice,a,b\n")
        for i in range(count):
            voice = i % 3
            for t in range(2 + i * 7 % 5):
                a, b = math.sin(t * (1 + voice) + i), math.cos(t - voice) + 0.1 * math.sin(5.0 * i)
                file.write(f"{i},{'xyz'[voice]},{a:.6f},{b:.6f}\n")
    config = folder / "job.toml"
    config.write_text(CLASSES.format(backend=backend))
    return config


def write(folder, backend="interp", layer="lstm", dtype="f32", learning_rate="0.02", rows=90):
    """series.csv and job.toml in `folder`; returns the path of the latter."""
    folder = pathlib.Path(folder)
    with open(folder / "series.csv", "w") as file:
        file.write("load,note\n")
        for t in range(rows):
            file.write(f"{3 + math.sin(t * math.pi / 3) + 0.3 * math.cos(t * 0.7):.6f},row {t}\n")
    config = folder / "job.toml"
    config.write_text(CONFIG.format(backend=backend, layer=layer, dtype=dtype, learning_rate=learning_rate))
    return config


def write_two_classes(folder, logits=True, task="classification", count=120):
    """points.csv, of two classes that a line divides, and job.toml with one output; returns the path of the latter. Of a regression the classes are
    0 and 1."""
    folder = pathlib.Path(folder)
    names = ("no", "yes") if task == "classification" else (0, 1)
    with open(folder / "points.csv", "w") as file:
        file.write("a,b,kind\n")
        for i in range(count):
            a, b = math.sin(1.3 * i), math.cos(2.1 * i)
            file.write(f"{a:.6f},{b:.6f},{names[a + 2 * b > 0.2]}\n")
    config = folder / "job.toml"
    config.write_text(f"""
[data]
file = "points.csv"
target = "kind"
task = "{task}"
inputs = ["a", "b"]
[window]
length = 1
standardize_targets = false
[split]
by = "random"
[[model]]
type = "last"
[[model]]
type = "linear"
units = 1
{"" if logits else '[[model]]' + chr(10) + 'type = "sigmoid"'}
[loss]
type = "binary_cross_entropy"
logits = {"true" if logits else "false"}
[optimizer]
type = "adam"
learning_rate = 0.1
[train]
epochs = 30
metric = ["accuracy", "f1"]
backend = "interp"
""")
    return config
