"""Hotloop through its Python package, as its user writes it: one compiled function a task."""

import os

import numpy as np
from harness.prepared import Prepared, Unsupported

from impls._applications_hotloop import gradient_penalty, gru_ensemble, kalman, least_squares  # noqa: F401
from impls._ensembles_hotloop import ode_ensemble_gradient, ode_ensemble_saveat, ode_ensemble_stiff  # noqa: F401
from impls._hotloop_options import OPTIONS
from impls._programs_derivatives_hotloop import derivative_program  # noqa: F401
from impls._programs_hotloop import program  # noqa: F401
from impls._random_programs_hotloop import random_program  # noqa: F401


def setup(threads):
    # All cores is what the default is, which keeps small programs on one.
    OPTIONS["threads"] = None if threads == len(os.sched_getaffinity(0)) and threads > 1 else threads


def versions():
    import hotloop

    return f"hotloop {hotloop.__version__}"


def _cells():
    import hotloop as hl

    class LayerNormLSTM(hl.nn.Cell):
        def initial_state(self, batch):
            return hl.zeros((batch, self.hidden)), hl.zeros((batch, self.hidden))

        def __call__(self, p, state, x):
            def norm(v, gain, bias):
                centred = v - v.mean(-1, keepdims=True)
                return centred / hl.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * gain + bias

            h, c = state
            i, f, g, o = (norm(x @ p["W_" + k].T + h @ p["U_" + k].T, p["gain_" + k], p["bias_" + k]) for k in "ifgo")
            c = hl.sigmoid(f) * c + hl.sigmoid(i) * hl.tanh(g)
            h = hl.sigmoid(o) * hl.tanh(norm(c, p["gain_c"], p["bias_c"]))
            return (h, c), h

    class Coupled(hl.nn.Cell):
        def initial_state(self, batch):
            return hl.zeros((batch, self.hidden)), hl.zeros((batch, self.hidden)), hl.full((batch, self.hidden), 0.5)

        def __call__(self, p, state, x):
            h, fast, slow = state
            total = {k: x @ p["W_" + k].T + h @ p["U_" + k].T + p["b_" + k] for k in "fgo"}
            f = hl.sigmoid(total["f"] + p["peep_f"] * fast)
            fast = f * fast + (1.0 - f) * (hl.log1p(hl.exp(total["g"])) - 0.69)
            keep = hl.sigmoid(p["rate"])
            slow = keep * slow + (1.0 - keep) * fast
            h = hl.sigmoid(total["o"] + p["peep_o"] * fast) * hl.tanh(fast - slow)
            return (h, fast, slow), hl.concat([h, slow], axis=1)

    return {"ln_lstm": LayerNormLSTM, "coupled": Coupled}


def _network(sizes):
    """(layer, where its parameters are in the task's)."""
    import hotloop as hl

    cell, i, h = sizes["cell"], sizes["I"], sizes["H"]
    if cell in ("lstm", "gru", "rnn"):
        settings = {"layers": sizes["layers"]} if sizes["layers"] > 1 else {}
        if sizes["directions"] == 2:
            settings["bidirectional"] = True
        return getattr(hl.nn, {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}[cell])(i, h, **settings)
    own = _cells()[cell]()
    own.hidden = h
    return hl.nn.Recurrent(own)


def _trained(loss, params, x, y, dot_precision="float32"):
    """(one more step of Adam, the losses of the first five, parameters after them)."""
    import hotloop as hl

    adam = hl.optim.Adam(1e-3)

    @hl.jit(dot_precision=dot_precision, **OPTIONS)
    def step(params, state, x, y):
        value, grads = hl.value_and_grad(lambda p: loss(p, x, y))(params)
        params, state = adam.update(grads, state, params)
        return params, state, value

    now = [params, adam.init(params), None]

    def call():
        now[:] = step(now[0], now[1], x, y)

    losses = []
    for _ in range(5):
        call()
        losses.append(float(now[2]))
    return call, np.array(losses), now[0]


def recurrent_train(sizes, inputs):
    import hotloop as hl

    x, y = inputs.pop("x"), inputs.pop("y")
    network, head = _network(sizes), hl.nn.Linear(inputs["head.weight"].shape[1], 1)
    model = hl.nn.Sequential(network, hl.nn.Last(), head)
    params = {"0": {k: v for k, v in inputs.items() if "." not in k}, "2": {k[5:]: v for k, v in inputs.items() if "." in k}}
    loss = hl.losses.MSE()
    precision = "bfloat16" if sizes.get("dtype") == "bf16" else "float32"
    call, losses, trained = _trained(lambda p, x, y: loss(model(p, x), y), params, x, y, precision)
    after = {**trained["0"], **{"head." + k: v for k, v in trained["2"].items()}}
    return Prepared(call, {"losses": losses, **{k: np.array(v) for k, v in after.items()}})


def recurrent_infer(sizes, inputs):
    import hotloop as hl

    x, network = inputs.pop("x"), _network(sizes)
    f = hl.jit(lambda p, x: network(p, x), **OPTIONS)
    params = {k: hl.asarray(v) for k, v in inputs.items()}
    return Prepared(lambda: f(params, x), {"outputs": np.array(f(params, x))})


def stream(sizes, inputs):
    import hotloop as hl

    x = inputs.pop("x")
    model, params = _streaming(sizes, inputs)
    if OPTIONS.get("dispatch") == "per_op":
        step = hl.jit(lambda s, x: model(params, x[:, None], state=s), **OPTIONS)
        one, start = lambda s, row: step(s, row), model.initial_state(1)
    else:
        bound = model.bind(params)
        one, start = bound.step, bound.initial_state(1)
    rows = [x[t : t + 1] for t in range(len(x))]

    def run():
        state, ys = start, []
        for row in rows:
            y, state = one(state, row)
            ys.append(y)
        return ys

    return Prepared(run, {"y": np.array(run()).ravel()}, units=len(rows), note="bind().step")


def _streaming(sizes, inputs):
    import hotloop as hl

    model = hl.nn.Sequential(hl.nn.LSTM(sizes["I"], sizes["H"]), hl.nn.Linear(sizes["H"], 1))
    return model, {"0": {k: v for k, v in inputs.items() if "." not in k}, "1": {k[5:]: v for k, v in inputs.items() if "." in k}}


def stream_sequence(sizes, inputs):
    import hotloop as hl

    x = inputs.pop("x")[None]
    model, params = _streaming(sizes, inputs)
    params = hl.tree.map(hl.asarray, params)
    f = hl.jit(lambda p, x: model(p, x), **OPTIONS)
    return Prepared(lambda: f(params, x), {"y": np.array(f(params, x)).ravel()}, units=x.shape[1])


def _mlp_loss(p, x, y):
    import hotloop as hl

    h, n = x, len(p) // 2
    for k in range(n):
        h = h @ p[f"w{k}"] + p[f"b{k}"]
        h = hl.tanh(h) if k + 1 < n else h
    return ((h - y) ** 2).mean()


def mlp_train(sizes, inputs):
    x, y = inputs.pop("x"), inputs.pop("y")
    call, losses, trained = _trained(_mlp_loss, inputs, x, y)
    return Prepared(call, {"losses": losses, **{k: np.array(v) for k, v in trained.items()}})


def mlp_gradient(sizes, inputs):
    import hotloop as hl

    x, y = inputs.pop("x"), inputs.pop("y")
    f = hl.jit(lambda p, x, y: hl.value_and_grad(lambda q: _mlp_loss(q, x, y))(p), **OPTIONS)
    value, grads = f(inputs, x, y)
    return Prepared(lambda: f(inputs, x, y), {"loss": np.array(value), **{k: np.array(v) for k, v in grads.items()}})


def mlp_descent(sizes, inputs):
    import hotloop as hl

    x, y = inputs.pop("x"), inputs.pop("y")

    @hl.jit(**OPTIONS)
    def descend(p, x, y):
        def step(p, _):
            value, grads = hl.value_and_grad(lambda q: _mlp_loss(q, x, y))(p)
            return {k: v - sizes["rate"] * grads[k] for k, v in p.items()}, value

        return hl.scan(step, p, length=sizes["steps"])

    return Prepared(lambda: descend(inputs, x, y), {"losses": np.array(descend(inputs, x, y)[1])}, units=sizes["steps"])


def matvec(sizes, inputs):
    import hotloop as hl

    f = hl.jit(lambda a, v: a @ v, **OPTIONS)
    a, v = hl.asarray(inputs["a"]), hl.asarray(inputs["v"])
    return Prepared(lambda: f(a, v), {"y": np.array(f(a, v))})


def cold_start(sizes, inputs):
    from harness import cold

    if OPTIONS.get("dispatch") == "per_op":
        raise Unsupported("one process is enough")
    return cold.start("import hotloop as hl\ny = hl.jit(lambda x: hl.tanh(x).sum())(x)", inputs)


def jacobian(sizes, inputs):
    import hotloop as hl

    def mlp(x, p):
        n = len(p) // 2
        for k in range(n):
            x = x @ p[f"w{k}"] + p[f"b{k}"]
            x = hl.tanh(x) if k + 1 < n else x
        return x

    x = inputs.pop("x")

    @hl.jit(**OPTIONS)
    def f(x, p):
        jacobian = hl.jacobian(lambda x: mlp(x, p))(x)
        return jacobian.dense() if sizes["dense"] else jacobian.blocks

    return Prepared(lambda: f(x, inputs), {"jacobian": np.array(f(x, inputs))}, note="jacobian()")


def lstm_derivative(sizes, inputs):
    import hotloop as hl

    names = ("wx", "wh", "b", "wo", "bo")
    p, x, y = {k: inputs[k] for k in names}, inputs["x"], inputs["y"]

    def outputs(p, x):
        h = p["wh"].shape[0]

        def step(state, x_t):
            i, f, g, o = hl.split(x_t @ p["wx"] + state[0] @ p["wh"] + p["b"], 4, axis=-1)
            c = hl.sigmoid(f) * state[1] + hl.sigmoid(i) * hl.tanh(g)
            hidden = hl.sigmoid(o) * hl.tanh(c)
            return (hidden, c), hidden

        zero = hl.zeros((x.shape[1], h))
        return hl.scan(step, (zero, zero), x)[1]

    def loss(p, x, y):
        return ((outputs(p, x)[-1] @ p["wo"] + p["bo"] - y) ** 2).mean()

    if sizes["what"] == "hvp":
        v = {k: inputs["v_" + k] for k in names}
        f = hl.jit(lambda p, v, x, y: hl.hvp(lambda q: loss(q, x, y), p, v), **OPTIONS)
        return Prepared(lambda: f(p, v, x, y), {k: np.array(a) for k, a in f(p, v, x, y).items()})
    if sizes["what"] == "per_sample":
        one = lambda p, x, y: loss(p, x[:, None], y[None])  # noqa: E731
        f = hl.jit(hl.vmap(hl.grad(one), in_axes=(None, 1, 0)), **OPTIONS)
        return Prepared(lambda: f(p, x, y), {k: np.array(a) for k, a in f(p, x, y).items()})
    if sizes["what"] == "hvp_x":
        f = hl.jit(lambda p, v, x, y: hl.hvp(lambda x: loss(p, x, y), x, v), **OPTIONS)
        return Prepared(lambda: f(p, inputs["v_x"], x, y), {"x": np.array(f(p, inputs["v_x"], x, y))})
    if sizes["what"] == "per_sample_x":
        one = lambda p, x, y: loss(p, x[:, None], y[None])  # noqa: E731
        f = hl.jit(hl.vmap(hl.grad(one, argnums=1), in_axes=(None, 1, 0), out_axes=1), **OPTIONS)
        return Prepared(lambda: f(p, x, y), {"x": np.array(f(p, x, y))})
    v = inputs["v_x"]
    f = hl.jit(lambda p, x, v: hl.jvp(lambda x: outputs(p, x), (x,), (v,)), **OPTIONS)
    y, dy = f(p, x, v)
    return Prepared(lambda: f(p, x, v), {"outputs": np.array(y), "tangents": np.array(dy)})


ODE_WEIGHTS = ("w0", "b0", "w1", "b1")


def _net(p, x):
    import hotloop as hl

    return p["w1"] @ hl.tanh(p["w0"] @ x + p["b0"]) + p["b1"]


def ode_training(sizes, inputs):
    import hotloop as hl

    p = {k: v for k, v in inputs.items() if k not in ("y0", "data")}
    y0, data = inputs["y0"], inputs["data"]
    ts, adam = np.linspace(0, 1, 101), hl.optim.Adam(0.01)
    depth, activation = sizes.get("depth", 1), hl.silu if sizes.get("silu") else hl.tanh

    def field(t, y, p):
        for i in range(depth):
            y = activation(p[f"w{i}"] @ y + p[f"b{i}"])
        return p[f"w{depth}"] @ y + p[f"b{depth}"]

    @hl.jit(**OPTIONS)
    def train(p, state, y0, data):
        def loss(p):
            solution = hl.ode.solve(field, hl.ode.Tsit5(), 0, 1, y0, args=p, dt0=0.01, saveat=ts, controller=hl.ode.PID(1e-3, 1e-6))
            return ((solution.ys - data) ** 2).sum()

        def step(carry, _):
            p, state = carry
            value, grads = hl.value_and_grad(loss)(p)
            return adam.update(grads, state, p), value

        return hl.scan(step, (p, state), length=sizes["iterations"])[1]

    state = adam.init(p)
    losses = np.array(train(p, state, y0, data))
    return Prepared(lambda: train(p, state, y0, data), {"losses": losses[:50]}, note=f"last loss {losses[-1]:.1f}")


ode_training_deep = ode_training


def ode_ensemble(sizes, inputs):
    import hotloop as hl

    def lorenz(t, y, rho):
        return {"a": 10 * (y["b"] - y["a"]), "b": y["a"] * (rho - y["c"]) - y["b"], "c": y["a"] * y["b"] - 8 / 3 * y["c"]}

    def one(rho):
        start = {"a": hl.ones(()), "b": hl.zeros(()), "c": hl.zeros(())}
        return hl.ode.solve(lorenz, hl.ode.Tsit5(), 0, 1, start, args=rho, dt0=0.01, controller=hl.ode.PID(1e-6, 1e-6)).y1

    f, rho = hl.jit(hl.vmap(one), **OPTIONS), inputs["rho"]
    y1 = f(rho)
    return Prepared(lambda: f(rho), {"y1": np.stack([np.array(y1[k]) for k in "abc"], 1)}, note="a leaf a component")


def ode_detest(sizes, inputs):
    from tasks import detest

    from impls import _detest_hotloop

    def run(name):
        method, tolerance = detest.setting("hotloop", sizes, name)
        solve = _detest_hotloop.solver(name, method, OPTIONS)
        if int(solve(inputs[name], tolerance)[1]) != 0:
            raise ArithmeticError(f"{name} did not reach t = 20")
        return (lambda y0, tolerance: solve(y0, tolerance)[0]), tolerance

    return detest.prepared(inputs, {name: run(name) for name in inputs})


def ode_gradient(sizes, inputs):
    import hotloop as hl

    p, y0, data = {k: inputs[k] for k in ODE_WEIGHTS}, inputs["y0"], inputs["data"]
    ts = np.linspace(0, 1.5, 30)

    def loss(p, y0, data):
        solution = hl.ode.solve(
            lambda t, y, p: _net(p, y**3), hl.ode.Tsit5(), 0, 1.5, y0, args=p, dt0=0.01, saveat=ts, controller=hl.ode.PID(1e-6, 1e-6)
        )
        return ((solution.ys - data) ** 2).sum()

    f = hl.jit(hl.value_and_grad(loss), **OPTIONS)
    value, grads = f(p, y0, data)
    return Prepared(lambda: f(p, y0, data), {"loss": np.array(value), **{k: np.array(v) for k, v in grads.items()}})


def ode_sensitivity(sizes, inputs):
    import hotloop as hl

    p, y0 = {k: inputs[k] for k in ODE_WEIGHTS}, inputs["y0"]

    @hl.jit(**OPTIONS)
    def f(p, y0):
        solve = lambda p: hl.ode.solve(lambda t, y, p: _net(p, y), hl.ode.Tsit5(), 0, 1, y0, args=p, controller=hl.ode.PID(1e-4, 1e-4)).y1  # noqa: E731
        return solve(p), hl.jacfwd(solve)(p)

    y1, sensitivities = f(p, y0)
    return Prepared(lambda: f(p, y0), {"y1": np.array(y1), **{k: np.array(v) for k, v in sensitivities.items()}}, note="jacfwd of the solution")
