"""Layers, cells, and the initial values of parameters.

    model = hl.nn.Sequential(hl.nn.LSTM(7, 32), hl.nn.Last(), hl.nn.Linear(32, 1))
    params = model.init(seed=0)            # nested dicts of arrays, with PyTorch's names
    y = model(params, x)                   # x (batch, time, 7) -> y (batch, 1)

Every layer of the engine is here as a class; those whose size depends on their input take the number of its features first.
"""

from hotloop import _core, _names
from hotloop._op import extents, number, op
from hotloop.nn._bound import Bound, Voice
from hotloop.nn._cells import Cell, Recurrent
from hotloop.nn._layers import LAYERS as _LAYERS
from hotloop.nn._modules import Module, Sequential

globals().update(_LAYERS)

__all__ = ["Module", "Sequential", "Cell", "Recurrent", "Bound", "Voice", "fold_in", "uniform", "normal", "glorot_uniform", "orthogonal", "layer_norm", *_LAYERS]


def __dir__():
    return __all__


def __getattr__(name):
    raise _names.absent("hotloop.nn", name, __all__, _names.LAYERS, _names.IN_LAYERS)


def _checked_seed(name, seed):
    """The seed; UserError for a key of hl.random, which is another thing."""
    if getattr(seed, "shape", None) == (2,):
        instead = f"hl.random.{name}(key, ...)" if name in ("uniform", "normal", "fold_in") else "hl.random.normal(key, shape)"
        raise _core.UserError(
            f"[nn.{name}] a seed must be an integer, as init(seed) is given it. Received: an array of shape (2,), as a key of hl.random is. Try: {instead}, or a number in place of the key."
        )
    return seed


def fold_in(seed, name):
    """The seed of what is called `name` (a string, or an integer: the layer's number) inside what has `seed`: for each of several weights one of its own, or
    they begin with the same numbers. hl.random.fold_in is the one for keys."""
    if not isinstance(name, (str, int)) or isinstance(name, bool):
        raise _core.UserError(f"[fold_in] a name must be a string or an integer. Received: {name!r}.")
    return _core.fold_in(_checked_seed("fold_in", seed), str(name))


def uniform(seed, shape, low=-1.0, high=1.0, dtype="float32"):
    """Uniform in [low, high), on the host: a pure function of the seed and the element's index.

    For init(seed) of a cell or module: the seed is an integer that is known while a function is traced. Inside a compiled function, where a key may be an
    argument, hl.random.uniform(key, shape) draws; its numbers are others.
    """
    return _core.uniform(_checked_seed("uniform", seed), extents("nn.uniform", shape), dtype, *(float(number("nn.uniform", name, x)) for name, x in (("low", low), ("high", high))))


def normal(seed, shape, stddev=1.0, dtype="float32"):
    """Normal with mean 0, on the host, for init(seed), as uniform; hl.random.normal(key, shape) draws in a compiled function."""
    return _core.normal(_checked_seed("normal", seed), extents("nn.normal", shape), dtype, float(number("nn.normal", "stddev", stddev)))


def glorot_uniform(seed, shape, dtype="float32"):
    """Uniform in +-sqrt(6 / (in + out)) for a weight (out, in) (Glorot and Bengio 2010)."""
    return _core.glorot_uniform(_checked_seed("glorot_uniform", seed), extents("nn.glorot_uniform", shape), dtype)


def orthogonal(seed, shape, dtype="float32"):
    """A matrix with orthonormal columns or rows (Saxe et al. 2014)."""
    return _core.orthogonal(_checked_seed("orthogonal", seed), extents("nn.orthogonal", shape), dtype)


@op(3)
def layer_norm(x, weight, bias, epsilon=1e-5):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over the last axis, for cells (Ba et al. 2016)."""
    return _core.layer_norm(x, weight, bias, float(number("layer_norm", "epsilon", epsilon)))
