"""x[key] against NumPy, with random keys."""

import hotloop as hl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SHAPE = (3, 4, 5)


@st.composite
def keys(draw):
    parts = []
    index_shape = draw(st.sampled_from([(), (2,), (2, 1), (3, 2)]))
    for extent in SHAPE[: draw(st.integers(0, 3))]:
        kind = draw(st.sampled_from(["slice", "int", "array", "mask"]))
        if kind == "slice":
            bound = st.none() | st.integers(-extent - 2, extent + 2)
            parts.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -2]))))
        elif kind == "int":
            parts.append(draw(st.integers(-extent, extent - 1)))
        elif kind == "array":
            size = int(np.prod(index_shape))
            values = draw(st.lists(st.integers(-extent, extent - 1), min_size=size, max_size=size))
            parts.append(np.array(values, dtype=draw(st.sampled_from([np.int32, np.int64]))).reshape(index_shape))
        else:
            parts.append(slice(None))
    if draw(st.booleans()):
        # Before the end it stands for no axis, unless the key leaves some over.
        parts.insert(draw(st.integers(0, len(parts))) if len(parts) == 3 else len(parts), Ellipsis)
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


@given(key=keys(), computed=st.booleans())
@settings(max_examples=60, deadline=None)
def test_getitem(key, computed):
    x = np.arange(60.0, dtype=np.float32).reshape(SHAPE)
    wanted = x[key]
    assert np.array_equal(np.asarray(hl.asarray(x)[key]), wanted)
    arrays = [k for k in key if isinstance(k, np.ndarray)] if computed else []

    def traced(values, *indices):
        rest = iter(indices)
        return values[tuple(next(rest) if isinstance(k, np.ndarray) and computed else k for k in key)]

    result = hl.jit(traced, backend="interp")(x, *arrays)
    assert result.shape == wanted.shape and np.array_equal(np.asarray(result), wanted)


def test_mask_and_lists():
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    mask = x > 4
    assert np.array_equal(hl.jit(lambda v: v[mask])(x), x[mask])
    assert np.array_equal(hl.jit(lambda v: v[[2, 0]])(x), x[[2, 0]])
    assert np.array_equal(hl.jit(lambda v: v[mask[:, 1]])(x), x[mask[:, 1]])


def test_gradient_through_indices_adds_up():
    x = np.array([1.0, 2.0, 3.0])
    gradient = hl.grad(lambda v: (v[np.array([0, 0, 2])] * np.array([1.0, 10.0, 100.0])).sum())(x)
    assert np.array_equal(gradient, [11, 0, 100])


def test_at():
    x = np.zeros((3, 2), np.float32)
    wanted = x.copy()
    wanted[1:, 0] = [5, 6]
    assert np.array_equal(hl.asarray(x).at[1:, 0].set([5, 6]), wanted)
    assert np.array_equal(hl.jit(lambda v, i: v.at[i].add(1.0))(x, np.array([0, 0, 2])), [[2, 2], [0, 0], [1, 1]])


@pytest.mark.parametrize("key, message", [
    (lambda v: v[v > 0], "[index] a mask must be known while tracing, since the result's shape depends on it. Received: a traced bool[3]. Try: hl.where(mask, x, 0)."),
    (lambda v: v[v], "[index] an index must be an integer. Received: f32[3]. Try: hl.astype(i, hl.int32)."),
    (lambda v: v[5], "[index] the index must lie within the axis. Received: 5 on axis 0 of (3,)."),
    (lambda v: v[0, 0], "[index] there must be at most one index an axis. Received: 2 for (3,)."),
    (lambda v: v[: hl.astype(v[0], hl.int32)], "[index] the bounds of a slice must be known while tracing, since the result's shape depends on them. Received: a traced bound. Try: hl.dynamic_slice(x, starts, sizes)."),
])  # fmt: skip
def test_errors(key, message):
    with pytest.raises(hl.UserError) as error:
        hl.jit(key)(np.ones(3, np.float32))
    assert str(error.value) == message


AT_BLOCKS = [(1,), (-1,), (1, 2), (slice(None), 1), (slice(1, 3), slice(0, 2), -1), (..., 0), (0, ..., slice(None, None, 2)), ([0, 2], 1), (slice(0, 0),)]


@pytest.mark.parametrize("key", AT_BLOCKS, ids=str)
def test_at_writes_what_numpy_assigns(key):
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    values = np.random.default_rng(0).normal(size=x[key].shape).astype(np.float32)
    for how in ("set", "add", "multiply"):
        wanted = x.copy()
        wanted[key] = {"set": values, "add": x[key] + values, "multiply": x[key] * values}[how]
        assert np.array_equal(hl.jit(lambda v, u, how=how: getattr(v.at[key], how)(u))(x, values), wanted)


ROWS = np.array([2, 0, 2, 1])
AT_ARRAYS = {
    "rows": (ROWS,), "columns": (slice(None), ROWS), "last": (..., ROWS), "table of rows": (ROWS.reshape(2, 2),), "both": (ROWS, ROWS), "apart": (ROWS, slice(None), ROWS),
    "apart, behind": (slice(None), ROWS, slice(None), ROWS), "with a number": (1, ROWS), "part": (slice(1, 3), ROWS), "new axis": (ROWS, None), "mask": (np.arange(3) != 1,),
    "mask of two axes": (np.arange(12).reshape(3, 4) % 3 == 0,), "none": (np.array([], np.int32),), "backwards": (slice(None, None, -1), ROWS),
}  # fmt: skip


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "computed"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_], ids=lambda d: d.__name__)
@pytest.mark.parametrize("key", AT_ARRAYS.values(), ids=AT_ARRAYS)
def test_at_index_arrays_assigns_what_numpy_does(key, dtype, is_known):
    g = np.random.default_rng(0)
    x = (10 * g.normal(size=(3, 4, 5, 6))).astype(dtype)
    if dtype == np.float32:
        x.flat[::7], x.flat[3::11] = np.inf, np.nan
    values = (10 * g.normal(size=x[key].shape)).astype(dtype)
    wanted = x.copy()
    wanted[key] = values
    spots = [i for i, k in enumerate(key) if isinstance(k, np.ndarray) and k.dtype != np.bool_] if not is_known else []

    def assign(v, u, *arrays):
        own = list(key)
        for i, a in zip(spots, arrays):
            own[i] = a
        return v.at[tuple(own)].set(u)

    for backend in ("llvm", "interp"):
        got = hl.jit(assign, backend=backend)(x, values, *(key[i] for i in spots))
        assert np.array_equal(got, wanted, equal_nan=dtype == np.float32)
    if dtype == np.float32:
        x = np.nan_to_num(x, posinf=1.0)
        sums = x.copy()
        np.add.at(sums, key, values)

        def add(v, u, *arrays):
            return v.at[tuple({**dict(enumerate(key)), **dict(zip(spots, arrays))}.values())].add(u)

        assert np.allclose(hl.jit(add)(x, values, *(key[i] for i in spots)), sums, rtol=1e-5, atol=1e-5)


COMBINED = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "computed"])
@pytest.mark.parametrize("how", COMBINED)
@pytest.mark.parametrize("key", AT_ARRAYS.values(), ids=AT_ARRAYS)
def test_at_repeated_places_combine(key, how, is_known):
    g = np.random.default_rng(1)
    spots = [i for i, k in enumerate(key) if isinstance(k, np.ndarray) and k.dtype != np.bool_] if not is_known else []

    def combine(v, u, *arrays):
        own = list(key)
        for i, a in zip(spots, arrays):
            own[i] = a
        return getattr(v.at[tuple(own)], how)(u)

    for dtype in (np.float32, np.float64, np.int32):
        if how == "divide" and dtype == np.int32:
            continue
        x = np.rint(9 * g.normal(size=(3, 4, 5, 6))).astype(dtype)
        values = np.rint(9 * g.normal(size=x[key].shape)).astype(dtype)
        if how == "divide":
            values[values == 0] = 2
        if how in ("max", "min") and dtype != np.int32:
            x.flat[::7], x.flat[3::11], values.flat[::5], values.flat[1::9] = -np.inf, np.nan, np.inf, np.nan
        wanted = x.copy()
        COMBINED[how].at(wanted, key, values)
        for backend in ("llvm", "interp"):
            got = hl.jit(combine, backend=backend)(x, values, *(key[i] for i in spots))
            assert got.dtype == dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "computed"])
def test_derivatives_where_places_repeat(is_known):
    x, values, places = np.array([1.0, 5.0, 2.0]), np.array([4.0, 3.0, 4.0, 2.0, 9.0]), np.array([0, 0, 0, 2, 1])

    def at(v, u, i, how):
        return getattr(v.at[places if is_known else i], how)(u)

    # Of equal ones the first; x before a value.
    for mode in (hl.jacfwd, hl.jacrev):
        of_x, of_values = hl.jit(lambda v, u, i, mode=mode: mode(lambda a, b: at(a, b, i, "max"), argnums=(0, 1))(v, u))(x, values, places)
        assert np.array_equal(of_x, np.diag([0.0, 0, 1])) and np.array_equal(of_values, [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]])
        of_values = hl.jit(lambda v, u, i, mode=mode: mode(lambda b: at(v, b, i, "min"))(u))(x, values, places)
        assert not np.asarray(of_values).any()
    # Of products: everything but the two that are differentiated by.
    hessian = hl.jit(lambda v, u, i: hl.hessian(lambda b: at(v, b, i, "mul").sum())(u))(x, values, places)
    wanted = np.zeros((5, 5))
    for i in range(3):
        for k in range(3):
            wanted[i, k] = values[3 - i - k] if i != k else 0.0
    np.testing.assert_allclose(hessian, wanted)
    third = hl.jit(lambda v, u, i: hl.grad(lambda a: hl.grad(lambda b: hl.grad(lambda c: (at(v, c, i, "max") ** 4).sum())(b).sum())(a).sum())(u))
    np.testing.assert_allclose(third(x, values, places), [24 * 4.0, 0, 0, 0, 24 * 9.0])
    # Zeros among the factors.
    slope = hl.jit(lambda v, u, i: hl.grad(lambda b: at(v, b, i, "mul").sum())(u))(np.ones(3), np.array([0.0, 3, 4, 0, 0]), places)
    assert np.array_equal(slope, [12, 0, 0, 1, 1])
    slope = hl.jit(lambda v, u, i: hl.grad(lambda b: at(v, b, i, "divide")[0])(u))(x, values, places)
    np.testing.assert_allclose(slope, [*(-1 / 48 / values[:3]), 0, 0])


def test_places_of_each_row_combine():
    g = np.random.default_rng(2)
    x, values, places = g.normal(size=(6, 5)), g.normal(size=(6, 20)), g.integers(-5, 5, (6, 20))
    for how in COMBINED:
        wanted = x.copy()
        for row in range(6):
            COMBINED[how].at(wanted[row], places[row], values[row])
        np.testing.assert_allclose(hl.jit(hl.vmap(lambda v, u, i, how=how: getattr(v.at[i], how)(u)))(x, values, places), wanted, rtol=1e-12)
    # The largest of each segment.
    ids = np.array([2, 0, 2, 2])
    largest = hl.jit(lambda v, i: hl.full((3, 5), -hl.inf, dtype=v.dtype).at[i].max(v))(x[:4], ids)
    assert np.array_equal(largest, [x[1], np.full(5, -np.inf), x[[0, 2, 3]].max(0)])
    with pytest.raises(hl.UserError) as error:
        hl.arange(3).at[0].divide(2)
    assert str(error.value) == "[at] what is divided must be float. Received: int32. Try: x.astype(hl.float32).at[key].divide(values)."


def test_at_repeated_places_keep_the_last_value_and_its_derivative():
    x, values = np.zeros((3, 2)), np.arange(8.0).reshape(4, 2)
    for key in (ROWS, list(ROWS)):
        got, slope = hl.jit(lambda v, u, k=key: hl.value_and_grad(lambda w: (v.at[k].set(w) ** 2).sum())(u))(x, values)
        assert np.array_equal(hl.jit(lambda v, u, k: v.at[k].set(u))(x, values, ROWS), values[[1, 3, 2]])
        assert got == (values[1:] ** 2).sum() and np.array_equal(slope, np.concatenate([np.zeros((1, 2)), 2 * values[1:]]))
    slope = hl.jit(lambda v, u, k: hl.grad(lambda w: (v.at[k].set(w) ** 2).sum())(u))(x, values, ROWS)
    assert np.array_equal(slope, np.concatenate([np.zeros((1, 2)), 2 * values[1:]]))


def test_a_table_in_a_loop_is_written_where_it_lies():
    # Q-learning: what goes into an entry is read from other rows and from the entry itself.
    def learn(table, states, actions, rewards, after):
        def step(q, t):
            s, a, r, n = t
            return q.at[s, a].add(0.1 * (r + 0.9 * q[n].max() - q[s, a])), None

        return hl.scan(step, table, (states, actions, rewards, after))[0]

    g = np.random.default_rng(0)
    arguments = g.normal(size=(500, 4)), g.integers(0, 500, 50), g.integers(0, 4, 50), g.normal(size=50), g.integers(0, 500, 50)
    wanted = arguments[0].copy()
    for s, a, r, n in zip(*arguments[1:]):
        wanted[s, a] += 0.1 * (r + 0.9 * wanted[n].max() - wanted[s, a])
    compiled = hl.jit(learn)
    assert np.allclose(compiled(*arguments), wanted, rtol=1e-12)
    before, inside = hl.executable(compiled, *arguments).kernel_text().split(" for t", 1)
    assert "map copy (vector i" in before and "< 2000" in before and "< 2000" not in inside, "all 2000 numbers are copied once, before the loop"


def test_at_a_computed_place():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for i in (-3, -1, 0, 2):
        wanted = x.copy()
        wanted[i] = 7
        assert np.array_equal(hl.jit(lambda v, i: v.at[i].set(7.0))(x, np.int32(i)), wanted)
    each = hl.jit(hl.vmap(lambda v, i: v.at[i].add(1.0)))(x, np.array([0, 3, -2], np.int32))
    assert np.array_equal(each - x, [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    gradient = hl.grad(lambda v, i: (hl.asarray(x).at[i].set(v) ** 2).sum())(np.full(4, 3.0, np.float32), np.int32(1))
    assert np.array_equal(gradient, [6, 6, 6, 6])


FAR = np.array([2**32 + 1, -(2**32) + 1, 2**62, -(2**63), 2**31, -2, 1])
AT = [3, 0, 3, 0, 3, 2, 1]  # of four elements
READERS = {
    "getitem": lambda v, i: v[i], "two axes": lambda v, i: v[:, None][i, np.zeros_like(FAR)], "take": lambda v, i: hl.take(v, i, axis=0), "take_along_axis": hl.take_along_axis,
    "each": lambda v, i: hl.vmap(lambda k: v[k])(i), "in a list": lambda v, i: hl.stack([v[[i[k], 0]][0] for k in range(len(FAR))]),
    "block": lambda v, i: hl.stack([hl.dynamic_slice(v, (hl.where(i[k] == -2, 2, i[k]),), (1,))[0] for k in range(len(FAR))]),
    "block of each": lambda v, i: hl.vmap(lambda k: hl.dynamic_slice(v, (hl.where(k == -2, 2, k),), (1,))[0])(i),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["llvm", "interp"])
@pytest.mark.parametrize("reader", READERS)
def test_an_index_is_limited_before_it_is_narrowed(reader, backend):
    x = np.array([10, 11, 12, 13], np.float32)
    assert np.array_equal(hl.jit(READERS[reader], backend=backend)(x, FAR), x[AT])


def test_unsigned_indices_and_numbers_are_limited_before_they_are_narrowed():
    x = np.array([10, 11, 12, 13], np.float32)
    assert np.array_equal(hl.jit(lambda v, i: v[i])(x, np.array([2**32 - 1, 2**31, 2], np.uint32)), x[[3, 3, 2]])
    for read in (lambda v, i: v[i], lambda v, i: hl.take(v, i), lambda v, i: hl.dynamic_slice(v, (i,), (1,))[0]):
        compiled = hl.jit(read)
        assert [float(compiled(x, i)) for i in (2**32 + 1, -(2**32), 2)] == [13, 10, 12]


@pytest.mark.parametrize("i, wanted", list(zip(FAR.tolist(), AT)))
def test_a_write_is_limited_before_it_is_narrowed(i, wanted):
    x = np.array([[10, 11, 12, 13]], np.float32).T
    expected = x.copy()
    expected[wanted] = 7
    for index in (np.int64(i), i):
        assert np.array_equal(hl.jit(lambda v, k: v.at[k].set(7))(x, index), expected)
        assert np.array_equal(hl.jit(lambda v, k: v.at[k, 0].set(7))(x, index), expected)
        assert np.array_equal(hl.jit(lambda v, k: v.at[[k, k], [0, 0]].set([0, 7]))(x, index), expected)
        if i != -2:  # which is before the start here
            assert np.array_equal(hl.jit(lambda v, k: hl.dynamic_update(v, [[7]], (k, 0)))(x, index), expected)
    added = hl.jit(lambda v, k: hl.scatter_add(v, hl.stack([k, 9]), np.float32([[1], [1]])))(x, index)
    assert np.array_equal(added - x, [[k == i] for k in range(4)])  # what is out of range is dropped


def test_indices_of_32_bits_cost_nothing_more():
    x, i = np.ones((4, 5), np.float32), np.int32([1, 2])
    for read in (lambda v, k: v[k], lambda v, k: v[k, k], lambda v, k: v.at[k[0]].add(1), lambda v, k: hl.dynamic_slice(v, (k[0], k[1]), (1, 1))):
        text = hl.executable(hl.jit(read), x, i).graph_text()
        assert "= cast(" not in text and "i64" not in text


def test_an_axis_longer_than_32_bits_count():
    x = np.zeros(2**31 + 16, np.bool_)  # pages that are not touched take no memory
    x[2**31 + 5] = x[2**31 - 1] = True
    read = hl.jit(lambda v, i: (v[i], v[2**31 + 5], v[None][[0], i]))
    for dtype in (np.int64, np.int32, np.uint32):
        ends = [2**31 - 1, -11, 5] if dtype == np.int32 else [2**31 - 1, 2**31 + 5, 5]
        found, known, both = read(x, np.array(ends, dtype))
        assert found.tolist() == both.tolist() == [True, True, False] and known
    for name, call in {"argmax": hl.argmax, "argsort": hl.argsort, "count_nonzero": hl.count_nonzero}.items():
        with pytest.raises(hl.UserError, match=rf"\[{name}\] .* must .* at most 2\^31 - 1 elements"):
            hl.jit(call)(x)


def test_a_ring_buffer_is_written_in_place():
    # One row a step, and nothing that passes over the whole buffer.
    def echo(x):
        def step(carry, now):
            buffer, t = carry
            i = t % 16
            return (buffer.at[i].set(now), t + 1), now + 0.5 * buffer[i]

        return hl.scan(step, (hl.zeros((16, 8)), hl.asarray(np.int32(0))), x)[1]

    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    wanted = x.copy()
    wanted[16:] += 0.5 * x[:-16]
    assert np.allclose(hl.jit(echo)(x), wanted)
    text = hl.executable(hl.jit(echo), x).kernel_text()
    assert "scatter" not in text and "iota" not in text and "< 128)" not in text.split("for t")[1]


@pytest.mark.parametrize("key", [(slice(None),), (slice(None, None, 2),), (slice(None, None, -1),), (None,), (..., slice(None))])
def test_at_writes_nothing_into_an_array_without_elements(key):
    x = np.ones(0)
    for change in (lambda x: x.at[key].set(2), lambda x: x.at[key].add(2), lambda x: x.at[key].multiply(2)):
        assert hl.jit(change)(x).shape == (0,)


@pytest.mark.parametrize("shape", [(300, 0), (300, 3, 0), (300, 0, 3)])
def test_many_rows_without_elements(shape):
    x = np.ones(shape)
    assert hl.jit(lambda x: hl.diff(x, axis=0))(x).shape == (299, *shape[1:])
    assert hl.jit(lambda x: hl.take(x, np.zeros(0, np.int32), axis=1))(x).shape == (300, 0, *shape[2:])


def test_rows_of_two_numbers_are_taken_from_many_tables(rng):
    x = rng.normal(size=(17, 17, 2, 2)).astype(np.float32)
    places = rng.integers(0, 2, size=32)
    assert np.array_equal(hl.jit(lambda x: hl.take(x, places, axis=2))(x), x[:, :, places])


def test_places_that_count_are_views():
    x = np.arange(700, dtype="float32") ** 2
    rows, columns = hl.arange(600), hl.arange(64)

    def filtered(x, taps):
        return hl.take(x, rows[:, None] + columns) @ taps

    taps = np.linspace(-1, 1, 64, dtype="float32")
    wanted = np.lib.stride_tricks.sliding_window_view(x, 64)[:600] @ taps
    np.testing.assert_allclose(hl.jit(filtered)(x, taps), wanted, rtol=2e-5)
    assert "gather(" not in hl.executable(hl.jit(filtered), x, taps).graph_text()
    slope = hl.jit(hl.grad(lambda x: hl.sum(filtered(x, taps))))(x)
    np.testing.assert_allclose(slope, np.convolve(np.ones(600), taps, "full").tolist() + [0] * 37, rtol=1e-4, atol=1e-4)
    square = np.arange(81.0).reshape(9, 9)
    np.testing.assert_array_equal(hl.jit(lambda a: a[hl.arange(9), hl.arange(8, -1, -1)])(square), square[np.arange(9), np.arange(8, -1, -1)])


HALF = np.random.default_rng(3).normal(size=(4, 3, 5)) > 0
MASKED = {  # a key with a mask, and values for all its places
    "whole": ((HALF,), 2.5), "rows": ((HALF[:, 0, 0],), np.float64([1, 2, 3, 4, 5])), "two axes": ((HALF[..., 0],), np.arange(5.0)[None] + 1), "last": ((..., HALF[0, 0]), 3.0),
    "middle": ((slice(None), HALF[0, :, 0]), np.arange(20.0).reshape(4, 1, 5) + 1), "last, of each": ((..., HALF[0, 0]), np.arange(12.0).reshape(4, 3, 1) + 1), "number": ((2, HALF[0, :, 0]), 4.0),
    "number behind": ((slice(1, 3), HALF[0, :, 0], -1), 4.0), "part": ((slice(None, None, -2), HALF[0, :, 0], slice(1, 4)), np.arange(3.0) + 1), "none": ((np.zeros(4, bool),), 7.0), "of one": ((HALF,), np.ones(1)),
}  # fmt: skip
MASKED_HOW = {"set": lambda old, v: v, "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("how", MASKED_HOW)
@pytest.mark.parametrize("key, values", MASKED.values(), ids=MASKED)
def test_at_computed_masks_writes_what_numpy_assigns(key, values, how):
    x = 3 * np.random.default_rng(1).normal(size=(4, 3, 5))
    wanted = x.copy()
    wanted[key] = MASKED_HOW[how](wanted[key], np.broadcast_to(values, x[key].shape))
    (at,) = (i for i, k in enumerate(key) if isinstance(k, np.ndarray))

    def change(x, values, mask):
        return getattr(x.at[(*key[:at], mask, *key[at + 1 :])], how)(values)

    for backend in ("llvm", "interp"):
        np.testing.assert_array_equal(hl.jit(change, backend=backend)(x, values, key[at]), wanted)
    np.testing.assert_array_equal(getattr(hl.asarray(x).at[key], how)(values), wanted)
    known = hl.jit(lambda x, values: change(x, values, key[at]))
    np.testing.assert_array_equal(known(x, values), wanted)
    # Derivatives as with the mask known, where the places are indices.
    weights = np.random.default_rng(2).normal(size=x.shape)

    def by_both(call):
        return hl.jit(hl.grad(lambda x, values: hl.sum(call(x, values) * weights), argnums=(0, 1)))(x, np.float64(values))

    for found, expected in zip(by_both(lambda x, values: change(x, values, hl.asarray(key[at]) & (x == x).any())), by_both(known)):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_at_masks_of_each_sample_and_values_of_each_place():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    each = hl.jit(hl.vmap(lambda row: row.at[row > row.mean()].set(-1)))(x)
    assert np.array_equal(each, np.where(x > x.mean(1, keepdims=True), -1, x))
    wanted = x.copy()
    wanted[x > 4] = np.arange(7)
    assert np.array_equal(hl.asarray(x).at[x > 4].set(np.arange(7)), wanted)  # alone the mask's places are known
    assert np.array_equal(hl.asarray(x).at[hl.asarray(x) > 4].add(np.ones(7)), x + (x > 4))


def test_at_a_mask_leaves_infinities_out_of_derivatives():
    x = np.array([np.inf, 1.0, -2.0, np.nan])
    for how, wanted in (("multiply", -1.0), ("divide", 0.25), ("add", 2.0), ("set", 2.0)):
        slope = hl.jit(hl.grad(lambda v, x, how=how: hl.sum(hl.where(hl.abs(x) < 9, getattr(x.at[hl.abs(x) < 9], how)(v), 0))))(2.0, x)
        assert slope == wanted, how
    assert hl.jit(hl.grad(lambda v, x: hl.sum(x.at[x > 9].divide(v))))(0.0, np.ones(3)) == 0


@pytest.mark.parametrize("call, message", [
    (lambda v: v.at[v > 1].set(v), "[at] with a mask that is computed there must be one value for all its places, since their number is not known. Received: f32[3] for a mask bool[3]. Try: hl.where(mask, values, x), with a value for each place of x."),
    (lambda v: v.at[v > 1, None].set(0), "[at] a mask that is computed must be the only one of a key, with slices and integers beside it. Received: 2 parts, with a traced bool[3] as part 0. Try: hl.where(mask, values, x), with a mask that broadcasts with x."),
    (lambda v: v.at[v[:2] > 1].set(0), "[index] a mask must have the extents of its axes. Received: bool[2] for (3,) of (3,)."),
    (lambda v: v.at[True].set(0), "[index] a single bool is no index. Received: True. Try: x[None] for a new axis."),
    (lambda v: v.at[v > 1].get(), "[index] a mask must be known while tracing, since the result's shape depends on it. Received: a traced bool[3]. Try: hl.where(mask, x, 0)."),
])  # fmt: skip
def test_at_computed_masks_say_what_does_not_fit(call, message):
    with pytest.raises(hl.UserError) as error:
        hl.jit(call)(np.ones(3, np.float32))
    assert str(error.value) == message


def test_places_and_numbers_are_no_programs_of_their_own(monkeypatch):
    """Outside of a trace, what is written and where are arguments of one program."""
    x, programs = hl.zeros((4, 3)), []
    run_once = hl._core.run_once

    def recorded(fn, name, *args):
        programs.append((fn, name, *(a for a in args if not isinstance(a, (hl.Array, np.ndarray, list)))))
        return run_once(fn, name, *args)

    monkeypatch.setattr(hl._core, "run_once", recorded)
    wanted = np.zeros((4, 3), np.float32)
    for i, value in ((0, 1), (3, 2), (-2, 3.5), (1, True)):
        x = x.at[i, 1].set(value)
        wanted[i, 1] = value
    assert np.array_equal(x, wanted) and x.dtype == np.float32 and all(p == programs[0] for p in programs)
    programs.clear()
    for i in range(3):
        x = x.at[i : i + 2, ...].add(i + 1)
        wanted[i : i + 2] += i + 1
    assert np.array_equal(x, wanted) and all(p == programs[0] for p in programs)
    # Refused as ever.
    for key in ((4, 0), (-5, 0), (0, 3)):
        with pytest.raises(hl.UserError, match=r"\[index\] the index must lie within the axis"):
            x.at[key].set(1)
    with pytest.raises(hl.UserError, match=r"\[at\] a number must fit the array's dtype. Received: 1e\+20 with i32"):
        hl.asarray([1, 2]).at[0].set(1e20)
