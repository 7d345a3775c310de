"""Trees: arrays in dicts, lists, tuples, named tuples, dataclasses and None, nested in any way."""

from hotloop import _core


def flatten(tree):
    """(leaves, structure). Dicts are taken in their own order."""
    return _core.tree_flatten(tree)


def unflatten(structure, leaves):
    """The tree of this structure with these leaves."""
    return structure.unflatten(list(leaves))


def leaves(tree):
    """The leaves, depth first."""
    return _core.tree_flatten(tree)[0]


def structure(tree):
    """The structure without the leaves; comparable."""
    return _core.tree_flatten(tree)[1]


def map(fn, tree, *rest):
    """The tree of fn(leaf, leaf of each of the rest), which must have the structure of the first; dicts are matched by key."""
    first, shape = _core.tree_flatten(tree)
    others = [shape.flatten_like(t, "tree.map") for t in rest]
    return shape.unflatten([fn(*together) for together in zip(first, *others)])


def paths(tree):
    """What leads to each leaf, as text: "['cell']['weight_ih']"."""
    return _core.tree_flatten(tree)[1].paths()
