#!/usr/bin/env python3
"""Records what PyTorch and Keras compute, for tests/parity.

Writes tests/parity/data/torch.json and keras.json: parameters, inputs, outputs and gradients of layers, trajectories of
optimisers and of a training run, each in float32 and float64 on the same inputs (numbers that float32 holds exactly).
Needs torch and keras (run on its torch backend); the versions used are written into the files.

usage: scripts/record_parity.py [folder]     (default tests/parity/data)
"""
import json
import os
import pathlib
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch
from keras.src.backend.common import dtypes as keras_dtypes

# Keras demotes float64 to float32 inside matmul on every backend but TensorFlow, by this table; as TensorFlow has it:
keras_dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"

B, T, I, H = 3, 5, 2, 4
DTYPES = {"f32": torch.float32, "f64": torch.float64}
random = np.random.default_rng(20261121)
torch.set_num_threads(1)


def draw(*shape, scale=0.8):
    return random.uniform(-scale, scale, shape).astype(np.float32).astype(np.float64)


def pack(array):
    array = np.asarray(array.detach() if isinstance(array, torch.Tensor) else array, dtype=np.float64)
    return {"shape": list(array.shape), "data": array.ravel().tolist()}


def pack_all(arrays):
    return {name: pack(array) for name, array in arrays.items()}


def tensors(arrays, dtype):
    return {name: torch.tensor(a, dtype=dtype, requires_grad=True) for name, a in arrays.items()}


# ---- layers ----------------------------------------------------------------------------------------------------------
# A case gives parameters under our names; `run(params, x, state) -> (y, final state)` computes with the library on torch
# tensors, so that torch's autograd gives the gradients of sum(y * cotangent).
def record_layer(name, layer, params, x, run, state=None):
    case = {"name": name, "layer": layer, "params": pack_all(params), "x": pack(x), "state": pack_all(state or {})}
    cotangent = None
    for dtype_name, dtype in DTYPES.items():
        p, s = tensors(params, dtype), tensors(state or {}, dtype)
        xt = torch.tensor(x, dtype=dtype, requires_grad=True)
        y, final = run(p, xt, s, dtype)
        if cotangent is None:
            cotangent = draw(*y.shape, scale=1.0)
        assert y.dtype == dtype, (name, y.dtype)
        leaves = {**{f"params.{k}": v for k, v in p.items()}, "x": xt, **{f"state.{k}": v for k, v in s.items()}}
        grads = torch.autograd.grad((y * torch.tensor(cotangent, dtype=dtype)).sum(), list(leaves.values()))
        case[dtype_name] = {"y": pack(y), "final": pack_all(final), "grads": pack_all(dict(zip(leaves, grads)))}
    case["cotangent"] = pack(cotangent)
    return case


def gated(gates, inputs=I, hidden=H, biases=("bias_ih", "bias_hh"), layer=0):
    params = {f"weight_ih_l{layer}": draw(gates * hidden, inputs), f"weight_hh_l{layer}": draw(gates * hidden, hidden)}
    return params | {f"{bias}_l{layer}": draw(gates * hidden) for bias in biases}


def torch_run(module):
    def run(params, x, state, dtype):
        module.to(dtype)
        given = ()
        if state:
            initial = tuple(s[None] for s in state.values())
            given = (initial if len(initial) > 1 else initial[0],)
        y = torch.func.functional_call(module, params, (x, *given))
        if not isinstance(y, tuple):
            return y, {}
        y, final = y
        final = final if isinstance(final, tuple) else (final,)
        return y, {k: f[0] for k, f in zip(("h", "c"), final)} if state else {}

    return run


def torch_layers():
    nn, x = torch.nn, draw(B, T, I, scale=1.5)
    yield record_layer("lstm", {"type": "lstm", "hidden": H}, gated(4), x, torch_run(nn.LSTM(I, H, batch_first=True)))
    yield record_layer("lstm from a state", {"type": "lstm", "hidden": H}, gated(4), x,
                       torch_run(nn.LSTM(I, H, batch_first=True)), {"h": draw(B, H), "c": draw(B, H)})
    yield record_layer("lstm of two layers", {"type": "lstm", "hidden": H, "layers": 2}, gated(4) | gated(4, H, layer=1), x,
                       torch_run(nn.LSTM(I, H, 2, batch_first=True)))
    yield record_layer("gru", {"type": "gru", "hidden": H}, gated(3), x, torch_run(nn.GRU(I, H, batch_first=True)))
    yield record_layer("gru from a state", {"type": "gru", "hidden": H}, gated(3), x,
                       torch_run(nn.GRU(I, H, batch_first=True)), {"h": draw(B, H)})
    yield record_layer("rnn tanh", {"type": "rnn", "hidden": H}, gated(1), x, torch_run(nn.RNN(I, H, batch_first=True)))
    yield record_layer("rnn relu", {"type": "rnn", "hidden": H, "nonlinearity": "relu"}, gated(1), x,
                       torch_run(nn.RNN(I, H, batch_first=True, nonlinearity="relu")))
    wide = draw(B, T, H, scale=2.0)
    yield record_layer("layer norm", {"type": "layer_norm"}, {"weight": draw(H), "bias": draw(H)}, wide,
                       torch_run(nn.LayerNorm(H)))
    yield record_layer("linear", {"type": "linear", "units": 3}, {"weight": draw(3, H), "bias": draw(3)}, wide,
                       torch_run(nn.Linear(H, 3)))
    for name, function in (("tanh", nn.Tanh()), ("relu", nn.ReLU()), ("sigmoid", nn.Sigmoid()), ("gelu", nn.GELU()),
                           ("softplus", nn.Softplus(threshold=1000))):
        yield record_layer(name, {"type": name}, {}, draw(B, H, scale=6.0), torch_run(function))


# Ours to Keras' layout: kernels are transposed, the GRU's gates are z, r, h there and r, z, n here.
def keras_order(array, gates):
    if gates != 3:
        return array
    r, z, n = array.split(array.shape[0] // 3)
    return torch.cat([z, r, n])


def keras_run(make, gates):
    def run(params, x, state, dtype):
        layer = make({torch.float32: "float32", torch.float64: "float64"}[dtype])
        layer.build(x.shape)
        values = [keras_order(params["weight_ih_l0"], gates).T, keras_order(params["weight_hh_l0"], gates).T]
        biases = [keras_order(params[b], gates) for b in ("bias_ih_l0", "bias_hh_l0") if b in params]
        values.append(torch.stack(biases) if len(biases) == 2 else biases[0])
        return stateless(layer, values, x), {}

    return run


def stateless(layer, values, x):
    assert [tuple(v.shape) for v in layer.trainable_variables] == [tuple(v.shape) for v in values]
    return layer.stateless_call(values, [v.value for v in layer.non_trainable_variables], x)[0]


def keras_plain(make, names):
    def run(params, x, state, dtype):
        layer = make({torch.float32: "float32", torch.float64: "float64"}[dtype])
        layer.build(x.shape)
        return stateless(layer, [params[n].mT if params[n].ndim == 2 else params[n] for n in names], x), {}

    return run


def keras_layers():
    layers, x, one = keras.layers, draw(B, T, I, scale=1.5), ("bias_ih",)
    sequences = {"return_sequences": True}
    yield record_layer("lstm", {"type": "lstm", "hidden": H}, gated(4, biases=one), x,
                       keras_run(lambda d: layers.LSTM(H, dtype=d, **sequences), 4))
    yield record_layer("gru reset after", {"type": "gru", "hidden": H}, gated(3), x,
                       keras_run(lambda d: layers.GRU(H, dtype=d, **sequences), 3))
    yield record_layer("gru reset before", {"type": "gru", "hidden": H, "reset": "before"}, gated(3, biases=one), x,
                       keras_run(lambda d: layers.GRU(H, reset_after=False, dtype=d, **sequences), 3))
    yield record_layer("rnn tanh", {"type": "rnn", "hidden": H}, gated(1, biases=one), x,
                       keras_run(lambda d: layers.SimpleRNN(H, dtype=d, **sequences), 1))
    yield record_layer("rnn relu", {"type": "rnn", "hidden": H, "nonlinearity": "relu"}, gated(1, biases=one), x,
                       keras_run(lambda d: layers.SimpleRNN(H, activation="relu", dtype=d, **sequences), 1))
    wide = draw(B, T, H, scale=2.0)
    yield record_layer("layer norm", {"type": "layer_norm", "epsilon": 1e-3}, {"weight": draw(H), "bias": draw(H)}, wide,
                       keras_plain(lambda d: layers.LayerNormalization(dtype=d), ("weight", "bias")))
    yield record_layer("linear", {"type": "linear", "units": 3}, {"weight": draw(3, H), "bias": draw(3)}, wide,
                       keras_plain(lambda d: layers.Dense(3, dtype=d), ("weight", "bias")))


# ---- optimisers ------------------------------------------------------------------------------------------------------
STEPS = 6


# step(params, grads): updates the list of tensors in place.
def record_optimizer(name, optimizer, make):
    params = {"weight": draw(2, 3), "bias": draw(3)}
    # Gradients of very different sizes, so that epsilon matters.
    grads = [{k: draw(*p.shape) * 10.0 ** random.integers(-7, 2, p.shape) for k, p in params.items()} for _ in range(STEPS)]
    grads = [{k: g.astype(np.float32).astype(np.float64) for k, g in step.items()} for step in grads]
    case = {"name": name, "optimizer": optimizer, "params": pack_all(params), "grads": [pack_all(g) for g in grads]}
    for dtype_name, dtype in DTYPES.items():
        values = [torch.tensor(p, dtype=dtype) for p in params.values()]
        step, trajectory = make(values, dtype), []
        for g in grads:
            now = step([torch.tensor(a, dtype=dtype) for a in g.values()])
            trajectory.append(pack_all(dict(zip(params, now))))
        case[dtype_name] = trajectory
    return case


def torch_optimizer(make):
    def start(values, dtype):
        variables = [torch.nn.Parameter(v) for v in values]
        optimizer = make(variables)

        def step(grads):
            for v, g in zip(variables, grads):
                v.grad = g
            optimizer.step()
            return variables

        return step

    return start


def torch_optimizers():
    adam, sgd = torch.optim.Adam, torch.optim.SGD
    yield record_optimizer("adam", {"type": "adam"}, torch_optimizer(lambda v: adam(v)))
    yield record_optimizer("adam with other betas", {"type": "adam", "learning_rate": 0.03, "beta1": 0.7, "beta2": 0.95},
                           torch_optimizer(lambda v: adam(v, 0.03, (0.7, 0.95))))
    yield record_optimizer("sgd", {"type": "sgd", "learning_rate": 0.1}, torch_optimizer(lambda v: sgd(v, 0.1)))
    yield record_optimizer("sgd momentum", {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9},
                           torch_optimizer(lambda v: sgd(v, 0.1, momentum=0.9)))
    yield record_optimizer("sgd nesterov", {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
                           torch_optimizer(lambda v: sgd(v, 0.1, momentum=0.9, nesterov=True)))


def keras_optimizer(make):
    def start(values, dtype):
        name = {torch.float32: "float32", torch.float64: "float64"}[dtype]
        # Keras keeps optimiser state in the default float type.
        keras.config.set_floatx(name)
        variables = [keras.Variable(v, dtype=name) for v in values]
        optimizer = make()
        optimizer.build(variables)

        def step(grads):
            optimizer.apply(grads, variables)
            return [v.value.detach().clone() for v in variables]

        return step

    return start


def keras_optimizers():
    adam, sgd = keras.optimizers.Adam, keras.optimizers.SGD
    keras_names = {"epsilon": 1e-7, "epsilon_hat": True}
    yield record_optimizer("adam", {"type": "adam", **keras_names}, keras_optimizer(lambda: adam()))
    yield record_optimizer("sgd", {"type": "sgd", "learning_rate": 0.1}, keras_optimizer(lambda: sgd(0.1)))
    yield record_optimizer("sgd momentum", {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9},
                           keras_optimizer(lambda: sgd(0.1, momentum=0.9)))
    yield record_optimizer("sgd nesterov", {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
                           keras_optimizer(lambda: sgd(0.1, momentum=0.9, nesterov=True)))


# ---- training --------------------------------------------------------------------------------------------------------
class LastStep(torch.nn.Module):
    def __init__(self, recurrent):
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x):
        return self.recurrent(x)[0][:, -1]


def torch_training():
    x, y = draw(B, T, I, scale=1.5), draw(B, 1)
    for name, recurrent, gates, layer in (("lstm", torch.nn.LSTM, 4, "lstm"), ("gru", torch.nn.GRU, 3, "gru")):
        params = {f"0.{k}": v for k, v in gated(gates).items()} | {"2.weight": draw(1, H), "2.bias": draw(1)}
        case = {"name": name, "layers": [{"type": layer, "hidden": H}, {"type": "last"}, {"type": "linear", "units": 1}],
                "loss": "mse", "optimizer": {"type": "adam", "learning_rate": 0.01}, "x": pack(x), "y": pack(y),
                "params": pack_all(params)}
        for dtype_name, dtype in DTYPES.items():
            model = torch.nn.Sequential(LastStep(recurrent(I, H, batch_first=True)), torch.nn.Linear(H, 1)).to(dtype)
            theirs = {k.replace("0.recurrent.", "0.").replace("1.", "2."): v for k, v in model.named_parameters()}
            with torch.no_grad():
                for k, v in params.items():
                    theirs[k].copy_(torch.tensor(v, dtype=dtype))
            optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(torch.tensor(x, dtype=dtype)), torch.tensor(y, dtype=dtype))
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            case[dtype_name] = {"losses": losses, "params": pack_all(theirs)}
        yield case


def write(path, document):
    # One case a line: readable differences, and still one file a library.
    parts = []
    for key, value in document.items():
        if isinstance(value, list):
            body = ",\n".join(json.dumps(v, separators=(",", ":")) for v in value)
            parts.append(f"{json.dumps(key)}: [\n{body}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    print(path, path.stat().st_size, "bytes")


one_third = torch.full((2, 2), 1 / 3, dtype=torch.float64)
assert torch.equal(keras.ops.matmul(one_third, one_third), one_third @ one_third), "Keras computes float64 in float32"
folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1] / "tests/parity/data")
folder.mkdir(parents=True, exist_ok=True)
torch_version = torch.__version__.split("+")[0]
write(folder / "torch.json",
      {"recorded_by": "scripts/record_parity.py", "library": f"PyTorch {torch_version}",
       "layers": list(torch_layers()), "optimizers": list(torch_optimizers()), "training": list(torch_training())})
write(folder / "keras.json",
      {"recorded_by": "scripts/record_parity.py",
       "library": f"Keras {keras.__version__} on PyTorch {torch_version}",
       "layers": list(keras_layers()), "optimizers": list(keras_optimizers()), "training": []})
