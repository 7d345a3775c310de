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
dtype = "{dtype}"
backend = "{backend}"

[[baseline]]
type = "column"
column = "load_lag"
name = "three rows ago"

[[baseline]]
type = "ridge"
lambdas = [0.1, 1]
"""


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
