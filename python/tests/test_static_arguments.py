"""Static arguments: which values share a program, which have one of their own, and how it is found."""

import collections
import dataclasses
import threading
import time
import types

import hotloop as hl
import numpy as np
import pytest
from hotloop import _core


def test_static_values_are_compared_by_what_they_hold():
    traces = []

    @hl.jit(static_argnums=1)
    def f(x, n):
        traces.append(n)
        return x * (n["k"][0] if isinstance(n, dict) else n[0])

    x, counts, nested = np.ones(2), [2, 3], {"k": np.array([4, 5])}
    assert f(x, counts)[0] == 2 and f(x, [2, 3])[0] == 2 and len(traces) == 1
    counts[0] = 7  # what the program was compiled for stays what it was
    assert f(x, counts)[0] == 7 and len(traces) == 2
    assert f(x, nested)[0] == 4 and f(x, {"k": np.array([4, 5])})[0] == 4 and len(traces) == 3
    nested["k"][0] = 6
    assert f(x, nested)[0] == 6 and len(traces) == 4
    assert f(x, np.array([2, 3]))[0] == 2 and f(x, np.array([2, 3, 4]))[0] == 2 and len(traces) == 6
    # Equal is not the same: types and signs count.
    assert f(x, (1,)).dtype == f(x, (1.0,)).dtype == np.float64 and len(traces) == 8
    assert np.signbit(f(x, (-0.0,))[0]) and not np.signbit(f(x, (0.0,))[0])
    assert np.isnan(f(x, (float("nan"),))[0]) and np.isnan(f(x, (float("nan"),))[0]) and len(traces) == 11


Options = collections.namedtuple("Options", "value")


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: object
    note: str = dataclasses.field(default="", compare=False)


class Ordered(dict):
    pass


class Signed(float):
    pass


# Values of which a program for one does not serve the other, though most are equal.
DIFFERENT = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: 2}, {True: 2}),
    (Ordered(a=1, b=2), Ordered(b=2, a=1)),
    (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    *[(wrap(a), wrap(b)) for wrap in (Options, Frozen, lambda v: slice(v, 9), lambda v: types.SimpleNamespace(v=v), lambda v: {v}, lambda v: frozenset([v]), lambda v: np.array([v], object))
      for a, b in ((2, 2.0), (1, True), (0.0, -0.0))],
    (np.float64(0.0), np.float64(-0.0)),
    (np.float32(1), np.array(1, np.float32)),
    (np.float32(1), np.float64(1)),
    (Signed(0.0), Signed(-0.0)),
    (complex(0.0, 1), complex(-0.0, 1)),
    (np.zeros(8)[::2], -np.zeros(8)[::2]),
    (np.zeros(2, "<i2"), np.zeros(2, ">i2")),
    (np.ones(2), hl.ones(2, dtype=np.float64)),
    (np.ma.masked_array([1.0, 2.0], [0, 1]), np.ma.masked_array([1.0, 2.0], [1, 0])),
    ([1], (1,)),
    (Frozen([1.0]), Frozen([2.0])),
]  # fmt: skip


@pytest.mark.parametrize("pair", range(len(DIFFERENT)))
def test_static_values_that_differ_have_programs_of_their_own(pair):
    seen = []
    f = hl.jit(lambda x, c: seen.append(c) or x, static_argnums=1)
    for value in (*DIFFERENT[pair], *DIFFERENT[pair]):
        f(1.0, value)
    assert [id(value) for value in seen] == [id(value) for value in DIFFERENT[pair]]


class Equal:
    """Not to be hashed, as its == says nothing of a hash."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return self.value == other.value


SAME = [
    lambda: float("nan"), lambda: np.float32("nan"), lambda: np.full(4, np.nan, np.float16), lambda: np.full(8, np.nan)[::2], lambda: complex(0, float("nan")),
    lambda: Options([1, {2: "x"}]), lambda: Frozen(np.arange(3)), lambda: Frozen(1, str(time.perf_counter())), lambda: {8, 0, "x", 1.5}, lambda: {"x", 1.5, 0, 8}, lambda: bytearray(b"abc"),
    lambda: types.SimpleNamespace(a=np.ones(3)), lambda: collections.defaultdict(list, k=[1]), lambda: Equal([1.0]), lambda: collections.Counter("abca"), lambda: np.array([(1, 2.0)], "i4,f8"),
    lambda: collections.deque([1, 2], 3), lambda: hl.asarray([1, 2], copy=True), lambda: hl.tree.structure({"a": [1, 2]}), lambda: np.dtype("f4"), lambda: (np.sin, np.float32, "sum"),
]  # fmt: skip


@pytest.mark.parametrize("made", range(len(SAME)))
def test_static_values_that_hold_the_same_share_a_program(made):
    f = hl.jit(lambda x, c: x, static_argnums=1)
    for _ in range(3):
        f(1.0, SAME[made]())
        f(1.0, "another between them")
    assert _core.num_specializations(f) == 2


def test_static_values_that_were_written_to_are_other_ones():
    def check(value, write, read):
        f = hl.jit(lambda x, c: x * read(c), static_argnums=1)
        assert f(1.0, value) == 2
        write(value)
        assert f(1.0, value) == 7

    by_key = {"write": lambda c: c.update(k=7.0), "read": lambda c: c["k"]}
    check(collections.OrderedDict(k=2.0), **by_key)
    check(collections.defaultdict(float, k=2.0), **by_key)
    by_attribute = {"write": lambda c: setattr(c, "value", 7.0), "read": lambda c: c.value}
    check(types.SimpleNamespace(value=2.0), **by_attribute)
    check(Equal(2.0), **by_attribute)
    by_place = {"write": lambda c: c.__setitem__(0, 7), "read": lambda c: c[0]}
    check(bytearray(b"\2"), **by_place)
    check(collections.deque([2]), **by_place)
    check(Options([2.0]), lambda c: by_place["write"](c.value), lambda c: c.value[0])
    check(Frozen({"k": 2.0}), lambda c: by_key["write"](c.value), lambda c: c.value["k"])
    buffer = np.array([2.0, 1.0])
    check(hl.asarray(buffer), lambda c: by_place["write"](buffer), lambda c: c[0])


def test_arrays_that_a_program_was_compiled_for_may_be_written_to_and_donated():
    x, buffer = np.array([1.0, 2.0]), np.array([1, 2], np.int32)
    assert np.asarray(hl.repeat(x, hl.asarray(buffer))).tolist() == [1, 2, 2]
    buffer[:] = [3, 1]
    assert np.asarray(hl.repeat(x, hl.asarray(buffer))).tolist() == [1, 1, 1, 2]
    counts = hl.asarray([2, 3], copy=True)
    assert hl.repeat(x, counts).shape == (5,)
    hl.jit(lambda c: c * 2, donate=0)(counts)
    assert hl.repeat(x, hl.asarray([2, 3], copy=True)).shape == hl.repeat(x, hl.asarray([3, 2], copy=True)).shape == (5,)
    with pytest.raises(hl.UserError, match="donated"):
        hl.repeat(x, counts)


def test_static_values_that_cannot_be_compared_are_refused():
    class Locked(Equal):
        def __init__(self):
            self.lock = threading.Lock()

        def __reduce_ex__(self, protocol):
            raise TypeError("cannot pickle '_thread.lock' object")

    class Table:
        __hash__ = None

        def __array__(self, dtype=None, copy=None):
            return np.ones(2)

    f = hl.jit(lambda x, c: x, static_argnums=1)
    with pytest.raises(hl.UserError) as error:
        f(1.0, [Locked()])
    assert str(error.value) == (
        "[static argument] a value that a function is compiled for must have a hash, or be one that copy.copy can copy. "
        "Received: a Locked: cannot pickle '_thread.lock' object. Try: a __hash__ beside its __eq__, or a frozen dataclass."
    )
    with pytest.raises(hl.UserError, match=r"Received: a Table, an array without a hash. Try: numpy.asarray\(x\)."):
        f(1.0, Table())


def test_programs_are_found_by_the_hash_of_their_static_values():
    comparisons = []

    class Value:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            comparisons.append(self)
            return self.value == other.value

        def __hash__(self):
            return hash(self.value)

    f = hl.jit(lambda tree, c: sum(tree.values()), static_argnums=1)
    values = [Value(i) for i in range(20)]
    for key in ("a", "b"):
        for value in values:
            f({key: 1.0}, value)
    assert _core.num_specializations(f) == 40
    for value in values:
        comparisons.clear()
        f({"a": 1.0}, Value(value.value))
        assert len(comparisons) <= 2  # with the last program's, and with its own


def test_static_arguments():
    calls = []

    @hl.jit(static_argnames=("how", "n"))
    def f(x, how="sum", *, n=1):
        calls.append(how)
        return (x.sum() if how == "sum" else x.max()) * n

    x = np.array([1.0, 2.0])
    assert float(f(x)) == 3 and float(f(x, "max")) == 2 and float(f(x, how="max")) == 2 and float(f(x, n=5)) == 15
    f(x, "max")
    assert calls == ["sum", "max", "max", "sum"]


def test_static_positions_count_from_either_end():
    for position in (1, -1, (1,), [-1], {1}, np.int64(1)):
        assert hl.jit(lambda x, n: x * len(n), static_argnums=position)(1.0, "abc") == 3
    assert hl.jit(lambda x, *rest: x * len(rest[1]), static_argnums=2)(1.0, 2.0, "abc") == 3
