"""Files of parameters, and what there is to run on."""

import contextlib
import dataclasses
import os
import platform
import zipfile
from collections.abc import Mapping

from hotloop import _core
from hotloop._names import kind_of


def save(path, params, metadata=None, *, buffers=None):
    """Writes a tree of arrays and numbers as a safetensors file. Names are the keys, places and fields on the way, joined by dots: for a model's parameters
    those of PyTorch's state_dict. Numbers of Python are saved as hl.asarray makes them arrays, float32 and int32. metadata: a dict of texts. The file is renamed into place when it is whole.

    buffers: of a model that has them (running means of BatchNorm): run.buffers. They stand beside the parameters, as in a state_dict;
        load(path, like=..., buffers=...) gives both.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise _core.UserError(f"[save] the path comes before the tree of arrays. Received: {kind_of(path)}. Try: hl.save(path, params).")
    _check_tree(params)
    named = {}
    _collect(params, "", named)
    _collect({} if buffers is None else buffers, "", named)
    _core.save_safetensors(os.fspath(path), named, dict(metadata or {}))


def _check_tree(params):
    """The run or the model that holds them, or does not, is given often."""
    from hotloop._fit import Run
    from hotloop.nn import Module

    if isinstance(params, Run):
        meant = "hl.save(path, run.params, buffers=run.buffers)" if params.buffers else "hl.save(path, run.params)"
    elif isinstance(params, Module):
        meant = "hl.save(path, params), the params that fit or model.init(seed) gave. The model is made again by your program"
    else:
        return
    raise _core.UserError(f"[save] what is saved must be a tree of arrays. Received: a {type(params).__name__}. Try: {meant}.")


def _children(tree):
    """(name, child) of what is no leaf, as the trees of hl.tree are taken apart; None of a leaf."""
    if tree is None:
        return ()
    if isinstance(tree, dict):
        return tree.items()
    if isinstance(tree, (list, tuple)):
        return enumerate(tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree) if not f.metadata.get("static")]
    return None


def _collect(tree, prefix, named):
    items = _children(tree)
    if items is None:
        if prefix in named:
            raise _core.UserError(f"[save] names must be distinct. Received: two arrays called {prefix}.")
        named[prefix or "value"] = tree
        return
    for key, child in items:
        _collect(child, f"{prefix}.{key}" if prefix else str(key), named)


def load(path, like=None, *, buffers=None, with_metadata=False):
    """The arrays of a safetensors file as nested dicts: "a.b" is child b of child a.

    path: of the file, or a dict of arrays by name, such as module.state_dict() of PyTorch, which are copied.
    like: a tree whose structure, shapes and dtypes the file must have; then the result has that structure, and numbers where it has numbers of Python.
        UserError naming every array that is missing, left over or of another type.
    buffers: a tree as `like`, of the model's buffers: load(path, like=model.init(), buffers=model.init_buffers()) gives (params, buffers).
    """
    if buffers is not None and like is None:
        raise _core.UserError("[load] buffers are told from parameters by the names of both. Received: no `like`. Try: like=model.init(), buffers=model.init_buffers().")
    if isinstance(path, Mapping):
        named, metadata, source = {str(n): _core.copy(_core.asarray(a, str(n))) for n, a in path.items()}, {}, "the dict"
    else:
        source = os.fspath(path)
        _check_no_archive(source)
        named, metadata = _core.load_safetensors(source)
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
        num_params = len(wanted)
        _collect({} if buffers is None else buffers, "", wanted)
        problems = [f"{n} is missing" for n in wanted if n not in named] + [f"{n} is left over" for n in named if n not in wanted]
        problems += [text for n, array in wanted.items() if n in named and (text := _difference(n, named[n], array))]
        if problems:
            rest_may_be_buffers = buffers is None and all(p.endswith("is left over") for p in problems)
            meant = " Try: buffers=model.init_buffers(), if they are the model's." if rest_may_be_buffers else ""
            raise _core.UserError(f"[load] {source} must have the arrays of `like`. Received: {'; '.join(problems)}.{meant}")
        arrays = [type(array)(named[n]) if type(array) in _KINDS else named[n] for n, array in wanted.items()]
        tree = _core.tree_flatten(like)[1].unflatten(arrays[:num_params])
        if buffers is not None:
            tree = (tree, _core.tree_flatten(buffers)[1].unflatten(arrays[num_params:]))
    return (tree, metadata) if with_metadata else tree


_KINDS = {bool: "b", int: "iu", float: "f"}


def _difference(name, found, wanted):
    """What is wrong with an array of the file beside a leaf of `like`; None if nothing is."""
    kinds = _KINDS.get(type(wanted))
    if kinds:
        fits, text = found.shape == () and found.dtype.kind in kinds, f"a number, {type(wanted).__name__}"
    else:
        wanted = wanted if hasattr(wanted, "dtype") else _core.asarray(wanted, f"like, {name}")
        fits, text = tuple(found.shape) == tuple(wanted.shape) and found.dtype == wanted.dtype, f"{wanted.dtype}{tuple(wanted.shape)}"
    return None if fits else f"{name} is {found.dtype}{found.shape}, wanted {text}"


def _check_no_archive(path):
    """torch.save writes an archive of pickled objects, which nothing but PyTorch reads; numpy.savez one of arrays, which NumPy reads."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError:
        return  # the reader says it
    if start != b"PK\x03\x04":
        return
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if any(name.endswith(".npy") for name in archive.namelist()):
            raise _core.UserError(f"[load] the file must be a safetensors file. Received: {path}, an archive of NumPy. Try: hl.load(numpy.load({path!r})), with like= for a tree.")
    raise _core.UserError(f"[load] the file must be a safetensors file. Received: {path}, an archive as torch.save writes it. Try: hl.load(torch.load({path!r}, weights_only=True)).")


def devices():
    """What programs can run on: a list of dicts. The processor is the first, with name, kind "cpu", number of cores and vector target; the GPU, where
    hl.jit(f, device="cuda") works, follows with name, kind "cuda", compute capability (major, minor), multiprocessors, memory_bytes and the versions of
    driver and compiler. Where it is missing, the command `hotloop devices` says why, as the error of device="cuda" does.

    Asking starts the driver, which does not work in processes that are forked from then on."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            name = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    gpu = _core.cuda_device()
    return [{"name": name, "kind": "cpu", "cores": len(os.sched_getaffinity(0)), "target": _core.host_target()}, *([gpu] if gpu else [])]
