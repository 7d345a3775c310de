"""The estimators, by scikit-learn's own checks (in the optional group: it needs scikit-learn)."""

import pickle

import hotloop as hl
import numpy as np
import pytest

pytest.importorskip("sklearn")
from hotloop.sklearn import SequenceClassifier, SequenceRegressor  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.utils.estimator_checks import (  # noqa: E402
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

# Samples in random batches: scikit-learn's own estimators of that kind do not pass this one either, which compares to seven digits.
BATCHES = "a sample of weight 2 and the same sample twice make different batches: see test_a_weight_is_a_repetition"


def not_applicable(estimator):
    return {name: BATCHES for name in ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([SequenceRegressor(random_state=0), SequenceClassifier(random_state=0)], expected_failed_checks=not_applicable)
def test_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [SequenceRegressor, SequenceClassifier])
def test_a_weight_is_a_repetition(make):
    """With one batch of all samples scikit-learn's check applies, and passes; rounding grows with the epochs."""
    check_sample_weight_equivalence_on_dense_data(make.__name__, make(random_state=0, batch_size=None, dtype="float64", epochs=20))


def test_sequences_lengths_and_several_outputs(rng):
    x = rng.normal(size=(200, 8, 3))
    lengths = rng.integers(1, 9, 200)
    last = x[np.arange(200), lengths - 1]
    y = np.stack([last[:, 0] + last[:, 1], 100 * last[:, 2]], 1)
    model = SequenceRegressor(epochs=120, random_state=1).fit(x, y, lengths=lengths)
    assert model.predict(x, lengths=lengths).shape == (200, 2)
    from sklearn.metrics import r2_score

    assert r2_score(y, model.predict(x, lengths=lengths)) > 0.8
    padded = x.copy()
    padded[np.arange(8) >= lengths[:, None]] = 1e6
    np.testing.assert_array_equal(model.predict(padded, lengths=lengths), model.predict(x, lengths=lengths))
    with pytest.raises(ValueError, match=r"X must be \(samples, time, 3\)"):
        model.predict(x[:, :, 0])


def test_a_model_of_ones_own_in_searches_and_pickles(rng):
    x = rng.normal(size=(120, 6, 2))
    label = np.where(x[:, :, 0].sum(1) > 0, "up", "down")
    make = SequenceClassifier(model=lambda features, outputs: hl.nn.Sequential(hl.nn.GRU(features, 8), hl.nn.Last(), hl.nn.Linear(8, outputs)), random_state=0, epochs=30)
    assert cross_val_score(make, x, label, cv=3).mean() > 0.8
    fixed = hl.nn.Sequential(hl.nn.GRU(2, 4), hl.nn.Last(), hl.nn.Linear(4, 2))
    search = GridSearchCV(SequenceClassifier(model=fixed, random_state=0), {"epochs": [1, 20]}, cv=2).fit(x, label)
    assert search.best_params_ == {"epochs": 20}
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(x), search.best_estimator_.predict_proba(x))
    assert clone(search.best_estimator_).model is not None


def test_searches_over_optimisers_and_losses(rng):
    x = rng.normal(size=(120, 6, 2))
    y = x[:, :, 0].sum(1)
    model = SequenceRegressor(loss=hl.losses.Huber(), random_state=0, epochs=10)
    search = GridSearchCV(model, {"optimizer": [hl.optim.Adam(1e-9), hl.optim.ClipByNorm(hl.optim.Adam(1e-2))]}, cv=2).fit(x, y)
    assert repr(search.best_params_["optimizer"]) == "ClipByNorm(inner=Adam(learning_rate=0.01))"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(search)).predict(x), search.predict(x))


def test_weights_count_in_the_scales(rng):
    """A sample of weight 0 is as good as absent, one of weight 2 is there twice; the trainings differ by their batches alone."""
    x, weights = rng.normal(size=(40, 6, 2)), np.ones(40)
    y = x[:, :, 0].sum(1)
    x[3], y[3], weights[3], weights[5] = 1e6, -1e6, 0, 2
    twice = np.repeat(np.arange(40), weights.astype(int))
    for make in (SequenceRegressor, SequenceClassifier):
        target = y if make is SequenceRegressor else y > 0
        weighted = make(epochs=1, random_state=0).fit(x, target, sample_weight=weights)
        repeated = make(epochs=1, random_state=0).fit(x[twice], target[twice])
        np.testing.assert_allclose(weighted._x_mean, repeated._x_mean, rtol=1e-12)
        np.testing.assert_allclose(weighted._x_std, repeated._x_std, rtol=1e-12)
        if make is SequenceRegressor:
            np.testing.assert_allclose([weighted._y_mean, weighted._y_std], [repeated._y_mean, repeated._y_std], rtol=1e-12)


def test_a_perceptron_of_a_tables_rows(rng):
    x = rng.normal(size=(60, 5))
    layers = hl.nn.Linear(5, 8), hl.nn.Tanh(), hl.nn.Linear(8, 1)
    with pytest.raises(hl.UserError, match=r"must have 5 features.*A table of two axes is series of one feature: hl.nn.Flatten\(\) before Linear\(inputs=5, units=8\)"):
        SequenceRegressor(hl.nn.Sequential(*layers), epochs=1).fit(x, x[:, 0])
    model = SequenceRegressor(hl.nn.Sequential(hl.nn.Flatten(), *layers), epochs=60, random_state=0).fit(x, x.sum(1))
    assert model.score(x, x.sum(1)) > 0.8
    import hotloop.sklearn

    with pytest.raises(AttributeError, match="has no attribute 'Regressor'. Try: hotloop.sklearn.SequenceRegressor"):
        hotloop.sklearn.Regressor  # noqa: B018


def test_losses_of_distributions(rng):
    x = rng.uniform(-1, 1, size=(400, 4))
    y = 50 + 10 * x.mean(axis=1) + rng.normal(size=400)
    settings = {"hidden": 8, "epochs": 40, "random_state": 0}
    gaussian = SequenceRegressor(loss=hl.losses.Gaussian(), **settings).fit(x, y)
    said = gaussian.predict_statistics(x)
    assert list(said) == ["mean", "std", "q10", "q90"] and said["std"].shape == (400,)
    assert np.array_equal(gaussian.predict(x), said["mean"]) and gaussian.score(x, y) > 0.8
    assert 0.7 < said["std"].mean() < 2 and 0.7 < ((said["q10"] < y) & (y < said["q90"])).mean() < 0.95
    both = SequenceRegressor(loss=hl.losses.Quantile([0.1, 0.5, 0.9]), **settings).fit(x, np.stack([y, -y], axis=1))
    assert both.predict(x).shape == (400, 2) and both.predict_statistics(x)["q90"].shape == (400, 2)
    counts = rng.poisson(np.exp(1 + x[:, -1]))
    poisson = SequenceRegressor(loss=hl.losses.Poisson(), **settings).fit(x, counts)
    assert poisson.predict(x).min() > 0 and np.corrcoef(poisson.predict(x), np.exp(x[:, -1]))[0, 1] > 0.9
    assert list(SequenceRegressor(epochs=1).fit(x, y).predict_statistics(x)) == ["prediction"]
