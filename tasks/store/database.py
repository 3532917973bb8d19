"""Interfaces and schemas of the databases of journal and runtime state.

Statements are SQLite's, with ``?`` for values; ``postgres.translated`` turns them into PostgreSQL's.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

from convergence_core.errors import StoreError

_CREATED = re.compile(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX) IF NOT EXISTS (\w+)")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Tables of a database, and how it gets them."""

    noun: str
    """Its name in messages."""
    version: int
    """Databases of a later one are refused."""
    upgrade: Callable[[int], str]
    """Version found (0: none) → script that creates the tables or adds what they lack."""
    loss: str = ""
    """What is lost with a file of it."""
    kept: str = ""
    """What is not lost where a server cannot be reached."""
    key: str = "storage.path"
    """Setting that says where it is."""
    versions: str = ""
    """Table that holds the version in PostgreSQL."""

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Names of tables and indexes, which have a prefix in PostgreSQL; the first holds the version."""
        return self.versions, *_CREATED.findall(self.upgrade(0))


class Cursor(Protocol):
    """The rows that a statement found."""

    def fetchone(self) -> Any:
        """Return the next row, ``None`` after the last."""

    def fetchall(self) -> Any:
        """Return all rows that are left."""


class Connection(Protocol):
    """An open transaction, or one for reading."""

    def execute(self, statements: str, bindings: Any = (), /) -> Cursor:
        """Run SQL; values stand where it has ``?``."""

    def changes(self) -> int:
        """Return the rows that the last statement changed."""


class Database(Protocol):
    """A durable database. Thread-safe; blocks."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Give a connection for SELECTs."""

    def transaction(self, *, alone: bool = False) -> AbstractContextManager[Connection]:
        """Give one transaction, durable when the block has been left.

        Args:
            alone: begun when all others have ended, and none beside it.
        """

    def scrub(self) -> None:
        """Write the file or the tables anew, so that nothing of deleted rows is left in them."""

    def close(self) -> None:
        """Close; safe to call twice."""


def check_usable(name: str, *, opened_by: int, is_closed: bool) -> None:
    """Refuse a database that is closed, or that a fork of its process would use.

    Raises:
        StoreError: it is one of these.
    """
    if os.getpid() != opened_by:
        raise StoreError(
            f"{name} was opened by process {opened_by} and this is a fork of it. Open it again here."
        )
    if is_closed:
        raise StoreError(f"{name} is closed. Open it again.")


class Closing(ABC):
    """``with`` support for what has a ``close``."""

    @abstractmethod
    def close(self) -> None:
        """Close; subclasses say what."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
