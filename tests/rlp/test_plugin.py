"""RLP in a program: no run, no Prefect, any chat model."""

import asyncio
import math
import subprocess
import sys
from collections.abc import Awaitable
from typing import Any

import numpy as np
import pytest

from convergence.plugins.learning.probabilities import probability_of
from convergence.plugins.learning.rlp import (
    INSTRUCTIONS,
    STATED,
    TOLD,
    InformationGain,
    RLPConfig,
    RLPMixin,
)
from convergence_core.errors import CandidateFault
from convergence_core.ports import Completion
from tasks.calls.model_calls import UnreadableAnswerError

SUNNY = {"thought": "sunny days follow", "prediction": "rain", "outcome": "sun"}


class Provider:
    """A caller's chat model, whose notes tell what follows, or mislead."""

    provider = "own"
    base_url = "own"

    def __init__(self, p_with: float = 0.8, p_without: float = 0.3) -> None:
        self.prompts: list[str] = []
        self.p_with, self.p_without = p_with, p_without

    async def complete(self, messages: Any, *, model: str, **options: Any) -> Completion:
        text = str(messages[-1]["content"])
        self.prompts.append(text)
        if "fail" in text:
            raise CandidateFault("no", error_type="refusal")
        if messages[0]["content"] == INSTRUCTIONS:
            return Completion(
                text=f"sunny days follow ({len(self.prompts)})", latency_ms=1.0, raw={}
            )
        return self.predicted(self.p_with if "sunny" in text else self.p_without, options)

    def predicted(self, p: float, options: Any) -> Completion:
        return Completion(text=f"{p}", latency_ms=1.0, raw={})

    async def aclose(self) -> None:
        return None


class Telling(Provider):
    """Sends log-probabilities of its first token, in OpenAI's form."""

    def predicted(self, p: float, options: Any) -> Completion:
        if not options.get("logprobs"):
            return super().predicted(p, options)
        chances = (("1", p), (" 2", 0.5 * (1 - p)), ("3", 0.5 * (1 - p)))
        top = [{"token": token, "logprob": float(np.log(x))} for token, x in chances]
        raw: Any = {"choices": [{"logprobs": {"content": [{"top_logprobs": top}]}}]}
        return Completion(text="1", latency_ms=1.0, raw=raw)


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def run(work: Awaitable[Any]) -> Any:
    return asyncio.run(_awaited(work))


def test_both_predictions_are_the_models_own_and_the_note_says_so():
    provider = Provider()
    rlp = RLPMixin(provider, RLPConfig(use_logprobs=False))
    gain: InformationGain = run(rlp.information_gain_reward(**SUNNY))
    assert gain.note == STATED
    assert len(provider.prompts) == 2
    assert all("[[BEGIN NOTES" in text for text in provider.prompts)
    assert [gain.p_with, gain.p_without] == pytest.approx([0.8, 0.3])
    assert float(gain) == pytest.approx(math.log(0.8 / 0.3), abs=0.03)
    assert float(run(rlp.information_gain_reward("nothing", "rain", "sun"))) == 0.0
    assert float(rlp.information_gain_reward(None, "rain", "sun")) == 0.0


@pytest.mark.parametrize(
    ("said", "p"),
    [
        ("It is about 80 % likely.", 0.8),
        ("0.8", 0.8),
        ("80", 0.8),
        ("1", 1.0),
        ("**0,8**", 0.8),
        ("8 out of 10", 0.8),
        ("The probability that score=0.85 comes is 0.7.", 0.7),
        ("30 % before; with the notes 60 %.\n\n.6", 0.6),
    ],
)
def test_a_probability_is_read_from_prose(said: str, p: float):
    assert probability_of(said) == pytest.approx(p)


class Chatty:
    """Answers in prose, whatever the question."""

    def __init__(self, *said: str) -> None:
        self.said = said

    def complete(self, prompt: str) -> str:
        return self.said["sunny" not in prompt]


def test_prose_is_a_forecast_or_worth_nothing_with_the_reason():
    gain = RLPMixin(Chatty("about 80 % for sun", "0.4")).information_gain_reward(**SUNNY)
    assert gain.nats == pytest.approx(math.log(0.8 / 0.4), abs=0.03)
    for said in ("Very likely, I think.", "-0.8", "120 %", "5 in 3", "20 % or 60 %", "{}", ""):
        gain = RLPMixin(Chatty(said, said)).information_gain_reward(**SUNNY)
        assert gain.nats == 0.0
        assert "cannot be read, so the gain is 0: the answer states" in gain.note


def test_log_probabilities_are_read_where_the_provider_sends_them():
    for use in ("auto", True):
        provider = Telling()
        rlp = RLPMixin(provider, RLPConfig(use_logprobs=use))
        gain = run(rlp.information_gain_reward(**SUNNY))
        assert gain.note == TOLD
        assert (gain.p_with, gain.p_without) == (pytest.approx(0.8), pytest.approx(0.3))
        assert len(provider.prompts) == 2
    silent = RLPMixin(Provider(), RLPConfig(use_logprobs=True))
    with pytest.raises(UnreadableAnswerError):
        run(silent.information_gain_reward(**SUNNY))
    assert run(RLPMixin(Provider()).information_gain_reward(**SUNNY)).note == STATED


def test_what_is_no_prediction_is_refused():
    with pytest.raises(ValueError, match="must be texts or numbers"):
        RLPMixin(Provider()).information_gain_reward("a thought", [0.5, 0.5], 1)  # type: ignore[arg-type]


async def learn(rlp: RLPMixin, n: int) -> list[str | None]:
    """Think, reward and learn n times; return the thoughts."""
    thoughts: list[str | None] = []
    state: dict[str, Any] = {"task": "weather"}
    for _ in range(n):
        thought = await rlp.generate_internal_reasoning(state)
        reward = await rlp.information_gain_reward(thought, "rain", "sun")
        state = rlp.update_rlp_policy(thought, reward, state)
        thoughts.append(thought)
    return thoughts


@pytest.mark.parametrize(("p_with", "helps"), [(0.9, True), (0.05, False)])
def test_the_policy_learns_whether_thoughts_pay(p_with: float, helps: bool):
    rlp = RLPMixin(Provider(p_with=p_with), RLPConfig(seed=1, use_logprobs=False))
    before = rlp.policy.sha256
    thoughts = run(learn(rlp, 60))
    assert rlp.policy.sha256 != before
    assert None in thoughts
    assert any(isinstance(thought, str) for thought in thoughts)
    assert (rlp.probabilities["notes"] > 0.6) == helps
    assert (rlp.probabilities["notes"] < 0.4) != helps
    assert sum(rlp.probabilities.values()) == pytest.approx(1.0)


def test_a_thought_is_learned_from_once():
    rlp = RLPMixin(Provider())
    thought = run(rlp.generate_internal_reasoning("x"))
    assert rlp.update_rlp_policy(thought, 0.5, {"task": 1})["rlp"]["reward"] == 0.5  # type: ignore[index,call-overload]
    with pytest.raises(ValueError, match="since the last update"):
        rlp.update_rlp_policy(thought, 0.5, {})


def test_faults_of_the_model_are_the_callers_to_see():
    rlp = RLPMixin(Provider(), RLPConfig(seed=1))

    async def think() -> None:
        for _ in range(8):
            await rlp.generate_internal_reasoning("fail")

    with pytest.raises(CandidateFault):
        run(think())


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
