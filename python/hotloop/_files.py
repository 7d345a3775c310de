"""Files of parameters, and what there is to run on."""

import os
import platform

from hotloop import _core


def save(path, params, metadata=None):
    """Writes a tree of arrays as a safetensors file. Names are the keys on the way, joined by dots: for a model's parameters those of
    PyTorch's state_dict. metadata: a dict of texts. The file is renamed into place when it is whole."""
    named = {}
    _collect(params, "", named)
    _core.save_safetensors(os.fspath(path), named, dict(metadata or {}))


def _collect(tree, prefix, named):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else None
    if items is None:
        if prefix in named:
            raise _core.UserError(f"[save] names must be distinct. Received: two arrays called {prefix}.")
        named[prefix or "value"] = tree
        return
    for key, child in items:
        _collect(child, f"{prefix}.{key}" if prefix else str(key), named)


def load(path, like=None, *, with_metadata=False):
    """The arrays of a safetensors file as nested dicts: "a.b" is child b of child a.

    like: a tree whose structure, shapes and dtypes the file must have; then the result has that structure. UserError naming every
    array that is missing, left over or of another type.
    """
    named, metadata = _core.load_safetensors(os.fspath(path))
    if like is None:
        tree = {}
        for name, array in named.items():
            *parents, last = name.split(".")
            at = tree
            for part in parents:
                at = at.setdefault(part, {})
            at[last] = array
    else:
        wanted = {}
        _collect(like, "", wanted)
        problems = [f"{n} is missing" for n in wanted if n not in named] + [f"{n} is left over" for n in named if n not in wanted]
        for n, array in wanted.items():
            if n in named and (tuple(named[n].shape) != tuple(array.shape) or named[n].dtype != array.dtype):
                problems.append(f"{n} is {named[n].dtype}{named[n].shape}, wanted {array.dtype}{tuple(array.shape)}")
        if problems:
            raise _core.UserError(f"[load] {os.fspath(path)} must have the arrays of `like`. Received: {'; '.join(problems)}.")
        tree = _core.tree_flatten(like)[1].unflatten([named[n] for n in wanted])
    return (tree, metadata) if with_metadata else tree


def devices():
    """What programs can run on: a list of dicts with name, kind and number of cores."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return [{"name": name, "kind": "cpu", "cores": len(os.sched_getaffinity(0)), "target": _core.host_target()}]
