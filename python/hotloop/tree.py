"""Trees: arrays in dicts, lists, tuples, named tuples, dataclasses and None, nested in any way. Subclasses of dict, such as OrderedDict and defaultdict, are
taken as dicts, and what is made of their structure are dicts."""

import itertools
import math

from hotloop import _core
from hotloop._names import TREES, absent, kind_of
from hotloop._op import function

__all__ = ["flatten", "unflatten", "leaves", "structure", "map", "paths", "ravel"]


def flatten(tree):
    """(leaves, structure). Dicts are taken in their own order."""
    return _core.tree_flatten(tree)


def unflatten(structure, leaves):
    """The tree of this structure with these leaves."""
    if not isinstance(structure, _core.Structure):
        raise _core.UserError(f"[tree.unflatten] the first argument must be a structure. Received: {kind_of(structure)}. Try: hl.tree.structure(tree).")
    return structure.unflatten(list(leaves))


def leaves(tree):
    """The leaves, depth first."""
    return _core.tree_flatten(tree)[0]


def structure(tree):
    """The structure without the leaves; comparable."""
    return _core.tree_flatten(tree)[1]


def map(fn, tree, *rest):
    """The tree of fn(leaf, leaf of each of the rest), which must have the structure of the first; dicts are matched by key."""
    function("tree.map", "what is applied", fn)
    first, shape = _core.tree_flatten(tree)
    others = [shape.flatten_like(t, "tree.map") for t in rest]
    return shape.unflatten([fn(*together) for together in zip(first, *others)])


def paths(tree):
    """What leads to each leaf, as text: "['cell']['weight_ih']"."""
    return _core.tree_flatten(tree)[1].paths()


def ravel(tree):
    """(vector, unravel): all numbers of the tree one after another, in the widest dtype of its arrays, and the function that makes a tree of
    such a vector again, with the shapes and dtypes of this one. For optimisers and solvers that take vectors."""
    from hotloop import astype, concat, result_type

    arrays, shape = _core.tree_flatten(tree)
    arrays = [a if _core.is_tracer(a) else _core.asarray(a) for a in arrays]
    if not arrays:
        raise _core.UserError("[tree.ravel] the tree must have an array. Received: none.")
    dtype = result_type(*(a.dtype for a in arrays))
    sizes = [math.prod(a.shape) for a in arrays]
    kinds = [(a.shape, a.dtype) for a in arrays]  # of the arrays themselves nothing is kept

    def unravel(vector):
        vector = vector if _core.is_tracer(vector) else _core.asarray(vector)
        if tuple(vector.shape) != (sum(sizes),):
            raise _core.UserError(f"[tree.ravel] the vector must have the tree's {sum(sizes)} numbers. Received: shape {tuple(vector.shape)}.")
        ends = list(itertools.accumulate(sizes))
        parts = [vector[end - size : end] for size, end in zip(sizes, ends)]
        return shape.unflatten([astype(part.reshape(of), kind) for part, (of, kind) in zip(parts, kinds)])

    return concat([astype(a.reshape((size,)), dtype) for a, size in zip(arrays, sizes)]), unravel


def __dir__():
    return __all__


def __getattr__(name):
    raise absent("hotloop.tree", name, __all__, {}, TREES)
