"""Programs that nobody tuned for, in Hotloop; see impls/_programs.py."""

import types

from harness.prepared import Prepared

from impls import _programs
from impls._hotloop_options import OPTIONS


def program(sizes, inputs):
    import hotloop as hl

    def take_rows(table, at):
        return hl.take(table, at.reshape((-1,)), axis=0).reshape((*at.shape, table.shape[1]))

    xp = types.SimpleNamespace(
        scan=hl.scan, logsumexp=lambda x, axis: hl.logsumexp(x, axis=axis), softmax=lambda x, axis: hl.softmax(x, axis=axis), sigmoid=hl.sigmoid,
        take_rows=take_rows, one_hot=hl.one_hot, concat=hl.concat, permute_dims=hl.permute_dims, reshape=hl.reshape, sum=hl.sum, mean=hl.mean,
        exp=hl.exp, tanh=hl.tanh, sqrt=hl.sqrt, log=hl.log, sinh=hl.sinh, cosh=hl.cosh, stack=hl.stack,
        take_along=lambda x, at, axis: hl.take_along_axis(x, at, axis=axis),
    )  # fmt: skip
    parameters, data = _programs.split(inputs)
    f = _programs.BY_NAME[sizes["program"]]
    g = hl.jit(lambda p, d: hl.value_and_grad(lambda q: f(xp, q, d))(p), **OPTIONS)
    return Prepared(lambda: g(parameters, data), _programs.results(f.__name__, parameters, *g(parameters, data)))
