"""Models for C: an object file, and plain C source."""

import operator
import pathlib
import typing

import numpy

from hotloop import _core, nn
from hotloop._names import kind_of
from hotloop.nn._bound import example
from hotloop.nn._streams import checked_modules


class ExportedC(typing.NamedTuple):
    """What export_c gives: name, header and source as texts, sizes in bytes (of NAME_weights, of what a state
    remembers, and of NAME_voice), the object file (ELF for Linux), and the targets, the highest first."""

    name: str
    header: str
    source: str
    weight_bytes: int
    state_bytes: int
    voice_bytes: int
    object: bytes
    targets: list[str]

    def __repr__(self):
        sizes = f"header={len(self.header)} characters, source={len(self.source)} characters, object={len(self.object)} bytes"
        return f"ExportedC({self.name!r}, targets={self.targets}, {sizes}, weight_bytes={self.weight_bytes}, state_bytes={self.state_bytes}, voice_bytes={self.voice_bytes})"

    def write(self, folder):
        """Writes NAME.h, NAME.c and NAME.o into a folder, which is made if it is not there; files of those names are replaced when all the new
        ones are on the disk, and none where one cannot be written. Returns the path of NAME.c."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"{self.name}.h": self.header.encode(), f"{self.name}.c": self.source.encode()}
        if self.object:
            files[f"{self.name}.o"] = self.object
        _core.replace_files(str(folder), files, [f"{self.name}.o"], "export")
        return folder / f"{self.name}.c"


def export_c(model, params, features, *, name="model", target="host", batch=1, buffers=None):
    """One step of the model over time for C, as an object file and as C11 source: no library, no allocation, no lock. What `hotloop export` does.

    buffers: of a model that has them (running means of BatchNorm): run.buffers, which belong to run.params.
    features: of a step's input, x (batch, features). Or an example of what bind(params).step() takes: ids (batch,), or a tree of several inputs, whose
        names are fields of NAME_inputs in C; its numbers do not matter, and the batch is its own. name: prefix of every name in the files, a C identifier.
    target: whose instructions and rounding: "host" (the level of this machine), "x86-64-v2" (no fused multiply-add), "x86-64-v3",
        "x86-64-v4", or several of them with commas between: the object then takes the highest that its processor runs. Or "aarch64",
        for 64-bit ARM and nothing else, from any machine.

    In C: NAME_voice holds a stream's state; NAME_init(&voice, NULL), NAME_step(&voice, x, y), NAME_reset(&voice); NAME_prepare and
    NAME_set_weights for other weights. The object, and the source compiled with -O3 -ffp-contract=off -fno-math-errno for the target's
    instructions, give the bits of model.bind(params).step on that target. UserError for a name that is none, for unknown targets, for
    buffers that are missing, and for a model that needs the whole sequence.
    """
    if not isinstance(model, nn.Module):
        raise _core.UserError(f"[export] the model must be a layer of hl.nn. Received: {kind_of(model)}. Try: hl.nn.Recurrent for a cell.")
    if features is None or isinstance(features, (str, bytes, float)):
        raise _core.UserError(f"[export] features must be the number of features of a step's input. Received: {features!r}. Try: hl.export_c(model, params, 3).write(folder).")
    layer, inputs = _inputs(model, params, features)
    with checked_modules():
        _core.check_stream(layer, params, buffers, inputs)
    return ExportedC(name, *_core.export_c(layer, params, inputs, name, target, batch, buffers))


def _inputs(model, params, features):
    """The engine's layer, and the number of features or an example of a step as the engine takes it, with an axis of time."""
    if hasattr(features, "__index__") and numpy.ndim(features) == 0:
        return model._layer, operator.index(features)
    if model._is_tree(features):
        return model._layer_for(features), example(params, features)
    x = numpy.asarray(_core.asarray(features, "features"))
    if x.ndim == 0:
        raise _core.UserError(f"[export] an example of a step has a row a sequence. Received: a scalar of {x.dtype}. Try: numpy.zeros(1, {x.dtype}).")
    return model._layer, example(params, {"x": x.reshape(x.shape[0], 1, *x.shape[1:])})["x"]
