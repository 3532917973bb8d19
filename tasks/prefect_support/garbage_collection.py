"""Garbage collection of cycles, made rarer.

By its default it does after every 700 objects more that hold others, among the youngest of them. Our
processes and Prefect's server make such objects by the ten thousand, for each statement that
SQLAlchemy compiles and each model that is validated, and nearly none ends in a cycle: rarer looks
take CPU off the server. The price is a few megabytes that are given back later.
"""

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

RARELY: Final = 50_000
"""Objects more before Python looks."""


def collect_rarely() -> None:
    """Make it rarer in a process of our own; a threshold that is higher already stays."""
    young, *older = gc.get_threshold()
    if 0 < young < RARELY:  # 0: nobody looks at all, which is somebody's choice
        gc.set_threshold(RARELY, *older)


@contextlib.contextmanager
def collecting_rarely() -> Iterator[None]:
    """Make it rarer for a block, in a process that may be somebody else's."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
