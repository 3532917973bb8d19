"""A journal of a test's own that is gone with it, watched while it is written."""

import shutil
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp

from convergence_core.ports import CallIntent, Claim, Row, Settlement
from convergence_core.records import canonical_json
from tasks.store.journal.sqlite_journal import SqliteJournal


class ScratchJournal(SqliteJournal):
    """The product's journal in a folder that ends with it."""

    def __init__(
        self,
        *,
        on_batch: Callable[[str, int], None] = lambda kind, size: None,
        error: Exception | None = None,
    ) -> None:
        """Begin it; ``on_batch`` is given kind and size of each batch, ``error`` is raised by each."""
        folder = Path(mkdtemp(prefix="convergence-journal-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        super().__init__(folder / "store")
        self.on_batch = on_batch
        self.error = error
        self.stored: list[str] = []

    def claim(self, intents: Sequence[CallIntent], owner: str) -> list[Claim]:
        """Claim calls, and keep what was written."""
        self._begin("claim", len(intents))
        self.stored += map(repr, intents)
        return super().claim(intents, owner)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record how calls ended, and keep what was written."""
        self._begin("settle", len(settlements))
        self.stored += [canonical_json(settlement.outcome) for settlement in settlements]
        super().settle(settlements)

    @property
    def ledger(self) -> list[Row]:
        """Return every attempt of the run that sessions of tests have."""
        return self.attempts("run-1", generation=None, all_generations=True)

    def _begin(self, kind: str, size: int) -> None:
        if self.error is not None:
            raise self.error
        self.on_batch(kind, size)
