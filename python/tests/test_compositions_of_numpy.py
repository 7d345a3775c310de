"""Functions of NumPy's that others make up, against NumPy."""

import hotloop as hl
import numpy as np
import pytest

rng = np.random.default_rng(3)
X, V, M = rng.normal(size=(3, 4)), rng.normal(size=6), np.arange(24).reshape(2, 3, 4)

# Calls with the module, and arrays that are traced in a compiled function.
CALLS = {
    "deg2rad": lambda m, x, v, i: m.deg2rad(x), "rad2deg": lambda m, x, v, i: m.rad2deg(v), "column_stack": lambda m, x, v, i: m.column_stack([v, v[::-1], m.stack([v, v], axis=1)]),
    "append": lambda m, x, v, i: m.append(x, v), "append to an axis": lambda m, x, v, i: m.append(x, x[:, :1], axis=1), "append a number": lambda m, x, v, i: m.append(v, 1.5),
    "atleast_2d": lambda m, x, v, i: m.atleast_2d(v), "atleast_2d of more": lambda m, x, v, i: m.atleast_2d(i), "ptp": lambda m, x, v, i: m.ptp(x), "ptp of an axis": lambda m, x, v, i: m.ptp(i, axis=1, keepdims=True),
    "vander": lambda m, x, v, i: m.vander(v), "vander of n": lambda m, x, v, i: m.vander(v, 3), "vander up": lambda m, x, v, i: m.vander(i[0, 0], 5, increasing=True), "vander of 0": lambda m, x, v, i: m.vander(v, 0),
    "polyval": lambda m, x, v, i: m.polyval(v, x), "polyval of integers": lambda m, x, v, i: m.polyval(i[0, 1], i), "polyval at a number": lambda m, x, v, i: m.polyval(v, 0.5),
    **{f"rot90 by {k} in {axes}": lambda m, x, v, i, k=k, axes=axes: m.rot90(i, k, axes=axes) for k in (-1, 0, 1, 2, 3, 5) for axes in ((0, 1), (1, 0), (-1, 1))},
    "ediff1d": lambda m, x, v, i: m.ediff1d(x), "ediff1d between": lambda m, x, v, i: m.ediff1d(v, to_end=v[:2], to_begin=x[:1, :3]),
    "logspace of arrays": lambda m, x, v, i: m.logspace(v, v + 1, 4, base=2.0, axis=-1), "geomspace of arrays": lambda m, x, v, i: m.geomspace(abs(v), abs(v) + 3, 5, axis=1),
    "geomspace below 0": lambda m, x, v, i: m.geomspace(-abs(v), -abs(v) - 3, 5, endpoint=False),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_against_numpy(name):
    wanted = CALLS[name](np, X, V, M)
    for call in (lambda *a: CALLS[name](hl, *a), hl.jit(lambda *a: CALLS[name](hl, *a))):
        found = call(*map(hl.asarray, (X, V, M)))
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("n, m, k", [(3, None, 0), (3, 5, 1), (5, 2, -2), (0, 3, 0), (4, 4, 9)])
def test_triangles_and_their_places(n, m, k):
    assert np.array_equal(hl.tri(n, m, k), np.tri(n, m, k)) and hl.tri(n, m, k).dtype == np.float32
    for name in ("tril_indices", "triu_indices"):
        found, wanted = getattr(hl, name)(n, k=k, m=m), getattr(np, name)(n, k=k, m=m)
        assert all(a.dtype == np.int32 and np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    x = rng.normal(size=(n, n if m is None else m))
    assert np.array_equal(hl.jit(lambda x: x[hl.tril_indices(*x.shape[:1], k=k, m=x.shape[1])])(x), x[np.tril_indices(n, k, m)])
    assert all(np.array_equal(a, b) for a, b in zip(hl.diag_indices(n, 3), np.diag_indices(n, 3), strict=True))


def test_spaces_of_numbers():
    for kwargs in ({}, {"endpoint": False}):
        np.testing.assert_allclose(hl.logspace(0, 2, 7, **kwargs), np.logspace(0, 2, 7, **kwargs), rtol=2e-7)
        np.testing.assert_allclose(hl.logspace(-3, 4, 7, base=2.0, dtype="float64", **kwargs), np.logspace(-3, 4, 7, base=2.0, **kwargs), rtol=1e-15)
        np.testing.assert_allclose(hl.geomspace(1, 1000, 7, **kwargs), np.geomspace(1, 1000, 7, **kwargs), rtol=2e-6)
    slope = hl.grad(lambda stop: hl.geomspace(np.float64(1), stop, 3).sum())(np.float64(4))
    assert abs(float(slope) - (1 + 0.25)) < 1e-14  # sqrt(stop) + stop


def test_derivatives_and_misuse():
    np.testing.assert_allclose(hl.grad(lambda x: hl.polyval(V, x))(np.float64(0.7)), np.polyval(np.polyder(V), 0.7), rtol=1e-13)
    np.testing.assert_allclose(hl.jacfwd(lambda p: hl.polyval(p, 0.5))(V), 0.5 ** np.arange(5, -1, -1), rtol=1e-14)
    for call, text in ((lambda: hl.vander(X), r"\[vander\] x must be a vector"), (lambda: hl.polyval(X, V), r"\[polyval\] the coefficients"), (lambda: hl.rot90(X, axes=(1, -1)), r"\[rot90\] axes must be two")):
        with pytest.raises(hl.UserError, match=text):
            call()


@pytest.mark.parametrize("module, name, text", [
    (hl, "sinc", r"hl.where\(x == 0"), (hl, "gradient", "of samples, hl.diff"), (hl, "apply_along_axis", "hl.vmap"), (hl, "histogram", "hl.bincount"), (hl, "fmod", r"x - y \* hl.trunc"), (hl, "delete", r"hl.concat\("),
    (hl, "lexsort", "hl.argsort"), (hl, "piecewise", "hl.where"), (hl, "hanning", "NumPy's"), (hl, "fill_diagonal", r"x.at\["), (hl, "polyfit", "hl.linalg.lstsq"), (hl, "radians", "hotloop.deg2rad$"),
    (hl.random, "binomial", "hl.random.bernoulli"),
])  # fmt: skip
def test_names_that_are_not_there(module, name, text):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Try: .*{text}"):
        getattr(module, name)
