"""Copies and pickles: components hold their settings, and are made of them again."""

import copy
import functools
import inspect
import pickle

import hotloop as hl
import numpy as np
import pytest

AGAIN = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "deepcopy": copy.deepcopy, "copy": copy.copy}


def _made(cls):
    """An instance with something for each setting that has no default."""
    known = {"layer": hl.nn.GRU(3, 3), "inner": hl.optim.Adam(1e-2), "steps": 30}
    required = [name for name, p in inspect.signature(cls).parameters.items() if p.default is p.empty]
    return cls(**{name: known.get(name, 3) for name in required})


def _classes():
    for module in (hl.nn, hl.losses, hl.optim, hl.metrics, hl.ode):
        for name in module.__all__:
            cls = getattr(module, name)
            if isinstance(cls, type) and "__signature__" in vars(cls):  # Python 3.13 gives enumerations an inherited one
                yield pytest.param(cls, id=f"{module.__name__.rpartition('.')[2]}.{name}")


@pytest.mark.parametrize("cls", list(_classes()))
@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_what_the_registries_give(cls, again):
    first = _made(cls)
    second = again(first)
    assert type(second) is cls and second is not first and repr(second) == repr(first)


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_they_compute_the_same_bits(again):
    rng = np.random.default_rng(0)
    params, grads = ({"w": rng.normal(size=(3, 2)).astype("float32")} for _ in range(2))
    optimizer = hl.optim.EMA(hl.optim.ClipByNorm(hl.optim.AdamW(hl.optim.Schedule(1e-2, hl.optim.Warmup(2), hl.optim.Cosine(5)), weight_decay=0.1), 0.5))
    state = optimizer.init(params)
    wanted = optimizer.update(grads, state, params)
    found = again(optimizer).update(grads, state, params)
    for a, b in zip(hl.tree.leaves(wanted), hl.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(a, b)

    loss = hl.losses.Huber(0.3)
    assert float(again(loss)(params["w"], grads["w"])) == float(loss(params["w"], grads["w"]))
    metric = hl.metrics.MAE()
    assert again(metric)(params["w"], grads["w"]) == metric(params["w"], grads["w"])

    def solved(solver, controller, adjoint):
        return hl.ode.solve(lambda t, y, args: -y, solver, 0.0, 1.0, 1.0, controller=controller, adjoint=adjoint).y1

    parts = hl.ode.Bosh3(), hl.ode.Clip(hl.ode.PID(rtol=1e-4, pcoeff=0.4), step_ts=[0.3]), hl.ode.Backsolve()
    assert float(solved(*again(parts))) == float(solved(*parts))


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_bound_models_and_voices(again):
    model = hl.nn.Sequential(hl.nn.LSTM(1, 4), hl.nn.BatchNorm(4))
    bound = model.bind(model.init(0), model.init_buffers())
    voice, x = bound.voice(), np.float32([[0.5]])
    voice.step(x)
    other = again(voice)
    np.testing.assert_array_equal(other.step(x), voice.step(x))
    np.testing.assert_array_equal(again(bound)(x[None]), bound(x[None]))


class Weighted(hl.losses.MSE):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight


def test_a_class_of_ones_own_keeps_what_it_has():
    own = pickle.loads(pickle.dumps(Weighted(3.0)))
    assert own.weight == 3.0 and float(own(np.ones(2), np.zeros(2))) == 1


def test_what_was_unpickled_may_be_donated():
    params = pickle.loads(pickle.dumps(hl.nn.Linear(3, 1).init(0)))
    wanted = np.asarray(hl.nn.Linear(3, 1).init(0)["weight"]) + 1
    made = hl.jit(lambda p: hl.tree.map(lambda a: a + 1, p), donate="p")(params)
    np.testing.assert_array_equal(made["weight"], wanted)
    assert params["weight"].is_donated


@hl.jit
def doubled(x):
    return 2 * x


class Holder:
    @hl.jit
    def method(self, x):
        return x

    def __init__(self):
        self.activation, self.step = hl.tanh, doubled


def _functions():
    for module in (hl, hl.linalg, hl.random):
        for name in dir(module):
            found = getattr(module, name)
            if isinstance(found, hl._core.CompiledFunction):
                yield pytest.param(found, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("fn", [*_functions(), pytest.param(doubled, id="doubled"), pytest.param(Holder.method, id="method")])
@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_functions_are_themselves(fn, again):
    assert again(fn) is fn


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_functions_in_what_is_pickled(protocol):
    settings = {"activation": hl.tanh, "step": doubled}
    assert pickle.loads(pickle.dumps(settings, protocol)) == settings


def test_what_holds_functions_is_copied():
    holder = Holder()
    for again in AGAIN.values():
        twin = again(holder)
        assert twin is not holder and twin.activation is hl.tanh and twin.step is doubled
    local = hl.jit(lambda x: x)
    assert copy.copy(local) is local and copy.deepcopy([local])[0] is local


def _tripled(x):
    return 3 * x


@pytest.mark.parametrize("fn, reason", [
    (lambda x: x, rf"<lambda>>, which is not {__name__}.<lambda>"), (_tripled, f"which is not {__name__}._tripled"), (functools.partial(_tripled), "which has none"),
], ids=["lambda", "another's name", "partial"])  # fmt: skip
def test_functions_without_a_name_are_refused(fn, reason):
    with pytest.raises(pickle.PicklingError, match=rf"\[jit\] a compiled function is pickled by its name, as Python's functions are, .*{reason}. Try: @hl.jit above a function"):
        pickle.dumps(hl.jit(fn))


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_preparations(again):
    table = {"x": np.arange(50.0), "y": np.arange(50.0) ** 2 / 3}
    first = hl.data.Samples(table, inputs=["x"], targets="y").preparation
    second = again(first)
    assert second._core.json() == first._core.json() and second.input_names == ["x"]
    for a, b in zip(second.apply(table), first.apply(table), strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])
