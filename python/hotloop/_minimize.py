"""Minimisation inside the program: iterations, derivatives and line searches are one loop of one kernel.

    found = hl.minimize(lambda p: ((model(p, x) - y) ** 2).mean(), params)
    found.params, found.value, found.message

Under hl.vmap each start goes its own way and stops by itself, the same bits alone and in any batch.
"""

import dataclasses
import enum
import typing

import numpy

from hotloop import _core, _names
from hotloop._control import run_traced
from hotloop._names import checked_call, kind_of
from hotloop._op import number

Status = enum.IntEnum("Status", _core.minimum_statuses(), module=__name__)
Status.__doc__ = "How a minimisation ended: the codes of Minimum.status. Up to Step it converged."


_RESULTS = {"x": "params", "fun": "value", "cost": "value", "success": "converged", "jac": "gradient_norm", "nit": "iterations", "nfev": "evaluations", "state": "params"}


@dataclasses.dataclass(eq=False, repr=False)
class Minimum:
    """What minimize() and least_squares() give; a tree of arrays, so that it goes through hl.jit and hl.vmap.

    params: where the least value was found. value: there. gradient_norm: the largest element of the gradient there.
    iterations: steps taken, evaluations: of the function, int32. status: int32, a Minimum.Status; `message` says it in words.
    """

    params: typing.Any
    value: typing.Any
    gradient_norm: typing.Any
    iterations: typing.Any
    evaluations: typing.Any
    status: typing.Any

    def __getattr__(self, name):
        raise _names.absent_attribute("'Minimum' object", name, _RESULTS, dir(type(self)))

    @property
    def converged(self):
        """Whether a tolerance was met, and not a limit; an array of bools for a batch, traced in a program."""
        return self.status <= int(Status.Step)

    @property
    def message(self):
        """How it ended in words, with a remedy; of a batch, how many ended how."""
        codes, counts = numpy.unique(self._known(), return_counts=True)
        lines = []
        for code, count in zip(codes.tolist(), counts.tolist()):
            remedy = _core.minimum_remedy(code)
            several = f"{count} of {counts.sum()}: " if counts.sum() > 1 else ""
            lines.append(f"{several}{_core.minimum_describe(code)}{f'. Try: {remedy}' if remedy else ''}")
        return "\n".join(lines)

    def check(self):
        """Itself; UserError with the remedy unless it converged (in a batch: each)."""
        if (self._known() > int(Status.Step)).any():
            raise _core.UserError(f"[minimize] the minimisation must converge. Received: {self.message}.")
        return self

    def _known(self):
        if _core.is_tracer(self.status):
            raise _core.UserError(
                "[minimize] how a minimisation ended is known when the program has run. Received: a traced minimum. "
                "Try: .message of what the compiled function returns."
            )
        return numpy.asarray(self.status)

    def __repr__(self):
        if _core.is_tracer(self.status) or numpy.ndim(self.status):
            return f"Minimum(value={self.value!r}, status={self.status!r})"
        return (
            f"Minimum(value={float(self.value):.7g}, gradient_norm={float(self.gradient_norm):.3g}, iterations={int(self.iterations)}, "
            f"evaluations={int(self.evaluations)}, {self.message!r})"
        )


Minimum.Status = Status


@checked_call("hl.minimize(fn, params, method='lbfgs')")
def minimize(fn, params, args=(), *, method="lbfgs", max_iterations=1000, max_evaluations=0, gradient_tolerance=1e-5, value_tolerance=1e-9, **settings):
    """The params at which fn(params, *args), a float scalar, is least near the given ones: a Minimum.

    fn: a traced function; its gradient is taken by itself. params: a tree of float32 and float64 arrays, all of which are changed.
    method: "lbfgs" (settings: history=10), "bfgs" with the inverse Hessian as a matrix, or "nonlinear_cg".
    max_iterations; max_evaluations: of fn and its gradient, 0: 20 an iteration.
    gradient_tolerance: of the largest element of the gradient. value_tolerance: of the relative change of the value in a step, which
        counts as the dtype's resolution if it is below; 0: it is not looked at.

    Along each direction a step is searched that meets the strong Wolfe conditions, or the approximate ones where rounding hides the
    decrease. Nothing is raised when it does not converge: see Minimum.message, or call check(). What fn uses from its surroundings may be
    differentiated: the result's derivative is that of the minimum (implicit), and none in the start.
    """
    _callable("minimize", fn)
    _known_settings("minimize", settings)
    options = (_whole("minimize", "max_iterations", max_iterations), _whole("minimize", "max_evaluations", max_evaluations),
               *_tolerances("minimize", gradient_tolerance=gradient_tolerance, value_tolerance=value_tolerance))  # fmt: skip

    def traced(params, args):
        leaves, structure = _leaves(params)

        def flat(values):
            return [_called(fn, structure.unflatten(values), args)]

        return _minimum(structure, _core.minimize(flat, leaves, _method("minimize", method), settings, *options))

    return run_traced("minimize", traced, params, _arguments("minimize", args))


@checked_call("hl.least_squares(residuals, params, method='lm')")
def least_squares(residuals, params, args=(), *, method="lm", max_iterations=1000, max_evaluations=0, gradient_tolerance=1e-8, value_tolerance=1e-8,
                  step_tolerance=1e-8, **settings):  # fmt: skip
    """The params at which half the sum of squares of residuals(params, *args) is least near the given ones: a Minimum with that value.

    residuals: a traced function that gives an array, or a tree of them; their Jacobian is taken by itself, by the passes that its
        structure needs: residuals of rows that share the params take one row's. params: as in minimize().
    method: "lm", Levenberg-Marquardt with the damping by the gain ratio (settings: initial_damping=1e-3, of the largest element on the
        diagonal of J^T J; scaled=False: True damps each parameter by the size of its column of J, for params of different units).
    gradient_tolerance: of the largest element of J^T r. value_tolerance: of the relative change of the value in a step, found and
        promised. step_tolerance: of the step beside the params. What is below the dtype's resolution counts as that; 0: not looked at.
    max_iterations: steps taken. max_evaluations: of the residuals, 0: 20 an iteration.

    For up to some hundred params, since it makes J^T J. Endings and derivatives are as in minimize().
    """
    _callable("least_squares", residuals)
    _known_settings("least_squares", settings)
    options = (_whole("least_squares", "max_iterations", max_iterations), _whole("least_squares", "max_evaluations", max_evaluations),
               *_tolerances("least_squares", gradient_tolerance=gradient_tolerance, value_tolerance=value_tolerance, step_tolerance=step_tolerance))  # fmt: skip

    def traced(params, args):
        leaves, structure = _leaves(params)

        def flat(values):
            return _core.tree_flatten(_called(residuals, structure.unflatten(values), args))[0]

        return _minimum(structure, _core.least_squares(flat, leaves, _method("least_squares", method), settings, *options))

    return run_traced("least_squares", traced, params, _arguments("least_squares", args))


def _method(where, method):
    if not isinstance(method, str):
        raise _core.UserError(f"[{where}] method must be a name. Received: {kind_of(method)}.")
    return method


def _tolerances(where, **tolerances):
    return [float(number(where, name, value)) for name, value in tolerances.items()]


def _arguments(where, args):
    if not isinstance(args, (tuple, list)):
        raise _core.UserError(f"[{where}] args must be a tuple of what the function takes after the params. Received: {kind_of(args)}. Try: (args,).")
    return tuple(args)


def _called(fn, params, args):
    try:
        return fn(params, *args)
    except TypeError as error:
        if "'list'" in str(error) and isinstance(params, list):
            raise TypeError(f"{error}. A list of params is a tree of single numbers. Try: numpy.array([...])") from error
        raise


def _minimum(structure, parts):
    return Minimum(structure.unflatten(parts[0]), *parts[1:])


_ELSEWHERE = {  # SciPy's and JAX's names
    "tol": "gradient_tolerance", "gtol": "gradient_tolerance", "ftol": "value_tolerance", "xtol": "step_tolerance", "maxiter": "max_iterations",
    "maxfun": "max_evaluations", "max_nfev": "max_evaluations", "maxcor": "history", "memory_size": "history", "options": "max_iterations, history",
}  # fmt: skip


def _known_settings(where, settings):
    for name in settings:
        if name == "jac":
            raise _core.UserError(f"[{where}] derivatives are taken by themselves. Received: jac. Try: {where}(fn, params).")
        if name == "bounds":
            raise _core.UserError(f"[{where}] the params are not bounded. Received: bounds. Try: params that are mapped into the bounds, as hl.exp(p) or hl.sigmoid(p).")
        if name in _ELSEWHERE:
            raise _core.UserError(f"[{where}] every setting must be one that it has. Received: {name!r}. Try: {_ELSEWHERE[name]}.")


def _callable(where, fn):
    if not callable(fn):
        raise _core.UserError(f"[{where}] what is minimised must be a function of the params. Received: {kind_of(fn)}.")


def _whole(where, name, number):
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise _core.UserError(f"[{where}] {name} must be an integer. Received: {number!r}.")
    return int(number)


def _leaves(params):
    """Its leaves as values, numbers of Python among them in the widest dtype of the arrays, and the structure."""
    leaves, structure = _core.tree_flatten(params)
    is_number = [x.weak if _core.is_tracer(x) else type(x) in (int, float) for x in leaves]
    known = [None if number else _core.to_tracer(x, "params") for x, number in zip(leaves, is_number)]
    widest = "float64" if any(x is not None and x.dtype == numpy.float64 for x in known) else "float32"
    return [_core.promote("minimize", [x, _core.full(0.0, widest, ())])[0] if k is None else k for x, k in zip(leaves, known)], structure
