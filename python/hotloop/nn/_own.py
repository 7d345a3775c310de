"""What a module of one's own does for the layers that are its attributes: their parameters, states, lengths, buffers and keys."""

import contextlib
import inspect
import math
import threading

import numpy

from hotloop import _core, random
from hotloop._inputs import is_tree, timed
from hotloop._names import kind_of


class _Frames(threading.local):
    def __init__(self):
        self.stack = []
        self.traced = None  # (module, structure, [(shape, dtype), ...]) of each call of apply(), where they are wanted
        self.pointwise = False  # whether layers with a state are replaced by functions of each step alone


_frames = _Frames()


def current():
    """The module under trace whose apply() is running, if it is one's own."""
    return _frames.stack[-1] if _frames.stack else None


@contextlib.contextmanager
def traced_modules():
    """(module, structure, [(shape, dtype), ...]) of x for each apply() that is traced inside; the structure of one array is None."""
    before, _frames.traced = _frames.traced, []
    try:
        yield _frames.traced
    finally:
        _frames.traced = before


@contextlib.contextmanager
def pointwise_layers():
    """Layers with a state, called by an apply() that is traced inside, give a function of each step alone."""
    before, _frames.pointwise = _frames.pointwise, True
    try:
        yield
    finally:
        _frames.pointwise = before


def _pointwise(y, x):
    """Of y's shape, in place of what a layer with a state gives for x: a function of each step alone, of the last one where y has no axis of time."""
    from hotloop import sin

    inputs, has_time = math.prod(x.shape[2:]), y.shape[:2] == x.shape[:2]
    features = y.shape[2:] if has_time else y.shape[1:]
    weights = numpy.linspace(0.3, 1, inputs) / math.sqrt(inputs)
    at = (_core.cast(x, y.dtype).reshape(*x.shape[:2], inputs) * weights.astype(y.dtype)).sum(axis=2)
    at = at if has_time else at[:, -1]
    spread = numpy.linspace(0.5, 2, math.prod(features)).reshape(features).astype(y.dtype)  # no two features are alike
    return sin(at.reshape(*at.shape, *(1 for _ in features)) * spread + spread)


def layers_of(module, kind):
    """{path: layer} of the attributes of `module` that are of `kind`, also in lists, tuples and dicts, in the order they were set. A layer
    that two attributes share is there once."""
    found, seen = {}, set()

    def walk(value, path):
        if isinstance(value, kind):
            if id(value) not in seen:
                seen.add(id(value))
                found[path] = value
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, (*path, str(key)))
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                walk(item, (*path, str(i)))

    for name, value in vars(module).items():
        walk(value, (name,))
    return found


def tree_of(layers, make):
    """Nested dicts of make(path, layer), without what is empty."""
    tree = {}
    for path, layer in layers.items():
        part = make(path, layer)
        if part:
            _put(tree, path, part)
    return tree


def _put(tree, path, value):
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _get(tree, path):
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def _copy(tree):
    return {name: _copy(child) if isinstance(child, dict) else child for name, child in tree.items()}


class _Frame:
    """One call of apply(). Layers that are attributes are given what it was given, and leave their states and buffers here."""

    def __init__(self, module, layers, x, key, training, lengths, reverse, state, buffers):
        self.name = type(module).__name__
        self.paths = {id(layer): path for path, layer in layers.items()}
        self.shape, self.key, self.training, self.lengths, self.reverse = timed(x).shape, key, training, lengths, reverse
        # Beside a sequence (batch, time, features) a (batch, features) has no steps, though it may have as many features.
        self.least_ndim = min(3, len(self.shape)) if is_tree(x) else 2
        self.state = None if state is None else _copy(state)
        self.buffers = _copy(buffers)
        self.calls, self.stepped = 0, set()

    def call(self, layer, params, x, key, state, lengths, buffers, training):
        """As layer._layer.apply: (y, state, buffers), of what the caller gave."""
        engine_layer, at = layer._layer_for(x), timed(x)
        if _frames.pointwise and state is None and at.ndim > 1 and _has_state(layer):
            path = self.paths.get(id(layer))
            own = _get(self.buffers, path) if buffers is None and path is not None else buffers
            return _pointwise(engine_layer.apply(params, x, None, None, None, own, False, False)[0], at), state, buffers
        path = self.paths.get(id(layer))
        if path is None:
            if (self.state is not None or self.lengths is not None or self.reverse) and state is None and lengths is None and _has_state(layer):
                raise _core.UserError(
                    f"[{self.name}] a recurrent layer that apply() calls must be an attribute of the module, which knows its state and lengths by that. "
                    f"Received: {layer!r}. Try: self.layer = hl.nn.{type(layer).__name__}(...) in __init__."
                )
            return engine_layer.apply(params, x, key, state, lengths, buffers, training, False)
        name = ".".join(path)
        if key is None and self.key is not None:
            key = random.fold_in(self.key, self.calls)
        self.calls += 1
        # The module's own input has zeros beyond the rows' steps, as that of Sequential has: layers inside see what is made of them.
        inherits = lengths is None and self.lengths is not None
        if inherits:
            lengths = self._lengths_for(layer, name, at)
        own_state = _get(self.state, path) if self.state is not None else None
        if own_state is not None:
            if state is not None:
                raise _core.UserError(f"[{self.name}] a module that goes on from a state must leave its layers theirs. Received: a state for {name} in apply(). Try: the whole sequence, model(params, x).")
            if path in self.stepped:
                raise _core.UserError(f"[{self.name}] a layer with a state must be called once in apply(), or its state is two. Received: two calls of {name}. Try: a layer for each call.")
            self.stepped.add(path)
        own_buffers = _get(self.buffers, path) if buffers is None else None
        y, state_out, buffers_out = engine_layer.apply(
            params, x, key, state if own_state is None else own_state, lengths, buffers if own_buffers is None else own_buffers, training or self.training, self.reverse, inherits
        )
        if own_state is not None:
            _put(self.state, path, state_out)
        if own_buffers is not None:
            _put(self.buffers, path, buffers_out)
        return y, state_out, buffers_out

    def _lengths_for(self, layer, name, x):
        if x.ndim >= self.least_ndim and x.shape[:2] == self.shape[:2]:
            return self.lengths
        if x.ndim > 2 and _has_state(layer):
            raise _core.UserError(
                f"[{self.name}] lengths count the steps of the module's own input, {self.shape[1]}. Received: {name} with {x.shape[1]} steps. "
                f"Try: apply(self, params, x, key=None, lengths=None), and self.{name}(params, x, lengths=...) of its steps."
            )
        return None


def _has_state(layer):
    return bool(layer._layer.initial_state(1, "float32"))


def apply(module, layers, params, x, key, state, lengths, buffers, training, reverse):
    """(y, state, buffers) of module.apply(params, x)."""
    frame = _Frame(module, layers, x, key, training, lengths, reverse, state, buffers)
    known = inspect.signature(module.apply).parameters
    rest = any(p.kind is p.VAR_KEYWORD for p in known.values())
    given = {"key": key} if rest or "key" in known else {}
    if "lengths" in known or (rest and lengths is not None):
        given["lengths"] = lengths
    _frames.stack.append(frame)
    try:
        y = module.apply(params, x, **given)
    finally:
        _frames.stack.pop()
    if isinstance(y, (tuple, list, dict)):
        raise _core.UserError(
            f"[{type(module).__name__}] apply() must give one array. Received: {kind_of(y)}. "
            "Try: hl.concat([...], axis=-1) of several, or a function of (params, x) that calls the layers, with hl.value_and_grad."
        )
    if _frames.traced is not None:
        leaves, structure = _core.tree_flatten(x) if is_tree(x) else ([x], None)
        _frames.traced.append((module, structure, [(leaf.shape, leaf.dtype) for leaf in leaves]))
    return y, frame.state, frame.buffers
