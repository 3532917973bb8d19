"""Child process: make every call of a list once, by the journal's leave.

Arguments: store, ledger file, number of calls, calls per batch, then optionally the URL of a Postgres
journal (empty: the store's own) and, where several of these shall begin together, a FIFO that the
parent opens when all have said `ready`. Each call "is paid" by a line appended to the ledger file;
each settled call is acknowledged on standard output.
"""

import os
import sys
import time

from convergence_core.ports import CallIntent, Settlement
from tasks.store.journal.sqlite_journal import open_journal

RUN = "R"


def intent(number: int) -> CallIntent:
    """Return the intent of one call."""
    return CallIntent(
        call_key=f"key-{number}",
        run_id=RUN,
        generation=0,
        eval_id=f"eval-{number}",
        purpose="evaluation",
        provider="test",
        model=None,
        request_sha256="",
        lease_s=3600.0,
        max_usd=1.0,
    )


def main(
    path: str,
    ledger: str,
    n_calls: int,
    n_batch: int,
    url: str = "",
    *starting_gun: str,
) -> None:
    """Ask until all calls are answered, by this process or by another."""
    journal = open_journal(path, url or None)
    for fifo in starting_gun:
        print("ready", flush=True)  # noqa: T201 - for the parent
        os.close(os.open(fifo, os.O_RDONLY))
    owner = str(os.getpid())
    missing = list(range(n_calls))
    paid = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    while missing:
        batch = missing[:n_batch]
        claims = dict(zip(batch, journal.claim([intent(n) for n in batch], owner), strict=True))
        settlements = []
        for number, claim in claims.items():
            if claim.state == "granted":
                os.write(paid, f"{number}\n".encode())
                settlements.append(
                    Settlement(
                        call_key=f"key-{number}",
                        attempt=claim.attempt,
                        state="done",
                        outcome=number,
                        started_us=1,
                        ended_us=2,
                        cost_usd=1.0,
                    )
                )
        journal.settle(settlements)
        done = [n for n, claim in claims.items() if claim.state != "busy"]
        print(*done, flush=True)  # noqa: T201 - the acknowledgement
        busy = [n for n, claim in claims.items() if claim.state == "busy"]
        if not done:
            time.sleep(0.001)  # another process is at it
        missing = missing[n_batch:] + busy
    journal.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
