"""What the command line trained, in Python."""

import json
import os
import tomllib
import typing

import numpy

from hotloop import _core
from hotloop._components import class_name
from hotloop._files import load
from hotloop._jit import jit
from hotloop.data import Preparation
from hotloop.nn import Sequential
from hotloop.nn._layers import LAYERS

_FILES = ("config.toml", "preparation.json", "model.safetensors")


class StoredRun(typing.NamedTuple):
    """A run of `hotloop train`: the model, parameters and buffers of its best epoch, and how a table becomes samples."""

    model: Sequential
    params: dict
    buffers: dict
    preparation: Preparation


def load_run(folder):
    """The run in a folder that `hotloop train` wrote: (model, params, buffers, preparation), by name too.

        model, params, buffers, preparation = hl.load_run("runs/demand")
        for block in preparation.apply("new.csv"):
            y = preparation.unscale(hl.predict(model, params, block["x"], lengths=block["lengths"], buffers=buffers))

    which are the numbers of `hotloop predict`; of classes the outputs, without unscale, in the order of preparation.classes. From the folder are read
    config.toml, preparation.json and model.safetensors. UserError for a folder without them, and for parameters of another model.
    """
    folder = os.fspath(folder)
    # As long as a run has no model, the one that it replaces stays in there.
    replaced = os.path.join(folder, ".replaced")
    if not os.path.isfile(os.path.join(folder, "model.safetensors")) and all(os.path.isfile(os.path.join(replaced, name)) for name in _FILES):
        folder = replaced
    absent = [name for name in _FILES if not os.path.isfile(os.path.join(folder, name))]
    if absent:
        meant = "hl.from_rtneural(file), of the file that it was imported from" if os.path.isfile(os.path.join(folder, "model.toml")) else 'the folder that training named at its end, "runs/demand" say'
        raise _core.UserError(f"[load_run] the folder must be a run of `hotloop train`, with {', '.join(_FILES)}. Received: {folder}, without {', '.join(absent)}. Try: {meant}.")
    config, prepared, stored = (os.path.join(folder, name) for name in _FILES)
    preparation = Preparation.load(prepared)
    with open(config, "rb") as file:
        try:
            tables = tomllib.load(file)["model"]
        except (tomllib.TOMLDecodeError, KeyError) as error:
            raise _core.UserError(f"[load_run] {config} must be a configuration with [[model]] tables. Received: {error}.") from None
    fitted = json.loads(preparation._core.json())
    steps = fitted["longest"] if fitted["recipe"]["sample"] else fitted["recipe"]["length"]
    dtype = {"f32": "float32", "f64": "float64"}[fitted["recipe"]["dtype"]]
    model = _model(tables, (1, steps, len(preparation.input_names)), dtype)
    params, buffers = load(stored, like=model.init(dtype=dtype), buffers=model.init_buffers(dtype))
    return StoredRun(model, params, buffers, preparation)


def _model(tables, shape, dtype):
    """The model of [[model]] tables for inputs of this shape, whose layers have their sizes from what the layer before gives."""
    layers = []

    def trace(x):
        layers.extend(_layers(tables, x))
        return x[0, 0, 0]  # nothing of the layers is compiled

    jit(trace)(numpy.zeros(shape, dtype))
    return Sequential(*layers)


def _layers(tables, x):
    layers = []
    for table in tables:
        layers.append(_layer(table, x))
        x, _ = layers[-1](layers[-1].init(dtype=x.dtype), x, buffers=layers[-1].init_buffers(x.dtype))
    return layers


def _layer(table, x):
    settings = dict(table)
    kind, inside = settings.pop("type", None), settings.pop("layer", [])
    cls = LAYERS.get(class_name(str(kind)))
    if cls is None:
        raise _core.UserError(f"[load_run] the type of a [[model]] table must be one of a layer. Received: {kind!r}.")
    if inside:
        layers = _layers(inside, x)
        return cls(layers[0] if len(layers) == 1 else Sequential(*layers), **settings)  # one alone keeps its parameters' names
    return cls(x.shape[-1], **settings) if "inputs" in cls.__signature__.parameters else cls(**settings)
