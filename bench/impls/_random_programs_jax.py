"""Networks drawn at random, in JAX; see impls/_random_programs.py."""

import types

import numpy as np
from harness.prepared import Prepared

from impls import _programs, _random_programs


def random_program(sizes, inputs):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", inputs["d.x"].dtype == np.float64)
    xp = types.SimpleNamespace(
        tanh=jnp.tanh, sigmoid=jax.nn.sigmoid, relu=jax.nn.relu, softplus=jax.nn.softplus, sin=jnp.sin, sqrt=jnp.sqrt, mean=jnp.mean, sum=jnp.sum,
        permute_dims=jnp.transpose, scan=jax.lax.scan, zeros=lambda shape, like: jnp.zeros(shape, like.dtype),
    )  # fmt: skip
    parameters, data = jax.tree.map(jnp.asarray, _programs.split(inputs))
    x, y = data["x"], _random_programs.per_sample_targets(sizes, data) if sizes["of"] == "persample" else data["y"]
    output = lambda p, x: _random_programs.outputs(xp, sizes, p, x)  # noqa: E731
    loss = lambda p, x, y: _random_programs.loss(xp, sizes, p, x, y)  # noqa: E731
    one_output = lambda p, x: _random_programs.one_output(xp, sizes, p, x)  # noqa: E731
    # Jacobians the way that has fewer columns or rows to go.
    jacobian = jax.jacfwd if sizes["of"] == "jacobian" and x.shape[1] <= data["y"].shape[1] else jax.jacrev
    derivative = {
        "forward": lambda p, x, y: output(p, x),
        "gradient": jax.value_and_grad(loss),
        "jvp": lambda p, x, y: jax.jvp(lambda q: output(q, x), (p,), (p,)),
        "hvp": lambda p, x, y: jax.jvp(jax.grad(lambda q: loss(q, x, y)), (p,), (p,))[1],
        "persample": lambda p, x, y: jax.vmap(lambda x, y: jax.grad(lambda q: _random_programs.one_loss(xp, sizes, q, x, y))(p))(x, y),
        "jacobian": lambda p, x, y: jax.vmap(jacobian(lambda v: one_output(p, v)))(x),
        "hessian": lambda p, x, y: jax.vmap(jax.hessian(lambda v: one_output(p, v)[0]))(x),
    }[sizes["of"]]  # fmt: skip
    f = jax.jit(derivative)
    return Prepared(lambda: jax.block_until_ready(f(parameters, x, y)), _random_programs.results(sizes, parameters, f(parameters, x, y), np))
