"""JAX on the CPU: one jitted function a task, time first, the input projection outside of the scan."""

import os

import numpy as np
from harness.prepared import Prepared, Unsupported

from impls._applications_jax import gradient_penalty, gru_ensemble, kalman, least_squares  # noqa: F401
from impls._programs_derivatives_jax import derivative_program  # noqa: F401
from impls._programs_jax import program  # noqa: F401
from impls._random_programs_jax import random_program  # noqa: F401


def setup(threads):
    os.environ["JAX_PLATFORMS"] = "cpu"
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def reset():
    """Before each task: what the one before may have set."""
    import jax

    jax.config.update("jax_enable_x64", False)


def versions():
    import jax

    return f"jax {jax.__version__}"


def _scan(sizes, p, x, suffix, reverse=False):
    """Outputs (T, B, ...) of one direction of one layer for x (T, B, I)."""
    import jax
    import jax.numpy as jnp

    cell, h = sizes["cell"], sizes["H"]
    zero = jnp.zeros((x.shape[1], h), x.dtype)
    sigmoid, tanh = jax.nn.sigmoid, jnp.tanh
    if cell in ("ln_lstm", "coupled"):
        gates = "ifgo" if cell == "ln_lstm" else "fgo"
        wx, wh = (jnp.concatenate([p[n + "_" + g] for g in gates]).T for n in "WU")
        xs = x @ wx
    if cell == "ln_lstm":

        def norm(v, gain, bias):
            v = v - v.mean(-1, keepdims=True)
            return v * jax.lax.rsqrt((v * v).mean(-1, keepdims=True) + 1e-5) * gain + bias

        def step(state, a):
            hs, c = state
            parts = jnp.split(a + hs @ wh, 4, -1)
            i, f, g, o = (norm(v, p["gain_" + k], p["bias_" + k]) for k, v in zip(gates, parts))
            c = sigmoid(f) * c + sigmoid(i) * tanh(g)
            hs = sigmoid(o) * tanh(norm(c, p["gain_c"], p["bias_c"]))
            return (hs, c), hs

        return jax.lax.scan(step, (zero, zero), xs)[1]
    if cell == "coupled":
        xs = xs + jnp.concatenate([p["b_" + g] for g in gates])
        keep = sigmoid(p["rate"])

        def step(state, a):
            hs, fast, slow = state
            f, g, o = jnp.split(a + hs @ wh, 3, -1)
            f = sigmoid(f + p["peep_f"] * fast)
            fast = f * fast + (1 - f) * (jax.nn.softplus(g) - 0.69)
            slow = keep * slow + (1 - keep) * fast
            hs = sigmoid(o + p["peep_o"] * fast) * tanh(fast - slow)
            return (hs, fast, slow), jnp.concatenate([hs, slow], 1)

        return jax.lax.scan(step, (zero, zero, zero + 0.5), xs)[1]

    wx, wh = p["weight_ih" + suffix].T, p["weight_hh" + suffix].T
    bx, bh = p["bias_ih" + suffix], p["bias_hh" + suffix]
    if cell == "gru":
        xs = x @ wx + bx

        def step(hs, a):
            b = hs @ wh + bh
            r, z = (sigmoid(a[:, k * h : (k + 1) * h] + b[:, k * h : (k + 1) * h]) for k in (0, 1))
            hs = (1 - z) * tanh(a[:, 2 * h :] + r * b[:, 2 * h :]) + z * hs
            return hs, hs

        return jax.lax.scan(step, zero, xs, reverse=reverse)[1]
    xs = x @ wx + (bx + bh)
    if cell == "rnn":

        def step(hs, a):
            hs = tanh(a + hs @ wh)
            return hs, hs

        return jax.lax.scan(step, zero, xs, reverse=reverse)[1]

    def step(state, a):
        hs, c = state
        i, f, g, o = jnp.split(a + hs @ wh, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        hs = sigmoid(o) * tanh(c)
        return (hs, c), hs

    return jax.lax.scan(step, (zero, zero), xs, reverse=reverse)[1]


def _outputs(sizes, p, x):
    import jax.numpy as jnp

    for layer in range(sizes["layers"]):
        sides = [_scan(sizes, p, x, f"_l{layer}{end}", end != "") for end in ("", "_reverse")[: sizes["directions"]]]
        x = sides[0] if len(sides) == 1 else jnp.concatenate(sides, -1)
    return x


def _trained(loss, params):
    """(one more step of Adam, results: the losses of the first five and the parameters after them)."""
    import jax
    import optax

    adam = optax.adam(1e-3)

    @jax.jit
    def step(p, state):
        value, grads = jax.value_and_grad(loss)(p)
        updates, state = adam.update(grads, state)
        return optax.apply_updates(p, updates), state, value

    now = [params, adam.init(params), None]

    def call():
        now[:] = jax.block_until_ready(step(now[0], now[1]))

    losses = []
    for _ in range(5):
        call()
        losses.append(float(now[2]))
    return call, {"losses": np.array(losses), **{k: np.array(v) for k, v in now[0].items()}}


def recurrent_train(sizes, inputs):
    import jax

    if sizes.get("dtype") == "bf16":
        raise Unsupported("default_matmul_precision means nothing on a CPU")
    jax.config.update("jax_enable_x64", sizes.get("dtype") == "f64")
    x, y = jax.numpy.asarray(inputs.pop("x").swapaxes(0, 1).copy()), jax.numpy.asarray(inputs.pop("y"))
    params = {k: jax.numpy.asarray(v) for k, v in inputs.items()}

    def loss(p):
        return ((_outputs(sizes, p, x)[-1] @ p["head.weight"].T + p["head.bias"] - y) ** 2).mean()

    return Prepared(*_trained(loss, params))


def recurrent_infer(sizes, inputs):
    import jax

    x = jax.numpy.asarray(inputs.pop("x").swapaxes(0, 1).copy())
    params = {k: jax.numpy.asarray(v) for k, v in inputs.items()}
    f = jax.jit(lambda p, x: _outputs(sizes, p, x))
    return Prepared(lambda: f(params, x).block_until_ready(), {"outputs": np.array(f(params, x)).swapaxes(0, 1)})


def stream(sizes, inputs):
    import jax
    import jax.numpy as jnp

    x = inputs.pop("x")
    p = {k: jnp.asarray(v) for k, v in inputs.items()}
    wx, wh, b = p["weight_ih_l0"].T, p["weight_hh_l0"].T, p["bias_ih_l0"] + p["bias_hh_l0"]

    @jax.jit
    def step(h, c, x):
        i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return h @ p["head.weight"].T + p["head.bias"], h, c

    rows, zero = [jnp.asarray(x[t : t + 1]) for t in range(len(x))], jnp.zeros((1, sizes["H"]))

    def run():
        h, c, ys = zero, zero, []
        for row in rows:
            y, h, c = step(h, c, row)
            ys.append(y)
        return jax.block_until_ready(ys)

    return Prepared(run, {"y": np.array(run()).ravel()}, units=len(rows), note="results awaited once, at the end")


def stream_sequence(sizes, inputs):
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(inputs.pop("x"))[:, None]
    p = {k: jnp.asarray(v) for k, v in inputs.items()}
    sizes = dict(cell="lstm", H=sizes["H"], layers=1, directions=1)
    f = jax.jit(lambda p, x: _outputs(sizes, p, x)[:, 0] @ p["head.weight"].T + p["head.bias"])
    return Prepared(lambda: f(p, x).block_until_ready(), {"y": np.array(f(p, x)).ravel()}, units=x.shape[0])


def _mlp_loss(p, x, y):
    """x (features, N): the layout in which XLA's CPU code is faster."""
    import jax.numpy as jnp

    h, n = x, len(p) // 2
    for k in range(n):
        h = p[f"w{k}"].T @ h + p[f"b{k}"][:, None]
        h = jnp.tanh(h) if k + 1 < n else h
    return ((h - y) ** 2).mean()


def _mlp(sizes, inputs):
    import jax
    import jax.numpy as jnp

    if sizes.get("f64"):
        jax.config.update("jax_enable_x64", True)
    x, y = (jnp.asarray(inputs.pop(k).T.copy()) for k in "xy")
    return x, y, {k: jnp.asarray(v) for k, v in inputs.items()}


def mlp_train(sizes, inputs):
    x, y, params = _mlp(sizes, inputs)
    return Prepared(*_trained(lambda p: _mlp_loss(p, x, y), params), note="features first")


def mlp_gradient(sizes, inputs):
    import jax

    x, y, params = _mlp(sizes, inputs)
    f = jax.jit(jax.value_and_grad(_mlp_loss))
    value, grads = f(params, x, y)
    return Prepared(
        lambda: jax.block_until_ready(f(params, x, y)), {"loss": np.array(value), **{k: np.array(v) for k, v in grads.items()}}, note="features first"
    )


def mlp_descent(sizes, inputs):
    import jax

    x, y, params = _mlp(sizes, inputs)

    def step(p, _):
        value, grads = jax.value_and_grad(_mlp_loss)(p, x, y)
        return {k: v - sizes["rate"] * grads[k] for k, v in p.items()}, value

    f = jax.jit(lambda p: jax.lax.scan(step, p, None, length=sizes["steps"]))
    return Prepared(lambda: jax.block_until_ready(f(params)), {"losses": np.array(f(params)[1])}, units=sizes["steps"], note="features first")


def matvec(sizes, inputs):
    import jax

    f = jax.jit(lambda a, v: a @ v)
    a, v = (jax.numpy.asarray(inputs[k]) for k in "av")
    return Prepared(lambda: f(a, v).block_until_ready(), {"y": np.array(f(a, v))})


def cold_start(sizes, inputs):
    from harness import cold

    return cold.start("import jax, jax.numpy as jnp\ny = jax.jit(lambda x: jnp.tanh(x).sum())(x)", inputs)


def jacobian(sizes, inputs):
    import jax
    import jax.numpy as jnp

    def mlp(x, p):
        n = len(p) // 2
        for k in range(n):
            x = x @ p[f"w{k}"] + p[f"b{k}"]
            x = jnp.tanh(x) if k + 1 < n else x
        return x

    x, p = jnp.asarray(inputs.pop("x")), {k: jnp.asarray(v) for k, v in inputs.items()}
    one = jax.jacfwd(mlp)
    f = jax.jit(one if sizes["dense"] else jax.vmap(one, in_axes=(0, None)))
    return Prepared(lambda: f(x, p).block_until_ready(), {"jacobian": np.array(f(x, p))}, note="jacfwd" if sizes["dense"] else "vmap(jacfwd)")


def lstm_derivative(sizes, inputs):
    import jax
    import jax.numpy as jnp

    names = ("wx", "wh", "b", "wo", "bo")
    given = {k: jnp.asarray(v) for k, v in inputs.items()}
    p, x, y = {k: given[k] for k in names}, given["x"], given["y"]

    def outputs(p, x):
        xs, zero = x @ p["wx"] + p["b"], jnp.zeros((x.shape[1], p["wh"].shape[0]))

        def step(state, a):
            i, f, g, o = jnp.split(a + state[0] @ p["wh"], 4, -1)
            c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return jax.lax.scan(step, (zero, zero), xs)[1]

    def loss(p, x, y):
        return ((outputs(p, x)[-1] @ p["wo"] + p["bo"] - y) ** 2).mean()

    if sizes["what"] == "jvp":
        f = jax.jit(lambda p, x, v: jax.jvp(lambda x: outputs(p, x), (x,), (v,)))
        arguments = (p, x, given["v_x"])
        y, dy = f(*arguments)
        results = {"outputs": np.array(y), "tangents": np.array(dy)}
    elif sizes["what"] in ("hvp_x", "per_sample_x"):
        if sizes["what"] == "hvp_x":
            f = jax.jit(lambda p, v, x, y: jax.jvp(jax.grad(lambda x: loss(p, x, y)), (x,), (v,))[1])
            arguments = (p, given["v_x"], x, y)
        else:
            one = jax.grad(lambda p, x, y: loss(p, x[:, None], y[None]), argnums=1)
            f = jax.jit(jax.vmap(one, in_axes=(None, 1, 0), out_axes=1))
            arguments = (p, x, y)
        results = {"x": np.array(f(*arguments))}
    else:
        if sizes["what"] == "hvp":
            v = {k: given["v_" + k] for k in names}
            f = jax.jit(lambda p, v, x, y: jax.jvp(jax.grad(lambda q: loss(q, x, y)), (p,), (v,))[1])
            arguments = (p, v, x, y)
        else:
            f = jax.jit(jax.vmap(jax.grad(lambda p, x, y: loss(p, x[:, None], y[None])), in_axes=(None, 1, 0)))
            arguments = (p, x, y)
        results = {k: np.array(a) for k, a in f(*arguments).items()}
    return Prepared(lambda: jax.block_until_ready(f(*arguments)), results)
