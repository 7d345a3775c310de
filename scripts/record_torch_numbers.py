#!/usr/bin/env python3
"""Records the random numbers that PyTorch draws from a seed, for tests/parity: initial parameters, orders of samples, a training.

Writes tests/parity/data/torch_numbers.json. Needs torch; its version is written into the file.

usage: scripts/record_torch_numbers.py [file]
"""
import json
import pathlib
import sys

import torch
from torch import nn

DTYPES = {"f32": torch.float32, "f64": torch.float64}


def pack(tensor):
    return {"shape": list(tensor.shape), "data": tensor.detach().double().ravel().tolist()}


# Our configuration of a stack whose input is x, and the same made by PyTorch. Layers without parameters draw nothing.
MODELS = [
    {
        "name": "lstm_and_linear", "x": [2, 6, 3], "layers": [{"type": "lstm", "hidden": 5}, {"type": "last"}, {"type": "linear", "units": 2}],
        "make": lambda: {"0": nn.LSTM(3, 5), "2": nn.Linear(5, 2)},
    },
    {
        "name": "bidirectional_grus", "x": [2, 6, 3],
        "layers": [{"type": "gru", "hidden": 4, "layers": 2, "bidirectional": True}, {"type": "linear", "units": 1, "bias": False}],
        "make": lambda: {"0": nn.GRU(3, 4, 2, bidirectional=True), "1": nn.Linear(8, 1, bias=False)},
    },
    {
        "name": "convolution_and_rnn", "x": [2, 6, 3],
        "layers": [{"type": "conv1d", "filters": 4, "kernel": 3}, {"type": "batch_norm"}, {"type": "rnn", "hidden": 4}],
        "make": lambda: {"0": nn.Conv1d(3, 4, 3), "1": nn.BatchNorm1d(4), "2": nn.RNN(4, 4)},
    },
    {
        "name": "embedding_and_linear", "x": [2, 6], "integers": True,
        "layers": [{"type": "embedding", "count": 7, "units": 3}, {"type": "linear", "units": 2}],
        "make": lambda: {"0": nn.Embedding(7, 3), "1": nn.Linear(3, 2)},
    },
    {
        # Fewer than 16 normal numbers are drawn in another way than more, in pairs, of which one may be left over.
        "name": "small_embedding_and_linear", "x": [2, 6], "integers": True,
        "layers": [{"type": "embedding", "count": 3, "units": 3}, {"type": "linear", "units": 2}],
        "make": lambda: {"0": nn.Embedding(3, 3), "1": nn.Linear(3, 2)},
    },
]  # fmt: skip


def drawn(model, seed, dtype):
    torch.set_default_dtype(dtype)
    torch.manual_seed(seed)
    params = {f"{i}.{name}": pack(p) for i, layer in model["make"]().items() for name, p in layer.named_parameters()}
    torch.set_default_dtype(torch.float32)
    return params


def training(n=20, batch=8, epochs=3, seed=11):
    """Linear(3, 2) and a shuffled epoch after the other, as a program of PyTorch's does it by hand."""
    rows = torch.arange(n, dtype=torch.float64)
    x = torch.stack([torch.sin(rows), torch.cos(2 * rows), rows / n], 1)
    y = torch.stack([x[:, 0] - x[:, 1], 2 * x[:, 2]], 1)
    torch.manual_seed(seed)
    model = nn.Linear(3, 2, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(epochs):
        for chosen in torch.randperm(n).split(batch):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
    params = {name: pack(p) for name, p in model.named_parameters()}
    return {"seed": seed, "x": pack(x), "y": pack(y), "batch_size": batch, "epochs": epochs, "learning_rate": 0.1, "params": params}


def main():
    seeds = [0, 7, 2**40 + 5]
    models = []
    for model in MODELS:
        kept = {key: value for key, value in model.items() if key != "make"}
        models.append({**kept, "draws": [{"seed": s, **{name: drawn(model, s, d) for name, d in DTYPES.items()}} for s in seeds]})
    orders = []
    for seed in seeds:
        torch.manual_seed(seed)
        orders.append({"seed": seed, "permutations": [torch.randperm(n).tolist() for n in (1, 2, 37, 300, 37)]})
    document = {"torch": torch.__version__, "models": models, "orders": orders, "training": training()}
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "tests/parity/data/torch_numbers.json")
    path.write_text(json.dumps(document) + "\n")


main()
