"""Functions whose results are whole numbers where they are in NumPy: quotients rounded down, logarithms of powers."""

import math

import hotloop as hl
import numpy as np
import pytest

rng = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_rounded_down_are_those_of_numpy(dtype):
    tenths = np.arange(1, 10001).astype(dtype) / dtype(10)
    special = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, 6, 0.1, 1e30, -1e30, 1e-30, np.finfo(dtype).max, np.inf, -np.inf, np.nan], dtype)
    some = (rng.normal(size=4000) * 10 ** rng.uniform(-3, 6, 4000)).astype(dtype), (rng.normal(size=4000)).astype(dtype)
    for x, y in ((tenths, dtype(0.1)), (-tenths, dtype(0.3)), some, (special[:, None], special)):
        with np.errstate(all="ignore"):
            wanted, rest = np.divmod(x, y)
        for found in (hl.floor_divide(x, y), hl.asarray(x) // y, hl.divmod(x, y)[0]):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, wanted)
            np.testing.assert_array_equal(np.signbit(found)[wanted == 0], np.signbit(wanted)[wanted == 0])
        np.testing.assert_array_equal(hl.divmod(x, y)[1], rest)
    assert [float(v) for v in hl.grad(hl.floor_divide, argnums=(0, 1))(dtype(7), dtype(0))] == [0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_of_powers_are_whole(dtype):
    limits = np.finfo(dtype)
    twos = np.arange(limits.minexp - limits.nmant, limits.maxexp)
    assert np.array_equal(hl.log2(np.ldexp(dtype(1), twos)), twos)
    tens = np.arange(0, 11 if dtype is np.float32 else 23)  # those that are numbers of the dtype
    assert np.array_equal(hl.log10(10.0 ** tens.astype(dtype)), tens)
    assert float(hl.jit(lambda x: hl.floor(hl.log2(x)))(dtype(8192))) == 13 and float(hl.exp2(dtype(3))) == 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name, base", [("log2", 2), ("log10", 10)])
def test_logarithms_and_their_derivatives(name, base, dtype):
    limits, fn = np.finfo(dtype), getattr(hl, name)
    all_sizes = 10 ** rng.uniform(np.log10(limits.smallest_subnormal), np.log10(float(limits.max)), 5000)
    x = np.concatenate([all_sizes, 1 + rng.normal(size=5000) / 10, 1 + rng.normal(size=5000) / 1e4]).astype(dtype)
    np.testing.assert_allclose(fn(x), getattr(np, name)(x.astype(np.longdouble)).astype(dtype), rtol=3 * limits.eps)
    np.testing.assert_array_equal(fn(np.array([0.0, -0.0, -1, -np.inf, np.inf, np.nan], dtype)), [-np.inf, -np.inf, np.nan, np.nan, np.inf, np.nan])
    second = hl.grad(hl.grad(fn))
    for derivative, wanted in ((hl.grad(fn), 0.5), (second, -0.25), (lambda v: hl.jvp(second, (v,), (v,))[1], 0.5)):
        assert np.isclose(float(derivative(dtype(2))), wanted / math.log(base), rtol=4 * limits.eps)
    assert float(hl.grad(fn)(dtype(0))) == np.inf
    assert fn(8).dtype == np.float32 and fn(np.int32(100)).dtype == np.float32
