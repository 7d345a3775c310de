#!/usr/bin/env python3
"""Compiles and runs what the documentation shows.

A block ```cpp with a main() is built against the release library and run; one without is compiled as a file of its
own, with the private headers in reach. A block ```cpp fragment is neither. Blocks ```csv NAME and ```c NAME are files, a
block ```toml train is a configuration that is trained on the files of its page, as runs/job, and blocks ```sh run are
what is done with them and the run afterwards.

usage: check_docs.py BUILD_FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```cpp([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAGS = ["-std=c++20", "-O1", f"-I{ROOT}/include"]
LIBRARIES = ["-pthread", "-L/usr/lib/llvm-19/lib", "-lLLVM-19", "-lz", "-ldl"]


def blocks():
    for path in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if not path.exists():
            continue
        text = path.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}", match.group(1).split(), match.group(2)


def check(code, build, folder):
    """Text of what went wrong, or None."""
    source = folder / "block.cpp"
    source.write_text(code)
    program = folder / "block"
    if "int main(" not in code:
        command = ["g++", *FLAGS, f"-I{ROOT}/src", "-fsyntax-only", str(source)]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.stderr if result.returncode else None
    command = ["g++", *FLAGS, str(source), str(build / "libhotloop.a"), *LIBRARIES, "-o", str(program)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        return result.stderr
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=300, cwd=ROOT)
    return f"exit status {result.returncode}\n{result.stdout}{result.stderr}" if result.returncode else None


def pages():
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text()
        files = re.findall(r"^```(?:csv|c) (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        scripts = re.findall(r"^```sh run\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for match in re.finditer(r"^```toml train\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}", files, match.group(1), scripts


def train(files, configuration, scripts, build, folder):
    """Text of what went wrong, or None."""
    for name, text in files:
        (folder / name).write_text(text)
    (folder / "job.toml").write_text(configuration)
    environment = dict(os.environ, PATH=f"{build}:{os.environ['PATH']}")
    for command in [["hotloop", "train", "job.toml"], *(["sh", "-e", "-c", script] for script in scripts)]:
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=environment)
        if result.returncode:
            return f"exit status {result.returncode}\n{result.stdout}{result.stderr}"
    return None


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    passed = failed = skipped = 0
    for where, words, code in blocks():
        if "fragment" in words:
            skipped += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            trouble = check(code, build, pathlib.Path(folder))
        if trouble:
            failed += 1
            print(f"{where}: this block does not work\n{trouble}")
        else:
            passed += 1
    for where, files, configuration, scripts in pages():
        with tempfile.TemporaryDirectory() as folder:
            trouble = train(files, configuration, scripts, build, pathlib.Path(folder))
        passed, failed = passed + (trouble is None), failed + (trouble is not None)
        if trouble:
            print(f"{where}: this configuration does not train, or what is done with the run fails\n{trouble}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
