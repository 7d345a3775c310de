import os
import signal

import pytest

os.environ.setdefault("HOTLOOP_CACHE", "0")
os.environ.setdefault("HOTLOOP_TEAM", "always")  # small programs too run on as many threads as a test asks for

import numpy as np  # noqa: E402

# A shell's background jobs ignore Ctrl-C, and what they start inherits that; the tests of Ctrl-C want Python's own answer.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    return np.random.default_rng(7)
