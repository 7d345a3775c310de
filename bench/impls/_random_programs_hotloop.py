"""Networks drawn at random, in Hotloop; see impls/_random_programs.py."""

import types

import numpy as np
from harness.prepared import Prepared

from impls import _programs, _random_programs
from impls._hotloop_options import OPTIONS


def random_program(sizes, inputs):
    import hotloop as hl

    xp = types.SimpleNamespace(
        tanh=hl.tanh, sigmoid=hl.sigmoid, relu=hl.relu, softplus=hl.softplus, sin=hl.sin, sqrt=hl.sqrt, mean=hl.mean, sum=hl.sum,
        permute_dims=hl.permute_dims, scan=hl.scan, zeros=lambda shape, like: hl.zeros(shape, dtype=like.dtype),
    )  # fmt: skip
    parameters, data = _programs.split(inputs)
    x, y = data["x"], _random_programs.per_sample_targets(sizes, data) if sizes["of"] == "persample" else data["y"]
    output = lambda p, x: _random_programs.outputs(xp, sizes, p, x)  # noqa: E731
    loss = lambda p, x, y: _random_programs.loss(xp, sizes, p, x, y)  # noqa: E731
    one_output = lambda p, x: _random_programs.one_output(xp, sizes, p, x)  # noqa: E731
    derivative = {
        "forward": lambda p, x, y: output(p, x),
        "gradient": hl.value_and_grad(loss),
        "jvp": lambda p, x, y: hl.jvp(lambda q: output(q, x), (p,), (p,)),
        "hvp": lambda p, x, y: hl.hvp(lambda q: loss(q, x, y), p, p),
        "persample": lambda p, x, y: hl.vmap(lambda x, y: hl.grad(lambda q: _random_programs.one_loss(xp, sizes, q, x, y))(p))(x, y),
        "jacobian": lambda p, x, y: hl.jacobian(lambda v: output(p, v))(x).blocks,  # finds that rows are apart
        "hessian": lambda p, x, y: hl.vmap(hl.hessian(lambda v: one_output(p, v)[0]))(x),
    }[sizes["of"]]  # fmt: skip
    f = hl.jit(derivative, **OPTIONS)
    return Prepared(lambda: f(parameters, x, y), _random_programs.results(sizes, parameters, f(parameters, x, y), np))
