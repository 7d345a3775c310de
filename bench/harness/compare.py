"""Whether a result is the reference's."""

import numpy as np


class Mismatch(Exception):
    pass


def check(task, inputs, reference, results):
    """The largest error found, as a share of its tolerance, with its name. Mismatch if a result is missing, has another shape, is not
    finite or is too far from the reference."""
    for name in task.required:
        if name not in results:
            raise Mismatch(f"{name} was not given")
    worst = ("", 0.0, 0.0)
    for name, result in results.items():
        if name not in reference:
            raise Mismatch(f"{name} is no result of this task")
        error, limit = _error(task, name, inputs, reference[name], np.asarray(result, np.float64))
        if not error <= limit:
            raise Mismatch(f"{name} differs from the reference by {error:.3g}, more than {limit:.3g} is allowed")
        if error / limit >= worst[1]:
            worst = (name, error / limit, error)
    return worst[0], worst[2]


def _error(task, name, inputs, reference, result):
    tolerance = task.tolerances.get(name) or task.tolerances["*"]
    if result.shape != reference.shape:
        raise Mismatch(f"{name} has shape {result.shape}, the reference {reference.shape}")
    if not np.isfinite(result).all():
        raise Mismatch(f"{name} is not finite")
    if tolerance.start:
        start = np.asarray(inputs[name], np.float64)
        result, reference = result - start, reference - start
    measure = (lambda a: np.abs(a).max(initial=0.0)) if tolerance.pointwise else np.linalg.norm
    size = measure(reference)
    return float(measure(result - reference) / size if size > 0 else measure(result)), tolerance.relative
