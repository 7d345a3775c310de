"""hl.fit: the training loop of the engine. The whole step, forward, backward and optimiser, is one compiled program."""

import contextlib
import math
import os
import sys
import typing
import warnings

import numpy

from hotloop import _core, losses, metrics, nn, optim
from hotloop._inputs import check_samples, is_tree, map_inputs, named_leaves
from hotloop._names import (
    RUNS,
    absent_attribute,
    callers_level,
    checked_call,
    checked_fields,
    checked_instance,
    kind_of,
)
from hotloop.data import Samples


class EpochRecord(typing.NamedTuple):
    """One epoch: mean training loss, validation metric (NaN without a validation), seconds, and all metrics of the validation by name.

    metrics: the first is `validation`; empty without a validation, and of epochs that an older version trained.
    """

    epoch: int
    train_loss: float
    validation: float
    seconds: float
    metrics: dict = {}


class Progress(typing.NamedTuple):
    """Where a fit stands, after each call of the step and after each validation.

    epoch, step: from 1; step is the last one that the call took, of the num_steps of an epoch (its batches, the last of which may be shorter). So
        steps_per_call=10 tells steps 10, 20, ... elapsed_s: since the first step of this process.
    epoch_done: the epoch is validated; then alone record and params (as they are validated and kept; not the buffers) are there, and best says
        whether it is the best so far. The epoch's last step was told before, with epoch_done False.
    """

    epoch: int
    num_epochs: int
    step: int
    num_steps: int
    epoch_done: bool
    elapsed_s: float
    record: EpochRecord | None
    params: dict | None
    best: bool


@checked_fields("hl.EarlyStopping(patience=5, min_delta=0.0)")
class EarlyStopping(typing.NamedTuple):
    """Ends a fit after `patience` epochs in a row that are not better than the best by more than min_delta."""

    patience: int = 5
    min_delta: float = 0.0


@checked_fields("hl.Checkpoints(folder, every_epochs=1, keep=2)")
class Checkpoints(typing.NamedTuple):
    """Where and how often the training's whole state is written, and how many of the newest stay."""

    folder: str
    every_epochs: int = 1
    every_steps: int = 0
    keep: int = 2


class Run:
    """What a fit gives: params (of the best epoch, of the last one without a validation), buffers, history, best_epoch, best_validation,
    status, message, times, and state, from which fit(resume=...) goes on. Copies and pickles hold all of it."""

    def __init__(self, result, model, metric, loss):
        self.model, self._metric, self._loss = model, metric, loss
        self.status, self.message = result["status"], result["message"]
        self.params, self.buffers = result["params"], result["buffers"]
        self.history = [EpochRecord(*r) for r in result["history"]]
        self.best_epoch, self.best_validation = result["best_epoch"], result["best_validation"]
        self.times, self.state = result["times"], result["state"]
        self._explanations = result["step_explanation"], result["validation_explanation"]

    def __getattr__(self, name):
        raise absent_attribute("'Run' object", name, RUNS, [*dir(type(self)), *self.__dict__])

    def explain(self):
        """What was compiled, for the training step and for the validation: kernels, loops, passes, bytes, flops, times."""
        return "training step\n{}\n\nvalidation\n{}".format(self._explanations[0], self._explanations[1] or "none")

    def predict(self, x, *, lengths=None, batch_size=256):
        """The model's output with the best parameters. x: as the model takes it, a Dataset such as samples.test, or a dict with x and lengths."""
        return predict(self.model, self.params, x, lengths=lengths, buffers=self.buffers, batch_size=batch_size)

    @checked_call("run.evaluate((x, y))")
    def evaluate(self, data, *, metric=None, batch_size=256):
        """A metric of the best parameters on data that fit has not seen: that of the validation, or another. data: as fit takes it. Of several, in
        a dict or a list, a dict of their values.

        In the units that the model was trained in. Parts of hl.data.Samples are standardised, where the command line's results are in the
        table's units: samples.preparation.unscale(...) of run.predict(samples.test) and of samples.test.arrays()["y"] gives those.
        """
        metric = self._metric if metric is None else metric
        return evaluate(self.model, self.params, data, metric=metric, loss=self._loss, buffers=self.buffers, batch_size=batch_size)

    def __repr__(self):
        kept = f"best epoch {self.best_epoch} of {len(self.history)}: {self.best_validation:.6g}"
        if self.best_epoch and math.isnan(self.best_validation):
            kept = f"{len(self.history)} epochs without a validation"
        text = f"Run({self.status}, {kept})"
        return f"{text}: {self.message}" if self.status == "non_finite_loss" else text


def predict(model, params, x, *, lengths=None, buffers=None, batch_size=256, threads=None):
    """The model's output for all samples of x, computed in batches by one program. x may be a tree of arrays where the model takes one, a
    Dataset, such as samples.test, or a dict as fit takes it, with the key x, of which x and lengths are used."""
    _check_model("predict", model)
    if isinstance(x, _core.Dataset):
        x = x.arrays()
    if isinstance(x, dict) and not (model._takes_trees and ("x" not in x or set(x) - _PARTS)):
        if "x" not in x:
            raise _core.UserError(f"[predict] a dict must have x, and may have lengths. Received: {sorted(x)}.")
        x, lengths = x["x"], x.get("lengths") if lengths is None else lengths
    x = _input(x, _params_dtype(params), "predict", model)
    with _checked_arguments(model, params, x):
        return _core.predict(model._layer_for(x), params, {} if buffers is None else buffers, x, lengths, batch_size, _core.options(threads=threads))


def evaluate(model, params, data, *, metric=None, loss=None, buffers=None, batch_size=256, threads=None):
    """metric(predictions, targets) of the model on data, in double precision: a float. Of several, in a dict or a list: a dict by name.

    data: (x, y), a dict that may also have lengths and sample_weights, or a Dataset such as samples.test, as hl.fit takes it. metric: of hl.metrics,
    MAE by default; or a loss, whose mean over samples it is. loss: what the model was trained with, where that has several outputs for each
    number of the target (quantiles, a mean and a deviation): the metric compares the one that stands for it. buffers: of a run, for layers that have them. In the units of data: those of
    hl.data.Samples are standardised, see Run.evaluate.
    Raises UserError, a ValueError, for data, parameters and a metric that do not fit.
    """
    _check_model("evaluate", model)
    metric = metrics.MAE() if metric is None else metric
    named = _named_metrics("evaluate", metric)
    parts = _samples(data, "data", _params_dtype(params), "evaluate", model)
    layer, samples = _layer(model, parts), _dataset(parts)
    with _checked_arguments(model, params, samples):
        engine_loss = None if loss is None else losses.engine_loss(loss)
        values = _core.evaluate(layer, params, {} if buffers is None else buffers, samples, _engine_metrics(named), engine_loss, batch_size, _core.options(threads=threads))
    return dict(zip(named, values)) if isinstance(metric, (dict, list, tuple)) else values[0]


def _meant_callback(given):
    """What may stand in place of callbacks that are none."""
    kept = {EarlyStopping: "early_stopping", Checkpoints: "checkpoints"}
    for callback in given if isinstance(given, (tuple, list)) else (given,):
        if type(callback) in kept:
            return f"{kept[type(callback)]}={callback!r}"
    return "lambda progress: print(progress.step)"


@contextlib.contextmanager
def _checked_arguments(model, params, x):
    try:
        yield
    except _core.UserError:
        model._check_arguments(params, x)
        raise


def _check_model(where, model):
    if not isinstance(model, nn.Module):
        raise _core.UserError(f"[{where}] the model must be a layer of hl.nn. Received: {kind_of(model)}. Try: hl.nn.Recurrent for a cell, a subclass of hl.nn.Module with apply(params, x) for a function.")


def _metric(where, given):
    return checked_instance(where, "the metric", metrics.engine_metric(given), metrics.Metric, metrics)


def _named_metrics(where, given):
    """Metrics by name: a dict's, else their own. The first chooses the epoch."""
    if isinstance(given, dict):
        pairs = [(name, _metric(where, metric)) for name, metric in given.items()]
    else:
        pairs = [(metric._metric.name, metric) for metric in (_metric(where, one) for one in (given if isinstance(given, (list, tuple)) else [given]))]
    named = dict(pairs)
    names = [name for name, _ in pairs]
    if not names or len(named) < len(names) or not all(isinstance(name, str) for name in names):
        raise _core.UserError(f"[{where}] several metrics must each have a name of their own. Received: {names}. Try: {{'mae': hl.metrics.MAE(), 'val_loss': hl.losses.MSE()}}.")
    return named


def _engine_metrics(named):
    return [metric._metric.named(name) for name, metric in named.items()]


def _warn_of_two_activations(model, loss):
    """Probabilities where a loss takes logits train slowly to something else, and nothing fails."""
    doubled = {losses.CrossEntropy: nn.Softmax, losses.BinaryCrossEntropy: nn.Sigmoid}.get(type(loss))
    while isinstance(model, nn.Sequential) and model.layers:
        model = model.layers[-1]
    if doubled and type(model) is doubled and loss._settings.get("logits", True):
        name, metric = type(loss).__name__, ", with hl.metrics.Accuracy(threshold=0.5)" if doubled is nn.Sigmoid else ""
        warnings.warn(
            f"[fit] {name} takes what comes before {doubled.__name__}, which it has in itself. Received: a model that ends with {doubled.__name__}(). "
            f"Try: the model without it, and hl.{doubled.__name__.lower()}(run.predict(x)) for probabilities; or hl.losses.{name}(logits=False){metric}.",
            stacklevel=callers_level(),
        )


def _warn_of_threshold(loss, metric):
    """Every probability is above 0, so that all would be of class 1."""
    if type(loss) is losses.BinaryCrossEntropy and not loss.logits and getattr(metric, "threshold", None) == 0:
        name = type(metric).__name__
        warnings.warn(
            f"[fit] the threshold of {name} must suit the model's output. Received: {metric!r}, for logits, beside {loss!r}, of probabilities. Try: hl.metrics.{name}(threshold=0.5).",
            stacklevel=callers_level(),
        )


def _check_ids(model, parts, what):
    """A row that is not there would be taken for the nearest: a program does not look at each id, here it is done once."""
    while isinstance(model, nn.Sequential) and model.layers:
        model = model.layers[0]
    if not isinstance(model, nn.Embedding) or not isinstance(parts, dict):
        return
    ids, lengths = numpy.asarray(parts["x"]), parts.get("lengths")
    count, feature = model._settings["count"], model._settings.get("feature", -1)
    if feature >= 0:
        ids = ids[..., feature]
    wrong = ~((ids >= 0) & (ids < count))
    if lengths is not None and wrong.ndim > 1:
        wrong &= (numpy.arange(ids.shape[1]) < numpy.asarray(lengths)[:, None]).reshape(*ids.shape[:2], *[1] * (ids.ndim - 2))
    if wrong.any():
        sample = numpy.argwhere(wrong)[0]
        raise _core.UserError(f"[fit] an id must be a whole number from 0 and below {count}. Received: {ids[tuple(sample)]} in {what} sample {sample[0]}. Try: ids counted from 0, or a larger count of {model!r}.")


def _params_dtype(params):
    dtypes = [leaf.dtype for leaf in _core.tree_flatten(params)[0] if leaf.dtype.kind == "f"]
    return dtypes[0] if dtypes else numpy.dtype("float32")


def _as_dtype(x, dtype, what):
    array = _core.asarray(x, what)
    return _core.cast(array, dtype) if array.dtype.kind == "f" and array.dtype != dtype else array


def _input(x, dtype, where, model, y=None):
    """x with floats in `dtype`. A tree is checked: its arrays have names here."""
    if not model._is_tree(x):
        return _as_dtype(x, dtype, "x")
    model._layer_for(x)  # says so if it takes one array
    x = map_inputs(lambda leaf, name: _as_dtype(leaf, dtype, name), x)
    check_samples(where, x, y)
    return x


def _layer(model, parts):
    """The engine's layer of the model for the input of these samples."""
    return model._layer_for(parts["x"]) if isinstance(parts, dict) else model._layer


_PARTS = {"x", "y", "lengths", "sample_weights"}


def _samples(data, what, dtype, where, model):
    if isinstance(data, _core.Dataset):
        return data
    if isinstance(data, dict):
        unknown = set(data) - _PARTS
        if unknown or not {"x", "y"} <= set(data):
            raise _core.UserError(f"[{where}] {what} must have x and y, and may have lengths and sample_weights. Received: {sorted(data)}.")
        parts = data
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        parts = {"x": data[0], "y": data[1]}
    else:
        raise _core.UserError(f"[{where}] {what} must be (x, y), a dict with x, y, lengths, sample_weights, or samples of hl.data. Received: {kind_of(data)}. Try: {_meant(what, data)}.")
    for name in ("x", "y"):
        if parts[name] is None:
            raise _core.UserError(f"[{where}] {what} must have {name}. Received: None.")
    arrays = {name: None if value is None else _as_dtype(value, dtype, name) for name, value in parts.items() if name != "x"}
    return {"x": _input(parts["x"], dtype, where, model, arrays["y"]), **arrays}


def _like(parts, training):
    """The inputs in the order of those of the training, by name."""
    if not (isinstance(parts, dict) and isinstance(training, dict) and (is_tree(parts["x"]) or is_tree(training["x"]))):
        return parts
    structure = _core.tree_flatten(training["x"])[1]
    return {**parts, "x": structure.unflatten(structure.flatten_like(parts["x"], "validation"))}


def _meant(what, data):
    """What may stand in place of data of no known form."""
    if what == "validation" and isinstance(data, int):
        return "a fraction such as 0.2, (x, y), or 0 to train on all samples"
    if hasattr(data, "columns"):
        return "(table[inputs], table[[target]]) of numbers, or hl.data.Samples(table, inputs=[...], targets='...')"
    return "(x, y) of whole arrays, of which batches are made"


def _dataset(parts):
    if isinstance(parts, _core.Dataset):
        return parts
    return _core.dataset(parts["x"], parts["y"], parts.get("lengths"), parts.get("sample_weights"))


def _split(parts, fraction):
    if isinstance(parts, _core.Dataset):
        parts = parts.arrays()
    _dataset(parts)  # what does not fit is said of all samples, not of a part
    count = len(parts["y"])
    held = int(round(count * fraction))
    if not 0 < fraction < 1 or held < 1 or held >= count:
        raise _core.UserError(f"[fit] validation as a fraction must leave samples on both sides. Received: {fraction} of {count} samples. Try: validation=(x, y).")
    cut = lambda part: {k: None if v is None else map_inputs(lambda leaf, _: leaf[part], v) for k, v in parts.items()}  # noqa: E731
    return cut(slice(0, count - held)), cut(slice(count - held, None))


def _checkpoint(path):
    """The latest checkpoint in a folder of them, or the checkpoint that the path is."""
    latest = _core.latest_checkpoint(path)
    if not latest and not os.path.exists(os.path.join(path, "training.json")):
        raise _core.UserError(f"[fit] resume must be a folder of checkpoints, or one checkpoint. Received: {path!r}, {'where there is none' if os.path.isdir(path) else 'which is no folder'}. Try: the folder that checkpoints= named in the first run.")
    return latest or path


@checked_call("hl.fit(model, (x, y), ...)")
def fit(
    model,
    data,
    *,
    validation=None,
    loss=None,
    optimizer=None,
    metric=None,
    batch_size=32,
    epochs=10,
    seed=0,
    init="torch",
    generator="philox",
    params=None,
    buffers=None,
    shuffle=True,
    class_weights=None,
    early_stopping=None,
    checkpoints=None,
    resume=None,
    callbacks=(),
    progress=None,
    steps_per_call=1,
    dtype="float32",
    dot_precision="float32",
    flush_denormals=None,
    device="auto",
    threads=None,
):
    """Trains `model` on (x, y), and keeps the parameters of the epoch that validates best. Returns a Run.

    data: (x, y), or a dict that may also have lengths (samples,) and sample_weights (samples,). Samples lie along axis 0; float
        arrays are cast to `dtype`, integers stay (classes, indices). Or hl.data.Samples, which brings its validation part, or a Dataset.
        lengths: valid steps of each row, from 0 to all. Beyond them x is zeros to the model, whatever is there, outputs of recurrent layers are zeros, and a
        loss of each step counts none.
        x may be several inputs: a dict, tuple, list or named tuple of arrays, also nested, for a hl.nn.Module of your own, whose
        apply(params, x) is given the same tree of a batch. lengths then count the steps of its first array (samples, time, features).
    validation: data of the same form, or the fraction of the last samples that is held out; 0.1 of them by default. 0 or False: none is
        held out, all samples train, and the parameters of the last epoch are kept.
    loss: of hl.losses, or a function (prediction, target) -> scalar; MSE by default. optimizer: Adam(1e-3) by default.
    metric: of hl.metrics, of the validation. Or a loss: one of hl.losses, or a function (prediction, target) -> scalar, whose mean over
        samples, each alone, is shown; smaller is better. By default MAE, for losses of classes the loss itself. Or several,
        {"mae": hl.metrics.MAE(), "val_loss": hl.losses.MSE()} or a list: all are computed from the same predictions and recorded (EpochRecord.metrics), the first
        chooses the epoch and decides early stopping.
    batch_size: samples of a step; the last batch of an epoch has what is left. epochs: passes over the training samples.
    shuffle: a new order of the samples each epoch; False: as they are given. (A validation fraction is cut off before, from the end.)
    Labels of losses over classes are whole numbers from 0 and below the number of outputs, of which some may be the label of no sample.
    class_weights: (classes,), what a sample of each class counts, in the order of the labels: of losses over classes. The loss of a batch is
        sum(weight * loss) / sum(weight). The metric does not count them.
    params: to start from; else they are drawn by `seed` and `init`. The order of the samples follows from the seed and the epoch.
    buffers: those of `params`, needed with them where the model has any (run.buffers, or what hl.load gave).
    generator: "philox", or "torch" for PyTorch's numbers: parameters as torch.manual_seed(seed) gives the same layers, and then a
        torch.randperm of the samples each epoch.
    early_stopping: hl.EarlyStopping. checkpoints: hl.Checkpoints or a folder, without those of another run. resume: a Run, its state, a folder of checkpoints or
        one checkpoint: the results are those of a run that was never interrupted, to the bit.
    callbacks: a function of a Progress, or several, called after each call of the step; one that returns True ends the fit after it. An
        exception in one ends the fit and is raised; with checkpoints, the state after the last step is on the disk.
    progress: True shows it (a line that is rewritten on a terminal, else a line an epoch), None does so on a terminal.
    steps_per_call: training steps that one call of the program takes; same results for any but for rounding.
    dot_precision: "bfloat16" trains with the factors of float32 dots rounded, see hl.jit; parameters and optimiser stay float32.
    flush_denormals: True counts numbers below the normal range as 0, in training and validation, see hl.jit: gradients that vanish over many steps come
        down to such numbers, which some processors compute with many times more slowly. None: in training alone.
    device: "cpu", "cuda" or "auto", of training steps and validation, see hl.jit. On a GPU a call copies batch, parameters and optimiser state there and
        back: there many steps_per_call are worth the most. A run may be resumed on another device, to the same numbers but for rounding.
    threads: of the processor, see hl.jit.

    A loss that is not finite ends the run with a warning: status and message say which tensor was the first. Ctrl-C ends it in the middle
    of a step with KeyboardInterrupt; with checkpoints, the state before that step is on the disk.

    Raises UserError, a ValueError: before the first step for data, training labels and settings that do not fit, or a `resume` of another run; later for validation
        labels that the metric refuses, and checkpoints that cannot be written. TypeError for arguments that fit does not have.
    """
    _check_model("fit", model)
    given_loss = losses.MSE() if loss is None else loss
    loss = losses.engine_loss(given_loss)
    _warn_of_two_activations(model, given_loss)
    if metric is None:
        metric = metrics.LossMean(given_loss) if loss.has_classes or loss.compares_sequences else metrics.MAE()
    optimizer = checked_instance("fit", "the optimizer", optim.Adam(1e-3) if optimizer is None else optimizer, optim.Optimizer, optim)
    named = _named_metrics("fit", metric)
    for one in named.values():
        _warn_of_threshold(given_loss, one)
    dtype = _core.dtype(dtype)
    if isinstance(data, Samples):
        validation = data.validation if validation is None else validation
        data = data.train
    validation = 0.1 if validation is None else validation
    validate = not (isinstance(validation, (bool, int, float)) and validation == 0)
    training = _samples(data, "data", dtype, "fit", model)
    layer = _layer(model, training)
    if not validate:
        held = training
    elif isinstance(validation, float):
        training, held = _split(training, validation)
    else:
        held = _like(_samples(validation, "validation", dtype, "fit", model), training)
    _check_ids(model, training, "training")
    _check_ids(model, held, "validation")
    if early_stopping is not None and not isinstance(early_stopping, EarlyStopping):
        raise _core.UserError(f"[fit] early_stopping must be a hl.EarlyStopping. Received: {early_stopping!r}. Try: hl.EarlyStopping(patience=5).")
    stopping = early_stopping or EarlyStopping(0, 0.0)
    saved = Checkpoints(os.fspath(checkpoints)) if isinstance(checkpoints, (str, os.PathLike)) else Checkpoints("") if checkpoints is None else checkpoints
    if not isinstance(saved, Checkpoints):
        raise _core.UserError(f"[fit] checkpoints must be a folder or a hl.Checkpoints. Received: {checkpoints!r}. Try: hl.Checkpoints(folder, keep=3).")
    settings = {
        "batch_size": batch_size, "epochs": epochs, "seed": seed, "init": init, "generator": generator, "shuffle": bool(shuffle), "validate": validate, "steps_per_call": steps_per_call,
        "patience": stopping.patience, "min_delta": float(stopping.min_delta), "folder": os.fspath(saved.folder),
        "every_epochs": saved.every_epochs, "every_steps": saved.every_steps, "keep": saved.keep,
    }  # fmt: skip
    if buffers is not None and (params is None or resume is not None):
        raise _core.UserError("[fit] buffers must come with the params that they belong to. Received: no params, or a resume, which has both. Try: params=run.params, buffers=run.buffers.")
    if isinstance(resume, Run):
        resume = resume.state
    elif isinstance(resume, (str, os.PathLike)):
        resume = _checkpoint(os.fspath(resume))
    if resume is not None and not isinstance(resume, (str, _core.TrainingState)):
        raise _core.UserError(f"[fit] resume must be a Run, its state, a folder of checkpoints or one checkpoint. Received: {kind_of(resume)}. Try: params= for parameters to start from.")
    given = (callbacks,) if callable(callbacks) else callbacks
    if not isinstance(given, (tuple, list)) or not all(callable(function) for function in given):
        raise _core.UserError(f"[fit] callbacks must be a function of a Progress, or several. Received: {callbacks!r}. Try: {_meant_callback(callbacks)}.")
    shown = _Bar(validate) if (sys.stderr.isatty() if progress is None else progress) else None
    told = [*([shown] if shown else []), *given]

    def callback(values):
        record, at = values[6], Progress(*values)
        if record is not None:
            at = at._replace(record=EpochRecord(*record))
        stop = False
        for function in told:
            stop = function(at) is True or stop
        return stop

    result = _core.fit(
        layer,
        _dataset(training),
        _dataset(held),
        loss,
        optimizer._optimizer,
        _engine_metrics(named),
        _core.options(device=device, threads=threads, dot_precision=dot_precision, flush_denormals=flush_denormals),
        settings,
        class_weights,
        params,
        buffers,
        resume,
        callback if told else None,
    )
    run = Run(result, model, metric, given_loss if isinstance(given_loss, losses.Loss) else None)
    if run.status == "non_finite_loss":
        wrong = _not_finite(training, "training") + (_not_finite(held, "validation") if validate else "")
        warnings.warn(f"[fit] {run.message}{wrong}", stacklevel=callers_level())
    return run


def _not_finite(parts, what):
    """Which samples of arrays are not finite, as the end of a message."""
    text = ""
    if not isinstance(parts, dict):
        return text
    arrays = [(name, numpy.asarray(given)) for name, given in (named_leaves(parts["x"]) if is_tree(parts["x"]) else [("x", parts["x"])])]
    timed = _core.timed_input([list(values.shape) for _, values in arrays])
    lengths, shape = parts.get("lengths"), arrays[timed][1].shape
    for i, (name, values) in enumerate([*arrays, ("y", numpy.asarray(parts["y"]))]):
        if lengths is not None and i in (timed, len(arrays)) and values.ndim > 1 and values.shape[1] == shape[1]:
            # What lies beyond the lengths may be anything.
            beyond = numpy.arange(shape[1]) >= numpy.asarray(lengths)[:, None]
            values = numpy.where(beyond.reshape(beyond.shape + (1,) * (values.ndim - 2)), 0, values)
        wrong = numpy.flatnonzero(~numpy.isfinite(values).reshape(len(values), -1).all(axis=1))
        if len(wrong):
            text += f" {name} is not finite in {len(wrong)} of {len(values)} {what} samples, first in sample {wrong[0]}."
    return text


class _Bar:
    """Progress on standard error."""

    def __init__(self, validates):
        self._validates = validates
        self._rewrites = sys.stderr.isatty()
        self._last = 0.0

    def __call__(self, at):
        if at.epoch_done:
            r = at.record
            validation = "".join(f"{name} {value:.6g}  " for name, value in r.metrics.items())
            line = f"epoch {r.epoch}/{at.num_epochs}  loss {r.train_loss:.6g}  {validation}{r.seconds:.2f} s"
            print(("\r" if self._rewrites else "") + line + (" *" if at.best and self._validates else "  "), file=sys.stderr, flush=True)
        elif self._rewrites and at.elapsed_s - self._last > 0.1:
            self._last = at.elapsed_s
            print(f"\repoch {at.epoch}/{at.num_epochs}  step {at.step}/{at.num_steps} ", end="", file=sys.stderr, flush=True)
