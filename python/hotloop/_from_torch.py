"""PyTorch modules as models and parameters. PyTorch is imported where a module comes from."""

import inspect

import numpy

from hotloop import _core, nn
from hotloop._names import kind_of

# What has a twin without parameters: PyTorch's name, ours.
ACTIVATIONS = {
    "Tanh": "Tanh", "ReLU": "ReLU", "Sigmoid": "Sigmoid", "SELU": "SELU", "SiLU": "SiLU", "Mish": "Mish", "Softsign": "Softsign", "ReLU6": "ReLU6",
    "Hardsigmoid": "HardSigmoidKeras3",
}  # fmt: skip
# Whose sequences are (batch, time, features) in PyTorch too.
_FEATURES_LAST = {"LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "Linear", "LayerNorm", "Embedding", "Softmax", "LogSoftmax", "Flatten"}


def _array(tensor):
    return _core.copy(_core.asarray(tensor.detach().cpu().contiguous().numpy()))


def _own(module):
    """The module's own parameters, by name."""
    return {name: _array(p) for name, p in module.named_parameters(recurse=False)}


def _accepts(cls, name):
    return name in inspect.signature(cls).parameters


def _is_twin(module):
    """Whether it is of hotloop's own, as to_torch makes it."""
    return type(module).__module__.startswith("hotloop.")


def _kind(module):
    """The class's name, where it is one of PyTorch's layers or of our twins: a class of one's own may do anything."""
    return type(module).__name__ if _is_twin(module) or type(module).__module__.startswith("torch.nn.modules.") else None


def _recurrent(cls):
    def convert(module, problems):
        options = {"hidden": module.hidden_size}
        if getattr(module, "proj_size", 0):
            problems.append("proj_size (a projected hidden state)")
        for name, theirs, usual in (("layers", "num_layers", 1), ("bidirectional", "bidirectional", False), ("dropout", "dropout", 0.0)):
            if getattr(module, theirs, usual) != usual:
                options[name] = getattr(module, theirs)
        if getattr(module, "nonlinearity", "tanh") != "tanh":
            name = "activation" if _accepts(cls(), "activation") else "nonlinearity"
            options[name] = module.nonlinearity
        problems += [f"{name}={value!r}" for name, value in options.items() if not _accepts(cls(), name)]
        if problems:
            return None, {}
        params = _own(module)
        if not hasattr(module, "num_layers"):  # a cell
            params = {f"{name}_l0": value for name, value in params.items()}
        if not module.bias:
            # No bias is a bias of zero.
            for name in [n for n in params if n.startswith("weight_hh")]:
                for kind in ("bias_ih", "bias_hh"):
                    params[name.replace("weight_hh", kind)] = _core.asarray(numpy.zeros(params[name].shape[0], params[name].dtype))
        return cls()(module.input_size, **options), params

    return convert


def _linear(module, problems):
    return nn.Linear(module.in_features, module.out_features, bias=module.bias is not None), _own(module)


def _layer_norm(module, problems):
    if len(module.normalized_shape) != 1 or not module.elementwise_affine or module.bias is None:
        problems.append("a LayerNorm of more than the last axis, or without weight and bias")
        return None, {}
    return nn.LayerNorm(module.normalized_shape[0], epsilon=module.eps), _own(module)


def _embedding(module, problems):
    found = [name for name in ("max_norm", "scale_grad_by_freq") if getattr(module, name)]
    if found:
        problems += found
        return None, {}
    padding = {} if module.padding_idx is None else {"padding": module.padding_idx}
    return nn.Embedding(module.num_embeddings, module.embedding_dim, **padding), _own(module)


def _conv1d(module, problems, pad=0):
    """pad: zeros that a layer before it puts in front of the first step."""
    past = (module.kernel_size[0] - 1) * module.dilation[0]
    causal = pad == (0 if _is_twin(module) else past)
    if module.stride[0] != 1:
        problems.append(f"stride={module.stride[0]}")
    if not causal or module.padding not in ((0,), "valid", "same" if past == 0 else "valid"):
        problems.append(
            f"kernel_size={module.kernel_size[0]}, dilation={module.dilation[0]} and padding={_shown(module.padding)}, where hl.nn.Conv1d is causal: "
            f"torch.nn.ZeroPad1d(({past}, 0)) before one without padding"
        )
    if problems:
        return None, {}
    options = {"dilation": module.dilation[0], "groups": module.groups, "bias": module.bias is not None}
    return nn.Conv1d(module.in_channels, module.out_channels, module.kernel_size[0], **options), _own(module)


def _shown(value):
    return value[0] if isinstance(value, tuple) else repr(value)


def _batch_norm(module, problems):
    for name, value in (("momentum", None), ("affine", False), ("track_running_stats", False)):
        if getattr(module, name) is value:
            problems.append(f"{name}={value}")
    if problems:
        return None, {}
    return nn.BatchNorm(module.num_features, momentum=module.momentum, epsilon=module.eps), _own(module)


def _prelu(module, problems):
    return nn.PReLU(module.num_parameters), _own(module)


def _last_axis(cls):
    def convert(module, problems):
        if module.dim not in (-1, 1):
            problems.append(f"dim={module.dim}; dim=-1, the features, is wanted")
        return cls(), {}

    return convert


def _flatten(module, problems):
    if (module.start_dim, module.end_dim) != (1, -1):
        problems.append(f"start_dim={module.start_dim}, end_dim={module.end_dim}")
    return nn.Flatten(), {}


def _activation(name):
    return lambda module, problems: (getattr(nn, name)(), {})


def _gelu(module, problems):
    return (nn.GELU() if module.approximate == "none" else nn.GELUTanh()), {}


def _softplus(module, problems):
    if module.beta != 1 or module.threshold < 20:
        problems.append(f"beta={module.beta}, threshold={module.threshold}")
    return nn.Softplus(), {}


def _hard_tanh(module, problems):
    if (module.min_val, module.max_val) != (-1, 1):
        problems.append(f"min_val={module.min_val}, max_val={module.max_val}")
    return nn.HardTanh(), {}


def _children(module):
    """(name, child) of a Sequential, also where one stands twice, which named_children() gives once."""
    return [(name, child) for name, child in module._modules.items() if child is not None]


def _sequential(module, path, problems):
    layers, params, children = [], {}, _children(module)
    for i, (name, child) in enumerate(children):
        where = f"{path}.{name}" if path else name
        if _zeros_before(child) and i + 1 < len(children) and _kind(children[i + 1][1]) == "Conv1d":
            layer, own = nn.Sequential(), {}  # which keeps the others' numbers
        else:
            layer, own = _convert(child, where, problems, pad=_zeros_before(children[i - 1][1]) if i else 0)
        layers.append(layer)
        if own:
            params[name] = own
        if own and any(child is other for _, other in children[:i]):
            problems.append(f"{where}: {type(child).__name__}, which is there twice and would have two weights")
    if [name for name, _ in children] != [str(i) for i in range(len(layers))]:
        problems.append(f"{path or 'the module'}: a Sequential whose children are named; numbers are wanted")
    return (None if any(layer is None for layer in layers) else nn.Sequential(*layers)), params


def _zeros_before(module):
    """How many zeros a padding layer puts before the first step; 0 for other layers."""
    is_pad = _kind(module) in ("ZeroPad1d", "ConstantPad1d") and module.value == 0 and module.padding[1] == 0
    return module.padding[0] if is_pad else 0


_CONVERTERS = {
    **{f"{kind}{cell}": _recurrent(lambda kind=kind: getattr(nn, kind)) for kind in ("LSTM", "GRU", "RNN") for cell in ("", "Cell")},
    "Linear": _linear,
    "LayerNorm": _layer_norm,
    "BatchNorm1d": _batch_norm,
    "Conv1d": _conv1d,
    "Embedding": _embedding,
    "Dropout": lambda module, problems: (nn.Dropout(module.p), {}),
    "Flatten": _flatten,
    "Softmax": _last_axis(nn.Softmax),
    "LogSoftmax": _last_axis(nn.LogSoftmax),
    **{theirs: _activation(ours) for theirs, ours in ACTIVATIONS.items()},
    "ELU": lambda module, problems: (nn.ELU(module.alpha), {}),
    "LeakyReLU": lambda module, problems: (nn.LeakyReLU(module.negative_slope), {}),
    "PReLU": _prelu,
    "GELU": _gelu,
    "Softplus": _softplus,
    "Hardtanh": _hard_tanh,
    "Last": lambda module, problems: (nn.Last(), {}),
}


def _convert(module, path, problems, pad=0):
    kind = _kind(module)
    if kind == "Sequential":
        return _sequential(module, path, problems)
    if kind not in _CONVERTERS:
        parts = ", ".join(f"{name}: {type(child).__name__}" for name, child in module.named_children())
        problems.append(f"{path or 'the module'}: {type(module).__name__}" + (f", whose own forward joins {parts}" if parts else ""))
        return None, {}
    found = []
    layer, params = _conv1d(module, found, pad) if kind == "Conv1d" else _CONVERTERS[kind](module, found)
    problems += [f"{path or 'the module'}: {kind} with {problem}" for problem in found]
    return layer, params


def _parts(module, path=""):
    """(path, module) of what stands in Sequentials, in order."""
    if _kind(module) != "Sequential":
        return [(path, module)]
    return [part for name, child in _children(module) for part in _parts(child, f"{path}.{name}" if path else name)]


def _has_second_axis(module):
    """Whether its features are the second axis in PyTorch."""
    kind = _kind(module)
    return kind == "BatchNorm1d" or (kind == "PReLU" and module.num_parameters > 1) or (kind in ("Softmax", "LogSoftmax") and module.dim == 1)


def _check_axes(parts, problems):
    """Features are the last axis here. In PyTorch they are the second for some layers, and a model must not have both for a sequence."""
    theirs = [(path, _kind(part)) for path, part in parts if not _is_twin(part)]
    second = {path for path, part in parts if _has_second_axis(part)}
    others = sorted({kind for path, kind in theirs if kind in _FEATURES_LAST and path not in second})
    steps = None
    for path, kind in theirs:
        if kind == "Conv1d" and others:
            problems.append(f"{path}: Conv1d, whose sequences are (batch, features, time), in one Sequential with {', '.join(others)}, which have the features last")
        if path in second and steps:
            problems.append(f"{path}: {kind} after {steps}, whose second axis is time")
        steps = kind if kind in ("Embedding", "LSTM", "GRU", "RNN") else None if kind in ("Flatten", "Last") else steps


def _buffers(module):
    """The running means and variances, as the model's init_buffers() has them."""
    if _kind(module) == "BatchNorm1d":
        return {name: _array(value) for name, value in module.named_buffers(recurse=False)}
    if _kind(module) != "Sequential":
        return {}
    return {name: own for name, child in _children(module) if (own := _buffers(child))}


def from_torch(module, *, buffers=False):
    """(model, params) of a PyTorch module, with `buffers` (model, params, buffers). The module may be LSTM, GRU, RNN (any number of
    layers, both directions) and their cells, Linear, Conv1d, LayerNorm, BatchNorm1d, Embedding, Dropout, Flatten, Softmax, LogSoftmax, Tanh,
    ReLU, Sigmoid, GELU, Softplus, ELU, SELU, SiLU, Mish, LeakyReLU, PReLU, ReLU6, Hardtanh, Hardsigmoid, Softsign, and Sequential of these.

    Parameters keep names, shapes and dtypes, and are copied. Sequences are (batch, time, features) whatever batch_first says, also where
    Conv1d and BatchNorm1d have (batch, features, time) in PyTorch. A recurrent layer gives its outputs alone; `hl.nn.Last()` may follow. A
    cell becomes the layer that runs it over time, whose names end in _l0: model.bind(params).step(state, x) is the cell. Conv1d is causal
    here: one of more than one step wants ZeroPad1d(((kernel_size - 1) * dilation, 0)) before it. BatchNorm1d has running means, which
    are asked for by buffers=True; beside layers that have the features last in PyTorch too it is that of (batch, features), as are Softmax and LogSoftmax with dim=1. What cannot be converted is named, all of it at once, in the UserError.
    """
    if not hasattr(module, "named_children"):
        raise _core.UserError(f"[from_torch] the argument must be a torch.nn.Module. Received: {kind_of(module)}.")
    problems, parts = [], _parts(module)
    layer, params = _convert(module, "", problems)
    _check_axes(parts, problems)
    if problems:
        raise _core.UserError(
            f"[from_torch] every part must be one that can be converted. Received: {'; '.join(problems)}. "
            "Try: hl.from_torch(module.part) for each part that can, and hl.nn.Sequential, hl.nn.Cell or hl.nn.Module around them. A subclass of "
            "hl.nn.Module with the same attributes takes hl.load(module.state_dict(), like=model.init())."
        )
    held = _buffers(module)
    if held and not buffers:
        norm = next(path or "the module" for path, part in parts if _kind(part) == "BatchNorm1d")
        raise _core.UserError(
            f"[from_torch] a module with running means must be converted with them. Received: {norm}: BatchNorm1d, and buffers=False. "
            "Try: model, params, buffers = hl.from_torch(module, buffers=True), and y, buffers = model(params, x, buffers=buffers)."
        )
    return (layer, params, held) if buffers else (layer, params)
