"""Functions against NumPy, eagerly and compiled."""

import pathlib
import re

import hotloop as hl
import numpy as np
import pytest
from hotloop import _core

rng = np.random.default_rng(3)
X = rng.uniform(0.2, 0.9, (3, 4))
Y = rng.uniform(1.1, 2.0, (3, 4))
N = rng.integers(-5, 6, (3, 4)).astype(np.int32)

UNARY = {
    "abs": (np.abs, -X), "negative": (np.negative, X), "sign": (np.sign, X - 0.5), "floor": (np.floor, 5 * X - 2),
    "ceil": (np.ceil, 5 * X - 2), "round": (np.rint, 5 * X - 2), "trunc": (np.trunc, 5 * X - 2), "sqrt": (np.sqrt, X),
    "exp": (np.exp, X), "expm1": (np.expm1, X), "log": (np.log, X), "log1p": (np.log1p, X), "log2": (np.log2, X),
    "log10": (np.log10, X), "sin": (np.sin, X), "cos": (np.cos, X), "tan": (np.tan, X), "sinh": (np.sinh, X - 0.5),
    "cosh": (np.cosh, X - 0.5), "tanh": (np.tanh, X), "asinh": (np.arcsinh, X - 0.5), "acosh": (np.arccosh, Y),
    "atanh": (np.arctanh, X - 0.5), "asin": (np.arcsin, X - 0.5), "acos": (np.arccos, X - 0.5), "atan": (np.arctan, 5 * X), "square": (np.square, X), "reciprocal": (np.reciprocal, X), "positive": (np.positive, X),
    "isnan": (np.isnan, np.array([1, np.nan, np.inf])), "isinf": (np.isinf, np.array([1, np.nan, -np.inf])),
    "signbit": (np.signbit, np.array([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf])), "isfinite": (np.isfinite, np.array([1, np.nan, -np.inf])), "logical_not": (np.logical_not, N),
    "bitwise_invert": (np.invert, N),
}  # fmt: skip
BINARY = {
    "add": (np.add, X, Y), "subtract": (np.subtract, X, Y), "multiply": (np.multiply, X, Y), "divide": (np.divide, X, Y),
    "floor_divide": (np.floor_divide, 9 * X - 4, Y), "remainder": (np.remainder, 9 * X - 4, -Y), "pow": (np.power, X, Y),
    "atan2": (np.arctan2, X - 0.5, Y - 1.5), "maximum": (np.maximum, X, X[::-1]), "minimum": (np.minimum, X, X[::-1]), "hypot": (np.hypot, X, Y),
    "logaddexp": (np.logaddexp, X, Y), "copysign": (np.copysign, X, Y - 1.5), "equal": (np.equal, N, N[::-1]), "not_equal": (np.not_equal, N, N[::-1]),
    "less": (np.less, N, N[::-1]), "less_equal": (np.less_equal, N, N[::-1]), "greater": (np.greater, N, N[::-1]),
    "greater_equal": (np.greater_equal, N, N[::-1]), "logical_and": (np.logical_and, N, N[::-1]),
    "logical_or": (np.logical_or, N, N[::-1]), "logical_xor": (np.logical_xor, N, N[::-1]),
    "bitwise_and": (np.bitwise_and, N, N[::-1]), "bitwise_or": (np.bitwise_or, N, N[::-1]),
    "bitwise_xor": (np.bitwise_xor, N, N[::-1]), "bitwise_left_shift": (np.left_shift, N, abs(N[::-1])),
    "bitwise_right_shift": (np.right_shift, N, abs(N[::-1])),
}  # fmt: skip


def check(result, wanted, tolerance=1e-12):
    wanted = np.asarray(wanted)
    assert result.dtype == wanted.dtype and result.shape == wanted.shape
    np.testing.assert_allclose(np.asarray(result), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    reference, x = UNARY[name]
    check(getattr(hl, name)(x), reference(x))
    check(hl.jit(getattr(hl, name))(x), reference(x))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    reference, x, y = BINARY[name]
    check(getattr(hl, name)(x, y), reference(x, y))
    check(hl.jit(getattr(hl, name))(x, y), reference(x, y))
    check(getattr(hl, name)(x, y[0]), reference(x, y[0]))


def test_every_elementwise_primitive_is_public():
    from hotloop import _core, _elementwise

    public = {_elementwise._NAMES.get(name, name) for name, _, elementwise, _ in _core.op_definitions() if elementwise}
    assert not [name for name in public - {"bitcast", "cast", "select", "div", "rem"} if not hasattr(hl, name)]


@pytest.mark.parametrize("x, y", [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3)])
def test_integer_division(x, y):
    a, b = np.int32(x), np.int32(y)
    assert int(hl.floor_divide(a, b)) == x // y
    assert int(hl.remainder(a, b)) == x % y


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_integers_are_whole(name, dtype):
    x = np.array([0, 3, np.iinfo(dtype).max], dtype)
    for function in (getattr(hl, name), hl.jit(getattr(hl, name)), hl.vmap(getattr(hl, name)), getattr(np, name)):
        found = function(hl.asarray(x))
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, x)
    assert getattr(hl, name)(np.array([True, False])).dtype == np.float32


REDUCTIONS = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "var": np.var, "std": np.std,
    "any": np.any, "all": np.all, "count_nonzero": np.count_nonzero,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims):
    x = rng.normal(size=(2, 3, 4)) * (rng.uniform(size=(2, 3, 4)) > 0.4)
    wanted = np.asarray(REDUCTIONS[name](x, axis=axis, keepdims=keepdims))
    check(getattr(hl, name)(x, axis=axis, keepdims=keepdims), wanted.astype(np.int32) if name == "count_nonzero" else wanted)


def test_other_reductions():
    x, y = rng.normal(size=(3, 4)), rng.normal(size=(2, 3, 4))
    check(hl.argmax(x, axis=1), x.argmax(1).astype(np.int32))
    check(hl.argmin(x), x.argmin().astype(np.int32))
    check(hl.argmin(N, axis=0, keepdims=True), N.argmin(0, keepdims=True).astype(np.int32))
    check(hl.logsumexp(x), np.log(np.exp(x).sum()))
    check(hl.logsumexp(x, axis=1, keepdims=True), np.log(np.exp(x).sum(1, keepdims=True)))
    check(hl.softmax(x, axis=0), np.exp(x) / np.exp(x).sum(0))
    check(hl.log_softmax(x), x - np.log(np.exp(x).sum(1, keepdims=True)))
    for axis in (None, 0, (1,), (2, 0)):
        check(hl.log_softmax(y, axis=axis), y - np.log(np.exp(y).sum(axis, keepdims=True)))
    assert abs(float(hl.log_softmax(np.float32([1016, 1000]))[0]) / np.log1p(np.exp(-16)) + 1) < 1e-6
    check(hl.var(x, axis=1, correction=1), x.var(1, ddof=1))
    check(hl.cumulative_sum(x, axis=1), x.cumsum(1))
    check(hl.cumulative_prod(x, axis=0), x.cumprod(0))
    check(hl.cumulative_prod(x[0], include_initial=True), np.concatenate([[1], x[0].cumprod()]))
    check(hl.diff(x), np.diff(x))
    check(hl.diff(x, axis=0, n=2, append=x[:1]), np.diff(x, axis=0, n=2, append=x[:1]))
    check(hl.cumulative_sum(N[0], include_initial=True), np.concatenate([[0], N[0].cumsum()]).astype(np.int32))


def test_manipulation():
    x = rng.normal(size=(2, 3, 4))
    check(hl.reshape(x, (4, -1)), x.reshape(4, -1))
    check(hl.permute_dims(x, (2, 0, 1)), x.transpose(2, 0, 1))
    check(hl.moveaxis(x, 0, -1), np.moveaxis(x, 0, -1))
    check(hl.moveaxis(x, (0, 1), (2, 0)), np.moveaxis(x, (0, 1), (2, 0)))
    check(hl.matrix_transpose(x), x.swapaxes(1, 2))
    check(hl.expand_dims(x, axis=(0, -1)), x[None, ..., None])
    check(hl.squeeze(x[:1], axis=0), x[0])
    check(hl.concat([x, x[:, :1]], axis=1), np.concatenate([x, x[:, :1]], 1))
    check(hl.concat([x, N], axis=None), np.concatenate([x, N], None))
    check(hl.stack([x, 2 * x], axis=-1), np.stack([x, 2 * x], -1))
    check(hl.flip(x, axis=1), np.flip(x, 1))
    check(hl.roll(x, 3, axis=2), np.roll(x, 3, 2))
    check(hl.roll(x, -5), np.roll(x, -5))
    check(hl.tile(x, (2, 1, 3)), np.tile(x, (2, 1, 3)))
    check(hl.repeat(x, 2, axis=1), np.repeat(x, 2, 1))
    check(hl.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=5.0), np.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=5))
    check(hl.broadcast_to(x[0], (5, 3, 4)), np.broadcast_to(x[0], (5, 3, 4)))
    check(hl.take(x, np.array([[0, -1], [2, 1]]), axis=2), np.take(x, np.array([[0, -1], [2, 1]]), 2))
    index = rng.integers(0, 3, (2, 2, 4))
    check(hl.take_along_axis(x, index, axis=1), np.take_along_axis(x, index, 1))
    check(hl.sliding_window_view(x[0, 0], 2), np.lib.stride_tricks.sliding_window_view(x[0, 0], 2))
    for ours, theirs in zip(hl.split(x, 3, axis=1), np.split(x, 3, 1)):
        check(ours, theirs)
    for ours, theirs in zip(hl.split(x, [1, 3], axis=2), np.split(x, [1, 3], 2)):
        check(ours, theirs)
    assert [u.shape for u in hl.unstack(x, axis=1)] == [(2, 4)] * 3


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_contractions_of_integers(dtype):
    a, b, c = (rng.integers(0, 9, shape).astype(dtype) for shape in [(2, 3, 4), (2, 4, 5), (4,)])
    check(hl.matmul(a, b), a @ b)
    check(hl.matmul(a, c), a @ c)
    check(hl.matmul(a[:, :0], b), a[:, :0] @ b)
    check(hl.tensordot(a, b, axes=([0, 2], [0, 1])), np.tensordot(a, b, ([0, 2], [0, 1])))
    check(hl.tensordot(c, c, axes=0), np.outer(c, c))
    check(hl.outer(c, c), np.outer(c, c))
    check(hl.jit(hl.vmap(hl.matmul))(a, b), a @ b)
    for subscripts, operands in {"bij,bjk->bik": (a, b), "bij,bjk,j->ki": (a, b, c), "aij,bjk->kiab": (a, b)}.items():
        check(hl.einsum(subscripts, *operands), np.einsum(subscripts, *operands))
    assert hl.matmul(a, c).dtype == hl.result_type(a, c)


def test_contractions():
    a, b, c = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 4, 5)), rng.normal(size=4)
    check(hl.matmul(a, b), a @ b)
    check(hl.matmul(a, c), a @ c)
    check(hl.tensordot(a, b, axes=([0, 2], [0, 1])), np.tensordot(a, b, ([0, 2], [0, 1])))
    check(hl.vecdot(a, c), a @ c)
    check(hl.outer(c, c), np.outer(c, c))
    check(hl.einsum("bij,bjk->bik", a, b), np.einsum("bij,bjk->bik", a, b))
    check(hl.einsum("bij,bjk,j->ki", a, b, c), np.einsum("bij,bjk,j->ki", a, b, c))
    check(hl.einsum("ij->j", a[0]), a[0].sum(0))
    square = a[:, :3, :3]
    for subscripts, *operands in (
        ("bii->bi", square), ("bii", square), ("iib,ij->jb", np.moveaxis(square, 0, -1), square[0]), ("...ij,...jk->...ik", a, b), ("...ij,jk", a, b[0]), ("i...->...", a),
        ("...i,...i->...", a, a[:1]), ("...,...j->j...", a[0, :, :1], square[0]), ("...ii->...i", square), ("...", a),
    ):  # fmt: skip
        expected = np.einsum(subscripts, *operands)
        check(hl.einsum(subscripts, *operands), expected)
        check(hl.jit(lambda *o: hl.einsum(subscripts, *o))(*operands), expected)  # noqa: B023
    check(hl.einsum("i,i", c, c), np.einsum("i,i", c, c))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_row_of_a_product_has_the_same_bits_among_any_number_of_rows(transposed, dtype):
    """However the matrix is read: as it lies, turned in squares, or packed."""

    def product(x, w):
        return x @ (w.T if transposed else w)

    for k, n in [(70, 70), (300, 300), (513, 100)]:
        w = rng.normal(size=(n, k) if transposed else (k, n)).astype(dtype)
        x = rng.normal(size=(200, k)).astype(dtype)
        wanted = np.asarray(hl.jit(product)(x, w))
        np.testing.assert_allclose(wanted, product(x, w), rtol=1e-3, atol=1e-3)
        for rows in (1, 2, 5, 6, 7, 13, 24, 65, 100):
            np.testing.assert_array_equal(np.asarray(hl.jit(product)(x[:rows], w)), wanted[:rows])


def test_creation():
    check(hl.zeros((2, 3)), np.zeros((2, 3), np.float32))
    check(hl.full((2,), 7), np.full(2, 7, np.int32))
    check(hl.arange(5), np.arange(5, dtype=np.int32))
    check(hl.arange(1, 2, 0.25), np.arange(1, 2, 0.25, dtype=np.float32))
    check(hl.linspace(0, 1, 5, dtype=hl.float64), np.linspace(0, 1, 5))
    check(hl.eye(3, k=1), np.eye(3, k=1, dtype=np.float32))
    check(hl.tril(X), np.tril(X))
    for k in (-2, 0, 1):
        check(hl.diag(X[0], k=k), np.diag(X[0], k))
        check(hl.diag(X, k=k), np.diag(X, k))
        check(hl.jit(lambda v, k=k: hl.diag(v, k=k))(X[0]), np.diag(X[0], k))
    with pytest.raises(hl.UserError, match=r"\[diag\] the argument must be a vector or a matrix"):
        hl.diag(np.ones((2, 2, 2)))
    with pytest.raises(AttributeError, match="Try: hotloop.scatter_add"):
        hl.segment_sum  # noqa: B018
    check(hl.triu(X, k=1), np.triu(X, 1))
    check(hl.tril(X, -1), np.tril(X, -1))
    check(hl.one_hot(np.array([1, 3, 0]), 3), np.array([[0, 1, 0], [0, 0, 0], [1, 0, 0]], np.float32))
    for ours, theirs in zip(hl.meshgrid(X[0], Y[:, 0]), np.meshgrid(X[0], Y[:, 0])):
        check(ours, theirs)
    check(hl.jit(lambda x: hl.zeros_like(x) + hl.full((3, 4), 2.0) + hl.arange(4))(X), np.zeros((3, 4)) + 2 + np.arange(4))


def test_where_keeps_what_was_not_chosen_out():
    x = np.array([-1.0, 4.0])
    assert np.array_equal(hl.where(x > 0, hl.sqrt(x), 0.0), [0, 2])
    gradient = hl.grad(lambda v: hl.where(v > 0, hl.sqrt(hl.where(v > 0, v, 1)), 0.0).sum())(x)
    assert np.array_equal(gradient, [0, 0.25])


@pytest.mark.parametrize("many", [
    lambda x: hl.broadcast_to(x, (2**32, 2**32)), lambda x: hl.reshape(x[:0], (2**32, 2**32)), lambda x: hl.zeros((2**32, 2**32)), lambda x: hl.tile(x, (2**31, 2**32)),
])  # fmt: skip
def test_more_elements_than_can_be_counted_are_refused(many):
    for call in (hl.jit(lambda x: hl.sum(many(x))), many):
        with pytest.raises(hl.UserError, match=r"an array must have at most 2\^59 elements. Received: (f32\[\d+,|\(\d+, )\d+"):
            call(hl.asarray([1.0]))


@pytest.mark.parametrize("dtype, integer", [(np.float32, np.int32), (np.float64, np.int64)])
def test_nextafter_is_that_of_numpy_to_the_bit(dtype, integer):
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max, -np.finfo(dtype).max, np.finfo(dtype).tiny]
    special = np.array([*special, *np.finfo(dtype).smallest_subnormal * np.array([1, -1, 2, -2])], dtype)
    special = np.concatenate([special, dtype(2.0) ** np.arange(np.finfo(dtype).minexp - 3, np.finfo(dtype).minexp + 130, dtype=dtype)])
    numbers = rng.integers(np.iinfo(integer).min, np.iinfo(integer).max, 20_000, integer).view(dtype)
    small = (np.finfo(dtype).smallest_subnormal * rng.integers(-(2**27), 2**27, 5_000)).astype(dtype)
    x = np.concatenate([np.repeat(special, len(special)), numbers, small])
    y = np.concatenate([np.tile(special, len(special)), rng.permutation(numbers), rng.permutation(small)])
    for run in (lambda f: f, hl.jit):
        with np.errstate(all="ignore"):
            got, expected = np.asarray(run(hl.nextafter)(x, y)), np.nextafter(x, y)
        same = (got.view(integer) == expected.view(integer)) | (np.isnan(got) & np.isnan(expected))
        assert same.all(), (x[~same][:3], y[~same][:3], got[~same][:3], expected[~same][:3])


def test_real_numbers_are_their_own_conjugates():
    for run in (lambda f: f, hl.jit):
        np.testing.assert_array_equal(run(hl.conj)(X), X)
        np.testing.assert_array_equal(run(hl.real)(X), X)
        np.testing.assert_array_equal(run(hl.imag)(X), 0 * X)


def test_from_dlpack():
    x = np.arange(6.0)
    assert hl.from_dlpack(x)._address == x.__array_interface__["data"][0] and hl.from_dlpack(x, copy=True)._address != x.__array_interface__["data"][0]
    with pytest.raises(hl.UserError, match="the argument must have __dlpack__. Received: a list. Try: hl.asarray"):
        hl.from_dlpack([1, 2])


# The Python array API standard 2024.12.
STANDARD = ["e", "inf", "nan", "newaxis", "pi", "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128", "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_left_shift", "bitwise_invert", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos", "cosh", "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal", "positive", "pow", "real", "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "square", "sqrt", "subtract", "tan", "tanh", "trunc", "take", "take_along_axis", "__array_namespace_info__", "matmul", "matrix_transpose", "tensordot", "vecdot", "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack", "argmax", "argmin", "count_nonzero", "nonzero", "searchsorted", "where", "unique_all", "unique_counts", "unique_inverse", "unique_values", "isin", "argsort", "sort", "cumulative_prod", "cumulative_sum", "max", "mean", "min", "prod", "std", "sum", "var", "all", "any", "diff", "__array_api_version__", "linalg", "fft"]


def test_the_page_about_the_standard_names_what_is_missing():
    page = pathlib.Path(__file__).parents[2] / "docs" / "array_api.md"
    rows = page.read_text().split("## What is not there")[1].splitlines()
    named = {name for row in rows if row.startswith("| `") for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert {n for n in STANDARD if not hasattr(hl, n)} == named - {"x[i] = v"}


HYPERBOLIC = {"sinh": (np.sinh, np.cosh), "cosh": (np.cosh, np.sinh), "asinh": (np.arcsinh, lambda x: 1 / np.sqrt(x * x + 1))}


@pytest.mark.parametrize("name", HYPERBOLIC)
def test_hyperbolic_functions_and_their_slopes(name):
    exact, slope = HYPERBOLIC[name]
    small = np.logspace(-12, 1.9, 300)
    for dtype in (np.float32, np.float64):
        x = np.concatenate([-small, [0, 1e10, 1e18], small]).astype(dtype)
        most = {"asinh": np.finfo(dtype).max}.get(name, np.log(np.finfo(dtype).max) + 0.69)  # whose exponential overflows, and half of it does not
        x = np.concatenate([x[np.abs(x) < most], np.linspace(0.8, 1, 60).astype(dtype) * dtype(most) * (1 - np.finfo(dtype).eps)])
        exactly = x.astype(np.longdouble)
        np.testing.assert_allclose(getattr(hl, name)(x), exact(exactly).astype(dtype), rtol=2 * np.finfo(dtype).eps)
        slopes = hl.vmap(hl.grad(getattr(hl, name)))(x)
        np.testing.assert_allclose(slopes, slope(exactly).astype(dtype), rtol=4 * np.finfo(dtype).eps)
    # At 0 too, where a formula of |x| and sign(x) is flat.
    order, wanted = getattr(hl, name), {"sinh": [1, 0, 1, 0], "cosh": [0, 1, 0, 1], "asinh": [1, 0, -1, 0]}[name]
    for derivative in wanted:
        order = hl.grad(order)
        assert float(order(0.0)) == derivative
    assert [float(getattr(hl, name)(np.float32(v))) for v in (-np.inf, np.inf)] == [exact(-np.inf), exact(np.inf)]


def test_sums_of_probabilities_that_are_zero():
    nothing, x = np.float32(-np.inf), np.float32(1)
    assert float(hl.logaddexp(nothing, nothing)) == -np.inf and float(hl.logaddexp(np.float32(np.inf), np.float32(np.inf))) == np.inf

    def both(p):
        return hl.logaddexp(p[0], p[1])

    assert [float(v) for v in hl.grad(both)((x, nothing))] == [1, 0]
    assert np.array_equal(hl.hessian(both)(np.float32([1, 1])), [[0.25, -0.25], [-0.25, 0.25]])


def test_acosh_near_its_ends():
    for dtype in (np.float32, np.float64):
        x = np.concatenate([1 + np.logspace(np.log10(np.finfo(dtype).eps), 0, 50), [1e5, 1e9, 2e9, 1e30, np.finfo(dtype).max, np.inf]]).astype(dtype)
        exactly = x.astype(np.longdouble)
        np.testing.assert_allclose(hl.acosh(x), np.arccosh(exactly).astype(dtype), rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_allclose(hl.vmap(hl.grad(hl.acosh))(x[:-2]), (1 / np.sqrt((exactly - 1) * (exactly + 1))).astype(dtype)[:-2], rtol=1e-5 if dtype == np.float32 else 1e-14)
        assert np.isnan(hl.acosh(np.array([0.5, -3, -np.inf, np.nan], dtype))).all() and float(hl.acosh(dtype(1))) == 0


def test_bounds_of_clip_may_be_named_and_are_arrays_of_the_program():
    x, low, high = np.linspace(-2, 2, 9).astype(np.float32), np.full(9, -0.5, np.float32), np.float32(1)
    wanted = np.clip(x, low, high)
    for found in (hl.clip(x, min=low, max=high), hl.clip(x, low, max=high), hl.asarray(x).clip(low, high), hl.jit(lambda x, b: x.clip(max=b, min=low))(x, high)):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(hl.clip(x, min=1.5), np.maximum(x, 1.5))
    assert float(hl.grad(lambda b: hl.clip(x, max=b).sum())(high)) == 2.5  # half of where they meet


def test_nan_to_num():
    x = np.array([np.nan, np.inf, -np.inf, 1.5, -0.0])
    for dtype in (np.float32, np.float64):
        for settings in ({}, {"nan": 7.0}, {"posinf": 3, "neginf": -4.5}):
            np.testing.assert_array_equal(hl.nan_to_num(x.astype(dtype), **settings), np.nan_to_num(x.astype(dtype), **settings))
    np.testing.assert_array_equal(hl.jit(lambda v: np.nan_to_num(v, nan=2.0))(x), np.nan_to_num(x, nan=2.0))
    np.testing.assert_array_equal(hl.grad(lambda v: hl.nan_to_num(2 * v).sum())(x[[0, 1, 3]]), [0, 0, 2])
    assert hl.nan_to_num(np.arange(3, dtype=np.int32)).dtype == hl.int32


def test_interp_is_numpys():
    rng = np.random.default_rng(0)
    xp, fp = np.sort(rng.normal(size=7)), rng.normal(size=7)
    x = np.concatenate([rng.normal(size=(40,)) * 2, xp, [np.nan, np.inf, -np.inf]])
    for settings in ({}, {"left": -9.0}, {"left": np.nan, "right": 8}):
        np.testing.assert_allclose(hl.interp(x, xp, fp, **settings), np.interp(x, xp, fp, **settings), rtol=1e-13)
    np.testing.assert_allclose(hl.jit(lambda v: np.interp(v, xp, fp))(x.reshape(2, -1)), np.interp(x, xp, fp).reshape(2, -1), rtol=1e-13)
    np.testing.assert_array_equal(hl.interp(np.array([0.0, 1.0, 2.0]), np.array([1.0]), np.array([5.0]), left=4.0), [4, 5, 5])
    steps = np.array([0.0, 1.0, 1.0, 2.0]), np.array([0.0, 1.0, 3.0, 4.0])
    np.testing.assert_array_equal(hl.interp(np.array([0.5, 1.0, 1.5]), *steps), np.interp([0.5, 1.0, 1.5], *steps))
    at_end = np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 3.0])
    np.testing.assert_array_equal(hl.interp(np.array([0.5, 1.0, 2.0]), *at_end), np.interp([0.5, 1.0, 2.0], *at_end))
    assert float(hl.interp(1, [0, 2], [0, 3])) == 1.5
    tables = rng.normal(size=(3, 7))
    np.testing.assert_allclose(hl.vmap(hl.interp, in_axes=(None, None, 0))(x[:5], xp, tables), [np.interp(x[:5], xp, t) for t in tables], rtol=1e-13)
    with pytest.raises(hl.UserError, match=r"\[interp\] xp and fp must be vectors of one length, which is not 0. Received: f64\[7\] and f64\[6\]"):
        hl.interp(x, xp, fp[1:])


def test_derivatives_of_interp():
    xp, fp, x = np.array([0.0, 1.0, 3.0]), np.array([1.0, 2.0, -4.0]), np.array([-1.0, 0.5, 1.0, 2.0, 3.5])
    by_x, by_xp, by_fp = hl.grad(lambda *v: hl.interp(*v).sum(), argnums=(0, 1, 2))(x, xp, fp)
    np.testing.assert_allclose(by_x, [0, 1, -3, -3, 0])
    np.testing.assert_allclose(by_fp, [1 + 0.5, 0.5 + 1 + 0.5, 0.5 + 1])
    difference = [(hl.interp(x[[1, 3]], xp + h, fp).sum() - hl.interp(x[[1, 3]], xp - h, fp).sum()) / 2e-6 for h in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(by_xp - np.array([0, 3, 0]), np.array(difference), atol=1e-6)  # x = 1 is at a point, whose own move counts as on its right


def test_bincount():
    x, weights = np.array([3, 1, 1, 0, 7, 1], np.int32), np.array([0.5, 1, 2, 4, 8, 16], np.float32)
    np.testing.assert_array_equal(hl.bincount(x), np.bincount(x))
    np.testing.assert_array_equal(hl.bincount(x, weights), np.bincount(x, weights))
    assert hl.bincount(x).dtype == hl.int32 and hl.bincount(x, weights).dtype == hl.float32
    np.testing.assert_array_equal(hl.jit(lambda v: hl.bincount(v, length=4))(np.append(x, -1).astype(np.int32)), [1, 3, 0, 1])
    assert hl.bincount(np.zeros(0, np.int32)).shape == (0,) and hl.bincount(np.zeros(0, np.int32), length=2).tolist() == [0, 0]
    np.testing.assert_array_equal(hl.grad(lambda w: (hl.bincount(x, w, length=4) * np.float32([1, 2, 3, 4])).sum())(weights), [4, 2, 2, 1, 0, 2])
    np.testing.assert_array_equal(hl.vmap(lambda v: hl.bincount(v, length=2))(np.int32([[0, 0, 1], [1, 1, 5]])), [[2, 1], [0, 2]])
    with pytest.raises(hl.UserError, match=r"\[bincount\] the number of results must not depend on the values.*and no length. Try: hl.bincount\(x, length=n\)"):
        hl.jit(hl.bincount)(x)
    with pytest.raises(hl.UserError, match=r"\[bincount\] x must be a vector of integers"):
        hl.bincount(weights, length=3)


@pytest.mark.parametrize("subscripts, shapes, received", [
    ("ij->ji", [(3,)], "'ij' names 2 axes of an operand (3,), which has 1"), ("ij,jk->ik", [(2, 3), (3,)], "'jk' names 2 axes of an operand (3,), which has 1"),
    ("i,i->", [(3,), (3, 2)], "'i' names 1 axes"), ("ii->i", [(2, 3)], "the axes of 'i' have the extents 2 and 3, in operands (2, 3)"),
    ("ij,jk->ik", [(2, 3), (2, 3)], "the axes of 'j' have the extents 3 and 2, in operands (2, 3) and (2, 3)"), ("ij->i", [()], "'ij' names 2 axes of an operand ()"),
])  # fmt: skip
def test_einsum_says_what_does_not_fit(subscripts, shapes, received):
    operands = [np.ones(s) for s in shapes]
    for call in (hl.einsum, hl.jit(hl.einsum, static_argnums=0)):
        with pytest.raises(hl.UserError, match=r"\[einsum\] subscripts must fit the operands. Received: " + re.escape(f"{subscripts!r}: {received}")):
            call(subscripts, *operands)


@pytest.mark.parametrize("call", [
    lambda x: hl.acos(None), lambda x: hl.gelu(None), lambda x: hl.atan2(x, None), lambda x: hl.any(None), lambda x: hl.where(None, x, x),
    lambda x: hl.matmul(x, None), lambda x: hl.logical_and(x, None), lambda x: hl.quantile(x, None), lambda x: hl.searchsorted(x[0], None),
    lambda x: hl.dynamic_update(x, None, (0, 0)), lambda x: hl.astype(x, None), lambda x: hl.linearize(x, x), lambda x: hl.nn.uniform(None, (3,)),
    lambda x: hl.nn.layer_norm(x, x[0], None),
])  # fmt: skip
def test_what_forgot_to_return_is_named(call):
    with pytest.raises(hl.UserError, match=r"\[\w+\] .* must be .*Received: (None|a ndarray)"):
        call(np.ones((3, 3), np.float32))


def test_layer_norm_by_itself():
    x = np.random.default_rng(0).normal(size=(4, 6))
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * 2 + 1
    np.testing.assert_allclose(hl.nn.layer_norm(x, np.full(6, 2.0), np.ones(6)), wanted, rtol=1e-12)


ACTIVATIONS = {
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)), "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x), "softsign": lambda x: x / (1 + abs(x)),
    "selu": lambda x: 1.0507009873554804934 * np.where(x > 0, x, 1.6732632423543772848 * np.expm1(x)), "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "relu6": lambda x: np.clip(x, 0, 6), "hard_tanh": lambda x: np.clip(x, -1, 1), "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    x, ours, exact = 12 * X - 5, getattr(hl, name), ACTIVATIONS[name]
    check(ours(x), exact(x))
    check(hl.jit(ours)(x), exact(x))
    check(hl.grad(lambda v: ours(v).sum())(x), (exact(x + 1e-6) - exact(x - 1e-6)) / 2e-6, 1e-8)
    assert ours(N).dtype == np.float32


def test_activations_with_a_number():
    x = 12 * X - 5
    check(hl.leaky_relu(x, 0.2), np.where(x > 0, x, 0.2 * x))
    check(hl.elu(x, alpha=0.5), np.where(x > 0, x, 0.5 * np.expm1(x)))
    by_tanh = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    for approximate in (True, "tanh"):
        check(hl.gelu(x, approximate=approximate), by_tanh)
    assert np.array_equal(hl.gelu(x, approximate="none"), hl.gelu(x)) and abs(hl.gelu(x) - by_tanh).max() > 1e-5
    with pytest.raises(hl.UserError, match=r"\[gelu\] approximate must be False, True or 'tanh'. Received: 'erf'."):
        hl.gelu(x, approximate="erf")


def test_arrays_by_their_names():
    check(hl.clip(X, max=Y - 1), np.clip(X, None, Y - 1))
    check(hl.clip(X, min=0.4, max=0.6), np.clip(X, 0.4, 0.6))
    check(hl.jit(lambda x, y: hl.clip(x, max=y))(X, Y - 1), np.clip(X, None, Y - 1))
    assert np.array_equal(hl.one_hot([2, 0], num_classes=3), np.eye(3)[[2, 0]])
    key = hl.random.key(1)
    assert np.array_equal(hl.random.bernoulli(key, p=X), hl.random.bernoulli(key, X))
    # Other numbers are no other program.
    programs = hl.jit(lambda x, y: hl.sum(x, where=y > 1.5))
    for y in (Y, Y + 0.2):
        check(programs(X, y), X.sum(where=y > 1.5))


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "any", "all", "max", "min"])
def test_reductions_of_what_a_mask_leaves(name):
    x = np.where(X > 0.8, np.nan, X) if name in ("sum", "mean", "max") else X
    mask, options = X < 0.6, {"max": {"initial": 0.3}, "min": {"initial": 0.5}}.get(name, {})
    ours, exact = getattr(hl, name), getattr(np, name)
    if name in ("any", "all"):
        x, mask = N > 2, N[1, 1] != N
    for axis, keepdims, where in (
        (None, False, mask),
        (1, True, mask),
        ((0, 1), False, mask[:, :1]),
        (0, False, mask[1:2] | True),
    ):
        if name == "mean" and not np.broadcast_to(where, x.shape).any(axis).all():
            continue
        given = np.where(where, x, 1) if where.all() else x
        wanted = exact(given, axis=axis, keepdims=keepdims, where=where, **options)
        check(ours(given, axis=axis, keepdims=keepdims, where=where, **options), wanted)
        method = hl.jit(lambda v, w, axis=axis, keepdims=keepdims: getattr(v, name)(axis=axis, keepdims=keepdims, where=w, **options), static_argnames=("axis", "keepdims"))
        check(method(given, where), wanted)


def test_what_a_mask_leaves_out_has_no_gradient():
    slope = hl.grad(lambda x: hl.mean(hl.log(x), where=x > 0))(np.array([2.0, -1.0, 4.0]))
    check(slope, [0.25, 0, 0.125])
    with pytest.raises(
        hl.UserError, match=r"\[max\] with where there must be an initial value, .* Try: initial=-hl.inf."
    ):
        hl.max(X, where=X > 0.5)
    assert hl.max(N, initial=99).tolist() == 99 and hl.max(N, initial=99).dtype == np.int32


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_padding_that_continues(mode):
    x = rng.normal(size=(3, 4, 2))
    for widths in (((1, 2), (3, 0), (0, 0)), ((0, 0), (2, 3), (1, 1)), 1):
        check(hl.pad(x, widths, mode), np.pad(x, widths, mode))
        check(hl.jit(lambda v, widths=widths: hl.pad(v, widths, mode=mode))(x), np.pad(x, widths, mode))
    check(
        hl.grad(lambda v: (hl.pad(v, 1, mode) ** 2).sum())(x), hl.jacfwd(lambda v: (hl.pad(v, 1, mode) ** 2).sum())(x)
    )
    if mode != "edge":
        with pytest.raises(
            hl.UserError,
            match=rf"\[pad\] by {mode} there are at most \d elements to pad 3 with. Received: \(4, 0\), for axis 0",
        ):
            hl.pad(x, ((4, 0), (0, 0), (0, 0)), mode)
    with pytest.raises(hl.UserError, match=r"\[pad\] mode must be one of constant, edge, .* Received: 'mirror'."):
        hl.pad(x, 1, "mirror")


def test_methods_of_numpy():
    x, at = hl.asarray(X), np.array([2, 0])
    for v in (x, X):
        check(v.clip(0.4, 0.6), np.clip(X, 0.4, 0.6))
        check(v.take(at, axis=1), X[:, at])
        check(v.repeat(2, axis=0), X.repeat(2, axis=0))
    check(hl.jit(lambda v: v.clip(max=0.5).take(at, 0))(X), X.clip(max=0.5)[at])
    check(x.var(axis=0, correction=1), X.var(axis=0, ddof=1))
    check(x.at[1].divide(2.0), np.concatenate([X[:1], X[1:2] / 2, X[2:]]))
    assert np.array_equal(x.at[:, at].get(), X[:, at])


def test_numbers_beside_arrays_are_no_programs_of_their_own():
    x, integers = hl.ones((3, 2)), hl.asarray([1, 2])
    functions = {
        hl.leaky_relu: lambda k: hl.leaky_relu(x, k), hl.elu: lambda k: hl.elu(x, alpha=k), hl.isclose: lambda k: hl.isclose(x, x, k, atol=k),
        hl.pad: lambda k: hl.pad(x, 1, constant_values=k), hl.nan_to_num: lambda k: hl.nan_to_num(x, nan=k, posinf=k),
        hl.linalg.pinv: lambda k: hl.linalg.pinv(x, rtol=k),
    }  # fmt: skip
    for function, call in functions.items():
        call(0.5)
        before = _core.num_specializations(function)
        for k in (0.25, 0.125):
            call(k)
        assert _core.num_specializations(function) == before, function.__name__
    # Whole numbers are another type than fractions, and arrays are in no other dtype for what they meet.
    assert hl.leaky_relu(integers, 2).dtype == hl.float32 == hl.elu(x, np.float64(0.5)).dtype
    np.testing.assert_array_equal(hl.leaky_relu(-x, np.float64(0.1)), np.full((3, 2), np.float32(-0.1)))
    np.testing.assert_array_equal(hl.jit(hl.leaky_relu)(-x[0], hl.asarray([0.5, 2.0])), np.float32([-0.5, -2]))


def test_closeness_of_large_integers():
    n = 2**53
    assert not hl.isclose(np.int64(n + 1), np.int64(n), rtol=0, atol=0) and hl.isclose(np.int64(n + 1), np.int64(n), rtol=0, atol=1)
    assert not hl.isclose(np.int64(-(2**63)), np.int64(2**63 - 1), rtol=0.5, atol=0) and hl.isclose(np.int64(2**63 - 1), np.int64(2**63 - 1), 0, 0)
    assert not hl.isclose(np.uint32(0), np.uint32(1), 0, 0) and not hl.isclose(np.array(True), np.array(False), 0, 0)


def test_bools_are_finite():
    x = np.array([True, False])
    assert hl.isfinite(x).tolist() == [True, True] and hl.isinf(x).tolist() == [False, False] == hl.isnan(x).tolist()


def test_rounding_to_more_digits_than_float64_counts_is_refused():
    for decimals in (309, -400):
        with pytest.raises(hl.UserError, match=rf"\[round\] 10\^decimals must be a float64: decimals from -308 to 308. Received: {decimals}"):
            hl.round(np.ones(2), decimals)
    assert hl.round(np.ones(2), -308).tolist() == [0, 0]
