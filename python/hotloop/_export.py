"""Models for C: an object file, and plain C source."""

import pathlib
import typing

from hotloop import _core, nn
from hotloop._names import kind_of
from hotloop.nn._streams import checked_modules


class ExportedC(typing.NamedTuple):
    """What export_c gives: name, header and source as texts, sizes in bytes (a voice takes scratch_bytes + 2 state_bytes and a few more),
    the object file (ELF for x86-64 Linux; empty for aarch64), and the targets, the highest first."""

    name: str
    header: str
    source: str
    weight_bytes: int
    state_bytes: int
    scratch_bytes: int
    object: bytes
    targets: list[str]

    def __repr__(self):
        sizes = f"header={len(self.header)} characters, source={len(self.source)} characters, object={len(self.object)} bytes"
        return f"ExportedC({self.name!r}, targets={self.targets}, {sizes}, weight_bytes={self.weight_bytes}, state_bytes={self.state_bytes}, scratch_bytes={self.scratch_bytes})"

    def write(self, folder):
        """Writes NAME.h, NAME.c and NAME.o into a folder, which is made if it is not there. Returns the path of NAME.c."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.h").write_text(self.header)
        (folder / f"{self.name}.c").write_text(self.source)
        if self.object:
            (folder / f"{self.name}.o").write_bytes(self.object)
        return folder / f"{self.name}.c"


def export_c(model, params, features, *, name="model", target="host", batch=1, buffers=None):
    """One step of the model over time for C, as an object file and as C11 source: no library, no allocation, no lock. What `hotloop export` does.

    buffers: of a model that has them (running means of BatchNorm): run.buffers, which belong to run.params.
    features: of a step's input, x (batch, features). name: prefix of every name in the files, a C identifier.
    target: whose instructions and rounding: "host" (the level of this machine), "x86-64-v2" (no fused multiply-add), "x86-64-v3",
        "x86-64-v4", or several of them with commas between: the object then takes the highest that its processor runs. Or "aarch64", for
        C alone.

    In C: NAME_voice holds a stream's state; NAME_init(&voice, NULL), NAME_step(&voice, x, y), NAME_reset(&voice); NAME_prepare and
    NAME_set_weights for other weights. The object, and the source compiled with -O3 -ffp-contract=off -fno-math-errno for the target's
    instructions, give the bits of model.bind(params).step on that target. UserError for a name that is none, for unknown targets, for
    buffers that are missing, and for a model that needs the whole sequence.
    """
    if not isinstance(model, nn.Module):
        raise _core.UserError(f"[export] the model must be a layer of hl.nn. Received: {kind_of(model)}. Try: hl.nn.Recurrent for a cell.")
    if not isinstance(features, int):
        raise _core.UserError(f"[export] features must be the number of features of a step's input. Received: {features!r}. Try: hl.export_c(model, params, 3).write(folder).")
    with checked_modules():
        _core.check_stream(model._layer, params, buffers, features)
    return ExportedC(name, *_core.export_c(model._layer, params, features, name, target, batch, buffers))
