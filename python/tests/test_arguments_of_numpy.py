"""Arguments as NumPy has them, and what is refused: masks as lists, extremes of nothing, triangles of vectors, axis=, bias= and minlength=."""

import hotloop as hl
import numpy as np
import pytest

X = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("key", [
    ([True, False, True], slice(1, None)), [True, False, True], [[True, False, True, False]] * 3, ([True, False, True], [0, 1]), ([True, False, True], 0), (..., [True, False, False, True]),
    (None, [False, True, True]), [np.True_, np.False_, np.True_],
])  # fmt: skip
def test_masks_as_lists(key):
    wanted, changed = X[key], X.copy()
    changed[key] = -1
    assert np.array_equal(hl.asarray(X)[key], wanted) and np.array_equal(hl.jit(lambda x: x[key])(X), wanted)
    assert np.array_equal(hl.asarray(X).at[key].set(-1.0), changed) and np.array_equal(hl.jit(lambda x: x.at[key].set(-1.0))(X), changed)


@pytest.mark.parametrize("key", [[True, False], np.array([True, False]), (slice(None), [True] * 3), (None, np.ones((3, 3), bool)), (..., np.ones(3, bool)), (0, [True] * 5)], ids=repr)
def test_masks_have_the_extents_of_their_axes(key):
    with pytest.raises(hl.UserError, match=r"\[index\] a mask must have the extents of its axes. Received: a mask .* of \(3, 4\)"):
        hl.jit(lambda x: x[key])(X)
    with pytest.raises(hl.UserError, match=r"\[index\]"):
        hl.asarray(X)[key]


@pytest.mark.parametrize("name", ["max", "min"])
def test_nothing_has_no_extreme(name):
    fn, initial = getattr(hl, name), "-hl.inf" if name == "max" else "hl.inf"
    for call in (lambda: fn(np.zeros(0)), lambda: hl.jit(fn)(np.zeros(0)), lambda: fn(np.zeros((2, 0, 3)), axis=1), lambda: getattr(hl.zeros((2, 0)), name)(axis=1)):
        with pytest.raises(hl.UserError, match=rf"^\[{name}\] of no elements there is none, without an initial value. .* Try: initial={initial}\.$"):
            call()
    assert float(fn(np.zeros(0), initial=2.0)) == 2 and fn(np.zeros((0, 3)), axis=1).shape == (0,) and fn(np.zeros((0, 0)), axis=0).shape == (0,)


@pytest.mark.parametrize("fn", [hl.tril, hl.triu])
def test_triangles(fn):
    same = getattr(np, fn.__name__)
    for x in (X, X.tolist(), np.arange(24).reshape(2, 3, 4)):
        for k in (-1, 0, 2):
            assert np.array_equal(fn(x, k), same(x, k))
    for call in (fn, hl.jit(fn)):
        with pytest.raises(hl.UserError, match=rf"^\[{fn.__name__}\] the array must have two axes or more. Received: \(3,\)."):
            call(np.ones(3))


def test_settings():
    low, high = np.zeros((2, 1)), np.array([1.0, 3.0, 4.0])
    for axis in (0, 1, 2, -1, -3):
        wanted = np.linspace(low, high, 5, axis=axis)
        np.testing.assert_allclose(hl.linspace(low, high, 5, axis=axis), wanted, rtol=1e-15)
        np.testing.assert_allclose(hl.jit(lambda a, b, axis=axis: hl.linspace(a, b, 5, axis=axis))(low, high), wanted, rtol=1e-15)
    assert np.array_equal(hl.linspace(0, 1, 3, axis=-1), [0, 0.5, 1])
    with pytest.raises(hl.UserError, match=r"\[linspace\] the axis"):
        hl.linspace(0, 1, 3, axis=1)
    np.testing.assert_allclose(hl.cov(X, bias=True), np.cov(X, bias=True))
    np.testing.assert_allclose(hl.cov(X, bias=True, correction=1), np.cov(X, bias=True, ddof=1))
    for minlength in (0, 2, 9):
        assert np.array_equal(hl.bincount(np.array([1, 3, 3]), minlength=minlength), np.bincount([1, 3, 3], minlength=minlength))
        weighted = hl.bincount(np.array([1, 3, 3]), np.arange(3.0), minlength)
        assert np.array_equal(weighted, np.bincount([1, 3, 3], np.arange(3.0), minlength))
    assert hl.bincount(np.array([1, 3, 3]), minlength=9, length=4).shape == (4,)
