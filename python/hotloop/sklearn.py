"""Estimators for scikit-learn: sequences in, numbers or classes out. Needs scikit-learn.

    from hotloop.sklearn import SequenceRegressor

    search = GridSearchCV(SequenceRegressor(epochs=20), {"hidden": [16, 32]})
    search.fit(x, y)            # x (samples, time, features), y (samples,) or (samples, outputs)

A table of two axes, (samples, time), is series of one feature. So the estimators work wherever scikit-learn's do.
"""

import numpy

from hotloop import losses, metrics, nn, optim
from hotloop._fit import EarlyStopping, fit, predict
from hotloop._names import ESTIMATORS, absent

try:
    import sklearn.base
    import sklearn.exceptions
    import sklearn.utils
    import sklearn.utils.multiclass
    import sklearn.utils.validation
except ImportError:
    raise ImportError("[hotloop.sklearn] scikit-learn is needed, and is not installed. Try: pip install scikit-learn") from None

__all__ = ["SequenceClassifier", "SequenceRegressor"]


class _Estimator(sklearn.base.BaseEstimator):
    """What both share: the settings, the standardisation, and the training."""

    def __init__(
        self,
        model=None,
        *,
        hidden=32,
        layers=1,
        optimizer=None,
        loss=None,
        batch_size=32,
        epochs=100,
        validation_fraction=0.0,
        patience=0,
        standardize=True,
        dtype="float32",
        random_state=None,
        threads=None,
        verbose=False,
    ):
        self.model = model
        self.hidden = hidden
        self.layers = layers
        self.optimizer = optimizer
        self.loss = loss
        self.batch_size = batch_size
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.standardize = standardize
        self.dtype = dtype
        self.random_state = random_state
        self.threads = threads
        self.verbose = verbose

    # ---- what comes in

    def _sequences(self, X, *, reset):
        """X as (samples, time, features), checked."""
        X = sklearn.utils.validation.validate_data(self, X, reset=reset, dtype="numeric", allow_nd=True, ensure_min_samples=1)
        if X.ndim > 3:
            raise ValueError(f"[{type(self).__name__}] X must be (samples, time, features) or (samples, time). Received: shape {X.shape}.")
        axes = X.shape[2:]
        if reset:
            self._feature_axes = axes
        elif axes != self._feature_axes:
            raise ValueError(f"[{type(self).__name__}] X must be (samples, time{''.join(f', {n}' for n in self._feature_axes)}). Received: shape {X.shape}.")
        return numpy.asarray(X, numpy.float64).reshape(X.shape[0], X.shape[1], *(axes or (1,)))

    def _scaled(self, x):
        return ((x - self._x_mean) / self._x_std).astype(self.dtype)

    def _make_model(self, features, outputs):
        if self.model is None:
            return nn.Sequential(nn.LSTM(features, self.hidden, self.layers), nn.Last(), nn.Linear(self.hidden, outputs))
        model = self.model if isinstance(self.model, nn.Module) else self.model(features, outputs)
        if not isinstance(model, nn.Module):
            raise TypeError(f"[{type(self).__name__}] model must be a layer of hl.nn, or a function (features, outputs) -> layer. Received: {model!r}.")
        return model

    # ---- training

    def _train(self, x, y, lengths, weights, outputs, loss, metric):
        """Trains on standardised x and y."""
        seed = int(sklearn.utils.check_random_state(self.random_state).randint(2**31 - 1))
        self._outputs = outputs
        self._rows = {"x": x, "y": y}
        if lengths is not None:
            self._rows["lengths"] = numpy.asarray(lengths, numpy.int32)
        if weights is not None:
            self._rows["sample_weights"] = weights.astype(self.dtype)
        training, held = self._held_out(seed)
        del self._rows
        model = self._make_model(x.shape[2], outputs)
        run = self._fit(
            model, training, validation=held, loss=loss, metric=metric, optimizer=self.optimizer or optim.Adam(3e-3), batch_size=self.batch_size or len(training["x"]),
            epochs=self.epochs, seed=seed, early_stopping=EarlyStopping(self.patience) if self.patience else None, threads=self.threads,
            progress=bool(self.verbose), dtype=self.dtype,
        )  # fmt: skip
        if run.status == "non_finite_loss":
            raise FloatingPointError(run.message)
        copy = lambda tree: {k: copy(v) if isinstance(v, dict) else numpy.array(v) for k, v in tree.items()}  # noqa: E731
        self.model_, self.params_, self.buffers_, self.history_ = model, copy(run.params), copy(run.buffers), run.history
        self.n_iter_ = len(run.history)
        return self

    def _fit(self, model, *arguments, **settings):
        try:
            return fit(model, *arguments, **settings)
        except ValueError as error:
            if self._feature_axes or not isinstance(model, nn.Sequential) or not isinstance(model.layers[0], nn.Linear):
                raise
            raise type(error)(f"{error} A table of two axes is series of one feature: hl.nn.Flatten() before {model.layers[0]!r} takes a row's numbers together.") from None

    def _held_out(self, seed):
        """The rows to train on and those that choose the epoch; with too few rows, or a fraction of 0, both are all of them."""
        count = len(self._rows["x"])
        held = int(round(count * self.validation_fraction))
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"[{type(self).__name__}] validation_fraction must be at least 0 and less than 1. Received: {self.validation_fraction}.")
        if not 0 < held < count:
            return self._rows, self._rows
        order = numpy.random.default_rng(seed).permutation(count)
        part = lambda rows: {name: values[rows] for name, values in self._rows.items()}  # noqa: E731
        return part(numpy.sort(order[held:])), part(numpy.sort(order[:held]))

    def _raw(self, X, lengths):
        sklearn.utils.validation.check_is_fitted(self, "params_")
        x = self._scaled(self._sequences(X, reset=False))
        return numpy.array(predict(self.model_, self.params_, x, lengths=lengths, buffers=self.buffers_, threads=self.threads))

    def _weights(self, sample_weight, x):
        return None if sample_weight is None else sklearn.utils.validation._check_sample_weight(sample_weight, x, dtype=numpy.float64)

    def _scales(self, values, weights):
        """Mean and deviation of rows, weighted as the samples are; 0 and 1 without standardisation."""
        if not self.standardize or (weights is not None and not weights.sum() > 0):
            return numpy.zeros(values.shape[1]), numpy.ones(values.shape[1])
        mean = numpy.average(values, axis=0, weights=weights)
        std = numpy.sqrt(numpy.average((values - mean) ** 2, axis=0, weights=weights))
        return mean, numpy.where(std > 0, std, 1.0)

    def _fit_scales(self, x, lengths, weights):
        there = numpy.ones(x.shape[:2], bool) if lengths is None else numpy.arange(x.shape[1]) < numpy.asarray(lengths)[:, None]
        each = None if weights is None else numpy.broadcast_to(weights[:, None], there.shape)[there]
        self._x_mean, self._x_std = self._scales(x[there], each)


_SETTINGS = """
    model: a layer of hl.nn that takes (samples, time, features) and gives (samples, outputs), or a function (features, outputs) ->
        layer. None: an LSTM of `hidden` units and `layers` layers, its last step, and a linear layer.
    optimizer, loss: of hl.optim and hl.losses; None: Adam(3e-3), and {loss}.
    batch_size: samples a step, in random order; None: all of them. A sample of weight 2 and the same sample twice fall into different
        batches, so scikit-learn's check that they train alike applies with None (and passes, in float64), not with batches.
    dtype: of the computation, "float32" or "float64".
    validation_fraction: of the samples, drawn at random, that do not train but choose the epoch whose parameters are kept; 0: all samples
        do both.
    patience: epochs without an improvement that end the training; 0: none do.
    standardize: {standardize}.
    random_state: of the initial parameters, the held-out samples and the order of the others.

    After fit: model_, params_ and buffers_ (NumPy arrays with PyTorch's names), history_, n_iter_, n_features_in_{more}.
"""


class SequenceRegressor(sklearn.base.MultiOutputMixin, sklearn.base.RegressorMixin, _Estimator):
    __doc__ = """Numbers from sequences: fit(X, y), X (samples, time, features) or (samples, time), y (samples,) or (samples, outputs).
""" + _SETTINGS.format(loss="MSE", standardize="features and targets to mean 0 and deviation 1 over the samples", more="")

    def fit(self, X, y, sample_weight=None, *, lengths=None):
        """Trains. lengths: (samples,), the steps of each sequence that are there."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        x = self._sequences(X, reset=True)
        y = sklearn.utils.check_array(y, ensure_2d=False, dtype=numpy.float64, input_name="y")
        sklearn.utils.check_consistent_length(x, y)
        if y.ndim == 2 and y.shape[1] == 1:
            import warnings

            warnings.warn("A column-vector y was passed when a 1d array was expected", sklearn.exceptions.DataConversionWarning, stacklevel=2)
            y = y[:, 0]
        self._y_axes = y.shape[1:]
        y = y.reshape(len(y), -1)
        weights = self._weights(sample_weight, x)
        self._fit_scales(x, lengths, weights)
        num_outputs = self._distribution()[0]
        bounded = isinstance(self.loss, losses.Loss) and self.loss._loss.has_bounded_targets
        self._y_mean, self._y_std = (numpy.zeros(y.shape[1]), numpy.ones(y.shape[1])) if bounded else self._scales(y, weights)
        z = ((y - self._y_mean) / self._y_std).astype(self.dtype)
        return self._train(self._scaled(x), z, lengths, weights, num_outputs * z.shape[1], self.loss or losses.MSE(), metrics.MSE())

    def _distribution(self):
        """Of the loss: outputs for each number of y, the statistic that stands for it, and which statistics are widths."""
        return (isinstance(self.loss, losses.Loss) and self.loss._loss.distribution) or (1, 0, [False])

    def predict(self, X, *, lengths=None):
        """(samples,), or (samples, outputs) if y was. With a loss whose outputs are a distribution or quantiles: what stands for y."""
        return list(self.predict_statistics(X, lengths=lengths).values())[self._distribution()[1]]

    def predict_statistics(self, X, *, lengths=None):
        """All that a loss says of y, by name, each as predict gives it: of hl.losses.Gaussian "mean", "std", "q10" and "q90"; {"prediction": ...} of a loss of
        one number, or of a function."""
        raw, widths = self._raw(X, lengths), self._distribution()[2]
        said = self.loss.statistics(raw) if isinstance(self.loss, losses.Loss) else {"prediction": raw}
        scaled = (numpy.asarray(value) * self._y_std + (0 if width else self._y_mean) for value, width in zip(said.values(), widths, strict=True))
        return {name: value.reshape(len(value), *self._y_axes) for name, value in zip(said, scaled, strict=True)}


class SequenceClassifier(sklearn.base.ClassifierMixin, _Estimator):
    __doc__ = """Classes of sequences: fit(X, y), X (samples, time, features) or (samples, time), y (samples,) labels.
""" + _SETTINGS.format(loss="CrossEntropy of logits", standardize="features to mean 0 and deviation 1 over the samples", more=", classes_")

    def fit(self, X, y, sample_weight=None, *, lengths=None):
        """Trains. lengths: (samples,), the steps of each sequence that are there."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        x = self._sequences(X, reset=True)
        y = sklearn.utils.column_or_1d(y, warn=True)
        sklearn.utils.multiclass.check_classification_targets(y)
        sklearn.utils.check_consistent_length(x, y)
        self.classes_, indices = numpy.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"[{type(self).__name__}] y must have at least two classes. Received: one class, {self.classes_[0]!r}.")
        weights = self._weights(sample_weight, x)
        self._fit_scales(x, lengths, weights)
        loss = self.loss or losses.CrossEntropy()
        return self._train(self._scaled(x), indices.astype(numpy.int32), lengths, weights, len(self.classes_), loss, metrics.Accuracy())

    def predict_proba(self, X, *, lengths=None):
        """(samples, classes), rows with sum 1: the softmax of the model's outputs."""
        logits = self._raw(X, lengths).astype(numpy.float64)
        p = numpy.exp(logits - logits.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)

    def predict(self, X, *, lengths=None):
        """The likeliest class of each sequence."""
        best = self._raw(X, lengths).argmax(1)
        return self.classes_[best]


def __dir__():
    return __all__


def __getattr__(name):
    raise absent("hotloop.sklearn", name, __all__, ESTIMATORS)
