"""Metrics: what a validation or test is judged by, over whole datasets in double precision. One class for each of the engine.

    hl.metrics.MAE()(predictions, targets)
"""

from hotloop import _core
from hotloop._components import Component, component_class
from hotloop._names import absent

__all__ = ["Metric"]


class Metric(Component):
    """metric(predictions, targets) -> float. Predictions and targets: (samples, ...)."""

    _engine = "_metric"

    def __call__(self, predictions, targets, *, lengths=None, sample_weights=None):
        return self._metric(predictions, targets, lengths, sample_weights)


def engine_metric(metric):
    """A Metric, also of a Loss or a function of (prediction, target): its mean over samples, each alone."""
    from hotloop import losses

    if isinstance(metric, losses.Loss) or (callable(metric) and not isinstance(metric, (type, Metric)) and type(metric).__module__.partition(".")[0] not in ("torch", "keras")):
        return LossMean(metric)
    return metric


class LossMean(Metric):
    """The mean over samples of a Loss, or of a function of (prediction, target), each alone."""

    def __init__(self, loss):
        self._loss = loss
        self._build()

    def _make(self):
        from hotloop import losses

        return _core.loss_metric(losses.engine_loss(self._loss))


for _definition in _core.metric_definitions():
    _cls = component_class(Metric, _definition, _core.make_metric)
    globals()[_cls.__name__] = _cls
    __all__.append(_cls.__name__)


def __dir__():
    return __all__


def __getattr__(name):
    raise absent("hotloop.metrics", name, __all__, {})
