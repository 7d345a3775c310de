"""What a model takes: one array, or a tree of several whose first axis is the samples."""

import dataclasses

from hotloop import _core


def is_tree(x):
    """Whether x is several inputs, by name or place, and not one array: a dict, a named tuple or a dataclass, or a list or tuple that holds an
    array (one of numbers alone is an array itself)."""
    if isinstance(x, (list, tuple)):
        return hasattr(x, "_fields") or any(getattr(part, "ndim", 0) > 0 or is_tree(part) for part in x if not isinstance(part, (int, float)))
    return isinstance(x, dict) or (hasattr(type(x), "__dataclass_fields__") and dataclasses.is_dataclass(x))


def is_ragged(x):
    """Whether x may be samples of unequal length, each an array of its own."""
    if not isinstance(x, (list, tuple)) or hasattr(x, "_fields") or len(x) < 2:
        return False
    shapes = [getattr(part, "shape", ()) for part in x]
    return all(len(s) == len(shapes[0]) > 0 and s[1:] == shapes[0][1:] for s in shapes) and any(s != shapes[0] for s in shapes)


def padded_text(x):
    """What one does with such samples."""
    rest = "".join(", (0, 0)" for _ in x[0].shape[1:])
    pad = f"numpy.pad(a, ((0, longest - len(a)){rest}))" if rest else "numpy.pad(a, (0, longest - len(a)))"
    return f"n = [len(a) for a in x], numpy.stack([{pad} for a in x]) with longest = max(n), and hl.fit(model, {{'x': padded, 'y': y, 'lengths': n}})"


def named_leaves(x):
    """[("x['a'][0]", array), ...] of a tree."""
    leaves, structure = _core.tree_flatten(x)
    return [(f"x{path}", leaf) for path, leaf in zip(structure.paths(), leaves, strict=True)]


def map_inputs(change, x):
    """change(array, its name) of one array, or of each of a tree."""
    if not is_tree(x):
        return change(x, "x")
    leaves, structure = _core.tree_flatten(x)
    return structure.unflatten([change(leaf, f"x{path}") for path, leaf in zip(structure.paths(), leaves, strict=True)])


def timed(x):
    """The array whose steps lengths count, as in the engine: the first of (samples, time, features, ...) or, where none has so many axes, of
    (samples, time)."""
    if not is_tree(x):
        return x
    leaves = _core.tree_flatten(x)[0]
    return leaves[_core.timed_input([leaf.shape for leaf in leaves])]


def check_samples(where, x, y=None):
    """Of a tree: each array must have the samples of the others, and of y, along its first axis."""
    named = named_leaves(x)
    if not named:
        raise _core.UserError(f"[{where}] x must hold an array. Received: {x!r}.")
    for name, leaf in named:
        if leaf.ndim == 0:
            raise _core.UserError(f"[{where}] each input must have the samples along its first axis. Received: {name}, which is a number. Try: an array of a number for each sample.")
    (first, samples), *others = [(name, len(leaf)) for name, leaf in [*named, *([] if y is None or y.ndim == 0 else [("y", y)])]]
    for name, count in others:
        if count != samples:
            stacked = ""
            if isinstance(x, (list, tuple)) and y is not None and len(x) == len(y):
                stacked = f" Try: {padded_text(x) if is_ragged(x) else 'numpy.stack(x)'}, if these are the samples of one input."
            raise _core.UserError(f"[{where}] {'all inputs' if y is None else 'inputs and targets'} must have equally many samples. Received: {name} has {count} samples, {first} {samples}.{stacked}")
