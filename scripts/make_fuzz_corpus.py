#!/usr/bin/env python3
"""Writes fuzz/corpus: small inputs that the fuzz targets start from, and that the tests replay. What has no writer in Python,
preparations and graphs, is there as Hotloop printed it.

Needs NumPy, for files as it writes them. usage: make_fuzz_corpus.py
"""
import io
import json
import pathlib
import struct

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"


def write(thing, name, data):
    folder = CORPUS / thing
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def tables():
    rows = [f"2020-01-{1 + i // 24:02}T{i % 24:02}:00,{'ab'[i % 2]},{i * 7 % 11},{i % 5},{'yn'[i // 4 % 2]},s{i // 4}"
            for i in range(32)]
    write("csv", "table", "t,g,a,b,c,s\n" + "\n".join(rows) + "\n")
    write("csv", "missing", "t,g,a,b,c,s\n1,x,,2,y,1\n2,x,NA,3,y,1\n3,x,4,NaN,n,2\n4,x,5,6,n,2\n5,x,6,7,n,2\n")
    write("csv", "quotes", '\ufeff"a","say ""b""",c\r\n"1\n2", 3 ,"4"\r\n\r\n5,6,7')
    write("csv", "ragged", "a,b\n1\n2,3,4\n")
    write("csv", "semicolons", "a;b\n1,5;2\n")
    write("csv", "utf16", "a,b\n1,2\n".encode("utf-16"))
    write("csv", "open_quote", 'a\n"1\n2')
    write("csv", "carriage_returns", "a,b\r1,2\r\r\n3,4\r")


def saved(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def arrays():
    shapes = {"f8": (2, 3), "f4": (4,), "f2": (3,), "i8": (2, 2), "i4": (1, 2, 3), "i2": (3,), "i1": (2,), "u4": (2,),
              "u2": (2,), "u1": (3,), "b1": (3,)}
    for dtype, shape in shapes.items():
        size = int(np.prod(shape))
        write("npy", dtype, saved((np.arange(size) % 2 if dtype == "b1" else np.arange(size)).reshape(shape).astype(dtype)))
    write("npy", "scalar", saved(np.float64(3)))
    write("npy", "empty", saved(np.zeros((0, 3))))
    write("npy", "big_endian", saved(np.arange(3, dtype=">f8")))
    write("npy", "fortran", saved(np.asfortranarray(np.arange(6.0).reshape(2, 3))))
    write("npy", "texts", saved(np.array(["a", "bc"])))
    series = {"x": np.arange(24, dtype="f4").reshape(2, 4, 3), "y": np.array([0, 1]), "lengths": np.array([4, 2])}
    for name, save in {"stored": np.savez, "deflated": np.savez_compressed}.items():
        out = io.BytesIO()
        save(out, **series)
        write("npz", name, out.getvalue())


def configurations():
    for path in sorted((ROOT / "examples").glob("*.toml")):
        write("config", path.stem, path.read_text())
    write("config", "data_alone", '[data]\nfile = "t.csv"\ntarget = ["a", "b"]\ninputs = ["x*", "day"]\ntime = "t"\n'
                                  'missing = "mean"\n[[data.periodic]]\nname = "day"\nof = "hour_of_day"\nharmonics = 2\n'
                                  '[[data.fill]]\ncolumns = ["a"]\nwith = "forward"\n[window]\nlength = 3\nhorizon = 1\n'
                                  '[split]\nby = "group"\ntest_groups = ["x"]\n[[model]]\ntype = "lstm"\nhidden = 3\n')


    # Two inputs that toml++ 3.3 does not survive by itself.
    write("config", "stray_header", "[!]\n")
    write("config", "letter_outside_quotes", "a = 1 \u00e9\n[data \u00e9]\n")


def checkpoint(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def checkpoints():
    two = {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
           "n": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]}}
    write("safetensors", "two", checkpoint(two, np.arange(8, dtype="f4").tobytes()))
    write("safetensors", "none", checkpoint({}))
    write("safetensors", "lies", checkpoint({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]}}, bytes(8)))
    overlap = {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in "ab"}
    write("safetensors", "overlap", checkpoint(overlap, bytes(8)))
    write("safetensors", "huge_header", struct.pack("<Q", 1 << 40) + b"{}")


def main():
    tables()
    arrays()
    configurations()
    checkpoints()
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files)} bytes")


if __name__ == "__main__":
    main()
