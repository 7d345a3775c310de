"""Models of hl.nn as Keras models. Keras is imported when one is made."""

import inspect

import numpy

from hotloop import _core

_ACTIVATIONS = {
    "Tanh": "tanh", "ReLU": "relu", "Sigmoid": "sigmoid", "GELU": "gelu", "Softplus": "softplus", "SELU": "selu", "SiLU": "silu",
    "Exponential": "exponential", "LogSoftmax": "log_softmax", "Softmax": "softmax", "Softsign": "softsign", "Mish": "mish", "HardTanh": "hard_tanh",
    "ReLU6": "relu6", "HardSigmoidKeras3": "hard_sigmoid",
}  # fmt: skip
_CELL_ACTIVATIONS = {"hard_sigmoid_keras3": "hard_sigmoid", **{name: name for name in ("tanh", "relu", "sigmoid", "softplus", "softsign", "elu", "selu", "silu")}}


def _kernel(weight):
    return numpy.ascontiguousarray(numpy.asarray(weight).T)


def _zrh(array):
    """Gates r, z, n along the last axis as Keras' z, r, h."""
    r, z, n = numpy.split(array, 3, axis=-1)
    return numpy.concatenate([z, r, n], axis=-1)


class _Conversion:
    """Keras' layers of a model's, one after another, with the weights to set once all are made."""

    def __init__(self, keras, dtype):
        self.keras, self.dtype = keras, dtype
        self.layers, self.weights, self.problems = [], [], []

    def add(self, name, *args, weights=(), **options):
        self.layers.append(getattr(self.keras.layers, name)(*args, dtype=self.dtype, **options))
        self.weights.append([numpy.asarray(w) for w in weights])

    def settings(self, layer):
        """With every default."""
        given = getattr(layer, "_settings", {})
        return {p.name: given.get(p.name, p.default) for p in inspect.signature(type(layer)).parameters.values()}

    def model(self, layers, params, buffers, prefix=""):
        skip = False
        for i, layer in enumerate(layers):
            if skip:
                skip = False
                continue
            path, kind = f"{prefix}{i}", type(layer).__name__
            own, held = params.get(str(i), {}), buffers.get(str(i), {})
            if kind == "Sequential":
                self.model(layer.layers, own, held, path + ".")
                continue
            last = i + 1 < len(layers) and type(layers[i + 1]).__name__ == "Last"
            # In both directions the last step is not where the backward one ends, which is what Keras would give.
            skip = last and kind in ("LSTM", "GRU", "RNN") and not self.settings(layer)["bidirectional"]
            self.layer(kind, path, layer, own, held, skip)

    def layer(self, kind, path, layer, params, buffers, last):
        s, problem = self.settings(layer), lambda what: self.problems.append(f"{path}: {what}")
        if kind in ("LSTM", "GRU", "RNN"):
            self.recurrent(kind, s, params, problem, sequences=not last)
        elif kind == "Bidirectional":
            inner = s["layer"]
            if type(inner).__name__ not in ("LSTM", "GRU", "RNN") or self.settings(inner)["layers"] != 1:
                return problem(f"Bidirectional of other than one recurrent layer, {inner!r}")
            self.recurrent(type(inner).__name__, {**self.settings(inner), "bidirectional": True}, params, problem, sequences=s["sequences"], merge=s["merge"])
        elif kind == "Linear":
            self.add("Dense", s["units"], use_bias=s["bias"], weights=[_kernel(params["weight"]), *([params["bias"]] if s["bias"] else [])])
        elif kind == "Embedding":
            if s["feature"] >= 0 or s["padding"] >= 0:
                return problem("Embedding of one feature among others, or with padding")
            self.add("Embedding", s["count"], s["units"], weights=[params["weight"]])
        elif kind == "LayerNorm":
            self.add("LayerNormalization", epsilon=s["epsilon"], weights=[params["weight"], params["bias"]])
        elif kind == "BatchNorm":
            if not buffers:
                return problem("BatchNorm, whose running means are wanted as buffers")
            self.add("BatchNormalization", momentum=1 - s["momentum"], epsilon=s["epsilon"],
                     weights=[params["weight"], params["bias"], buffers["running_mean"], buffers["running_var"]])  # fmt: skip
        elif kind == "Dropout":
            if s["same_over_time"]:
                return problem("Dropout with same_over_time")
            self.add("Dropout", s["rate"])
        elif kind == "ELU":
            self.add("ELU", alpha=s["alpha"])
        elif kind == "LeakyReLU":
            self.add("LeakyReLU", negative_slope=s["slope"])
        elif kind in _ACTIVATIONS:
            self.add("Activation", _ACTIVATIONS[kind])
        elif kind == "Flatten":
            self.add("Flatten")
        elif kind in ("MeanPool", "MaxPool"):
            self.add("GlobalAveragePooling1D" if kind == "MeanPool" else "GlobalMaxPooling1D")
        else:
            problem("Last after other than a recurrent layer of one direction" if kind == "Last" else repr(layer))

    def recurrent(self, kind, s, params, problem, *, sequences, merge="concat"):
        both = s["bidirectional"]
        options = {}
        for setting, keras_name, usual in (("gate", "recurrent_activation", "sigmoid"), ("activation", "activation", "tanh"), ("nonlinearity", "activation", "tanh")):
            if s.get(setting, usual) == usual:
                continue
            if s[setting] not in _CELL_ACTIVATIONS:
                problem(f"{kind} with {setting}={s[setting]!r}")
                return
            options[keras_name] = _CELL_ACTIVATIONS[s[setting]]
        if kind == "GRU":
            options["reset_after"] = s["reset"] == "after"
        if s["recurrent_dropout"]:
            options["recurrent_dropout"] = s["recurrent_dropout"]
        make = {"LSTM": self.keras.layers.LSTM, "GRU": self.keras.layers.GRU, "RNN": self.keras.layers.SimpleRNN}[kind]
        for level in range(s["layers"]):
            every = sequences or level + 1 < s["layers"]
            layer = make(s["hidden"], return_sequences=every, dtype=self.dtype, **options)
            weights = self.cell(kind, s, params, f"_l{level}")
            if both:
                layer = self.keras.layers.Bidirectional(layer, merge_mode={"average": "ave"}.get(merge, merge), dtype=self.dtype)
                weights += self.cell(kind, s, params, f"_l{level}_reverse")
            self.layers.append(layer)
            self.weights.append(weights)
            if s["dropout"] and level + 1 < s["layers"]:
                self.add("Dropout", s["dropout"])

    def cell(self, kind, s, params, suffix):
        """(kernel, recurrent kernel, bias) of one direction of one layer."""
        kernel, recurrent = _kernel(params["weight_ih" + suffix]), _kernel(params["weight_hh" + suffix])
        zeros = numpy.zeros(kernel.shape[1], kernel.dtype)
        bias_ih, bias_hh = (numpy.asarray(params.get(name + suffix, zeros)) for name in ("bias_ih", "bias_hh"))
        if kind != "GRU":
            return [kernel, recurrent, bias_ih + bias_hh]
        bias = numpy.stack([bias_ih, bias_hh]) if s["reset"] == "after" else bias_ih + bias_hh
        return [_zrh(kernel), _zrh(recurrent), _zrh(bias)]


def _input_shape(layers):
    """Of one sample, as keras.Input takes it: None for the time."""
    sequence = any(type(part).__name__ in ("LSTM", "GRU", "RNN", "Bidirectional", "Last", "MeanPool", "MaxPool") for part in layers)
    for part in layers:
        settings = getattr(part, "_settings", {})
        inner = getattr(settings.get("layer"), "_settings", settings)
        if type(part).__name__ == "Embedding":
            return (None,)
        if "inputs" in inner:
            return (None, inner["inputs"]) if sequence else (inner["inputs"],)
    return (None,)


def _flat(layers):
    return [leaf for part in layers for leaf in (_flat(part.layers) if type(part).__name__ == "Sequential" else [part])]


def to_keras(model, params, buffers=None):
    """The Keras 3 twin of a model of hl.nn, built and with these parameters.

    LSTM, GRU and RNN with their settings, also stacked, in both directions and followed by Last; Bidirectional, Linear, Embedding,
    LayerNorm, BatchNorm (with buffers), Dropout, Flatten, MeanPool, MaxPool, activations, and Sequential of these. Keras has one bias where PyTorch
    has two: their sum. What cannot be converted is named, all of it at once, in the UserError.
    """
    import keras

    layers = model.layers if type(model).__name__ == "Sequential" else (model,)
    params, buffers = (params, buffers or {}) if type(model).__name__ == "Sequential" else ({"0": params}, {"0": buffers or {}})
    dtypes = [leaf.dtype.name for leaf in _core.tree_flatten(params)[0] if leaf.dtype.kind == "f"]
    conversion = _Conversion(keras, dtypes[0] if dtypes else "float32")
    conversion.model(layers, params, buffers)
    if conversion.problems:
        raise _core.UserError(f"[to_keras] every part must have a twin in Keras. Received: {'; '.join(conversion.problems)}.")
    flat = _flat(layers)
    dtype = "int32" if flat and type(flat[0]).__name__ == "Embedding" else conversion.dtype
    twin = keras.Sequential([keras.Input(_input_shape(flat), dtype=dtype), *conversion.layers])
    for layer, weights in zip(conversion.layers, conversion.weights):
        layer.set_weights(weights)
    return twin
