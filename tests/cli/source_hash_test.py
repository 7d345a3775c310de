#!/usr/bin/env python3
"""Whoever changes the code generator gets other keys in the cache on disk; whoever builds the same sources elsewhere gets the same.

usage: source_hash_test.py CMAKE REPOSITORY [unittest arguments]
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE = REPOSITORY = ""


class SourceHash(unittest.TestCase):
    def setUp(self):
        base = tempfile.TemporaryDirectory()
        self.addCleanup(base.cleanup)
        self.folder = pathlib.Path(base.name)

    def copy(self, name):
        for part in ["src", "include"]:
            shutil.copytree(pathlib.Path(REPOSITORY) / part, self.folder / name / part)
        return self.folder / name

    def hash_of(self, root, name="source_hash"):
        output = self.folder / "source_hash.cpp"
        script = pathlib.Path(REPOSITORY) / "cmake" / "source_hash.cmake"
        subprocess.run([CMAKE, "-D", f"ROOT={root}", "-D", f"OUTPUT={output}", "-P", script], check=True)
        return re.search(name + r' = "([0-9a-f]{64})"', output.read_text()).group(1)

    def test_the_place_does_not_count(self):
        root = self.copy("a")
        for name in ["source_hash", "program_hash"]:
            self.assertEqual(self.hash_of(root, name), self.hash_of(REPOSITORY, name))

    def test_every_kind_of_source_counts(self):
        seen = {self.hash_of(REPOSITORY)}
        root = self.copy("a")
        for name in ["src/backends/llvm/map_emitter.cpp", "src/backends/llvm/code.h", "src/backends/backend.h",
                     "src/schedule/kernel_ir.h", "src/schedule/kernel_print.cpp", "src/schedule/math/new.cpp",
                     # Included, by a source and through a header, and what defines that.
                     "src/core/philox.h", "src/ir/scalar.h", "include/hotloop/array.h", "src/core/nearest.cpp"]:
            with open(root / name, "a") as file:
                file.write("// another line\n")
            seen.add(self.hash_of(root))
        (root / "src/backends/llvm/squares.cpp").rename(root / "src/backends/llvm/renamed.cpp")
        seen.add(self.hash_of(root))
        self.assertEqual(len(seen), 12)

    def test_of_programs_all_of_the_library_counts(self):
        root = self.copy("a")
        code = self.hash_of(root)
        seen = {self.hash_of(root, "program_hash")}
        for name in ["src/passes/pipeline.h", "src/ops/exp.cpp", "src/ir/print.cpp", "include/hotloop/jit.h", "src/runtime/new.cpp"]:
            with open(root / name, "a") as file:
                file.write("// another line\n")
            seen.add(self.hash_of(root, "program_hash"))
        self.assertEqual(len(seen), 6)
        with open(root / "src/cli/main.cpp", "a") as file:
            file.write("// another line\n")
        self.assertIn(self.hash_of(root, "program_hash"), seen)
        self.assertEqual(self.hash_of(root), code)


if __name__ == "__main__":
    CMAKE, REPOSITORY = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
