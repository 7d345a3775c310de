"""A model with its parameters: what depends on them alone is computed once."""

import numpy

from hotloop import _core
from hotloop._inputs import map_inputs, named_leaves
from hotloop.nn._streams import checked_modules


def _no_row(x):
    if getattr(x, "dtype", None) is not None and x.dtype.kind in "iu" or isinstance(x, int):
        return _core.UserError("[step] ids of a step must be (batch,), one id a sequence. Received: a scalar. Try: numpy.array([id]) for one sequence.")
    return _core.UserError("[step] x must be (batch, features), one row a sequence. Received: a scalar. Try: [[x]] for one sequence of one feature.")


def _check_ids(bound, x):
    """Of what a step did not take: UserError if it is ids with an axis of features or time, without which the step takes them."""
    if getattr(x, "ndim", 0) > 1 and x.dtype.kind in "iu" and all(n == 1 for n in x.shape[1:]):
        try:
            bound._stepped(None, x[(slice(None), *[0] * (x.ndim - 1))])
        except _core.UserError:
            return
        raise _core.UserError(
            f"[step] ids of a step must be (batch,), one id a sequence, since the step is the time and an Embedding adds the features. Received: {x.dtype} {tuple(x.shape)}. "
            f"Try: ids[{', '.join([':', *['0'] * (x.ndim - 1)])}]."
        ) from None


def _no_step(x):
    given = ", ".join(f"{name} = {leaf.dtype} {tuple(leaf.shape)}" for name, leaf in named_leaves(x))
    return _core.UserError(f"[step] inputs of a step must be a sequence of one step, (batch, 1, ...) of what has steps. Received: {given}. Try: a[:, t : t + 1] of those.")


class Bound:
    """A model with its parameters, for repeated inference and streaming; Module.bind makes one.

    What depends on the parameters alone (gates merged into one matrix, the layout a dot wants) is computed when a program is
    compiled, once for each shape of the input. Later writes to the caller's arrays do not reach it. Results are those of
    hl.jit(model, dot_precision=...)(params, x), to the bit. Safe to use from several threads.
    """

    def __init__(self, model, params, buffers=None, flush_denormals=False, dot_precision="float32"):
        self.model, self.params, self.buffers = model, _owned(params), _owned(buffers)
        self._options = flush_denormals, dot_precision
        self._streams = False  # whether the model was seen to run one step at a time

        def run(weights, x, state):
            params, buffers = weights
            x = model._traced_input(params, x)
            y, after, _ = model._layer_for(x).apply(params, x, None, state, None, buffers, False, False)
            return y, after

        def call(weights, x):
            return run(weights, x, None)[0]

        def step(weights, state, x):
            if self.model._is_tree(x):
                x = map_inputs(_core.to_tracer, x)
                has_time = any(_core.has_a_step(leaf.shape, leaf.dtype) for leaf in _core.tree_flatten(x)[0])
                if not has_time and _core.tree_flatten(state)[0]:
                    raise _no_step(x)
                return one_step(weights, state, x)
            x = _core.to_tracer(x, "x")
            if x.ndim < 1:
                raise _no_row(x)
            if x.ndim == 1 and x.dtype.kind == "f":
                raise _core.UserError(f"[step] x must be (batch, features), one row a sequence. Received: {x._type}. Try: x[None] for one sequence.")
            return one_step(weights, state, _core.reshape(x, (x.shape[0], 1, *x.shape[1:])))

        def one_step(weights, state, x):
            y, after = run(weights, x, state)
            # Many-to-many models keep the axis of time.
            if y.ndim > 1 and y.shape[1] == 1 and keeps_time(weights, state, x):
                y = _core.reshape(y, (y.shape[0], *y.shape[2:]))
            return y, after

        def keeps_time(weights, state, x):
            # An axis of one step and one of one feature look alike: with two steps the first grows.
            try:
                y, _ = run(weights, map_inputs(lambda leaf, _: _core.concat([leaf, leaf], 1) if _core.has_a_step(leaf.shape, leaf.dtype) else leaf, x), state)
                return y.ndim > 1 and y.shape[1] == 2
            except Exception:  # whatever a module of one's own raises that takes one step alone
                return False

        weights = (self.params, self.buffers)
        options = _core.options(flush_denormals=flush_denormals, dot_precision=dot_precision)
        self._call = _core.bound_jit(call, "call", weights, options)
        self._step = _core.bound_jit(step, "step", weights, options)

    def __call__(self, x):
        """model(params, x)."""
        return self._call(x)

    def initial_state(self, batch=1):
        """What step() starts from."""
        dtypes = [x.dtype for x in _core.tree_flatten(self.params)[0] if x.dtype.kind == "f"]
        return self.model.initial_state(batch, dtypes[0] if dtypes else "float32")

    def step(self, state, x=None):
        """(y, state) of one step: x (batch, features), y without an axis of time. A state of None is the first. Of a model that begins with an Embedding x is
        ids (batch,), whole numbers.

        A tree of several inputs is a sequence of one step, as the model takes it: (batch, 1, ...) of what has steps, (batch, ...) of what has none.

        The same bits as that step of the whole sequence. States are values: they may be kept, saved and gone back to. UserError for a model
        that needs the whole sequence, such as one with a reversed direction, or a module of one's own whose apply() mixes steps.
        """
        try:
            return self._stepped(state, x)
        except _core.UserError:
            _check_ids(self, x)
            raise

    def _stepped(self, state, x):
        if self._streams and state is not None and x is not None:
            return self._step(state, x)  # before all that a first step asks: a step of few units takes less than that
        if x is None:
            raise _core.UserError("[step] a step takes a state and x. Received: one argument. Try: y, state = step(None, x) and from then on step(state, x), or voice().step(x).")
        is_tree = self.model._is_tree(x)
        if not self._streams:
            self._check_stream(x)
        if state is None:
            first = next(iter(_core.tree_flatten(x)[0]), None) if is_tree else x
            if not getattr(first, "shape", True) or not hasattr(first, "__len__"):
                raise _no_row(first)
            state = self.initial_state(len(first))
        return self._step(state, x)

    def _check_stream(self, x):
        if _core.is_tracing():
            return
        if self.model._is_tree(x):
            with checked_modules():
                _core.check_stream(self.model._layer_for(x), self.params, self.buffers, example(self.params, x))
            self._streams = True
            return
        x = _core.asarray(x, "x")
        if x.ndim == 0:
            return  # the program says what does not fit
        with checked_modules():
            if x.ndim == 2 and x.dtype.kind == "f":
                _core.check_stream(self.model._layer, self.params, self.buffers, x.shape[1])
            else:
                self._step(self.initial_state(len(x)), x)
        self._streams = True

    def voice(self, batch=1):
        """A stream of `batch` sequences that keeps its own state."""
        return Voice(self, batch)

    def with_params(self, params, buffers=None):
        """The same programs with other parameters of the same structure, shapes and dtypes: nothing is compiled again.

        buffers: None keeps those of this one.
        """
        other = object.__new__(Bound)
        other.model, other.params, other._streams = self.model, _owned(params), self._streams
        other._options = self._options
        other.buffers = self.buffers if buffers is None else _owned(buffers)
        weights = (other.params, other.buffers)
        other._call, other._step = _core.rebound_jit(self._call, weights), _core.rebound_jit(self._step, weights)
        return other

    def __reduce__(self):
        return Bound, (self.model, self.params, self.buffers, *self._options)

    def __repr__(self):
        return f"Bound({self.model!r})"


def example(params, x):
    """A tree of inputs as arrays; floats in the dtype of the parameters."""
    floats = [a.dtype for a in _core.tree_flatten(params)[0] if a.dtype.kind == "f"]

    def array(leaf, name):
        leaf = _core.asarray(leaf, name)
        return _core.asarray(numpy.asarray(leaf).astype(floats[0])) if floats and leaf.dtype.kind == "f" else leaf

    return map_inputs(array, x)


class Voice:
    """One stream of `batch` sequences: y = voice.step(x). Several voices of one Bound are independent.

    state: as it is now; may be read, kept, and set to one kept before.
    """

    def __init__(self, bound, batch=1):
        self._bound, self._batch = bound, batch
        self.reset()

    def reset(self):
        """Back to the initial state."""
        self.state = self._bound.initial_state(self._batch)

    def step(self, x):
        """y of the next step: x (batch, features), or a tree as Bound.step() takes it."""
        y, self.state = self._bound.step(self.state, x)
        return y


def _owned(tree):
    """The tree with arrays of ours, so that later writes to the caller's memory do not reach them."""
    leaves, structure = _core.tree_flatten(tree)
    return structure.unflatten([_core.snapshot(x, "bind") for x in leaves])
