"""NumPy's elementwise functions on arrays of hotloop and on what is traced."""

import hotloop as hl
import numpy as np
import pytest
from hotloop import _ufuncs

X = np.linspace(0.1, 0.9, 7)
SAME_NAME = ["exp", "log", "sin", "cos", "tanh", "sqrt", "floor", "isnan", "square", "sign"]
RENAMED = ["arcsin", "arccos", "arctan", "arcsinh", "arctanh", "absolute", "fabs"]
BINARY = ["add", "subtract", "multiply", "divide", "true_divide", "power", "mod", "maximum", "arctan2", "less", "hypot"]


@pytest.mark.parametrize("name", SAME_NAME + RENAMED)
def test_of_one_argument(name):
    f = getattr(np, name)
    for result in (f(hl.asarray(X)), hl.jit(f)(X)):
        assert isinstance(result, hl.Array)
        np.testing.assert_allclose(result, f(X), rtol=1e-14)


@pytest.mark.parametrize("name", BINARY)
def test_of_two_arguments_of_any_kind(name):
    f = getattr(np, name)
    y = X[::-1].copy()
    for result in (f(X, hl.asarray(y)), f(hl.asarray(X), y), hl.jit(lambda y: f(X, y))(y), hl.jit(f)(X, y)):
        assert isinstance(result, hl.Array)
        np.testing.assert_allclose(result, f(X, y), rtol=1e-14)


def test_names_that_differ_are_there_on_both_sides():
    for theirs, ours in _ufuncs._RENAMED.items():
        assert isinstance(getattr(np, theirs), np.ufunc) and callable(getattr(hl, ours)), theirs


def test_operators_with_numpy_on_the_left():
    np.testing.assert_array_equal(hl.jit(lambda x: X * x + np.float64(2) - x)(X), X * X + 2 - X)
    np.testing.assert_array_equal(X @ hl.asarray(X), hl.matmul(X, X))
    assert hl.jit(lambda x: np.float32(2) * x)(X.astype("float32")).dtype == np.float32


def test_derivatives_go_through():
    np.testing.assert_allclose(hl.grad(lambda x: hl.sum(np.sin(x) * X))(X), np.cos(X) * X, rtol=1e-14)


def test_what_only_numpy_has_gives_numpy_of_numbers():
    x = hl.asarray(X)
    for result, wanted in [(np.spacing(x), np.spacing(X)), (np.add.reduce(x), X.sum()), (np.multiply.outer(x, x), np.multiply.outer(X, X)),
                           (np.exp(x, where=X > 0.5, out=np.zeros(7)), np.where(X > 0.5, np.exp(X), 0))]:  # fmt: skip
        assert not isinstance(result, hl.Array)
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (np.spacing, "numpy.spacing needs numbers.* Received: a traced f64\\[7\\]. Try: the functions of hl"),
        (np.add.reduce, "numpy.add.reduce needs numbers.*Try: hl.add without"),
        (lambda x: np.exp(x, where=X > 0.5), "numpy.exp needs numbers.*Try: hl.exp without further arguments"),
        (lambda x: np.add(X, x, out=np.zeros(7)), "cannot be changed in place by what is traced.*numpy.add into an array. Try: x = x \\+ y"),
    ],
)
def test_what_cannot_be_traced_says_so(f, message):
    with pytest.raises(hl.UserError, match=message):
        hl.jit(f)(X)


def test_in_place():
    with pytest.raises(hl.UserError, match="read-only. Received: one as out= of numpy.exp"):
        np.exp(X, out=hl.asarray(X))

    def accumulate(x):
        total = np.zeros(7)
        total += x
        return total

    with pytest.raises(hl.UserError, match="cannot be changed in place"):
        hl.jit(accumulate)(X)
    total = np.zeros(7)
    total += hl.asarray(X)
    np.testing.assert_array_equal(total, X)
