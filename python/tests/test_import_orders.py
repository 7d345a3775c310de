"""Hotloop beside other libraries that bring compilers of their own, in every order of import (in the optional group). Each compiles
something, torch through torch.compile."""

import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys

import hotloop as hl
import pytest

USES = {
    "hotloop": "import hotloop as hl, numpy as np\nassert float(hl.jit(lambda x: hl.tanh(x).sum())(np.zeros(3))) == 0",
    "torch": "import torch\nassert float(torch.compile(lambda x: torch.tanh(x).sum())(torch.zeros(3))) == 0",
    "jax": "import jax\nassert float(jax.jit(lambda x: jax.numpy.tanh(x).sum())(jax.numpy.zeros(3))) == 0",
    "tensorflow": "import tensorflow as tf\nassert float(tf.function(lambda x: tf.reduce_sum(tf.tanh(x)))(tf.zeros(3))) == 0",
}
PRESENT = [name for name in USES if importlib.util.find_spec(name)]
ORDERS = list(itertools.permutations(PRESENT)) if len(PRESENT) > 1 else []
# PyTorch's builds for the CPU have no Triton. Those for CUDA do, and its LLVM sees TensorFlow's if that was imported before: torch.compile
# then aborts, without hotloop too. Python takes a module of None for one that is not installed.
WITHOUT_TRITON = "import sys\nsys.modules['triton'] = None"


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_order(order):
    hidden = [WITHOUT_TRITON] if {"torch", "tensorflow"} <= set(order) and order.index("tensorflow") < order.index("torch") else []
    # Each is imported and used, then each is used again.
    code = "\n".join(hidden + [USES[name] for name in order] * 2)
    folder = str(pathlib.Path(hl.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": folder + os.pathsep + os.environ.get("PYTHONPATH", ""), "JAX_PLATFORMS": "cpu", "HOTLOOP_CACHE": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=600, env=environment)
