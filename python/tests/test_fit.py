"""hl.fit: results, callbacks, early stopping, bad input."""

import pickle
import re

import hotloop as hl
import numpy as np
import pytest
from small_fits import model, same, sums_of_steps


@pytest.fixture
def data(rng):
    return sums_of_steps(rng)


def test_it_learns_and_is_reproducible(data):
    run = hl.fit(model(), data, optimizer=hl.optim.Adam(1e-2), epochs=20, progress=False)
    assert run.status == "finished" and len(run.history) == 20
    assert run.history[-1].train_loss < 0.3 * run.history[0].train_loss
    again = hl.fit(model(), data, optimizer=hl.optim.Adam(1e-2), epochs=20, steps_per_call=2, progress=False)
    assert same(run.params, again.params)
    x, y = data
    held = slice(-10, None)
    best = run.history[run.best_epoch - 1].validation
    assert np.isclose(hl.metrics.MAE()(run.predict(x[held]), y[held]), best, rtol=1e-6)
    assert np.array_equal(run.predict(x), hl.predict(run.model, run.params, x))
    assert "training step" in run.explain() and "flop" in run.explain()


def test_the_same_as_a_loop_by_hand(data):
    x, y = data
    m, opt, loss = model(), hl.optim.Adam(1e-2), hl.losses.MSE()
    run = hl.fit(m, (x, y), validation=(x[:8], y[:8]), optimizer=opt, epochs=2, batch_size=96, seed=5, progress=False)
    params = m.init(5)
    state = opt.init(params)

    @hl.jit
    def step(params, state, x, y):
        value, grads = hl.value_and_grad(lambda p: loss(m(p, x), y))(params)
        return *opt.update(grads, state, params), value

    for epoch in range(2):
        params, state, value = step(params, state, x, y)
        # The order of the samples differs, and with it that of the additions.
        assert np.isclose(float(value), run.history[epoch].train_loss, rtol=1e-5)
    for a, b in zip(hl.tree.leaves(run.state.params), hl.tree.leaves(params)):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_the_rate_falls_on_a_plateau_and_resume_is_exact(data, tmp_path):
    # The metric stands still, so every second epoch from the third on lowers the rate: patience 1, and the first value is better than none.
    options = {"metric": lambda p, t: 0 * (p - t).mean() + 1, "batch_size": 16, "progress": False}

    def fit(epochs, least=0.0, **more):
        schedule = hl.optim.Schedule(1e-2, hl.optim.Plateau(factor=0.5, patience=1, least=least))
        return hl.fit(model(), data, epochs=epochs, optimizer=hl.optim.EMA(hl.optim.Adam(schedule), 0.9), **options, **more)

    def factor(run):
        folder = tmp_path / f"factor-{run.state.epoch}"
        folder.mkdir()
        return float(hl.load(run.state.save(str(folder)) + "/optimizer.safetensors")["inner"]["schedule"]["0"]["factor"])

    whole, first = fit(7), fit(4, checkpoints=tmp_path / "part")
    assert whole.status == "finished" and [factor(fit(2)), factor(first), factor(whole)] == [1, 0.5, 0.125]
    assert not same(whole.state.params, fit(7, least=1.0).state.params)
    for resume in (first, tmp_path / "part"):
        assert same(whole.state.params, fit(7, resume=resume).state.params)


def test_a_plateau_lets_a_falling_loss_be(data):
    constant, falls = (hl.fit(model(), data, epochs=3, optimizer=hl.optim.SGD(rate), progress=False)
                       for rate in (1e-2, hl.optim.Schedule(1e-2, hl.optim.Plateau(patience=0))))  # fmt: skip
    assert [r.validation for r in constant.history] == sorted((r.validation for r in constant.history), reverse=True)
    assert same(constant.state.params, falls.state.params)


def test_callbacks_stop_and_see_parameters(data):
    seen = []

    def watch(at):
        if at.epoch_done:
            seen.append((at.record.epoch, at.params["2"]["bias"]))
        return at.epoch == 2 and at.epoch_done

    run = hl.fit(model(), data, epochs=9, callbacks=[watch], progress=False)
    assert run.status == "stopped" and [e for e, _ in seen] == [1, 2]
    assert not np.array_equal(seen[0][1], seen[1][1])


def test_early_stopping_and_start_from_parameters(data):
    start = model().init(11)
    run = hl.fit(model(), data, optimizer=hl.optim.SGD(1e-30), params=start, epochs=9, early_stopping=hl.EarlyStopping(2), progress=False)
    assert run.status == "stopped_early" and len(run.history) == 3
    assert same(run.params, start)


def test_a_cell_and_a_loss_in_python(data):
    class Leaky(hl.nn.Cell):
        def init(self, seed):
            return {"w": hl.nn.uniform(seed, (2, 4))}

        def initial_state(self, batch):
            return hl.zeros((batch, 4))

        def __call__(self, params, state, x):
            h = 0.9 * state + hl.tanh(x @ params["w"])
            return h, h

    m = hl.nn.Sequential(hl.nn.Recurrent(Leaky()), hl.nn.Last(), hl.nn.Linear(4, 1))
    run = hl.fit(m, data, loss=lambda p, t: hl.mean((p - t) ** 2), optimizer=hl.optim.Adam(1e-2), epochs=5, progress=False)
    assert run.history[-1].train_loss < run.history[0].train_loss


def test_a_loss_that_is_not_finite_is_an_outcome(data):
    x, y = data
    x = x.copy()
    x[5, 2, 1] = np.inf
    with pytest.warns(UserWarning, match=r"the inputs of the batch.*Try: fill what is missing in the data.*x is not finite in 1 of \d+ training samples, first in sample 5") as told:
        run = hl.fit(model(), (x, y), epochs=2, progress=False)
    assert run.status == "non_finite_loss" and "not finite" in run.message and told[0].filename == __file__


def test_validation_samples_that_are_not_finite_are_named(data):
    x, y = data
    for fraction in (True, False):
        held, targets = x.copy(), y.copy()
        held[-1, 0, 0], targets[-2] = np.nan, np.inf
        given = {"data": (held, targets)} if fraction else {"data": data, "validation": (held[-9:], targets[-9:])}
        with pytest.warns(UserWarning, match=r"was the validation metric.*Try: look for validation samples that are not finite.* x is not finite in 1 of \d+ validation samples, first in sample \d+\. y is not finite in 1 of \d+ validation samples") as told:
            assert hl.fit(model(), epochs=1, progress=False, **given).status == "non_finite_loss"
        assert "training samples" not in str(told[0].message)


def test_a_gradient_that_is_not_finite_though_the_loss_is(rng):
    x = rng.normal(size=(8, 3)).astype(np.float32)
    x[0] = 0

    class Norm(hl.nn.Module):  # its derivative at 0 is 0 times infinity
        def __init__(self):
            self.linear = hl.nn.Linear(3, 2, bias=False)

        def apply(self, params, x, key=None):
            return hl.sqrt((self.linear(params["linear"], x) ** 2).sum(axis=-1, keepdims=True))

    with pytest.warns(UserWarning, match=r"A gradient was not finite at step 1 of epoch 1, where the loss was finite\. First of all tensors, at step 1 of epoch 1, was the gradient of linear\.weight"):
        run = hl.fit(Norm(), (x, np.ones((8, 1), np.float32)), epochs=1, validation=0, batch_size=8, progress=False)
    assert run.status == "non_finite_loss" and "The loss was not finite" not in run.message


@pytest.mark.parametrize("loss", [hl.losses.MSE(), hl.losses.MAE(), hl.losses.Huber(), hl.losses.LogCosh(), hl.losses.Gaussian(), hl.losses.BinaryCrossEntropy(logits=False)])
def test_targets_beyond_the_length_may_be_nan(rng, loss):
    outputs = 2 if isinstance(loss, hl.losses.Gaussian) else 1
    net = hl.nn.Sequential(hl.nn.LSTM(2, 4), hl.nn.Linear(4, outputs), hl.nn.Sigmoid())
    check_padding(net, rng.normal(size=(24, 5, 2)), rng.uniform(size=(24, 5, 1)), loss, pad_x=False)


@pytest.mark.parametrize("layer", [hl.nn.LSTM(2, 4), hl.nn.GRU(2, 4), hl.nn.Conv1d(2, 4, 3), hl.nn.Linear(2, 4), hl.nn.LayerNorm(2)])
def test_inputs_beyond_the_length_may_be_nan(rng, layer):
    net = hl.nn.Sequential(layer, hl.nn.LSTM(2 if isinstance(layer, hl.nn.LayerNorm) else 4, 3), hl.nn.Linear(3, 1))
    check_padding(net, rng.normal(size=(24, 5, 2)), rng.normal(size=(24, 5, 1)), hl.losses.MSE(), pad_x=True)


def check_padding(net, x, y, loss, pad_x):
    """Trains alike with zeros and with NaN beyond the rows' lengths."""
    lengths = np.arange(24) % 6
    beyond = (np.arange(5) >= lengths[:, None])[:, :, None]
    runs = []
    for padding in (0.0, np.nan):
        data = {"x": np.where(beyond, padding if pad_x else 0, x).astype(np.float32), "y": np.where(beyond, padding, y).astype(np.float32), "lengths": lengths}
        runs.append(hl.fit(net, data, loss=loss, metric=loss, epochs=2, batch_size=8, progress=False))
    assert [run.status for run in runs] == ["finished"] * 2
    assert same(runs[0].params, runs[1].params)
    if not pad_x:
        return
    # Nor is it taken for what made a training diverge.
    with pytest.warns(UserWarning, match="not finite") as told:
        hl.fit(net, data, loss=loss, metric=loss, optimizer=hl.optim.SGD(1e38), epochs=9, batch_size=8, progress=False)
    assert " of the batch" not in str(told[0].message) and "training samples" not in str(told[0].message)


def test_no_validation(data, tmp_path):
    x, y = data
    settings = {"epochs": 4, "optimizer": hl.optim.Adam(1e-2), "batch_size": 16, "progress": False}
    all_rows = hl.fit(model(), data, validation=0, **settings)
    assert same(all_rows.params, hl.fit(model(), data, validation=False, **settings).params)
    assert all_rows.best_epoch == 4 and np.isnan([r.validation for r in all_rows.history]).all() and np.isnan(all_rows.best_validation)
    assert repr(all_rows) == "Run(finished, 4 epochs without a validation)" and all_rows.explain().endswith("validation\nnone")
    # All rows train, and the last epoch is kept: what a run gives whose last epoch is its best on other rows.
    last = []
    hl.fit(model(), data, validation=(x[:5], y[:5]), callbacks=lambda at: last.append(at.params) if at.epoch_done else None, **settings)
    assert same(all_rows.params, last[-1])
    with pytest.raises(hl.UserError, match="decided by a validation needs one. Received: early_stopping without"):
        hl.fit(model(), data, validation=0, early_stopping=hl.EarlyStopping(2), **settings)
    with pytest.raises(hl.UserError, match="Received: an optimizer that follows it, without"):
        hl.fit(model(), data, validation=0, **settings | {"optimizer": hl.optim.Adam(hl.optim.Schedule(1e-2, hl.optim.Plateau()))})
    with pytest.raises(hl.UserError, match=r"Received: a bool. Try: a fraction such as 0.2, \(x, y\), or 0 to train on all samples"):
        hl.fit(model(), data, validation=True, **settings)
    hl.fit(model(), data, validation=0, checkpoints=tmp_path, **settings | {"epochs": 2})
    assert same(hl.fit(model(), data, validation=0, resume=tmp_path, **settings).params, all_rows.params)


def test_no_validation_shows_none(data, capsys):
    hl.fit(model(), data, validation=0, epochs=1, progress=True)
    shown = capsys.readouterr().err
    assert "loss" in shown and "mae" not in shown


def test_params_go_on_with_their_buffers(data):
    network = hl.nn.Sequential(hl.nn.Last(), hl.nn.BatchNorm(data[0].shape[-1]), hl.nn.Linear(data[0].shape[-1], 1))
    still = {"optimizer": hl.optim.SGD(0.0), "validation": 0, "batch_size": len(data[0]), "shuffle": False, "progress": False}
    first = hl.fit(network, data, epochs=30, **still)
    more = hl.fit(network, data, params=first.params, buffers=first.buffers, epochs=1, **still)
    resumed = hl.fit(network, data, resume=first, epochs=31, **still)
    for name, mean in resumed.buffers["1"].items():
        np.testing.assert_array_equal(more.buffers["1"][name], mean)
    with pytest.raises(hl.UserError, match=r"\[fit\] buffers must be given beside params: the model has 1.running_mean. Received: params alone. Try: buffers = run.buffers"):
        hl.fit(network, data, params=first.params, **still)
    with pytest.raises(hl.UserError, match=r"\[fit\] buffers must come with the params"):
        hl.fit(network, data, buffers=first.buffers, **still)


def test_weights_that_are_all_zero(data):
    with pytest.raises(hl.UserError, match="a sample must have a weight above 0. Received: 0 for all 96. Try: 1"):
        hl.fit(model(), {"x": data[0], "y": data[1], "sample_weights": np.zeros(len(data[0]), np.float32)}, progress=False)


@pytest.mark.parametrize("classes", [False, True])
def test_samples_of_weight_zero_may_be_anything_in_a_validation(rng, classes):
    x, weights = rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 5 != 0
    options = {"validation": 0.2, "epochs": 2, "seed": 0, "progress": False, **({"loss": hl.losses.CrossEntropy(), "metric": hl.metrics.Accuracy()} if classes else {})}
    y = (x[:, 0] > 0).astype(np.int32) if classes else x[:, :1]
    missing = y.copy()
    missing[~weights] = -1 if classes else np.nan
    of_all, of_some = (hl.fit(hl.nn.Linear(3, 2 if classes else 1), {"x": x, "y": targets, "sample_weights": weights.astype(np.float32)}, **options) for targets in (y, missing))
    assert of_some.status == "finished" and of_some.best_validation == of_all.best_validation


def test_sample_weights_are_numbers_of_any_kind(data):
    def fit(weights):
        return hl.fit(model(), {"x": data[0], "y": data[1], "sample_weights": weights}, epochs=1, seed=0, progress=False).best_validation

    counts = np.arange(len(data[0])) % 2
    wanted = fit(counts.astype(np.float32))
    assert all(fit(weights) == wanted for weights in (counts, counts.tolist(), counts.astype(bool)))
    with pytest.raises(hl.UserError, match=r"weights must be one number a sample. Received: i64\[95\] for 96 samples. Try: an array of shape \(96,\)"):
        fit(counts[:-1])


@pytest.mark.parametrize("change, message", [
    ({"data": (np.zeros((4, 2), np.float32),)}, r"data must be \(x, y\), a dict"),
    ({"validation": 0.001}, r"validation as a fraction must leave samples on both sides.*Try: validation=\(x, y\)"),
    ({"data": (np.zeros((40, 6, 2)), np.zeros((39, 1)))}, r"equally many samples. Received: f32\[40,6,2\] and f32\[39,1\]"),
    ({"model": 3}, "the model must be a layer of hl.nn. Received: an int"),
    ({"batch_size": 0}, "batch_size must be positive. Received: 0"),
    ({"init": "nonsense"}, 'init must be "torch" or "keras". Received: \'nonsense\''),
    ({"resume": "/nowhere"}, "/nowhere"),
    ({"resume": 3}, "resume must be a Run, its state, a folder of checkpoints or one checkpoint. Received: an int"),
    ({"callbacks": 3}, "callbacks must be a function of a Progress, or several. Received: 3"),
    ({"callbacks": [print, None]}, "callbacks must be a function of a Progress, or several"),
    ({"data": (None, np.zeros((4, 1)))}, r"\[fit\] data must have x. Received: None"),
    ({"validation": {"x": np.zeros((4, 6, 2)), "y": None}}, r"\[fit\] validation must have y. Received: None"),
    ({"params": {}}, "must be in params. Received: none of that name. Try: the parameters of this model, as its init gives them"),
    ({"params": 3}, "must be in params. Received: none of that name. Try: the parameters of this model, as its init gives them"),
    ({"early_stopping": hl.EarlyStopping(-3)}, "patience must not be negative. Received: -3."),
])  # fmt: skip
def test_errors(data, change, message):
    arguments = {"model": model(), "data": data, "progress": False, **change}
    with pytest.raises(hl.UserError, match=message):
        hl.fit(arguments.pop("model"), arguments.pop("data"), **arguments)


def test_evaluates_on_data_of_its_own(rng):
    x, y = rng.normal(size=(50, 6, 2)), rng.normal(size=(50, 1))
    lengths, weights = rng.integers(1, 7, size=50), rng.uniform(0.5, 2, size=50)
    network = hl.nn.Sequential(hl.nn.LSTM(2, 4), hl.nn.Last(), hl.nn.BatchNorm(4), hl.nn.Linear(4, 1))
    run = hl.fit(network, (x, y), metric=hl.metrics.RMSE(), epochs=1, progress=False)
    error = run.predict(x).numpy() - y.astype(np.float32)
    assert run.evaluate((x, y)) == pytest.approx(np.sqrt(np.mean(np.square(error, dtype=np.float64))), rel=1e-6)
    assert run.evaluate((x, y), metric=hl.metrics.MAE()) == pytest.approx(np.mean(np.abs(error, dtype=np.float64)), rel=1e-6)
    assert run.evaluate((x, y), metric=hl.losses.MSE()) == pytest.approx(np.mean(np.square(error, dtype=np.float64)), rel=1e-6)
    data = {"x": x, "y": y, "lengths": lengths, "sample_weights": weights}
    error = run.predict(x, lengths=lengths).numpy() - y
    expected = np.average(np.abs(error)[:, 0], weights=weights)
    assert hl.evaluate(network, run.params, data, buffers=run.buffers) == pytest.approx(expected, rel=1e-5)
    # What fit says of the validation is what evaluate says of it.
    held = {name: part[45:] for name, part in data.items()}
    again = hl.fit(network, {name: part[:45] for name, part in data.items()}, validation=held, epochs=2, progress=False)
    assert again.evaluate(held) == again.best_validation
    labels = hl.fit(hl.nn.Linear(3, 2), (rng.normal(size=(40, 3)), np.arange(40) % 2), loss=hl.losses.CrossEntropy(), epochs=1, progress=False)
    assert 0 <= labels.evaluate((rng.normal(size=(10, 3)), np.arange(10) % 2), metric=hl.metrics.Accuracy()) <= 1
    for call, message in (
        (lambda: hl.evaluate(3, run.params, (x, y)), r"\[evaluate\] the model must be a layer of hl.nn. Received: an int"),
        (lambda: hl.evaluate(network, run.params, 3), r"\[evaluate\] data must be \(x, y\), a dict"),
        (lambda: hl.evaluate(network, run.params, (x, None)), r"\[evaluate\] data must have y. Received: None"),
        (lambda: hl.evaluate(network, run.params, (x, y[:3])), "targets"),
        (lambda: hl.evaluate(network, run.params, (x, y), metric="mae"), r"\[evaluate\] the metric must be one of hotloop.metrics. Received: 'mae'. Try: hl.metrics.MAE\(\)"),
        (lambda: hl.evaluate(network, None, (x, y)), r"params must be a dict as model.init\(seed\) gives it. Received: None"),
        (lambda: hl.predict(network, {}, x), "0.weight_ih_l0 is missing"),
    ):
        with pytest.raises(hl.UserError, match=message):
            call()


def test_labels_and_weights_of_classes(rng):
    x, y = rng.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    valid = (x, y)

    def fit(y, **more):
        data = y if isinstance(y, dict) else (x, y)
        return hl.fit(hl.nn.Linear(3, 2), data, validation=valid, epochs=1, loss=hl.losses.CrossEntropy(), metric=hl.metrics.Accuracy(), progress=False, **more)

    late = np.where(np.arange(40) == 33, 2, y)
    for labels, received in ((late, "2 of training sample 33"), (y - 1, "-1 of training sample 0"), (np.full(40, 7), "7 of training sample 0")):
        with pytest.raises(hl.UserError, match=rf"\[fit\] a target must be a class index, a whole number from 0 and below 2. Received: {received}"):
            fit(labels)
    for weights, message in (
        ([1.0, 1.0, 1.0], r"one weight for each of the 2 classes. Received: f32\[3\]"),
        ([1.0, -1.0], "class_weights must not be negative. Received: -1"),
        ([1.0, np.nan], "class_weights must not be negative. Received: nan"),
        ([1.0, np.inf], "class_weights must be finite"),
    ):
        with pytest.raises(hl.UserError, match=message):
            fit(y, class_weights=np.array(weights, np.float32))
    assert fit(y, class_weights=np.array([1.0, 0.0], np.float32)).status == "finished"


def test_targets_outside_of_a_losss_domain_are_refused(rng):
    x = rng.normal(size=(40, 3)).astype(np.float32)
    y = (x[:, :1] > 0).astype(np.float32)
    options = {"epochs": 1, "validation": 0, "progress": False}
    for loss, bad, message in (
        (hl.losses.BinaryCrossEntropy(), 3.0, "a target of binary_cross_entropy must be from 0 to 1. Received: 3 of training sample 7"),
        (hl.losses.Poisson(), -2.0, "a target of poisson must be at least 0. Received: -2 of training sample 7"),
    ):
        wrong = y.copy()
        wrong[7] = bad
        with pytest.raises(hl.UserError, match=rf"\[fit\] {message}"):
            hl.fit(hl.nn.Linear(3, 1), (x, wrong), loss=loss, **options)
        # A sample of weight 0 may be anything.
        data = {"x": x, "y": wrong, "sample_weights": (np.arange(40) != 7).astype(np.float32)}
        assert hl.fit(hl.nn.Linear(3, 1), data, loss=loss, **options).status == "finished"


def test_one_output_takes_numbers_of_two_classes(rng):
    x = rng.normal(size=(40, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    options = {"loss": hl.losses.BinaryCrossEntropy(), "validation": 0, "epochs": 2, "seed": 0, "progress": False}
    run = hl.fit(hl.nn.Linear(3, 1), (x, y), **options)
    same = hl.fit(hl.nn.Linear(3, 1), (x, y[:, None].astype(np.float32)), **options)
    assert np.array_equal(run.params["weight"], same.params["weight"])
    assert run.evaluate((x, y), metric=hl.metrics.Accuracy()) == same.evaluate((x, y[:, None].astype(np.float32)), metric=hl.metrics.Accuracy())
    with pytest.raises(hl.UserError, match=r"a target must be a class index, a whole number from 0 and below 2. Received: 2"):
        hl.fit(hl.nn.Linear(3, 1), (x, y + 1), **options)


def test_labels_of_a_validation_by_the_loss(rng):
    x, y = rng.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    late = np.where(np.arange(40) == 33, 2, y)
    options = {"epochs": 1, "loss": hl.losses.CrossEntropy(), "progress": False}
    with pytest.raises(hl.UserError, match=r"\[cross_entropy\] a target must be a class index, a whole number from 0 and below 2. Received: 2. Try: labels counted from 0"):
        hl.fit(hl.nn.Linear(3, 2), (x, y), validation=(x, late), **options)
    unweighted = {"x": x, "y": late, "sample_weights": (late < 2).astype(np.float32)}
    assert hl.fit(hl.nn.Linear(3, 2), {"x": x, "y": y, "sample_weights": np.ones(40, np.float32)}, validation=unweighted, **options).status == "finished"
    shares = np.eye(2, dtype=np.float32)[y]
    assert hl.fit(hl.nn.Linear(3, 2), (x, shares), validation=(x, shares), **options).status == "finished"


def test_labels_beyond_the_length_of_a_sequence_do_not_count(rng):
    x, y = rng.normal(size=(40, 5, 3)).astype(np.float32), rng.integers(0, 2, (40, 5))
    data = {"x": x, "y": np.where(np.arange(5) < 3, y, 9), "lengths": np.full(40, 3)}
    options = {"loss": hl.losses.CrossEntropy(), "metric": hl.metrics.Accuracy(), "epochs": 1, "progress": False}
    assert hl.fit(hl.nn.Linear(3, 2), data, **options).status == "finished"
    with pytest.raises(hl.UserError, match="9 of training sample 0"):
        hl.fit(hl.nn.Linear(3, 2), data | {"lengths": np.full(40, 4)}, **options)


def test_targets_of_another_shape_say_so(data):
    x, y = data
    with pytest.raises(hl.UserError, match=r"Received: f32\[32,1\] and f32\[32\]"):
        hl.fit(model(), (x, y[:, 0]), progress=False)


def test_progress_is_plain_text_off_a_terminal(data, capsys):
    hl.fit(model(), data, epochs=2, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("epoch 1/2  loss ") and "mae" in lines[0]


def test_files(tmp_path):
    m = model()
    p = m.init(0)
    path = tmp_path / "model.safetensors"
    hl.save(path, p, {"note": "x"})
    assert same(hl.load(path, like=p), p)
    tree, metadata = hl.load(path, with_metadata=True)
    assert sorted(tree) == ["0", "2"] and metadata == {"note": "x"}
    with pytest.raises(hl.UserError, match="0.weight_hh_l0 is float32.*wanted.*; .*2.bias is left over|is missing"):
        hl.load(path, like=hl.nn.Sequential(hl.nn.LSTM(2, 4), hl.nn.Last(), hl.nn.Linear(4, 1)).init(0) | {"3": {"b": p["2"]["bias"]}})


def test_files_of_running_means(tmp_path, data):
    m = hl.nn.Sequential(hl.nn.GRU(2, 3), hl.nn.BatchNorm(3), hl.nn.Last(), hl.nn.Linear(3, 1))
    run = hl.fit(m, data, epochs=1)
    path = tmp_path / "model.safetensors"
    hl.save(path, run.params, buffers=run.buffers)
    params, buffers = hl.load(path, like=m.init(), buffers=m.init_buffers())
    assert same(params, run.params) and same(buffers, run.buffers)
    assert same(hl.load(path)["1"], run.params["1"] | run.buffers["1"])
    with pytest.raises(hl.UserError, match=r"1.running_mean is left over.*Try: buffers=model.init_buffers\(\)"):
        hl.load(path, like=m.init())
    with pytest.raises(hl.UserError, match="Received: no `like`"):
        hl.load(path, buffers=m.init_buffers())


def test_devices():
    cpu, *gpus = hl.devices()
    assert cpu["kind"] == "cpu" and cpu["cores"] >= 1
    for gpu in gpus:
        assert gpu["kind"] == "cuda" and gpu["name"] and len(gpu["capability"]) == 2
        assert gpu["multiprocessors"] >= 1 and gpu["memory_bytes"] > 1e9 and "NVRTC" in gpu["versions"]


def test_without_a_gpu(monkeypatch):
    monkeypatch.setenv("HOTLOOP_CUDA", "off")
    assert [d["kind"] for d in hl.devices()] == ["cpu"]
    message = 'device cuda needs a CUDA device. Received: HOTLOOP_CUDA=off hides it. Try: device="auto" or "cpu".'
    x, y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)
    with pytest.raises(hl.UserError, match=message):
        hl.jit(hl.tanh, device="cuda")(x)
    with pytest.raises(hl.UserError, match=message):
        hl.fit(hl.nn.Linear(3, 1), (x, y), validation=0, device="cuda")


def test_a_loss_is_a_metric_too():
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    y = (x.sum(1, keepdims=True) + 0.1).astype(np.float32)
    model = hl.nn.Linear(3, 1)
    values = []
    for metric in (hl.metrics.MSE(), hl.losses.MSE(), lambda p, t: ((p - t) ** 2).mean()):
        run = hl.fit(model, (x[:40], y[:40]), validation=(x[40:], y[40:]), metric=metric, epochs=3, batch_size=20, seed=1)
        values.append([record.validation for record in run.history])
    np.testing.assert_allclose(values[1], values[0], rtol=1e-6)
    np.testing.assert_allclose(values[2], values[0], rtol=1e-6)
    run = hl.fit(model, (x[:40], y[:40]), validation=(x[40:], y[40:]), metric=hl.losses.Huber(), epochs=1, batch_size=20)
    expected = hl.losses.Huber()(model.apply(run.params, x[40:]), y[40:])
    np.testing.assert_allclose(run.history[0].validation, expected, rtol=1e-5)


def test_several_metrics(rng, tmp_path):
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(60, 1))
    held, options = (x[40:], y[40:]), {"batch_size": 20, "seed": 1, "progress": False}
    several = {"mae": hl.metrics.MAE(), "rmse": hl.metrics.RMSE(), "val_loss": hl.losses.Huber()}
    network, seen = hl.nn.Linear(3, 1), []
    run = hl.fit(network, (x[:40], y[:40]), validation=held, metric=several, epochs=3, callbacks=lambda at: seen.append(at.record), checkpoints=tmp_path, **options)
    one = hl.fit(network, (x[:40], y[:40]), validation=held, metric=hl.metrics.MAE(), epochs=3, **options)
    # The first one chooses, and nothing of the training depends on the others.
    assert [r.validation for r in run.history] == [r.validation for r in one.history] and run.best_epoch == one.best_epoch
    assert [r.metrics for r in one.history] == [{"mae": r.validation} for r in one.history]
    assert [list(r.metrics) for r in run.history] == [["mae", "rmse", "val_loss"]] * 3
    assert [r for r in seen if r] == run.history == pickle.loads(pickle.dumps(run)).history
    # What is recorded is what evaluate says of the same parameters, by the same names.
    best = run.history[run.best_epoch - 1]
    assert run.evaluate(held) == best.metrics and best.metrics["mae"] == best.validation
    assert run.evaluate(held, metric=hl.metrics.RMSE()) == best.metrics["rmse"]
    assert hl.evaluate(network, run.params, held, metric=[hl.metrics.RMSE(), hl.metrics.MAE()]) == {"rmse": best.metrics["rmse"], "mae": best.validation}
    # A run that goes on keeps what was recorded; from there on other metrics may be.
    rest = hl.fit(network, (x[:40], y[:40]), validation=held, metric=[hl.metrics.MAE(), hl.metrics.R2()], epochs=4, resume=tmp_path, **options)
    assert rest.history[:3] == run.history and list(rest.history[3].metrics) == ["mae", "r2"]
    # Of outputs that are a distribution each metric compares what it takes.
    loss = hl.losses.Gaussian()
    wide = hl.fit(hl.nn.Linear(3, 2), (x[:40], y[:40]), validation=held, loss=loss, metric={"val_loss": loss, "mae": hl.metrics.MAE()}, epochs=1, **options)
    for name, metric in (("val_loss", loss), ("mae", hl.metrics.MAE())):
        assert wide.history[0].metrics[name] == wide.evaluate(held, metric=metric)
    assert hl.fit(network, (x, y), validation=0, metric=several, epochs=1, **options).history[0].metrics == {}


def test_several_metrics_are_shown(rng, capsys):
    data = rng.normal(size=(60, 3)), rng.normal(size=(60, 1))
    hl.fit(hl.nn.Linear(3, 1), data, metric=[hl.metrics.MAE(), hl.metrics.R2()], epochs=1, progress=True)
    assert re.search(r"epoch 1/1  loss [\d.]+  mae [\d.]+  r2 [-\d.]+  [\d.]+ s \*", capsys.readouterr().err)


@pytest.mark.parametrize(("metric", "message"), [
    ({}, r"several metrics must each have a name of their own. Received: \[\]. Try: {'mae': hl.metrics.MAE\(\), 'val_loss': hl.losses.MSE\(\)}"),
    ([hl.metrics.MSE(), hl.losses.MSE()], r"must each have a name of their own. Received: \['mse', 'mse'\]"),
    ({1: hl.metrics.MAE()}, r"must each have a name of their own. Received: \[1\]"),
    ({"mae": hl.metrics.MAE(), "rmse": "rmse"}, r"the metric must be one of hotloop.metrics. Received: 'rmse'. Try: hl.metrics.RMSE\(\)"),
    ([hl.metrics.MAE(), hl.metrics.Accuracy()], r"\[accuracy\]"),
])  # fmt: skip
def test_several_metrics_that_do_not_fit(rng, metric, message):
    with pytest.raises(hl.UserError, match=message):
        hl.fit(hl.nn.Linear(3, 1), (rng.normal(size=(60, 3)), rng.normal(size=(60, 1))), metric=metric, epochs=1, progress=False)


def test_ids_that_have_no_row_are_refused(rng):
    ids, y = rng.integers(0, 9, (40, 5)), np.arange(40) % 2
    model = hl.nn.Sequential(hl.nn.Embedding(9, 4), hl.nn.LSTM(4, 3), hl.nn.Last(), hl.nn.Linear(3, 2))
    train = lambda x, lengths=None: hl.fit(model, {"x": x, "y": y, "lengths": lengths}, loss=hl.losses.CrossEntropy(), epochs=1)  # noqa: E731
    assert train(ids).status == "finished"
    ids[7, 4] = 9
    with pytest.raises(hl.UserError, match=r"an id must be a whole number from 0 and below 9. Received: 9 in training sample 7. Try: .*larger count of Embedding\(count=9"):
        train(ids)
    assert train(ids, np.full(40, 4)).status == "finished"  # beyond the length of its row
    ids[7, 4], ids[38, 0] = 0, -1
    with pytest.raises(hl.UserError, match="Received: -1 in validation sample 2"):
        train(ids)
    column = hl.nn.Sequential(hl.nn.Embedding(9, 4, feature=1), hl.nn.Linear(5, 1))
    with pytest.raises(hl.UserError, match="Received: 9.0 in training sample 3"):
        hl.fit(column, (np.where(np.arange(40)[:, None] == [0, 3], [50.0, 9.0], 1.0), rng.normal(size=(40, 1))), epochs=1)


UNDECAYED = {"SGD": lambda rate: hl.optim.SGD(rate, momentum=0.9), "RMSprop": hl.optim.RMSprop, "Adam": hl.optim.Adam, "clipped": lambda rate: hl.optim.ClipByNorm(hl.optim.Adam(rate), 1.0)}


@pytest.mark.parametrize("optimizer", [*UNDECAYED, "AdamW"])
def test_a_part_of_a_whole_step_is_a_step_of_that_rate(data, optimizer):
    """What docs/python.md says of a rate of one's own."""
    make, rates = UNDECAYED.get(optimizer, hl.optim.AdamW), hl.optim.Schedule(1e-2, hl.optim.Cosine(20))
    net, loss, whole, own = model(), hl.losses.MSE(), make(1.0), make(rates)

    @hl.jit
    def steps(params, other, state, other_state, rate):
        slopes = hl.grad(lambda p: loss(net(p, data[0]), data[1]))
        wanted, state = own.update(slopes(params), state, params)
        there, other_state = whole.update(slopes(other), other_state, other)
        return wanted, hl.tree.map(lambda p, q: p + rate * (q - p), other, there), state, other_state

    wanted = got = net.init(0)
    state, other_state = own.init(wanted), whole.init(got)
    for i in range(20):
        wanted, got, state, other_state = steps(wanted, got, state, other_state, float(rates(i)))
    for a, b, start in zip(hl.tree.leaves(wanted), hl.tree.leaves(got), hl.tree.leaves(net.init(0)), strict=True):
        np.testing.assert_allclose(b, a, atol=2e-5)
        assert np.abs(np.asarray(a) - start).max() > 1e-3


@pytest.mark.parametrize("optimizer", UNDECAYED)
def test_what_has_no_gradient_stays(data, optimizer):
    class Tuned(hl.nn.Module):
        def __init__(self):
            self.body, self.head = hl.nn.LSTM(2, 8), hl.nn.Linear(8, 1)

        def apply(self, params, x, key=None):
            return self.head(params["head"], self.body(hl.stop_gradient(params["body"]), x)[:, -1])

    start = Tuned().init(0)
    run = hl.fit(Tuned(), data, params=start, optimizer=UNDECAYED[optimizer](1e-2), epochs=2)
    assert all(np.array_equal(run.params["body"][name], start["body"][name]) for name in start["body"])
    assert not np.array_equal(run.params["head"]["weight"], start["head"]["weight"])
    assert "1 loop," in run.explain().partition("validation")[0]  # forward alone


def test_progress_tells_the_last_step_of_each_call(data):
    seen = []
    run = hl.fit(model(), data, batch_size=16, epochs=1, steps_per_call=4, callbacks=seen.append)
    assert [(at.step, at.num_steps, at.epoch_done, at.params is not None) for at in seen] == [(4, 6, False, False), (5, 6, False, False), (6, 6, False, False), (6, 6, True, True)]
    assert run.history == [seen[-1].record]
