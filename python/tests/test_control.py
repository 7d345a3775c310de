"""Loops and branches that other libraries have too: fori_loop, switch, associative_scan."""

import hotloop as hl
import numpy as np
import pytest
from hotloop._jit import executable


def test_fori_loop_of_known_bounds():
    def powers(x):
        return hl.fori_loop(2, 5, lambda i, c: {"p": c["p"] * x, "sum": c["sum"] + i}, {"p": x, "sum": np.int32(0)})

    found = hl.jit(powers)(2.0)
    assert (float(found["p"]), int(found["sum"])) == (16, 9)
    assert float(hl.grad(lambda x: powers(x)["p"])(2.0)) == 32
    assert float(hl.fori_loop(np.int64(3), 3, lambda i, c: c + 1, 7.0)) == 7 and float(hl.fori_loop(3, 0, lambda i, c: c + 1, 7.0)) == 7
    np.testing.assert_array_equal(hl.vmap(lambda x: hl.fori_loop(0, 3, lambda i, c: c + i * x, 0.0 * x))(np.float32([1, 2])), [3, 6])
    assert float(hl.fori_loop(0, 10, lambda i, c: c + 1, 0.0, max_steps=4)) == 4


def test_fori_loop_of_bounds_that_are_computed():
    double = lambda n, x, **more: hl.fori_loop(0, n, lambda i, c: c * 2 * x, x, **more)  # noqa: E731
    assert float(hl.jit(double)(np.int32(3), 1.0)) == 8
    np.testing.assert_array_equal(hl.vmap(double, in_axes=(0, None))(np.int32([0, 1, 3]), 1.0), [1, 2, 8])
    assert float(hl.jit(hl.grad(lambda x, n: double(n, x, max_steps=5)))(1.0, np.int32(3))) == 8 * 4
    assert float(hl.jit(lambda n, x: hl.jvp(lambda v: double(n, v), (x,), (1.0,))[1])(np.int32(3), 1.0)) == 8 * 4
    with pytest.raises(hl.UserError, match=r"\[fori_loop\] the bounds must be integer scalars. Received: f32\[\]"):
        hl.fori_loop(0, 2.5, lambda i, c: c, 0.0)
    with pytest.raises(hl.UserError, match=r"\[fori_loop\] the body must be a function. Received: a float"):
        hl.fori_loop(0, 2, 0.0, lambda i, c: c)


def test_switch():
    half, branches = np.float64(0.5), [lambda x: {"y": x}, lambda x: {"y": x * x}, lambda x: {"y": hl.sin(x)}, lambda x: {"y": 0 * x}, lambda x: {"y": hl.exp(x)}]
    chosen = hl.jit(lambda k, x: hl.switch(k, branches, x)["y"])
    slope = hl.jit(hl.grad(lambda x, k: hl.switch(k, branches, x)["y"]))
    wanted = [0.5, 0.25, np.sin(0.5), 0, np.exp(0.5)]
    slopes = [1, 1, np.cos(0.5), 0, np.exp(0.5)]
    for k in range(-2, 8):
        at = min(max(k, 0), 4)
        np.testing.assert_allclose(chosen(np.int32(k), half), wanted[at], rtol=1e-15)
        np.testing.assert_allclose(slope(half, np.int32(k)), slopes[at], rtol=1e-15)
        np.testing.assert_allclose(hl.switch(k, branches, half)["y"], wanted[at], rtol=1e-15)
    np.testing.assert_allclose(hl.vmap(chosen, in_axes=(0, None))(np.int32([4, 0, 9, -1]), half), [wanted[4], wanted[0], wanted[4], wanted[0]], rtol=1e-15)
    assert float(hl.jit(lambda k: hl.switch(k, [lambda: hl.asarray(1.0)]))(np.int32(5))) == 1


def test_switch_says_what_it_wants():
    for branches, received in (([], "an empty list"), (np.sin, "an ufunc"), ([np.sin, 3], "an int")):
        with pytest.raises(hl.UserError, match=rf"\[switch\] .* Received: {received}"):
            hl.switch(0, branches, 1.0)
    with pytest.raises(hl.UserError, match=r"\[switch\] the index must be an integer scalar. Received: f32\[\]"):
        hl.jit(lambda k: hl.switch(k, [hl.sin, hl.cos], 1.0))(np.float32(1))
    with pytest.raises(hl.UserError, match=r"both branches must give the same types"):
        hl.jit(lambda k: hl.switch(k, [lambda x: x, lambda x: x[:1]], np.ones(2)))(np.int32(1))


def linear(first, second):
    """Of h[t] = a[t] h[t - 1] + b[t]."""
    return {"a": second["a"] * first["a"], "b": second["a"] * first["b"] + second["b"]}


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 13, 64])
def test_associative_scan_is_the_loop(length):
    rng = np.random.default_rng(length)
    xs = {"a": rng.uniform(0.5, 1, (2, length, 3)), "b": rng.normal(size=(2, length, 3))}
    for reverse in (False, True):
        h, wanted = np.zeros((2, 3)), np.zeros((2, length, 3))
        for t in reversed(range(length)) if reverse else range(length):
            h = wanted[:, t] = xs["a"][:, t] * h + xs["b"][:, t]
        for axis in (1, -2):
            found = hl.jit(lambda xs: hl.associative_scan(linear, xs, axis=axis, reverse=reverse))(xs)  # noqa: B023
            np.testing.assert_allclose(found["b"], wanted, rtol=1e-12, atol=1e-14)
        mapped = hl.vmap(lambda xs: hl.associative_scan(linear, xs, reverse=reverse))(xs)  # noqa: B023
        np.testing.assert_allclose(mapped["b"], wanted, rtol=1e-12, atol=1e-14)


def test_associative_scan_of_functions_that_do_not_commute():
    rng = np.random.default_rng(0)
    turns = rng.normal(size=(6, 2, 2))
    found = hl.associative_scan(lambda a, b: b @ a, turns)
    wanted = np.eye(2)
    for k in range(6):
        wanted = turns[k] @ wanted
        np.testing.assert_allclose(found[k], wanted, rtol=1e-12)
    weights = rng.normal(size=(6, 2, 2))

    def by_loop(x):
        return (hl.scan(lambda c, m: (m @ c, m @ c), np.eye(2), x)[1] * weights).sum()

    slopes = hl.grad(lambda x: (hl.associative_scan(lambda a, b: b @ a, x) * weights).sum())(turns)
    np.testing.assert_allclose(slopes, hl.grad(by_loop)(turns), rtol=1e-12)


def test_associative_scan_says_what_it_wants():
    x = np.ones((4, 2))
    with pytest.raises(hl.UserError, match=r"\[associative_scan\] fn must give what it takes, in shapes and dtypes. Received: f64\[2\] of f64\[2,2\]"):
        hl.associative_scan(lambda a, b: (a + b).sum(1), x)
    with pytest.raises(hl.UserError, match=r"\[associative_scan\] all arrays must have one extent along axis 0. Received: f64\[4,2\], f64\[3\]"):
        hl.associative_scan(lambda a, b: a, (x, np.ones(3)))
    with pytest.raises(hl.UserError, match=r"\[associative_scan\] the axis must be one of"):
        hl.associative_scan(lambda a, b: a, x, axis=2)


def _recurrences():
    """Recurrences as people write them: loops of Python over steps. Of weights, x [3, steps, 4], y [3, steps, 1]."""

    def stacked(w, x, y):
        h, outputs = hl.zeros((3, 5)), []
        for t in range(x.shape[1]):
            h = hl.tanh(x[:, t] @ w["in"] + h @ w["own"])
            outputs.append(h @ w["out"])
        return hl.mean((hl.stack(outputs, axis=1) - y) ** 2)

    def loss_of_each_step(w, x, y):
        h, total = hl.zeros((3, 5)), 0.0
        for t in range(x.shape[1]):
            h = hl.tanh(x[:, t] @ w["in"] + h @ w["own"])
            total = total + hl.mean((h @ w["out"] - y[:, t]) ** 2)
        return total / x.shape[1]

    def both_directions(w, x, y):
        steps = x.shape[1]
        h, forwards, backwards = hl.zeros((3, 5)), [], [None] * steps
        for t in range(steps):
            h = hl.tanh(x[:, t] @ w["in"] + h @ w["own"])
            forwards.append(h)
        h = hl.zeros((3, 5))
        for t in reversed(range(steps)):
            h = hl.tanh(x[:, t] @ w["in"] + h @ w["own"])
            backwards[t] = h
        return hl.mean(((hl.stack(forwards, 1) + hl.stack(backwards, 1)) @ w["out"] - y) ** 2)

    def over_elements(w, x, y):
        h = None
        for row in hl.moveaxis(x, 1, 0):
            z = row @ w["in"]
            h = hl.tanh(z if h is None else z + h @ w["own"])
        return hl.mean((h @ w["out"] - y[:, -1]) ** 2)

    def over_parts(w, x, y):
        h = hl.zeros((3, 5))
        for part in hl.split(x, x.shape[1], axis=1):
            h = hl.tanh(hl.squeeze(part, 1) @ w["in"] + h @ w["own"])
        return hl.mean((h @ w["out"] - y[:, -1]) ** 2)

    def own_outputs_again(w, x, y):
        h, output, outputs = hl.zeros((3, 5)), hl.zeros((3, 1)), []
        for t in range(x.shape[1]):
            h = hl.tanh(hl.concat([x[:, t, :3], output], axis=1) @ w["in"] + h @ w["own"])
            output = h @ w["out"]
            outputs.append(output[:, None])
        return hl.mean((hl.concat(outputs, axis=1) - y) ** 2)

    return [stacked, loss_of_each_step, both_directions, over_elements, over_parts, own_outputs_again]


@pytest.mark.parametrize("loss", _recurrences(), ids=lambda f: f.__name__)
def test_a_loop_of_python_is_a_loop_of_the_kernel(loss):
    rng = np.random.default_rng(0)
    w = {name: rng.normal(size=shape) / 3 for name, shape in (("in", (4, 5)), ("own", (5, 5)), ("out", (5, 1)))}
    derived = hl.jit(hl.value_and_grad(loss))
    kernels = []
    for steps in (16, 48):
        x, y = rng.normal(size=(3, steps, 4)), rng.normal(size=(3, steps, 1))
        value, slopes = derived(w, x, y)
        kernels.append(executable(derived, w, x, y).kernel_text())
        assert value == pytest.approx(float(hl.jit(loss, disabled_passes=["reroll"])(w, x, y)), rel=1e-12)
        along = {name: rng.normal(size=a.shape) for name, a in w.items()}
        _, slope = hl.jvp(lambda w: loss(w, x, y), (w,), (along,))  # noqa: B023
        assert sum(float((slopes[name] * along[name]).sum()) for name in w) == pytest.approx(float(slope), rel=1e-9)
    # Three times as many steps are the same instructions, but for what a size decides.
    assert kernels[1].count("\n") < 1.1 * kernels[0].count("\n")


def test_a_number_that_begins_a_carry_follows_what_it_meets():
    running = lambda c, x: (c + x, c)  # noqa: E731
    for start, xs, dtype in ((0.0, np.arange(5.0), "float64"), (0, np.arange(5), "int64"), (0, np.arange(5.0), "float64"), (0, np.arange(5, dtype=np.float32), "float32"), (0, np.arange(5, dtype=np.int32), "int32")):
        for got in (hl.scan(running, start, xs), hl.jit(lambda xs, start=start: hl.scan(running, start, xs))(xs)):
            assert got[0].dtype == got[1].dtype == dtype and float(got[0]) == 10 and got[1].tolist() == [0, 0, 1, 3, 6]
    # The second follows the first, which follows xs.
    both = hl.scan(lambda c, x: ((c[0] + x, c[1] + c[0]), None), (0, 0.0), np.arange(5.0))[0]
    assert [(float(v), v.dtype) for v in both] == [(10, "float64"), (10, "float64")]
    assert hl.while_loop(lambda c: c < 5, lambda c: c + np.float64(1), 0.0).dtype == "float64"
    assert hl.fori_loop(0, 5, lambda i, c: c * np.float64(2), 1).tolist() == 32.0
    np.testing.assert_array_equal(hl.grad(lambda xs: hl.scan(running, 0.0, xs)[0])(np.arange(5.0)), np.ones(5))
    with pytest.raises(hl.UserError, match=r"of the types of the initial one, f32\[\]. Received: f64\[\]"):
        hl.scan(running, hl.zeros(()), np.arange(5.0))
    with pytest.raises(hl.UserError, match="the body must give a carry of the types of the initial one"):
        hl.scan(running, 0.0, np.ones((5, 2)))
