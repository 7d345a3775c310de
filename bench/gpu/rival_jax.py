"""What bench/gpu/rivals.py measures of JAX."""

import time
from functools import partial

import numpy as np
from rival_measure import (
    FIELD,
    JACOBIAN_BATCHES,
    JACOBIAN_WIDTHS,
    LEARNING_RATE,
    LN_SHAPE,
    LORENZ,
    LSTM_SHAPES,
    PRECISIONS,
    Job,
    append,
    label,
    lorenz_inputs,
    lstm_inputs,
    mlp_inputs,
    size,
    size_of_gradient,
)


def jax_jobs(options):
    import jax
    import jax.numpy as jnp

    device = jax.devices()[0]
    if not options.cpu and device.platform == "cpu":
        raise RuntimeError("JAX finds no GPU")
    append(options, {"info": {"jax": jax.__version__, "jax device": getattr(device, "device_kind", str(device))}})

    def compiled(function, precision):
        """A function of its own for each precision, since JAX keeps what it compiled by the function."""
        name = "float32" if precision == "f32" else None

        def traced(*arguments):
            with jax.default_matmul_precision(name):
                return function(*arguments)

        return jax.jit(traced)

    def finished(call, *checks, with_span=True):
        def span(k):
            start = time.perf_counter()
            for _ in range(k):
                last = call()
            jax.block_until_ready(last)
            return 1e3 * (time.perf_counter() - start)

        return call, jax.block_until_ready, span if with_span else None, list(checks)

    def lstm(unroll, p, x):
        layers = [p, *p["above"]]
        for k, layer in enumerate(layers):
            xs, zero = x @ layer["w"] + layer["b"], jnp.zeros((x.shape[1], layer["u"].shape[0]), x.dtype)
            is_last = k + 1 == len(layers)

            def cell(state, wx, u=layer["u"], is_last=is_last):
                h, c = state
                i, f, g, o = jnp.split(wx + h @ u, 4, axis=-1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), None if is_last else h

            (h, _), x = jax.lax.scan(cell, (zero, zero), xs, unroll=unroll)
        return h @ p["wo"] + p["bo"]

    def fused_lstm(p, x):
        from jax.experimental import rnn

        t, b, i = x.shape
        h = p["u"].shape[0]
        layers = [p, *p["above"]]
        factors = [layer[k].T.ravel() for layer in layers for k in "wu"]
        biases = [v for layer in layers for v in (layer["b"], jnp.zeros_like(layer["b"]))]
        zero, lengths = jnp.zeros((len(layers), b, h), x.dtype), jnp.full((b,), t, jnp.int32)
        weights = jnp.concatenate(factors + biases)
        y, _, _ = rnn.lstm(x.transpose(1, 0, 2), zero, zero, weights, lengths, i, h, len(layers), 0.0, False)
        return y[:, -1] @ p["wo"] + p["bo"]

    def normed(x):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def layer_norm_lstm(unroll, p, x):
        h = p["u"].shape[0]
        xs, zero = x @ p["w"], jnp.zeros((x.shape[1], h), x.dtype)

        def cell(state, wx):
            h_before, c = state
            z = normed((wx + h_before @ p["u"]).reshape(-1, 4, h)) * p["gain"] + p["b"]
            i, f, g, o = (z[:, k] for k in range(4))
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(normed(c) * p["gain_c"] + p["bias_c"]), c), None

        (last, _), _ = jax.lax.scan(cell, (zero, zero), xs, unroll=unroll)
        return last @ p["wo"] + p["bo"]

    steps = {}  # compiled once for the ways to hand arrays over

    def train(forward, inputs, arrays, key, precision):
        p, x, y = inputs

        def step(p, x, y):
            loss, gradient = jax.value_and_grad(lambda p: ((forward(p, x) - y) ** 2).mean())(p)
            return jax.tree.map(lambda v, g: v - LEARNING_RATE * g, p, gradient), loss

        if (key, precision) not in steps:
            steps[key, precision] = compiled(step, precision)
        step = steps[key, precision]
        there = jax.device_put((p, x, y))
        after, loss = step(*there)
        checks = size(loss), size_of_gradient(p["u"], after["u"])
        if arrays == "host all":
            return finished(lambda: jax.device_get(step(p, x, y)), *checks, with_span=False)
        state = [there[0]]

        def call():
            state[0], loss = step(state[0], *(there[1:] if arrays == "device" else (x, y)))
            return (state[0], loss) if arrays == "device" else (state[0], np.asarray(loss))

        return finished(call, *checks, with_span=arrays == "device")

    def infer(forward, inputs, arrays, key, precision):
        p, x, _ = inputs
        if ("inference", key, precision) not in steps:
            steps["inference", key, precision] = compiled(forward, precision)
        run = steps["inference", key, precision]
        p, x_there = jax.device_put((p, x))
        if arrays == "device":
            return finished(lambda: run(p, x_there), size(run(p, x_there)))
        return finished(lambda: np.asarray(run(p, x)), size(run(p, x)), with_span=False)

    def mlp(p, x):
        for k, (w, b) in enumerate(p):
            x = x @ w + b
            x = jnp.tanh(x) if k + 1 < len(p) else x
        return x

    def jacobian(mode, batch, precision):
        run = compiled(lambda p, x: jax.vmap(mode(partial(mlp, p)))(x), precision)
        p, x = jax.device_put(mlp_inputs(JACOBIAN_WIDTHS, batch))
        return finished(lambda: run(p, x), size(run(p, x)))

    def runge_kutta(field, dt, y):
        k1 = field(y)
        k2 = field(y + dt / 2 * k1)
        k3 = field(y + dt / 2 * k2)
        k4 = field(y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def lorenz(unroll, precision):
        def field(s):
            x, y, z = s
            return jnp.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])

        def all_steps(s):
            one = jax.vmap(partial(runge_kutta, field, LORENZ["dt"]), in_axes=1, out_axes=1)
            return jax.lax.scan(lambda s, _: (one(s), None), s, length=LORENZ["steps"], unroll=unroll)[0]

        run, start = compiled(all_steps, precision), jax.device_put(lorenz_inputs())
        return finished(lambda: run(start), size(run(start)))

    def neural_ode(unroll, precision):
        def loss(p, y0):
            def step(y, _):
                return runge_kutta(partial(mlp, p), FIELD["dt"], y), None

            y, _ = jax.lax.scan(step, y0, length=FIELD["steps"], unroll=unroll)
            return (y**2).mean()

        run = compiled(jax.grad(loss), precision)
        p, y0 = jax.device_put(mlp_inputs(FIELD["widths"], FIELD["batch"]))
        return finished(lambda: run(p, y0), size(run(p, y0)[0][0]))

    jobs = []
    ways = [("scan", partial(lstm, 1), 0), ("scan, unroll=8", partial(lstm, 8), 1)]
    if not options.cpu:
        ways.append(("experimental.rnn (cuDNN)", fused_lstm, 1))
    for shape in LSTM_SHAPES:
        inputs = lstm_inputs(shape)
        for way, forward, rank in ways:
            key = f"{way} {label(shape)}"
            for arrays in ("device", "host data", "host all") if rank == 0 else ("device",):
                prepare = partial(train, forward, inputs, arrays, key)
                precisions = PRECISIONS if arrays == "device" else ("f32",)
                jobs.append(Job(f"LSTM training {label(shape)}", way, prepare, arrays, precisions, rank))
            for arrays in ("device", "host") if rank == 0 else ("device",):
                prepare = partial(infer, forward, inputs, arrays, key)
                precisions = PRECISIONS if arrays == "device" else ("f32",)
                jobs.append(Job(f"LSTM inference {label(shape)}", way, prepare, arrays, precisions, rank))
    inputs = lstm_inputs(LN_SHAPE, normed=True)
    for unroll in (1, 8):
        way, rank = ("scan", 0) if unroll == 1 else (f"scan, unroll={unroll}", 1)
        prepare = partial(train, partial(layer_norm_lstm, unroll), inputs, "device", f"normed {unroll}")
        jobs.append(Job(f"LayerNorm-LSTM training {label(LN_SHAPE)}", way, prepare, rank=rank))
        jobs.append(Job("Lorenz", way, partial(lorenz, unroll), precisions=("f32",), rank=rank))
        jobs.append(Job("neural ODE gradient", way, partial(neural_ode, unroll), rank=rank))
    for batch in JACOBIAN_BATCHES:
        jobs.append(Job(f"Jacobian batch {batch}", "vmap(jacfwd)", partial(jacobian, jax.jacfwd, batch)))
    return jobs
