"""Child process: train, activate, take back and make stale, saying each acknowledged change aloud.

Arguments: store, name of the child, folder of a saved adapter, number of rounds.
"""

import sys
from pathlib import Path

from convergence_core.feedback.records import Rating
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.adapters import activated, rated, registered


def main(path: str, name: str, source: Path, n_rounds: int) -> None:
    """Register two adapters a round, activate one; then take it back, or edit what it learned from."""
    with FeedbackStore(path) as store:
        adapters = AdapterStore(store)
        for number in range(n_rounds):
            one = f"{name}-{number}"
            mark = rated(store, one)
            say("rated", one)
            version = activated(adapters, source, mark)
            say("active", version)
            waiting = registered(adapters, source, mark)
            say("candidate", waiting)
            if number % 2:
                adapters.rollback("assistant", "test")
                say("rolled_back", version)
            else:
                store.rate(Rating(interaction_id=one, user_id="ann", rating=1))
                say("edited", one)
                say("stale", version)
                say("stale", waiting)


def say(what: str, which: str) -> None:
    """Write a line that the parent reads before it kills."""
    print(what, which, flush=True)  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
