"""model.bind(params): the bits of the whole model, constants folded once, voices, other weights."""


import copy
import pickle

import hotloop as hl
import numpy as np
import pytest


class LayerNormCell(hl.nn.Cell):
    def __init__(self, inputs, hidden):
        self.inputs, self.hidden = inputs, hidden

    def init(self, seed):
        draw = lambda name, *shape: hl.nn.uniform(hl.nn.fold_in(seed, name), shape, -0.4, 0.4)  # noqa: E731
        return {"w": draw("w", self.hidden, self.inputs), "u": draw("u", self.hidden, self.hidden), "s": hl.ones(self.hidden), "b": hl.zeros(self.hidden)}

    def initial_state(self, batch):
        return {"h": hl.zeros((batch, self.hidden)), "count": (hl.zeros((batch, 1)),)}

    def __call__(self, p, state, x):
        h = hl.tanh(hl.nn.layer_norm(x @ p["w"].T + state["h"] @ p["u"].T, p["s"], p["b"]) - 0.1 * state["count"][0])
        return {"h": h, "count": (state["count"][0] + 1,)}, h


MODELS = {
    "lstm": lambda: hl.nn.Sequential(hl.nn.LSTM(5, 20), hl.nn.Linear(20, 3)),
    "wide": lambda: hl.nn.Sequential(hl.nn.LSTM(5, 64), hl.nn.Linear(64, 40), hl.nn.Linear(40, 3)),
    "gru": lambda: hl.nn.Sequential(hl.nn.GRU(5, 20, 2), hl.nn.Linear(20, 3)),
    "own": lambda: hl.nn.Sequential(hl.nn.Recurrent(LayerNormCell(5, 20)), hl.nn.Linear(20, 3)),
    # The solve tells of the whole batch how it went: what follows waits for it, but not for the state.
    "equation": lambda: hl.nn.Sequential(hl.nn.ODE(hl.nn.Sequential(hl.nn.Linear(5, 5), hl.nn.Tanh()), controller="constant", dt0=0.25), hl.nn.LSTM(5, 8), hl.nn.RNN(8, 3)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_of_the_whole_sequence(name, batch, dtype, rng):
    model = MODELS[name]()
    params = model.init(2, dtype=dtype)
    x = rng.normal(size=(batch, 6, 5)).astype(dtype)
    whole = np.asarray(model(params, x))
    bound = model.bind(params)
    assert np.asarray(bound(x)).tobytes() == whole.tobytes()
    state, voice = None, bound.voice(batch)
    for t in range(6):
        y, state = bound.step(state, x[:, t])
        assert np.asarray(y).tobytes() == np.ascontiguousarray(whole[:, t]).tobytes(), t
        assert np.asarray(voice.step(x[:, t])).tobytes() == np.asarray(y).tobytes()


def test_a_step_packs_and_transposes_nothing():
    model = MODELS["lstm"]()
    bound = model.bind(model.init(0))
    x = np.zeros((1, 5), np.float32)
    program = hl.executable(bound._step, bound.initial_state(), x)
    kernel = program.kernel_text()
    assert "pack " not in kernel
    assert 0 < kernel.index(" dot ") < kernel.index(" map ")  # nothing is laid out before
    assert "concat" not in program.graph_text()
    assert bound.step(None, x)[0].shape == (1, 3)


def test_later_steps_do_not_ask_what_the_first_one_needs(monkeypatch):
    model = hl.nn.LSTM(2, 3)
    bound, x = model.bind(model.init(0)), np.ones((1, 2), "float32")
    _, state = bound.step(None, x)
    asked = []
    monkeypatch.setattr(type(model), "_is_tree", lambda self, x: asked.append(x) or False)
    y, state = bound.step(state, x)
    assert y.shape == (1, 3) and not asked
    bound.step(None, x)
    assert asked


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))], ids=["copy", "deepcopy", "pickle"])
def test_copies_have_the_weights_that_were_bound(again):
    model, mine = hl.nn.Linear(2, 1), {"weight": np.ones((1, 2), np.float32), "bias": np.zeros(1, np.float32)}
    bound = model.bind(hl.tree.map(hl.asarray, mine))  # which view NumPy's memory
    other = bound.with_params(hl.tree.map(hl.asarray, mine))
    hl.tree.map(lambda a: a.fill(100), mine)
    x = np.ones((1, 2), np.float32)
    for each in (bound, other):
        assert float(again(each)(x)[0, 0]) == float(each(x)[0, 0]) == 2
        assert each.params["weight"].tolist() == [[1, 1]]


def test_voices_are_independent_and_return_to_the_initial_state(rng):
    model = MODELS["gru"]()
    bound = model.bind(model.init(1))
    first, second = bound.voice(), bound.voice()
    x = rng.normal(size=(1, 5)).astype(np.float32)
    at_start, kept = np.asarray(first.step(x)), first.state
    later = np.asarray(first.step(x))
    assert not np.array_equal(at_start, later)
    np.testing.assert_array_equal(second.step(x), at_start)
    first.state = kept  # gone back to
    np.testing.assert_array_equal(first.step(x), later)
    first.reset()
    np.testing.assert_array_equal(first.step(x), at_start)


def test_weights_are_owned_and_can_be_replaced_without_compiling(rng):
    model = MODELS["lstm"]()
    old, new = model.init(1), model.init(2)
    mine = hl.tree.map(np.array, old)
    bound = model.bind(mine)
    x = rng.normal(size=(2, 5)).astype(np.float32)
    before, state = bound.step(None, x)
    bound(x[:, None])
    hl.tree.map(lambda a: a.fill(0), mine)
    np.testing.assert_array_equal(bound.step(None, x)[0], before)
    state = bound.initial_state(2)
    hl.logs.compilations.clear()
    other = bound.with_params(new)
    y, _ = other.step(state, x)
    whole = other(x[:, None])
    assert not hl.logs.compilations
    np.testing.assert_array_equal(y, model.bind(new).step(None, x)[0])
    np.testing.assert_array_equal(whole, model(new, x[:, None]))
    np.testing.assert_array_equal(bound.step(None, x)[0], before)  # the first is as it was
    with pytest.raises(hl.UserError, match=r"must be f32\[80,5\] as before. Received: f32\[80,6\]"):
        bound.with_params(hl.nn.Sequential(hl.nn.LSTM(6, 20), hl.nn.Linear(20, 3)).init(0))


def test_many_to_one_models_buffers_and_steps_inside_a_trace(rng):
    model = hl.nn.Sequential(hl.nn.LSTM(5, 8), hl.nn.Last(), hl.nn.Linear(8, 1))
    params = model.init(3)
    x = rng.normal(size=(2, 4, 5)).astype(np.float32)
    bound = model.bind(params)
    state = bound.initial_state(2)
    for t in range(4):
        y, state = bound.step(state, x[:, t])
    np.testing.assert_array_equal(y, model(params, x))

    # A stream as a part of a compiled program.
    @hl.jit
    def all_steps(x):
        return hl.scan(lambda state, x_t: bound.step(state, x_t)[::-1], bound.initial_state(2), x)[1]

    ys = all_steps(np.ascontiguousarray(x.transpose(1, 0, 2)))
    np.testing.assert_allclose(ys[-1], y, rtol=1e-6, atol=1e-7)


def test_refusals():
    for both in (hl.nn.Bidirectional(hl.nn.LSTM(3, 4)), hl.nn.GRU(3, 4, layers=2, bidirectional=True)):
        with pytest.raises(hl.UserError, match="every layer must read the sequence forward"):
            both.bind(both.init(0)).step(None, np.zeros((1, 3), np.float32))
    layer = hl.nn.LSTM(3, 4)
    bound = layer.bind(layer.init(0))
    with pytest.raises(hl.UserError, match="4 features|must be|3"):
        bound.step(None, np.zeros((1, 4), np.float32))
    with pytest.raises(hl.UserError, match=r"^\[step\] a step takes a state and x. Received: one argument. Try: y, state = step\(None, x\)"):
        bound.step(np.zeros((1, 3), np.float32))
