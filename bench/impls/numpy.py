"""NumPy, where it is what a user would otherwise write."""

import numpy as np
from harness.prepared import Prepared


def setup(threads):
    pass


def versions():
    return f"numpy {np.__version__}"


def matvec(sizes, inputs):
    a, v = inputs["a"], inputs["v"]
    return Prepared(lambda: a @ v, {"y": a @ v})
