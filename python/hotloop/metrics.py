"""Metrics: what a validation or test is judged by, over whole datasets in double precision. One class for each of the engine.

    hl.metrics.MAE()(predictions, targets)
"""

from hotloop import _core
from hotloop._components import bind, class_name, docstring, repr_of, signature
from hotloop._names import absent

__all__ = ["Metric"]


class Metric:
    """metric(predictions, targets) -> float. Predictions and targets: (samples, ...)."""

    def __call__(self, predictions, targets, *, lengths=None, sample_weights=None):
        return self._metric(predictions, targets, lengths, sample_weights)


def engine_metric(metric):
    """A Metric, also of a Loss or a function of (prediction, target): its mean over samples, each alone."""
    from hotloop import losses

    if isinstance(metric, losses.Loss) or (callable(metric) and not isinstance(metric, (type, Metric)) and type(metric).__module__.partition(".")[0] not in ("torch", "keras")):
        return loss_of(losses.engine_loss(metric))
    return metric


def loss_of(loss):
    """A Metric of an engine's loss."""
    made = Metric()
    made._metric = _core.loss_metric(loss)
    return made


def _metric_class(definition):
    name, summary, parameters = definition
    sig = signature(parameters)

    def __init__(self, *args, **kwargs):
        self._settings = bind(type(self), sig, args, kwargs)
        self._metric = _core.make_metric(name, self._settings)

    body = {"__init__": __init__, "__repr__": repr_of, "__signature__": sig, "__doc__": docstring(summary, parameters), "__module__": __name__}
    return type(class_name(name), (Metric,), body)


for _definition in _core.metric_definitions():
    _cls = _metric_class(_definition)
    globals()[_cls.__name__] = _cls
    __all__.append(_cls.__name__)


def __getattr__(name):
    raise absent("hotloop.metrics", name, __all__, {})
