"""RLP in a program: no run, no Prefect, any chat model."""

import asyncio
import json
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convergence.plugins.learning.rlp import ASKED, STATED, STRATEGIES, TOLD, RLPConfig, RLPMixin
from convergence.plugins.learning.written_probabilities import probability_of, weights_of
from convergence_core.errors import CandidateFault
from convergence_core.ports import Completion
from tasks.rlp.model_calls import UnreadableAnswerError


class Provider:
    """A caller's chat model: thinks by strategy, and knows what follows a good thought."""

    provider = "own"
    base_url = "own"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def complete(self, messages: Any, *, model: str, **options: Any) -> Completion:
        text = str(messages[-1]["content"])
        self.asked.append(text)
        if "whole numbers" in text:
            said = (
                [80, 10, 10] if "sunny" in text.split("What will", maxsplit=1)[0] else [30, 40, 30]
            )
            answer = json.dumps({"weights": said})
        elif "fail" in text:
            raise CandidateFault("no", error_type="refusal")
        else:
            answer = f"sunny days follow ({len(self.asked)}): {messages[0]['content'][:40]}"
        return Completion(text=answer, latency_ms=1.0, raw={})

    async def aclose(self) -> None:
        return None


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_three_texts_are_answered_by_asking_for_both_predictions_and_it_says_so():
    provider = Provider()
    rlp = RLPMixin(provider, RLPConfig(use_logprobs=False))
    gain = run(rlp.information_gain_reward("sunny days follow", "rain", "sun"))
    assert gain.note == ASKED
    assert len(provider.asked) == 2
    assert all("[[BEGIN NOTES" in text for text in provider.asked)
    assert gain.p_with > gain.p_without
    assert float(gain) > 0.5
    assert float(run(rlp.information_gain_reward("nothing", "rain", "sun"))) == 0.0


@pytest.mark.parametrize(
    ("said", "p"),
    [
        ("It is about 80 % likely.", 0.8),
        ("0.8", 0.8),
        ("80", 0.8),
        ("1", 1.0),
        ("**0,8**", 0.8),
        ("Between 70 and 80 %.", 0.75),
        ("8 out of 10", 0.8),
        ("The probability that score=0.85 comes is 0.7.", 0.7),
        ("30 % before; with the notes 60 %.\n\n.6", 0.6),
    ],
)
def test_a_probability_is_read_from_prose(said: str, p: float):
    assert probability_of(said) == pytest.approx(p)


class Chatty:
    """Answers in prose, whatever it is asked for."""

    def __init__(self, *said: str) -> None:
        self.said = said

    def complete(self, prompt: str) -> str:
        return self.said["warm" not in prompt]


def test_prose_is_a_forecast_or_worth_nothing_with_the_reason():
    told = {"thought": "warm days", "prediction": "rain", "outcome": "sun"}
    gain = RLPMixin(Chatty("about 80 % for sun", "0.4")).information_gain_reward(**told)
    assert gain.note == STATED
    assert gain.p_with == pytest.approx(0.8, abs=0.01)
    assert gain.nats == pytest.approx(math.log(0.8 / 0.4), abs=0.03)
    for said in ("Very likely, I think.", "-0.8", "120 %", "5 in 3", "20 % or 60 %", "{}", ""):
        rlp = RLPMixin(Chatty(said, said))
        gain = rlp.information_gain_reward(**told)
        assert (gain.nats, rlp.gains) == (0.0, [0.0])
        assert "cannot be read, which is worth 0: the answer states" in gain.note


class Telling(Provider):
    """Tells log-probabilities of its first token, in OpenAI's form."""

    async def complete(self, messages: Any, *, model: str, **options: Any) -> Completion:
        if not options.get("logprobs"):
            return await super().complete(messages, model=model, **options)
        text = str(messages[-1]["content"])
        self.asked.append(text)
        p = (
            [0.7, 0.2, 0.1]
            if "sunny" in text.split("What will", maxsplit=1)[0]
            else [0.2, 0.4, 0.4]
        )
        top = [{"token": str(i), "logprob": float(np.log(x))} for i, x in enumerate(p, 1)]
        raw = {"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}]}
        return Completion(text="1", latency_ms=1.0, raw=raw)  # type: ignore[arg-type]  # JSON


def test_log_probabilities_are_read_where_the_provider_tells_them():
    for use in ("auto", True):
        provider = Telling()
        rlp = RLPMixin(provider, RLPConfig(use_logprobs=use))
        gain = run(rlp.information_gain_reward("sunny days follow", "rain", "sun"))
        assert gain.note == TOLD
        assert (gain.p_with, gain.p_without) == (pytest.approx(0.7), pytest.approx(0.2))
        assert len(provider.asked) == 2
    silent = RLPMixin(Provider(), RLPConfig(use_logprobs=True))
    with pytest.raises(UnreadableAnswerError):
        run(silent.information_gain_reward("sunny days follow", "rain", "sun"))
    assert run(RLPMixin(Provider()).information_gain_reward("a", "rain", "sun")).note == ASKED


def test_of_one_text_drawn_twice_both_draws_are_paid():
    class Repeating(Provider):
        async def complete(self, messages: Any, *, model: str, **options: Any) -> Completion:
            if "What will" in messages[-1]["content"]:
                return await super().complete(messages, model=model, **options)
            return Completion(text="sunny days", latency_ms=1.0, raw={})

    rlp = RLPMixin(Repeating())

    async def go() -> None:
        for name in ("winners", "novelty"):
            await rlp.generate_internal_reasoning("x", strategy=name)
        await rlp.information_gain_reward("sunny days", "rain", "sun")

    run(go())
    rlp.update_rlp_policy()
    (episode,) = rlp.episodes
    assert len(episode.rewards) == 2
    assert episode.rewards[0] == episode.rewards[1] > 0.5


def test_what_is_no_prediction_is_refused():
    with pytest.raises(ValueError, match="must be texts or numbers"):
        RLPMixin(Provider()).information_gain_reward("a thought", [0.5, 0.5], 1)  # type: ignore[arg-type]


def test_the_policy_learns_which_thoughts_pay():
    class Knowing(Provider):
        """Knows what comes if it looks for novelty."""

        async def complete(self, messages: Any, *, model: str, **options: Any) -> Completion:
            done = await super().complete(messages, model=model, **options)
            if (
                done.text.startswith("sunny")
                and STRATEGIES["novelty"].task not in messages[0]["content"]
            ):
                return replace(done, text=done.text.replace("sunny", "some"))
            return done

    rlp = RLPMixin(Knowing(), RLPConfig(seed=1, use_logprobs=False))
    before = rlp.policy.sha256

    async def go() -> None:
        for _ in range(30):
            for name in ("winners", "novelty"):
                thought = await rlp.generate_internal_reasoning("so far", strategy=name)
                await rlp.information_gain_reward(thought, "rain", "sun")
            rlp.update_rlp_policy()

    run(go())
    assert rlp.policy.sha256 != before
    assert rlp.probabilities["novelty"] > 0.5 > 2 * rlp.probabilities["winners"]
    assert sum(rlp.probabilities.values()) == pytest.approx(1.0)


def test_silence_is_an_action_that_earns_nothing():
    rlp = RLPMixin(Provider())

    async def go() -> None:
        assert await rlp.generate_internal_reasoning("x", strategy="none") is None
        assert await rlp.generate_internal_reasoning("x", strategy="winners") is not None

    run(go())
    update = rlp.update_rlp_policy()
    assert update.n_steps == 4
    assert rlp.episodes[0].rewards == (0.0,)


def test_a_drawn_thought_is_one_of_the_strategies_or_none():
    rlp = RLPMixin(Provider(), RLPConfig(seed=5))

    async def go() -> list[str | None]:
        return [await rlp.generate_internal_reasoning("x") for _ in range(12)]

    thoughts = run(go())
    assert None in thoughts
    assert any(isinstance(thought, str) for thought in thoughts)


def test_faults_of_the_model_are_the_callers_to_see():
    with pytest.raises(CandidateFault):
        run(RLPMixin(Provider()).generate_internal_reasoning("fail", strategy="winners"))
    with pytest.raises(ValueError, match="strategy"):
        run(RLPMixin(Provider()).generate_internal_reasoning("x", strategy="luck"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("use_logprobs", "always"),
        ("thought_length", 0),
        ("temperature", 3.0),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(field: str, value: Any):
    with pytest.raises(ValueError, match=field):
        RLPConfig(**{field: value})


def test_it_works_without_prefect():
    code = (
        "import sys, convergence.plugins.learning.rlp; "
        "sys.exit('prefect' in sys.modules or 'openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "{",
        '{"a": 1}',
        '{"a": [1, 2, 3]}',
        '{"a": [0, 0]}',
        '{"a": [1, -1]}',
        '{"a": ["x", 1]}',
    ],
)
def test_weights_that_cannot_be_read_are_no_forecast(text: str):
    with pytest.raises(UnreadableAnswerError):
        weights_of({"text": text}, "a", 2, spread=0.002)
