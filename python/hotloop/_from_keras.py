"""Keras models and files as models and parameters. Files need h5py alone; Keras is not imported."""

import io
import json
import os
import re
import zipfile

import numpy

from hotloop import _core, nn
from hotloop._from_torch import _accepts
from hotloop._names import kind_of


def _gates(kernel, order=None):
    """(inputs, gates * hidden) as (gates * hidden, inputs), the gates in another order."""
    if order is not None:
        kernel = _reordered(kernel, order)
    return numpy.ascontiguousarray(kernel.T)


def _reordered(array, order):
    parts = numpy.split(array, len(order), axis=-1)
    return numpy.concatenate([parts[i] for i in order], axis=-1)


def _from_cudnn(weights, num_gates):
    """Weights of CuDNNLSTM and CuDNNGRU as those of LSTM and GRU. They hold each gate's matrices as cuDNN reads them: the kernel's
    (inputs, hidden) block is the memory of a (hidden, inputs) matrix, the recurrent one is transposed."""
    kernel, recurrent, bias = weights
    blocks = [k.reshape(k.shape[::-1]).T for k in map(numpy.ascontiguousarray, numpy.split(kernel, num_gates, axis=1))]
    return [numpy.concatenate(blocks, 1), numpy.concatenate([r.T for r in numpy.split(recurrent, num_gates, axis=1)], 1), bias]


class _Conversion:
    """Layers of a model one after another, and what stands in the way."""

    def __init__(self, keras_version):
        self.old = keras_version < 3
        self.layers, self.params, self.problems = [], {}, []

    def add(self, layer, params=None):
        if params:
            self.params[str(len(self.layers))] = {name: _core.copy(_core.asarray(numpy.ascontiguousarray(a))) for name, a in params.items()}
        self.layers.append(layer)

    def problem(self, config, what):
        self.problems.append(f"{config.get('name', '?')}: {what}")

    def convert(self, kind, config, weights):
        method = getattr(self, "_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower().replace("simple_rnn", "rnn"), None)
        if method is None or kind.startswith("_"):
            self.problem(config, kind)
        else:
            method(config, weights)

    # ---- layers without parameters

    def _input_layer(self, config, weights):
        pass

    def _activation(self, config, weights):
        self._append_activation(config, config["activation"])

    def _append_activation(self, config, name):
        name = self._activation_name(config, name)
        if name in (None, "linear"):
            return
        from hotloop._components import class_name

        cls = getattr(nn, class_name(name), None)
        if cls is None:
            self.problem(config, f"activation {name!r}")
        else:
            self.add(cls())

    def _activation_name(self, config, name):
        if isinstance(name, dict):
            name = name.get("config", name.get("class_name", "?")) if isinstance(name.get("config"), str) else name.get("class_name", "?")
        if name == "hard_sigmoid":
            return "hard_sigmoid_keras2" if self.old else "hard_sigmoid_keras3"
        return {"swish": "silu"}.get(name, name)

    def _elu(self, config, weights):
        self.add(nn.ELU(config.get("alpha", 1.0)))

    def _leaky_re_lu(self, config, weights):
        self.add(nn.LeakyReLU(config.get("negative_slope", config.get("alpha", 0.3))))

    def _re_lu(self, config, weights):
        other = {k: config[k] for k in ("max_value", "negative_slope", "threshold") if config.get(k)}
        if other:
            self.problem(config, f"ReLU with {other}")
        else:
            self.add(nn.ReLU())

    def _softmax(self, config, weights):
        if config.get("axis", -1) != -1:
            self.problem(config, f"Softmax of axis {config['axis']}")
        else:
            self.add(nn.Softmax())

    def _dropout(self, config, weights):
        if config.get("noise_shape"):
            self.problem(config, f"Dropout with noise_shape={config['noise_shape']}")
        else:
            self.add(nn.Dropout(config["rate"]))

    def _flatten(self, config, weights):
        self.add(nn.Flatten())

    def _global_average_pooling1d(self, config, weights):
        self.add(nn.MeanPool())

    def _global_max_pooling1d(self, config, weights):
        self.add(nn.MaxPool())

    # ---- layers with parameters

    def _dense(self, config, weights):
        kernel = weights[0]
        params = {"weight": kernel.T} | ({"bias": weights[1]} if config.get("use_bias", True) else {})
        self.add(nn.Linear(kernel.shape[0], kernel.shape[1], bias=config.get("use_bias", True)), params)
        self._append_activation(config, config.get("activation", "linear"))

    def _embedding(self, config, weights):
        if config.get("mask_zero"):
            self.problem(config, "Embedding with mask_zero")
        else:
            self.add(nn.Embedding(*weights[0].shape), {"weight": weights[0]})

    def _layer_normalization(self, config, weights):
        if config.get("axis", -1) not in (-1, [-1], [2], 2) or not (config.get("center", True) and config.get("scale", True)):
            self.problem(config, "LayerNormalization of other than the last axis, or without center and scale")
            return
        self.add(nn.LayerNorm(weights[0].shape[0], epsilon=config["epsilon"]), {"weight": weights[0], "bias": weights[1]})

    def _lstm(self, config, weights):
        self._recurrent(nn.LSTM, config, self._lstm_params(config, weights), weights)

    def _cu_dnnlstm(self, config, weights):
        self._lstm({**config, "use_bias": True}, _from_cudnn(weights, 4))

    def _gru(self, config, weights):
        self._recurrent(nn.GRU, config, self._gru_params(config, weights), weights)

    def _cu_dnngru(self, config, weights):
        self._gru({**config, "use_bias": True, "reset_after": True}, _from_cudnn(weights, 3))

    def _rnn(self, config, weights):
        self._recurrent(nn.RNN, config, self._rnn_params(config, weights), weights)

    @staticmethod
    def _lstm_params(config, weights):
        kernel, recurrent, *bias = weights
        bias = bias[0] if bias else numpy.zeros(kernel.shape[1], kernel.dtype)
        params = {"weight_ih_l0": _gates(kernel), "weight_hh_l0": _gates(recurrent)}
        if bias.shape[0] == 2 * kernel.shape[1]:  # CuDNNLSTM has two biases
            return params | {"bias_ih_l0": bias[: kernel.shape[1]], "bias_hh_l0": bias[kernel.shape[1] :]}
        return params | {"bias_ih_l0": bias}

    @staticmethod
    def _gru_params(config, weights):
        order = (1, 0, 2)  # Keras has z, r, h; here r, z, n
        kernel, recurrent, *bias = weights
        bias = bias[0] if bias else numpy.zeros((2 if config.get("reset_after") else 1, kernel.shape[1]), kernel.dtype)
        params = {"weight_ih_l0": _gates(kernel, order), "weight_hh_l0": _gates(recurrent, order)}
        bias = _reordered(bias.reshape(-1, kernel.shape[1]), order)
        return params | {"bias_ih_l0": bias[0]} | ({"bias_hh_l0": bias[1]} if len(bias) == 2 else {})

    @staticmethod
    def _rnn_params(config, weights):
        kernel, recurrent, *bias = weights
        return {"weight_ih_l0": _gates(kernel), "weight_hh_l0": _gates(recurrent), "bias_ih_l0": bias[0] if bias else numpy.zeros(kernel.shape[1], kernel.dtype)}

    def _options(self, cls, config):
        """Settings beside the size; None after a problem."""
        options = {}
        found = []
        gate = self._activation_name(config, config.get("recurrent_activation", "sigmoid"))
        activation = self._activation_name(config, config.get("activation", "tanh"))
        if cls is nn.GRU and not config.get("reset_after", not self.old):
            options["reset"] = "before"
        if gate != "sigmoid":
            options["gate"] = gate
        if activation != "tanh":
            options["activation" if _accepts(cls, "activation") else "nonlinearity"] = activation
        if config.get("recurrent_dropout"):
            options["recurrent_dropout"] = config["recurrent_dropout"]
        for name in ("dropout", "go_backwards", "stateful", "time_major", "unroll", "return_state"):
            if config.get(name) and name not in ("stateful", "unroll"):
                found.append(f"{name}={config[name]}")
        found += [f"{name}={value!r}" for name, value in options.items() if not _accepts(cls, name)]
        for what in found:
            self.problem(config, f"{cls.__name__} with {what}")
        return None if found else options

    def _recurrent(self, cls, config, params, weights):
        options = self._options(cls, config)
        if options is None:
            return
        self.add(cls(weights[0].shape[0], config["units"], **options), params)
        if not config.get("return_sequences"):
            self.add(nn.Last())

    def _bidirectional(self, config, weights):
        inner, merge = config["layer"], {"ave": "average"}.get(config.get("merge_mode", "concat"), config.get("merge_mode", "concat"))
        cls = {"LSTM": nn.LSTM, "GRU": nn.GRU, "SimpleRNN": nn.RNN}.get(inner["class_name"])
        if cls is None or merge is None or not hasattr(nn, "Bidirectional"):
            self.problem(config, f"Bidirectional({inner['class_name']}, merge_mode={merge})")
            return
        settings = inner["config"]
        options = self._options(cls, settings)
        if options is None:
            return
        make = {nn.LSTM: self._lstm_params, nn.GRU: self._gru_params, nn.RNN: self._rnn_params}[cls]
        half = len(weights) // 2
        params = make(settings, weights[:half]) | {f"{k}_reverse": v for k, v in make(settings, weights[half:]).items()}
        layer = cls(weights[0].shape[0], settings["units"], **options)
        self.add(nn.Bidirectional(layer, merge=merge, sequences=bool(settings.get("return_sequences"))), params)

    def result(self):
        if self.problems:
            raise _core.UserError(
                f"[from_keras] every layer must be one that can be converted. Received: {'; '.join(self.problems)}. "
                "Try: hl.nn.Cell or hl.nn.Module for these layers."
            )
        return nn.Sequential(*self.layers), self.params


def _chain(config):
    """The layers' (kind, config) of a Sequential model's configuration, or of a functional one that is a chain."""
    kind = config["class_name"]
    layers = config["config"]["layers"] if isinstance(config["config"], dict) else config["config"]
    if kind not in ("Sequential", "Functional", "Model"):
        raise _core.UserError(f"[from_keras] the model must be Sequential, or a functional chain of layers. Received: {kind}.")
    for layer in layers:
        nodes = layer.get("inbound_nodes") or []
        if len(nodes) > 1 or json.dumps(nodes).count("keras_history") > 1:
            name = layer["config"].get("name")
            raise _core.UserError(f"[from_keras] the model must be a chain of layers. Received: {name}, which has several inputs or is used twice.")
    return [(layer["class_name"], layer["config"]) for layer in layers]


def _weights_of_file(folder, chain):
    """Weights of each layer from a Keras 3 weights file: groups are named by class, with a counter."""
    counts, found = {}, []
    for kind, _ in chain:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
        if kind == "InputLayer":
            snake = "input_layer"
        number = counts.get(snake, 0)
        counts[snake] = number + 1
        name = f"{snake}_{number}" if number else snake
        found.append(_vars(folder[name]) if name in folder else [])
    return found


def _vars(group):
    """Arrays below a group, the forward direction before the backward one."""
    own = [numpy.asarray(group["vars"][k]) for k in sorted(group["vars"], key=int)] if "vars" in group else []
    for child in ("cell", "forward_layer", "backward_layer"):
        if child in group:
            own += _vars(group[child])
    return own


def _read(path):
    import h5py

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
            version = json.loads(archive.read("metadata.json")).get("keras_version", "3")
            with h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r") as file:
                chain = _chain(config)
                folder = file["layers"] if "layers" in file else file["_layer_checkpoint_dependencies"]
                return chain, _weights_of_file(folder, chain), version
    with h5py.File(path, "r") as file:
        text = lambda v: v.decode() if isinstance(v, bytes) else v  # noqa: E731
        if "model_config" not in file.attrs:
            raise _core.UserError(f"[from_keras] the file must hold a whole model. Received: {path}, which has weights alone. Try: model.save.")
        chain = _chain(json.loads(text(file.attrs["model_config"])))
        version = text(file.attrs.get("keras_version", "2"))
        groups = file["model_weights"]
        weights = []
        for _, config in chain:
            group = groups.get(config.get("name"))
            names = [] if group is None else [text(n) for n in group.attrs.get("weight_names", [])]
            weights.append([numpy.asarray(group[n]) for n in names])
        return chain, weights, version


def from_keras(model_or_file):
    """(model, params) of a Keras model, or of a file .keras or .h5 that holds one.

    LSTM, GRU (reset before or after), SimpleRNN, CuDNNLSTM, CuDNNGRU, Bidirectional, Dense, Embedding, LayerNormalization, Dropout,
    Flatten, GlobalAveragePooling1D, GlobalMaxPooling1D, ELU, LeakyReLU, ReLU, Softmax and Activation, one after another. A recurrent layer without return_sequences is followed by Last. Of the two
    hard_sigmoids the one of the file's Keras version is taken. What cannot be converted is named, all of it at once.
    """
    if isinstance(model_or_file, (str, os.PathLike)):
        chain, weights, version = _read(os.fspath(model_or_file))
    else:
        if not hasattr(model_or_file, "layers"):
            raise _core.UserError(f"[from_keras] the model must be one of Keras, or the path of a file. Received: {kind_of(model_or_file)}.")
        layers = model_or_file.layers
        chain = [(type(layer).__name__, layer.get_config()) for layer in layers]
        weights = [[numpy.asarray(w) for w in layer.get_weights()] for layer in layers]
        version = "3" if type(model_or_file).__module__.startswith("keras.src") else "2"
    conversion = _Conversion(int(str(version).split(".")[0]))
    for (kind, config), arrays in zip(chain, weights):
        conversion.convert(kind, config, arrays)
    return conversion.result()

