"""Trees of arguments and results: containers and their structures, taken apart and put together again."""

import collections
import dataclasses
import re
import subprocess
import sys
import typing

import hotloop as hl
import numpy as np
import pytest
from hotloop import _core

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Cell:
    weight: object
    extra: dict


TREES = [
    (1.0, [2.0, {"a": 3.0, "b": (4.0, None)}]),
    {"z": Point(1.0, [2.0]), "a": Cell(3.0, {"k": 4.0})},
    [[], {}, (), None, 5.0],
]


@pytest.mark.parametrize("tree", TREES)
def test_trees(tree):
    f = hl.jit(lambda t: hl.tree.map(lambda v: v * 2, t))
    result = f(tree)
    assert hl.tree.structure(result) == hl.tree.structure(tree)
    assert [float(v) for v in hl.tree.leaves(result)] == [2 * v for v in hl.tree.leaves(tree)]


def test_tree_paths_and_mismatch():
    tree = {"z": Point(1.0, [2.0]), "a": Cell(3.0, {"k": 4.0})}
    assert hl.tree.paths(tree) == ["['z'].x", "['z'].y[0]", "['a'].weight", "['a'].extra['k']"]
    with pytest.raises(hl.UserError, match=r"\[tree.map\] the tree must have the key b. Received: a dict."):
        hl.tree.map(lambda a, b: a, {"b": 1}, {"c": 1})
    # By key, whatever the order.
    assert hl.tree.map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}) == {"a": (1, 4), "b": (2, 3)}


@dataclasses.dataclass
class Scaled:
    unit: typing.ClassVar[str] = "V"
    w: object
    scale: dataclasses.InitVar[float] = 1.0
    steps: int = dataclasses.field(default=3, metadata={"static": True})
    bias: object = 0.0

    def __post_init__(self, scale):
        self.w = self.w * scale


def test_class_variables_and_arguments_of_init_are_no_fields():
    given = Scaled(np.float32(2), 5.0, bias=np.float32(1))
    assert hl.tree.paths({"p": given}) == ["['p'].w", "['p'].bias"]

    def f(p, x):
        assert p.unit == "V"
        for _ in range(p.steps):
            x = p.w * x + p.bias
        return hl.tree.map(lambda a: a * x, p)

    result = hl.jit(f)(given, np.float32(1))
    x = 10.0 * (10.0 * (10.0 + 1) + 1) + 1
    assert (float(result.w), float(result.bias), result.steps) == (10 * x, x, 3)
    assert set(vars(result)) == {"w", "bias", "steps"}
    value, slope = hl.value_and_grad(lambda p: p.w**2 + 3 * p.bias)(given)
    assert (float(value), float(slope.w), float(slope.bias)) == (103, 20, 3)
    with pytest.raises(hl.UserError, match="the tree must have the static value 3 at .steps"):
        hl.tree.map(lambda a, b: a, given, Scaled(1.0, steps=4))


def nested(container, depth):
    tree = 1.0
    for _ in range(depth):
        tree = container(tree)
    return tree


def test_trees_that_hold_themselves_or_are_very_deep():
    # In a process of its own, since what fails ends it.
    program = """
import dataclasses
import hotloop as hl
import numpy as np

@dataclasses.dataclass
class Box:
    inside: object

def refused(run):
    try:
        run()
    except RecursionError as error:
        assert str(error).startswith("maximum recursion depth exceeded in "), error
    else:
        raise AssertionError("no RecursionError")

def nested(container, depth=200_000):
    tree = 1.0
    for _ in range(depth):
        tree = container(tree)
    return tree

itself, table, box = [], {}, Box(None)
itself.append(itself)
table["a"], box.inside = table, box
deep = [nested(lambda t: (t,)), nested(lambda t: [t]), nested(lambda t: {"a": t})]
for tree in (itself, table, box, *deep):
    refused(lambda: hl.jit(lambda t: 1.0)(tree))
    refused(lambda: hl.tree.flatten(tree))
for rows in (itself, deep[1]):
    refused(lambda: hl.asarray(rows))
    refused(lambda: hl.jit(lambda x: x + hl.asarray(rows))(1.0))

class Net(hl.nn.Module):
    def init(self, seed):
        return table
    def apply(self, params, x, key=None):
        return x

refused(lambda: hl.nn.Sequential(Net()).init(0))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    # What the interpreter's own limit allows still works.
    tree = nested(lambda t: [t], 200)
    leaves, structure = hl.tree.flatten(tree)
    assert leaves == [1.0] and structure.unflatten([1.0]) == tree and structure.paths() == ["[0]" * 200]


class Converting:
    """A field that makes a new array of a list at each read."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        value = None if instance is None else getattr(instance, self.name)
        return np.array(value, np.float32) if isinstance(value, list) else value

    def __set__(self, instance, value):
        setattr(instance, self.name, value)


@dataclasses.dataclass
class Converted:
    a: Converting = Converting()
    b: Converting = Converting()


def test_fields_that_make_their_value_when_they_are_read():
    f = hl.jit(lambda p: p.a + 10 * p.b)
    for i in range(200):
        assert f(Converted([i] * 300, [i + 1] * 300))[299] == i + 10 * (i + 1)
    leaves, structure = hl.tree.flatten(Converted([1.0], [2.0]))
    assert [leaf.tolist() for leaf in leaves] == [[1.0], [2.0]] and structure.paths() == [".a", ".b"]


class Meddling:
    """A leaf that does something when it is read."""

    def __init__(self, act):
        self.act = act

    def __array__(self, dtype=None, copy=None):
        self.act()
        return np.ones(3, np.float32)


def test_a_leaf_that_takes_itself_out_of_its_tree():
    f = hl.jit(lambda d: sum(v.sum() for v in d.values()))
    for i in range(300):
        tree, others = {}, []

        def act(tree=tree, others=others):
            tree.clear()
            others.extend(bytes(60) for _ in range(200))  # in the memory of what nobody keeps

        tree["k" * 40 + str(i % 3)] = Meddling(act)
        assert f(tree) == 3
    assert _core.num_specializations(f) == 3


@dataclasses.dataclass
class Reading:
    x: object

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        return value() if name == "x" else value


def test_a_container_that_changes_while_it_is_read():
    numbers, table = [], {}
    numbers += [Reading(lambda: numbers.extend([2.0, 3.0]) or 1.0)]
    leaves, structure = hl.tree.flatten(numbers)
    assert leaves == [1.0, 2.0, 3.0] and structure.paths() == ["[0].x", "[1]", "[2]"]
    table.update(a=[Reading(lambda: table.clear() or 1.0), 2.0])
    assert hl.tree.flatten(table)[1].paths() == ["['a'][0].x", "['a'][1]"]


class Limits(typing.NamedTuple("Limits", [("low", object), ("high", object)])):
    def __new__(cls, low, high):
        if low > high:
            raise ValueError("low above high")
        return super().__new__(cls, low, high)


def test_named_tuples_that_check_what_they_are_made_of():
    assert hl.jit(lambda t: t.high - t.low)(Limits(1.0, 3.0)) == 2
    result = hl.jit(lambda t: t)(Limits(1.0, 3.0))
    assert type(result) is Limits and result.low == 1 and result.high == 3


def test_equal_structures_have_equal_hashes():
    trees = [{"a": 1, "b": [2, (3, None)]}, {"a": 1, "c": [2, (3, None)]}, {1: 2, "1": 3}, Point(1, 2), (1, 2), {0.0: 1}]
    for tree in trees:
        again = hl.tree.structure(hl.tree.map(lambda x: x + 1, tree))
        assert again == hl.tree.structure(tree) and hash(again) == hash(hl.tree.structure(tree))
    assert len({hl.tree.structure(tree) for tree in trees + trees}) == len(trees)


def test_keys_with_one_text_are_refused_where_trees_have_names():
    params = {1: np.ones(2, np.float32), "1": np.ones(3, np.float32)}
    optimizer = hl.optim.Adam(0.1)
    for call in (lambda: optimizer.init(params), lambda: hl.jit(optimizer.init)(params), lambda: optimizer.update(params, {}, params)):
        with pytest.raises(hl.UserError, match=r"\[params|grads\] the keys of a dict must differ as text. Received: two keys '1'. Try: strings alone as keys."):
            call()


def test_errors_name_leaves_as_paths_do():
    tree, other = ({1: {"a": [1.0, Point(2.0, y)]}} for y in (3.0, (3.0, 4.0)))
    assert hl.tree.flatten(tree)[1].paths()[-1] == "[1]['a'][1].y"
    with pytest.raises(hl.UserError, match=re.escape("one array at [0][1]['a'][1].y")):
        hl.jvp(lambda t: t[1]["a"][0], (tree,), (other,))
