"""Which implementations there are, where each one's Python or program lies, and how to get one that is missing."""

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
CACHE = ROOT / ".cache" / "bench"

# Of the project itself: what is run, and what it needs. by_hand and hotloop_cpp are C++ programs that speak the worker's language.
OURS = {
    "hotloop": "the Python package",
    "hotloop_per_op": 'the Python package with dispatch="per_op"',
    "hotloop_cpp": "the C++ interface",
    "by_hand": "AVX-512 by hand, for this one program",
}
# Rivals: what Python must be able to import, and where their requirements are if another's file has them.
RIVALS = {
    "torch": ("torch", "torch"),
    "jax": ("jax optax", "jax"),
    "jax_0_4_31": ("jax optax diffrax", "jax_0_4_31"),
    "diffrax": ("diffrax optax", "jax"),
    "keras": ("keras tensorflow", "keras"),
    "onnxruntime": ("onnxruntime onnx", "onnxruntime"),
    "heyoka": ("heyoka", "heyoka"),
    "scipy": ("scipy", "scipy"),
    "scipy_odeint": ("scipy", "scipy"),
    "numpy": ("numpy", "numpy"),
}
PINNED = {"jax_0_4_31"}  # any Python with the module would do for the others
PROGRAMS = {"hotloop_cpp": "hotloop_worker", "by_hand": "by_hand_worker", "rtneural": "rtneural_eigen_worker", "rtneural_stl": "rtneural_stl_worker",
            "rtneural_xsimd": "rtneural_xsimd_512_worker", "rtneural_xsimd_256": "rtneural_xsimd_256_worker"}  # fmt: skip
RTNEURAL = [name for name in PROGRAMS if name.startswith("rtneural")]
NEEDS = {"by_hand": "it needs AVX-512", "rtneural": "./dev bench --install rtneural", "rtneural_stl": "./dev bench --install rtneural",
         "rtneural_xsimd": "clang and ./dev bench --install rtneural,xsimd",
         "rtneural_xsimd_256": "clang and ./dev bench --install rtneural,xsimd"}  # fmt: skip
# Compiled code kept on disk by an earlier run would make the times until the first results those of reading files.
NO_CACHES = {"HOTLOOP_CACHE": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


@dataclasses.dataclass(frozen=True)
class Implementation:
    name: str
    command: tuple[str, ...]
    environment: dict
    log: pathlib.Path


@functools.cache
def _imports(python, modules, path=""):
    environment = {**os.environ, **({"PYTHONPATH": path} if path else {})}
    code = "import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))"
    try:
        return subprocess.run([python, "-c", code, *modules.split()], env=environment, capture_output=True).returncode == 0
    except OSError:
        return False


def environment_of(name):
    """The folder of a rival's own virtual environment."""
    return CACHE / RIVALS[name][1]


def find(name, build, pythons):
    """The implementation, or a sentence that says what is missing and the command that gets it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    log = CACHE / f"{name}.log"
    if name in PROGRAMS:
        program = build / "bench" / PROGRAMS[name]
        if not program.exists():
            return f"{name}: {program.name} was not built" + (f": {NEEDS[name]}" if name in NEEDS else "")
        return Implementation(name, (str(program),), NO_CACHES, log)
    worker = str(BENCH / "harness" / "worker.py")
    if name in OURS:
        package = build / "python"
        # The package holds a compiled module for one Python: the one that it was configured with.
        for python in (*pythons, str(ROOT / ".venv/bin/python"), sys.executable):
            if _imports(python, "hotloop numpy", str(package)) and _loads(python, str(package)):
                return Implementation(name, (python, worker, name), {"PYTHONPATH": str(package), **NO_CACHES}, log)
        return f"{name}: the Python package was not built in {package}"
    if name.endswith(".py"):  # a file of one's own
        python = next((p for p in (*pythons, sys.executable) if _imports(p, "numpy")), sys.executable)
        stem = pathlib.Path(name).stem
        return Implementation(stem, (python, worker, str(pathlib.Path(name).resolve())), {}, CACHE / f"{stem}.log")
    if name not in RIVALS and not (BENCH / "impls" / f"{name}.py").exists():
        known = ", ".join([*OURS, *RIVALS, *PROGRAMS])
        raise SystemExit(f"[bench] an implementation must exist. Received: {name}. Try: one of {known}")
    modules, requirements = RIVALS.get(name, ("numpy", "numpy"))
    own = [str(environment_of(name) / "bin/python")] if name in RIVALS else []
    for python in own if name in PINNED else (*own, *pythons, sys.executable):
        if _imports(python, modules):
            return Implementation(name, (python, worker, name), NO_CACHES, log)
    return f"{name} is not installed: ./dev bench --install {requirements}"


@functools.cache
def _loads(python, path):
    return subprocess.run([python, "-c", "import hotloop; hotloop.jit"], env={**os.environ, "PYTHONPATH": path}, capture_output=True).returncode == 0


def install(names):
    """A virtual environment of its own for each rival, from bench/requirements/<name>.txt."""
    for name in names:
        file = BENCH / "requirements" / f"{name}.txt"
        if file.with_suffix(".git").exists():
            _clone(name, file.with_suffix(".git"))
            continue
        if not file.exists():
            known = ", ".join(sorted(p.stem for p in file.parent.iterdir()))
            raise SystemExit(f"[bench] what is installed must have a requirements file. Received: {name}. Try: one of {known}")
        lines = file.read_text().splitlines()
        print(f"[bench] installing {name} into {CACHE / name}:", flush=True)
        for line in lines:
            print(f"[bench]   {line.removeprefix('# ')}", flush=True)
        index = [w for line in lines if line.startswith("--") for w in line.split()]
        subprocess.run([sys.executable, "-m", "venv", str(CACHE / name)], check=True)
        pip = [str(CACHE / name / "bin/pip"), "install", "-q", "--disable-pip-version-check", *index]
        if subprocess.run([*pip, "-r", str(file)]).returncode:
            raise SystemExit(f"[bench] pip could not install {name}; its messages are above")


def _clone(name, file):
    """Sources of a rival in C++, at one commit; the next build finds them."""
    said, url, commit = file.read_text().splitlines()
    print(f"[bench] fetching {url} at {commit[:10]} into {CACHE / name}: {said.removeprefix('# ')}", flush=True)
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    for words in (["init", "-q"], ["fetch", "-q", "--depth", "1", url, commit], ["checkout", "-q", commit]):
        if subprocess.run(["git", "-C", str(folder), *words]).returncode:
            raise SystemExit(f"[bench] git {words[0]} failed in {folder}")
