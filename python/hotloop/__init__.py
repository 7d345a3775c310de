"""Hotloop: small and sequential neural networks at hardware speed.

    import hotloop as hl

    f = hl.jit(lambda w, x: hl.tanh(x @ w).sum())
    g = hl.jit(hl.grad(f))

Whole programs, loops and gradients included, are compiled to one kernel. Functions carry the names of the Python array API
standard; they work in a compiled function and, one at a time, outside of one.
"""

import importlib as _importlib
import math as _math

from hotloop import _core, _names, _nvrtc, logs, random, tree
from hotloop._compositions import *  # noqa: F403
from hotloop._control import associative_scan, cond, fori_loop, scan, switch, while_loop
from hotloop._core import Array, InternalError, Tracer, UserError
from hotloop._creation import *  # noqa: F403
from hotloop._cumulative import *  # noqa: F403
from hotloop._derivatives import *  # noqa: F403
from hotloop._dtypes import *  # noqa: F403
from hotloop._elementwise import *  # noqa: F403
from hotloop._interpolation import *  # noqa: F403
from hotloop._jit import executable, explain, jit, profile
from hotloop._linear import *  # noqa: F403
from hotloop._logarithms import *  # noqa: F403
from hotloop._manipulation import *  # noqa: F403
from hotloop._methods import attach as _attach
from hotloop._reductions import *  # noqa: F403
from hotloop._sets import *  # noqa: F403
from hotloop._signals import *  # noqa: F403
from hotloop._sorting import *  # noqa: F403
from hotloop._special import *  # noqa: F403
from hotloop._statistics import *  # noqa: F403
from hotloop._transforms import (
    checkpoint,
    custom_jvp,
    custom_vjp,
    grad,
    jvp,
    linearize,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)

_attach()
_nvrtc.show()

from hotloop import data, linalg, losses, metrics, nn, ode, optim  # noqa: E402  (their classes use the operators)
from hotloop._export import ExportedC, export_c  # noqa: E402
from hotloop._files import devices, load, save  # noqa: E402
from hotloop._fit import Checkpoints, EarlyStopping, EpochRecord, Progress, Run, evaluate, fit, predict  # noqa: E402
from hotloop._from_keras import from_keras  # noqa: E402
from hotloop._from_rtneural import from_rtneural  # noqa: E402
from hotloop._from_torch import from_torch  # noqa: E402
from hotloop._minimize import Minimum, least_squares, minimize  # noqa: E402
from hotloop._runs import StoredRun, load_run  # noqa: E402
from hotloop._to_keras import to_keras  # noqa: E402
from hotloop._to_torch import to_torch  # noqa: E402


def __getattr__(name):
    """Modules that need other libraries, imported when they are first asked for; and for what is not there, what may be meant."""
    if name in ("sklearn", "torch"):
        return _importlib.import_module(f"hotloop.{name}")
    raise _names.absent("hotloop", name, globals(), _names.FUNCTIONS, _names.INSTEAD)


__version__ = "0.1.0"
__array_api_version__ = "2024.12"  # whose names are used: docs/array_api.md
newaxis = None
pi, e, inf, nan = _math.pi, _math.e, _math.inf, _math.nan
