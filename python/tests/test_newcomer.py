"""What a newcomer types, and what he is told: names and habits of other libraries, arguments left out or exchanged."""

import operator
import pathlib
import pickle
import re
import subprocess
import sys
import types

import hotloop as hl
import numpy as np
import pytest

X = np.random.default_rng(0).normal(size=(32, 5, 3)).astype(np.float32)
Y = X[:, :, :1].sum(1)
MODEL = hl.nn.Sequential(hl.nn.LSTM(3, 8), hl.nn.Last(), hl.nn.Linear(8, 1))
PARAMS = MODEL.init(0)
IDS = hl.nn.Sequential(hl.nn.Embedding(9, 4), hl.nn.LSTM(4, 3))


def keras_loss(y_true, y_pred):
    return hl.mean(hl.abs(y_true - y_pred))


class Split(hl.nn.Module):
    def apply(self, params, x, key=None):
        return x, x


class Noisy(hl.nn.Module):
    def apply(self, params, x, key=None):
        return x + hl.random.normal(key, x.shape)


class Stepped(hl.nn.Cell):
    def initial_state(self, batch):
        return hl.zeros((batch, 3))

    def step(self, params, state, x):
        return x, x


def without(tree, layer, name):
    return {**tree, layer: {k: v for k, v in tree[layer].items() if k != name}}


@pytest.mark.parametrize("call, message", [
    (lambda: MODEL(X), r"a model holds no parameters.*Received: one argument. Try: model\(model.init\(seed\), x\)"),
    (lambda: MODEL(X, PARAMS), r"the parameters come before the input.*Try: model\(params, x\)"),
    (lambda: MODEL({"0": PARAMS["0"]}, X), r"params must be as model.init\(seed\) gives them for .*: 2.weight is missing, 2.bias is missing"),
    (lambda: MODEL(without(PARAMS, "0", "weight_hh_l0"), X), "Received: 0.weight_hh_l0 is missing."),
    (lambda: hl.jit(MODEL)({**PARAMS, "2": {"weight": np.zeros((1, 4), "f"), "bias": np.zeros(1, "f")}}, X), r"2.weight is \(1, 4\) in place of \(1, 8\)"),
    (lambda: MODEL(PARAMS, X[:, :, 0]), r"the input must be a sequence \(batch, time, features\). Received: f32\[32,5\]"),
    (lambda: MODEL(PARAMS, np.ones((2, 5, 3), int)), "input and parameters must have one dtype.*Try: cast the input"),
    (lambda: hl.nn.Sequential([hl.nn.LSTM(3, 8)]), r"Received: a list at 0. Try: hl.nn.Sequential\(\*layers\)"),
    (lambda: hl.nn.Sequential(hl.nn.Tanh), r"Received: the class Tanh at 0. Try: Tanh\(...\)"),
    (lambda: hl.nn.Sequential(hl.tanh), r"Try: a layer such as hl.nn.Tanh\(\)"),
    (lambda: hl.losses.MSE()(hl.nn.LSTM(3, 8)(PARAMS["0"], X), np.zeros((32, 8), "f")), r"Received: f32\[32,5,8\] and f32\[32,8\]. Try: the layer Last\(\) in the model"),
    (lambda: hl.jit(hl.tanh, device="gpu")(X), "device must be one of auto, cpu, cuda. Received: 'gpu'"),
    (lambda: hl.export_c(IDS, IDS.init(0), 1), r"Received: f32\[1,1,4\]. Try: \(batch, time, features\) to the layer; if an Embedding gives it, ids \(batch, time\)"),
    (lambda: MODEL.bind(PARAMS).step(None, X[0, 0]), r"x must be \(batch, features\).*Try: x\[None\]"),
    (lambda: hl.fit(MODEL, (X, Y), loss="mse"), r"the loss.*Received: 'mse'. Try: hl.losses.MSE\(\)"),
    (lambda: hl.fit(MODEL, (X, Y), loss=hl.losses.Huber), r"Received: the class Huber. Try: hl.losses.Huber\(\)"),
    (lambda: hl.fit(MODEL, (X, Y), optimizer="adam"), r"Received: 'adam'. Try: hl.optim.Adam\(\)"),
    (lambda: hl.fit(MODEL, (X, Y), optimizer=1e-3), r"the optimizer must be one of hotloop.optim. Received: a float"),
    (lambda: hl.fit(MODEL, (X, Y), metric="mae"), r"Try: hl.metrics.MAE\(\)"),
    (lambda: hl.fit(MODEL, (X, Y), early_stopping=5), r"early_stopping must be a hl.EarlyStopping. Received: 5. Try: hl.EarlyStopping\(patience=5\)"),
    (lambda: hl.fit(MODEL, (X, Y), checkpoints=3), r"checkpoints must be a folder or a hl.Checkpoints. Received: 3"),
    (lambda: hl.fit(MODEL, (X, Y), validation=20), "Received: an int. Try: a fraction such as 0.2"),
    (lambda: hl.fit(MODEL, iter([(X, Y)])), r"Try: \(x, y\) of whole arrays, of which batches are made"),
    (lambda: hl.fit(MODEL, types.SimpleNamespace(columns=["a"])), r"Received: a SimpleNamespace. Try: \(table\[inputs\], table\[\[target\]\]\) of numbers, or hl.data.Samples"),
    (lambda: hl.optim.Adam(hl.optim.Cosine(100)), r"Received: Cosine\(steps=100.*Try: hl.optim.Schedule\(1e-3, Cosine\(steps=100"),
    (lambda: hl.optim.Adam(lambda step: 1e-3), r"a learning rate must be a number.*Received: a function. Try: hl.optim.Schedule\(1e-3, hl.optim.Cosine"),
    (lambda: MODEL(PARAMS, X, key=0), r"a key must be uint32\[2\].*Try: hl.random.key\(seed\)"),
    (lambda: hl.predict(MODEL, PARAMS, {"inputs": X}), r"\[predict\] a dict must have x"),
    (lambda: hl.tree.ravel(PARAMS)[1](np.ones(3)), r"the vector must have the tree's \d+ numbers. Received: shape \(3,\)"),
    (lambda: hl.ode.solve(lambda t, y, a: -y, hl.ode.Tsit5(), 0, 1, np.ones(2), events=hl.ode.Event(lambda t, y, a: y[0] < 0.5)), "Received: event 0 = bool.*Try: what crosses zero, y - 1 in place of y < 1"),
    (lambda: hl.ode.solve(lambda t, y, a: a * y, hl.ode.Tsit5(), 0, 1, np.ones(2, np.float32), args=np.float64(2)), "Try: y0 and args of one dtype"),
    (lambda: type("Net", (hl.nn.Module,), {"forward": lambda self, x: x})().init(0), r"\[Net\] .*must have apply\(self, params, x, key=None\). Received: forward\(\).*Try: def apply"),
    (lambda: hl.jit(lambda v: f"{v:.3f}")(1.0), "a format such as '.3f' needs numbers"),
    (lambda: hl.jit(lambda v: v.__setitem__(0, 1.0))(X), r"arrays do not change.*Try: x = x.at\[key\].set\(value\)"),
    (lambda: hl.ones(3).__setitem__(0, 1.0), "arrays do not change"),
    (lambda: hl.jit(np.linalg.norm)(X), "numpy.linalg.norm needs numbers"),
    (lambda: hl.jit(lambda v: np.dot(v, v))(X[0, 0]), "numpy.dot needs numbers.*Try: hl.matmul"),
    (lambda: hl.ode.solve(lambda t, y: -y, hl.ode.Tsit5(), 0, 1, np.ones(2)), r"a function of \(t, y, args\). Received: one of \(t, y\). Try: field\(t, y, args\)"),
    (lambda: hl.ode.solve(lambda t, y, a: [y[1], y[0]], hl.ode.Tsit5(), 0, 1, np.ones(2)), r"a tree like y0.*Received: a list. Try: hl.stack\(\[...\]\)"),
    (lambda: hl.ode.solve(lambda t, y, a: np.array([y[1], y[0]]), hl.ode.Tsit5(), 0, 1, np.ones(2)), r"Try: an hl function \(hl.stack in place of np.array\)"),
    (lambda: hl.ode.solve(lambda t, y, a: hl.log(y - 2), hl.ode.Tsit5(), 0, 1, np.ones(2)), "the field or the state became infinite or NaN"),
    (lambda: hl.least_squares(lambda p: p, np.ones(2), bounds=(0, 1)), r"the params are not bounded. Received: bounds. Try: params that are mapped"),
    (lambda: hl.save(PARAMS, "params.safetensors"), r"\[save\] the path comes before the tree.*Received: a dict. Try: hl.save\(path, params\)"),
    (lambda: hl.scan(lambda c, x: (c * np.log(2.0), None), hl.zeros(3), X), r"initial one, f32\[3\]. Received: f64\[3\]. Try: float\(np.log\(2\)\) in place of np.log"),
    (lambda: hl.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + np.pi * np.float64(2), c[1] + 1), (hl.zeros(()), 0)), r"initial one, f32\[\], i32\[\]. Received: f64\[\], i32\[\]. Try: float"),
    (lambda: f"{hl.asarray(X):.2f}", r"a format such as '.2f' is for one number. Received: float32, of shape \(32, 5, 3\)"),
    (lambda: hl.einsum("...i,ij->j", X, np.eye(3)), r"what '...' stands for must be in the result"),
    (lambda: hl.fit(MODEL, (X, Y[:, 0])), r"Received: f32\[29,1\] and f32\[29\]. Try: a target of shape \(29, 1\), y\[:, None\] in Python"),
    (lambda: hl.fit(MODEL, (X, Y), callbacks=[hl.EarlyStopping(3)]), r"callbacks must be a function.*Try: early_stopping=EarlyStopping\(patience=3, min_delta=0.0\)"),
    (lambda: hl.fit(MODEL, (X, Y), loss=keras_loss), r"\[loss\] .*Received: keras_loss\(y_true, y_pred\). Try: lambda prediction, target: keras_loss\(target, prediction\)"),
    (lambda: hl.fit(MODEL, (X, Y), metric=keras_loss), r"\[loss\] .*Received: keras_loss\(y_true, y_pred\)"),
    (lambda: hl.save("params.safetensors", MODEL), r"must be a tree of arrays. Received: a Sequential. Try: hl.save\(path, params\)"),
    (lambda: hl.save("params.safetensors", hl.fit(MODEL, (X, Y), epochs=1)), r"Received: a Run. Try: hl.save\(path, run.params\)\.$"),
    (lambda: hl.optim.Warmup(100, hl.optim.Cosine(1000)), r"\[warmup\] factors stand side by side.*Received: Cosine\(steps=1000\) as a setting. Try: hl.optim.Schedule\(1e-3, hl.optim.Warmup\(100\), "),
    (lambda: hl.vmap(MODEL.init)(np.arange(3)), r"\[Sequential\] a seed must be a number.*Received: a traced i64\[\]. Try: hl.tree.map\(lambda \*p: hl.stack\(p\), "),
    (lambda: hl.ode.solve(lambda t, y, a: -y, hl.ode.Tsit5(), 0, 1, np.array([1, 2])), r"leaves of the state must be f32 or f64. Received: i64\[2\] in y0. Try: y0.astype\('float64'\)"),
    (lambda: hl.nn.Recurrent(Stepped())({}, X), r"\[Stepped\] a cell of your own must have __call__\(self, params, state, x\). Received: step\(\). Try: def __call__\(self, params, state, x\): return state, y"),
    (lambda: hl.nn.Recurrent(hl.nn.Cell())({}, X), r"\[Cell\] .*must have initial_state\(self, batch\). Received: none. Try: def initial_state\(self, batch\): return hl.zeros"),
    (lambda: MODEL(PARAMS, (X, Y)), r"\[Sequential\] the input must be one array. Received: a tuple. Try: hl.concat"), (lambda: MODEL(PARAMS, {"x": X}), "the input must be one array. Received: a dict"),
    (lambda: Split()({}, X), r"\[Split\] apply\(\) must give one array. Received: a tuple. Try: hl.concat"),
    (lambda: Noisy()({}, X), r"a key must be uint32\[2\]. Received: None. Try: model\(params, x, key=hl.random.key\(seed\)\); without a key.*if key is None"),
    (lambda: MODEL.bind(PARAMS).step(None, 0.5), r"Received: a scalar. Try: \[\[x\]\]"),
    (lambda: hl.optim.Schedule(1e-3, lambda step: 0.5), r"a factor must be one of hl.optim's. Received: a function. Try: hl.optim.Cosine\(1000\); or, in a loop by hand, an optimiser with the rate 1"),
    (lambda: hl.nn.uniform(hl.random.key(0), (3,)), r"\[nn.uniform\] a seed must be an integer.*as a key of hl.random is. Try: hl.random.uniform\(key, ...\)"),
    (lambda: hl.nn.fold_in(hl.random.key(0), "w"), r"\[nn.fold_in\] .*Try: hl.random.fold_in\(key, ...\)"), (lambda: hl.random.uniform(0, (3,)), r"a key must be uint32\[2\].*Try: hl.random.key\(seed\)"),
    (lambda: hl.jit(lambda key: hl.nn.orthogonal(key, (3, 3)))(hl.random.key(0)), r"\[nn.orthogonal\] .*Try: hl.random.normal\(key, shape\)"),
    (lambda: hl.einsum("ii->i", X[0]), "the axes of 'i' have the extents 5 and 3, in operands \\(5, 3\\)"),
])  # fmt: skip
def test_messages(call, message):
    with pytest.raises(hl.UserError, match=message):
        call()


@pytest.mark.parametrize("call, message", [
    (lambda: hl.fit(MODEL, X, Y), r"too many positional arguments. Try: hl.fit\(model, \(x, y\), ...\)"),
    (lambda: hl.fit(MODEL, (X, Y), metrics=["mae"]), "'metrics'. Try: metric"),
    (lambda: hl.fit(MODEL, (X, Y), lr=1e-3), r"'lr'. Try: optimizer=hl.optim.Adam\(1e-3\)"),
    (lambda: hl.ode.solve(None, None, 0, 1, 1.0, stepsize_controller=None), "'stepsize_controller'. Try: controller"),
    (lambda: hl.ode.solve(None, None, 0, 1, 1.0, event=None), "'event'. Try: events"),
    (lambda: hl.ode.solve(None, None, 0, 1, 1.0, rtol=1e-3), r"'rtol'. Try: controller=hl.ode.PID\("),
    (lambda: hl.optim.Adam(lr=1e-3), "'lr'. Try: learning_rate"),
    (lambda: hl.nn.LSTM(3, 8, num_layers=2), "'num_layers'. Try: layers"),
    (lambda: hl.ode.solve(lambda t, y, a: -y, hl.ode.Tsit5(), 0, 1, [1, 2]), r"unary -: 'list'. A list y0 is a tree of single numbers. Try: y0=numpy.array\(\[...\]\)"),
    (lambda: hl.nn.LSTM(input_size=3, hidden_size=8), "'input_size'. Try: inputs"),
    (lambda: hl.ones(3).sum(dim=0), r"sum\(axis=, dtype=, keepdims=, where=\): .*'dim'. Try: axis"),
    (lambda: hl.jit(lambda v: v.mean(-1, keepdim=True))(X), "'keepdim'. Try: keepdims"),
    (lambda: hl.sum(X, dim=1), r"sum\(x, /, axis=None, \*, dtype=None, keepdims=False, where=None\): .*'dim'. Try: axis$"),
    (lambda: hl.jit(lambda v: hl.softmax(v, dim=-1))(X), "'dim'. Try: axis$"),
    (lambda: hl.clip(X, a_min=0), "'a_min'. Try: min$"),
    (lambda: hl.std(X, ddof=1), "'ddof'. Try: correction$"),
    (lambda: hl.scan(lambda c, x: (c, x), 0.0, X, unroll=4), "'unroll'. Leave it out: the compiler decides"),
    (lambda: hl.tanh(X, X), r"tanh\(x, /\): too many positional arguments"),
    (lambda: hl.ones(3).std(ddof=1), "'ddof'. Try: correction$"), (lambda: hl.clip(X, a_max=1), "'a_max'. Try: max$"),
    (lambda: MODEL(PARAMS, X, return_state=True), r"model\(\): .*'return_state'. Try: model\(params, x, state=state\)"), (lambda: MODEL(PARAMS, X, 0), r"model\(\): too many positional"),
    (lambda: hl.EarlyStopping(restore_best_weights=True), r"EarlyStopping\(patience, min_delta\): .*'restore_best_weights'. Leave it out: run.params are those of the best"),
    (lambda: hl.EarlyStopping(3, verbose=1), r"'verbose'. Try: hl.EarlyStopping\(patience=5, min_delta=0.0\)"), (lambda: hl.Checkpoints(), r"Checkpoints\(folder, .*\): missing 1 required .*Try: hl.Checkpoints\("),
    (lambda: hl.fit(MODEL, (X, Y), epochs=1).evaluate(X, Y), r"evaluate\(\): too many positional arguments. Try: run.evaluate\(\(x, y\)\)"),
    (lambda: hl.optim.Adam(1e-3, schedule=hl.optim.Cosine(9)), r"'schedule'. Try: learning_rate=hl.optim.Schedule\("), (lambda: hl.nn.Linear(3, 4, activation="relu"), r"'activation'. Try: a layer after it"),
    (lambda: hl.minimize(lambda x: hl.sum((x - 2) ** 2), [0.0, 0.0]), r"A list of params is a tree of single numbers. Try: numpy.array\(\[...\]\)"),
    (lambda: hl.nn.LSTM(3, 8, batch_first=True), r"'batch_first'. Sequences are \(batch, time, features\) always"),
    (lambda: hl.nn.Embedding(num_embeddings=9, embedding_dim=4), "'num_embeddings'. Try: count$"), (lambda: hl.nn.Embedding(9, embedding_dim=4), "'embedding_dim'. Try: units$"),
    (lambda: hl.nn.Conv1d(in_channels=3, out_channels=4, kernel_size=3), "'in_channels'. Try: inputs$"), (lambda: hl.nn.Conv1d(3, out_channels=4), "'out_channels'. Try: filters$"),
    (lambda: hl.nn.Conv1d(3, 4, kernel_size=3), "'kernel_size'. Try: kernel$"), (lambda: hl.nn.MaxPool(kernel_size=2), r"'kernel_size'. It is over all steps. Try: hl.max\(hl.reshape"),
    (lambda: hl.optim.RMSprop(1e-3, alpha=0.9), "'alpha'. Try: decay$"), (lambda: hl.optim.RMSprop(1e-3, rho=0.9), "'rho'. Try: decay$"), (lambda: hl.nn.LeakyReLU(alpha=0.1), "'alpha'. Try: slope$"),
    (lambda: hl.optim.Cosine(T_max=100), "'T_max'. Try: steps$"), (lambda: hl.optim.Cosine(100, eta_min=1e-5), "'eta_min'. Try: last, a part of the learning rate$"),
    (lambda: hl.optim.Step(step_size=30), "'step_size'. Try: every$"), (lambda: hl.optim.OneCycle(100, pct_start=0.2), "'pct_start'. Try: rise$"),
    (lambda: hl.optim.Plateau(min_lr=1e-6), "'min_lr'. Try: least, a part of the learning rate$"), (lambda: hl.optim.Adam(1e-3, b1=0.9), "'b1'. Try: beta1$"),
    (lambda: hl.optim.Adam(1e-3, betas=(0.9, 0.99)), "'betas'. Try: beta1 and beta2$"), (lambda: hl.nn.Linear(3, features=4), "'features'. Try: units$"),
    (lambda: hl.optim.SGD(weight_decay=1e-4), r"'weight_decay'. Try: hl.optim.AdamW; or, in a loop by hand, a term of the loss, 0.5 \* weight_decay"),
])  # fmt: skip
def test_arguments(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("module, name, meant", [
    (hl, "concatenate", "concat"), (hl, "array", "asarray"), (hl, "Jit", "jit"), (hl.nn, "Dense", "Linear"), (hl.nn, "lstm", "LSTM"), (hl.optim, "Adan", "Adam"),
    (hl.losses, "HuberLoss", "Huber"), (hl.ode, "diffeqsolve", "solve"), (hl.ode, "PIDController", "PID"), (hl.ode, "RecursiveCheckpointAdjoint", "Discrete"),
    (hl, "percentile", "quantile"), (hl, "topk", "top_k"), (hl, "swish", "silu"), (hl, "hardtanh", "hard_tanh"), (hl.losses, "BCELoss", "BinaryCrossEntropy"),
    (hl.optim, "CosineDecay", "Cosine"), (hl.optim, "OneCycleLR", "OneCycle"), (hl.optim, "ExponentialLR", "Step"),
])  # fmt: skip
def test_names(module, name, meant):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Try: {module.__name__}.{meant}$"):
        getattr(module, name)
    assert not hasattr(module, "nothing_like_it")


@pytest.mark.parametrize("of, name, instead", [
    (hl, "conv2d", r"a sum of products of shifted slices, .* or hl.nn.Conv1d"), (hl, "lax", "the function's name in hl itself, as hl.scan or hl.sum"), (hl, "norm", "hl.linalg.norm"),
    (hl.nn, "gelu", "hl.gelu"), (hl.nn, "MultiheadAttention", "a hl.nn.Module of your own, .*"), (hl.optim, "global_norm", r"hl.linalg.norm\(hl.tree.ravel\(grads\)\[0\]\)"),
    (hl, "odeint", r"hl.ode.solve\(field, hl.ode.Tsit5\(\), t0, t1, y0\)"), (hl, "cuda", r"hl.devices\(\), and hl.jit\(f, device='cuda'\)"), (hl.nn, "Lambda", "a hl.nn.Module of your own, .*"),
    (hl.nn, "MaxPool1d", r"hl.nn.MaxPool\(\) over all steps; over every two, .*hl.max\(hl.reshape\(x, \(len\(x\), -1, 2, x.shape\[2\]\)\), axis=2\)"), (hl.nn, "AvgPool1d", "hl.nn.MeanPool.*"),
    (hl.data, "DataLoader", r"hl.fit\(model, \(x, y\)\) of whole arrays, .*"), (hl.asarray(X).at[0], "apply", r"x.at\[key\].set\(f\(x\[key\]\)\)"),
])  # fmt: skip
def test_what_is_no_single_name(of, name, instead):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Try: {instead}$"):
        getattr(of, name)


def test_results_have_other_names_elsewhere():
    run = hl.fit(MODEL, (X, Y), epochs=1)
    assert pickle.loads(pickle.dumps(run)).best_epoch == run.best_epoch
    found, solved = hl.minimize(lambda p: ((p - 1) ** 2).sum(), np.zeros(2)), hl.ode.solve(lambda t, y, a: -y, hl.ode.Tsit5(), 0, 1, np.ones(2))
    for of, name, meant in ((found, "x", "params"), (found, "success", "converged"), (solved, "y", "ys"), (solved, "t", "ts"), (run, "weights", "params"), (run, "save", r"hl.save\(path, run.params\)"), (run, "val_loss", r".*r.validation for r in run.history.*'val_loss': hl.losses.MSE\(\)\}\).*")):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Try: {meant}$"):
            getattr(of, name)


@pytest.mark.parametrize("of, name, meant", [
    (hl.ones(3), "view", r"x.reshape\(...\)"), (hl.ones(3), "sigmoid", r"hl.sigmoid\(x\)"), (hl.ones(3), "chunk", r"hl.split\(x, indices_or_sections\)"), (hl.ones(3), "dot", "x @ y"), (hl.ones(3), "vecdot", r"hl.vecdot\(x, x2\)"), (hl.ones(3), "detach", r"hl.stop_gradient\(x\)"),
    (hl.ones(3), "backward", r"hl.grad\(f\)\(x\), of the function that computes it"), (hl.ones(3), "reshap", "reshape"), (MODEL, "parameters", r"params = model.init\(seed\), which you hold"),
    (MODEL, "fit", r"hl.fit\(model, \(x, y\)\)"), (MODEL, "summary", r"print\(model\), and hl.tree.map\(lambda a: a.shape, model.init\(\)\)"), (MODEL, "stream", r"voice = model.bind\(params\).voice\(\), and .*"),
])  # fmt: skip
def test_attributes(of, name, meant):
    with pytest.raises(AttributeError, match=f"object has no attribute '{name}'. Try: {meant}$"):
        getattr(of, name)
    with pytest.raises(AttributeError, match=f"'{name}'. Try: {meant}$"):
        hl.jit(lambda x: getattr(x if of is not MODEL else MODEL, name))(np.ones(3))
    assert not hasattr(of, "nothing_like_it") and not hasattr(of, "__cuda_array_interface__")


def test_numpy_tells_the_shape_of_what_is_traced():
    assert float(hl.jit(lambda x: x.sum() * np.ndim(x) + np.shape(x)[1] * np.size(x))(X[0])) == pytest.approx(X[0].sum() * 2 + 45)


def test_a_dict_goes_where_fit_took_it():
    data = {"x": X, "y": Y, "lengths": np.full(32, 3)}
    run = hl.fit(MODEL, data, epochs=1)
    assert np.array_equal(run.predict(data), run.predict(X, lengths=data["lengths"])) and not np.array_equal(run.predict(data), run.predict(X))
    with pytest.warns(UserWarning, match="The loss was not finite at step 1"):
        failed = hl.fit(MODEL, (np.where(X > 2, np.nan, X), Y), epochs=1)
    assert "non_finite_loss" in repr(failed) and "the inputs of the batch" in repr(failed)


def test_a_tree_as_a_vector():
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": [np.float32(7), np.array([8, 9], np.int32)]}
    vector, unravel = hl.tree.ravel(tree)
    assert np.array_equal(vector, np.arange(6.0).tolist() + [7, 8, 9]) and vector.dtype == np.float64
    for again in (unravel(vector), hl.jit(lambda t: (lambda v, back: back(v))(*hl.tree.ravel(t)))(tree)):
        for a, b in zip(hl.tree.leaves(again), hl.tree.leaves(tree), strict=True):
            assert np.array_equal(a, b) and a.dtype == b.dtype
    gradient = hl.grad(lambda v: (unravel(v)["a"] ** 2).sum())(np.asarray(vector))
    assert np.array_equal(gradient, [0, 2, 4, 6, 8, 10, 0, 0, 0])


def test_pools_of_every_two_steps():
    class Pool(hl.nn.Module):
        def apply(self, params, x, key=None):
            return hl.max(hl.reshape(x, (len(x), -1, 2, x.shape[2])), axis=2)

    pooled = hl.nn.Sequential(Pool(), hl.nn.Flatten())({}, X[:, :4])
    np.testing.assert_array_equal(pooled, np.maximum(X[:, :4:2], X[:, 1:4:2]).reshape(32, 6))


def test_losses_tell_their_shapes():
    assert "prediction: (batch, ..., classes). target: (batch, ...) or (batch, ..., 1) of labels" in hl.losses.CrossEntropy.__doc__
    scores = np.zeros((4, 5, 3), np.float32)
    for target in (np.zeros((4, 5), int), np.zeros((4, 5, 1), np.float32), np.eye(3, dtype=np.float32)[np.zeros((4, 5), int)]):
        assert hl.losses.CrossEntropy()(scores, target) == pytest.approx(np.log(3))
    assert "(batch, ..., 2 * n)" in hl.losses.Gaussian.__doc__ and "(batch, ..., quantiles * n)" in hl.losses.Quantile.__doc__
    assert hl.losses.Gaussian().statistics(np.float32([[1, 2, 30, 40]]))["mean"].tolist() == [[1, 30]]
    assert hl.losses.Quantile([0.1, 0.5, 0.9]).statistics(np.arange(6.0)[None])["q50"].tolist() == [[1, 4]]


def test_states_are_named_as_told():
    shapes = lambda model: hl.tree.map(lambda a: a.shape, model.initial_state(2))  # noqa: E731
    lstm, one = hl.nn.LSTM(3, 4), {"h": (2, 4), "c": (2, 4)}
    _, state = lstm(lstm.init(0), X[:2], state=lstm.initial_state(2))
    np.testing.assert_array_equal(state["h"], lstm(lstm.init(0), X[:2])[:, -1])
    assert shapes(lstm) == one and shapes(hl.nn.GRU(3, 4)) == shapes(hl.nn.RNN(3, 4)) == {"h": (2, 4)}
    assert shapes(hl.nn.LSTM(3, 4, layers=2)) == {"l0": one, "l1": one} and shapes(hl.nn.LSTM(3, 4, bidirectional=True)) == {"l0": one, "l0_reverse": one}
    assert shapes(hl.nn.Bidirectional(lstm)) == {"forward": one, "reverse": one} and shapes(hl.nn.Sequential(hl.nn.Tanh(), lstm)) == {"1": one}


def test_names_of_elsewhere_lead_somewhere():
    from hotloop import _names

    assert all(hasattr(hl.ode, name) for name in _names.EQUATIONS.values()) and not any(hasattr(hl.ode, name) for name in _names.EQUATIONS)

    assert all(hasattr(hl, name) for name in _names.FUNCTIONS.values()) and not any(hasattr(hl, name) for name in _names.FUNCTIONS)
    assert all(hasattr(hl.random, name) for name in _names.RANDOM.values()) and not any(hasattr(MODEL, name) for name in set(_names.MODELS) - {"predict"})
    assert all(name in pathlib.Path(hl.__file__).with_name("sklearn.py").read_text() for name in _names.ESTIMATORS.values())
    modules = ((hl.nn, _names.LAYERS, _names.IN_LAYERS), (hl.losses, _names.LOSSES, {}), (hl.optim, _names.OPTIMIZERS, _names.IN_OPTIMIZERS), (hl, {}, _names.INSTEAD), (hl.linalg, _names.LINALG, _names.IN_LINALG), (hl.data, {}, _names.IN_DATA), (hl.tree, {}, _names.TREES),
               (None, {}, _names.MODELS), (None, {}, _names.METHODS), (None, {}, _names.RUNS), (None, {}, _names.PLACES), (None, {}, _names._REMARKS))  # fmt: skip
    for module, names, instead in modules:
        if module is not None:
            assert all(hasattr(module, name) for name in names.values()) and not any(hasattr(module, name) for name in [*names, *instead])
        # What is named in words is there too.
        for path in re.findall(r"\bhl\.([a-z_A-Z.0-9]*[a-zA-Z0-9])", " ".join(instead.values())):
            assert operator.attrgetter(path)(hl) is not None


def test_modules_that_need_others_are_imported_when_asked_for():
    code = """
import sys, hotloop as hl
assert "hotloop.sklearn" not in sys.modules
try:
    hl.sklearn.SequenceRegressor()
except ImportError as error:
    assert "scikit-learn is needed" in str(error), error
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_of_ones_own_is_named_with_its_parts():
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(3, 8, batch_first=True), torch.nn.Linear(8, 1)

    with pytest.raises(hl.UserError, match="the module: Net, whose own forward joins lstm: LSTM, head: Linear. Try: hl.from_torch"):
        hl.from_torch(Net())
    with pytest.raises(hl.UserError, match=r"\[Sequential\] .*need no gradient.*which its __dlpack__ does not give out: .*require.*gradient.*Try: x.detach"):
        MODEL(PARAMS, torch.zeros(2, 5, 3, requires_grad=True))


def test_numpy_functions_of_arrays():
    """On arrays NumPy's own, on what is traced ours of the same meaning."""
    x = hl.asarray(X)
    for run in (
        lambda v: np.sum(v), lambda v: np.mean(v, axis=(0, 1)), lambda v: np.concatenate([v, v], axis=1), lambda v: np.stack([v, v]), lambda v: np.where(v > 0, v, 0.0),
        lambda v: np.transpose(v, (2, 0, 1)), lambda v: np.clip(v, -0.5, 0.5), lambda v: np.std(v, axis=0), lambda v: np.max(v, axis=1), lambda v: np.argmin(v, axis=-1),
        lambda v: np.zeros_like(v), lambda v: np.reshape(v, (-1, 3)), lambda v: np.sort(v, axis=1), lambda v: np.cumsum(v[0, :, 0]), lambda v: np.repeat(v, 2, axis=0),
        lambda v: np.tensordot(v, v, axes=([0, 1, 2], [0, 1, 2])), lambda v: np.flip(v, axis=1), lambda v: np.squeeze(v[:1], axis=0), lambda v: np.take(v, np.array([2, 0]), axis=1),
        lambda v: np.sum(v, 1), lambda v: np.concatenate([v, v], -1), lambda v: np.stack([v, v], 2), lambda v: np.roll(v, 2, 1), lambda v: np.expand_dims(v, 1),
        lambda v: np.sort(v, 0), lambda v: np.repeat(v, 3, 2),
    ):  # fmt: skip
        wanted = run(X)
        assert isinstance(run(x), (np.ndarray, np.generic))
        for got in (run(x), hl.jit(run)(X)):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-5)
    assert np.linalg.norm(x) > 0 and np.allclose(x, X) and np.array_equal(x, X)


def test_an_axis_is_given_by_place_as_in_numpy():
    for name in ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin", "count_nonzero", "flip", "sort", "argsort", "expand_dims"):
        wanted, ours = getattr(np, name)(X, 1), getattr(hl, name)
        for got in (ours(X, 1), hl.jit(lambda v, ours=ours: ours(v, 1))(X)):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(hl.softmax(X, 1), hl.softmax(X, axis=1))
    np.testing.assert_array_equal(hl.concat([X, X], 2), np.concatenate([X, X], 2))
    np.testing.assert_array_equal(hl.stack([X, X], -1), np.stack([X, X], -1))
    np.testing.assert_array_equal(hl.take(X, np.array([1, 0]), 2), np.take(X, [1, 0], 2))
    np.testing.assert_array_equal(hl.repeat(X, 2, 1), np.repeat(X, 2, 1))
    np.testing.assert_array_equal(hl.roll(X, 1, 1), np.roll(X, 1, 1))


def test_numbers_of_another_kind_are_named():
    m, d = hl.nn.Linear(3, 1), (np.zeros((20, 3), np.float32), np.zeros((20, 1), np.float32))
    wrong = [
        (lambda: hl.nn.LSTM("3", 4), r"\[lstm\] inputs must be an integer, of 64 bits at most. Received: '3'"),
        (lambda: hl.nn.LSTM(3, 2**70), r"\[hidden\] a setting must be an integer, of 64 bits at most"),
        (lambda: m.init(-1), r"\[init\] seed must be an integer from 0 and below 2\^64. Received: -1"),
        (lambda: m.init(2**70), r"\[init\] seed must be"),
        (lambda: hl.fit(m, d, epochs=1.5), r"\[fit\] epochs must be an integer, of 64 bits at most. Received: 1.5"),
        (lambda: hl.fit(m, d, batch_size=10**20), r"\[fit\] batch_size must be an integer, of 64 bits at most"),
        (lambda: hl.fit(m, d, steps_per_call="a"), r"\[fit\] steps_per_call must be an integer.* Received: 'a'"),
        (lambda: hl.fit(m, d, seed=-1), r"\[fit\] seed must be an integer from 0"),
        (lambda: hl.fit(m, d, early_stopping=hl.EarlyStopping(patience=1.5)), r"\[fit\] patience must be an integer"),
        (lambda: hl.jit(lambda x: x, threads="a")(1.0), r"\[jit\] threads must be an integer"),
        (lambda: hl.jit(lambda x: x, threads=2**40)(1.0), r"\[jit\] threads must be None, 0, or a number of cores"),
        (lambda: hl.repeat(np.ones(3), np.array([1, 2])), r"\[repeat\] repeats must be one integer that is not negative, or one for each of the 3 elements"),
    ]
    for call, message in wrong:
        with pytest.raises(hl.UserError, match=message):
            call()
    assert hl.fit(m, d, epochs=np.int64(1), seed=np.uint8(3), batch_size=np.int32(8), progress=False).status == "finished"
    assert m.init(2**64 - 1)["weight"].shape == (1, 3)


def test_arguments_of_another_kind_are_named():
    field = lambda t, y, args: -y  # noqa: E731
    lstm, linear = hl.nn.LSTM(3, 4), hl.nn.Linear(3, 2)
    wrong = [
        (lambda: hl.grad(3), r"\[grad\] what is differentiated must be a function. Received: an int"),
        (lambda: hl.grad(lambda a: a, argnums="x")(1.0), r"\[grad\] a position in argnums must be an integer. Received: 'x'"),
        (lambda: hl.jvp(lambda a: a, 1.0, 1.0), r"\[jvp\] primals must be a tuple.* Try: \(primal,\)"),
        (lambda: hl.vmap(3), r"\[vmap\] what is mapped must be a function"),
        (lambda: hl.vmap(lambda a: a, in_axes=1.5)(X), r"\[vmap\] axes must be an integer, None"),
        (lambda: hl.scan(3, 1.0, X), r"\[scan\] the body must be a function"),
        (lambda: hl.while_loop(lambda c: c < 3, lambda c: c + 1, 0, max_steps=1.5), r"\[while_loop\] max_steps must be an integer"),
        (lambda: hl.scan(lambda c, x: (c, x), 1.0, length=2.5), r"\[scan\] the length must be an integer. Received: 2.5"),
        (lambda: hl.cond(True, 1.0, 2.0), r"\[cond\] true_fn must be a function"),
        (lambda: hl.einsum(3, X), r"\[einsum\] the subscripts must be a text"),
        (lambda: hl.arange(0, 3, 0), r"\[arange\] the step must not be 0"),
        (lambda: hl.zeros(2.5), r"\[zeros\] an extent must be an integer. Received: 2.5"),
        (lambda: hl.ones((-1,)), r"\[ones\] extents must not be negative. Received: \(-1,\)"),
        (lambda: hl.linspace(0, 1, -3), r"\[linspace\] num must not be negative. Received: -3"),
        (lambda: hl.pad(X, "a"), r"\[pad\] a width must be an integer. Received: 'a'"),
        (lambda: hl.pad(X, (1, 2, 3, 4)), r"\[pad\] pad_width must be one number, \(before, after\), or such a pair for each of the 3 axes"),
        (lambda: hl.roll(X, 1.5), r"\[roll\] the shift must be an integer. Received: 1.5"),
        (lambda: hl.sum(X, axis=1.5), r"\[sum\] the axis must be an integer. Received: 1.5"),
        (lambda: hl.repeat(X, -1), r"\[repeat\] repeats must not be negative"),
        (lambda: hl.from_torch(3), r"\[from_torch\] the argument must be a torch.nn.Module. Received: an int"),
        (lambda: hl.optim.Adam("1e-3"), r"\[Schedule\] a learning rate must be a number"),
        (lambda: linear.init(0.5), r"\[init\] seed must be an integer. Received: 0.5"),
        (lambda: linear.init(init=3), r'\[init\] init must be "torch" or "keras". Received: 3'),
        (lambda: linear.init(dtype="int32"), r"\[init\] parameters must be float32 or float64. Received: i32"),
        (lambda: linear(None, X), r"\[Linear\] params must be a dict as model.init\(seed\) gives it. Received: None"),
        (lambda: linear({"weight": linear.init(0)["weight"]}, X[0, :, :3]), r"bias is missing"),
        (lambda: lstm(lstm.init(0), np.ones((2, 5, 3), np.float32), lengths=np.array([1.5, 2.0])), r"\[LSTM\] lengths must be integers. Received: float64"),
        (lambda: hl.ode.PID(-1.0), r"\[ode.PID\] rtol must be a number that is not negative.* Received: -1.0"),
        (lambda: hl.ode.PID(atol="a"), r"\[ode.PID\] atol must be a number"),
        (lambda: hl.ode.solve(field, hl.ode.Tsit5(), 0, np.nan, 1.0), r"\[ode.solve\] t1 must be a number. Received: nan"),
        (lambda: hl.ode.solve(field, hl.ode.Tsit5(), 0, 1, 1.0, saveat=[0.5, np.nan]), r"\[ode\] ts must be times. Received: nan at place 1"),
        (lambda: hl.ode.solve(field, hl.ode.Tsit5(), 0, 1, 1.0, events=field), r"events\[0\] must be an hl.ode.Event. Received: a function"),
    ]
    for call, message in wrong:
        with pytest.raises(hl.UserError, match=message):
            call()
    with pytest.raises(TypeError, match=r"The function was given args=None. Try: hl.ode.solve\(..., args=...\)"):
        hl.ode.solve(lambda t, y, args: -y * args["k"], hl.ode.Tsit5(), 0, 1, 1.0)
    np.testing.assert_array_equal(hl.repeat(X, np.array([2, 0, 1, 0, 3]), 1), np.repeat(X, [2, 0, 1, 0, 3], 1))
    np.testing.assert_array_equal(hl.repeat(np.arange(3), [1, 2, 0]), [0, 1, 1])


def test_a_change_of_an_event_has_the_shape_of_the_state():
    event = hl.ode.Event(lambda t, y, a: y[0] - 0.5, terminal=False, change=lambda t, y, a: y[0])
    with pytest.raises(hl.UserError, match=r"the change of an event must give the state's shapes and dtypes, f64\[3\]. Received: f64\[\]"):
        hl.ode.solve(lambda t, y, a: -y, hl.ode.Tsit5(), 0, 1.0, np.ones(3), events=event)


def test_a_fit_of_classes_needs_no_metric(rng):
    x, y = rng.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    seen = []
    run = hl.fit(hl.nn.Linear(3, 2), (x, y), loss=hl.losses.CrossEntropy(), epochs=1, progress=False, callbacks=seen.append)
    held = hl.losses.CrossEntropy()(hl.nn.Linear(3, 2)(run.params, x[36:]), y[36:])
    np.testing.assert_allclose(run.best_validation, held, rtol=1e-5)
    assert seen[-1].epoch_done
    scores = (x, y[:, None].astype(np.float32))
    assert hl.fit(hl.nn.Linear(3, 1), scores, loss=hl.losses.BinaryCrossEntropy(), epochs=1, progress=False).status == "finished"


def test_settings_are_read_and_not_written():
    adam, lstm, smooth = hl.optim.Adam(1e-2), hl.nn.LSTM(3, 8), hl.losses.Huber()
    assert (adam.learning_rate, adam.beta1, lstm.hidden, lstm.layers, smooth.delta) == (1e-2, 0.9, 8, 1, 1.0)
    for made, name, message in (
        (adam, "learning_rate", r"\[Adam\] settings do not change once it is made. Received: learning_rate = 5. Try: hl.optim.Adam\(..., learning_rate=5\)"),
        (lstm, "hidden", r"\[LSTM\] settings do not change.*Try: hl.nn.LSTM\(..., hidden=5\)"),
    ):
        with pytest.raises(AttributeError, match=message):
            setattr(made, name, 5)
    assert hl.optim.Adam(hl.optim.Schedule(1e-3)).learning_rate(0) == 1e-3
    copied = pickle.loads(pickle.dumps((adam, lstm)))
    assert copied[0].learning_rate == 1e-2 and copied[1].hidden == 8 and not hasattr(adam, "nothing")


def test_a_second_softmax_is_told(recwarn):
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    doubled = hl.nn.Sequential(hl.nn.Linear(3, 2), hl.nn.Sequential(hl.nn.Softmax()))
    with pytest.warns(UserWarning, match=r"CrossEntropy takes what comes before Softmax, which it has in itself.*or hl.losses.CrossEntropy\(logits=False\)\.$"):
        hl.fit(doubled, (rows, np.arange(40) % 2), loss=hl.losses.CrossEntropy(), epochs=1)
    scores = (rows, (np.arange(40) % 2)[:, None].astype(np.float32))
    with pytest.warns(UserWarning, match=r"BinaryCrossEntropy takes what comes before Sigmoid.*\(logits=False\), with hl.metrics.Accuracy\(threshold=0.5\)"):
        hl.fit(hl.nn.Sequential(hl.nn.Linear(3, 1), hl.nn.Sigmoid()), scores, loss=hl.losses.BinaryCrossEntropy(), epochs=1)
    probabilities = {"loss": hl.losses.BinaryCrossEntropy(logits=False), "epochs": 1}
    with pytest.warns(UserWarning, match=r"threshold of Accuracy must suit.*Received: Accuracy\(\), for logits, .*Try: hl.metrics.Accuracy\(threshold=0.5\)"):
        hl.fit(hl.nn.Sequential(hl.nn.Linear(3, 1), hl.nn.Sigmoid()), scores, metric=hl.metrics.Accuracy(), **probabilities)
    recwarn.clear()
    hl.fit(hl.nn.Sequential(hl.nn.Linear(3, 1), hl.nn.Sigmoid()), scores, metric=hl.metrics.Accuracy(threshold=0.5), **probabilities)
    hl.fit(hl.nn.Sequential(hl.nn.Linear(3, 1), hl.nn.Sigmoid()), scores, metric=hl.metrics.AUC(), **probabilities)
    hl.fit(doubled, (rows, np.arange(40) % 2), loss=hl.losses.CrossEntropy(logits=False), epochs=1)
    hl.fit(hl.nn.Linear(3, 2), (rows, np.arange(40) % 2), loss=hl.losses.CrossEntropy(), epochs=1)
    assert not recwarn.list


def test_archives_that_are_no_safetensors(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.ones(3))
    with pytest.raises(hl.UserError, match=r"Received: .*a.npz, an archive of NumPy. Try: hl.load\(numpy.load\("):
        hl.load(tmp_path / "a.npz")
    assert np.array_equal(hl.load(np.load(tmp_path / "a.npz"))["w"], np.ones(3))


@pytest.mark.parametrize("module", [hl.losses, hl.optim, hl.metrics, hl.random, hl.nn, hl.ode, hl.data, hl.tree])
def test_completion_shows_what_is_public(module):
    assert sorted(dir(module)) == sorted(module.__all__) and all(hasattr(module, name) for name in module.__all__)
    assert not {"functools", "jit", "absent", "op", "math", "numpy"} & set(dir(module))


def test_warnings_of_casts_name_the_callers_line():
    """In a process of its own: a cast is told once."""
    program = """
import warnings
import hotloop as hl
import numpy as np
warnings.simplefilter("always")
model = hl.nn.LSTM(3, 4)
voice = model.bind(model.init(0)).voice()
with warnings.catch_warnings(record=True) as told:
    voice.step(np.zeros((1, 3)))
assert [w.filename for w in told] == ["<string>"], told
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
