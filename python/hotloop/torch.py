"""Hotloop inside PyTorch: compiled functions as autograd functions, and a drop-in for torch.nn.LSTM on the CPU.

    f = hl.torch.function(lambda a, b: (hl.tanh(a @ b),))     # of tensors, with every derivative
    lstm = hl.torch.LSTM(7, 32, num_layers=2, batch_first=True)

Import it as hotloop.torch; PyTorch must be installed.
"""

import torch

import hotloop as hl

__all__ = ["LSTM", "function"]


class _Function:
    """A function of float arrays to a tuple of float arrays, compiled, with those that its derivatives and batches need; each is one
    of these again, so that derivatives of any order follow."""

    def __init__(self, fn):
        self.fn = fn
        self._jit = hl.jit(fn)
        self._derived = {}

    def run(self, tensors):
        """The tensors that fn gives."""
        return tuple(torch.from_dlpack(y) for y in self._jit(*(t.detach() for t in tensors)))

    def derived(self, key, make):
        """What `make` gives, made once."""
        if key not in self._derived:
            self._derived[key] = _Function(make())
        return self._derived[key]

    def pullback(self, num_inputs):
        """(inputs, cotangents of the outputs) -> cotangents of the inputs."""

        def fn(*values):
            return hl.vjp(self.fn, *values[:num_inputs])[1](tuple(values[num_inputs:]))

        return self.derived("pullback", lambda: fn)

    def pushforward(self, num_inputs):
        """(inputs, tangents of the inputs) -> tangents of the outputs."""

        def fn(*values):
            return hl.jvp(self.fn, values[:num_inputs], values[num_inputs:])[1]

        return self.derived("pushforward", lambda: fn)

    def batched(self, in_dims):
        """Over an axis of some of the inputs; the outputs have it first."""
        return self.derived(in_dims, lambda: hl.vmap(self.fn, in_axes=in_dims))


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(function, *tensors):
        """The values."""
        return function.run(tensors)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """What the derivatives need."""
        ctx.function = inputs[0]
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx, *cotangents):
        """Reverse mode, itself differentiable."""
        tensors = ctx.saved_tensors
        return (None, *_Apply.apply(ctx.function.pullback(len(tensors)), *tensors, *cotangents))

    @staticmethod
    def jvp(ctx, _, *tangents):
        """Forward mode."""
        tensors = ctx.saved_tensors
        tangents = [torch.zeros_like(x) if t is None else t for x, t in zip(tensors, tangents)]
        return _Apply.apply(ctx.function.pushforward(len(tensors)), *tensors, *tangents)

    @staticmethod
    def vmap(info, in_dims, function, *tensors):
        """torch.func.vmap."""
        outputs = _Apply.apply(function.batched(tuple(in_dims[1:])), *tensors)
        return outputs, (0,) * len(outputs)


def function(fn):
    """fn, written with hotloop's functions, as a function of PyTorch tensors on the CPU.

    fn takes float arrays and returns one float array or a tuple of them. It is compiled for each combination of shapes, and has autograd of
    any order, torch.func.vmap and forward mode; tensors go in and out without a copy where their layout allows.
    """
    gives_one = False

    def in_tuple(*values):
        nonlocal gives_one
        found = fn(*values)
        gives_one = not isinstance(found, (tuple, list))
        if isinstance(found, dict) or found is None:
            raise hl.UserError(f"[torch.function] the function must return an array or a tuple of arrays. Received: {type(found).__name__}.")
        return (found,) if gives_one else tuple(found)

    compiled = _Function(in_tuple)

    def apply(*tensors):
        found = _Apply.apply(compiled, *tensors)
        return found[0] if gives_one else found

    return apply


class LSTM(torch.nn.LSTM):
    """torch.nn.LSTM with the loop, its derivatives and its batches compiled: the same arguments, parameters, state_dict, inputs
    and results, for float32 and float64 tensors on the CPU in one direction.

    UserError for what is not supported: bidirectional, proj_size, dropout, bias=False, packed sequences.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        unsupported = {"bidirectional": self.bidirectional, "proj_size": self.proj_size, "dropout": self.dropout, "bias=False": not self.bias}
        found = [name for name, present in unsupported.items() if present]
        if found:
            raise hl.UserError(f"[torch.LSTM] options must be supported. Received: {', '.join(found)}. Try: torch.nn.LSTM.")
        self._model = hl.nn.LSTM(self.input_size, self.hidden_size, layers=self.num_layers)
        self._names = [f"{kind}_l{i}" for i in range(self.num_layers) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        self._function = function(self._run)

    def _run(self, x, h, c, *weights):
        """x (batch, time, features), h and c (layers, batch, hidden)."""
        params = dict(zip(self._names, weights))
        if self.num_layers == 1:
            state = {"h": h[0], "c": c[0]}
        else:
            state = {f"l{i}": {"h": h[i], "c": c[i]} for i in range(self.num_layers)}
        y, state = self._model(params, x, state=state)
        layers = [state] if self.num_layers == 1 else list(state.values())
        return y, hl.stack([s["h"] for s in layers]), hl.stack([s["c"] for s in layers])

    def forward(self, input, hx=None):
        """(output, (h_n, c_n)) as torch.nn.LSTM gives them; input of two axes has no batch axis."""
        if isinstance(input, torch.nn.utils.rnn.PackedSequence):
            raise hl.UserError("[torch.LSTM] the input must be a tensor. Received: a PackedSequence. Try: padded sequences.")
        single = input.dim() == 2
        x = input.unsqueeze(0) if single else input if self.batch_first else input.transpose(0, 1)
        if hx is None:
            h = c = torch.zeros(self.num_layers, x.shape[0], self.hidden_size, dtype=x.dtype)
        else:
            h, c = (s.unsqueeze(1) if single else s for s in hx)
        y, h, c = self._function(x, h, c, *(getattr(self, name) for name in self._names))
        if single:
            return y.squeeze(0), (h.squeeze(1), c.squeeze(1))
        return (y if self.batch_first else y.transpose(0, 1)), (h, c)
