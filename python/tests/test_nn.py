"""Layers, cells, losses and optimisers from Python."""

import itertools
import json
import pathlib
import warnings

import hotloop as hl
import numpy as np
import pytest


class MyLSTM(hl.nn.Cell):
    def __init__(self, inputs, hidden):
        self.inputs, self.hidden = inputs, hidden

    def init(self, seed):
        draw = lambda name, *shape: hl.nn.uniform(hl.nn.fold_in(seed, name), shape, -self.hidden**-0.5, self.hidden**-0.5)  # noqa: E731
        n = 4 * self.hidden
        return {"weight_ih": draw("weight_ih", n, self.inputs), "weight_hh": draw("weight_hh", n, self.hidden),
                "bias_ih": draw("bias_ih", n), "bias_hh": draw("bias_hh", n)}  # fmt: skip

    def initial_state(self, batch):
        return hl.zeros((batch, self.hidden)), hl.zeros((batch, self.hidden))

    def __call__(self, p, state, x):
        h, c = state
        i, f, g, o = hl.split(x @ p["weight_ih"].T + p["bias_ih"] + h @ p["weight_hh"].T + p["bias_hh"], 4, axis=-1)
        c = hl.sigmoid(f) * c + hl.sigmoid(i) * hl.tanh(g)
        h = hl.sigmoid(o) * hl.tanh(c)
        return (h, c), h


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_lstm(p, x):
    h = c = np.zeros((x.shape[0], p["weight_hh_l0"].shape[1]))
    out = []
    for t in range(x.shape[1]):
        gates = x[:, t] @ np.asarray(p["weight_ih_l0"]).T + p["bias_ih_l0"] + h @ np.asarray(p["weight_hh_l0"]).T + p["bias_hh_l0"]
        i, f, g, o = np.split(np.asarray(gates), 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out, 1)


def test_lstm_against_numpy_and_a_cell_of_ones_own(rng):
    x = rng.normal(size=(3, 5, 4))
    layer = hl.nn.LSTM(4, 6)
    p = layer.init(1, dtype="float64")
    wanted = numpy_lstm(p, x)
    np.testing.assert_allclose(layer(p, x), wanted, rtol=1e-10, atol=1e-12)
    own = hl.nn.Recurrent(MyLSTM(4, 6))
    q = {k.removesuffix("_l0"): v for k, v in p.items()}
    assert own.init(1).keys() == q.keys()
    np.testing.assert_allclose(own(q, x), wanted, rtol=1e-10, atol=1e-12)
    gradient = lambda m, params: hl.jit(hl.grad(lambda r: (m(r, x) ** 2).sum()))(params)  # noqa: E731
    ours, theirs = gradient(layer, p), gradient(own, q)
    for k in q:
        np.testing.assert_allclose(theirs[k], ours[k + "_l0"], rtol=1e-9, atol=1e-12)


def test_a_cell_of_ones_own_is_compiled_as_the_engines():
    """The same structure: one kernel, as many dots in the loop."""
    x = np.ones((3, 5, 4), np.float32)
    texts = []
    for layer in (hl.nn.LSTM(4, 6), hl.nn.Recurrent(MyLSTM(4, 6))):
        p = layer.init(0)
        step = hl.jit(hl.grad(lambda r, layer=layer: (layer(r, x) ** 2).sum()))
        texts.append(next(line for line in hl.explain(step, p).splitlines() if line.startswith("kernel")))
    ours, own = ([int(n) for n in text.replace(",", "").split() if n.isdigit()] for text in texts)
    assert ours[:4] == own[:4], texts


def test_state_and_streaming(rng):
    x = rng.normal(size=(2, 6, 3)).astype(np.float32)
    model = hl.nn.Sequential(hl.nn.LSTM(3, 4), hl.nn.GRU(4, 5), hl.nn.Linear(5, 2))
    p = model.init(3)
    whole = np.asarray(model(p, x))
    y1, state = model(p, x[:, :4], state=model.initial_state(2))
    y2, _ = model(p, x[:, 4:], state=state)
    np.testing.assert_allclose(np.concatenate([y1, y2], 1), whole, rtol=1e-5, atol=1e-6)
    bound = model.bind(p)
    np.testing.assert_array_equal(bound(x), whole)
    state = None
    for t in range(6):
        y, state = bound.step(state, x[:, t])
        np.testing.assert_allclose(y, whole[:, t], rtol=1e-5, atol=1e-6)


def test_init_is_reproducible_and_by_name():
    model = hl.nn.Sequential(hl.nn.LSTM(7, 32), hl.nn.Last(), hl.nn.Linear(32, 1))
    p = model.init(0)
    assert list(p) == ["0", "2"] and list(p["0"]) == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert np.array_equal(p["2"]["weight"], model.init(0)["2"]["weight"])
    keras = model.init(0, init="keras")
    assert "bias_hh_l0" not in keras["0"] and np.asarray(keras["0"]["bias_ih_l0"])[32:64].tolist() == [1.0] * 32
    with pytest.raises(hl.UserError, match='init must be "torch" or "keras"'):
        model.init(0, init="jax")
    assert repr(model) == "Sequential(LSTM(inputs=7, hidden=32), Last(), Linear(inputs=32, units=1))"


def test_every_layer_of_the_registry_is_a_class():
    from hotloop import _core
    from hotloop._components import class_name

    for (name, summary, _), _, _ in _core.layer_definitions():
        cls = getattr(hl.nn, class_name(name))
        assert summary[1:20] in cls.__doc__


def test_a_float64_input_is_cast_with_one_notice(rng):
    model = hl.nn.Linear(3, 2)
    p, x = model.init(0), rng.normal(size=(4, 3))
    from hotloop.nn import _casts

    _casts._tell_cast.cache_clear()
    with pytest.warns(UserWarning, match="a model's float64 input is cast to its parameters' float32"):
        assert model(p, x).dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(p, x[:2])


def test_a_layer_of_ones_own(rng):
    class Scale(hl.nn.Module):
        def init(self, seed):
            return {"s": hl.ones(3)}

        def apply(self, params, x, key=None):
            return x * params["s"]

    model = hl.nn.Sequential(Scale(), hl.nn.Linear(3, 2))
    p = model.init(0)
    x = rng.normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_allclose(model(p, x), x @ np.asarray(p["1"]["weight"]).T + p["1"]["bias"], rtol=1e-5, atol=1e-6)


def test_errors_of_lengths_and_parameters(rng):
    model, x = hl.nn.LSTM(3, 4), rng.normal(size=(3, 5, 3)).astype(np.float32)
    p = model.init(0)
    for wrong, text in (([5, 6, 1], "6 for row 1"), (np.array([-1, 2, 9]), "-1 for row 0")):
        with pytest.raises(hl.UserError, match=rf"\[LSTM\] lengths must lie between 0 and the input's steps, 5. Received: {text}"):
            model(p, x, lengths=wrong)
    assert not np.asarray(model(p, x, lengths=[0, 5, 1]))[0].any()

    class Listed(hl.nn.Cell):
        def init(self, seed):
            return {"inner": {"w": [hl.ones(3), hl.ones(3)]}}

        def initial_state(self, batch):
            return hl.zeros((batch, 3))

        def __call__(self, params, state, x):
            return x * params["inner"]["w"][0], x

    with pytest.raises(hl.UserError, match=r"parameters must be arrays in nested dicts. Received: inner.w = a list. Try: \{\"0\""):
        hl.nn.Recurrent(Listed()).init(0)


def test_errors():
    with pytest.raises(TypeError, match=r"LSTM\(inputs, hidden, .*missing a required argument: 'hidden'"):
        hl.nn.LSTM(3)
    with pytest.raises(hl.UserError, match="hidden must be positive. Received: -3"):
        hl.nn.LSTM(3, -3)
    with pytest.raises(hl.UserError, match="every part must be a layer"):
        hl.nn.Sequential(MyLSTM(1, 2))


def test_losses(rng):
    p, t = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    np.testing.assert_allclose(hl.losses.MSE()(p, t), ((p - t) ** 2).mean())
    w = np.array([1.0, 0, 2, 0])
    np.testing.assert_allclose(hl.losses.MAE()(p, t, sample_weights=w), (abs(p - t).mean(1) * w).sum() / w.sum())
    with pytest.raises(hl.UserError, match=r"\[mse\] .*Received: f64\[4,2\] and f64\[4\]"):
        hl.losses.MSE()(p, t[:, 0])


def test_probabilities_that_are_certain_train(rng):
    x = rng.normal(size=(64, 2)).astype("f") * 40
    model = hl.nn.Sequential(hl.nn.Linear(2, 1), hl.nn.Sigmoid())
    run = hl.fit(model, (x, (x[:, :1] > 0).astype("f")), loss=hl.losses.BinaryCrossEntropy(logits=False), epochs=2, seed=0)
    assert run.status == "finished" and np.isfinite(run.history[-1].train_loss)


class Summed(hl.nn.Module):
    """Of one sequence or the first of several; it asks nothing of lengths."""

    def __init__(self):
        self.lstm, self.head = hl.nn.LSTM(2, 3), hl.nn.Linear(3, 1)

    def apply(self, params, x, key=None):
        x = x["series"] if isinstance(x, dict) else x
        return self.head(params["head"], self.lstm(params["lstm"], x)).sum(axis=1) + x.sum(axis=(1, 2))[:, None] * params["head"]["bias"]


def test_what_lies_beyond_lengths_reaches_no_gradient(rng):
    lengths = np.array([4, 2], "int32")
    zeros = rng.normal(size=(2, 4, 2)).astype("f")
    zeros[1, 2:] = 0
    nans = zeros.copy()
    nans[1, 2:] = np.nan
    last = hl.nn.Sequential(hl.nn.LSTM(2, 3), hl.nn.Last(), hl.nn.Linear(3, 1))
    one, several = lambda x: x, lambda x: {"facts": x[:, 0], "series": x}  # noqa: E731
    for model, given in ((last, one), (Summed(), one), (hl.nn.Sequential(Summed(), hl.nn.Tanh()), one), (Summed(), several)):
        grad = hl.jit(hl.value_and_grad(lambda p, x, model=model, given=given: (model(p, given(x), lengths=lengths) ** 2).sum()))
        params = model.init(0)
        (found, found_slopes), (wanted, slopes) = grad(params, nans), grad(params, zeros)
        assert float(found) == float(wanted)
        for a, b in zip(hl.tree.leaves(found_slopes), hl.tree.leaves(slopes)):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(model(params, given(nans), lengths=lengths), model(params, given(zeros), lengths=lengths))


def numpy_adam(p, grads, lr=0.1, b1=0.9, b2=0.999, eps=1e-8):
    m = v = np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        p = p - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return p


def test_adam_by_hand_alone_jitted_and_in_scan(rng):
    start, grads = rng.normal(size=3), rng.normal(size=(5, 3))
    opt = hl.optim.Adam(0.1)
    wanted = numpy_adam(start, grads)
    params = (start, [{"b": start * 2}])  # any tree
    state = opt.init(params)
    for g in grads:
        params, state = opt.update((g, [{"b": g}]), state, params)
    np.testing.assert_allclose(params[0], wanted, rtol=1e-10)
    assert isinstance(params, tuple) and list(params[1][0]) == ["b"]

    @hl.jit
    def many(p, s, gs):
        return hl.scan(lambda c, g: (opt.update(g, c[1], c[0]), None), (p, s), gs)[0]

    p, s = many(start, opt.init(start), grads)
    np.testing.assert_allclose(p, wanted, rtol=1e-10)


def test_an_optimizer_starts_in_a_trace(rng):
    """Ensembles, and gradients through training from its start."""
    opt = hl.optim.EMA(hl.optim.ClipByNorm(hl.optim.Adam(hl.optim.Schedule(0.1, hl.optim.Plateau())), 1.0), 0.5)
    many = {"w": rng.normal(size=(4, 3)), "b": [rng.normal(size=4).astype(np.float32)]}

    def trained(p):
        state = opt.init(p)
        for _ in range(3):
            p, state = opt.update(hl.grad(lambda p: (p["w"] ** 2).sum() + p["b"][0] ** 2)(p), state, p)
        return p, state

    together = hl.jit(hl.vmap(trained))(many)
    states = hl.vmap(opt.init)(many)
    for i in range(4):
        one = {"w": many["w"][i], "b": [many["b"][0][i]]}
        for ours, wanted in zip(hl.tree.leaves(states), hl.tree.leaves(opt.init(one)), strict=True):
            assert ours.dtype == wanted.dtype and np.array_equal(ours[i], wanted)
        p, state = one, opt.init(one)
        for _ in range(3):
            p, state = opt.update(hl.grad(lambda p: (p["w"] ** 2).sum() + p["b"][0] ** 2)(p), state, p)
        for ours, wanted in zip(hl.tree.leaves(together), hl.tree.leaves((p, state)), strict=True):
            np.testing.assert_allclose(ours[i], wanted, rtol=1e-6, atol=1e-7)


def test_what_an_optimizer_keeps_may_be_asked_for_in_a_trace(rng):
    params = {"w": rng.normal(size=3).astype("f4")}
    grads = {"w": np.ones(3, np.float32)}
    for opt in (hl.optim.SGD(0.1), hl.optim.EMA(hl.optim.SGD(0.1), 0.5), hl.optim.ClipByNorm(hl.optim.EMA(hl.optim.SGD(0.1), 0.5), 100.0)):

        @hl.jit
        def step(params, state, opt=opt):
            params, state = opt.update(grads, state, params)
            return params, state, opt.evaluated(params, state)

        after, state, kept = step(params, opt.init(params))
        np.testing.assert_array_equal(kept["w"], opt.evaluated(after, state)["w"])
        assert (np.asarray(kept["w"]) == np.asarray(after["w"])).all() == (type(opt) is hl.optim.SGD)


def test_a_schedule_at_given_steps():
    schedule = hl.optim.Schedule(0.1, hl.optim.Warmup(4), hl.optim.Cosine(10))
    steps = np.arange(12)
    expected = 0.1 * np.minimum(steps / 4, 1) * (1 + np.cos(np.pi * np.minimum(steps / 10, 1))) / 2
    np.testing.assert_allclose(schedule(steps), expected, rtol=1e-12, atol=1e-18)
    np.testing.assert_allclose(schedule(steps.reshape(3, 4)), expected.reshape(3, 4), rtol=1e-12, atol=1e-18)
    assert float(schedule(2)) == float(hl.jit(lambda step: schedule(step))(2)) == pytest.approx(expected[2], rel=1e-12)
    assert hl.optim.Schedule(0.1)(steps).tolist() == [0.1] * 12
    assert float(hl.optim.Schedule(0.1, hl.optim.Plateau())(50)) == 0.1
    with pytest.raises(hl.UserError, match="a step must be a whole number"):
        schedule(2.5)


def test_schedules_and_wrappers():
    opt = hl.optim.ClipByValue(hl.optim.SGD(hl.optim.Schedule(1.0, hl.optim.Warmup(4))), 0.5)
    assert repr(opt).startswith("ClipByValue(inner=SGD(learning_rate=Schedule(1.0, Warmup(")
    p, s = np.zeros(2), None
    s = opt.init(p)
    steps = []
    for _ in range(5):
        q, s = opt.update(np.array([10.0, -0.25]), s, p)
        steps.append(-np.asarray(q)[0])
    assert steps[-1] == 0.5 and steps[0] < 0.5


def test_a_hand_written_training_loop_in_one_call(rng):
    model = hl.nn.Sequential(hl.nn.GRU(2, 8), hl.nn.Last(), hl.nn.Linear(8, 1))
    x = rng.normal(size=(32, 6, 2)).astype(np.float32)
    y = x[:, :, :1].sum(1)
    opt, loss = hl.optim.Adam(1e-2), hl.losses.MSE()
    params = model.init(0)

    @hl.jit
    def train(params, state, x, y):
        def step(carry, _):
            value, grads = hl.value_and_grad(lambda p: loss(model(p, x), y))(carry[0])
            return opt.update(grads, carry[1], carry[0]), value

        (params, state), losses = hl.scan(step, (params, state), length=200)
        return params, state, losses

    params, state, losses = train(params, opt.init(params), x, y)
    assert losses.shape == (200,) and float(losses[-1]) < 0.05 * float(losses[0])


def test_numbers_of_pytorch():
    """Initial parameters from PyTorch's generator, through layers of the engine and a cell written here."""
    path = pathlib.Path(__file__).parents[2] / "tests/parity/data/torch_numbers.json"
    case = next(m for m in json.loads(path.read_text())["models"] if m["name"] == "lstm_and_linear")
    model = hl.nn.Sequential(hl.nn.LSTM(3, 5), hl.nn.Last(), hl.nn.Linear(5, 2))
    for draw in case["draws"]:
        params = model.init(draw["seed"], generator="torch")
        for name, wanted in draw["f32"].items():
            layer, leaf = name.split(".")
            np.testing.assert_array_equal(np.asarray(params[layer][leaf]).ravel(), np.float32(wanted["data"]))

    class Twice(hl.nn.Cell):
        def init(self, seed):
            return {name: hl.nn.uniform(hl.nn.fold_in(seed, name), (2, 2), -0.5, 0.5) for name in ("a", "b")}

        def initial_state(self, batch):
            return hl.zeros((batch, 2))

        def __call__(self, params, state, x):
            return state, state + x @ params["a"] + x @ params["b"]

    # One stream: the cell's eight numbers come first, and the linear layer's follow them.
    stacked = hl.nn.Sequential(hl.nn.Recurrent(Twice()), hl.nn.Linear(2, 1)).init(0, generator="torch")
    first = hl.nn.Linear(4, 2).init(0, generator="torch")  # 8 uniform numbers in +-0.5, then 2
    cell = np.concatenate([np.asarray(stacked["0"][name]).ravel() for name in ("a", "b")])
    np.testing.assert_array_equal(cell, np.asarray(first["weight"]).ravel())
    np.testing.assert_allclose(np.asarray(stacked["1"]["weight"]).ravel()[:2] * np.sqrt(2), np.asarray(first["bias"]) * 2, rtol=1e-6)
    with pytest.raises(hl.UserError, match="philox or torch"):
        model.init(0, generator="numpy")
    with pytest.raises(hl.UserError, match="Keras"):
        model.init(0, init="keras", generator="torch")


def test_a_seed_is_made_of_a_name_or_a_number():
    draw = lambda name: hl.nn.uniform(hl.nn.fold_in(3, name), (8,))  # noqa: E731
    np.testing.assert_array_equal(draw(1), draw("1"))
    assert not np.array_equal(draw(1), draw(2))
    with pytest.raises(hl.UserError, match=r"\[fold_in\] a name must be a string or an integer. Received: 1.5."):
        draw(1.5)


# The field of one row is linear while its mask stays: each end is that of one of eight masks.
@pytest.mark.parametrize("adjoint", ["discrete", "backsolve"])
def test_dropout_inside_an_ode_is_one_mask_for_all_of_a_solve(adjoint):
    layer = hl.nn.ODE(hl.nn.Sequential(hl.nn.Linear(3, 3), hl.nn.Dropout(0.5)), rtol=1e-8, atol=1e-10, adjoint=adjoint)
    params, key = layer.init(0, dtype="float64"), hl.random.key(1)
    x = np.ones((16, 3))
    ends = np.asarray(layer(params, x, key=key))
    weight, bias = (np.asarray(params["0"][name]) for name in ("weight", "bias"))
    possible = []
    for mask in itertools.product([0.0, 2.0], repeat=3):

        def masked(t, y, scale):
            return scale * (weight @ y + bias)

        possible.append(hl.ode.solve(masked, hl.ode.Tsit5(), 0, 1, np.ones(3), args=np.array(mask), controller=hl.ode.PID(1e-8, 1e-10)).y1)
    distance = np.abs(ends[:, None] - np.array(possible)).max(axis=2)
    assert (distance.min(axis=1) < 1e-6).all() and len(set(distance.argmin(axis=1))) > 3
    assert np.array_equal(ends[:5], layer(params, x[:5], key=key)) and not np.array_equal(ends, layer(params, x, key=hl.random.key(2)))
    slope = hl.grad(lambda p: (layer(p, x, key=key) ** 2).sum())(params)["0"]["bias"]

    def moved(h):
        return (np.asarray(layer({"0": {"weight": weight, "bias": bias + h * np.eye(3)[0]}}, x, key=key)) ** 2).sum()

    assert np.isclose(slope[0], (moved(1e-4) - moved(-1e-4)) / 2e-4, rtol=1e-4)
    run = hl.fit(hl.nn.Sequential(layer, hl.nn.Linear(3, 1)), (x.astype(np.float32), x[:, :1].astype(np.float32)), epochs=1, seed=0)
    assert np.isfinite(np.asarray(run.params["1"]["bias"])).all()
