"""Transforms against finite differences, against each other, and against formulas."""

import hotloop as hl
import numpy as np
import pytest


def numeric_gradient(f, x, h=1e-6):
    g = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        d = np.zeros_like(x)
        d[i] = h
        g[i] = (float(f(x + d)) - float(f(x - d))) / (2 * h)
    return g


def loss(p, x):
    h = hl.tanh(x @ p["w"] + p["b"])
    return (h**2).sum() + hl.logsumexp(h)


@pytest.fixture
def problem(rng):
    return {"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}, rng.normal(size=(4, 3))


def test_gradient(problem):
    p, x = problem
    value, gradient = hl.jit(hl.value_and_grad(loss))(p, x)
    assert np.isclose(float(value), float(loss(p, x)), rtol=1e-12)
    for name in p:
        wanted = numeric_gradient(lambda v, name=name: hl.jit(loss)({**p, name: v}, x), p[name])
        np.testing.assert_allclose(gradient[name], wanted, rtol=1e-6, atol=1e-7)


def test_argnums_and_aux(problem):
    p, x = problem
    first, second = hl.grad(loss, argnums=(0, 1))(p, x)
    assert first.keys() == p.keys() and second.shape == x.shape
    gradient, aux = hl.grad(lambda v: ((v**2).sum(), {"v": v}), has_aux=True)(x)
    np.testing.assert_allclose(gradient, 2 * x)
    np.testing.assert_allclose(aux["v"], x)
    assert float(hl.grad(lambda a: a**3)(2.0)) == 12


def test_forward_and_reverse_agree(problem, rng):
    p, x = problem
    direction = hl.tree.map(lambda v: rng.normal(size=v.shape), p)
    value, forward = hl.jvp(lambda q: loss(q, x), (p,), (direction,))
    gradient = hl.grad(loss)(p, x)
    reverse = sum(float((np.asarray(gradient[k]) * direction[k]).sum()) for k in p)
    assert np.isclose(float(forward), reverse, rtol=1e-12)
    y, pullback = hl.vjp(lambda q: hl.tanh(x @ q["w"]), p)
    (ct,) = pullback(np.ones(y.shape))
    assert ct["w"].shape == p["w"].shape and np.all(np.asarray(ct["b"]) == 0)
    y, linear = hl.linearize(lambda v: v**3, x)
    np.testing.assert_allclose(linear(np.ones_like(x)), 3 * x**2)


def test_a_pullback_made_outside_of_a_trace_is_a_function_like_others(rng):
    w, x = rng.normal(size=(2, 3)), rng.normal(size=3)

    def f(v):
        return hl.tanh(w @ v)

    wanted = np.asarray(hl.jacrev(f)(x))
    _, pull = hl.vjp(f, x)
    _, pull_many = hl.vjp_many(f, x)
    np.testing.assert_allclose(hl.vmap(pull)(np.eye(2))[0], wanted, rtol=1e-14)
    np.testing.assert_allclose(hl.jit(pull)(np.ones(2))[0], wanted.sum(0), rtol=1e-14)
    np.testing.assert_allclose(hl.jit(pull_many)(np.eye(2))[0], wanted, rtol=1e-14)
    np.testing.assert_allclose(hl.vmap(pull_many)(np.eye(2)[:, None])[0][:, 0], wanted, rtol=1e-14)
    np.testing.assert_allclose(hl.grad(lambda ct: pull(ct)[0].sum())(np.ones(2)), wanted.sum(1), rtol=1e-14)
    np.testing.assert_allclose(hl.fori_loop(0, 2, lambda i, v: pull(f(v))[0], x), pull(f(pull(f(x))[0]))[0], rtol=1e-14)
    # Where it was made, whatever is written to x since then.
    for given in (lambda a: a, hl.asarray, memoryview):
        moved = x.copy()
        place = given(moved)
        pulls = hl.vjp(f, place)[1], hl.vjp_many(f, place)[1], hl.linearize(f, place)[1]
        moved += 1
        np.testing.assert_allclose(pulls[0](np.ones(2))[0], wanted.sum(0), rtol=1e-14)
        np.testing.assert_allclose(pulls[1](np.eye(2))[0], wanted, rtol=1e-14)
        np.testing.assert_allclose(pulls[2](np.ones(3)), wanted.sum(1), rtol=1e-14)
    # Of trees.
    _, pull = hl.vjp(lambda p: {"y": p["a"] ** 3, "z": p["b"][0]}, {"a": x, "b": (w,)})
    (found,) = hl.jit(lambda ct: pull({"y": ct, "z": np.zeros((2, 3))}))(np.ones(3))
    np.testing.assert_allclose(found["a"], 3 * x**2, rtol=1e-14)
    assert np.all(np.asarray(found["b"][0]) == 0)


def test_hessians(rng):
    x, v, a = rng.normal(size=4), rng.normal(size=4), rng.normal(size=(4, 4))
    f = lambda z: hl.sin(z @ a @ z)  # noqa: E731
    s = a + a.T
    q = x @ a @ x
    wanted = np.cos(q) * s - np.sin(q) * np.outer(s @ x, s @ x)
    np.testing.assert_allclose(hl.hessian(f)(x), wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(hl.hvp(f, x, v), wanted @ v, rtol=1e-10)
    g = lambda z: hl.tanh(a @ z)  # noqa: E731
    jacobian = (1 - np.tanh(a @ x) ** 2)[:, None] * a
    np.testing.assert_allclose(hl.jacfwd(g)(x), jacobian, rtol=1e-12)
    np.testing.assert_allclose(hl.jacrev(g)(x), jacobian, rtol=1e-12)


def test_vmap(rng):
    x, w = rng.normal(size=(5, 3)), rng.normal(size=(3, 2))
    np.testing.assert_allclose(hl.vmap(lambda v: v @ w)(x), x @ w)
    np.testing.assert_allclose(hl.vmap(lambda v, m: v @ m, in_axes=(1, None))(x.T, w), x @ w)
    np.testing.assert_allclose(hl.vmap(lambda v: v, out_axes=1)(x), x.T)
    tree = hl.vmap(lambda t, s: {"s": t["a"] * s, "t": t["b"]}, in_axes=({"a": 0, "b": None}, 0))({"a": x, "b": w}, x[:, 0])
    np.testing.assert_allclose(tree["s"], x * x[:, :1])
    assert tree["t"].shape == (5, 3, 2)
    per_sample = hl.jit(hl.vmap(hl.grad(lambda m, v: (hl.tanh(v @ m) ** 2).sum()), in_axes=(None, 0)))(w, x)
    for i in range(5):
        np.testing.assert_allclose(per_sample[i], hl.grad(lambda m, v: (hl.tanh(v @ m) ** 2).sum())(w, x[i]), rtol=1e-12)


def rnn(p, xs):
    def step(h, x):
        h = hl.tanh(x @ p["i"] + h @ p["h"])
        return h, h.sum()

    return hl.scan(step, hl.zeros(4, dtype=hl.float64), xs)


def test_scan_and_its_derivatives(rng):
    p, xs = {"i": rng.normal(size=(3, 4)), "h": rng.normal(size=(4, 4)) * 0.5}, rng.normal(size=(6, 3))
    h, sums = np.zeros(4), []
    for x in xs:
        h = np.tanh(x @ p["i"] + h @ p["h"])
        sums.append(h.sum())
    last, ys = hl.jit(rnn)(p, xs)
    np.testing.assert_allclose(last, h, rtol=1e-12)
    np.testing.assert_allclose(ys, sums, rtol=1e-12)
    f = lambda q: (rnn(q, xs)[1] ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(
        hl.jit(hl.grad(f))(p)["h"], numeric_gradient(lambda m: hl.jit(f)({**p, "h": m}), p["h"]), rtol=1e-6, atol=1e-8
    )
    second = hl.jit(lambda q, d: hl.jvp(hl.grad(f), (q,), (d,))[1])(p, p)
    e = 1e-5
    up, down = (hl.grad(f)(hl.tree.map(lambda v, s=s: v * (1 + s * e), p))["h"] for s in (1, -1))
    np.testing.assert_allclose(second["h"], (np.asarray(up) - np.asarray(down)) / (2 * e), rtol=1e-6, atol=1e-7)


def test_scan_forms():
    carry, ys = hl.scan(lambda c, x: (c + x["a"], {"c": c, "n": None}), 0.0, {"a": np.arange(4.0, dtype=np.float32)}, reverse=True)
    assert float(carry) == 6 and ys["c"].tolist() == [6, 5, 3, 0] and ys["n"] is None
    carry, _ = hl.scan(lambda c, _: (c * 2, None), 1, length=5)
    assert int(carry) == 32
    with pytest.raises(hl.UserError, match=r"\[scan\] the body must give a carry of the types of the initial one, i32\[\]. Received: f32\[\]"):
        hl.scan(lambda c, _: (c * 0.5, None), hl.asarray(1), length=2)
    with pytest.raises(hl.UserError, match=r"\[scan\] the body must return \(carry, y\)"):
        hl.scan(lambda c, _: c, 1, length=2)
    for xs in (None, np.ones(3)):
        with pytest.raises(hl.UserError, match=r"\[scan\] the length must not be negative. Received: -1"):
            hl.scan(lambda c, _: (c, None), 1, xs, length=-1)


def test_cells_that_differ_by_the_place_of_their_product(rng):
    """Two products of one row, each followed by the same function of it and of numbers that are there, once the other way round."""
    width, parts = 64, 4

    def cell(weights, product_first):
        def step(h, given):
            product = h @ weights.T
            a, b = (product, given) if product_first else (given, product)
            quarters = [slice(g * width, (g + 1) * width) for g in range(parts)]
            h = hl.tanh(sum(a[:, q] * hl.tanh(b[:, q]) * hl.sigmoid(a[:, q]) for q in quarters))
            return h, h

        return step

    def program(u, v, first, second, h):
        h, ys = hl.scan(cell(u, True), h, first)
        return ys, hl.scan(cell(v, False), h, second)[1]

    shapes = [(parts * width, width)] * 2 + [(7, 1, parts * width)] * 2 + [(1, width)]
    inputs = [rng.normal(scale=0.3, size=shape).astype(np.float32) for shape in shapes]
    for got, wanted in zip(hl.jit(program)(*inputs), hl.jit(program, backend="interp")(*inputs)):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)


def test_while_loop_and_its_derivatives():
    def f(x):
        return hl.while_loop(lambda v: v < 100, lambda v: v * x, x, max_steps=50)

    x = np.array([1.5, 2.0, 3.0, 200.0])
    steps = np.ceil(np.log(100) / np.log(x[:3]))  # x^n is the first power at or beyond 100
    n = np.append(steps, 1)
    value, slope = hl.jit(hl.vmap(hl.value_and_grad(f)))(x)
    np.testing.assert_allclose(value, x**n, rtol=1e-12)
    np.testing.assert_allclose(slope, n * x ** (n - 1), rtol=1e-12)
    np.testing.assert_allclose(hl.vmap(lambda v: hl.jvp(f, (v,), (1.0,))[1])(x), n * x ** (n - 1), rtol=1e-12)
    assert int(hl.while_loop(lambda c: c < 10, lambda c: c + 3, 0)) == 12


def test_a_while_loop_ends_at_its_most_steps():
    def f(x, most):
        return hl.while_loop(lambda v: v < 100, lambda v: v * x, x, max_steps=most)

    for most in (0, 1, 3):  # of 6 that the condition asks for
        value, slope = hl.value_and_grad(lambda x: f(x, most))(2.0)  # noqa: B023  (called here)
        assert (float(value), float(slope)) == (2.0 ** (most + 1), (most + 1) * 2.0**most)
    lanes = hl.vmap(lambda x: f(x, 3))(np.array([2.0, 4.0, 50.0]))
    np.testing.assert_array_equal(lanes, [16.0, 256.0, 2500.0])


def test_reverse_mode_of_a_loop_without_a_bound():
    def f(x):
        return hl.while_loop(lambda v: v < 10, lambda v: v * v, x)

    for transform, x in ((hl.grad(f), 2.0), (hl.vmap(hl.grad(f)), np.array([2.0, 3.0])), (hl.grad(lambda x: hl.vmap(f)(x).sum()), np.array([2.0, 3.0]))):
        with pytest.raises(hl.UserError, match=r"\[while_loop\] reverse mode needs a bound.* Received: no bound, and f.* Try: max_steps"):
            transform(x)
    assert float(hl.jvp(f, (2.0,), (1.0,))[1]) == 32
    # Nothing to keep, and nothing that a cotangent reaches.
    assert float(hl.grad(lambda x: hl.while_loop(lambda v: v < 10, lambda v: v + 1, x))(2.0)) == 1
    assert float(hl.grad(lambda x: x * hl.stop_gradient(f(x)))(2.0)) == 16


def test_a_tangent_of_an_integer_is_refused():
    with pytest.raises(hl.UserError, match=r"\[jvp\] what has a tangent must be f32 or f64. Received: f64\[3\] for i64\[3\]. Try: floats"):
        hl.jvp(lambda a: a * 2.0, (np.arange(3),), (np.ones(3),))
    x, n = np.array([1.0, 2.0]), np.array([3, 4])
    value, tangent = hl.jvp(lambda a: a["x"] * a["n"], ({"x": x, "n": n},), ({"x": np.ones(2), "n": np.zeros_like(n)},))
    np.testing.assert_array_equal(tangent, n)


def test_cond():
    f = hl.jit(lambda p, x: hl.cond(p, lambda v: {"y": v * 2}, lambda v: {"y": -v}, x))
    assert float(f(True, 3.0)["y"]) == 6 and float(f(False, 3.0)["y"]) == -3
    assert float(hl.grad(lambda x: hl.cond(x > 0, lambda v: v**2, lambda v: -v, x))(-3.0)) == -1
    with pytest.raises(hl.UserError, match="must be a bool scalar"):
        hl.cond(1.0, lambda: 1, lambda: 2)


def test_checkpoint_and_stop_gradient(rng):
    x = rng.normal(size=3)
    f = lambda v: (hl.sin(v) ** 2).sum()  # noqa: E731
    np.testing.assert_array_equal(hl.grad(hl.checkpoint(f))(x), hl.grad(f)(x))
    np.testing.assert_array_equal(hl.grad(lambda v: (hl.stop_gradient(v) * v).sum())(x), x)


def test_custom_jvp():
    @hl.custom_jvp
    def f(x, y):
        return hl.sin(x) * y

    @f.defjvp
    def rule(primals, tangents):
        (x, y), (tx, ty) = primals, tangents
        return f(x, y), 10 * tx + ty

    assert float(hl.grad(f)(1.0, 2.0)) == 10 and float(hl.grad(f, argnums=1)(1.0, 2.0)) == 1
    assert float(hl.jvp(f, (1.0, 2.0), (1.0, 1.0))[1]) == 11
    assert np.allclose(hl.vmap(hl.grad(f))(np.ones(3), np.ones(3)), 10)


def test_custom_vjp(rng):
    @hl.custom_vjp
    def f(p, x):
        return {"y": hl.sin(p["w"]) * x}

    f.defvjp(lambda p, x: (f(p, x), (p, x)), lambda res, ct: ({"w": 5 * ct["y"] * res[1]}, None))
    p, x = {"w": rng.normal(size=3)}, rng.normal(size=3)
    np.testing.assert_allclose(f(p, x)["y"], np.sin(p["w"]) * x)
    gradient = hl.jit(hl.grad(lambda q: f(q, x)["y"].sum()))(p)
    np.testing.assert_allclose(gradient["w"], 5 * x)
    # Forward mode is the transpose.
    tangent = hl.jvp(lambda q: f(q, x)["y"], (p,), ({"w": np.ones(3)},))[1]
    np.testing.assert_allclose(tangent, 5 * x)


def test_a_backward_function_need_not_be_linear(rng):
    clipped = hl.custom_vjp(lambda x: x)
    clipped.defvjp(lambda x: (x, None), lambda res, ct: (hl.clip(ct, -1.0, 1.0),))
    x = np.array([0.2, -0.1, 3.0, -4.0])
    by_hand = np.clip(6 * x, -1, 1)
    loss = lambda v: 3 * (clipped(v) ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(hl.jit(hl.grad(loss))(x), by_hand)
    np.testing.assert_allclose(hl.jit(hl.vmap(hl.grad(loss)))(np.stack([x, x])), [by_hand, by_hand])
    np.testing.assert_allclose(hl.jit(hl.hessian(loss))(x), np.diag(6.0 * (abs(6 * x) < 1)))
    np.testing.assert_allclose(hl.jit(hl.jacrev(clipped))(x), np.eye(4))
    in_a_loop = lambda v: hl.scan(lambda c, _: (clipped(2 * c), None), v, length=3)[0].sum()  # noqa: E731
    np.testing.assert_allclose(hl.jit(hl.grad(in_a_loop))(x), np.full(4, 2.0))
    for wants_forward_mode in (lambda: hl.jvp(clipped, (x,), (x,)), lambda: hl.jit(hl.jacfwd(clipped))(x)):
        with pytest.raises(hl.UserError, match=r"\[<lambda>\] forward mode wants a backward function that is linear in the cotangent"):
            wants_forward_mode()


def test_an_equilibrium_iterates_in_both_directions(rng):
    """z = tanh(W z + x), found by iteration, and its cotangent too (Bai, Kolter, Koltun, Deep Equilibrium Models, 2019)."""

    def settle(update, start):
        def body(carry):
            new = update(carry[0])
            return new, hl.abs(new - carry[0]).max()

        return hl.while_loop(lambda carry: carry[1] > 1e-14, body, (start, hl.ones((), dtype="float64")), max_steps=200)[0]

    cell = lambda w, x, z: hl.tanh(w @ z + x)  # noqa: E731

    @hl.custom_vjp
    def layer(w, x):
        return settle(lambda z: cell(w, x, z), hl.zeros_like(x))

    def forward(w, x):
        z = layer(w, x)
        return z, (w, x, z)

    def backward(residuals, cotangent):
        w, x, z = residuals
        pull = hl.vjp(lambda z: cell(w, x, z), z)[1]
        u = settle(lambda u: cotangent + pull(u)[0], hl.zeros_like(z))
        return hl.vjp(lambda w, x: cell(w, x, z), w, x)[1](u)

    layer.defvjp(forward, backward)
    w, x, target = 0.1 * rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=5)
    loss = lambda w, x: ((layer(w, x) - target) ** 2).sum()  # noqa: E731
    unrolled = lambda w, x: ((hl.scan(lambda z, _: (cell(w, x, z), None), hl.zeros_like(x), length=60)[0] - target) ** 2).sum()  # noqa: E731
    for got, want in zip(hl.jit(hl.grad(loss, argnums=(0, 1)))(w, x), hl.grad(unrolled, argnums=(0, 1))(w, x)):
        np.testing.assert_allclose(got, want, rtol=1e-10)


def test_hyper_errors():
    with pytest.raises(hl.UserError, match=r"\[grad\] the first output of the function must be an f32 or f64 scalar. Received: f64\[3\]"):
        hl.grad(lambda x: x)(np.ones(3))
    with pytest.raises(hl.UserError, match="derivatives are taken with respect to f32 or f64 inputs"):
        hl.grad(lambda x: x * 1.0)(np.int32(1))
    with pytest.raises(hl.UserError, match=r"\[vmap\] the mapped axis must be one of the argument's"):
        hl.vmap(lambda x: x, in_axes=3)(np.ones(3))


def test_random():
    k = hl.random.key(3)
    a, b = hl.random.split(k)
    assert not np.array_equal(a, b)
    u = np.asarray(hl.random.uniform(k, (10000,)))
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02 and abs(u.var() - 1 / 12) < 0.005
    n = np.asarray(hl.random.normal(k, (10000,), dtype="float64"))
    assert abs(n.mean()) < 0.05 and abs(n.std() - 1) < 0.05
    assert np.array_equal(hl.jit(lambda q: hl.random.normal(q, (5,)))(k), hl.random.normal(k, (5,)))
    i = np.asarray(hl.random.randint(k, (1000,), -2, 3))
    assert set(i) == {-2, -1, 0, 1, 2}
    assert abs(np.asarray(hl.random.bernoulli(k, 0.2, (10000,))).mean() - 0.2) < 0.02
    assert not np.array_equal(hl.random.fold_in(k, 0), hl.random.fold_in(k, 1))
