"""The calls of ``docs/python.md`` run as printed, against a loopback endpoint and a model of one's own."""

import ast
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convergence.plugins.learning.providers import as_llm
from convergence.plugins.learning.rlp import RLPConfig, RLPMixin
from convergence.plugins.learning.sao import SAOConfig, SAOMixin
from tests.docs.test_documents import ROOT, blocks
from tests.support.http_server import Answer, LoopbackServer, Request

PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")
OPTIMIZING, _, RLP, SAO = blocks(PAGE, "python")


def quality_of(request: Request) -> Answer:
    """Answer with the quality of the requested settings."""
    settings = request.body
    quality = max(0.0, 1 - abs(settings["temperature"] - 0.7) - 0.1 * (settings["model"] == "b"))
    return Answer({"quality": quality})


@pytest.fixture
def endpoint() -> Iterator[str]:
    with LoopbackServer(quality_of) as server:
        yield f"{server.url}/v1/chat"


def answer(prompt: str) -> str:
    """Answer as a small model would: notes, chances, questions in persona, answers, letters."""
    if "as a probability" in prompt:
        return "0.8" if "helps" in prompt else "0.3"
    if "The persona:" in prompt:
        return f"User prompt: How do I return parcel {len(prompt)}, bought in week {hash(prompt) % 97}?"
    if prompt.endswith("Letter:"):
        first, second = (part.count("step") for part in prompt.split("[[BEGIN ANSWER B"))
        return "A" if first > second else "B"
    if "notes" in prompt.lower() and "parcel" not in prompt:
        return "It helps to be warm."
    steps = " step" * (Plain.n % 5)
    return f"Go to shop {Plain.n * 3}, show receipt {Plain.n * 5},{steps} and wait for the counter number {Plain.n}."


class Plain:
    """A plain function of one text."""

    n = 0

    def complete(self, prompt: str) -> str:
        Plain.n += 1
        return answer(prompt)


class Awaited:
    """An awaitable one of messages, with what it needs of the options, in OpenAI's shape."""

    async def complete(self, messages: Any, *, temperature: float = 1.0, **_: Any) -> Any:
        Plain.n += 1
        text = answer("\n".join(message["content"] for message in messages))
        return {"choices": [{"message": {"content": text}}]}


def run_block(block: str, **names: Any) -> dict[str, Any]:
    """Run a block, with ``await`` at its top where it has one; return its names."""
    code = compile(block, "python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found: Any = eval(code, names)  # noqa: S307 - a block of our own document
    if found is not None:
        asyncio.run(found)
    return names


@pytest.mark.prefect
@pytest.mark.slow
def test_an_endpoint_is_optimized_and_served_as_printed(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.chdir(tmp_path)
    run_block(OPTIMIZING.replace("https://host/v1/chat", endpoint))
    found, served = capsys.readouterr().out.splitlines()
    assert "'model': 'a'" in found
    assert served.endswith(" ok")
    from convergence import runtime_arms_sync

    best = runtime_arms_sync("my_endpoint")[0]
    assert abs(best["params"]["temperature"] - 0.7) < 0.2


@pytest.mark.parametrize("provider", [Plain(), Awaited()], ids=["plain", "awaited"])
def test_thoughts_are_written_rewarded_and_learned_as_printed(provider: Any, capsys):
    for seed in range(3):
        block = RLP.replace("temperature=0.7)", f"temperature=0.7, seed={seed})", 1)
        names = run_block(block, provider=provider)
        assert names["new_state"]["task"] == "..."
        learned = names["new_state"]["rlp"]
        assert learned["episodes"] == 1
        assert learned["reward"] == float(names["reward"])
        assert (names["thought"] is None) == (learned["reward"] == 0.0)
    assert capsys.readouterr().out


def test_a_reward_is_the_same_with_and_without_await():
    async def go() -> tuple[Any, Any]:
        rlp = RLPMixin(Awaited(), RLPConfig(use_logprobs=False))
        told: dict[str, Any] = {"thought": "warmth helps", "prediction": 0.7, "outcome": 0.85}
        return await rlp.information_gain_reward(**told), rlp.information_gain_reward(**told)

    awaited, pending = asyncio.run(go())
    assert float(pending) == awaited.nats > 0.5
    assert pending.value == awaited


def test_an_update_names_a_thought_that_was_written():
    rlp = RLPMixin(Plain())
    with pytest.raises(ValueError, match="since the last update, but got 'never written'"):
        rlp.update_rlp_policy("never written", 0.5, {})
    with pytest.raises(ValueError, match="must hold a text or a mapping"):
        asyncio.run(rlp.generate_internal_reasoning())


@pytest.mark.parametrize("provider", [Plain(), Awaited()], ids=["plain", "awaited"])
@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_preferences_are_written_as_printed(
    provider: Any, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="these rows are not fit to train on yet"):
        names = run_block(SAO.replace('"jsonl"', f'"{form}"'), provider=provider)
    assert len(names["rows"]) == len(capsys.readouterr().out.splitlines()) > 0
    text = (tmp_path / "training_data.jsonl").read_text("utf-8")
    rows = json.loads(text) if form == "json" else [*map(json.loads, text.splitlines())]
    assert {*rows[0]} == {"prompt", "chosen", "rejected"}


def test_samples_have_a_shorter_name():
    sao = SAOMixin(Plain(), SAOConfig(batch_size=1))
    assert len(asyncio.run(sao.generate_synthetic_dataset(n=3)).pairs) <= 3


class Sloppy:
    """Returns no text."""

    def complete(self, prompt: str) -> int:
        return len(prompt)


def test_what_is_no_model_is_refused_by_its_form():
    with pytest.raises(TypeError, match=r"must have a method `complete\(messages\)`"):
        as_llm(object())  # type: ignore[arg-type]  # on purpose
    llm = as_llm(Sloppy())
    with pytest.raises(TypeError, match=r"must return a text, .*but got int"):
        asyncio.run(llm.complete([{"role": "user", "content": "a"}], model=""))
