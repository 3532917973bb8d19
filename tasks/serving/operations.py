"""Requests as operations: prepared, written in a transaction, answered.

Many may share one commit (``Committer``). Each is prepared outside of the transaction, where
reading and computing holds nothing up; what it writes is decided in memory, so that it can be written
again if the transaction has to be.
"""

import contextlib
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from tasks.store.database import Connection
from tasks.store.runtime.runtime_store import RuntimeStore

Result = TypeVar("Result")


class Operation(ABC, Generic[Result]):
    """One request."""

    system: str = ""
    """Whose rows it changes: those of one transaction are written in this order, so that no two
    transactions wait for each other in a circle."""
    writes: bool = True
    """Whether there is anything to write, once it is prepared."""
    is_outdated: bool = False
    """Whether the state had moved on when it was to be written: nothing of it is, and it has to be
    prepared again."""

    @abstractmethod
    def prepare(self) -> None:
        """Read and compute what has to be written; no transaction is open."""

    @abstractmethod
    def write(self, connection: Connection) -> None:
        """Write; may be called again after a transaction that was rolled back."""

    @abstractmethod
    def result(self) -> Result:
        """Return the answer; what was written is durable by then."""


class _OutdatedError(Exception):
    """Ends a transaction in which nothing was written."""


def performed(store: RuntimeStore, operation: Operation[Result]) -> Result:
    """Perform one operation in a transaction of its own."""
    while True:
        operation.prepare()
        if not operation.writes:
            return operation.result()
        # Rolled back, since a commit of nothing would wait for the disk.
        with contextlib.suppress(_OutdatedError), store.database.transaction() as connection:
            operation.write(connection)
            if operation.is_outdated:
                raise _OutdatedError
        if not operation.is_outdated:
            return operation.result()
