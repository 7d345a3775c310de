import os

import pytest

os.environ.setdefault("HOTLOOP_CACHE", "0")

import numpy as np  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(7)
