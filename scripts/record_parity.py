#!/usr/bin/env python3
"""Records what PyTorch and Keras compute, for tests/parity.

Writes tests/parity/data/torch.json and keras.json: parameters, inputs, outputs and gradients of layers and losses,
trajectories of optimisers and of a training run, each in float32 and float64 on the same inputs (numbers that float32
holds exactly), and factors of learning-rate schedules.
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

# PyTorch's hardsigmoid has the derivative 1/6 of float32 even in float64; the same formula without that:
torch.nn.functional.hardsigmoid = lambda x, inplace=False: torch.clamp(x / 6 + 0.5, 0, 1)
# Keras adds its epsilon, 1e-7, to the number of steps under a mask. Layers have an epsilon of their own.
keras.config.set_epsilon(1e-300)

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
# `given` are lengths, buffers and training as our layers take them; `run` of a case with buffers also returns those after.
def record_layer(name, layer, params, x, run, state=None, **given):
    case = {"name": name, "layer": layer, "params": pack_all(params), "x": pack(x), "state": pack_all(state or {}), **given}
    if "buffers" in given:
        case["buffers"] = pack_all(given["buffers"])
    cotangent = None
    for dtype_name, dtype in DTYPES.items():
        p, s = tensors(params, dtype), tensors(state or {}, dtype)
        xt = torch.tensor(x, dtype=dtype, requires_grad=True)
        y, final, *after = run(p, xt, s, dtype)
        if cotangent is None:
            cotangent = draw(*y.shape, scale=1.0)
        assert y.dtype == dtype, (name, y.dtype)
        leaves = {**{f"params.{k}": v for k, v in p.items()}, "x": xt, **{f"state.{k}": v for k, v in s.items()}}
        loss = (y * torch.tensor(cotangent, dtype=dtype)).sum()
        grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
        case[dtype_name] = {"y": pack(y), "final": pack_all(final), "grads": pack_all(dict(zip(leaves, grads)))}
        if after:
            case[dtype_name]["buffers"] = pack_all(after[0])
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


# A recurrent module of several layers or directions, on sequences of unequal lengths if these are given.
def torch_packed(module, lengths=None):
    rnn = torch.nn.utils.rnn

    def run(params, x, state, dtype):
        module.to(dtype)
        leaves = sorted({name.split(".")[1] for name in state}, reverse=True)  # h, c
        given = tuple(torch.stack([v for k, v in state.items() if k.endswith("." + leaf)]) for leaf in leaves)
        given = (given if len(given) > 1 else given[0],) if given else ()
        if lengths is None:
            y, final = torch.func.functional_call(module, params, (x, *given))
        else:
            packed = rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
            y, final = torch.func.functional_call(module, params, (packed, *given))
            y = rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]
        final = dict(zip(leaves, final if isinstance(final, tuple) else (final,)))
        places = list(dict.fromkeys(name.split(".")[0] for name in state))
        return y, {f"{place}.{leaf}": final[leaf][i] for i, place in enumerate(places) for leaf in leaves}

    return run


def both_ways(gates, layers=1):
    params = {}
    for layer in range(layers):
        for suffix in ("", "_reverse"):
            own = gated(gates, I if layer == 0 else 2 * H, layer=layer)
            params |= {name + suffix: value for name, value in own.items()}
    return params


def torch_batch_norm(training):
    def run(params, x, state, dtype):
        module = torch.nn.BatchNorm1d(H).to(dtype)
        with torch.no_grad():
            module.running_mean.copy_(torch.tensor(BUFFERS["running_mean"]))
            module.running_var.copy_(torch.tensor(BUFFERS["running_var"]))
        module.train(training)
        y = torch.func.functional_call(module, params, (x.mT if x.ndim == 3 else x,))
        after = {k: v for k, v in module.named_buffers() if k != "num_batches_tracked"}
        return y.mT if x.ndim == 3 else y, {}, after

    return run


BUFFERS = {"running_mean": draw(H), "running_var": draw(H) + 1.5}
LENGTHS = [5, 1, 3]


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
    for name, function in (("elu", nn.ELU()), ("selu", nn.SELU()), ("leaky_relu", nn.LeakyReLU()), ("silu", nn.SiLU()),
                           ("softsign", nn.Softsign()), ("softmax", nn.Softmax(-1)), ("log_softmax", nn.LogSoftmax(-1)),
                           ("hard_sigmoid_keras3", nn.Hardsigmoid()), ("hard_tanh", nn.Hardtanh()), ("mish", nn.Mish()),
                           ("relu6", nn.ReLU6()), ("gelu_tanh", nn.GELU("tanh"))):
        yield record_layer(name, {"type": name}, {}, draw(B, H, scale=6.0), torch_run(function))
    lstm = torch.nn.LSTM(I, H, bidirectional=True, batch_first=True)
    yield record_layer("bidirectional lstm", {"type": "bidirectional", "layers": [{"type": "lstm", "hidden": H}]},
                       both_ways(4), x, torch_packed(lstm))
    states = {f"{place}.{leaf}": draw(B, H) for place in ("l0", "l0_reverse", "l1", "l1_reverse") for leaf in ("h", "c")}
    two = {"type": "lstm", "hidden": H, "layers": 2, "bidirectional": True}
    yield record_layer("lstm of two layers both ways from a state", two, both_ways(4, 2), x,
                       torch_packed(torch.nn.LSTM(I, H, 2, bidirectional=True, batch_first=True)), states)
    yield record_layer("lstm of two layers both ways packed from a state", two, both_ways(4, 2), x,
                       torch_packed(torch.nn.LSTM(I, H, 2, bidirectional=True, batch_first=True), LENGTHS), states,
                       lengths=LENGTHS)
    yield record_layer("gru both ways packed", {"type": "gru", "hidden": H, "bidirectional": True}, both_ways(3), x,
                       torch_packed(torch.nn.GRU(I, H, bidirectional=True, batch_first=True), LENGTHS), lengths=LENGTHS)
    yield record_layer("rnn packed", {"type": "rnn", "hidden": H, "layers": 2}, gated(1) | gated(1, H, layer=1), x,
                       torch_packed(torch.nn.RNN(I, H, 2, batch_first=True), LENGTHS), lengths=LENGTHS)
    for training in (True, False):
        for shape in ((B, H), (B, T, H)):
            yield record_layer(f"batch norm of rank {len(shape)} " + ("training" if training else "inference"),
                               {"type": "batch_norm"}, {"weight": draw(H), "bias": draw(H)}, draw(*shape, scale=2.0),
                               torch_batch_norm(training), buffers=BUFFERS, training=training)
    ids = random.integers(0, 6, (B, T)).astype(np.float64)
    yield record_layer("embedding", {"type": "embedding", "count": 6, "units": H, "padding": 2}, {"weight": draw(6, H)}, ids,
                       lambda p, x, s, d: (torch.nn.functional.embedding(x.long(), p["weight"], padding_idx=2), {}))


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
    for name, ours in (("elu", "elu"), ("selu", "selu"), ("leaky_relu", "leaky_relu"), ("silu", "silu"), ("mish", "mish"),
                       ("softsign", "softsign"), ("softmax", "softmax"), ("log_softmax", "log_softmax"), ("gelu", "gelu"),
                       ("hard_sigmoid", "hard_sigmoid_keras3"), ("exponential", "exponential"), ("relu6", "relu6"),
                       ("hard_tanh", "hard_tanh"), ("softplus", "softplus"), ("sigmoid", "sigmoid"), ("tanh", "tanh")):
        slope = {"slope": 0.2} if ours == "leaky_relu" else {}  # what keras.activations has; its layer has 0.3
        function = keras.activations.get(name)
        yield record_layer(ours, {"type": ours, **slope}, {}, draw(B, H, scale=6.0), lambda p, x, s, d, function=function: (function(x), {}))
    hard = {"recurrent_activation": "hard_sigmoid", **sequences}
    yield record_layer("lstm hard sigmoid", {"type": "lstm", "hidden": H, "gate": "hard_sigmoid_keras3"}, gated(4, biases=one),
                       x, keras_run(lambda d: layers.LSTM(H, dtype=d, **hard), 4))
    # Keras 2 had this as its hard_sigmoid.
    old = {"recurrent_activation": lambda v: keras.ops.clip(0.2 * v + 0.5, 0, 1), **sequences}
    yield record_layer("lstm old hard sigmoid", {"type": "lstm", "hidden": H, "gate": "hard_sigmoid_keras2"},
                       gated(4, biases=one), x, keras_run(lambda d: layers.LSTM(H, dtype=d, **old), 4))
    pair = gated(4, biases=one)
    pair |= {name + "_reverse": value for name, value in gated(4, biases=one).items()}
    for merge, theirs in (("concat", "concat"), ("sum", "sum"), ("mul", "mul"), ("average", "ave")):
        yield record_layer(f"bidirectional {merge}",
                           {"type": "bidirectional", "merge": merge, "layers": [{"type": "lstm", "hidden": H}]}, pair, x,
                           keras_both_ways(theirs, True))
    yield record_layer("bidirectional ends with a mask",
                       {"type": "bidirectional", "sequences": False, "layers": [{"type": "lstm", "hidden": H}]}, pair, x,
                       keras_both_ways("concat", False, LENGTHS), lengths=LENGTHS)
    keras_norm = {"type": "batch_norm", "momentum": 0.01, "epsilon": 1e-3, "unbiased": False}
    for name, given in (("training", {"training": True}), ("training with a mask", {"training": True, "lengths": LENGTHS}),
                        ("inference", {"training": False})):
        yield record_layer("batch norm " + name, keras_norm, {"weight": draw(H), "bias": draw(H)}, draw(B, T, H, scale=2.0),
                           keras_batch_norm(**given), buffers=BUFFERS, **given)


def mask_of(lengths):
    return None if lengths is None else torch.arange(T)[None] < torch.tensor(lengths)[:, None]


def keras_both_ways(merge, sequences, lengths=None):
    def run(params, x, state, dtype):
        name = {torch.float32: "float32", torch.float64: "float64"}[dtype]
        layer = keras.layers.Bidirectional(keras.layers.LSTM(H, return_sequences=sequences, dtype=name), merge, dtype=name)
        layer.build(x.shape)
        values = []
        for suffix in ("", "_reverse"):
            w, u, b = (params[f"{part}_l0{suffix}"] for part in ("weight_ih", "weight_hh", "bias_ih"))
            values += [w.T, u.T, b]
        others = [v.value for v in layer.non_trainable_variables]
        return layer.stateless_call(values, others, x, mask=mask_of(lengths))[0], {}

    return run


def keras_batch_norm(training, lengths=None):
    def run(params, x, state, dtype):
        layer = keras.layers.BatchNormalization(dtype={torch.float32: "float32", torch.float64: "float64"}[dtype])
        layer.build(x.shape)
        buffers = [torch.tensor(v, dtype=dtype) for v in BUFFERS.values()]
        y, after = layer.stateless_call([params["weight"], params["bias"]], buffers, x, training=training,
                                        mask=mask_of(lengths))
        return y, {}, dict(zip(BUFFERS, after))

    return run


# ---- losses ----------------------------------------------------------------------------------------------------------
# The value and its gradient by the prediction. Targets that are classes are recorded as the numbers they are.
def record_loss(name, loss, prediction, target, compute, **weights):
    case = {"name": name, "loss": loss, "prediction": pack(prediction), "target": pack(target)}
    case |= {k: pack(v) for k, v in weights.items()}
    for dtype_name, dtype in DTYPES.items():
        p = torch.tensor(prediction, dtype=dtype, requires_grad=True)
        value = compute(p, torch.tensor(target, dtype=dtype), *(torch.tensor(w, dtype=dtype) for w in weights.values()))
        assert value.dtype == dtype, name
        case[dtype_name] = {"value": float(value.detach()), "grad": pack(torch.autograd.grad(value, p)[0])}
    return case


def random_classes(*shape, count):
    return random.integers(0, count, shape).astype(np.float64)


def torch_losses():
    f, smooth = torch.nn.functional, {"type": "cross_entropy", "label_smoothing": 0.125}
    logits, classes, weights = draw(4, 3, scale=3.0), random_classes(4, count=3), np.array([0.5, 2.0, 1.25])
    distribution = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.125, 0.5, 0.375], [0.0, 0.25, 0.75]])
    yield record_loss("mse", {"type": "mse"}, draw(4, 3), draw(4, 3), f.mse_loss)
    yield record_loss("mae", {"type": "mae"}, draw(4, 3), draw(4, 3), f.l1_loss)
    yield record_loss("huber", {"type": "huber", "delta": 0.5}, draw(4, 3), draw(4, 3), lambda p, t: f.huber_loss(p, t, delta=0.5))
    yield record_loss("cross entropy", {"type": "cross_entropy"}, logits, classes, lambda p, t: f.cross_entropy(p, t.long()))
    yield record_loss("cross entropy of steps", {"type": "cross_entropy"}, draw(2, 5, 3, scale=3.0),
                      random_classes(2, 5, count=3), lambda p, t: f.cross_entropy(p.mT, t.long()))
    yield record_loss("cross entropy of distributions", {"type": "cross_entropy"}, logits, distribution, f.cross_entropy)
    yield record_loss("cross entropy smoothed", smooth, logits, classes,
                      lambda p, t: f.cross_entropy(p, t.long(), label_smoothing=0.125))
    yield record_loss("cross entropy with class weights", {"type": "cross_entropy"}, logits, classes,
                      lambda p, t, w: f.cross_entropy(p, t.long(), w), class_weights=weights)
    bits = random_classes(4, 3, count=2)
    yield record_loss("binary cross entropy", {"type": "binary_cross_entropy"}, logits, bits,
                      f.binary_cross_entropy_with_logits)
    yield record_loss("binary cross entropy of probabilities", {"type": "binary_cross_entropy", "logits": False},
                      random.uniform(0.1, 0.9, (4, 3)).astype(np.float32).astype(np.float64), bits, f.binary_cross_entropy)


def keras_losses():
    losses = keras.losses
    samples = np.array([0.5, 2.0, 1.0, 0.25])

    def by_samples(make):
        def compute(p, t, w):
            given = {"reduction": "mean_with_sample_weight", "dtype": str(p.dtype).removeprefix("torch.")}
            return make(given)(t, p, sample_weight=w)

        return compute

    # Keras' loss of a sample is the mean over its last axis; every sample has as many elements, so that the mean is ours.
    for name, ours, prediction, target, make in (
            ("mse", {"type": "mse"}, draw(4, 3), draw(4, 3), lambda given: losses.MeanSquaredError(**given)),
            ("mae", {"type": "mae"}, draw(4, 3), draw(4, 3), lambda given: losses.MeanAbsoluteError(**given)),
            ("huber", {"type": "huber", "delta": 0.5}, draw(4, 3), draw(4, 3), lambda given: losses.Huber(0.5, **given)),
            ("cross entropy of classes", {"type": "cross_entropy"}, draw(4, 3, scale=3.0), random_classes(4, count=3),
             lambda given: losses.SparseCategoricalCrossentropy(from_logits=True, **given)),
            ("cross entropy one hot smoothed", {"type": "cross_entropy", "label_smoothing": 0.125}, draw(4, 3, scale=3.0),
             np.eye(3)[[0, 2, 1, 1]],
             lambda given: losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.125, **given)),
            ("binary cross entropy smoothed", {"type": "binary_cross_entropy", "label_smoothing": 0.125},
             draw(4, 3, scale=3.0), random_classes(4, 3, count=2),
             lambda given: losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.125, **given))):
        yield record_loss(name + " weighted", ours, prediction, target, by_samples(make), sample_weights=samples)


# ---- schedules -------------------------------------------------------------------------------------------------------
# Factors of a learning rate of 1 at steps 0, 1, ..., and for a plateau the values observed before each.
def torch_schedules():
    s = torch.optim.lr_scheduler
    for ours, make in (({"type": "warmup", "steps": 7, "start": 0.25}, lambda o: s.LinearLR(o, 0.25, 1.0, 7)),
                       ({"type": "cosine", "steps": 19, "last": 0.125}, lambda o: s.CosineAnnealingLR(o, 19, 0.125)),
                       ({"type": "step", "every": 4, "gamma": 0.5}, lambda o: s.StepLR(o, 4, 0.5)),
                       ({"type": "one_cycle", "steps": 20, "rise": 0.3},
                        lambda o: s.OneCycleLR(o, 1.0, 20, cycle_momentum=False))):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
        schedule, factors = make(optimizer), []
        for step in range(20):
            factors.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if step < 19:
                schedule.step()
        yield {"name": ours["type"], "schedule": ours, "factors": factors}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
    schedule = s.ReduceLROnPlateau(optimizer, factor=0.5, patience=2, cooldown=1, threshold=0.01, min_lr=0.1, eps=0)
    values = np.concatenate([np.linspace(2, 1, 6), np.full(12, 0.995), [0.5, 0.6, 0.4996], np.full(9, 0.7)])
    factors = []
    for value in values:
        schedule.step(value)
        factors.append(float(optimizer.param_groups[0]["lr"]))
    yield {"name": "plateau", "factors": factors, "values": values.tolist(),
           "schedule": {"type": "plateau", "factor": 0.5, "patience": 2, "cooldown": 1, "threshold": 0.01, "least": 0.1}}


# ---- optimisers ------------------------------------------------------------------------------------------------------
STEPS = 20


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


def torch_optimizer(make, schedule=None, before=lambda variables: None):
    def start(values, dtype):
        variables = [torch.nn.Parameter(v) for v in values]
        optimizer = make(variables)
        scheduler = schedule(optimizer) if schedule else None

        def step(grads):
            for v, g in zip(variables, grads):
                v.grad = g
            before(variables)
            optimizer.step()
            if scheduler:
                scheduler.step()
            return [v.detach().clone() for v in variables]

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
    adamw, rmsprop = torch.optim.AdamW, torch.optim.RMSprop
    yield record_optimizer("adamw", {"type": "adamw"}, torch_optimizer(lambda v: adamw(v)))
    yield record_optimizer("rmsprop", {"type": "rmsprop"}, torch_optimizer(lambda v: rmsprop(v)))
    yield record_optimizer("rmsprop centered momentum", {"type": "rmsprop", "centered": True, "momentum": 0.5},
                           torch_optimizer(lambda v: rmsprop(v, centered=True, momentum=0.5)))
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR
    yield record_optimizer("adam cosine", {"type": "adam", "schedules": [{"type": "cosine", "steps": 30}]},
                           torch_optimizer(lambda v: adam(v), lambda o: cosine(o, 30)))
    clip = torch.nn.utils
    yield record_optimizer("clip by norm", {"type": "sgd", "learning_rate": 0.1,
                                            "wrappers": [{"type": "clip_by_norm", "max_norm": 0.75}]},
                           torch_optimizer(lambda v: sgd(v, 0.1), before=lambda v: clip.clip_grad_norm_(v, 0.75)))
    yield record_optimizer("clip by value", {"type": "sgd", "learning_rate": 0.1,
                                             "wrappers": [{"type": "clip_by_value", "max_value": 0.5}]},
                           torch_optimizer(lambda v: sgd(v, 0.1), before=lambda v: clip.clip_grad_value_(v, 0.5)))


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
    adamw, rmsprop = keras.optimizers.AdamW, keras.optimizers.RMSprop
    yield record_optimizer("adamw", {"type": "adamw", "weight_decay": 0.004, **keras_names}, keras_optimizer(lambda: adamw()))
    names = {"learning_rate": 0.001, "decay": 0.9, "epsilon": 1e-7, "epsilon_inside": True}
    yield record_optimizer("rmsprop", {"type": "rmsprop", **names}, keras_optimizer(lambda: rmsprop()))
    yield record_optimizer("rmsprop centered momentum", {"type": "rmsprop", "centered": True, "momentum": 0.5, **names},
                           keras_optimizer(lambda: rmsprop(centered=True, momentum=0.5)))


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
       "layers": list(torch_layers()), "optimizers": list(torch_optimizers()), "training": list(torch_training()),
       "losses": list(torch_losses()), "schedules": list(torch_schedules())})
write(folder / "keras.json",
      {"recorded_by": "scripts/record_parity.py",
       "library": f"Keras {keras.__version__} on PyTorch {torch_version}",
       "layers": list(keras_layers()), "optimizers": list(keras_optimizers()), "training": [],
       "losses": list(keras_losses()), "schedules": []})
