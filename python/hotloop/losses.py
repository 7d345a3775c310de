"""Losses: scalar functions of a prediction and a target, averaged over all elements or weighted. One class for each that the
engine has; any function (prediction, target) -> scalar may stand in their place."""

import functools
import inspect
import sys

from hotloop import _core
from hotloop._components import Component, component_class
from hotloop._jit import jit
from hotloop._names import LOSSES, absent, checked_instance

__all__ = ["Loss"]


class Loss(Component):
    """loss(prediction, target) -> scalar. Prediction and target must have one shape, (batch, 1) say: (batch,) against it is an error, not a
    broadcast. Losses of class labels, label sequences, quantiles and distributions take predictions of another shape, which each of them tells.

    sample_weights: (batch,). class_weights: (classes,), for losses over classes. lengths: (batch,), valid steps of each row.
    """

    _engine = "_loss"

    def __call__(self, prediction, target, *, sample_weights=None, class_weights=None, lengths=None):
        arguments = (prediction, target, sample_weights, class_weights, lengths)
        return self._loss.apply(*arguments) if _core.is_tracing() else self._compiled(*arguments)

    def statistics(self, prediction):
        """What a model's outputs say of the target, by name: of Gaussian "mean", "std" and the ends of an interval, "q10" and "q90"; of
        Quantile each quantile. prediction: (..., n * outputs), for n numbers of the target; each statistic is (..., n). Of a loss whose
        prediction is the target's own number: {"prediction": prediction}."""
        return self._loss.statistics(prediction) if _core.is_tracing() else self._compiled_statistics(prediction)

    @functools.cached_property
    def _compiled(self):
        return jit(self._loss.apply)

    @functools.cached_property
    def _compiled_statistics(self):
        return jit(self._loss.statistics)


_OF_PARAMETERS = "prediction: (batch, ..., {} * n), of each number of the target its outputs side by side. target: (batch, ..., n)."
_SHAPES = {  # where they are not one
    "CrossEntropy": "prediction: (batch, ..., classes). target: (batch, ...) or (batch, ..., 1) of labels, integers or floats that hold them; or of the prediction's shape and dtype, "
    "a distribution over the classes: one-hot, say.",
    "BinaryCrossEntropy": "prediction and target: of one shape and dtype, (batch, 1) say; targets between 0 and 1.",
    "CTC": "prediction: (batch, time, classes) of logits. target: (batch, most labels), negative behind a row's last label. lengths: the rows' steps.",
    **dict.fromkeys(("Gaussian", "StudentT", "NegativeBinomial"), _OF_PARAMETERS.format("2")),
    "Quantile": _OF_PARAMETERS.format("quantiles"),
}  # fmt: skip

for _definition in _core.loss_definitions():
    _cls = component_class(Loss, _definition, _core.make_loss)
    if _cls.__name__ in _SHAPES:
        _cls.__doc__ += f"\n\n{_SHAPES[_cls.__name__]}"
    globals()[_cls.__name__] = _cls
    __all__.append(_cls.__name__)


_TARGETS, _PREDICTIONS = {"y_true", "true", "target", "targets", "label", "labels"}, {"y_pred", "pred", "prediction", "predictions", "output", "outputs", "y_hat"}


def _check_order(fn):
    """UserError for a function whose arguments are named in the order of Keras and scikit-learn, (y_true, y_pred): nothing else would fail."""
    if isinstance(fn, (Component, type)):
        return
    try:
        names = list(inspect.signature(fn).parameters)[:2]
    except (TypeError, ValueError):  # none is known
        return
    if len(names) == 2 and names[0] in _TARGETS and names[1] in _PREDICTIONS:
        name = getattr(fn, "__name__", "fn")
        call = "f" if name == "<lambda>" else name
        raise _core.UserError(
            f"[loss] a function must take (prediction, target), in this order. Received: {name}({', '.join(names)}). Try: lambda prediction, target: {call}(target, prediction)."
        )


def engine_loss(loss):
    """The engine's loss of a Loss or a function."""
    if isinstance(loss, type) or not (isinstance(loss, Loss) or callable(loss)):
        checked_instance("fit", "the loss, unless it is a function (prediction, target) -> scalar,", loss, Loss, sys.modules[__name__])
    if type(loss).__module__.partition(".")[0] in ("torch", "keras"):
        checked_instance("fit", "the loss, unless it is a function of hotloop's arrays,", type(loss).__name__.removesuffix("Loss"), Loss, sys.modules[__name__])
    _check_order(loss)
    return loss._loss if isinstance(loss, Loss) else _core.python_loss(loss, getattr(loss, "__name__", "loss"))


def __dir__():
    return __all__


def __getattr__(name):
    raise absent("hotloop.losses", name, __all__, LOSSES)
