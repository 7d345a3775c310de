"""Of which dtype results are, and what casts make of numbers."""

import hotloop as hl
import numpy as np
import pytest

PROMOTIONS = [("bool", "int32", "int32"), ("int32", "uint32", "int64"), ("int64", "float32", "float32"), ("float32", "float64", "float64")]


@pytest.mark.parametrize("a, b, wanted", PROMOTIONS)
def test_promotion(a, b, wanted):
    assert hl.result_type(np.dtype(a), np.dtype(b)) == np.dtype(wanted)
    for x, y in ((a, b), (b, a)):
        assert hl.add(np.ones(2, x), np.ones(2, y)).dtype == np.dtype(wanted)


@pytest.mark.parametrize("number, dtype, wanted", [
    (1.5, "float64", "float64"), (1.5, "float32", "float32"), (1.5, "int64", "float32"), (2, "float32", "float32"),
    (2, "int64", "int64"), (2, "bool", "int32"), (True, "int32", "int32"),
])  # fmt: skip
def test_numbers_follow_arrays(number, dtype, wanted):
    x = np.ones(2, dtype)
    compiled = hl.jit(lambda v, n: v + n)
    for result in (hl.asarray(x) + number, number + hl.asarray(x), compiled(x, number)):
        assert result.dtype == np.dtype(wanted)
    assert hl.result_type(x, number) == np.dtype(wanted)


def test_a_number_loses_nothing_on_the_way_to_float64():
    assert float(hl.jit(lambda x, s: x * s)(np.float64(1.0), 0.1)) == 0.1


def test_nor_on_the_way_through_other_numbers():
    f = hl.jit(lambda x, s, n: x * -(s + 1.5) / (2 * n) + hl.sqrt(s))
    assert float(f(np.float64(3.0), 0.1, 3)) == 3.0 * -(0.1 + 1.5) / 6 + np.sqrt(0.1)
    assert f(np.float32(3.0), 0.1, 3).dtype == np.float32
    assert hl.jit(lambda s: -s)(0.1).dtype == np.float32 and hl.jit(lambda n: n * 2)(3).dtype == np.int32
    assert hl.jit(lambda s: s > 0)(0.1).dtype == np.bool_


def test_astype():
    x = np.array([-1.7, 2.7, np.nan, 1e12])
    assert np.array_equal(hl.astype(x, hl.int32), [-1, 2, 0, 2**31 - 1])
    assert hl.asarray([1, 2]).astype("f64").dtype == hl.float64


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint32", "int64"])
def test_a_cast_is_the_same_inside_and_outside_of_a_trace(dtype):
    x = np.array([np.nan, np.inf, -np.inf, 1e20, -1e20, 3e9, -1.5, 4.5e9, 2.0**31, -(2.0**63)] * 4)
    for given in (x, x.astype(np.float32)):
        inside = hl.jit(lambda v: hl.astype(v, dtype))(given)
        assert np.array_equal(hl.asarray(given, dtype=dtype), inside) and np.array_equal(hl.asarray(given.tolist(), dtype=dtype), inside)


@pytest.mark.parametrize("given, wanted", [("float16", "float32"), ("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("uint16", "int32"), ("uint64", "int64")])
def test_other_dtypes_of_numpy_are_converted_on_the_way_in(given, wanted):
    x = np.ones(3, given)
    assert hl.asarray(x).dtype == hl.result_type(x) == hl.result_type(x, np.bool_(True)) == wanted
    for like in (hl.zeros_like(x), hl.ones_like(x), hl.empty_like(x), hl.full_like(x, 1), hl.jit(lambda v: hl.zeros_like(x) * v)(1)):
        assert like.dtype == wanted and like.shape == (3,)
    assert hl.can_cast(x, wanted) and hl.can_cast(x, hl.float64)
    for refused in (np.ones(3, complex), np.array(["a"])):
        with pytest.raises(hl.UserError, match=r"^\[zeros_like\] elements must be bool, integers or floats of at most 64 bits"):
            hl.zeros_like(refused)


def test_dtypes_ask_and_answer():
    assert hl.can_cast(hl.int32, hl.float64) and hl.can_cast(np.zeros(2, np.float32), hl.float64) and not hl.can_cast(hl.float64, hl.float32)
    assert hl.can_cast(hl.uint32, hl.int64) and not hl.can_cast(hl.uint32, hl.int32)
    assert hl.isdtype(hl.int32, "signed integer") and hl.isdtype(hl.uint32, ("bool", "integral")) and not hl.isdtype(hl.bool, "numeric")
    assert hl.isdtype(hl.float64, hl.float64) and not hl.isdtype(hl.float32, "complex floating")
    with pytest.raises(hl.UserError, match="the kind must be a dtype or one of bool, signed integer"):
        hl.isdtype(hl.int32, "integer")


@pytest.mark.parametrize("name, shape", [("tril", (4, 4)), ("triu", (4, 4)), ("diag", (4, 4)), ("diag", (4,))])
def test_masks_stay_masks(name, shape):
    ours, numpys = getattr(hl, name), getattr(np, name)
    functions = [ours, hl.jit(lambda v, k: ours(v, k=k), static_argnames="k"), *([] if name == "diag" else [hl.jit(lambda v, k: numpys(v, k=k), static_argnames="k")])]
    for dtype in (np.bool_, np.int32, np.float64):
        x = (np.arange(16).reshape(4, 4) % 3 > 0).astype(dtype)[(0,) * (2 - len(shape))]
        for fn in functions:
            found = fn(x, k=1)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, numpys(x, k=1))


def test_what_a_causal_mask_leaves_out():
    scores = hl.where(~hl.tril(hl.ones((3, 3), dtype=bool)), -hl.inf, np.zeros((3, 3), np.float32))
    np.testing.assert_array_equal(scores, np.where(~np.tri(3, dtype=bool), -np.inf, 0))
