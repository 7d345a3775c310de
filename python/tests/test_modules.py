"""Modules of one's own: their layers' parameters, and the states, lengths, buffers and keys that a call hands on."""

import gc
import weakref

import hotloop as hl
import numpy as np
import pytest

LSTM = {"layers": 2}


class Net(hl.nn.Module):
    def __init__(self):
        self.lstm, self.drop, self.norm = hl.nn.LSTM(3, 8, **LSTM), hl.nn.Dropout(0.5), hl.nn.BatchNorm(8)
        self.heads = [hl.nn.Linear(8, 5), hl.nn.Linear(5, 1)]

    def apply(self, params, x, key=None):
        h = self.norm(params["norm"], self.drop({}, self.lstm(params["lstm"], x)))
        first, second = self.heads
        return second(params["heads"]["1"], hl.tanh(first(params["heads"]["0"], h)))


NET = Net()
PARAMS, BUFFERS = NET.init(0), NET.init_buffers()
TWIN = hl.nn.Sequential(hl.nn.LSTM(3, 8, **LSTM), hl.nn.Dropout(0.5), hl.nn.BatchNorm(8), hl.nn.Linear(8, 5), hl.nn.Tanh(), hl.nn.Linear(5, 1))
TWIN_PARAMS = {"0": PARAMS["lstm"], "2": PARAMS["norm"], "3": PARAMS["heads"]["0"], "5": PARAMS["heads"]["1"]}
TWIN_BUFFERS = {"2": BUFFERS["norm"]}
X = np.random.default_rng(0).normal(size=(4, 10, 3)).astype(np.float32)


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_layers_that_are_attributes_have_parameters():
    assert list(PARAMS) == ["lstm", "norm", "heads"] and list(PARAMS["heads"]) == ["0", "1"] and list(BUFFERS) == ["norm"]
    same(PARAMS["heads"]["1"]["weight"], hl.nn.Linear(5, 1).init(hl.nn.fold_in(hl.nn.fold_in(0, "heads"), "1"))["weight"])
    assert NET.init(0, dtype="float64")["lstm"]["weight_hh_l1"].dtype == np.float64

    class Scaled(Net):
        def init(self, seed):
            return {**super().init(seed), "scale": hl.ones(1)}

        def apply(self, params, x, key=None):
            return params["scale"] * super().apply(params, x, key)

    scaled = Scaled().init(0)
    same(scaled["lstm"]["weight_ih_l0"], PARAMS["lstm"]["weight_ih_l0"])
    same(Scaled()(scaled, X, buffers=BUFFERS)[0], NET(PARAMS, X, buffers=BUFFERS)[0])

    class Tied(hl.nn.Module):
        def __init__(self):
            self.a = hl.nn.Linear(3, 3)
            self.b = self.a

        def apply(self, params, x):
            return self.b(params["a"], self.a(params["a"], x))

    tied = Tied().init(0)
    assert list(tied) == ["a"] and Tied()(tied, X).shape == X.shape


@pytest.mark.parametrize("lengths", [None, [3, 10, 0, 7]])
def test_lengths_and_buffers_reach_the_layers(lengths):
    y, buffers = NET(PARAMS, X, buffers=BUFFERS, lengths=lengths)
    same(y, TWIN(TWIN_PARAMS, X, buffers=TWIN_BUFFERS, lengths=lengths)[0])
    same(buffers["norm"]["running_mean"], BUFFERS["norm"]["running_mean"])


def test_training_hands_on_a_key_each_and_takes_back_buffers():
    y, buffers = NET(PARAMS, X, buffers=BUFFERS, key=hl.random.key(3))
    assert not np.allclose(y, NET(PARAMS, X, buffers=BUFFERS)[0]) and np.asarray(buffers["norm"]["running_mean"]).any()

    class Twice(hl.nn.Module):
        def __init__(self):
            self.drop = hl.nn.Dropout(0.5)

        def apply(self, params, x):
            return self.drop({}, x) - self.drop({}, x)

    assert np.asarray(Twice()({}, X, key=hl.random.key(0))).any() and not np.asarray(Twice()({}, X)).any()


def test_a_stream_keeps_the_layers_states():
    whole = np.asarray(NET(PARAMS, X, buffers=BUFFERS)[0])
    for model, params, buffers in ((NET, PARAMS, BUFFERS), (hl.nn.Sequential(NET), {"0": PARAMS}, {"0": BUFFERS})):
        bound, state, steps = model.bind(params, buffers), None, []
        for t in range(X.shape[1]):
            y, state = bound.step(state, X[:, t])
            steps.append(np.asarray(y))
        same(np.stack(steps, 1), whole)
    middle, state = NET(PARAMS, X[:, :4], state=NET.initial_state(4), buffers=BUFFERS)[:2]
    rest = NET(PARAMS, X[:, 4:], state=state, buffers=BUFFERS)[0]
    np.testing.assert_allclose(np.concatenate([middle, rest], 1), whole, rtol=1e-6, atol=1e-6)
    assert hl.export_c(NET, PARAMS, 3, buffers=BUFFERS).state_bytes >= 4 * 8 * 4


def test_run_backwards():
    class Inner(hl.nn.Module):
        def __init__(self):
            self.lstm = hl.nn.LSTM(3, 8)

        def apply(self, params, x):
            return self.lstm(params["lstm"], x)

    both, plain = hl.nn.Bidirectional(Inner()), hl.nn.Bidirectional(hl.nn.LSTM(3, 8))
    p = both.init(0)
    same(both(p, X, lengths=[3, 10, 1, 7]), plain({**p["lstm"], **{f"{k}_reverse": v for k, v in p["lstm_reverse"].items()}}, X, lengths=[3, 10, 1, 7]))


def test_fit_with_lengths():
    lengths = np.array([3, 10, 1, 7])
    data = {"x": X, "y": np.ones((4, 1), np.float32), "lengths": lengths}
    model, twin = hl.nn.Sequential(NET, hl.nn.Last()), hl.nn.Sequential(*TWIN.layers, hl.nn.Last())
    own = hl.fit(model, data, validation=data, params={"0": PARAMS}, buffers=model.init_buffers(), epochs=2, batch_size=4)
    assert not np.array_equal(own.predict(X, lengths=lengths), own.predict(X)) and own.history[1].train_loss != own.history[0].train_loss
    plain = hl.fit(twin, data, validation=data, params=TWIN_PARAMS, buffers=twin.init_buffers(), epochs=2, batch_size=4)
    assert plain.history[0].train_loss > 0 and list(own.buffers["0"]) == ["norm"]


class Made(hl.nn.Module):
    def init(self, seed):
        return hl.nn.LSTM(3, 8).init(seed)

    def apply(self, params, x, key=None):
        return hl.nn.LSTM(3, 8)(params, x)


class Again(hl.nn.Module):
    def __init__(self):
        self.lstm = hl.nn.LSTM(3, 3)

    def apply(self, params, x):
        return self.lstm(params["lstm"], self.lstm(params["lstm"], x))


class Halved(Again):
    def apply(self, params, x):
        return self.lstm(params["lstm"], x[:, ::2])


class Told(Halved):
    def apply(self, params, x, lengths=None):
        return self.lstm(params["lstm"], x[:, ::2], lengths=None if lengths is None else (lengths + 1) // 2)


@pytest.mark.parametrize("run, message", [
    (lambda: Made().bind(Made().init(0)).step(None, X[:, 0]), r"\[Made\] a recurrent layer that apply\(\) calls must be an attribute.*Try: self.layer = hl.nn.LSTM"),
    (lambda: Made()(Made().init(0), X, lengths=[1, 2, 3, 4]), r"\[Made\] a recurrent layer that apply\(\) calls must be an attribute"),
    (lambda: (m := hl.nn.Sequential(Made(), hl.nn.Tanh())).bind(m.init(0)).step(None, X[:, 0]), r"\[Made\] a recurrent layer"),
    (lambda: Again().bind(Again().init(0)).step(None, X[:, 0]), r"\[Again\] .*Received: two calls of lstm"),
    (lambda: Halved()(Halved().init(0), X, lengths=[1, 2, 3, 4]), r"\[Halved\] lengths count the steps of the module's own input, 10. Received: lstm with 5 steps"),
])  # fmt: skip
def test_what_would_be_silently_wrong_is_refused(run, message):
    with pytest.raises(hl.UserError, match=message):
        run()


def test_apply_may_ask_for_lengths():
    p = Told().init(0)
    same(Told()(p, X, lengths=[1, 10, 4, 5]), hl.nn.LSTM(3, 3)(p["lstm"], X[:, ::2], lengths=[1, 5, 2, 3]))
    assert Halved()(p, X).shape == (4, 5, 3) and Made()(Made().init(0), X).shape == (4, 10, 8)


def test_parameters_by_name(tmp_path):
    named = {"lstm." + k: np.asarray(v) for k, v in PARAMS["lstm"].items()}
    named |= {"norm." + k: np.asarray(v) for k, v in PARAMS["norm"].items()}
    named |= {f"heads.{i}.{k}": np.asarray(v) for i in "01" for k, v in PARAMS["heads"][i].items()}
    loaded = hl.load(dict(reversed(named.items())), like=NET.init(1))
    for a, b in zip(hl.tree.leaves(loaded), hl.tree.leaves(PARAMS), strict=True):
        same(a, b)
    with pytest.raises(hl.UserError, match="the dict must have the arrays of `like`. Received: heads.1.bias is missing; extra is left over"):
        hl.load({**{k: v for k, v in named.items() if k != "heads.1.bias"}, "extra": np.ones(1)}, like=PARAMS)
    (tmp_path / "a.pt").write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(hl.UserError, match=r"an archive as torch.save writes it. Try: hl.load\(torch.load\("):
        hl.load(tmp_path / "a.pt")


class Own(hl.nn.Module):
    """f(its layer's output, its input), of x (batch, time, 3)."""

    def __init__(self, f):
        self.gru, self.f = hl.nn.GRU(3, 3), f

    def apply(self, params, x):
        return self.f(self.gru(params["gru"], x), x)


class Counts(hl.nn.Module):
    """Of x (batch, time), numbers of classes."""

    def __init__(self, f):
        self.embed, self.f = hl.nn.Embedding(2, 3), f

    def apply(self, params, x):
        return self.f(self.embed(params["embed"], x))


def run_alone(h, x):
    return hl.scan(lambda s, a: (s * 0.5 + a, s * 0.5 + a), hl.zeros((len(x), 3)), x.transpose((1, 0, 2)))[1].transpose((1, 0, 2))


@pytest.mark.parametrize("f", [
    lambda h, x: h - hl.mean(h, axis=1, keepdims=True), lambda h, x: hl.cumulative_sum(h, axis=1), lambda h, x: h[:, 1:] - h[:, :-1], run_alone,
    lambda h, x: h - hl.stop_gradient(hl.max(x, axis=1, keepdims=True)), lambda h, x: h[:, ::-1], lambda h, x: h[:, :1], lambda h, x: h.reshape(len(x), -1),
    lambda h, x: hl.concat([hl.zeros((len(x), 9, 3)), h[:, 9:] - h[:, :-9]], axis=1) if x.shape[1] > 9 else hl.zeros_like(h),
    lambda h, x: h + hl.reshape(hl.arange(x.shape[1], dtype="float32"), (1, -1, 1)), lambda h, x: hl.softmax(h, axis=1), lambda h, x: hl.mean(h, axis=1),
])  # fmt: skip
def test_what_mixes_steps_is_no_stream(f):
    for model in (Own(f), hl.nn.Sequential(hl.nn.Linear(3, 3), Own(f)), hl.nn.Residual(Own(f))):
        try:
            model(model.init(0), X)
        except hl.UserError:
            assert not isinstance(model, Own)
            continue  # not of that shape
        for run in (lambda: model.bind(model.init(0)).step(None, X[:, 0]), lambda: hl.export_c(model, model.init(0), 3)):  # noqa: B023
            with pytest.raises(hl.UserError, match=r"\[stream\] apply\(\) of a module of one's own must treat each step alone.*Own.apply, which .*Try: a hl.nn.Cell"):
                run()


@pytest.mark.parametrize("f", [
    lambda h, x: h * hl.softmax(x, axis=2), lambda h, x: h - hl.mean(h, axis=2, keepdims=True), lambda h, x: h[:, -1], lambda h, x: hl.einsum("btf,btg->btfg", h, x),
    lambda h, x: (h.reshape(-1, 3) @ hl.ones((3, 2))).reshape(*x.shape[:2], 2), lambda h, x: hl.scan(lambda s, a: (s, a + 1), hl.zeros(1), h.transpose((1, 0, 2)))[1].transpose((1, 0, 2)),
])  # fmt: skip
def test_what_treats_steps_alone_is_a_stream(f):
    model = Own(f)
    bound, state = model.bind(model.init(0)), None
    whole = np.asarray(model(bound.params, X))
    for t in range(X.shape[1]):
        y, state = bound.step(state, X[:, t])
        np.testing.assert_allclose(y, whole[:, t] if whole.ndim > 2 else model(bound.params, X[:, : t + 1]), rtol=1e-5, atol=1e-6)
    hl.export_c(model, bound.params, 3)


class Normalised(hl.nn.Module):
    """Layers with a state and with buffers inside one another."""

    def __init__(self):
        self.body = hl.nn.Sequential(hl.nn.LSTM(3, 4), hl.nn.BatchNorm(4))

    def apply(self, params, x):
        return hl.tanh(self.body(params["body"], x))


def test_buffers_of_layers_with_a_state_are_the_modules():
    model = Normalised()
    bound, state = model.bind(model.init(0), buffers=model.init_buffers()), None
    whole = np.asarray(model(bound.params, X, buffers=model.init_buffers())[0])
    for t in range(X.shape[1]):
        y, state = bound.step(state, X[:, t])
        np.testing.assert_allclose(y, whole[:, t], rtol=1e-5, atol=1e-6)


class OneStep(hl.nn.Module):
    def apply(self, params, x):
        assert x.shape[1] == 1, "one step at a time"
        return x


def test_a_module_that_raises_for_a_sequence_is_no_stream():
    with pytest.raises(hl.UserError, match=r"OneStep.apply, which takes no sequence of 29 steps: AssertionError: one step at a time"):
        OneStep().bind({}).step(None, X[:, 0])


@pytest.mark.parametrize("error", [MemoryError, hl.InternalError])
def test_what_is_no_fault_of_a_module_is_not_told_as_one(error):
    class Unlucky(OneStep):
        def apply(self, params, x):
            if x.shape[1] > 1:
                raise error("of all")
            return x

    with pytest.raises(error, match="of all"):
        Unlucky().bind({}).step(None, X[:, 0])


def test_an_error_of_a_sequence_is_told():
    class Narrow(hl.nn.Module):
        def apply(self, params, x):
            return hl.reshape(x, (x.shape[0], 1, x.shape[2]))

    with pytest.raises(hl.UserError, match=r"Narrow.apply, which takes no sequence of 29 steps: \[reshape\] .* Received: .*Try: a hl.nn.Cell"):
        Narrow().bind({}).step(None, X[:, 0])


def test_steps_of_classes_too():
    alone, mixed = Counts(hl.tanh), Counts(lambda e: hl.cumulative_sum(e, axis=1))
    classes = np.zeros(1, np.int32)
    assert alone.bind(alone.init(0)).step(None, classes)[0].shape == (1, 3)
    with pytest.raises(hl.UserError, match="Counts.apply, which gives other numbers for step 1 alone"):
        mixed.bind(mixed.init(0)).step(None, classes)


class Gated(hl.nn.Module):
    """A sum over time behind a weight that begins with zero."""

    def init(self, seed):
        return {"gate": hl.zeros(3)}

    def apply(self, params, x):
        return x + params["gate"] * hl.cumulative_sum(x, axis=1)


class OfAStep(hl.nn.Module):
    """Of x (batch, features) inside a cell, where no axis is time."""

    def __init__(self):
        self.linear = hl.nn.Linear(3, 3)

    def apply(self, params, x):
        return hl.softmax(self.linear(params["linear"], x), axis=1)


class WithAModule(hl.nn.Cell):
    def __init__(self):
        self.net = OfAStep()

    def init(self, seed):
        return self.net.init(seed)

    def initial_state(self, batch):
        return hl.zeros((batch, 3))

    def __call__(self, params, state, x):
        h = hl.tanh(self.net(params, x) + state)
        return h, h


def test_modules_inside_cells_and_behind_gates():
    with pytest.raises(hl.UserError, match="Gated.apply, which gives other numbers"):
        Gated().bind(Gated().init(0)).step(None, X[:, 0])
    own = hl.nn.Recurrent(WithAModule())
    assert own.bind(own.init(0)).step(None, X[:, 0])[0].shape == (4, 3)


ALIVE = weakref.WeakSet()


class Watched(Net):
    def __init__(self):
        super().__init__()
        ALIVE.add(self)


class Pair(hl.nn.Module):
    def __init__(self):
        self.inner = Watched()
        ALIVE.add(self)

    def apply(self, params, x, key=None):
        return self.inner(params["inner"], x["series"])


@pytest.mark.parametrize("use", [
    lambda model, x: model(model.init(0), x, buffers=model.init_buffers()), lambda model, x: model.bind(model.init(0), model.init_buffers())(x),
    lambda model, x: hl.fit(model, (x, np.zeros((4, 10, 1), np.float32)), epochs=1, validation=0, progress=False), lambda model, x: model.initial_state(4),
], ids=["call", "bind", "fit", "initial_state"])  # fmt: skip
@pytest.mark.parametrize("make", [Watched, lambda: hl.nn.Sequential(Watched(), hl.nn.Tanh()), lambda: hl.nn.Sequential(hl.nn.Residual(hl.nn.Sequential(Watched(), hl.nn.Linear(1, 3))), hl.nn.Linear(3, 1)), Pair], ids=["alone", "in Sequential", "wrapped", "inside another"])
def test_modules_are_freed(make, use):
    model = make()
    x = {"series": X} if isinstance(model, Pair) else X
    assert len(ALIVE) > 0
    use(model, x)
    del model
    gc.collect()
    assert len(ALIVE) == 0


def test_a_module_that_was_not_called_is_freed_at_once():
    gc.collect()
    gc.disable()
    try:
        model = Watched()
        model.init(0)
        del model
        assert len(ALIVE) == 0
    finally:
        gc.enable()
