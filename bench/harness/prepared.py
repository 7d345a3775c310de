"""What an implementation gives back for a task."""

import dataclasses
from collections.abc import Callable


class Unsupported(Exception):
    """The implementation knows the kind of task but not these sizes."""


@dataclasses.dataclass
class Prepared:
    call: Callable[[], object]  # finished when it returns
    results: dict  # arrays by name, to be compared with the reference before any time is taken
    units: int = 1  # units of the task in one call
    variant: str = ""  # of the reference, see Task
    note: str = ""  # how it was done, where there was a choice
