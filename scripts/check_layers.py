#!/usr/bin/env python3
"""Checks that dependencies between the folders of src/ point one way.

Each folder may include itself and the folders before it; public headers count as the folder they belong to. nn, optim, minimizers and
ode build graphs and know nothing of passes, schedules, backends or the runtime.

usage: check_layers.py [ROOT]
"""

import pathlib
import re
import sys

ORDER = [
    ["core"],
    ["ir"],
    ["ops"],
    ["transforms", "passes"],
    ["schedule"],
    ["backends"],
    ["runtime"],
    ["ode"],
    ["nn", "optim", "minimizers"],
    ["io"],
    ["data"],
    ["train"],
    ["deploy"],
    ["cli", "python"],
]
LEVEL = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
HIDDEN = {"nn": {"passes", "schedule", "backends", "runtime"}}
HIDDEN["optim"] = HIDDEN["ode"] = HIDDEN["minimizers"] = HIDDEN["nn"]
# The folder whose interface a public header is. The umbrella header belongs to nobody.
PUBLIC = {
    "array.h": "core",
    "cancel.h": "core",
    "tree.h": "core",
    "signature.h": "core",
    "append_list.h": "core",
    "forkable_mutex.h": "core",
    "error.h": "core",
    "fixed_rows.h": "core",
    "graph.h": "ir",
    "structure.h": "ir",
    "ops.h": "ops",
    "angles.h": "ops",
    "sorting.h": "ops",
    "linalg.h": "ops",
    "transforms.h": "transforms",
    "functions.h": "transforms",
    "jacobian.h": "transforms",
    "jit.h": "runtime",
    "profile.h": "runtime",
    "structured_jit.h": "runtime",
    "nn.h": "nn",
    "init.h": "nn",
    "losses.h": "nn",
    "optim.h": "optim",
    "ode.h": "ode",
    "minimize.h": "minimizers",
    "data.h": "data",
    "dataset.h": "data",
    "table.h": "data",
    "arrow.h": "data",
    "npy.h": "io",
    "io.h": "io",
    "metrics.h": "train",
    "checkpoint.h": "train",
    "fit.h": "train",
    "train.h": "train",
    "stream.h": "deploy",
    "export.h": "deploy",
    "rtneural.h": "deploy",
    "hotloop.h": "cli",
}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def folder_of_include(name):
    """Folder that an included path belongs to, or None for one that is not of a layer (generated, same folder)."""
    first, _, rest = name.partition("/")
    if first == "hotloop":
        return PUBLIC.get(rest, "unknown")
    return first if rest else None


def violations(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in {".h", ".cpp"}:
            yield from check_file(root, path, path.relative_to(root / "src").parts[0])
    for path in sorted((root / "python" / "bindings").glob("*")):
        yield from check_file(root, path, "python")
    for path in sorted((root / "include" / "hotloop").glob("*.h")):
        yield from check_file(root, path, PUBLIC.get(path.name, "unknown"))


def check_file(root, path, folder):
    where = path.relative_to(root)
    if folder not in LEVEL:
        yield f"{where}: its folder is not in the order of scripts/check_layers.py"
        return
    for name in INCLUDE.findall(path.read_text()):
        used = folder_of_include(name)
        if used is None or used == folder:
            continue
        if used not in LEVEL:
            yield f"{where}: includes {name}, which belongs to no folder of the order"
        elif used in HIDDEN.get(folder, ()) or (LEVEL[used] >= LEVEL[folder]):
            yield f"{where}: {folder} must not include {used} ({name})"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = list(violations(root))
    print("\n".join(found) if found else "dependencies point one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
