"""Differential equations: dy/dt = field(t, y, args), solved inside the program, in diffrax's vocabulary.

    def field(t, y, args):                       # any traced function, with hl.nn modules or without
        return {"hares": args["birth"] * y["hares"], "lynxes": -args["death"] * y["lynxes"]}

    solution = hl.ode.solve(field, hl.ode.Tsit5(), 0, 10, y0, args=rates, saveat=numpy.linspace(0, 10, 101))
    solution.ys["hares"], solution.stats.num_steps, solution.message

A solve is one loop of the program it stands in: hl.jit, hl.grad, hl.jvp, hl.vmap and hl.scan apply to it as to any other code, and a
training step with a solve inside is one executable. Under hl.vmap each trajectory takes its own steps, and is the same bits alone and
in any batch. There is a class for each solver and each adjoint that the engine has.
"""

import dataclasses
import enum
import inspect
import typing

import numpy

from hotloop import _core, _names
from hotloop._components import Component, component_class
from hotloop._control import run_traced
from hotloop._names import EQUATIONS, absent, checked_call, kind_of
from hotloop._op import number

__all__ = ["solve", "Solution", "Stats", "Interpolation", "Result", "SaveAt", "Event", "Solver", "Controller", "Adjoint", "ConstantStep", "PID", "Clip"]

Result = enum.IntEnum("Result", _core.ode_results(), module=__name__)
Result.__doc__ = """What became of a solve: the codes of Solution.result.

Success (0): t1 was reached. Event (1): a terminal one ended it. MaxSteps (2): t1 was not reached in max_steps steps. StepTooSmall (3): the step size fell
below what time can resolve, or below dtmin. NonFinite (4): the field or the state became infinite or NaN, or t0 or t1 is NaN. NewtonFailed (5): Newton's method did not solve
the equations of an implicit step.
"""


# ---- what a solve is made of ---------------------------------------------------------------------------------------------------


class Solver(Component):
    """A method of integration. `order`; `error_order`: local order of the error estimate, 0 for none; `is_implicit`."""

    _engine = "_solver"

    @property
    def order(self):
        """Order of convergence."""
        return self._solver.order

    @property
    def error_order(self):
        """Local order of the error estimate, as step size control uses it; 0: there is none, and steps must be constant."""
        return self._solver.error_order

    @property
    def is_implicit(self):
        """Whether it solves equations in each step, for stiff problems."""
        return self._solver.is_implicit


class Adjoint(Component):
    """How derivatives are taken of a solve."""

    _engine = "_adjoint"


class Controller:
    """How long steps are."""


class ConstantStep(Controller):
    """Steps of dt0, which solve() must then be given."""

    def _controller(self, structure):
        return _core.make_constant_step()

    def __repr__(self):
        return "ConstantStep()"


_ONE_LEAF = _core.tree_flatten(0.0)[1]


class PID(Controller, Component):
    """Keeps the root mean square of error / (atol + rtol |y|) below one (Soederlind 2003).

    rtol, atol: one number, which may be a traced scalar, or a tree like the state of arrays that broadcast against its leaves.
    pcoeff, icoeff, dcoeff: an I controller as it stands; 0.4, 0.3, 0 makes it PI, which rejects fewer steps where stability limits them.
    dtmin, dtmax: bounds of the step. At dtmin steps are taken whatever their error (force_dtmin), or the solve ends with
        Result.StepTooSmall where one is rejected that would be shorter next.
    factormin, factormax, safety: bounds of the change from step to step, and a factor on it.
    """

    _engine = "_options"

    def __init__(self, rtol=1e-3, atol=1e-6, *, pcoeff=0.0, icoeff=1.0, dcoeff=0.0, dtmin=None, dtmax=None, force_dtmin=True, factormin=0.2,
                 factormax=10.0, safety=0.9):  # fmt: skip
        self.rtol, self.atol = rtol, atol
        for name, value in (("rtol", rtol), ("atol", atol)):
            if isinstance(value, str) or (isinstance(value, (int, float, numpy.number)) and not value >= 0):
                raise _core.UserError(f"[ode.PID] {name} must be a number that is not negative, or a tree of them. Received: {value!r}.")
        self._settings = {"pcoeff": pcoeff, "icoeff": icoeff, "dcoeff": dcoeff, "dtmin": dtmin, "dtmax": dtmax, "force_dtmin": force_dtmin,
                          "factormin": factormin, "factormax": factormax, "safety": safety}  # fmt: skip
        self._build()
        _core.make_pid(_ONE_LEAF, 1.0, 1.0, self._options)  # checks them

    def _make(self):
        options = _core.PIDOptions()
        for name, value in self._settings.items():
            is_open = name == "force_dtmin" or (value is None and name in ("dtmin", "dtmax"))
            setattr(options, name, value if is_open else float(number("ode.PID", name, value)))
        return options

    def _controller(self, structure):
        return _core.make_pid(structure, _tolerance(structure, self.rtol, "rtol"), _tolerance(structure, self.atol, "atol"), self._options)

    def __repr__(self):
        return f"PID(rtol={self.rtol!r}, atol={self.atol!r}, {', '.join(f'{k}={v!r}' for k, v in self._settings.items())})"


def _tolerance(structure, value, name):
    if isinstance(value, (int, float, numpy.number)):
        return float(value)
    if _core.is_tracer(value):
        return value
    try:
        return structure.flatten_like(value)
    except _core.UserError as error:
        raise _core.UserError(f"[ode.PID] {name} must be a number or a tree like the state. {error}") from None


class Clip(Controller):
    """Another controller, with steps that end at given times, in the direction of integration.

    step_ts: steps end there. jump_ts: they do because the field is discontinuous there; what solvers know from before is forgotten.
    """

    def __init__(self, controller, step_ts=(), jump_ts=()):
        _require("ode.Clip", "controller", controller, Controller, "hl.ode.PID()")
        self.controller, self.step_ts, self.jump_ts = controller, _times("step_ts", step_ts), _times("jump_ts", jump_ts)
        _core.make_clip(_core.make_constant_step(), self.step_ts, self.jump_ts)  # checks them

    def _controller(self, structure):
        return _core.make_clip(self.controller._controller(structure), self.step_ts, self.jump_ts)

    def __repr__(self):
        return f"Clip({self.controller!r}, step_ts={self.step_ts!r}, jump_ts={self.jump_ts!r})"


class SaveAt:
    """Where the solution is wanted. Rows of Solution.ys come in this order: t0, ts, steps, t1.

    t0, t1: the state at the ends. ts: times, sorted in the direction of integration; known numbers or a traced vector.
    steps: after each accepted step: max_steps rows, those beyond the last are inf. dense: keeps what Solution.evaluate needs.
    """

    def __init__(self, *, t0=False, t1=False, ts=None, steps=False, dense=False):
        self.t0, self.t1, self.steps, self.dense = bool(t0), bool(t1), bool(steps), bool(dense)
        if ts is not None and not _core.is_tracer(ts):
            ts = list(ts) if isinstance(ts, (list, tuple)) and any(_core.is_tracer(t) for t in ts) else _times("ts", ts)
            if not ts:
                raise _core.UserError("[ode.SaveAt] ts must have a time. Received: none. Try: SaveAt(t1=True).")
        self.ts = ts

    def __repr__(self):
        return f"SaveAt(t0={self.t0}, t1={self.t1}, ts={self.ts!r}, steps={self.steps}, dense={self.dense})"


def _times(name, ts):
    try:
        array = numpy.asarray(ts, dtype=numpy.float64)
    except (TypeError, ValueError):
        raise _core.UserError(f"[ode] {name} must be a list of times. Received: {ts!r}. Try: numpy.linspace(t0, t1, n).") from None
    if array.ndim != 1:
        raise _core.UserError(f"[ode] {name} must be a list of times. Received: an array of shape {array.shape}. Try: numpy.linspace(t0, t1, n).")
    if numpy.isnan(array).any():
        raise _core.UserError(f"[ode] {name} must be times. Received: nan at place {int(numpy.isnan(array).argmax())}.")
    return array.tolist()


class Event:
    """What happens where function(t, y, args), a float scalar, crosses zero.

    It is located on the interpolant of the step, and its time has the derivative of the equation function(t, y(t)) = 0.
    direction: 1: only where it rises, -1: only where it falls, 0: both. terminal: the solve ends there, with Result.Event.
    change(t, y, args) -> y: the state after it, as of a ball that bounces.
    Two crossings within one step are not seen; PID(dtmax=...) bounds steps.
    """

    def __init__(self, function, *, direction=0, terminal=True, change=None):
        if direction not in (-1, 0, 1):
            raise _core.UserError(f"[ode.Event] direction must be -1, 0 or 1. Received: {direction!r}.")
        self.function, self.direction, self.terminal, self.change = function, direction, bool(terminal), change


# ---- what it gives -------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class Stats:
    """Counts of a solve, int32. num_evaluations: of the field; num_events: None without events."""

    num_steps: typing.Any
    num_accepted: typing.Any
    num_rejected: typing.Any
    num_evaluations: typing.Any
    num_events: typing.Any = None


@dataclasses.dataclass(eq=False)
class Interpolation:
    """The interpolant of each step: polynomials in (s - start) / length, s = direction t. A row a step; `ends` is inf beyond the last.

    coefficients: by degree, trees like the state with a leading axis of steps.
    """

    starts: typing.Any
    ends: typing.Any
    lengths: typing.Any
    coefficients: typing.Any
    direction: typing.Any


@dataclasses.dataclass(eq=False)
class Solution:
    """What solve() gives; a tree of arrays, so that it goes through hl.jit and hl.vmap.

    ts: (n,) times of the rows of ys. ys: the state with a leading axis n; rows that were not reached are inf. Both are None when SaveAt
    asks for no row. t1, y1: where the solve ended (t1, an event, or where it got to), and the state there.
    result: int32, a Result. stats: Stats. interpolation: Interpolation with SaveAt(dense=True), else None.
    """

    ts: typing.Any
    ys: typing.Any
    t1: typing.Any
    y1: typing.Any
    result: typing.Any
    stats: Stats
    interpolation: typing.Any = None

    def __getattr__(self, name):
        raise _names.absent_attribute("'Solution' object", name, {"t": "ts", "y": "ys", "success": "result, message or check()", "sol": "evaluate(t)", "t_events": "t1"}, dir(type(self)))

    @property
    def message(self):
        """What the result says in words, with a remedy; of a batch, how many ended how."""
        codes, counts = numpy.unique(_known(self.result), return_counts=True)
        several = counts.sum() > 1
        lines = []
        for code, count in zip(codes.tolist(), counts.tolist()):
            remedy = _core.ode_remedy(code)
            lines.append(f"{f'{count} of {counts.sum()}: ' if several else ''}{_core.ode_describe(code)}{f'. Try: {remedy}' if remedy else ''}")
        return "\n".join(lines)

    def check(self):
        """Itself; UserError with the remedy unless t1, or an event that ends the solve, was reached (in a batch: by each)."""
        _known(self.result)
        _core.ode_check(self.result)
        return self

    def evaluate(self, t):
        """The state at t within the interval solved, one time or an array of them, whose axes come first; needs SaveAt(dense=True).

        Beyond the interval the first or last step's polynomial goes on, which soon is far from the solution.
        """
        if self.interpolation is None:
            raise _core.UserError("[ode.evaluate] the solve must have kept its interpolant. Received: another SaveAt. Try: SaveAt(dense=True).")
        if isinstance(t, (list, tuple)) and not any(_core.is_tracer(x) for x in t):
            t = numpy.asarray(t, dtype=numpy.float64)
        return run_traced("evaluate", _evaluate, self.interpolation, t)


def _known(result):
    if _core.is_tracer(result):
        raise _core.UserError(
            "[ode] how a solve ended is known when the program has run. Received: a traced solution. "
            "Try: solution.check() on what the compiled function returns."
        )
    return numpy.asarray(result)


def _evaluate(interpolation, t):
    if interpolation.ends.ndim != 1:
        raise _core.UserError(
            f"[ode.evaluate] the solution must be of one solve. Received: a batch of shape {interpolation.ends.shape[:-1]}. "
            "Try: hl.vmap(lambda s, t: s.evaluate(t))(solutions, ts)."
        )
    t = _core.promote("ode.evaluate", [t, interpolation.ends])[0]
    structure = _core.tree_flatten(interpolation.coefficients[0])[1]
    coefficients = [structure.flatten_like(c) for c in interpolation.coefficients]
    leaves = _core.ode_evaluate(interpolation.starts, interpolation.ends, interpolation.lengths, coefficients, interpolation.direction, t)
    return structure.unflatten(leaves)


# ---- solving -------------------------------------------------------------------------------------------------------------------


@checked_call("hl.ode.solve(field, hl.ode.Tsit5(), t0, t1, y0, ...)")
def solve(field, solver, t0, t1, y0, *, args=None, dt0=None, saveat=None, controller=None, adjoint=None, events=None, max_steps=4096, throw=True):
    """Solves dy/dt = field(t, y, args) from t0 to t1, which may be the earlier: a Solution.

    field: a traced function that gives a tree like y. t is a scalar of the state's widest dtype.
    solver: hl.ode.Tsit5() and others; stiff problems need one with is_implicit.
    t0, t1, dt0: numbers, or traced float scalars. dt0: the first step, positive also backwards in time; a controller chooses without it.
    y0: a tree of float32 and float64 arrays; Python numbers take the widest dtype of the others, float32 alone.
    args: any tree; arrays in it are traced values for the field, everything else reaches it as it is.
    saveat: times, or a SaveAt; by default SaveAt(t1=True).
    controller: by default PID(rtol=1e-3, atol=1e-6). adjoint: by default Discrete(). events: an Event or several.
    max_steps: attempted steps after which the solve ends with Result.MaxSteps; memory of reverse mode is that of so many states.
    throw: outside of a compiled function, raise UserError unless the solve succeeded. Inside one nothing can be raised: look at
        solution.result, or call check() on the solution that the function returns.

    UserError for trees, shapes, dtypes and settings that do not fit.
    """
    _require("ode.solve", "solver", solver, Solver, "hl.ode.Tsit5()")
    controller = PID() if controller is None else controller
    adjoint = Discrete() if adjoint is None else adjoint  # noqa: F821  (made of the registry, below)
    _require("ode.solve", "controller", controller, Controller, "hl.ode.PID()")
    _require("ode.solve", "adjoint", adjoint, Adjoint, "hl.ode.Discrete()")
    saveat = SaveAt(t1=True) if saveat is None else saveat if isinstance(saveat, SaveAt) else SaveAt(ts=saveat)
    for name, given in (("t0", t0), ("t1", t1), ("dt0", dt0)):
        if isinstance(given, (float, numpy.floating)) and numpy.isnan(given):
            raise _core.UserError(f"[ode.solve] {name} must be a number. Received: nan.")
    events = [] if events is None else list(events) if isinstance(events, (list, tuple)) else [events]
    for i, event in enumerate(events):
        _require("ode.solve", f"events[{i}]", event, Event, "hl.ode.Event(function)")
    if isinstance(max_steps, bool) or not hasattr(max_steps, "__index__"):
        raise _core.UserError(f"[ode.solve] max_steps must be an integer. Received: {max_steps!r}.")

    def traced(y0, args):
        return _solve(_field_of(field), solver, t0, t1, y0, args, dt0, saveat, controller, adjoint, events, int(max_steps))

    if _core.is_tracing():
        return traced(y0, args)
    leaves, structure = _core.tree_flatten(args)
    numbers = {i: x for i, x in enumerate(leaves) if _is_number(x)}  # they stay what they are

    def with_numbers(y0, others):
        others = iter(others)
        return traced(y0, structure.unflatten([numbers[i] if i in numbers else next(others) for i in range(len(leaves))]))

    solution = _core.run_once(with_numbers, "ode.solve", y0, [x for i, x in enumerate(leaves) if i not in numbers])
    return solution.check() if throw else solution


def _require(where, name, value, kind, example):
    if not isinstance(value, kind):
        received = f"the class {value.__name__}" if isinstance(value, type) else kind_of(value)
        raise _core.UserError(f"[{where}] {name} must be {'an' if kind.__name__[0] in 'AE' else 'a'} hl.ode.{kind.__name__}. Received: {received}. Try: {example}.")


def _field_of(field):
    from hotloop.nn import Module

    if isinstance(field, Module):
        return lambda t, y, args: field(args, y)
    if not callable(field):
        raise _core.UserError(f"[ode.solve] the field must be a function of (t, y, args), or a module. Received: {kind_of(field)}.")
    try:
        takes = inspect.signature(field)
    except (TypeError, ValueError):  # none is known, as of what is built in
        return field
    try:
        takes.bind(None, None, None)
    except TypeError:
        raise _core.UserError(f"[ode.solve] the field must be a function of (t, y, args). Received: one of {takes}. Try: field(t, y, args).") from None
    return field


def _is_number(x):
    return x.weak if _core.is_tracer(x) else type(x) in (int, float)


def _is_list_of_numbers(y0):
    return isinstance(y0, (list, tuple)) and len(y0) > 0 and all(_is_number(x) for x in y0)


def _in_dtype(number, dtype):
    return _core.promote("ode.solve", [number, _core.full(0.0, dtype, ())])[0]


def _state(y0):
    leaves, structure = _core.tree_flatten(y0)
    known = [None if _is_number(x) else _core.to_tracer(x, "y0") for x in leaves]
    wrong = next((x for x in known if x is not None and x.dtype.kind != "f"), None)
    if wrong is not None:
        raise _core.UserError(f"[ode.solve] leaves of the state must be f32 or f64. Received: {wrong._type} in y0. Try: y0.astype('float64'), or args for what does not change.")
    widest = "float64" if any(x is not None and x.dtype == numpy.float64 for x in known) else "float32"
    return [_in_dtype(x, widest) if k is None else k for x, k in zip(leaves, known)], structure


def _solve(field, solver, t0, t1, y0, args, dt0, saveat, controller, adjoint, events, max_steps):
    y0_given = y0
    y0, structure = _state(y0)
    leaves, args_structure = _core.tree_flatten(args)
    # Numbers keep the digits and the weak dtype that they have; they and what is no array are the same in every trace.
    arrays = [i for i, x in enumerate(leaves) if not _is_number(x) and (_core.is_tracer(x) or _core.is_array_like(x)) and type(x) is not bool]

    def called(fn, t, y, values):
        given = list(leaves)
        for i, value in zip(arrays, values):
            given[i] = value
        return fn(t, structure.unflatten(y), args_structure.unflatten(given))

    def like_state(fn, what):
        def flat(t, y, values):
            try:
                result = called(fn, t, y, values)
            except TypeError as error:
                if args is None and "NoneType" in str(error):
                    raise TypeError(f"{error}. The function was given args=None. Try: hl.ode.solve(..., args=...)") from error
                if not _is_list_of_numbers(y0_given):
                    raise
                raise TypeError(f"{error}. A list y0 is a tree of single numbers. Try: y0=numpy.array([...])") from error
            try:
                result = structure.flatten_like(result, "ode.solve")
            except _core.UserError as error:
                listed = len(y) == 1 and isinstance(result, (list, tuple))
                raise _core.UserError(f"[ode.solve] {what} must give a tree like y0. {error}{' Try: hl.stack([...]).' if listed else ''}") from None
            return [_in_dtype(r, v.dtype) if _is_number(r) else r for r, v in zip(result, y)]

        return flat

    flat_events = [
        (lambda t, y, values, e=e: [called(e.function, t, y, values)], e.direction, e.terminal,
         None if e.change is None else like_state(e.change, "the change of an event"))
        for e in events
    ]  # fmt: skip
    ts = _core.to_tracer(saveat.ts, "ts") if isinstance(saveat.ts, list) and any(_core.is_tracer(t) for t in saveat.ts) else saveat.ts
    parts = _core.ode_solve(
        like_state(field, "the field"), solver._solver, t0, t1, structure, y0, [leaves[i] for i in arrays], dt0,
        _core.SaveRequest(saveat.t0, saveat.steps, saveat.t1, saveat.dense), ts, controller._controller(structure), adjoint._adjoint,
        flat_events, max_steps,
    )  # fmt: skip
    interpolation = None
    if parts["dense"] is not None:
        starts, ends, lengths, coefficients, direction = parts["dense"]
        interpolation = Interpolation(starts, ends, lengths, [structure.unflatten(c) for c in coefficients], direction)
    ys = None if parts["ys"] is None else structure.unflatten(parts["ys"])
    return Solution(parts["ts"], ys, parts["t1"], structure.unflatten(parts["y1"]), parts["result"], Stats(**parts["stats"]), interpolation)


# ---- solvers and adjoints of the registries ------------------------------------------------------------------------------------


for _base, _definitions, _make in ((Solver, _core.solver_definitions(), _core.make_solver), (Adjoint, _core.adjoint_definitions(), _core.make_adjoint)):
    for _definition in _definitions:
        _cls = component_class(_base, _definition, _make)
        globals()[_cls.__name__] = _cls
        __all__.append(_cls.__name__)


def __dir__():
    return __all__


def __getattr__(name):
    raise absent("hotloop.ode", name, __all__, EQUATIONS)
