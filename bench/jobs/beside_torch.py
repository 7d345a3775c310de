#!/usr/bin/env python3
"""An example beside the same model in PyTorch: same samples, same optimiser, one thread each, run in turns.

Prints the time of an epoch (batches, steps and validation) of each round and its ratio, and the test metric of each seed: the
mean absolute error in the target's unit of weather, the accuracy of vowels. PyTorch: fused Adam, packed sequences where
lengths differ, the epoch with the best validation counts, as in Hotloop.

usage: beside_torch.py HOTLOOP EXPORT_SAMPLES CONFIG.toml [--seeds 3] [--epochs N]      needs torch and numpy
"""
import argparse
import copy
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
import tomllib

import numpy as np
import torch


class Model(torch.nn.Module):
    """LSTM, last valid step (both ends of a bidirectional one), Linear."""

    def __init__(self, features, hidden, outputs, bidirectional):
        super().__init__()
        self.lstm = torch.nn.LSTM(features, hidden, batch_first=True, bidirectional=bidirectional)
        self.head = torch.nn.Linear(hidden * (2 if bidirectional else 1), outputs)

    def forward(self, x, lengths):
        if lengths is not None:
            x = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h = self.lstm(x)[1][0]
        return self.head(torch.cat(list(h), dim=1))


def load(folder, part):
    x, y, lengths = (torch.from_numpy(np.load(folder / f"{part}_{name}.npy")) for name in ("x", "y", "lengths"))
    return x, y.long() if y.dtype == torch.int32 else y, lengths if bool((lengths != x.shape[1]).any()) else None


def score(model, data, classes, batch=256):
    x, y, lengths = data
    with torch.no_grad():
        out = torch.cat([model(x[i:i + batch], None if lengths is None else lengths[i:i + batch])
                         for i in range(0, len(x), batch)])
    return (out.argmax(1) == y).double().mean().item() if classes else -(out - y).abs().double().mean().item()


def train_torch(folder, layers, settings, epochs, seed):
    """(seconds an epoch, test score)"""
    torch.manual_seed(seed)
    train, validation, test = (load(folder, part) for part in ("train", "validation", "test"))
    x, y, lengths = train
    classes = not y.is_floating_point()
    outer = layers[0]
    cell = outer["layer"][0] if "layer" in outer else outer
    model = Model(x.shape[2], cell["hidden"], layers[-1]["units"], outer["type"] == "bidirectional")
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["optimizer"]["learning_rate"], fused=True)
    loss_of = torch.nn.CrossEntropyLoss() if classes else torch.nn.MSELoss()
    batch = settings["train"]["batch_size"]
    best, kept, seconds = -float("inf"), None, []
    for _ in range(epochs):
        start = time.perf_counter()
        order = torch.randperm(len(x))
        for i in range(0, len(x), batch):
            rows = order[i:i + batch]
            optimizer.zero_grad(set_to_none=True)
            loss_of(model(x[rows], None if lengths is None else lengths[rows]), y[rows]).backward()
            optimizer.step()
        reached = score(model, validation, classes)
        seconds.append(time.perf_counter() - start)
        if reached > best:
            best, kept = reached, copy.deepcopy(model)
    return statistics.mean(seconds), abs(score(kept, test, classes))


def train_hotloop(program, config, epochs, seed):
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([program, "train", config, "--out", f"{folder}/run", "--epochs", str(epochs), "--seed",
                                 str(seed), "--threads", "1", "--json"], capture_output=True, text=True, check=True)
    metrics = json.loads(result.stdout)
    seconds = metrics["seconds"]
    return sum(seconds[k] for k in ("batches", "steps", "validation")) / epochs, metrics["test"], metrics["baselines"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hotloop")
    parser.add_argument("export")
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = tomllib.loads(args.config.read_text())
    epochs = args.epochs or settings["train"]["epochs"]
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        mean, std = map(float, subprocess.run([args.export, args.config, folder], capture_output=True, text=True,
                                              check=True).stdout.split())
        unit = std if settings["data"].get("task", "regression") == "regression" else 1
        print(f"PyTorch {torch.__version__}, one thread; {epochs} epochs")
        for seed in range(args.seeds):
            ours, test, baselines = train_hotloop(args.hotloop, args.config, epochs, seed)
            theirs, torch_test = train_torch(folder, settings["model"], settings, epochs, seed)
            ratios.append(theirs / ours)
            print(f"seed {seed}: Hotloop {ours:.3f} s an epoch, test {test:.4f}; PyTorch {theirs:.3f} s, test "
                  f"{torch_test * unit:.4f}; ratio {ratios[-1]:.2f}", flush=True)
    for baseline in baselines:
        print(f"{baseline['name']}: {baseline['test']:.4f}")
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
