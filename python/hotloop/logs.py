"""What was compiled, when and why.

    hl.logs.enable()     # prints each compilation: function, argument types, reason, time
    hl.logs.compilations # the last of them, newest last

Goes through the logger "hotloop" of Python's logging, at level INFO.
"""

import collections
import logging
import typing

from hotloop import _core

logger = logging.getLogger("hotloop")


class Compilation(typing.NamedTuple):
    """One compilation: of which function, for which argument types, why it was needed, and how long it took."""

    function: str
    arguments: str
    reason: str
    time_ms: float


compilations: collections.deque = collections.deque(maxlen=1000)


def _compiled(function, arguments, reason, time_ms):
    compilations.append(Compilation(function, arguments, reason, time_ms))
    logger.info("compiled %s(%s) in %.1f ms: %s", function, arguments, time_ms, reason)


_core.set_log_hook(_compiled)


def enable(level=logging.INFO):
    """Shows the messages on standard error."""
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("[hotloop] %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(level)


def disable():
    """Stops showing them."""
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
