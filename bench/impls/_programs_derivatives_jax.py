"""Programs with derivatives in their loss, in JAX; see impls/_programs_derivatives.py."""

import types

from harness.prepared import Prepared

from impls import _programs, _programs_derivatives


def derivative_program(sizes, inputs):
    import jax
    import jax.numpy as jnp
    import jax.scipy.linalg

    def derivative(f, order):
        for _ in range(order):
            f = jax.grad(f, argnums=1)
        return jax.vmap(f)

    def settled(update, start):
        def body(carry):
            new = update(carry[0])
            return new, jnp.max(jnp.abs(new - carry[0])), carry[2] + 1

        return jax.lax.while_loop(lambda carry: (carry[1] > 1e-5) & (carry[2] < 60), body, (start, jnp.ones(()), 0))[0]

    def fixed_point(f, z, *arguments):
        shape = z.shape

        @jax.custom_vjp
        def layer(*arguments):
            return settled(lambda z: f(z, *arguments), jnp.zeros(shape))

        def forward(*arguments):
            z = layer(*arguments)
            return z, (z, arguments)

        def backward(residuals, cotangent):
            z, arguments = residuals
            pull = jax.vjp(lambda z: f(z, *arguments), z)[1]
            u = settled(lambda u: cotangent + pull(u)[0], jnp.zeros_like(z))
            return jax.vjp(lambda *arguments: f(z, *arguments), *arguments)[1](u)

        layer.defvjp(forward, backward)
        return layer(*arguments)

    xp = types.SimpleNamespace(
        scan=jax.lax.scan, concat=jnp.concatenate, stack=jnp.stack, reshape=jnp.reshape, sum=jnp.sum, mean=jnp.mean, exp=jnp.exp, log=jnp.log, tanh=jnp.tanh,
        pad=lambda x: jnp.pad(x, 1), cholesky=jnp.linalg.cholesky, solve=jnp.linalg.solve, slogdet=jnp.linalg.slogdet,
        solve_triangular=lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), matrix_transpose=lambda x: jnp.swapaxes(x, -1, -2),
        gradients=lambda f: jax.vmap(jax.grad(f)), jacobians=lambda f: jax.vmap(jax.jacfwd(f)), derivative=derivative, fixed_point=fixed_point,
    )  # fmt: skip
    parameters, data = jax.tree.map(jnp.asarray, _programs.split(inputs))
    f = _programs_derivatives.BY_NAME[sizes["program"]]
    g = jax.jit(lambda p, d: jax.value_and_grad(lambda q: f(xp, q, d))(p))
    return Prepared(lambda: jax.block_until_ready(g(parameters, data)), _programs.results(f.__name__, parameters, *g(parameters, data)))
