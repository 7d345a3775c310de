"""How several variables vary together."""

from hotloop import _core
from hotloop._elementwise import _select
from hotloop._linear import matmul
from hotloop._op import exporter, number

__all__ = []
_export = exporter(__all__)


def _variables(name, x, y, rowvar):
    """The variables in rows, (variables, observations), and whether there is but one that came as a vector."""
    parts = _core.promote(name, [v for v in (x, y) if v is not None], True)
    for part in parts:
        if part.ndim not in (1, 2):
            raise _core.UserError(f"[{name}] observations must be a vector, or (variables, observations). Received: {part._type}.")
    is_single = len(parts) == 1 and parts[0].ndim == 1
    rows = []
    for part in parts:
        if part.ndim == 1:
            part = _core.reshape(part, (1, part.shape[0]))
        elif not rowvar:
            part = _core.append("transpose", [part], {"permutation": [1, 0]})
        rows.append(part)
    if len({part.shape[1] for part in rows}) != 1:
        raise _core.UserError(f"[{name}] x and y must have as many observations. Received: {' and '.join(p._type for p in parts)}.")
    return (rows[0] if len(rows) == 1 else _core.concat(rows, 0)), is_single


def _covariances(name, x, y, rowvar, correction):
    rows, is_single = _variables(name, x, y, rowvar)
    centered = rows - _core.reshape(_core.mean(rows, [1]), (rows.shape[0], 1))
    count = rows.shape[1] - number(name, "correction", correction)
    if not count > 0:
        raise _core.UserError(f"[{name}] there must be more observations than the correction takes off. Received: {rows.shape[1]} of {rows.shape[0]} variables, correction={correction}.")
    return matmul(centered, _core.append("transpose", [centered], {"permutation": [1, 0]})) * (1.0 / count), is_single


@_export(2, ["y"])
def cov(x, /, y=None, rowvar=True, bias=False, *, correction=None):
    """The covariances (variables, variables) of variables in rows, or in columns without `rowvar`; of a vector its variance, a scalar. As numpy.cov.

    x: (variables, observations) or (observations,); y: more variables of the same observations. Sums are divided by the number of observations less
    `correction`, which is 1 if not given, and 0 with `bias`. Errors: UserError where that leaves none.
    """
    found, is_single = _covariances("cov", x, y, rowvar, (0 if bias else 1) if correction is None else correction)
    return _core.reshape(found, ()) if is_single else found


@_export(2, ["y"])
def corrcoef(x, /, y=None, rowvar=True):
    """The correlation coefficients of variables in rows, or in columns without `rowvar`: covariances over both standard deviations, as numpy.corrcoef. NaN where a variable is
    constant."""
    found, is_single = _covariances("corrcoef", x, y, rowvar, 0)
    n = found.shape[0]
    # The diagonal of n rows, as every (n + 1)-th number.
    deviations = _core.unary("sqrt", _core.reshape(found, (n * n,))[:: n + 1])
    found = found / _core.reshape(deviations, (n, 1)) / deviations
    found = _select(_core.binary("gt", found, 1.0), 1.0, _select(_core.binary("lt", found, -1.0), -1.0, found))  # what rounding took beyond
    return _core.reshape(found, ()) if is_single else found
