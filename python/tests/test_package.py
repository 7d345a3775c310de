"""The package as it is installed."""

import ast
import os
import pathlib
import subprocess
import sys

import hotloop as hl

FOLDER = pathlib.Path(hl.__file__).parent


def test_import_needs_numpy_alone():
    code = "import sys; before = set(sys.modules); import hotloop; print(*{m.partition('.')[0] for m in set(sys.modules) - before})"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(FOLDER.parent)}).stdout.split())
    assert loaded - set(sys.stdlib_module_names) <= {"hotloop", "numpy", "_distutils_hack"}


def test_import_finds_the_compiler_for_gpus(tmp_path):
    code = "import os, hotloop; print(os.environ.get('HOTLOOP_NVRTC'))"

    def found(**environment):
        environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{FOLDER.parent}", **environment}
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout.strip()

    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    assert found() == str(tmp_path)  # where pip would have put it
    assert found(HOTLOOP_NVRTC="elsewhere") == "elsewhere"


def test_stubs_have_what_the_registries_give():
    assert (FOLDER / "py.typed").exists()
    for path, names in (("nn/__init__", hl.nn.__all__), ("losses", hl.losses.__all__), ("optim", hl.optim.__all__), ("ode", hl.ode.__all__), ("metrics", hl.metrics.__all__)):
        tree = ast.parse((FOLDER / f"{path}.pyi").read_text())
        assert {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))} == set(names)
    ast.parse((FOLDER / "_core.pyi").read_text())


def test_every_public_function_is_documented():
    for name in vars(hl):
        value = getattr(hl, name)
        if not name.startswith("_") and callable(value) and not isinstance(value, type):
            assert value.__doc__ and len(value.__doc__) > 3, name


def test_a_child_process_after_fork_computes():
    code = """
import os, numpy as np, hotloop as hl
f = hl.jit(lambda x: hl.tanh(x @ x).sum(), threads=2)
x = np.ones((300, 300), np.float32)
wanted = float(f(x))
child = os.fork()
if child == 0:
    os._exit(0 if float(f(x)) == wanted else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120, env={"PYTHONPATH": str(FOLDER.parent), "HOTLOOP_CACHE": "0"})
