"""Models of several inputs: trees of arrays in hl.fit, predict, evaluate and calls."""

import collections
import dataclasses
import pickle
import re

import hotloop as hl
import numpy as np
import pytest

Pair = collections.namedtuple("Pair", "series facts")


@dataclasses.dataclass
class Both:
    series: object
    facts: object


class Net(hl.nn.Module):
    """Of a sequence (batch, time, 2) and facts (batch, 3), however they are told apart."""

    def __init__(self, of):
        self.of = of
        self.lstm, self.drop, self.facts, self.head = hl.nn.LSTM(2, 6), hl.nn.Dropout(0.1), hl.nn.Linear(3, 4), hl.nn.Linear(10, 1)

    def apply(self, params, x, key=None):
        series, facts = self.of(x)
        last = self.drop({}, self.lstm(params["lstm"], series)[:, -1])
        return self.head(params["head"], hl.concat([last, hl.tanh(self.facts(params["facts"], facts))], axis=-1))


FORMS = {
    "dict": (lambda s, f: {"series": s, "facts": f}, lambda x: (x["series"], x["facts"])),
    "tuple": (lambda s, f: (s, f), lambda x: x),
    "list": (lambda s, f: [s, f], lambda x: x),
    "named tuple": (Pair, lambda x: (x.series, x.facts)),
    "dataclass": (Both, lambda x: (x.series, x.facts)),
    "nested": (lambda s, f: {"all": [s, {"more": (f, None)}]}, lambda x: (x["all"][0], x["all"][1]["more"][0])),
}


@pytest.fixture
def data(rng):
    series, facts = rng.normal(size=(90, 5, 2)).astype(np.float32), rng.normal(size=(90, 3)).astype(np.float32)
    return series, facts, (series[:, :, :1].sum(1) + facts[:, :1]).astype(np.float32)


class OneArray(hl.nn.Module):
    """The same network of one array, which holds the facts at each step."""

    def __init__(self):
        self.net = Net(lambda x: x)

    def init(self, seed):
        return self.net.init(seed)

    def apply(self, params, x, key=None):
        net = self.net
        last = net.lstm(params["lstm"], x[:, :, :2])[:, -1]
        return net.head(params["head"], hl.concat([last, hl.tanh(net.facts(params["facts"], x[:, 0, 2:]))], axis=-1))


OPTIONS = {"optimizer": hl.optim.Adam(1e-2), "batch_size": 16, "epochs": 3, "progress": False}


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(hl.tree.leaves(a), hl.tree.leaves(b), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_tree_is_what_apply_is_given(data, form):
    series, facts, y = data
    make, of = FORMS[form]
    seen = []

    def checked(x):
        seen.append(type(x))
        return of(x)

    model, x = Net(checked), make(series, facts)
    run = hl.fit(model, (x, y), validation=0.2, **OPTIONS)
    assert seen and set(seen) == {type(x)}
    wanted = hl.fit(Net(FORMS["tuple"][1]), ((series, facts), y), validation=0.2, **OPTIONS)
    assert same(run.params, wanted.params) and [r[:3] for r in run.history] == [r[:3] for r in wanted.history]
    assert run.history[-1].train_loss < run.history[0].train_loss
    # The held out part is the last one, and each way to a prediction gives the same.
    held = make(series[72:], facts[72:])
    assert run.evaluate((held, y[72:])) == pytest.approx(run.best_validation, rel=1e-6)
    predicted = run.predict(held)
    assert predicted.shape == (18, 1) and same(hl.predict(model, run.params, held, batch_size=5), predicted)
    assert same(model(run.params, held), predicted) and same(model.apply(run.params, held), predicted)
    assert same(model.predict(run.params, held, batch_size=7), predicted)
    assert same(model.bind(run.params)(held), predicted)
    assert same(hl.jit(lambda p, x: model(p, x))(run.params, held), predicted)


def test_the_same_as_one_array(data):
    series, facts, y = data
    together = np.concatenate([series, np.repeat(facts[:, None], 5, axis=1)], axis=-1)
    net = Net(lambda x: x)
    net.drop = hl.nn.Dropout(0.0)
    for steps in (1, 3):
        two, one = (hl.fit(m, (x, y), steps_per_call=steps, **OPTIONS) for m, x in ((net, (series, facts)), (OneArray(), together)))
        for a, b in zip(hl.tree.leaves(two.state.params), hl.tree.leaves(one.state.params), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_one_array_of_a_list_of_samples_is_what_it_was(data):
    series, _, y = data
    model = hl.nn.Sequential(hl.nn.LSTM(2, 6), hl.nn.Last(), hl.nn.Linear(6, 1))
    whole, listed = (hl.fit(model, (x, y), **OPTIONS) for x in (series, list(series)))
    assert same(whole.params, listed.params)


def test_integers_stay_and_floats_are_cast(rng):
    class Tagged(hl.nn.Module):
        def __init__(self):
            self.embedding, self.gru, self.head = hl.nn.Embedding(7, 3), hl.nn.GRU(4, 5), hl.nn.Linear(5, 2)

        def apply(self, params, x):
            assert x["ids"].dtype == hl.int64 and x["size"].dtype == params["head"]["weight"].dtype
            h = hl.concat([self.embedding(params["embedding"], x["ids"]), x["size"]], axis=-1)
            return self.head(params["head"], self.gru(params["gru"], h)[:, -1])

    x = {"ids": rng.integers(0, 7, (60, 4)), "size": rng.normal(size=(60, 4, 1))}
    labels = x["ids"][:, 1] % 2
    for dtype in ("float32", "float64"):
        run = hl.fit(Tagged(), (x, labels), loss=hl.losses.CrossEntropy(), metric=hl.metrics.Accuracy(), dtype=dtype, **OPTIONS | {"epochs": 40, "optimizer": hl.optim.Adam(5e-2)})
        assert run.history[-1].train_loss < 0.2 and run.predict(x).dtype == dtype


def test_resume_and_pickle(data, tmp_path):
    series, facts, y = data
    model, x = Net(_by_name), {"series": series, "facts": facts}
    whole = hl.fit(model, (x, y), **OPTIONS)
    first = hl.fit(model, (x, y), checkpoints=tmp_path, **OPTIONS | {"epochs": 2})
    for resume in (first, tmp_path):
        rest = hl.fit(model, (x, y), resume=resume, **OPTIONS)
        assert same(whole.state.params, rest.state.params) and [r[:3] for r in rest.history] == [r[:3] for r in whole.history]
    assert same(pickle.loads(pickle.dumps(whole)).predict(x), whole.predict(x))


def _by_name(x):
    return x["series"], x["facts"]


def test_the_order_of_names_does_not_matter(data):
    series, facts, y = data
    train = lambda held: hl.fit(Net(_by_name), ({"series": series, "facts": facts}, y), validation=(held, y), **OPTIONS)  # noqa: E731
    run = train({"series": series, "facts": facts})
    turned = {"facts": facts, "series": series}
    assert [r[:3] for r in train(turned).history] == [r[:3] for r in run.history]
    assert same(run.predict(turned), run.predict({"series": series, "facts": facts}))


def test_the_first_layer_of_a_sequential(data):
    series, facts, y = data

    class Join(hl.nn.Module):
        def apply(self, params, x):
            return hl.concat([x["series"], hl.broadcast_to(x["facts"][:, None], (*x["series"].shape[:2], 3))], axis=-1)

    model = hl.nn.Sequential(Join(), hl.nn.LSTM(5, 6), hl.nn.Last(), hl.nn.Linear(6, 1))
    x = {"series": series, "facts": facts}
    run = hl.fit(model, (x, y), **OPTIONS)
    assert same(model(run.params, x), run.predict(x))
    nested = hl.nn.Sequential(hl.nn.Sequential(Join(), hl.nn.LSTM(5, 6)), hl.nn.Last(), hl.nn.Linear(6, 1))
    assert hl.fit(nested, (x, y), **OPTIONS).status == "finished"


def test_a_module_inside_may_take_a_tree(data):
    series, facts, y = data

    class Inner(hl.nn.Module):
        def __init__(self):
            self.lstm = hl.nn.LSTM(2, 6)

        def apply(self, params, x):
            return hl.concat([self.lstm(params["lstm"], x[0])[:, -1], x[1]], axis=-1)

    class Outer(hl.nn.Module):
        def __init__(self):
            self.inner, self.head = Inner(), hl.nn.Linear(9, 1)

        def apply(self, params, x):
            return self.head(params["head"], self.inner(params["inner"], (x["series"], x["facts"])))

    x = {"series": series, "facts": facts}
    run = hl.fit(Outer(), ({"x": x, "y": y, "lengths": np.full(90, 4)}), **OPTIONS)
    shorter = {"series": np.where(np.arange(5)[:, None] < 4, series, 9.0).astype(np.float32), "facts": facts}
    # What lies beyond the lengths does not count, and a (batch, features) that is as wide as the sequence is long has no steps.
    assert same(run.predict(x, lengths=np.full(90, 4)), run.predict(shorter, lengths=np.full(90, 4)))


def test_lengths_are_of_the_first_sequence(rng):
    class Mean(hl.nn.Module):
        def __init__(self):
            self.norm, self.pool, self.head = hl.nn.BatchNorm(5), hl.nn.MeanPool(), hl.nn.Linear(7, 1)

        def apply(self, params, x, lengths=None):
            wide = self.norm(params["norm"], x["wide"])  # as wide as the series is long
            return self.head(params["head"], hl.concat([self.pool({}, x["series"]), wide], axis=-1))

    series, wide, lengths = rng.normal(size=(40, 5, 2)), rng.normal(size=(40, 5)), rng.integers(1, 6, 40)
    y = (np.stack([s[:n].mean(0) for s, n in zip(series, lengths, strict=True)]) @ [[1.0], [2.0]]) + wide[:, 4:]
    data = {"x": {"wide": wide, "series": series}, "y": y, "lengths": lengths}
    run = hl.fit(Mean(), data, **OPTIONS | {"epochs": 200, "optimizer": hl.optim.Adam(3e-2)})
    assert run.evaluate(data) < 0.05
    assert same(run.predict(data), run.predict(data["x"], lengths=lengths))
    with pytest.raises(hl.UserError, match="lengths must lie between 0 and the inputs' steps, 5. Received: 6"):
        hl.fit(Mean(), data | {"lengths": np.full(40, 6)}, **OPTIONS)


def test_lengths_of_each_sequence_are_an_input(rng):
    class EncoderDecoder(hl.nn.Module):
        def __init__(self):
            self.encoder, self.decoder, self.head = hl.nn.GRU(2, 6), hl.nn.GRU(3, 6), hl.nn.Linear(6, 1)

        def apply(self, params, x):
            _, state = self.encoder(params["encoder"], x["past"], state=self.encoder.initial_state(len(x["past"])), lengths=x["past_steps"])
            return self.head(params["head"], self.decoder(params["decoder"], x["future"], state=state)[0])

    past, future = rng.normal(size=(48, 7, 2)), rng.normal(size=(48, 3, 3))
    x = {"past": past, "past_steps": rng.integers(1, 8, 48), "future": future}
    run = hl.fit(EncoderDecoder(), (x, future[:, :, :1] + past[:, :1, :1]), **OPTIONS)
    hidden = {**x, "past": np.where(np.arange(7)[:, None] < x["past_steps"][:, None, None], past, 5.0)}
    assert run.predict(x).shape == (48, 3, 1) and same(run.predict(x), run.predict(hidden))


def test_weights_keys_and_what_is_not_finite(data):
    series, facts, y = data
    x = {"series": series, "facts": facts}
    weighted = hl.fit(Net(_by_name), {"x": x, "y": y, "sample_weights": np.linspace(0, 1, 90)}, **OPTIONS)
    assert weighted.status == "finished"
    facts = facts.copy()
    facts[7, 1] = np.nan
    with pytest.warns(UserWarning, match=r"the input facts of the batch.*Try: fill what is missing.*x\['facts'\] is not finite in 1 of 81 training samples, first in sample 7"):
        run = hl.fit(Net(_by_name), ({"series": series, "facts": facts}, y), **OPTIONS)
    assert run.status == "non_finite_loss"


def test_several_targets_in_one_array(data):
    series, facts, y = data

    class Two(Net):
        def __init__(self):
            super().__init__(_by_name)
            self.head = hl.nn.Linear(10, 3)

    def loss(prediction, target):
        of_number = hl.losses.MSE()(prediction[:, :1], target[:, :1])
        return of_number + 0.5 * hl.losses.BinaryCrossEntropy()(prediction[:, 1:], target[:, 1:])

    both = np.concatenate([y, facts[:, :2] > 0], axis=1).astype(np.float32)
    run = hl.fit(Two(), ({"series": series, "facts": facts}, both), loss=loss, metric=loss, **OPTIONS)
    assert run.history[-1].train_loss < run.history[0].train_loss and run.predict({"series": series, "facts": facts}).shape == (90, 3)


@pytest.mark.parametrize("change, message", [
    (lambda s, f, y: ({"series": s, "facts": f[:89]}, y), r"[fit] inputs and targets must have equally many samples. Received: x['facts'] has 89 samples, x['series'] 90."),
    (lambda s, f, y: ((s, f), y[:89]), "[fit] inputs and targets must have equally many samples. Received: y has 89 samples, x[0] 90."),
    (lambda s, f, y: ({"all": {"series": s}, "facts": np.float32(1)}, y), "[fit] each input must have the samples along its first axis. Received: x['facts'], which is a number. Try: an array"),
    (lambda s, f, y: (list(s), y), "Received: y has 90 samples, x[0] 5. Try: numpy.stack(x), if these are the samples of one input."),
    (lambda s, f, y: ({}, y), "[fit] x must hold an array. Received: {}."),
    (lambda s, f, y: ({1: s, "1": f}, y), "[x] the keys of a dict must differ as text. Received: two keys '1'. Try: strings alone as keys."),
    (lambda s, f, y: ({"series": s, "facts": [[1.0]] * 90}, y), "x['facts'][0][0], which is a number"),
    (lambda s, f, y: ({"series": s, "facts": np.array(["a"] * 90)}, y), "x['facts']"),
])  # fmt: skip
def test_errors(data, change, message):
    with pytest.raises(hl.UserError, match=re.escape(message)):
        hl.fit(Net(_by_name), change(*data), **OPTIONS)


def test_a_model_of_one_array_says_so(data):
    series, facts, y = data
    x = {"series": series, "facts": facts}
    model = hl.nn.Sequential(hl.nn.LSTM(2, 6), hl.nn.Last(), hl.nn.Linear(6, 1))
    message = r"\[Sequential\] the input must be one array. Received: a {}. Try: hl.concat.* or a subclass of hl.nn.Module whose apply\(params, x\) takes them"
    for given, kind in ((x, "dict"), ((series, facts), "tuple"), (Pair(series, facts), "Pair")):
        for call in (lambda x: hl.fit(model, (x, y)), lambda x: hl.evaluate(model, model.init(0), (x, y)), lambda x: model(model.init(0), x)):
            with pytest.raises(hl.UserError, match=message.format(kind)):
                call(given)
    ragged = [series[i, : 1 + i % 3] for i in range(len(y))]
    padded = r"Try: n = \[len\(a\) for a in x\], numpy.stack\(\[numpy.pad\(a, \(\(0, longest - len\(a\)\), \(0, 0\)\)\) for a in x\]\).*'lengths': n\}"
    with pytest.raises(hl.UserError, match=r"sequences of unequal length padded to one. Received: a list of 90 arrays, \(1, 2\), \(2, 2\), ... " + padded):
        hl.fit(model, (ragged, y))
    with pytest.raises(hl.UserError, match=r"\[fit\] inputs and targets must have equally many samples.* " + padded):
        hl.fit(Net(_by_name), (ragged, y))
    with pytest.raises(hl.UserError, match=r"\[validation\] the tree must have a dict of 2. Received: a"):
        hl.fit(Net(_by_name), (x, y), validation=(series, y))
    with pytest.raises(hl.UserError, match=r"\[validation\] the tree must have the key facts"):
        hl.fit(Net(_by_name), (x, y), validation=({"series": series, "fact": facts}, y))
    run = hl.fit(Net(_by_name), (x, y), **OPTIONS)
    with pytest.raises(hl.UserError, match=r"\[predict\] all inputs must have equally many samples. Received: x\['facts'\] has 3 samples, x\['series'\] 90"):
        run.predict({"series": series, "facts": facts[:3]})
