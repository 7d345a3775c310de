"""Programs with derivatives in their loss, in Hotloop; see impls/_programs_derivatives.py."""

import types

from harness.prepared import Prepared

from impls import _programs, _programs_derivatives
from impls._hotloop_options import OPTIONS


def derivative_program(sizes, inputs):
    import hotloop as hl

    def derivative(f, order):
        for _ in range(order):
            f = hl.grad(f, argnums=1)
        return hl.vmap(f)

    def settled(update, start):
        def body(carry):
            new = update(carry[0])
            return new, hl.max(hl.abs(new - carry[0]))

        return hl.while_loop(lambda carry: carry[1] > 1e-5, body, (start, hl.ones(())), max_steps=60)[0]

    def fixed_point(f, z, *arguments):
        @hl.custom_vjp
        def layer(*arguments):
            return settled(lambda z: f(z, *arguments), hl.zeros_like(z))

        def forward(*arguments):
            z = layer(*arguments)
            return z, (z, arguments)

        def backward(residuals, cotangent):
            z, arguments = residuals
            pull = hl.vjp(lambda z: f(z, *arguments), z)[1]
            u = settled(lambda u: cotangent + pull(u)[0], hl.zeros_like(z))
            return hl.vjp(lambda *arguments: f(z, *arguments), *arguments)[1](u)

        layer.defvjp(forward, backward)
        return layer(*arguments)

    xp = types.SimpleNamespace(
        scan=hl.scan, concat=hl.concat, stack=lambda parts, axis: hl.stack(parts, axis=axis), reshape=hl.reshape, sum=hl.sum, mean=hl.mean, exp=hl.exp, log=hl.log, tanh=hl.tanh,
        pad=lambda x: hl.pad(x, 1), cholesky=hl.linalg.cholesky, solve=hl.linalg.solve, slogdet=hl.linalg.slogdet, solve_triangular=lambda a, b: hl.linalg.solve_triangular(a, b, lower=True),
        matrix_transpose=hl.matrix_transpose, gradients=lambda f: hl.vmap(hl.grad(f)), jacobians=lambda f: hl.vmap(hl.jacfwd(f)), derivative=derivative,
        fixed_point=fixed_point,
    )  # fmt: skip
    parameters, data = _programs.split(inputs)
    f = _programs_derivatives.BY_NAME[sizes["program"]]
    g = hl.jit(lambda p, d: hl.value_and_grad(lambda q: f(xp, q, d))(p), **OPTIONS)
    return Prepared(lambda: g(parameters, data), _programs.results(f.__name__, parameters, *g(parameters, data)))
