"""Optimisers, learning-rate schedules, and wrappers around optimisers: a class for each that the engine has.

    opt = hl.optim.ClipByNorm(hl.optim.Adam(hl.optim.Schedule(1e-3, hl.optim.Warmup(100), hl.optim.Cosine(5000))), 1.0)
    state = opt.init(params)
    params, state = opt.update(grads, state, params)       # in a compiled step, inside scan, or alone

State is explicit, so that a step is a pure function.
"""

import functools

from hotloop import _core
from hotloop._components import Component, component_class
from hotloop._jit import jit
from hotloop._names import IN_OPTIMIZERS, OPTIMIZERS, absent, kind_of
from hotloop._transforms import vmap

__all__ = ["Optimizer", "Factor", "Schedule"]


class Factor(Component):
    """What multiplies a learning rate from step to step. Several stand side by side in a Schedule, which is an optimiser's learning rate:

        hl.optim.Adam(hl.optim.Schedule(1e-3, hl.optim.Warmup(100), hl.optim.Cosine(5000)))
    """

    _engine = "_factor"


class Schedule(Component):
    """A learning rate: a number times factors, each a function of the step count (of batches, not of epochs).

    Factors are those of hl.optim, which hl.fit, loops by hand and the command line share. Plateau lowers the rate in hl.fit alone, which tells it
    the validations. A rate of one's own is a number that a loop by hand gives its step: docs/python.md.
    """

    _engine = "_schedule"

    def __init__(self, learning_rate, *factors):
        for f in factors:
            if not isinstance(f, Factor):
                raise _core.UserError(
                    f"[Schedule] a factor must be one of hl.optim's. Received: {kind_of(f)}. Try: hl.optim.Cosine(1000); or, in a loop by hand, an optimiser "
                    "with the rate 1, of whose step a part is taken: docs/python.md#a-rate-of-your-own."
                )
        try:
            if isinstance(learning_rate, str):
                raise TypeError
            self.learning_rate = float(learning_rate)
        except TypeError:
            meant = f"hl.optim.Schedule(1e-3, {learning_rate!r})" if isinstance(learning_rate, Factor) else "hl.optim.Schedule(1e-3, hl.optim.Cosine(1000))"
            came = repr(learning_rate) if isinstance(learning_rate, Factor) else kind_of(learning_rate)
            raise _core.UserError(f"[Schedule] a learning rate must be a number, or a hl.optim.Schedule of one with factors. Received: {came}. Try: {meant}.") from None
        self.factors = factors
        self._build()

    def _make(self):
        return _core.make_schedule(self.learning_rate, [f._factor for f in self.factors])

    def __call__(self, step):
        """The learning rate at a step: the number of steps before it, or an array of such numbers; float64 of its shape.

        Of Plateau, which looks at validations, the factor before the first of them.
        """
        return self._rate(step) if _core.is_tracing() else self._compiled(step)

    def _rate(self, step):
        step = _core.to_tracer(step, "Schedule")
        if step.dtype.kind not in "iu":
            raise _core.UserError(f"[Schedule] a step must be a whole number. Received: {step._type}. Try: step.astype('int32').")
        if step.ndim == 0:
            return _core.schedule_at(self._schedule, step)
        return vmap(lambda s: _core.schedule_at(self._schedule, s))(step.reshape((-1,))).reshape(step.shape)

    @functools.cached_property
    def _compiled(self):
        return jit(self._rate)

    def __repr__(self):
        return f"Schedule({', '.join(map(repr, (self.learning_rate, *self.factors)))})"


class Optimizer(Component):
    """An optimiser, or one wrapped around another."""

    _engine = "_optimizer"

    def init(self, params):
        """The state before the first step, as nested dicts. params: a tree of float arrays, traced or not."""
        _check_floats("params", params)
        return self._optimizer.init(params)

    def update(self, grads, state, params):
        """(params, state) after one step; grads has the structure of params."""
        if _core.is_tracing():
            return self._update(grads, state, params)
        return self._compiled(grads, state, params)

    def _update(self, grads, state, params):
        _check_floats("params", params)
        _check_floats("grads", grads)
        return self._optimizer.update(grads, state, params)

    @functools.cached_property
    def _compiled(self):
        return jit(self._update)

    def evaluated(self, params, state):
        """The parameters to validate and keep: an average where there is one, else params. Traced or not."""
        return self._optimizer.evaluated(params, state)


def _check_floats(what, tree):
    leaves, structure = _core.tree_flatten(tree)
    for x, path in zip(leaves, structure.paths(), strict=True):
        x = _core.to_tracer(x, "optim") if _core.is_tracing() else _core.asarray(x)
        if x.dtype.kind != "f":
            raise _core.UserError(
                f"[optim] leaves of {what} must be f32 or f64. Received: {x.dtype} in {f'the leaf {path}' if path else 'the only leaf'}. "
                "Try: numbers that are not learned beside the tree, as an argument of their own or in the model."
            )


def _add(base, definition, make, first=()):
    cls = component_class(base, definition, make, first)
    globals()[cls.__name__] = cls
    __all__.append(cls.__name__)


def _optimizer_maker(fallback):
    def make(name, settings):
        rate = settings.pop("learning_rate", fallback)
        schedule = rate if isinstance(rate, Schedule) else Schedule(rate)
        return _core.make_optimizer(name, settings, schedule._schedule)

    return make


def _make_wrapper(name, settings):
    inner = settings.pop("inner")
    if not isinstance(inner, Optimizer):
        raise _core.UserError(f"[{name}] inner must be an optimiser. Received: {kind_of(inner)}.")
    return _core.make_wrapper(name, settings, inner._optimizer)


def _make_factor(name, settings):
    inner = next((value for value in settings.values() if isinstance(value, (Factor, Schedule))), None)
    if inner is not None:
        raise _core.UserError(f"[{name}] factors stand side by side in a Schedule. Received: {inner!r} as a setting. Try: hl.optim.Schedule(1e-3, hl.optim.Warmup(100), hl.optim.Cosine(1000)).")
    return _core.make_factor(name, settings)


for _definition in _core.schedule_definitions():
    _add(Factor, _definition, _make_factor)
for _definition in _core.optimizer_definitions():
    _rate = next(p[1] for p in _definition[2] if p[0] == "learning_rate")
    _add(Optimizer, _definition, _optimizer_maker(_rate))
for _definition in _core.wrapper_definitions():
    _add(Optimizer, _definition, _make_wrapper, [("inner", "the optimiser that is wrapped.")])


def __dir__():
    return __all__


def __getattr__(name):
    if name.lower() in ("lbfgs", "bfgs"):
        raise AttributeError(f"module 'hotloop.optim' has no attribute {name!r}, which steps over all data at once and not from batch to batch. Try: hl.minimize(fn, params)")
    raise absent("hotloop.optim", name, __all__, OPTIMIZERS, IN_OPTIMIZERS)
