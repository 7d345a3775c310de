import os
import pathlib
import signal
import sys
import threading
import time

import pytest

os.environ.setdefault("HOTLOOP_CACHE", "0")
os.environ.setdefault("HOTLOOP_TEAM", "always")  # small programs too run on as many threads as a test asks for

import numpy as np  # noqa: E402

# What tests share: small_fits.py here, and crc32c.py with the tests of the command line.
HERE = pathlib.Path(__file__).parent
sys.path += [str(HERE), str(HERE.parents[1] / "tests")]

# A shell's background jobs ignore Ctrl-C, and what they start inherits that; the tests of Ctrl-C want Python's own answer.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(seconds, sent):
    time.sleep(seconds)
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def interrupt():
    """interrupt(seconds, sent): Ctrl-C comes so much later; the moment goes into the list `sent`."""
    return _interrupt


@pytest.fixture
def interrupt_after():
    """The same while the caller goes on."""
    return lambda seconds, sent: threading.Thread(target=_interrupt, args=(seconds, sent)).start()


@pytest.fixture
def rng():
    return np.random.default_rng(7)
