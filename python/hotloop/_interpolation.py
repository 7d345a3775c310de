"""Functions that are given by a table of points."""

from hotloop import _core
from hotloop._elementwise import where
from hotloop._op import op

__all__ = ["interp"]


@op(5)
def _interp(x, xp, fp, left, right):
    x, xp, fp = _core.promote("interp", [x, xp, fp], True)
    if xp.ndim != 1 or xp.shape != fp.shape or xp.size == 0:
        raise _core.UserError(f"[interp] xp and fp must be vectors of one length, which is not 0. Received: {xp._type} and {fp._type}. Try: hl.vmap() for several tables.")
    first, last = xp[0], xp[-1]
    inside = where((x >= first) & (x <= last), x, first)
    if xp.size == 1:
        y = _core.broadcast_to(fp[0], x.shape)
    else:
        after = _core.binary("min", _core.binary("max", _core.searchsorted(xp, inside, True), 1), xp.size - 1)
        x0, x1, y0, y1 = xp[after - 1], xp[after], fp[after - 1], fp[after]
        width = where(x1 == x0, 1.0, x1 - x0)  # of a step at the end
        y = where(inside == x1, y1, y0 + (y1 - y0) / width * (inside - x0))
    y = where(x < first, fp[0] if left is None else _core.fitted("interp", left, y.dtype), y)
    y = where(x > last, fp[-1] if right is None else _core.fitted("interp", right, y.dtype), y)
    return where(x != x, x, y)


def interp(x, xp, fp, left=None, right=None):
    """The piecewise linear function through the points (xp, fp), at x; as numpy.interp.

    x: any shape, which the result has. xp: (n,), ascending, which is not checked; where it repeats, the function steps. fp: (n,). Integers count as float32.
    left, right: the result below xp[0] and above xp[-1]; None: fp[0] and fp[-1]. NaN gives NaN. Differentiable in x, xp and fp; at a point of xp the slope
    in x is that to its right. Errors: UserError for other shapes.
    """
    return _interp(x, xp, fp, left, right)


interp.__module__ = "hotloop"

