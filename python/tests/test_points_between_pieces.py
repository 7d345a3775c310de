"""Functions made of pieces, where the pieces meet: derivatives of every order are those of the function. And what random programs found."""

import copy
import math
import pickle

import hotloop as hl
import numpy as np
import pytest


def derivatives(f, x, most):
    """The first `most` derivatives of f at x, each by forward and by reverse mode."""
    found, g = [], f
    for _ in range(most):
        forward = g
        g = hl.grad(g)
        by_jvp = hl.jit(lambda v, f=forward: hl.jvp(f, (v,), (hl.ones_like(v),))[1])(np.float64(x))
        by_grad = hl.jit(g)(np.float64(x))
        assert math.isclose(float(by_jvp), float(by_grad), abs_tol=1e-12)
        found.append(float(by_grad))
    return found


ALPHA, SCALE = 1.6732632423543772848, 1.0507009873554804934
AT_ZERO = {
    "softplus": (hl.softplus, [0.5, 0.25, 0.0]), "log_sigmoid": (hl.log_sigmoid, [0.5, -0.25, 0.0]), "atanh": (hl.atanh, [1.0, 0.0, 2.0]),
    "elu": (lambda x: hl.nn.ELU()({}, x[None])[0], [1.0]), "selu": (lambda x: hl.nn.SELU()({}, x[None])[0], [SCALE * ALPHA]),
    "logistic loss": (lambda x: hl.losses.BinaryCrossEntropy()(x[None, None], hl.ones((1, 1), dtype="float64")), [-0.5, 0.25, 0.0]),
    "huber": (lambda x: hl.losses.Huber()(x[None, None], hl.zeros((1, 1), dtype="float64")), [0.0, 1.0, 0.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_ZERO)
def test_derivatives_at_zero(name):
    f, wanted = AT_ZERO[name]
    assert np.allclose(derivatives(f, 0.0, len(wanted)), wanted, atol=1e-12)


@pytest.mark.parametrize("x", [-30.0, -1.0, -1e-3, 1e-3, 1.0, 30.0, 800.0])
def test_softplus_beside_zero(x):
    s = 1 / (1 + math.exp(-x))
    assert np.allclose(derivatives(hl.softplus, x, 3), [s, s * (1 - s), s * (1 - s) * (1 - 2 * s)], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("a, b", [(1.0, 0.0), (0.0, -2.0), (1.0, 1.0), (-1.0, 1.0), (3.0, 4.0), (1e200, 1e200)])
def test_hypot(a, b):
    r = math.hypot(a, b)
    hessian = hl.jit(hl.hessian(lambda p: hl.hypot(p[0], p[1])))(np.array([a, b]))
    assert np.allclose(hessian, np.array([[b / r * (b / r), -a / r * (b / r)], [-a / r * (b / r), a / r * (a / r)]]) / r, rtol=1e-12, atol=1e-300)
    assert math.isclose(float(hl.hypot(np.float64(a), np.float64(b))), r, rel_tol=1e-15)


def test_hypot_of_what_has_no_size():
    for a, b in [(math.inf, math.inf), (math.nan, -math.inf), (-math.inf, 0.0)]:
        assert float(hl.hypot(np.float64(a), np.float64(b))) == math.inf
    assert math.isnan(float(hl.hypot(np.float64(1), np.float64(math.nan))))
    assert float(hl.hypot(np.float64(0), np.float64(0))) == 0 and np.array_equal(hl.grad(lambda p: hl.hypot(p[0], p[1]))(np.zeros(2)), [0, 0])


def test_atanh_is_odd():
    for x in (np.float32(0.99999994), np.float32(0.999999), np.float64(1 - 2.0**-53), np.float64(1e-9), np.float64(1)):
        assert float(hl.atanh(-x)) == -float(hl.atanh(x))
    assert math.isclose(float(hl.atanh(np.float64(-1 + 2.0**-53))), math.atanh(-1 + 2.0**-53), rel_tol=1e-15)


def test_pow_at_exponent_zero():
    hessian = hl.jit(hl.hessian(lambda p: hl.pow(p[0], p[1])))(np.array([2.0, 0.0]))
    assert np.allclose(hessian, [[0, 0.5], [0.5, math.log(2) ** 2]])
    for x in (0.0, math.nan):
        assert float(hl.grad(lambda a: hl.pow(a, np.float64(0)))(np.float64(x))) == 0


def test_dots_of_many_axes_and_of_nothing():
    g = np.random.default_rng(0)
    a, b = g.normal(size=(2, 3, 4, 5)), g.normal(size=(5, 4, 3, 2))
    assert np.allclose(hl.jit(lambda a, b: hl.tensordot(a, b, axes=((0, 1, 2, 3), (3, 2, 1, 0))))(a, b), np.einsum("abcd,dcba->", a, b))
    c = g.normal(size=(7, 2, 3, 4, 5, 6))

    def f(a, c):
        return hl.einsum("abcd,nabcde->ne", a, c)

    assert np.allclose(hl.jit(f)(a, c), np.einsum("abcd,nabcde->ne", a, c))
    assert np.allclose(hl.jit(hl.grad(lambda a, c: f(a, c).sum()))(a, c), c.sum((0, 5)))
    w, x, p = g.normal(size=5), g.normal(size=(4, 5, 2)), g.normal(size=(3, 4))
    wanted = np.einsum("fbk,bkg->bfg", p[:, :, None] * w, x)
    assert np.allclose(hl.jit(lambda p, w, x: hl.einsum("fbk,bkg->bfg", p[:, :, None] * w, x))(p, w, x), wanted)
    assert np.array_equal(hl.jit(lambda x: hl.scan(lambda c, t: (c, hl.tanh(c)), x, length=0)[1].sum(axis=0))(np.ones(4)), np.zeros(4))


def test_random_numbers_keep_to_what_is_said_of_them():
    key = hl.random.key(3)
    assert np.asarray(hl.random.uniform(key, 2_000_000, low=1.0, high=2.0)).max() < 2
    draws = np.asarray(hl.random.bernoulli(key, np.full(200, 0.5, np.float32)))
    assert draws.shape == (200,) and 50 < draws.sum() < 150
    assert np.shape(hl.random.bernoulli(key)) == () and np.shape(hl.random.bernoulli(key, 0.3, (4,))) == (4,)
    floats = hl.jit(lambda k, n: hl.random.fold_in(k, n))
    for call in (lambda: hl.random.fold_in(key, 2**32), lambda: hl.random.fold_in(key, 1.7), lambda: hl.random.key(2**64), lambda: floats(key, np.float32(1))):
        with pytest.raises(hl.UserError, match=r"\[random\]"):
            call()


def test_a_run_of_a_classification_is_pickled():
    g = np.random.default_rng(0)
    x, y = g.normal(size=(40, 3)).astype(np.float32), g.integers(0, 2, 40).astype(np.int32)
    run = hl.fit(hl.nn.Sequential(hl.nn.Linear(3, 2)), (x, y), loss=hl.losses.CrossEntropy(), epochs=1)
    for again in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        assert np.array_equal(again.predict(x), run.predict(x))
