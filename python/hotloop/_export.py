"""Models as plain C."""

import pathlib
import typing

from hotloop import _core, nn


class ExportedC(typing.NamedTuple):
    """What export_c gives: name, header and source as texts, and sizes in bytes. A voice takes scratch_bytes + 2 state_bytes."""

    name: str
    header: str
    source: str
    weight_bytes: int
    state_bytes: int
    scratch_bytes: int

    def write(self, folder):
        """Writes NAME.h and NAME.c into a folder, which is made if it is not there. Returns the path of NAME.c."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.h").write_text(self.header)
        (folder / f"{self.name}.c").write_text(self.source)
        return folder / f"{self.name}.c"


def export_c(model, params, features, *, name="model", target="host", batch=1, buffers=None):
    """One step of the model over time as C11 that needs nothing else: no library, no allocation, no lock. What `hotloop export` does.

    features: of a step's input, x (batch, features). name: prefix of every name in the files, a C identifier.
    target: whose rounding and vector widths are used: "host", "avx512", "avx2" or "portable" (no fused multiply-add).

    In C: NAME_voice holds a stream's state; NAME_init(&voice, NULL), NAME_step(&voice, x, y), NAME_reset(&voice). Compiled with
    -O3 -ffp-contract=off -fno-math-errno for the target's instructions it gives the bits of model.bind(params).step. UserError for
    a name that is none, and for a model that needs the whole sequence.
    """
    if not isinstance(model, nn.Module):
        raise _core.UserError(f"[export] the model must be a layer of hl.nn. Received: a {type(model).__name__}. Try: hl.nn.Recurrent for a cell.")
    if not isinstance(features, int):
        raise _core.UserError(f"[export] features must be the number of features of a step's input. Received: {features!r}. Try: hl.export_c(model, params, 3).write(folder).")
    return ExportedC(name, *_core.export_c(model._layer, params, features, name, target, batch, buffers))
