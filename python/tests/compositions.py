"""Random programs and random compositions of transforms, written once for two libraries.

A program maps x (4,) to a scalar. Each transform makes of such a function another one, so that any chain of them is again one;
what is compared is its value and its gradient.
"""

import dataclasses
import random
import typing

import numpy as np

N = 4


@dataclasses.dataclass
class Library:
    """What a program is written with."""

    name: str
    fn: typing.Any  # module of array functions
    grad: typing.Callable
    vmap: typing.Callable
    jvp: typing.Callable
    hessian: typing.Callable
    scan: typing.Callable
    checkpoint: typing.Callable
    while_steps: typing.Callable  # (cond, body, x, max_steps) -> x
    sigmoid: typing.Callable
    jit: typing.Callable


def hotloop_library():
    import hotloop as hl

    return Library(
        "hotloop", hl, hl.grad, hl.vmap, hl.jvp, hl.hessian, hl.scan, hl.checkpoint,
        lambda cond, body, x, n: hl.while_loop(cond, body, x, max_steps=n), hl.sigmoid, hl.jit,
    )  # fmt: skip


def jax_library():
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def masked(cond, body, x, n):
        """A while loop as a scan, since JAX has no reverse mode through its own."""
        return jax.lax.scan(lambda v, _: (jnp.where(cond(v), body(v), v), None), x, None, length=n)[0]

    return Library("jax", jnp, jax.grad, jax.vmap, jax.jvp, jax.hessian, jax.lax.scan, jax.checkpoint, masked, jax.nn.sigmoid, jax.jit)


def base(lib, seed):
    """A random program of 3 to 6 operations."""
    rng = random.Random(seed)
    weights = np.random.default_rng(seed).normal(size=(8, N, N)) * 0.5
    steps = [(rng.choice(["tanh", "sin", "sigmoid", "matmul", "mul", "flip", "slice", "softmax", "cumsum", "gather"]), rng.randrange(8)) for _ in range(rng.randint(3, 6))]
    np_ = lib.fn

    def fn(x):
        v = x
        for name, k in steps:
            w = weights[k]
            if name in ("tanh", "sin"):
                v = getattr(np_, name)(v + w[0])
            elif name == "sigmoid":
                v = lib.sigmoid(v * w[1])
            elif name == "matmul":
                v = np_.asarray(w) @ v
            elif name == "mul":
                v = v * x + w[2]
            elif name == "flip":
                v = np_.flip(v)
            elif name == "slice":
                v = np_.concat([v[1:], v[:1] * 2.0])
            elif name == "softmax":
                e = np_.exp(v - 0.5)
                v = e / np_.sum(e)
            elif name == "cumsum":
                v = lib.scan(lambda c, t: (c + t, c * t), np_.sum(v) * 0.0, v)[1]
            elif name == "gather":
                v = v[np.array([k % N, 0, (k + 1) % N, 0])]
        return np_.sum(v * v) * 0.5 + np_.sum(np_.sin(v))

    return fn


def chain(lib, seed):
    """A base program under 1 to 3 random transforms, and the names of these, the outermost last."""
    rng = random.Random(1000 + seed)
    constants = np.random.default_rng(1000 + seed)
    fn, names, np_ = base(lib, seed), [], lib.fn
    heavy = 0
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(["grad", "vmap", "jvp", "hessian", "scan", "while", "checkpoint"])
        heavy += name in ("hessian", "grad")
        if heavy > 2:
            continue
        names.append(name)
        v, m = constants.normal(size=N), constants.normal(size=(N, N))
        fn = _transformed(lib, np_, name, fn, v, m)
    return fn, names


def _transformed(lib, np_, name, f, v, m):
    if name == "grad":
        return lambda x: np_.sum(np_.sin(lib.grad(f)(x)))
    if name == "vmap":
        return lambda x: np_.sum(lib.vmap(f)(np_.asarray(m) * 0.3 + x) * np_.asarray(v))
    if name == "jvp":
        return lambda x: lib.jvp(f, (x,), (np_.asarray(v),))[1] * 0.5
    if name == "hessian":
        return lambda x: np_.tanh(np_.sum(lib.hessian(f)(x) * np_.asarray(m)) * 0.1)
    if name == "checkpoint":
        return lib.checkpoint(f)
    if name == "scan":

        def scanned(x):
            def step(c, t):
                c = np_.tanh(c + 0.1 * t * x)
                return c, f(c)

            c, ys = lib.scan(step, x, np_.asarray(v))
            return np_.sum(ys) + np_.sum(c)

        return scanned

    def looped(x):
        y = lib.while_steps(lambda c: np_.sum(c * c) > 0.3, lambda c: 0.7 * c + 0.01 * np_.sin(c), x, 12)
        return f(y)

    return looped


def results(lib, seed):
    """(names of the transforms, value, gradient) at a point that the seed gives."""
    fn, names = chain(lib, seed)
    x = np.random.default_rng(2000 + seed).normal(size=N)
    value = lib.jit(fn)(x)
    gradient = lib.jit(lib.grad(fn))(x)
    return names, float(value), np.asarray(gradient, dtype=np.float64).tolist()
