"""Hotloop with every op compiled and launched on its own: the same program, dispatched as other frameworks do it."""

from impls import hotloop
from impls.hotloop import *  # noqa: F403
from impls.hotloop import versions as _versions


def setup(threads):
    hotloop.setup(threads)
    hotloop.OPTIONS["dispatch"] = "per_op"


def versions():
    return _versions() + ", dispatch per_op"
