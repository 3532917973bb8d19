"""Thoughts of the mock: readable, and as good as the trials they rest on."""

import json

from tasks.mock.forecasts import thought

PROMPT = """Trials so far:
trial|evaluations|mean score|standard error|your forecast|model|temperature
t1|4|0.9|0.01|-|large|0.2
t2|4|0.8|0.01|-|large|0.9
t3|4|0.3|0.01|0.1/0.2/0.3|small|0.2
t4|4|0.2|-|-|small|0.8

Next trials, chosen without you:
trial|evaluations|model|temperature
n1|4|large|0.5
n2|4|small|0.5

Task: Reply with one JSON object and nothing else: {"notes": ..., "forecasts": {trial: [q10, q50, q90]} for each, "settings": up to 5 settings}."""


def test_a_forecast_follows_the_trials_that_are_like_it():
    found = json.loads(thought(PROMPT) or "")
    assert set(found["forecasts"]) == {"n1", "n2"}
    (low, large, high), small = found["forecasts"]["n1"], found["forecasts"]["n2"][1]
    assert low < large < high
    assert large > 0.55
    assert small < 0.45
    assert "model=large, temperature=0.2 scored 0.900" in found["notes"]
    (setting,) = found["settings"]
    assert setting["values"] == {"model": "large", "temperature": 0.9}


def test_who_asks_for_no_thought_gets_none():
    assert thought("What is 2 plus 3?") is None
