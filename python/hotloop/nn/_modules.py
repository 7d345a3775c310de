"""What all layers share: init, the call, binding parameters."""

import functools
import inspect

import numpy

from hotloop import _core, _draws, _names
from hotloop._indexing import narrowed
from hotloop._inputs import is_ragged, is_tree, map_inputs, named_leaves, padded_text, timed
from hotloop._jit import jit
from hotloop._names import kind_of
from hotloop._op import integer
from hotloop.nn import _own
from hotloop.nn._casts import in_params_dtype

_ABSENT = ...


def _is_no_array(x):
    """A dict, or a list of arrays that do not stack."""
    return isinstance(x, dict) or (isinstance(x, (tuple, list)) and any(numpy.ndim(part) != numpy.ndim(x[0]) or numpy.shape(part) != numpy.shape(x[0]) for part in x))


def _leaves(tree, path=""):
    """(path, shape) of each leaf of nested dicts."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield path + name, tuple(getattr(value, "shape", ()))


class Module:
    """A layer or a model. Immutable: parameters are given at each call.

    A layer of your own is a subclass with apply(params, x, key=None) -> y; it may stand in Sequential. Layers that are its attributes
    (also in lists, tuples and dicts) have their parameters under the attribute's name, as in PyTorch, and are given what the call was
    given: their states, lengths, buffers, a key each.

        class Net(hl.nn.Module):
            def __init__(self):
                self.lstm, self.head = hl.nn.LSTM(3, 32), hl.nn.Linear(32, 1)
            def apply(self, params, x, key=None):
                return self.head(params["head"], self.lstm(params["lstm"], x))

    x is one array or, in a module of your own alone or as the first of Sequential, a tree of several, as hl.fit was given it: with
    hl.fit(Net(), ({"series": a, "facts": b}, y)) apply() finds x["series"] and x["facts"].

    With arrays of its own it has init(seed) -> dict too; super().init(seed) gives those of its layers. An apply(..., lengths=None) is
    told the valid steps of each row. In a stream or an export apply() sees one step at a time: what mixes steps is a Cell's affair, which keeps a
    state, and is refused there.
    """

    def __getattr__(self, name):
        raise _names.absent_attribute(f"{type(self).__name__!r} object", name, _names.MODELS, [*dir(type(self)), *self.__dict__])

    @property
    def _layer(self):
        """The engine's layer. Of a module of one's own it is made where it is wanted: it keeps the module alive, which would keep it, so that
        neither were ever freed."""
        if type(self)._make is Module._make:
            return self._make()
        made = self.__dict__.get("_layer")
        if made is None:
            made = self.__dict__["_layer"] = self._make()
        return made

    def _make(self):
        if type(self).apply is Module.apply:
            came = "forward(), which is given no parameters. Try: def apply(self, params, x, key=None), and self.layer(params[\"layer\"], x)" if hasattr(self, "forward") else "none"
            raise _core.UserError(f"[{type(self).__name__}] a layer of your own must have apply(self, params, x, key=None). Received: {came}.")
        return _core.python_layer(self, None)

    @property
    def _takes_trees(self):
        """Whether the input may be a tree of arrays: those of apply() of one's own may be."""
        return type(self)._make is Module._make

    def _make_for(self, structure):
        """The engine's layer whose input is a tree of this structure."""
        self._layer  # noqa: B018
        return _core.python_layer(self, structure)

    def _layer_for(self, x):
        """The engine's layer for x: one array or a tree of several."""
        if not self._is_tree(x):
            return self._layer
        if not self._takes_trees:
            raise self._refusal(x)
        return self._make_for(_core.tree_flatten(x)[1])

    def _is_tree(self, x):
        """Whether x is several inputs. What takes one array stacks a list of equal ones."""
        return is_tree(x) and (self._takes_trees or _is_no_array(x))

    def _refusal(self, x):
        if is_ragged(x):
            return _core.UserError(
                f"[{type(self).__name__}] the input must be one array, sequences of unequal length padded to one. Received: {kind_of(x)} of {len(x)} arrays, "
                f"{tuple(x[0].shape)}, {tuple(next(a for a in x if a.shape != x[0].shape).shape)}, ... Try: {padded_text(x)}."
            )
        return _core.UserError(
            f"[{type(self).__name__}] the input must be one array. Received: {kind_of(x)}. Try: hl.concat([...], axis=-1) of several, or a "
            "subclass of hl.nn.Module whose apply(params, x) takes them, alone or as the first layer of hl.nn.Sequential."
        )

    def __getstate__(self):
        # What is compiled is made again where it is wanted: copies and pickles hold settings alone.
        return {name: value for name, value in self.__dict__.items() if name not in ("_layer", "_layers", "_compiled")}

    def init(self, seed=0, init="torch", dtype="float32", generator="philox"):
        """Fresh parameters: nested dicts of arrays, with PyTorch's names and shapes. The same seed gives the same values anywhere.

        init: whose defaults, "torch" or "keras". generator: "philox", or "torch" for the numbers that torch.manual_seed(seed) gives
        the same layers, made in the same order (uniform ones to the bit in float32, normal ones to 1e-7).
        """
        if _core.is_tracer(seed):
            raise _core.UserError(
                f"[{type(self).__name__}] a seed must be a number that is known while a function is traced. Received: a traced {seed._type}. "
                "Try: hl.tree.map(lambda *p: hl.stack(p), *[model.init(seed) for seed in range(5)]) in place of hl.vmap(model.init)."
            )
        if type(self).init is not Module.init:  # asked for by a subclass's own
            return self._init_layers(seed, init)
        return self._layer.init(seed if isinstance(seed, _core.Seed) else integer("init", "seed", seed), dtype, init, generator)

    @functools.cached_property
    def _layers(self):
        return _own.layers_of(self, Module)

    def _init_layers(self, seed, init):
        def make(path, layer):
            own = seed
            for name in path:
                own = _core.fold_in(own, name)
            return layer.init(own, init) if type(layer).init is Module.init else layer._init_for_engine(own, init)

        return _own.tree_of(self._layers, make)

    # What the engine asks a module of one's own.

    def _init_for_engine(self, seed, init):
        if type(self).init is Module.init:
            return self._init_layers(seed, init)
        return self.init(seed, init) if len(inspect.signature(self.init).parameters) > 1 else self.init(seed)

    def _init_buffers_for_engine(self, dtype):
        return _own.tree_of(self._layers, lambda path, layer: layer.init_buffers(dtype))

    def _initial_state_for_engine(self, batch, dtype):
        return _own.tree_of(self._layers, lambda path, layer: layer._layer.initial_state(batch, dtype))

    def _apply_for_engine(self, *arguments):
        return _own.apply(self, self._layers, *arguments)

    def init_buffers(self, dtype="float32"):
        """Values that training updates and gradients do not, such as running means; {} for most models."""
        return self._layer.init_buffers(dtype)

    def initial_state(self, batch, dtype="float32"):
        """The state before the first step for `batch` rows, all zeros; {} for a model without one.

        y, state = lstm(params, x, state=lstm.initial_state(len(x))) gives the one after the last step. LSTM: {"h", "c"}, GRU and RNN: {"h"}, each
        (batch, hidden): PyTorch's h_n[0], c_n[0]. Stacked layers have one each, "l0", "l1", the other direction "l0_reverse"; hl.nn.Bidirectional
        has "forward" and "reverse", Sequential the layers' places, "0", a module of one's own its attributes' names, a cell what its initial_state gives.
        """
        if _core.is_tracing():
            return self._layer.initial_state(batch, dtype)
        return _core.run_once(lambda: self._layer.initial_state(batch, dtype), "initial_state")

    def apply(self, params, x, key=None):
        """The layer under trace: y."""
        return self(params, x, key=key)

    @_names.checked_call("y = model(params, x)")
    def __call__(self, params, x=_ABSENT, *, key=None, state=None, lengths=None, buffers=None, training=False):
        """y = model(params, x); given a state (y, state), given buffers (y, buffers), given both (y, state, buffers).

        x: (batch, time, features) for sequences; a tree of arrays for a module of one's own that takes several. A float x of another dtype than the
        parameters is cast to theirs.
        key: uint32[2], as hl.random.key(0) gives it, means training: dropout draws from it. training: without a key, for layers that draw nothing.
        state: what recurrent layers start from, see initial_state. lengths: (batch,) valid steps of each row, at most those of x; of a tree, of
        its first array (batch, time, features). Beyond them there may be anything: the model is given zeros.
        """
        if not self._takes_trees and _is_no_array(x):
            self._check_arguments(params, x)
            raise self._refusal(x)
        call = self._traced if _core.is_tracing() else self._compiled
        if lengths is not None and not _core.is_tracing() and numpy.ndim(timed(x)) > 1:
            self._check_lengths(lengths, timed(x))
        try:
            return call(params, x, key, state, lengths, buffers, training)
        except (_core.UserError, TypeError):
            self._check_arguments(params, x)
            raise

    def _check_lengths(self, lengths, x):
        """Of numbers, for what a program would have to take for another length. In a trace there are none to look at."""
        lengths, steps = numpy.asarray(lengths), numpy.shape(x)[1]
        if lengths.dtype.kind not in "iu":
            raise _core.UserError(f"[{type(self).__name__}] lengths must be integers. Received: {lengths.dtype}. Try: lengths.astype(\"int32\").")
        wrong = numpy.flatnonzero((lengths < 0) | (lengths > steps))
        if len(wrong):
            raise _core.UserError(
                f"[{type(self).__name__}] lengths must lie between 0 and the input's steps, {steps}. Received: {lengths.flat[wrong[0]]} for row {wrong[0]}."
            )

    def _check_arguments(self, params, x):
        """After an error: whether it was one of the arguments, rather than of the input's shape or dtype."""
        name = type(self).__name__
        if x is _ABSENT:
            raise _core.UserError(f"[{name}] a model holds no parameters: they and the input are given at each call. Received: one argument. Try: model(model.init(seed), x).") from None
        if isinstance(x, dict) and not isinstance(params, dict):
            raise _core.UserError(f"[{name}] the parameters come before the input. Received: model(x, params). Try: model(params, x).") from None
        if not isinstance(params, dict):
            raise _core.UserError(f"[{name}] params must be a dict as model.init(seed) gives it. Received: {kind_of(params)}.") from None
        try:
            wanted, given = (dict(_leaves(tree)) for tree in (self.init(0), params))
        except Exception:  # an init of one's own that wants more: the first error stands
            return
        wrong = [f"{path} is missing" for path in wanted if path not in given]
        wrong += [f"{path} is left over" for path in given if path not in wanted]
        wrong += [f"{path} is {given[path]} in place of {shape}" for path, shape in wanted.items() if given.get(path, shape) != shape]
        if wrong:
            more = f", and {len(wrong) - 6} more" if len(wrong) > 6 else ""
            raise _core.UserError(
                f"[{name}] params must be as model.init(seed) gives them for {self!r}. Received: {', '.join(wrong[:6])}{more}. Try: the parameters that this model was trained with."
            ) from None

    @functools.cached_property
    def _compiled(self):
        call = lambda *arguments: self._traced(*arguments)  # noqa: E731
        call.__name__ = type(self).__name__  # by which errors and hl.explain call it
        return jit(call, static_argnums=6)

    def _traced_input(self, params, x):
        """x in the dtype of the parameters."""
        traced = lambda leaf, name: in_params_dtype(params, _core.to_tracer(leaf, name))  # noqa: E731
        return map_inputs(traced, x) if self._is_tree(x) else traced(x, "x")

    def _traced(self, params, x, key, state, lengths, buffers, training):
        x = self._traced_input(params, x)
        if key is not None:
            key = _draws.checked_key(key)
        if lengths is not None:
            lengths = narrowed(lengths)
        around = _own.current()
        if around is None:
            y, state_out, buffers_out = self._layer_for(x).apply(params, x, key, state, lengths, buffers, training, False)
        else:
            y, state_out, buffers_out = around.call(self, params, x, key, state, lengths, buffers, training)
        return (y, *(() if state is None else (state_out,)), *(() if buffers is None else (buffers_out,))) if (
            state is not None or buffers is not None
        ) else y

    def predict(self, params, x, batch_size=None):
        """The model's output for x, computed in batches (None: in one)."""
        from hotloop._manipulation import concat

        count = len(named_leaves(x)[0][1]) if self._is_tree(x) else len(x)
        if batch_size is None or count <= batch_size:
            return self(params, x)
        rows = lambda i: map_inputs(lambda leaf, _: leaf[i : i + batch_size], x) if self._is_tree(x) else x[i : i + batch_size]  # noqa: E731
        return concat([self(params, rows(i)) for i in range(0, count, batch_size)])

    def bind(self, params, buffers=None, flush_denormals=False, dot_precision="float32"):
        """The model with these parameters (and buffers, such as running means), for repeated inference and streaming.

        flush_denormals: see hl.jit; for streams that decay to silence.
        dot_precision: see hl.jit; "bfloat16" pays for large batches and from about 128 units on, docs/precision.md.
        """
        from hotloop.nn._bound import Bound

        return Bound(self, params, buffers, flush_denormals, dot_precision)

    def __repr__(self):
        return f"{type(self).__name__}()"


def _described(layer):
    return f"the class {layer.__name__}" if isinstance(layer, type) else kind_of(layer)


def _try(layer):
    """What to give Sequential in place of what is no layer."""
    if isinstance(layer, type):
        return f"{layer.__name__}(...)"
    return "a layer such as hl.nn.Tanh(), or a subclass of hl.nn.Module with init and apply" if callable(layer) and not hasattr(layer, "initial_state") else "hl.nn.Recurrent(cell) for a cell"


class Sequential(Module):
    """Layers one after another. Parameters of the i-th are under the key "i"."""

    def __init__(self, *layers):
        for i, layer in enumerate(layers):
            if not isinstance(layer, Module):
                meant = "hl.nn.Sequential(*layers)" if isinstance(layer, (list, tuple)) else _try(layer)
                raise _core.UserError(f"[Sequential] every part must be a layer. Received: {_described(layer)} at {i}. Try: {meant}.")
        self.layers = layers
        self._layer  # noqa: B018

    def _make(self):
        return _core.sequential([layer._layer for layer in self.layers])

    @property
    def _takes_trees(self):
        return bool(self.layers) and self.layers[0]._takes_trees

    def _make_for(self, structure):
        first, *rest = self.layers
        return _core.sequential([first._make_for(structure), *(layer._layer for layer in rest)])

    def __repr__(self):
        return f"Sequential({', '.join(map(repr, self.layers))})"
