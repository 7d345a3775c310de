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
# A build of developers links Debian's shared LLVM, whose symbols TensorFlow, imported before, puts its own in the places of. The wheel
# has an LLVM inside that nobody else sees.
SHARED_LLVM = "libLLVM" in pathlib.Path("/proc/self/maps").read_text()


def before(order, first, second):
    """Whether both are there and `first` comes first."""
    return first in order and second in order and order.index(first) < order.index(second)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_order(order):
    if before(order, "tensorflow", "torch"):
        pytest.skip("torch.compile aborts after TensorFlow without hotloop, too: both have an LLVM that the other sees")
    if SHARED_LLVM and before(order, "tensorflow", "hotloop"):
        pytest.skip("needs the wheel, or hotloop imported before TensorFlow")
    # Each is imported and used, then each is used again.
    code = "\n".join([USES[name] for name in order] * 2)
    folder = str(pathlib.Path(hl.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": folder + os.pathsep + os.environ.get("PYTHONPATH", ""), "JAX_PLATFORMS": "cpu", "HOTLOOP_CACHE": "0"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=600, env=environment)
