"""Notes and forecasts of the mock: readable, and as good as the trials they rest on."""

import json

import pytest

from tasks.mock.forecasts import notes, weights
from tasks.mock.protocol import Message, ModelRequest
from tasks.mock.responder import respond

ROLE = "A system is being tuned. Write notes that help somebody else to predict their rewards."
TRIALS = """What was seen so far:
- reward 0.900 over 4 cells: model=large, temperature=0.2
- reward 0.800 over 4 cells: model=large, temperature=0.9
- reward 0.300 over 4 cells: model=small, temperature=0.2
- reward 0.200 over 4 cells: model=small, temperature=0.8"""
MEANS = "- model: large: 0.850 (n=2); small: 0.250 (n=2)"
ENDS = "- temperature may be 0 to 1; tried 0.2 (reward 0.900) to 0.8 (reward 0.200)"
UNTRIED = "- model: not tried: huge, tiny\n- temperature: not tried: nothing"


def asked(params: str, *, said: str = "(none)") -> str:
    mark = "0123456789abcdef"
    return (
        f"{TRIALS}\n\n[[BEGIN NOTES {mark}]]\n{said}\n[[END NOTES {mark}]]\n\nTrials to predict:\n"
        f"trial_1: Next trial: {params}.\nIts reward as one digit, in steps of 0.1: 0 for below 0.1, "
        "1 for 0.1 to 0.2, and so on to 9 for 0.9 and above. Digit:\n\nInstead of one digit, give each "
        "trial ten weights, whole numbers from 0 to 100"
    )


def mean_of(user: str) -> float:
    found = weights(user)
    assert found is not None
    listed = found["trial_1"]
    assert len(listed) == 10
    assert all(1 <= w <= 100 for w in listed)
    return sum(w * (k + 0.5) / 10 for k, w in enumerate(listed)) / sum(listed)


def test_a_forecast_follows_the_trials_that_are_like_it():
    large, small = (mean_of(asked(f"model={m}, temperature=0.5")) for m in ("large", "small"))
    assert large > 0.55
    assert small < 0.45


def test_notes_move_a_forecast_of_what_they_name():
    told = "With model=small, expect a reward of 0.950."
    before, after = (mean_of(asked("model=small, temperature=0.5", said=s)) for s in ("x", told))
    assert after > before + 0.1


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (TRIALS, "With model=large, temperature=0.2, expect a reward of 0.725."),
        (MEANS, "With model=small, expect a reward of 0.400."),
        (ENDS, "With temperature=0.2, expect a reward of 0.725."),
        (UNTRIED, "With model=huge, expect a reward of 0.500."),
    ],
)
def test_notes_name_settings_and_what_to_expect(shown: str, names: str):
    found = notes(ROLE, shown)
    assert found is not None
    assert names in found.splitlines()


def test_the_responder_answers_with_weights_of_what_the_notes_speak_for():
    user = (
        "[[BEGIN NOTES 0123456789abcdef]]\nsunny days follow\n[[END NOTES 0123456789abcdef]]\n\n"
        "What will happen?\n1: sunny\n2: rain\n\nReply with one JSON object and nothing else: "
        '{"weights": [...]}, 2 whole numbers from 0 to 100 that say how likely each is.'
    )
    request = ModelRequest(model="m", messages=(Message(role="user", text=user),))
    assert json.loads(respond(request).text) == {"weights": [35, 20]}
