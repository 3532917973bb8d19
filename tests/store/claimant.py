"""Child process: claim a call in Postgres and wait to be killed.

Arguments: URL, `claimed` (wait when the claim is durable) or `locked` (wait before its commit).
"""

import signal
import sys

from tasks.store.journal import sql_journal
from tasks.store.journal.postgres_journal import PostgresJournal
from tests.store.asker import intent


def say_and_wait(moment: str) -> None:
    """Tell the parent that the moment has come."""
    print(moment, flush=True)  # noqa: T201 - the acknowledgement
    signal.pause()


def main(url: str, moment: str) -> None:
    """Claim call 0."""
    if moment == "locked":
        setattr(sql_journal, "_note_activity", lambda *_: say_and_wait("locked"))  # noqa: B010 - a double
    journal = PostgresJournal(url)
    journal.claim([intent(0)], "child")
    say_and_wait("claimed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
