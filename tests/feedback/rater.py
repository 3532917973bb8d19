"""Child process: log answers and rate them, saying each acknowledged one aloud.

Arguments: store, name of the child, number of answers.
"""

import sys

from convergence_core.feedback.records import Rating
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.feedback.answers import answer


def main(path: str, name: str, n_answers: int) -> None:
    """Rate each answer twice by one event, and edit every third one."""
    with FeedbackStore(path) as store:
        for number in range(n_answers):
            one = f"{name}-{number}"
            store.log(answer(one))
            print("logged", one, flush=True)  # noqa: T201
            mark = Rating(interaction_id=one, user_id="ann", rating=number % 5 + 1, event_id=one)
            store.rate(mark)
            assert store.rate(mark).status == "duplicate"
            print("rated", one, mark.rating, flush=True)  # noqa: T201
            if number % 3 == 0:
                store.rate(Rating(interaction_id=one, user_id="ann", thumbs="up"))
                print("edited", one, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
