#!/usr/bin/env python3
"""Records derivatives that JAX computes, for tests/parity/derivatives_test.cpp.

Writes tests/parity/data/jax_derivatives.json: random networks and recurrent cells, their inputs, and in float64 the Jacobian and Hessian
with respect to x, a Hessian-vector product and the per-sample gradient of the parameters, and the Laplacian. Needs jax; its version
is written into the file.

usage: scripts/record_derivatives.py [FILE]
"""
import json
import os
import pathlib
import sys

os.environ["JAX_ENABLE_X64"] = "1"
import jax
import jax.numpy as jnp
import numpy as np

random = np.random.default_rng(20261121)
ACTIVATIONS = {
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "sin": jnp.sin,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "exp": jnp.exp,
    "square": jnp.square,
}


def draw(*shape, scale=0.8):
    return random.uniform(-scale, scale, shape)


def pack(array):
    array = np.asarray(array, dtype=np.float64)
    return {"shape": list(array.shape), "data": array.ravel().tolist()}


def mlp(activations):
    def run(x, *params):  # x (B, I)
        for k, name in enumerate(activations):
            x = ACTIVATIONS[name](x @ params[2 * k] + params[2 * k + 1])
        return x @ params[-1]

    return run


def lstm(x, w, u, b):  # x (B, T, I) -> last h (B, H); gates i, f, g, o
    def cell(state, x_t):
        h, c = state
        i, f, g, o = jnp.split(x_t @ w + h @ u + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[0], u.shape[0]))
    return jax.lax.scan(cell, (zero, zero), jnp.swapaxes(x, 0, 1))[0][0]


def gru(x, w, u):  # gates r, z, n
    def cell(h, x_t):
        (xr, xz, xn), (hr, hz, hn) = jnp.split(x_t @ w, 3, -1), jnp.split(h @ u, 3, -1)
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        h = (1 - z) * jnp.tanh(xn + r * hn) + z * h
        return h, h

    zero = jnp.zeros((x.shape[0], u.shape[0]))
    return jax.lax.scan(cell, zero, jnp.swapaxes(x, 0, 1))[0]


def record(name, spec, run, x, params):
    def one(x, *p):
        return jnp.sum(jnp.sin(run(x, *p)))

    vector = [draw(*p.shape) for p in params]
    everything = tuple(range(1, 1 + len(params)))
    hvp = jax.jvp(lambda *p: jax.grad(lambda *q: one(x, *q), argnums=tuple(range(len(p))))(*p), tuple(params), tuple(vector))[1]
    per_sample = jax.vmap(lambda row: jax.grad(one, argnums=everything)(row[None], *params))(x)
    hessian = jax.hessian(one)(x, *params)
    n = x.size
    return {
        "name": name, **spec, "x": pack(x), "params": [pack(p) for p in params], "vector": [pack(v) for v in vector],
        "jacobian": pack(jax.jacfwd(run)(x, *params)), "hessian": pack(hessian),
        "hvp": [pack(h) for h in hvp], "per_sample_grad": [pack(g) for g in per_sample],
        "laplacian": pack(jnp.trace(hessian.reshape(n, n))),
    }


def main():
    cases = []
    for k in range(10):
        depth = int(random.integers(1, 4))
        widths = [int(w) for w in random.integers(1, 6, depth + 2)]
        names = [str(n) for n in random.choice(list(ACTIVATIONS), depth)]
        params = []
        for a, b in zip(widths[:-2], widths[1:-1]):
            params += [draw(a, b), draw(b)]
        params.append(draw(widths[-2], widths[-1]))
        cases.append(record(f"mlp_{k}", {"kind": "mlp", "activations": names}, mlp(names), draw(3, widths[0]), params))
    B, T, I, H = 2, 4, 2, 3
    cases.append(record("lstm", {"kind": "lstm"}, lstm, draw(B, T, I), [draw(I, 4 * H), draw(H, 4 * H), draw(4 * H)]))
    cases.append(record("gru", {"kind": "gru"}, gru, draw(B, T, I), [draw(I, 3 * H), draw(H, 3 * H)]))
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                        pathlib.Path(__file__).resolve().parents[1] / "tests" / "parity" / "data" / "jax_derivatives.json")
    path.write_text(json.dumps({"jax": jax.__version__, "cases": cases}))


if __name__ == "__main__":
    main()
