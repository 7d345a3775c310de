import os

import pytest

os.environ.setdefault("HOTLOOP_CACHE", "0")
os.environ.setdefault("HOTLOOP_TEAM", "always")  # small programs too run on as many threads as a test asks for

import numpy as np  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(7)
