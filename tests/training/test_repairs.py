"""Repairs: which prompts are asked again of a new adapter, and who says what is right."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from convergence_core.feedback.records import Rating
from tasks.models.requests import ChatRequest
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.training.adapter_checks import RightAnswers, ask_repairs
from tasks.training.judged_model import JudgedModel
from tasks.training.marks import RoleMarks, collect
from tests.feedback.answers import answer
from tests.support.configurations import loaded

OLD, NEW = Path("assistant-0001"), Path("assistant-0002")
CITIES = {"Peru?": "Lima", "Kenya?": "Nairobi", "Norway?": "Oslo", "Chile?": "Santiago"}


class Answering:
    """Model whose likeliest answers are known."""

    def __init__(self, old: Callable[[str], str], new: Callable[[str], str]) -> None:
        self.asked: list[tuple[Path | None, str, ChatRequest]] = []
        self._by_adapter = {OLD: old, NEW: new}

    def answers(
        self, prompts: Mapping[str, ChatRequest], adapter: Path, *, n: int, seed: int
    ) -> list[str]:
        assert (n, seed) == (1, 0)
        self.asked += [(adapter, key, prompt) for key, prompt in prompts.items()]
        return [self._by_adapter[adapter](one.messages[-1]["content"]) for one in prompts.values()]


@pytest.fixture
def feedback(tmp_path: Path):
    with FeedbackStore(tmp_path / "store") as store:
        yield store


def say(
    store: FeedbackStore, name: str, prompt: str, version: str | None = None, **mark: Any
) -> None:
    store.log(answer(name, prompt=prompt, adapter_version=version, sampling={"max_tokens": 9}))
    store.rate(Rating(interaction_id=name, user_id="ann", **mark))


def marks_of(store: FeedbackStore) -> RoleMarks:
    return collect(store, role="assistant", models=["stand-in"], held_out=0.5)


def ask(
    model: Answering, marks: RoleMarks, right: RightAnswers, old: Path | None = OLD
) -> tuple[int, int, str]:
    version = None if old is None else old.name
    judged = cast("JudgedModel", model)
    return ask_repairs(judged, marks, right, new=NEW, old=old, old_version=version)


def cases(metrics: dict[str, Any], field: str | None = None) -> RightAnswers:
    """Return what says that an answer is right: a case for each city but the last."""
    inline = [
        {"input": prompt if field is None else {field: prompt}, "expected": city}
        for prompt, city in list(CITIES.items())[:3]
    ]
    return RightAnswers(
        loaded(evaluation__test_cases={"inline": inline}, evaluation__metrics=metrics), None
    )


def rate(prompt: str, answer: str) -> float:
    return 0.75 if CITIES[prompt] in answer else 0.7


def test_what_was_marked_low_and_is_answered_rightly_is_asked_again(feedback: FeedbackStore):
    for k, prompt in enumerate(CITIES):
        say(feedback, f"a{k}", prompt, rating=2 - k % 2)
        say(feedback, f"b{k}", prompt, thumbs="down")  # asked once all the same
    say(feedback, "own", "Own?", OLD.name, rating=1)  # nothing has answered it since
    say(feedback, "liked", "Liked?", rating=3)
    model = Answering(
        old=lambda prompt: "Lima" if prompt == "Chile?" else f"It is {CITIES[prompt]}.",
        new=lambda prompt: "Oslo" if prompt == "Kenya?" else CITIES[prompt],
    )
    n_repairs, n_kept, rest_on = ask(model, marks_of(feedback), RightAnswers(loaded(), rate))
    assert (n_repairs, n_kept) == (3, 2)
    assert rest_on == (
        "4 of 4 prompts marked low under an earlier version have a test case or a rater with the "
        "right answer"
    )
    by_old = [(key, prompt) for adapter, key, prompt in model.asked if adapter == OLD]
    assert [key for key, _ in by_old] == sorted(key for key, _ in by_old)
    assert {(one.temperature, one.top_p, one.max_tokens) for _, one in by_old} == {(0.0, 1.0, 9)}
    again = {one.messages[-1]["content"] for adapter, _, one in model.asked if adapter == NEW}
    assert again == {"Peru?", "Kenya?", "Norway?"}  # what was wrong before cannot be undone


@pytest.mark.parametrize("field", [None, "question"])
@pytest.mark.parametrize(
    ("metrics", "n_judged", "n"),
    [
        ({"contains": {}}, 3, 3),
        ({"exact_match": {}}, 3, 2),
        ({"contains": {}, "exact_match": {}, "latency_ms": {}, "similarity": {}}, 3, 2),
        ({"similarity": {}, "latency_ms": {}}, 0, 0),  # they do not say what is right
        ({"right": {"type": "exact_match", "field": "city"}}, 0, 0),
    ],
)
def test_a_test_case_says_what_is_right(
    feedback: FeedbackStore, metrics: dict[str, Any], n_judged: int, n: int, field: str | None
):
    for k, prompt in enumerate(CITIES):
        say(feedback, f"a{k}", prompt, rating=1)
    model = Answering(
        old=lambda prompt: "It is Lima." if prompt == "Peru?" else CITIES[prompt],
        new=CITIES.__getitem__,
    )
    n_repairs, n_kept, rest_on = ask(model, marks_of(feedback), cases(metrics, field))
    assert (n_repairs, n_kept) == (n, n)
    assert rest_on.startswith(f"{n_judged} of 4 prompts marked low")


def test_a_test_case_goes_before_the_rater():
    right = RightAnswers(
        loaded(
            evaluation__test_cases={"inline": [{"input": "Peru?", "expected": "Lima"}]},
            evaluation__metrics={"exact_match": {}},
        ),
        lambda _prompt, answer: 1.0 if answer == "liked" else 0.0,
    )
    of_case, of_rater = right.of("Peru?"), right.of("Kenya?")
    assert of_case is not None
    assert of_rater is not None
    assert (of_case("Lima"), of_case("liked")) == (True, False)
    assert (of_rater("Nairobi"), of_rater("liked")) == (False, True)
    assert RightAnswers(loaded(), None).of("Kenya?") is None


def test_an_answer_that_cannot_be_compared_is_not_right():
    numbers = RightAnswers(
        loaded(
            evaluation__test_cases={"inline": [{"input": "2 + 2?", "expected": 4}]},
            evaluation__metrics={"numeric": {}},
        ),
        None,
    ).of("2 + 2?")
    assert numbers is not None
    assert (numbers("4"), numbers("5"), numbers("no number"), numbers("")) == (
        True, False, False, False,
    )  # fmt: skip
