"""PyTorch on the CPU: its fused cells where it has them, eager and compiled, the faster of the two; fused Adam."""

import numpy as np
from harness.prepared import Prepared

from impls._applications_torch import gradient_penalty, gru_ensemble, kalman, least_squares  # noqa: F401
from impls._fastest import fastest

THREADS = 1


def setup(threads):
    global THREADS
    THREADS = threads
    import torch

    torch.set_num_threads(threads)


def versions():
    import torch

    return f"torch {torch.__version__}"


def _tensors(inputs):
    import torch

    return {k: torch.from_numpy(v.copy()) for k, v in inputs.items()}


def _own_cell(sizes, p):
    """outputs(x (T, B, I)) of the cells that PyTorch does not have, gates as one matrix."""
    import torch
    from torch.nn.functional import layer_norm, softplus

    h = sizes["H"]
    gates = "ifgo" if sizes["cell"] == "ln_lstm" else "fgo"

    def outputs(x):
        wx, wh = (torch.cat([p[n + "_" + g] for g in gates]) for n in "WU")
        xs = x @ wx.T
        zero = x.new_zeros(x.shape[1], h)
        ys = []
        if sizes["cell"] == "ln_lstm":
            hs, c = zero, zero
            for t in range(x.shape[0]):
                parts = (xs[t] + hs @ wh.T).chunk(4, 1)
                i, f, g, o = (layer_norm(v, (h,), p["gain_" + k], p["bias_" + k]) for k, v in zip(gates, parts))
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                hs = torch.sigmoid(o) * torch.tanh(layer_norm(c, (h,), p["gain_c"], p["bias_c"]))
                ys.append(hs)
        else:
            xs = xs + torch.cat([p["b_" + g] for g in gates])
            hs, fast, slow, keep = zero, zero, zero + 0.5, torch.sigmoid(p["rate"])
            for t in range(x.shape[0]):
                f, g, o = (xs[t] + hs @ wh.T).chunk(3, 1)
                f = torch.sigmoid(f + p["peep_f"] * fast)
                fast = f * fast + (1 - f) * (softplus(g) - 0.69)
                slow = keep * slow + (1 - keep) * fast
                hs = torch.sigmoid(o + p["peep_o"] * fast) * torch.tanh(fast - slow)
                ys.append(torch.cat([hs, slow], 1))
        return ys

    return outputs


def _module(sizes, p):
    import torch

    cell = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[sizes["cell"]]
    module = cell(sizes["I"], sizes["H"], sizes["layers"], bidirectional=sizes["directions"] == 2)
    module.to(p["weight_hh_l0"].dtype).load_state_dict({k: v for k, v in p.items() if k in module.state_dict()})
    return module


def recurrent_train(sizes, inputs):
    import torch

    start = _tensors(inputs)
    x, y = start.pop("x").transpose(0, 1).contiguous(), start.pop("y")  # time first: its fast layout
    fused = sizes["cell"] in ("lstm", "gru", "rnn")

    def build():
        """(step() -> loss tensor, parameters by name) from fresh parameters."""
        if fused:
            module = _module(sizes, start)
            params = {**dict(module.named_parameters()), **{k: start[k].clone().requires_grad_() for k in ("head.weight", "head.bias")}}
            outputs = lambda x: module(x)[0]  # noqa: E731
        else:
            params = {k: v.clone().requires_grad_() for k, v in start.items()}
            outputs = _own_cell(sizes, params)
        adam = torch.optim.Adam(params.values(), 1e-3, fused=True)

        def loss(x, y):
            with torch.autocast("cpu", torch.bfloat16, enabled=sizes.get("dtype") == "bf16"):
                last = outputs(x)[-1]
                predicted = last @ params["head.weight"].T + params["head.bias"]
            return ((predicted.to(y.dtype) - y) ** 2).mean()

        return loss, adam, params

    def stepper(compiled):
        loss, adam, params = build()
        f = torch.compile(loss) if compiled else loss

        def call():
            adam.zero_grad()
            value = f(x, y)
            value.backward()
            adam.step()
            return value

        return call, params

    ways = {"eager": stepper(False)}
    # torch.compile leaves its fused cells as they are; for cells written in Python it takes minutes beyond these lengths.
    if not fused and sizes["T"] <= 120:
        ways["compiled"] = stepper(True)
    results, best, note = {}, "eager", ""
    for name, (call, params) in ways.items():
        results[name] = {"losses": np.array([call().item() for _ in range(5)]), **{k: v.detach().numpy().copy() for k, v in params.items()}}
    if len(ways) > 1:
        best, note = fastest({k: call for k, (call, _) in ways.items()})
    return Prepared(ways[best][0], results[best], note=f"{best} ({note})" if note else best)


def recurrent_infer(sizes, inputs):
    import torch

    p = _tensors(inputs)
    x = p.pop("x").transpose(0, 1).contiguous()
    module = _module(sizes, p).eval()

    def call():
        with torch.inference_mode():
            return module(x)[0]

    return Prepared(call, {"outputs": call().transpose(0, 1).numpy().copy()}, note="eager")


def _streaming(sizes, inputs):
    import torch

    p = _tensors(inputs)
    cell = torch.nn.LSTMCell(sizes["I"], sizes["H"])
    cell.load_state_dict({k: p[k + "_l0"] for k in cell.state_dict()})
    layer = torch.nn.LSTM(sizes["I"], sizes["H"])
    layer.load_state_dict({k: p[k] for k in layer.state_dict()})
    return cell, layer, p["head.weight"].T.contiguous(), p["head.bias"]


def stream(sizes, inputs):
    import torch

    x = torch.from_numpy(inputs.pop("x").copy())
    cell, layer, weight, bias = _streaming(sizes, inputs)
    rows = list(x[:, None].unbind(0))
    zero = torch.zeros(1, sizes["H"])

    def by_cell():
        with torch.inference_mode():
            h, c, ys = zero, zero, []
            for row in rows:
                h, c = cell(row, (h, c))
                ys.append(torch.addmm(bias, h, weight))
            return ys

    def by_layer():
        with torch.inference_mode():
            state, ys = (zero[None], zero[None]), []
            for row in rows:
                y, state = layer(row[None], state)
                ys.append(torch.addmm(bias, y[0], weight))
            return ys

    ways = {"LSTMCell": by_cell, "LSTM": by_layer}
    best, note = fastest(ways)
    y = torch.cat(ways[best]()).numpy().ravel()
    return Prepared(ways[best], {"y": y}, units=len(rows), note=f"{best} ({note} for {len(rows)} steps)")


def stream_sequence(sizes, inputs):
    import torch

    x = torch.from_numpy(inputs.pop("x").copy())[:, None]
    _, layer, weight, bias = _streaming(sizes, inputs)

    def call():
        with torch.inference_mode():
            return layer(x)[0][:, 0] @ weight + bias

    return Prepared(call, {"y": call().numpy().ravel()}, units=x.shape[0])


def _mlp_loss(p, x, y):
    import torch

    h, n = x, len(p) // 2
    for k in range(n):
        h = torch.addmm(p[f"b{k}"], h, p[f"w{k}"])
        h = torch.tanh(h) if k + 1 < n else h
    return ((h - y) ** 2).mean()


def mlp_train(sizes, inputs):
    import torch

    start = _tensors(inputs)
    x, y = start.pop("x"), start.pop("y")

    def stepper(compiled):
        params = {k: v.clone().requires_grad_() for k, v in start.items()}
        adam = torch.optim.Adam(params.values(), 1e-3, fused=True)
        f = torch.compile(_mlp_loss) if compiled else _mlp_loss

        def call():
            adam.zero_grad()
            value = f(params, x, y)
            value.backward()
            adam.step()
            return value

        return call, params

    ways, results = {"eager": stepper(False), "compiled": stepper(True)}, {}
    for name, (call, params) in ways.items():
        results[name] = {"losses": np.array([call().item() for _ in range(5)]), **{k: v.detach().numpy().copy() for k, v in params.items()}}
    best, note = fastest({k: call for k, (call, _) in ways.items()})
    return Prepared(ways[best][0], results[best], note=f"{best} ({note})")


def mlp_gradient(sizes, inputs):
    import torch

    p = _tensors(inputs)
    x, y = p.pop("x"), p.pop("y")
    f = torch.func.grad_and_value(_mlp_loss)
    compiled = torch.compile(f)
    leaves = {k: v.clone().requires_grad_() for k, v in p.items()}

    def backward():
        value = _mlp_loss(leaves, x, y)
        return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())))), value.detach()

    ways = {"compiled grad_and_value": lambda: compiled(p, x, y), "backward": backward}
    best, note = fastest(ways)
    grads, value = ways[best]()
    return Prepared(ways[best], {"loss": value.numpy(), **{k: v.numpy().copy() for k, v in grads.items()}}, note=f"{best} ({note})")


def matvec(sizes, inputs):
    import torch

    p = _tensors(inputs)
    a, v = p["a"], p["v"]
    return Prepared(lambda: torch.mv(a, v), {"y": torch.mv(a, v).numpy()}, note="eager")


def cold_start(sizes, inputs):
    from harness import cold

    # Eager: compiled, a process takes several seconds more.
    return cold.start("import torch\ny = torch.tanh(torch.from_numpy(x)).sum()", inputs)


def jacobian(sizes, inputs):
    import torch
    from torch.func import jacfwd, vmap

    p = _tensors(inputs)
    x = p.pop("x")

    def mlp(x):
        n = len(p) // 2
        for k in range(n):
            x = x @ p[f"w{k}"] + p[f"b{k}"]
            x = torch.tanh(x) if k + 1 < n else x
        return x

    if sizes["dense"]:
        # As its documentation offers it; without `vectorize`, one backward pass an output, it takes three times as long.
        ways = {"functional.jacobian(vectorize=True)": lambda: torch.autograd.functional.jacobian(mlp, x, vectorize=True)}
        best, note = "functional.jacobian(vectorize=True)", ""
    else:
        one = vmap(jacfwd(mlp))
        compiled = torch.compile(one)
        ways = {"vmap(jacfwd)": lambda: one(x), "compiled": lambda: compiled(x)}
        best, note = fastest(ways)
    return Prepared(ways[best], {"jacobian": ways[best]().detach().numpy().copy()}, note=f"{best} ({note})" if note else best)


def lstm_derivative(sizes, inputs):
    """Its fused LSTM has no second derivative, no vmap and no forward mode: the loop is Python's."""
    import torch
    from torch.func import grad, jvp, vmap

    given = _tensors(inputs)
    names = ("wx", "wh", "b", "wo", "bo")
    p, x, y = {k: given[k] for k in names}, given["x"], given["y"]

    def outputs(p, x):
        h = c = x.new_zeros(x.shape[1], p["wh"].shape[0])
        ys = []
        for a in (x @ p["wx"] + p["b"]).unbind(0):
            i, f, g, o = (a + h @ p["wh"]).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            ys.append(h)
        return torch.stack(ys)

    def loss(p, x, y):
        return ((outputs(p, x)[-1] @ p["wo"] + p["bo"] - y) ** 2).mean()

    if sizes["what"] == "jvp":
        call = lambda: jvp(lambda x: outputs(p, x), (x,), (given["v_x"],))  # noqa: E731
        out, tangents = call()
        return Prepared(call, {"outputs": out.numpy(), "tangents": tangents.numpy()}, note="eager")
    if sizes["what"] in ("hvp_x", "per_sample_x"):
        if sizes["what"] == "hvp_x":
            call = lambda: jvp(grad(lambda x: loss(p, x, y)), (x,), (given["v_x"],))[1]  # noqa: E731
        else:
            per_sample = vmap(grad(lambda p, x, y: loss(p, x[:, None], y[None]), argnums=1), in_dims=(None, 1, 0), out_dims=1)
            call = lambda: per_sample(p, x, y)  # noqa: E731
        return Prepared(call, {"x": call().detach().numpy().copy()}, note="eager")
    if sizes["what"] == "hvp":
        v = {k: given["v_" + k] for k in names}
        call = lambda: jvp(grad(lambda q: loss(q, x, y)), (p,), (v,))[1]  # noqa: E731
    else:
        per_sample = vmap(grad(lambda p, x, y: loss(p, x[:, None], y[None])), in_dims=(None, 1, 0))
        call = lambda: per_sample(p, x, y)  # noqa: E731
    return Prepared(call, {k: a.detach().numpy().copy() for k, a in call().items()}, note="eager")
