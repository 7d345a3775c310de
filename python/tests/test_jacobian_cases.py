"""Jacobians of functions that have one direction alone, whose numbers change their type, or that give integers beside floats."""

import time

import hotloop as hl
import numpy as np
import pytest


@hl.custom_vjp
def clipped(x):
    return x * 2


clipped.defvjp(lambda x: (x * 2, None), lambda known, ct: (hl.clip(ct, -1, 1) * 2,))


def grown(x):
    return hl.while_loop(lambda c: (c * c).sum() < 100.0, lambda c: c * 1.5 + hl.sin(c), x)


@pytest.mark.parametrize("mode", ["auto", "mixed"])
def test_a_function_with_one_direction_is_taken_in_that(mode):
    x = np.array([1.0, 0.5, 2.0])
    np.testing.assert_allclose(hl.jacobian(grown, mode=mode)(x), hl.jacfwd(grown)(x))
    np.testing.assert_allclose(hl.jacobian(lambda x: clipped(x * x), mode=mode)(x), np.diag(4 * x))
    with pytest.raises(hl.UserError, match="max_steps"):
        hl.jacobian(grown, mode="reverse")(x)
    with pytest.raises(hl.UserError, match="forward mode"):
        hl.jacobian(lambda x: clipped(x * x), mode="forward")(x)


def narrow(x):
    return hl.tanh(hl.reshape(x, (6, 1)).T @ np.ones((6, 1), np.float32)).astype(hl.float64) * np.arange(7.0)


CASTS = {
    "sum": lambda x: (x.astype(hl.float64) ** 2).sum(),
    "each": lambda x: x.astype(hl.float64) ** 2,
    "rows": lambda x: hl.concat([(x.astype(hl.float64) ** 2).sum()[None], x[1:].astype(hl.float64)]),
    "narrow": narrow,
}


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
@pytest.mark.parametrize("name", CASTS)
def test_from_float32_to_float64(name, mode):
    f = CASTS[name]
    x = np.linspace(0.1, 0.7, 6).astype(np.float32)
    J = hl.jit(hl.jacobian(f, mode=mode))(x)
    dense = np.asarray(J)
    assert dense.dtype == np.float64
    np.testing.assert_allclose(dense, hl.jacfwd(f)(x), rtol=1e-6)
    product, back = hl.jit(lambda x, u: (lambda J: (J @ x, J.T @ u))(hl.jacobian(f, mode=mode)(x)))(x, np.ones(dense.shape[:-1]))
    assert product.dtype == np.float64 and back.dtype == np.float32
    np.testing.assert_allclose(product, dense @ x, rtol=1e-6)
    np.testing.assert_allclose(back, dense.reshape(-1, 6).sum(0), rtol=1e-6)


def test_integers_that_a_rule_gives():
    @hl.custom_jvp
    def largest(x):
        i = hl.argmax(x)
        return x[i], i

    @largest.defjvp
    def _(primals, tangents):
        value, i = largest(*primals)
        return (value, i), (tangents[0][i], hl.zeros((), hl.int32))

    x, table = np.array([1.0, 5.0, 2.0]), np.arange(3.0)
    functions = [
        lambda x: hl.dynamic_slice(table, (largest(x)[1],), (2,)) * x[:2],
        lambda x: hl.where(largest(x)[1] == np.arange(3), x, 2 * x),
        lambda x: largest(x)[1].astype(hl.float64) * x,
        lambda x: x[largest(x)[1]] * x,
    ]
    for f in functions:
        np.testing.assert_allclose(hl.jacobian(f)(x), hl.jacfwd(f)(x))


def test_directions_of_results_that_are_integers():
    def both(x):
        return x * 2, hl.argmax(x)

    (value, place), pullback = hl.vjp_many(both, np.array([1.0, 3.0, 2.0]))
    assert int(place) == 1
    (rows,) = pullback((np.eye(3), np.zeros(3, np.int32)))
    np.testing.assert_allclose(rows, 2 * np.eye(3))


def test_learning_online_with_a_counter():
    def step(p, state, x):
        h, n = state
        h = hl.tanh(p * h + x)
        return (h, n + 1), (h**2).sum()

    def whole(p, xs):
        return hl.scan(lambda s, x: step(p, s, x), (hl.zeros(3, dtype=hl.float64), np.int32(0)), xs)[1][-1]

    xs, p = np.linspace(-1, 1, 12).reshape(4, 3), np.float64(0.7)
    state, sensitivities = (np.zeros(3), np.int32(0)), None
    for x in xs:
        state, loss, sensitivities, gradient = hl.rtrl(step)(p, state, sensitivities, x)
    assert int(state[1]) == 4 and sensitivities[1].dtype == np.int32
    assert np.isclose(float(gradient), float(hl.grad(whole)(p, xs)))
    with pytest.raises(hl.UserError, match="parameters must be"):
        hl.rtrl(step)(np.int32(1), (np.zeros(3), np.int32(0)), None, xs[0])


def test_no_elements():
    def until_large(s):
        return hl.while_loop(lambda c: c < 3.0, lambda c: c + 1, s, max_steps=5)

    assert hl.jacfwd(hl.vmap(until_large))(np.zeros(0, np.float32)).shape == (0, 0)
    value, tangent = hl.jvp(lambda w: hl.max(w * hl.zeros((0,)), initial=-1.0), (1.0,), (1.0,))
    assert float(value) == -1 and float(tangent) == 0


def test_diagonals_of_hessians_whose_axes_change_places():
    c = np.linspace(-1, 1, 16).reshape(2, 2, 4)

    def f(x):
        return (c * x[:, :, :-1] * hl.permute_dims(x, (1, 0, 2))[:, :, 1:]).sum() + (x**3).sum()

    x = np.linspace(0, 1, 20).reshape(2, 2, 5)
    np.testing.assert_allclose(hl.hessian_diagonal(f)(x), np.diag(np.asarray(hl.hessian(f)(x)).reshape(20, 20)).reshape(x.shape))
    # Of as many numbers as a dense one could never hold.
    many = np.ones((300, 300))
    np.testing.assert_array_equal(hl.hessian_diagonal(lambda x: (x * x.T).sum())(many), 2 * np.eye(300))


def test_patterns_that_are_nearly_full_take_no_more_time_than_their_elements():
    mask = np.ones((300, 300))
    mask[0, 1] = mask[1, 0] = 0
    start = time.perf_counter()
    H = hl.sparse_hessian(lambda x: (x @ mask @ x) ** 1)(np.ones(300))
    assert time.perf_counter() - start < 10  # a few tenths of a second; it was minutes
    assert H.shape == (300, 300)
