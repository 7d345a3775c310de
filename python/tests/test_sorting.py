"""Sorting and searching against NumPy, and inverse trigonometry over random and special values."""

import hotloop as hl
import numpy as np
import pytest


def values(rng, shape, dtype):
    """With ties; floats with infinities, both zeros and NaN."""
    x = rng.integers(0 if dtype == "uint32" else -4, 5, shape).astype(dtype)
    if x.dtype.kind == "f":
        special = np.array([np.nan, np.inf, -np.inf, -0.0], dtype)
        x = np.where(rng.uniform(size=shape) < 0.3, special[rng.integers(0, 4, shape)], x)
    return x


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "int64", "uint32", "bool"])
@pytest.mark.parametrize("shape, axis", [((17,), 0), ((1,), 0), ((0,), 0), ((4, 9), 1), ((4, 9), 0), ((2, 5, 3), -2), ((130,), -1)])
def test_sorting(dtype, shape, axis, rng):
    x = values(rng, shape, dtype)
    order = np.argsort(x, axis=axis, kind="stable")
    found = hl.argsort(x, axis=axis)
    assert found.dtype == np.int32 and hl.sort(x, axis=axis).dtype == x.dtype
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(hl.jit(lambda v: hl.sort(v, axis=axis))(x), np.take_along_axis(x, order, axis))
    # Largest first: sorting from the end, which keeps equal ones in order when the array is read from the end too.
    back = np.flip(shape[axis] - 1 - np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    np.testing.assert_array_equal(hl.argsort(x, axis=axis, descending=True), back)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "int64", "uint32", "bool"])
@pytest.mark.parametrize("shape, axis", [((17,), 0), ((1,), 0), ((4, 9), 1), ((4, 9), 0), ((2, 5, 3), -2), ((3, 0), 0), ((700,), -1)])
def test_the_largest(dtype, shape, axis, rng):
    x = values(rng, shape, dtype)
    n = shape[axis]
    order = np.flip(n - 1 - np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    for k in {0, 1, min(2, n), n // 2, n}:  # one by one, and by sorting
        wanted = np.take(order, np.arange(k), axis)
        found = hl.jit(lambda v, k=k: hl.top_k(v, k, axis=axis))(x)
        assert found.indices.dtype == np.int32 and found.values.dtype == x.dtype
        np.testing.assert_array_equal(found.indices, wanted)
        np.testing.assert_array_equal(found.values, np.take_along_axis(x, wanted, axis))


@pytest.mark.parametrize("x", [np.full(9, -np.inf), np.full(9, np.nan), np.array([np.inf, np.nan] * 4), np.full(9, np.iinfo(np.int64).min), np.full(9, np.iinfo(np.int64).max)])
def test_the_largest_of_equal_ones(x):
    order = np.argsort(np.isnan(x) == 0, kind="stable")
    np.testing.assert_array_equal(hl.top_k(x, 5).indices, order[:5])
    np.testing.assert_array_equal(hl.argsort(x, descending=True), order)
    np.testing.assert_array_equal(hl.argsort(x), np.argsort(x, kind="stable"))


def test_errors_of_the_largest():
    for k in (-1, 4):
        with pytest.raises(hl.UserError, match=r"\[top_k\] k must be between 0 and the axis's extent. Received: .* of axis 0 of f64\[3\]"):
            hl.top_k(np.ones(3), k)
    with pytest.raises(hl.UserError, match=r"\[top_k\] k must be an integer"):
        hl.top_k(np.ones(3), 1.5)


def test_quantiles(rng):
    for dtype in ("float64", "float32"):
        x = rng.normal(size=(4, 7, 5)).astype(dtype)
        x[0, 0, 0] = np.inf
        x[1, 2, 3] = np.nan
        for q in (0.5, 0, 1, 0.3, np.array([0.1, 0.25, 0.9]), [0.5, 1]):
            for axis in (None, 0, -1, (0, 2)):
                for keepdims in (False, True):
                    with np.errstate(invalid="ignore"):
                        wanted = np.quantile(x, np.asarray(q, dtype), axis=axis, keepdims=keepdims)
                    found = hl.quantile(x, q, axis=axis, keepdims=keepdims)
                    assert found.dtype == np.dtype(dtype) and found.shape == wanted.shape
                    finite = np.isfinite(wanted)
                    np.testing.assert_allclose(np.asarray(found)[finite], wanted[finite], atol=1e-6 if dtype == "float32" else 1e-15)
        np.testing.assert_array_equal(hl.jit(lambda v: hl.median(v, axis=1))(x[2:]), np.median(x[2:], axis=1))
    assert np.isnan(hl.median(x)) and hl.median(np.array([1, 2])) == 1.5
    assert hl.quantile(np.array([1.0, np.inf]), 0.0) == 1
    assert np.isnan(hl.quantile(np.array([1.0, 2.0]), np.nan))
    with pytest.raises(hl.UserError, match=r"\[quantile\] there must be floats along the axis.*Received: f64\[0\], f64\[\]"):
        hl.quantile(np.zeros(0), 0.5)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_quantiles_of_what_is_not_nan(rng):
    for dtype in ("float64", "float32"):
        x = rng.normal(size=(4, 7, 5)).astype(dtype)
        x[rng.random(x.shape) < 0.3] = np.nan
        x[0, 0, 0], x[3, :, 1], x[1, 1:, 1] = np.inf, np.nan, np.nan  # none is left, and one
        for q in (0.5, 0, 1, 0.3, np.array([0.1, 0.25, 0.9]), [0.5, 1]):
            for axis in (None, 0, 1, -1, (0, 2)):
                for keepdims in (False, True):
                    with np.errstate(invalid="ignore"):
                        wanted = np.nanquantile(x, np.asarray(q, dtype), axis=axis, keepdims=keepdims)
                    found = np.asarray(hl.nanquantile(x, q, axis=axis, keepdims=keepdims))
                    assert found.dtype == np.dtype(dtype) and found.shape == wanted.shape
                    finite = np.isfinite(wanted)
                    np.testing.assert_allclose(found[finite], wanted[finite], atol=1e-6 if dtype == "float32" else 1e-15)
                    none = np.isnan(x).all(axis=axis, keepdims=keepdims)  # beside an infinity NumPy's are NaN, too
                    np.testing.assert_array_equal(np.isnan(found), np.broadcast_to(none, found.shape))
        middle = hl.jit(lambda v: hl.nanmedian(v, axis=1))(x[2:, :, 2:])
        np.testing.assert_allclose(middle, np.nanmedian(x[2:, :, 2:], axis=1), atol=1e-6 if dtype == "float32" else 1e-15)
    assert hl.nanmedian(np.array([1, 2])) == 1.5 and np.isnan(hl.nanmedian(np.full(3, np.nan)))
    assert np.isnan(hl.nanquantile(np.array([1.0, 2.0]), np.nan)) and hl.nanquantile(np.array([1.0, np.nan, np.inf]), 0.0) == 1
    # Without NaN it is quantile, to the bit.
    x = rng.normal(size=(6, 9))
    np.testing.assert_array_equal(hl.nanquantile(x, [0.2, 0.7], axis=1), hl.quantile(x, [0.2, 0.7], axis=1))
    with pytest.raises(hl.UserError, match=r"\[nanquantile\] there must be elements along the axis, and levels, one or a vector. Received: \(0,\)"):
        hl.nanquantile(np.zeros(0), 0.5)


def test_derivatives_of_quantiles_of_what_is_not_nan(rng):
    x = rng.normal(size=9)
    x[[1, 4]] = np.nan
    by_x, by_q = hl.grad(lambda v, q: hl.nanquantile(v, q), argnums=(0, 1))(x, np.float64(0.4))
    low, high = np.sort(x)[2:4]  # 0.4 * 6 = 2.4
    assert abs(by_q - 6 * (high - low)) < 1e-12
    wanted = np.zeros(9)
    wanted[np.argsort(x)[2:4]] = 0.6, 0.4
    np.testing.assert_allclose(by_x, wanted, atol=1e-12)
    # The last known one has a NaN behind it.
    assert np.isfinite(hl.grad(lambda q: hl.nanquantile(x, q))(np.float64(1.0)))
    batched = hl.vmap(hl.grad(hl.nanmedian))(np.stack([x, x[::-1]]))
    np.testing.assert_array_equal(batched[0], batched[1][::-1])
    assert batched.sum() == 2


def test_derivatives_of_what_is_sorted(rng):
    x, w = rng.normal(size=9), rng.normal(size=3)
    order = np.argsort(-x)
    wanted = np.zeros(9)
    wanted[order[:3]] = w
    np.testing.assert_array_equal(hl.grad(lambda v: (hl.top_k(v, 3).values * w).sum())(x), wanted)
    by_x, by_q = hl.grad(lambda v, q: hl.quantile(v, q), argnums=(0, 1))(x, np.float64(0.3))
    low, high = np.sort(x)[2:4]  # 0.3 * 8 = 2.4
    assert abs(by_q - 8 * (high - low)) < 1e-12
    wanted = np.zeros(9)
    wanted[np.argsort(x)[2:4]] = 0.6, 0.4
    np.testing.assert_allclose(by_x, wanted, atol=1e-12)
    batched = hl.vmap(hl.grad(lambda v: hl.median(v)))(rng.normal(size=(6, 5)))
    assert (np.sort(batched, 1) == [0, 0, 0, 0, 1]).all()


def test_a_long_array(rng):
    x = rng.normal(size=3000).astype(np.float32)
    np.testing.assert_array_equal(hl.sort(x), np.sort(x))
    np.testing.assert_array_equal(hl.vmap(hl.sort)(x.reshape(30, 100)), np.sort(x.reshape(30, 100)))


def test_the_derivative_goes_with_the_elements(rng):
    x, w = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))
    gradient = hl.jit(hl.grad(lambda v: (hl.sort(v) * w).sum()))(x)
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, np.argsort(x), w, 1)
    np.testing.assert_array_equal(gradient, wanted)


@pytest.mark.parametrize("side", ["left", "right"])
def test_searching(side, rng):
    for n in (0, 1, 2, 7, 64):
        x = rng.integers(0, 9, n).astype(np.float64)
        wanted = np.append(rng.integers(-1, 10, (4, 5)).astype(np.float64), np.full((1, 5), np.nan), 0)
        found = hl.searchsorted(np.sort(x), wanted, side=side)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, np.searchsorted(np.sort(x), wanted, side=side))
        if n:
            np.testing.assert_array_equal(hl.searchsorted(x, wanted, side=side, sorter=np.argsort(x)), found)
    with pytest.raises(hl.UserError, match=r"side must be 'left' or 'right'"):
        hl.searchsorted(x, x, side="middle")
    with pytest.raises(hl.UserError, match=r"\[searchsorted\] there must be a sorted vector, and values of its dtype. Received: f64\[2,2\]"):
        hl.searchsorted(np.ones((2, 2)), x)


def test_membership(rng):
    x, y = values(rng, (5, 8), "float64"), values(rng, (7,), "float64")
    for given in (y, y[:0], y[:1]):
        np.testing.assert_array_equal(hl.isin(x, given), np.isin(x, given))
        np.testing.assert_array_equal(hl.isin(x, given, invert=True), np.isin(x, given, invert=True))
    np.testing.assert_array_equal(hl.isin(np.arange(4), np.array([[2], [9]])), [False, False, True, False])


def test_nonzero_has_a_size(rng):
    x = rng.integers(0, 2, (4, 5)) * rng.normal(size=(4, 5))
    n = int(hl.count_nonzero(x))
    wanted = np.nonzero(x)
    for size in (n, n + 9, 25, 3):
        found = hl.jit(lambda v, size=size: hl.nonzero(v, size=size, fill_value=-1))(x)
        for ours, theirs in zip(found, wanted):
            assert ours.shape == (size,)
            np.testing.assert_array_equal(np.asarray(ours)[:n], theirs[:size])
            assert (np.asarray(ours)[n:] == -1).all()
    message = r"\[nonzero\] the number of results must not depend on the values.*Received: f64\[4,5\] and no size. Try: hl.nonzero\(x, size=n\)"
    with pytest.raises(hl.UserError, match=message):
        hl.jit(lambda v: hl.nonzero(v))(x)
    for ours, theirs in zip(hl.nonzero(x), wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(hl.UserError, match="the array must have an axis"):
        hl.nonzero(np.float32(1), size=1)


@pytest.mark.parametrize("x", [
    np.array([3, 1, 3, 2, 1, 3]), np.array([[2.5, -1.0], [2.5, 0.0]], np.float32), np.array([np.nan, 1.0, np.nan]), np.zeros((0, 3)), np.array(7),
    np.array([True, False, True]),
])  # fmt: skip
def test_distinct_values(x):
    values, indices, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    got = hl.unique_all(x)
    for ours, theirs in ((got.values, values), (got.indices, indices), (got.inverse_indices, inverse.reshape(x.shape)), (got.counts, counts)):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(hl.unique_values(x), values)
    np.testing.assert_array_equal(hl.unique_counts(x).counts, counts)
    np.testing.assert_array_equal(hl.unique_inverse(x).inverse_indices, inverse.reshape(x.shape))
    if x.size:
        longer = hl.jit(lambda v: hl.unique_all(v, size=len(values) + 2))(x)
        np.testing.assert_array_equal(longer.values, [*values, values[0], values[0]])
        np.testing.assert_array_equal(longer.counts, [*counts, 0, 0])
        np.testing.assert_array_equal(longer.indices, [*indices, 0, 0])
    filled = hl.jit(lambda v: hl.unique_values(v, size=len(values) + 1, fill_value=9))(x)
    np.testing.assert_array_equal(filled, np.append(values, np.array(9, values.dtype)))
    with pytest.raises(hl.UserError, match=r"\[unique_values\] the number of results must not depend on the values"):
        hl.jit(lambda v: hl.unique_values(v))(x)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, np.nextafter(1, 0), np.nextafter(1, 2)]


@pytest.mark.parametrize("dtype, ulp", [("float32", 6e-7), ("float64", 1e-15)])
def test_inverse_trigonometry(dtype, ulp, rng):
    near = 1 - 2.0 ** -rng.uniform(1, 20, 500)
    x = np.concatenate([rng.uniform(-1, 1, 2000), near, -near, 2.0 ** -rng.uniform(1, 60, 500), SPECIAL]).astype(dtype)
    wide = np.concatenate([rng.normal(size=2000) * 2.0 ** rng.uniform(-30, 30, 2000), SPECIAL]).astype(dtype)
    y, z = np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    y, z = np.concatenate([wide, y.ravel()]), np.concatenate([wide[::-1], z.ravel()])
    with np.errstate(invalid="ignore"):
        for ours, theirs, points in ((hl.asin, np.arcsin, (x,)), (hl.acos, np.arccos, (x,)), (hl.atan, np.arctan, (wide,)), (hl.atan2, np.arctan2, (y, z))):
            got, wanted = np.asarray(ours(*points)), theirs(*(p.astype(np.float64) for p in points))
            assert got.dtype == np.dtype(dtype)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
            np.testing.assert_allclose(got, wanted, rtol=ulp, atol=0)
            zero = wanted == 0
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inverse_trigonometry_is_the_same_bits_everywhere(dtype, rng):
    y, x = ((rng.normal(size=500) * 2.0 ** rng.uniform(-20, 20, 500)).astype(dtype) for _ in range(2))
    wanted = np.asarray(hl.jit(hl.atan2)(y, x))
    for options in ({"target": "portable"}, {"backend": "c"}, {"backend": "interp"}, {"disabled_passes": ["all"]}):
        np.testing.assert_array_equal(np.asarray(hl.jit(hl.atan2, **options)(y, x)), wanted)


def test_derivatives_of_inverse_trigonometry(rng):
    x, y = rng.uniform(-0.9, 0.9, 20), rng.normal(size=20)
    slope = lambda f, *p: hl.jvp(f, p, tuple(np.ones_like(v) for v in p))[1]  # noqa: E731
    np.testing.assert_allclose(slope(hl.asin, x), 1 / np.sqrt(1 - x * x), rtol=1e-13)
    np.testing.assert_allclose(slope(hl.acos, x), -1 / np.sqrt(1 - x * x), rtol=1e-13)
    np.testing.assert_allclose(slope(hl.atan, y), 1 / (1 + y * y), rtol=1e-13)
    np.testing.assert_allclose(hl.vmap(hl.grad(hl.grad(hl.atan)))(y), -2 * y / (1 + y * y) ** 2, rtol=1e-12)
    by_y, by_x = hl.grad(lambda a, b: hl.atan2(a, b).sum(), argnums=(0, 1))(y, x)
    np.testing.assert_allclose(by_y, x / (x * x + y * y), rtol=1e-13)
    np.testing.assert_allclose(by_x, -y / (x * x + y * y), rtol=1e-13)
