"""Models of hl.nn as PyTorch modules. PyTorch is imported when one is made."""

import inspect

import numpy

from hotloop import _core
from hotloop._from_torch import ACTIVATIONS


def _named(tree, prefix=""):
    if not isinstance(tree, dict):
        return {prefix: tree}
    named = {}
    for key, child in tree.items():
        named.update(_named(child, f"{prefix}.{key}" if prefix else key))
    return named


def _twin_classes(torch):
    """Of what takes (batch, time, features) here and something else in PyTorch. from_torch knows these by their names."""

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

    class Conv1d(torch.nn.Conv1d):
        """Causal, of (batch, time, features)."""

        def forward(self, x):
            past = (self.kernel_size[0] - 1) * self.dilation[0]
            return super().forward(torch.nn.functional.pad(x.transpose(1, 2), (past, 0))).transpose(1, 2)

    class FeaturesLast:
        """Of (batch, ..., features)."""

        def forward(self, x):
            return super().forward(x.reshape(-1, x.shape[-1])).reshape(x.shape)

    class BatchNorm1d(FeaturesLast, torch.nn.BatchNorm1d):
        pass

    class PReLU(FeaturesLast, torch.nn.PReLU):
        pass

    return {cls.__name__: cls for cls in (Sequential, Last, Conv1d, BatchNorm1d, PReLU)}


class _Twins:
    def __init__(self, torch):
        self.torch, self.own = torch.nn, _twin_classes(torch)
        self.problems = []

    def make(self, layer, path, buffers):
        kind, torch = type(layer).__name__, self.torch
        if kind == "Sequential":
            parts = [self.make(part, f"{path}.{i}" if path else str(i), buffers.get(str(i), {})) for i, part in enumerate(layer.layers)]
            return None if None in parts else self.own["Sequential"](*parts)
        usual = {p.name: p.default for p in inspect.signature(type(layer)).parameters.values()}
        s = usual | getattr(layer, "_settings", {})
        if kind in ("LSTM", "GRU", "RNN"):
            known = {"inputs", "hidden", "layers", "bidirectional", "dropout", "nonlinearity"}
            other = {k: v for k, v in s.items() if k not in known and v != usual[k]}
            if other:
                return self.problem(path, f"{kind} with {other}")
            options = {"nonlinearity": s["nonlinearity"]} if kind == "RNN" else {}
            return getattr(torch, kind)(s["inputs"], s["hidden"], s["layers"], batch_first=True, bidirectional=s["bidirectional"], dropout=s["dropout"], **options)
        if kind == "Linear":
            return torch.Linear(s["inputs"], s["units"], bias=s["bias"])
        if kind == "LayerNorm":
            return torch.LayerNorm(s["inputs"], eps=s["epsilon"])
        if kind == "Conv1d":
            return self.own[kind](s["inputs"], s["filters"], s["kernel"], dilation=s["dilation"], groups=s["groups"], bias=s["bias"])
        if kind == "BatchNorm":
            if not buffers:
                return self.problem(path, "BatchNorm, whose running means are wanted as buffers")
            if not s["unbiased"]:
                return self.problem(path, "BatchNorm with unbiased=False")
            return self.own["BatchNorm1d"](s["inputs"], eps=s["epsilon"], momentum=s["momentum"])
        if kind == "Embedding":
            if s["feature"] >= 0:
                return self.problem(path, "Embedding of one feature among others")
            return torch.Embedding(s["count"], s["units"], padding_idx=s["padding"] if s["padding"] >= 0 else None)
        if kind == "Dropout":
            return self.problem(path, "Dropout with same_over_time") if s["same_over_time"] else torch.Dropout(s["rate"])
        return self.function(kind, s) or self.problem(path, kind)

    def function(self, kind, s):
        """The twin of a layer without parameters, or of PReLU."""
        torch = self.torch
        make = {
            "Last": self.own["Last"],
            "Flatten": torch.Flatten,
            "Softmax": lambda: torch.Softmax(-1),
            "LogSoftmax": lambda: torch.LogSoftmax(-1),
            "ELU": lambda: torch.ELU(s["alpha"]),
            "LeakyReLU": lambda: torch.LeakyReLU(s["slope"]),
            "PReLU": lambda: self.own["PReLU"](s["inputs"]),
            "GELU": torch.GELU,
            "GELUTanh": lambda: torch.GELU(approximate="tanh"),
            "Softplus": torch.Softplus,
            "HardTanh": torch.Hardtanh,
            **{ours: getattr(torch, theirs) for theirs, ours in ACTIVATIONS.items()},
        }.get(kind)
        return make() if make else None

    def problem(self, path, what):
        self.problems.append(f"{path or 'the model'}: {what}")


def to_torch(model, params, buffers=None):
    """The PyTorch twin of a model of hl.nn, with these parameters loaded (load_state_dict, strict), and the buffers that a BatchNorm has.

    Its sequences are (batch, time, features), of convolutions too, and its recurrent layers give their outputs alone, as the model's do.
    What has no twin is named, all of it at once, in the UserError.
    """
    import torch

    twins, buffers = _Twins(torch), buffers or {}
    twin = twins.make(model, "", buffers)
    if twins.problems:
        raise _core.UserError(f"[to_torch] every part must have a twin in PyTorch. Received: {'; '.join(twins.problems)}.")
    state = {name: torch.from_numpy(numpy.array(value)) for tree in (params, buffers) for name, value in _named(tree).items()}
    dtype = next((t.dtype for t in state.values() if t.dtype.is_floating_point), None)
    twin = twin if dtype is None else twin.to(dtype)
    twin.load_state_dict(state, strict=True)
    return twin
