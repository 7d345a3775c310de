"""Keras on TensorFlow, its own fit and predict; one bias a gate where PyTorch has two, so its losses are compared with those of that network."""

import os

import numpy as np
from harness.prepared import Prepared, Unsupported


def setup(threads):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def versions():
    import keras
    import tensorflow

    return f"keras {keras.__version__} on tensorflow {tensorflow.__version__}"


def _lstm(sizes, p, sequences):
    import keras

    if "dtype" in sizes:
        raise Unsupported("layers of the default precision, f32")
    if sizes["cell"] != "lstm" or sizes["directions"] == 2:
        raise Unsupported("LSTM in one direction alone: Keras' other cells have other biases")
    layers = [keras.layers.LSTM(sizes["H"], return_sequences=sequences or k + 1 < sizes["layers"]) for k in range(sizes["layers"])]
    return layers


def _set(layers, p):
    for k, layer in enumerate(layers):
        layer.set_weights([p[f"weight_ih_l{k}"].T, p[f"weight_hh_l{k}"].T, p[f"bias_ih_l{k}"] + p[f"bias_hh_l{k}"]])


def recurrent_train(sizes, inputs):
    import keras

    x, y = inputs.pop("x"), inputs.pop("y")
    layers, head = _lstm(sizes, inputs, False), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input(x.shape[1:]), *layers, head])
    _set(layers, inputs)
    head.set_weights([inputs["head.weight"].T, inputs["head.bias"]])
    model.compile(optimizer=keras.optimizers.Adam(1e-3, epsilon=1e-8), loss="mse")
    losses = np.array(model.fit(x, y, batch_size=len(x), epochs=5, verbose=0, shuffle=False).history["loss"])
    # An epoch of many batches, as its user calls it: starting fit() is spread over them.
    steps = max(2, min(50, int(2e7 / x.size)))
    many_x, many_y = np.tile(x, (steps, 1, 1)), np.tile(y, (steps, 1))
    fit = lambda: model.fit(many_x, many_y, batch_size=len(x), epochs=1, verbose=0, shuffle=False)  # noqa: E731
    fit()
    return Prepared(fit, {"losses": losses}, units=steps, variant="one bias", note=f"fit of {steps} batches")


def recurrent_infer(sizes, inputs):
    import keras

    x = inputs.pop("x")
    layers = _lstm(sizes, inputs, True)
    model = keras.Sequential([keras.Input(x.shape[1:]), *layers])
    _set(layers, inputs)
    f = lambda: model.predict_on_batch(x)  # noqa: E731
    return Prepared(f, {"outputs": np.asarray(f())}, note="predict_on_batch")


def cold_start(sizes, inputs):
    from harness import cold

    code = "import keras\ny = keras.ops.sum(keras.ops.tanh(x))"
    return cold.start(code, inputs)
