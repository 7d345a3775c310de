"""Jacobians with and without structure, Hessians, products with curvature, and derivatives online: closed forms, differences and
each other."""

import dataclasses
import importlib.util

import hotloop as hl
import numpy as np
import pytest

W = np.random.default_rng(5).normal(size=(6, 6)) * 0.5
BAND = np.where(abs(np.subtract.outer(np.arange(6), np.arange(6))) <= 1, 1.5, 0.0)
CELL = hl.nn.GRU(2, 3)
CELL_PARAMS = CELL.init(1, dtype="float64")


def mlp(x):
    return hl.tanh(x @ W[: x.shape[-1]] + 0.1) @ W[:, :5]


def normalised(x):
    centred = x - x.mean(axis=0)
    return centred / hl.sqrt((centred**2).mean(axis=0) + 1e-5)


def heat(u):
    padded = hl.pad(u, 1)
    return u + 0.1 * (padded[2:] - 2 * u + padded[:-2]) + 0.01 * u**2


# name -> (function, shape of x, pairs of axes, most passes)
STRUCTURES = {
    "elementwise": (lambda x: hl.sin(x) * x, (3, 4), [(0, 0), (1, 1)], 1),
    "mlp": (mlp, (7, 2), [(0, 0)], 2),
    "mlp_transposed": (lambda x: mlp(x).T, (7, 2), [(1, 0)], 2),
    "batch_norm": (normalised, (5, 3), [(1, 1)], 5),
    "stencil": (heat, (11,), [], 3),
    "stencils": (hl.vmap(heat), (4, 9), [(0, 0)], 3),
    "banded": (lambda x: BAND @ hl.tanh(x), (6,), [], 3),
    "gather": (lambda x: x[np.array([3, 1, 1, 5])] ** 2, (6,), [], 1),
    "scan": (lambda x: hl.cumulative_sum(x**2), (6,), [], 6),
    "gru": (lambda x: CELL(CELL_PARAMS, x), (4, 3, 2), [(0, 0)], 9),
    "dense": (lambda x: mlp(x).sum(axis=0), (4, 3), [], 5),
    "scalar": (lambda x: (hl.sin(x) ** 2).sum(), (5,), [], 1),
}  # fmt: skip


def differences(f, x, h=1e-6):
    columns = []
    for i in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[i] = h
        columns.append((np.asarray(f(x + e)) - np.asarray(f(x - e))) / (2 * h))
    return np.moveaxis(np.array(columns), 0, -1).reshape(columns[0].shape + x.shape)


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_form_is_the_same_matrix(name, rng):
    f, shape, paired, passes = STRUCTURES[name]
    x = rng.normal(size=shape)
    jac = hl.jit(hl.jacobian(f))(x)
    s = jac.structure
    wanted = np.asarray(hl.jit(hl.jacfwd(f))(x))
    np.testing.assert_allclose(np.asarray(jac), wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(hl.jit(hl.jacrev(f))(x), wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(wanted, differences(hl.jit(f), x), rtol=1e-6, atol=1e-7)
    assert s.paired == paired and s.forward_passes + s.reverse_passes <= passes
    y_size = int(np.prod(s.output_shape, dtype=int))
    matrix = wanted.reshape(y_size, x.size)
    data, columns, indptr = (np.asarray(part) for part in hl.jit(lambda j: j.sparse())(jac))
    assert indptr.shape == (y_size + 1,) and data.shape == (s.num_stored,)
    rebuilt = np.zeros_like(matrix)
    for row in range(y_size):
        rebuilt[row, columns[indptr[row] : indptr[row + 1]]] = data[indptr[row] : indptr[row + 1]]
    np.testing.assert_allclose(rebuilt, matrix, rtol=1e-10, atol=1e-12)
    data, rows, columns = hl.jit(lambda j: j.sparse("coo"))(jac)
    rebuilt = np.zeros_like(matrix)
    rebuilt[np.asarray(rows), np.asarray(columns)] = np.asarray(data)
    np.testing.assert_allclose(rebuilt, matrix, rtol=1e-10, atol=1e-12)
    u, v = rng.normal(size=s.output_shape), rng.normal(size=x.shape)
    np.testing.assert_allclose(np.asarray(jac @ v).ravel(), matrix @ v.ravel(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.asarray(jac.T @ u).ravel(), matrix.T @ u.ravel(), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(jac.matvec(v), jac @ v)
    np.testing.assert_array_equal(jac.rmatvec(u), jac.T @ u)
    np.testing.assert_allclose(np.asarray(jac.T).reshape(x.size, y_size), matrix.T, rtol=1e-10, atol=1e-12)
    assert jac.shape == wanted.shape == tuple(jac.T.shape[x.ndim :]) + jac.T.shape[: x.ndim] and jac.T.T is jac
    if s.output_shape == x.shape:
        np.testing.assert_allclose(np.asarray(jac.diagonal()).ravel(), np.diag(matrix), rtol=1e-10, atol=1e-12)
    assert "structure" in jac.explain() and "passes" in jac.explain()


@pytest.mark.parametrize("mode", ["forward", "reverse", "mixed"])
def test_every_mode_gives_the_same(mode, rng):
    x = rng.normal(size=(3, 4))
    jac = hl.jacobian(mlp, mode=mode)(x)
    np.testing.assert_allclose(np.asarray(jac), np.asarray(hl.jacobian(mlp)(x)), rtol=1e-12)
    if mode != "mixed":
        assert jac.structure.mode == mode
    assert not hl.jacobian(heat, sparsity=False)(x[0]).structure.is_sparse


def test_blocks_of_the_seed_are_one_tangent_in_one_kernel():
    shapes = [(1, 20), (20,), (20, 20), (20,), (20, 400), (400,)]
    p = [hl.nn.uniform(i, s) for i, s in enumerate(shapes)]
    net = lambda x: hl.tanh(hl.tanh(x @ p[0] + p[1]) @ p[2] + p[3]) @ p[4] + p[5]  # noqa: E731
    x = hl.nn.uniform(9, (100, 1))
    run = hl.jit(hl.jacobian(net))
    jac = run(x)
    assert jac.blocks.shape == (100, 400, 1) and jac.shape == (100, 400, 100, 1)
    assert jac.structure.mode == "forward" and jac.structure.forward_passes == 1 and jac.structure.num_blocks == 100
    each = hl.jit(hl.vmap(hl.jacfwd(lambda row: net(row[None])[0])))(x)
    np.testing.assert_allclose(jac.blocks, each, rtol=1e-5, atol=1e-6)
    assert hl.executable(run, x).kernel_text().count("grid") == 1
    with pytest.raises(hl.UserError, match=r"dense\(\) must fit into 1 MB of memory. Received: f32\[100,400,100,1\], 16 MB. Try: blocks\(\)"):
        hl.jacobian(net, max_bytes=1_000_000)(x).dense()


def test_it_is_a_tree(rng):
    x = rng.normal(size=(5, 6))
    per_row = hl.jit(hl.vmap(hl.jacobian(heat)))(x)
    assert per_row.shape == (5, 6, 6) and per_row.values.shape[0] == 5
    each = [hl.jacobian(heat)(row) for row in x]
    for i, jac in enumerate(each):
        np.testing.assert_allclose(np.asarray(per_row)[i], np.asarray(jac), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(per_row @ x)[i], np.asarray(jac @ x[i]), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(per_row.T @ x[0])[i], np.asarray(jac.T @ x[0]), rtol=1e-12)
    assert per_row.sparse().data.shape == (5, per_row.structure.num_stored)
    twice = hl.jit(lambda j: dataclasses.replace(j, values=2 * j.values))
    np.testing.assert_allclose(np.asarray(twice(each[0])), 2 * np.asarray(each[0]))
    twice(each[1])  # an equal structure is no reason to compile anew
    from hotloop import _core

    assert _core.num_specializations(twice) == 1 and each[0].structure == each[1].structure and hash(each[0].structure) == hash(each[1].structure)
    carried, _ = hl.scan(lambda j, _: (dataclasses.replace(j, values=j.values * 0.5), None), each[0], length=3)
    np.testing.assert_allclose(np.asarray(carried), np.asarray(each[0]) / 8)
    assert repr(each[0]) == "Jacobian(shape=(6, 6), dtype=float64, 1 sparse blocks of 6 x 6)"


def test_newton_inside_a_loop(rng):
    # Solves heat(u) = b by Newton's method, with the structured Jacobian inside a compiled loop.
    wanted = rng.uniform(size=6)
    b = np.asarray(heat(wanted))

    def step(u, _):
        residual = heat(u) - b
        jac = hl.jacobian(heat)(u)
        jacobi = lambda c, _: (c + (residual - jac @ c) / jac.diagonal(), None)  # noqa: E731
        return u - hl.scan(jacobi, hl.zeros_like(u), length=60)[0], None

    found = hl.jit(lambda u: hl.scan(step, u, length=6)[0])(np.zeros(6))
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_trees_of_arguments_and_results(rng):
    p = {"w": rng.normal(size=(2, 3)), "b": rng.normal(size=3)}
    f = lambda p, x: {"h": hl.tanh(x @ p["w"] + p["b"]), "n": (p["b"] ** 2).sum()}  # noqa: E731
    x = rng.normal(size=2)
    for transform in (hl.jacfwd, hl.jacrev, hl.jacobian):
        jac = transform(f)(p, x)
        assert jac["h"]["w"].shape == (3, 2, 3) and jac["n"]["b"].shape == (3,)
        np.testing.assert_allclose(np.asarray(jac["h"]["w"]), differences(lambda w: f({**p, "w": w}, x)["h"], p["w"]), atol=1e-8)
        by_p, by_x = transform(f, argnums=(0, 1))(p, x)["h"]
        np.testing.assert_allclose(np.asarray(by_x), differences(lambda v: f(p, v)["h"], x), atol=1e-8)
        np.testing.assert_allclose(np.asarray(by_p["b"]), np.asarray(jac["h"]["b"]))


@pytest.mark.parametrize("n", [5, 64, 65, 300])
def test_arrays_of_any_size_are_known_to_the_structure(n):
    ring, u = (np.arange(n) + 1) % n, np.linspace(0.1, 1, n)
    band = np.diag(np.full(n, 2.0)) + np.diag(np.ones(n - 1), 1)
    turned, bent = hl.jacobian(lambda v: hl.sin(v[ring] - v))(u), hl.jacobian(lambda v: hl.tanh(band @ v))(u)
    assert turned.structure.num_stored == 2 * n and bent.structure.num_stored == 2 * n - 1
    slopes = np.cos(u[ring] - u)
    np.testing.assert_allclose(turned.dense(), slopes[:, None] * (np.eye(n)[ring] - np.eye(n)), atol=1e-15)
    np.testing.assert_allclose(hl.jit(lambda v: hl.jacobian(lambda w: hl.tanh(band @ w))(v).dense())(u), (1 - np.tanh(band @ u) ** 2)[:, None] * band, atol=1e-15)
    assert hl.sparse_hessian(lambda v: (hl.sin(v[ring] - v) ** 2).sum())(u).structure.num_stored == 3 * n


def test_the_structure_is_of_the_numbers_at_the_trace():
    index, u = np.arange(100)[::-1].copy(), np.linspace(0.1, 1, 100)
    slopes = hl.jit(lambda v: hl.jacobian(lambda w: w[index] ** 2)(v).dense())
    first = np.asarray(slopes(u))
    index[:] = 0  # not the program's
    np.testing.assert_array_equal(slopes(u + 1) != 0, first != 0)


def test_scipy_takes_the_sparse_form(rng):
    sparse = pytest.importorskip("scipy.sparse")
    x = rng.normal(size=11)
    jac = hl.jacobian(heat)(x)
    dense = np.asarray(jac)
    for format in ("csr", "coo"):
        matrix = jac.sparse(format)
        assert matrix.format == format and isinstance(matrix, sparse.sparray) and matrix.nnz == 31
        np.testing.assert_array_equal(matrix.toarray(), dense)


# ---- Hessians and curvature ----------------------------------------------------------------------------------------------------


def chained(x):
    return (hl.sin(x[1:]) * x[:-1] ** 2).sum() + hl.exp(x[0])


def test_hessians(rng):
    x, v = rng.normal(size=7), rng.normal(size=7)
    dense = np.asarray(hl.hessian(chained)(x))
    np.testing.assert_allclose(dense, differences(hl.jit(hl.grad(chained)), x), atol=1e-6)
    sparse = hl.jit(hl.sparse_hessian(chained))(x)
    assert sparse.structure.is_symmetric and sparse.structure.forward_passes + sparse.structure.reverse_passes <= 3
    np.testing.assert_allclose(np.asarray(sparse), dense, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(hl.hessian_diagonal(chained)(x), np.diag(dense), rtol=1e-10)
    np.testing.assert_allclose(hl.hvp(chained, x, v), dense @ v, rtol=1e-10)
    np.testing.assert_allclose(hl.laplacian(chained)(x), np.trace(dense), rtol=1e-10)
    harmonic = lambda z: hl.exp(z[0]) * hl.cos(z[1])  # noqa: E731
    np.testing.assert_allclose(hl.vmap(hl.laplacian(harmonic))(rng.normal(size=(5, 2))), 0, atol=1e-14)


def test_hessian_of_a_tree(rng):
    p = {"a": rng.normal(size=2), "b": rng.normal(size=3)}
    f = lambda p: (p["a"].sum() * p["b"] ** 2).sum() + hl.sin(p["a"]).sum()  # noqa: E731
    h = hl.hessian(f)(p)
    np.testing.assert_allclose(h["a"]["b"], np.tile(2 * p["b"], (2, 1)), rtol=1e-12)
    np.testing.assert_allclose(h["b"]["b"], np.diag(np.full(3, 2 * p["a"].sum())), rtol=1e-12)
    np.testing.assert_allclose(hl.hessian_diagonal(f)(p)["a"], -np.sin(p["a"]), rtol=1e-12)
    np.testing.assert_allclose(hl.laplacian(f)(p), -np.sin(p["a"]).sum() + 6 * p["a"].sum(), rtol=1e-12)
    by_first, by_second = hl.hessian(lambda a, b: (a * b).sum() ** 2, argnums=(0, 1))(p["b"], p["b"])
    np.testing.assert_allclose(by_first[0], 2 * np.outer(p["b"], p["b"]), rtol=1e-12)
    assert by_second[0].shape == (3, 3)


def test_products_with_curvature(rng):
    p = {"w": rng.normal(size=(3, 2)), "k": np.int32(2)}
    v = {"w": rng.normal(size=(3, 2)), "k": 0}
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    model = lambda q: x @ q["w"] * q["k"]  # noqa: E731
    square = lambda out: ((out - y) ** 2).sum()  # noqa: E731
    # Of a linear model it is the Hessian.
    product = hl.jit(lambda q, d: hl.gauss_newton_vp(model, square, q, d))(p, v)
    np.testing.assert_allclose(product["w"], 2 * 4 * x.T @ x @ v["w"], rtol=1e-12)
    assert int(product["k"]) == 0
    losses = lambda w: ((x @ w - y) ** 2).sum(axis=1)  # noqa: E731
    rows = np.asarray(hl.per_sample_grad(lambda w, a, b: ((a @ w - b) ** 2).sum())(p["w"], x, y)).reshape(4, 6)
    np.testing.assert_allclose(rows, differences(losses, p["w"]).reshape(4, 6), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.ravel(hl.fisher_vp(losses, p["w"], v["w"])), rows.T @ (rows @ v["w"].ravel()) / 4, rtol=1e-10)
    shared = hl.per_sample_grad(lambda a, w: (hl.tanh(a @ w) ** 2).sum(), argnums=1, in_axes=(1, None))(x.T, p["w"])
    assert shared.shape == (4, 3, 2)


def test_many_directions_are_the_directions_one_by_one(rng):
    x, d, ct = rng.normal(size=(2, 3)), rng.normal(size=(4, 2, 3)), rng.normal(size=(5, 2, 5))
    y, tangents = hl.jvp_many(mlp, (x,), (d,))
    np.testing.assert_allclose(y, mlp(x), rtol=1e-12)
    for k in range(4):
        np.testing.assert_allclose(tangents[k], hl.jvp(mlp, (x,), (d[k],))[1], rtol=1e-12)
    for run in (lambda c: hl.vjp_many(mlp, x)[1](c), hl.jit(lambda c: hl.vjp_many(mlp, x)[1](c))):
        (cotangents,) = run(ct)
        for k in range(5):
            np.testing.assert_allclose(cotangents[k], hl.vjp(mlp, x)[1](ct[k])[0], rtol=1e-12)


def test_learning_online_is_backpropagation_through_time(rng):
    p = {"w": rng.normal(size=(3, 3)) * 0.5, "u": rng.normal(size=(2, 3))}
    xs, ys = rng.normal(size=(5, 2)), rng.normal(size=(5, 3))

    def step(p, h, x, y):
        h = hl.tanh(h @ p["w"] + x @ p["u"])
        return h, ((h - y) ** 2).sum()

    online = hl.jit(hl.rtrl(step))
    h, sensitivities = np.zeros(3), None
    for t in range(5):
        h, loss, sensitivities, gradients = online(p, h, sensitivities, xs[t], ys[t])

        def unrolled(q, t=t):
            carry = hl.scan(lambda c, xy: step(q, c, *xy), hl.zeros(3, dtype="float64"), (xs[: t + 1], ys[: t + 1]))
            return carry[1][-1]

        value, wanted = hl.value_and_grad(unrolled)(p)
        np.testing.assert_allclose(loss, value, rtol=1e-12)
        for key in p:
            np.testing.assert_allclose(gradients[key], wanted[key], rtol=1e-10, atol=1e-13)
    assert sensitivities.shape == (15, 3)


# ---- misuse --------------------------------------------------------------------------------------------------------------------


def test_misuse(rng):
    x = rng.normal(size=(3, 2))
    integer = r"\[jacobian\] derivatives are taken with respect to f32 or f64 inputs. Received: argument 0 = i32\[2\]"
    with pytest.raises(hl.UserError, match=integer):
        hl.jacobian(lambda v: v * 2.0)(np.array([1, 2], np.int32))
    with pytest.raises(hl.UserError, match=r"\[jacobian\] outputs must be f32 or f64"):
        hl.jacobian(lambda v: v.astype("int32"))(x)
    with pytest.raises(hl.UserError, match="forwards"):
        hl.jacobian(mlp, mode="forwards")(x)
    with pytest.raises(hl.UserError, match=r"argnums must be positions of arguments. Received: 1 for 1 arguments"):
        hl.jacobian(mlp, argnums=1)(x)
    jac = hl.jacobian(mlp)(x)
    with pytest.raises(hl.UserError, match=r"what is multiplied must have the shape \(3, 2\) of x. Received: \(2,\)"):
        jac @ x[0]
    with pytest.raises(hl.UserError, match="format must be 'csr' or 'coo'"):
        jac.sparse("bsr")
    with pytest.raises(hl.UserError, match="a diagonal needs an output of the input's shape"):
        jac.diagonal()
    with pytest.raises(hl.UserError, match=r"\[jacfwd\] the dense array must fit into memory. Received: .* 16 TB"):
        hl.jacfwd(lambda v: hl.broadcast_to(v, (100000, 400)))(np.zeros((100000, 1), np.float32))
    with pytest.raises(hl.UserError, match="the first output of the function must be an f32 or f64 scalar"):
        hl.hessian(mlp)(x)
    with pytest.raises(hl.UserError, match=r"step must return \(state, loss\)"):
        hl.rtrl(lambda p, s: s)(x, x, None)


# ---- beside JAX, where it is installed -----------------------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@pytest.mark.parametrize("seed", range(4))
def test_random_compositions_are_those_of_jax(seed):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(seed)
    w, x, d = rng.normal(size=(4, 4)) * 0.5, rng.normal(size=(3, 4)), rng.normal(size=4)

    def programs(np_, lib, scan, jacobian):
        def body(h, t):
            h = np_.tanh(w @ h + t)
            return h, np_.sum(np_.sin(h))

        row = lambda v: np_.sum(scan(body, v, v)[1]) + np_.sum(scan(body, v, v)[0] ** 2)  # noqa: E731
        whole = lambda z: scan(body, z, d)[0]  # noqa: E731
        return {
            "grad of vmap of scan": lambda: lib.grad(lambda z: np_.sum(lib.vmap(row)(z) ** 2))(x),
            "hessian": lambda: lib.hessian(row)(x[0]),
            "jvp of grad": lambda: lib.jvp(lib.grad(row), (x[1],), (d,))[1],
            "vmap of hessian": lambda: lib.vmap(lib.hessian(row))(x),
            "jacobian": lambda: jacobian(whole)(x[2]),
            "jacrev of jacfwd": lambda: lib.jacrev(lib.jacfwd(whole))(x[0]),
            "hvp of a jacobian": lambda: lib.jvp(lib.grad(lambda z: np_.sum(lib.jacfwd(whole)(z) ** 2)), (x[0],), (d,))[1],
            "vmap of jacrev": lambda: lib.vmap(lib.jacrev(whole))(x),
        }

    ours = programs(hl, hl, hl.scan, hl.jacobian)
    theirs = programs(jnp, jax, jax.lax.scan, jax.jacfwd)
    for name in ours:
        np.testing.assert_allclose(np.asarray(ours[name]()), np.asarray(theirs[name]()), rtol=1e-10, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: hl.hvp(lambda x: x * x, np.ones(3), np.ones(3)), r"^\[hvp\] the first output of the function must be an f32 or f64 scalar. Received: f64\[3\]"),
        (lambda: hl.hvp(lambda x: (x * x).sum(), np.ones(3), np.ones(2)), r"^\[hvp\] a tangent must have the shape of its primal"),
        (lambda: hl.hvp(lambda x: (x["a"] ** 2).sum(), {"a": np.ones(3)}, {"b": np.ones(3)}), r"^\[hvp\] "),
        (lambda: hl.hvp(lambda x: ((x * x).sum(), x.sum()), np.ones(3), np.ones(3)), r"^\[hvp\] the function must return one scalar"),
        (lambda: hl.per_sample_grad(lambda w, x: w * x)(np.ones(2), np.ones((4, 2))), r"^\[per_sample_grad\] the first output of the function must be"),
        (lambda: hl.per_sample_grad(lambda w: (w * w).sum())(np.ones(2)), r"^\[per_sample_grad\] at least one argument must be mapped"),
        (lambda: hl.per_sample_grad(lambda w, x: (w * x).sum(), argnums=3)(np.ones(2), np.ones(2)), r"^\[per_sample_grad\] argnums must be positions"),
    ],
)
def test_errors_name_the_function_that_was_called(call, message):
    with pytest.raises(hl.UserError, match=message):
        call()


@pytest.mark.parametrize("threads", [1, 2])
def test_second_derivatives_of_a_loop_that_may_take_many_steps(threads):
    """Workers share the tape that is cleared before the way back, and all of them know how many steps it has."""

    def root(a):
        return hl.while_loop(lambda x: hl.abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a, max_steps=40000)

    second = hl.jit(hl.grad(hl.grad(root)), threads=threads)
    np.testing.assert_allclose(second(np.float64(2.0)), -0.25 * 2**-1.5, rtol=1e-6)


def test_what_one_condition_leaves_out_reaches_no_gradient():
    """Infinite where it is not taken: in straight code, in a loop and in its batch."""

    def taken(x):
        return hl.where(hl.sum(x) > 1, hl.sum(hl.sqrt(x) / x), hl.sum(x * 3))

    def step(c, x):
        good = x > 0
        return hl.where(good, c * hl.log(x) + hl.sqrt(c), c * 0.5), None

    def looped(c, xs):
        return hl.scan(step, c, xs)[0]

    np.testing.assert_array_equal(hl.grad(taken)(np.zeros(2)), [3, 3])
    np.testing.assert_allclose(hl.grad(taken)(np.full(2, 4.0)), [-0.0625, -0.0625])
    np.testing.assert_array_equal(hl.grad(lambda x: hl.sum(hl.where(hl.sum(x) > 1, hl.sqrt(x), x * 3)))(np.zeros(2)), [3, 3])
    xs = np.array([2.0, 0.0, -1.0, 3.0])
    for c in (np.float64(2.0), np.float64(0.7)):
        e = 1e-6
        difference = (looped(c + e, xs) - looped(c - e, xs)) / (2 * e)
        np.testing.assert_allclose(hl.grad(looped)(c, xs), difference, rtol=1e-7)
        by_xs = hl.grad(looped, argnums=1)(c, xs)
        assert np.isfinite(by_xs).all() and by_xs[1] == by_xs[2] == 0
    many = np.array([2.0, 0.7])
    np.testing.assert_allclose(hl.vmap(hl.grad(looped), in_axes=(0, None))(many, xs), [hl.grad(looped)(c, xs) for c in many])


def test_a_padding_value_beside_large_numbers():
    def weighed(weights):
        inside = np.ones(len(weights) - 2)
        return lambda v: (hl.pad(inside, 1, constant_values=v) * weights).sum()

    for large in 1e17, np.inf, np.nan:
        f = weighed(np.r_[1.0, np.full(10, large), 1.0])
        for g in f, lambda v, f=f: hl.vmap(f)(v[None]).sum():
            assert float(hl.grad(g)(np.float64(1))) == 2
