"""Keras models and files, against Keras (in the optional group: it needs keras and h5py)."""

import os

import hotloop as hl
import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
pytest.importorskip("h5py")
L = keras.layers

MODELS = {
    "lstm": lambda: [L.LSTM(5), L.Dense(2)],
    "lstm_sequences": lambda: [L.LSTM(5, return_sequences=True), L.LSTM(4), L.Dense(3, activation="tanh")],
    "gru": lambda: [L.GRU(5, return_sequences=True), L.LayerNormalization(), L.Dense(1)],
    "gru_reset_before": lambda: [L.GRU(5, reset_after=False)],
    "simple_rnn": lambda: [L.SimpleRNN(4), L.Dense(2, use_bias=False)],
    "no_bias": lambda: [L.LSTM(4, use_bias=False), L.Activation("relu")],
    "bidirectional": lambda: [L.Bidirectional(L.LSTM(4, return_sequences=True)), L.Dense(1)],
    "bidirectional_last": lambda: [L.Bidirectional(L.GRU(4), merge_mode="sum")],
    "activations": lambda: [L.Dense(4), L.LeakyReLU(0.1), L.Dense(4), L.ELU(0.5), L.GlobalMaxPooling1D(), L.Dense(3), L.ReLU(), L.Softmax()],
    "hard_sigmoid": lambda: [L.LSTM(4, recurrent_activation="hard_sigmoid")],
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("source", ["model", "model.keras", "model.h5"])
@pytest.mark.filterwarnings("ignore")
def test_models(name, source, tmp_path):
    model = keras.Sequential([keras.Input((6, 3)), *MODELS[name]()])
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape).astype(np.float32) * 0.4 for w in model.get_weights()])
    x = rng.normal(size=(4, 6, 3)).astype(np.float32)
    wanted = np.asarray(model.predict(x, verbose=0))
    if source != "model":
        model.save(tmp_path / source)
    ours, params = hl.from_keras(model if source == "model" else tmp_path / source)
    np.testing.assert_allclose(ours(params, x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # of the other library, of its own inside
def test_what_cannot_be_converted_is_named_at_once():
    model = keras.Sequential([keras.Input((6, 3)), L.Conv1D(2, 3), L.LSTM(3, dropout=0.5), L.Dense(1, activation="hard_shrink")])
    with pytest.raises(hl.UserError, match=r"Conv1D; .*LSTM with dropout=0.5; .*activation 'hard_shrink'"):
        hl.from_keras(model)
