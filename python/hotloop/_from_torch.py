"""PyTorch modules as models and parameters, and back. PyTorch is imported when one of these is called."""

import inspect

from hotloop import _core, nn


def _array(tensor):
    return _core.copy(_core.asarray(tensor.detach().cpu().contiguous().numpy()))


def _own(module):
    """The module's own parameters, by name."""
    return {name: _array(p) for name, p in module.named_parameters(recurse=False)}


def _accepts(cls, name):
    return name in inspect.signature(cls).parameters


def _recurrent(cls):
    def convert(module, problems):
        options = {"hidden": module.hidden_size, "layers": module.num_layers}
        if getattr(module, "proj_size", 0):
            problems.append("proj_size (a projected hidden state)")
        if module.bidirectional:
            options["bidirectional"] = True
        if module.dropout:
            options["dropout"] = module.dropout
        if getattr(module, "nonlinearity", "tanh") != "tanh":
            name = "activation" if _accepts(cls(), "activation") else "nonlinearity"
            options[name] = module.nonlinearity
        problems += [f"{name}={value!r}" for name, value in options.items() if not _accepts(cls(), name)]
        if problems:
            return None, {}
        params = _own(module)
        if not module.bias:
            # No bias is a bias of zero.
            for name in [n for n in params if n.startswith("weight_hh")]:
                for kind in ("bias_ih", "bias_hh"):
                    params[name.replace("weight_hh", kind)] = _core.asarray(_zeros(params[name].shape[0], params[name].dtype))
        return cls()(module.input_size, **options), params

    return convert


def _zeros(n, dtype):
    import numpy

    return numpy.zeros(n, dtype)


def _linear(module, problems):
    return nn.Linear(module.in_features, module.out_features, bias=module.bias is not None), _own(module)


def _layer_norm(module, problems):
    if len(module.normalized_shape) != 1 or not module.elementwise_affine or module.bias is None:
        problems.append("a LayerNorm of more than the last axis, or without weight and bias")
        return None, {}
    return nn.LayerNorm(module.normalized_shape[0], epsilon=module.eps), _own(module)


def _embedding(module, problems):
    if not hasattr(nn, "Embedding") or module.max_norm is not None:
        problems.append("an Embedding" + (" with max_norm" if module.max_norm is not None else ""))
        return None, {}
    padding = {} if module.padding_idx is None else {"padding": module.padding_idx}
    return nn.Embedding(module.num_embeddings, module.embedding_dim, **padding), _own(module)


def _dropout(module, problems):
    if not hasattr(nn, "Dropout"):
        problems.append("Dropout")
        return None, {}
    return nn.Dropout(module.p), {}


def _activation(name):
    def convert(module, problems):
        if getattr(module, "approximate", "none") != "none":
            problems.append(f"GELU(approximate={module.approximate!r})")
            return None, {}
        return getattr(nn, name)(), {}

    return convert


def _sequential(module, problems):
    layers, params = [], {}
    for name, child in module.named_children():
        layer, own = _convert(child, name, problems)
        layers.append(layer)
        if own:
            params[name] = own
    if [name for name, _ in module.named_children()] != [str(i) for i in range(len(layers))]:
        problems.append("a Sequential whose children are named; numbers are wanted")
    return (None if any(layer is None for layer in layers) else nn.Sequential(*layers)), params


_CONVERTERS = {
    "LSTM": _recurrent(lambda: nn.LSTM),
    "GRU": _recurrent(lambda: nn.GRU),
    "RNN": _recurrent(lambda: nn.RNN),
    "Linear": _linear,
    "LayerNorm": _layer_norm,
    "Embedding": _embedding,
    "Dropout": _dropout,
    "Tanh": _activation("Tanh"),
    "ReLU": _activation("ReLU"),
    "Sigmoid": _activation("Sigmoid"),
    "GELU": _activation("GELU"),
    "Softplus": _activation("Softplus"),
    "Sequential": _sequential,
    "Last": lambda module, problems: (nn.Last(), {}),
}


def _convert(module, path, problems):
    converter = _CONVERTERS.get(type(module).__name__)
    if converter is None:
        parts = ", ".join(f"{name}: {type(child).__name__}" for name, child in module.named_children())
        problems.append(f"{path or 'the module'}: {type(module).__name__}" + (f", whose own forward joins {parts}" if parts else ""))
        return None, {}
    found = []
    layer, params = converter(module, found)
    problems += found if isinstance(module, tuple) or type(module).__name__ == "Sequential" else [
        f"{path or 'the module'}: {type(module).__name__} with {problem}" for problem in found
    ]  # fmt: skip
    return layer, params


def from_torch(module):
    """(model, params) of a PyTorch module: LSTM, GRU, RNN (any number of layers, both directions), Linear, LayerNorm, Embedding,
    Dropout, Tanh, ReLU, Sigmoid, GELU, Softplus, and Sequential of these.

    Parameters keep names, shapes and dtypes, and are copied. Sequences are (batch, time, features) whatever batch_first says, and a
    recurrent layer gives its outputs alone; `hl.nn.Last()` may follow. What cannot be converted is named, all of it at once, in the
    UserError.
    """
    if not hasattr(module, "named_children"):
        raise _core.UserError(f"[from_torch] the argument must be a torch.nn.Module. Received: a {type(module).__name__}.")
    problems = []
    layer, params = _convert(module, "", problems)
    if problems:
        raise _core.UserError(
            f"[from_torch] every part must be one that can be converted. Received: {'; '.join(problems)}. "
            "Try: hl.from_torch(module.part) for each part that can, and hl.nn.Sequential, hl.nn.Cell or hl.nn.Module around them. A subclass of "
            "hl.nn.Module with the same attributes takes hl.load(module.state_dict(), like=model.init())."
        )
    return layer, params


def to_torch(model, params):
    """The PyTorch twin of a model of hl.nn, with these parameters loaded (load_state_dict, strict).

    Its sequences are (batch, time, features), and its recurrent layers give their outputs alone, as the model's do.
    """
    import torch

    problems = []
    twin = _Twins(torch).make(model, "", problems)
    if problems:
        raise _core.UserError(f"[to_torch] every part must have a twin in PyTorch. Received: {'; '.join(problems)}.")
    state = {name: torch.from_numpy(_writable(value)) for name, value in _named(params).items()}
    dtype = next((t.dtype for t in state.values() if t.dtype.is_floating_point), None)
    twin = twin if dtype is None else twin.to(dtype)
    twin.load_state_dict(state, strict=True)
    return twin


def _writable(array):
    import numpy

    return numpy.array(array)


def _named(tree, prefix=""):
    if not isinstance(tree, dict):
        return {prefix: tree}
    named = {}
    for key, child in tree.items():
        named.update(_named(child, f"{prefix}.{key}" if prefix else key))
    return named


class _Twins:
    def __init__(self, torch):
        self.torch = torch

        class Sequential(torch.nn.Sequential):
            """Takes of a recurrent layer's results the outputs."""

            def forward(self, x):
                for part in self:
                    x = part(x)
                    x = x[0] if isinstance(x, tuple) else x
                return x

        class Last(torch.nn.Module):
            """The last step."""

            def forward(self, x):
                return x[:, -1]

        self.sequential, self.last = Sequential, Last

    def make(self, layer, path, problems):
        torch, kind, s = self.torch.nn, type(layer).__name__, getattr(layer, "_settings", {})
        if kind == "Sequential":
            parts = [self.make(part, f"{path}.{i}" if path else str(i), problems) for i, part in enumerate(layer.layers)]
            return None if None in parts else self.sequential(*parts)
        if kind in ("LSTM", "GRU", "RNN"):
            known = {"inputs", "hidden", "layers", "bidirectional", "dropout"}
            other = {k: v for k, v in s.items() if k not in known and v != inspect.signature(type(layer)).parameters[k].default}
            if other:
                problems.append(f"{path or 'the model'}: {kind} with {other}")
                return None
            return getattr(torch, kind)(
                s["inputs"], s["hidden"], s.get("layers", 1), batch_first=True, bidirectional=s.get("bidirectional", False), dropout=s.get("dropout", 0.0)
            )
        if kind == "Linear":
            return torch.Linear(s["inputs"], s["units"], bias=s.get("bias", True))
        if kind == "LayerNorm":
            return torch.LayerNorm(s["inputs"], eps=s.get("epsilon", 1e-5))
        if kind == "Embedding":
            if s.get("feature", -1) >= 0:
                problems.append(f"{path or 'the model'}: Embedding of one feature among others")
                return None
            return torch.Embedding(s["count"], s["units"], padding_idx=s["padding"] if s.get("padding", -1) >= 0 else None)
        if kind == "Dropout":
            return torch.Dropout(s["rate"])
        if kind == "Last":
            return self.last()
        if kind in ("Tanh", "ReLU", "Sigmoid", "GELU", "Softplus"):
            return getattr(torch, kind)()
        problems.append(f"{path or 'the model'}: {kind}")
        return None
