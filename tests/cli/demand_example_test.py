#!/usr/bin/env python3
"""examples/demand.cpp trains on a small table with the columns of the real one.

usage: demand_example_test.py PROGRAM
"""
import math
import pathlib
import re
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    table = pathlib.Path(folder) / "table.csv"
    with open(table, "w") as file:
        file.write("Demand,WorkDay,Temperature\n")
        for t in range(900):
            day = 2 * math.pi * t / 48
            file.write(f"{4 + math.sin(day):.6f},{int(t // 48 % 7 < 5)},{15 + 5 * math.cos(day):.3f}\n")
    result = subprocess.run([sys.argv[1], "30", table], capture_output=True, text=True, timeout=300)
    print(result.stdout, result.stderr)
    assert result.returncode == 0
    error = float(re.match(r"test MAE ([\d.]+), best validation in epoch \d+\n$", result.stdout).group(1))
    assert error < 0.4, error  # predicting the mean would give that of a sine, 0.637

    refused = subprocess.run([sys.argv[1], "1", pathlib.Path(folder) / "none.csv"], capture_output=True, text=True)
    assert refused.returncode == 2 and "[csv] the file must be readable" in refused.stderr, refused.stderr
