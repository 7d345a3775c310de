"""Models of hl.nn as Keras models, and back (in the optional group: it needs Keras)."""

import os
import re

import hotloop as hl
import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
nn = hl.nn

MODELS = {
    "lstm": lambda: [nn.LSTM(3, 5), nn.Last(), nn.Linear(5, 2)],
    "stacked": lambda: [nn.LSTM(3, 5, layers=2, dropout=0.1), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 2, bias=False)],
    "gru": lambda: [nn.GRU(3, 5), nn.LayerNorm(5), nn.GRU(5, 4, reset="before"), nn.Last()],
    "rnn": lambda: [nn.RNN(3, 4, nonlinearity="relu"), nn.MeanPool(), nn.GELU(), nn.Linear(4, 1)],
    "both": lambda: [nn.LSTM(3, 4, bidirectional=True), nn.BatchNorm(8), nn.MaxPool()],
    "wrapped": lambda: [nn.Bidirectional(nn.GRU(3, 4), merge="sum", sequences=False), nn.LeakyReLU(0.2)],
    "hard": lambda: [nn.LSTM(3, 4, gate="hard_sigmoid_keras3"), nn.Sequential(nn.ELU(0.7), nn.Linear(4, 2)), nn.Softmax()],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_the_twin_gives_the_same(name, dtype, rng):
    model = nn.Sequential(*MODELS[name]())
    params = model.init(1, dtype=dtype)
    buffers = hl.tree.map(lambda a: np.asarray(a) + 0.1 if a.dtype.kind == "f" else a, model.init_buffers(dtype))
    x = rng.normal(size=(4, 6, 3)).astype(dtype)
    ours = model(params, x, buffers=buffers)[0]
    twin = hl.to_keras(model, params, buffers)
    # Keras computes normalisation, and Dense on PyTorch, in float64 with an error of 6e-8 (against NumPy); ours agrees with NumPy.
    tolerance = 1e-5 if dtype == "float32" else 1e-6 if re.search("Linear|Norm", repr(model)) else 1e-11
    np.testing.assert_allclose(keras.ops.convert_to_numpy(twin(x)), ours, rtol=tolerance, atol=tolerance)
    if name != "both":  # from_keras has no BatchNormalization: it gives no buffers
        again, weights = hl.from_keras(twin)
        np.testing.assert_allclose(again(weights, x), ours, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore")
def test_embeddings_and_one_layer():
    model = nn.Sequential(nn.Embedding(7, 3), nn.LSTM(3, 4))
    params = model.init(0)
    x = np.array([[0, 3, 6], [1, 1, 2]], np.int32)
    np.testing.assert_allclose(np.asarray(hl.to_keras(model, params).predict(x, verbose=0)), model(params, x), rtol=1e-5, atol=1e-6)
    linear = nn.Linear(3, 2)
    params = linear.init(0)
    np.testing.assert_allclose(np.asarray(hl.to_keras(linear, params).predict(np.ones((2, 3), np.float32), verbose=0)), linear(params, np.ones((2, 3), np.float32)), rtol=1e-5)


def test_what_cannot_be_converted_is_named_at_once():
    model = nn.Sequential(nn.LSTM(3, 4, bidirectional=True), nn.Last(), nn.Residual(nn.Linear(8, 8)), nn.BatchNorm(8))
    with pytest.raises(hl.UserError, match=r"1: Last after other than .*; 2: Residual\(.*; 3: BatchNorm, whose running means"):
        hl.to_keras(model, model.init(0))
