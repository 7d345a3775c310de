"""Whether modules of one's own treat each step of a sequence alone, as a stream of single steps takes for granted.

Layers and cells keep what came before in states. What apply() does between them has none: a sum over time, a mean, a difference of steps or a
count of them gives other numbers when it sees one step. So apply() is run on a sequence and on each of its steps alone, with a function of the
step alone in place of every layer that has a state, and both must give the same.
"""

import contextlib
import math

import numpy

from hotloop import _core, tree
from hotloop._jit import jit
from hotloop.nn import _own

_STEPS = 29  # a prime, so that no other axis is as long by accident


@contextlib.contextmanager
def checked_modules():
    """Modules of one's own that are traced for one step inside are checked at its end."""
    with _own.traced_modules() as traced:
        yield
    # Else there is no axis of time, or it is the look at two steps that tells whether the output has one.
    seen = {id(module): (module, structure, inputs) for module, structure, inputs in traced if any(_core.has_a_step(*x) for x in inputs)}
    for module, structure, inputs in seen.values():
        _check(module, structure, inputs)


def _check(module, structure, inputs):
    whole, steps, error = _outputs(module, structure, inputs)
    if error is not None:
        told = str(error).partition(" Try: ")[0].rstrip(".")
        return _refuse(module, f"takes no sequence of {_STEPS} steps: {told if isinstance(error, _core.UserError) else f'{type(error).__name__}: {told}'}")
    if whole.ndim > 1 and whole.shape[1] == _STEPS and steps[0].ndim == whole.ndim and steps[0].shape[1] == 1:
        expected = numpy.moveaxis(whole, 1, 0)[:, :, None]
    else:  # no axis of time: what the last step gives
        expected, steps = whole[None], steps[-1:]
    if expected.shape[1:] != steps[0].shape:
        return _refuse(module, f"gives {whole.shape} for a sequence of {_STEPS} steps and {steps[0].shape} for one step")
    for t, (a, b) in enumerate(zip(expected, steps, strict=True), _STEPS - len(steps)):
        if not numpy.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True):
            return _refuse(module, f"gives other numbers for step {t} alone than for that step of a sequence")
    return None


def _outputs(module, structure, inputs):
    """What apply() gives for a sequence, or None, for each of its steps, and what it raises for a sequence."""
    dtype_of_params = next((dtype for _, dtype in inputs if dtype.kind == "f"), numpy.dtype("float32"))
    rng = numpy.random.default_rng(0)
    # What begins with zero, such as a gate around a sum over time, must not hide what it multiplies.
    moved = lambda a: numpy.asarray(a) + rng.uniform(0.02, 0.1, a.shape).astype(a.dtype) if a.dtype.kind == "f" else a  # noqa: E731
    layer = module._layer if structure is None else module._make_for(structure)
    params = tree.map(moved, layer.init(0, dtype_of_params, "torch", "philox"))
    buffers = module.init_buffers(dtype_of_params)
    timed = [_core.has_a_step(*x) for x in inputs]

    def numbers(shape, dtype, steps):
        shape = (1, _STEPS, *shape[2:]) if steps else (1, *shape[1:])
        x = rng.normal(size=shape) if dtype.kind == "f" else numpy.arange(math.prod(shape)).reshape(shape) % 2
        return x.astype(dtype)

    sequence = [numbers(*x, steps) for x, steps in zip(inputs, timed, strict=True)]

    @jit
    def run(leaves):
        leaves = [_core.to_tracer(x, "x") for x in leaves]
        with _own.pointwise_layers():
            return layer.apply(params, leaves[0] if structure is None else structure.unflatten(leaves), None, None, None, buffers, False, False)[0]

    def step(t):
        return [numpy.ascontiguousarray(x[:, t : t + 1]) if steps else x for x, steps in zip(sequence, timed, strict=True)]

    steps = [numpy.asarray(run(step(t)), numpy.float64) for t in range(_STEPS)]
    try:
        return numpy.asarray(run(sequence), numpy.float64), steps, None
    except (MemoryError, _core.InternalError, _core.Cancelled):
        raise
    except Exception as error:  # whatever a module of one's own raises
        return None, steps, error


def _refuse(module, received):
    raise _core.UserError(
        f"[stream] apply() of a module of one's own must treat each step alone: layers and cells keep what came before, and nothing else does. Received: "
        f"{type(module).__name__}.apply, which {received}. Try: a hl.nn.Cell with a state for what mixes steps, in hl.nn.Recurrent; or the whole sequence, model(params, x)."
    )
