#!/usr/bin/env python3
"""The demand forecast from PyTorch's initial parameters and order of samples: for each seed, what Hotloop makes of them.

Draws both as the PyTorch reference does (manual_seed, LSTM, Linear, one randperm an epoch), writes them to a file, and has
the program demand_from_torch train from it. Where the reference was run for the same seed, the lines agree.

usage: demand_from_torch.py PROGRAM TABLE.csv [seed ...]      needs torch, numpy and safetensors
"""
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file

EPOCHS, SAMPLES = 40, 11881

program, table, *seeds = sys.argv[1:]
for seed in map(int, seeds or ["0"]):
    torch.manual_seed(seed)
    lstm, head = torch.nn.LSTM(10, 32, batch_first=True), torch.nn.Linear(32, 1)
    tensors = {f"0.{name}": value.detach().clone() for name, value in lstm.named_parameters()}
    tensors |= {f"2.{name}": value.detach().clone() for name, value in head.named_parameters()}
    tensors["order"] = torch.stack([torch.randperm(SAMPLES) for _ in range(EPOCHS)])
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        save_file(tensors, file.name)
        result = subprocess.run([program, table, file.name], capture_output=True, text=True, check=True)
    print(f"Hotloop, PyTorch's seed {seed}: {result.stdout}", end="", flush=True)
