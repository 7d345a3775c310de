"""Losses whose outputs are quantiles or a distribution's parameters: statistics, fit, evaluate, pickles."""

import math
import pickle

import hotloop as hl
import numpy as np
import pytest


def model(outputs):
    return hl.nn.Sequential(hl.nn.GRU(1, 8), hl.nn.Last(), hl.nn.Linear(8, outputs))


@pytest.fixture
def data(rng):
    x = rng.uniform(-1, 1, size=(400, 4, 1)).astype(np.float32)
    return x, x.mean(axis=1) + (0.2 * rng.normal(size=(400, 1))).astype(np.float32)


def test_statistics_of_arrays_and_traced(rng):
    outputs = rng.normal(size=(5, 3, 4)).astype(np.float32)  # two numbers at each of three steps
    loss = hl.losses.Gaussian()
    said = loss.statistics(outputs)
    assert list(said) == ["mean", "std", "q10", "q90"] and said["mean"].shape == (5, 3, 2)
    assert np.array_equal(said["mean"], outputs[..., ::2])
    std = np.log1p(np.exp(outputs[..., 1::2])) + 1e-4
    assert np.allclose(said["std"], std, rtol=1e-6)
    assert np.allclose(said["q90"], outputs[..., ::2] + 1.2815516 * std, rtol=1e-5)
    traced = hl.jit(lambda o: hl.sum(loss.statistics(o)["std"]))
    assert np.isclose(traced(outputs), std.sum(), rtol=1e-5)
    slope = hl.grad(lambda o: hl.sum(loss.statistics(o)["std"]))(outputs)
    assert np.allclose(slope[..., 1::2], 1 / (1 + np.exp(-outputs[..., 1::2])), rtol=1e-5) and not np.any(slope[..., ::2])
    assert list(hl.losses.MSE().statistics(outputs)) == ["prediction"]
    assert list(hl.losses.Quantile([0.025, 0.5]).statistics(outputs)) == ["q2_5", "q50"]
    with pytest.raises(hl.UserError, match=r"\[gaussian\] the last axis of a prediction must have 2 outputs .*mean, std, q10, q90"):
        loss.statistics(outputs[..., :3])
    with pytest.raises(hl.UserError, match=r"\[quantile\] quantiles must be numbers with commas between"):
        hl.losses.Quantile([0.1, "many"])


def test_losses_are_the_logarithms_of_densities(rng):
    outputs, t = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))
    at, width = outputs[:, :1], np.log1p(np.exp(outputs[:, 1:])) + 1e-4
    z = (t - at) / width
    gaussian = np.exp(-(z**2) / 2) / (width * math.sqrt(2 * math.pi))
    assert np.isclose(hl.losses.Gaussian()(outputs, t), -np.log(gaussian).mean(), rtol=1e-12)
    student = math.gamma(2.5) / (math.gamma(2) * math.sqrt(4 * math.pi)) * (1 + z**2 / 4) ** -2.5 / width
    assert np.isclose(hl.losses.StudentT(df=4)(outputs, t), -np.log(student).mean(), rtol=1e-12)
    counts = rng.poisson(4, size=(50, 1))
    mean = np.exp(at)
    factorial = np.array([[math.lgamma(c + 1.0)] for c in counts[:, 0]])
    assert np.isclose(hl.losses.Poisson(full=True)(outputs[:, :1], counts), (mean - counts * at + factorial).mean(), rtol=1e-12)
    r = 1 / width
    gammas = np.array([[math.lgamma(c + q) - math.lgamma(q)] for c, q in zip(counts[:, 0], r[:, 0])])
    negative_binomial = factorial - gammas - r * np.log(r / (r + mean)) - counts * np.log(mean / (r + mean))
    assert np.isclose(hl.losses.NegativeBinomial()(outputs, counts), negative_binomial.mean(), rtol=1e-12)
    assert np.isclose(hl.losses.LogCosh()(at, t), np.log(np.cosh(at - t)).mean(), rtol=1e-12)


def test_weights_and_lengths(rng):
    outputs, t = rng.normal(size=(4, 3, 2)), rng.normal(size=(4, 3))
    loss, each = hl.losses.Gaussian(), hl.losses.Gaussian()
    rows = np.array([[each(outputs[i, s][None], t[i, s][None, None]) for s in range(3)] for i in range(4)], dtype=float)
    lengths, weights = np.array([1, 3, 2, 3]), np.array([1.0, 0.5, 2.0, 0.0])
    valid = np.arange(3) < lengths[:, None]
    assert np.isclose(loss(outputs, t, lengths=lengths), rows[valid].mean(), rtol=1e-12)
    assert np.isclose(loss(outputs, t, sample_weights=weights), (rows * weights[:, None]).sum() / (3 * weights.sum()), rtol=1e-12)


def test_fit_judges_what_stands_for_the_target(data):
    x, y = data
    for loss, outputs, point in [(hl.losses.Gaussian(), 2, "mean"), (hl.losses.StudentT(), 2, "median"), (hl.losses.Quantile([0.1, 0.5, 0.9]), 3, "q50")]:
        run = hl.fit(model(outputs), (x, y), loss=loss, optimizer=hl.optim.Adam(1e-2), epochs=15, progress=False)
        held = slice(-40, None)
        said = loss.statistics(run.predict(x[held]))
        assert np.isclose(run.best_validation, np.abs(np.asarray(said[point]) - y[held]).mean(), rtol=1e-5), point
        assert np.isclose(run.evaluate((x[held], y[held])), run.best_validation, rtol=1e-6)
        assert run.evaluate((x[held], y[held]), metric=loss) == pytest.approx(float(loss(run.predict(x[held]), y[held])), rel=1e-5)
        assert np.isclose(hl.evaluate(run.model, run.params, (x[held], y[held]), loss=loss), run.best_validation, rtol=1e-6)
        said = loss.statistics(run.predict(x))
        assert 0.7 < ((np.asarray(said["q10"]) < y) & (y < np.asarray(said["q90"]))).mean() < 0.9, point
        again = pickle.loads(pickle.dumps(run))
        assert again.evaluate((x[held], y[held])) == run.evaluate((x[held], y[held]))
        assert list(pickle.loads(pickle.dumps(loss)).statistics(run.predict(x[:2]))) == list(said)
    with pytest.raises(hl.UserError, match=r"\[mae\] there must be one prediction a target"):
        hl.evaluate(run.model, run.params, (x, y))


def test_counts(rng):
    x = rng.uniform(-1, 1, size=(600, 4, 1)).astype(np.float32)
    rate = np.exp(1 + x[:, -1])
    y = rng.poisson(rate).astype(np.float32)
    run = hl.fit(model(1), (x, y), loss=hl.losses.Poisson(), optimizer=hl.optim.Adam(1e-2), epochs=30, progress=False)
    found = np.asarray(hl.losses.Poisson().statistics(run.predict(x))["mean"])
    assert np.corrcoef(found[:, 0], rate[:, 0])[0, 1] > 0.95
    over = (rng.poisson(rate * rng.gamma(2, 0.5, size=rate.shape))).astype(np.float32)  # dispersion 1 / 2
    loss = hl.losses.NegativeBinomial()
    run = hl.fit(model(2), (x, over), loss=loss, metric=loss, optimizer=hl.optim.Adam(1e-2), epochs=30, progress=False)
    said = loss.statistics(run.predict(x))
    mean, std = np.asarray(said["mean"]), np.asarray(said["std"])
    assert 0.3 < ((std**2 - mean) / mean**2).mean() < 0.75


def test_tables_have_units(rng, tmp_path):
    t = np.arange(200)
    table = {"load": 500 + 100 * np.sin(t / 3) + 5 * rng.normal(size=200), "clock": np.cos(t / 3)}
    samples = hl.data.Samples(table, inputs=["clock"], targets="load", length=4)
    loss = hl.losses.Gaussian()
    run = hl.fit(model(2), samples, loss=loss, epochs=2, progress=False)
    said = loss.statistics(run.predict(samples.test))
    scale = samples.preparation.unscale(np.ones((1, 1)))[0, 0] - samples.preparation.unscale(np.zeros((1, 1)))[0, 0]
    assert np.allclose(samples.preparation.unscale(said["std"], width=True), np.asarray(said["std"], np.float64) * scale, rtol=1e-6)
    with pytest.raises(hl.UserError, match=r"\[unscale\] predictions must be \(samples, 1\).* Try: of a loss with several outputs"):
        samples.preparation.unscale(run.predict(samples.test))
    raw = hl.data.Samples(table, inputs=["clock"], targets="load", length=4, standardize_targets=False)
    assert np.asarray(raw.test.arrays()["y"]).mean() > 300 and abs(np.asarray(raw.train.arrays()["x"]).mean()) < 0.1
    raw.preparation.save(tmp_path / "preparation.json")
    text = (tmp_path / "preparation.json").read_text()
    assert '"standardize_targets": false' in text
    assert np.array_equal(hl.data.Preparation.load(tmp_path / "preparation.json").unscale(np.ones((1, 1))), [[1]])
    (tmp_path / "old.json").write_text(text.replace('"standardize_targets": false,', ""))  # a file of before there was the setting
    assert np.array_equal(hl.data.Preparation.load(tmp_path / "old.json").unscale(np.ones((1, 1))), [[1]])
