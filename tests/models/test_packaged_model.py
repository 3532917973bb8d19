"""SmolLM2-135M-Instruct answers for real, where the extra `local` and its package are installed."""

import asyncio
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from convergence.templates import plan_files
from tasks.models.files import PACKAGED, LocalModel, find_model, install_commands
from tasks.models.requests import ChatAnswer, ChatRequest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(install_commands()), reason=f"needs {' and '.join(install_commands())}"
    ),
]


def chat(text: str, **more: object) -> ChatRequest:
    settings = {
        "max_tokens": 12,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": None,
        "stop": (),
        "seed": None,
    }
    shots = [("What a lovely day!", "positive"), ("This is awful.", "negative")]
    turns = [{"role": "system", "content": "Is the text positive or negative?"}]
    for said, answer in shots:
        turns += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
    turns.append({"role": "user", "content": text})
    return ChatRequest(messages=tuple(turns), **{**settings, **more})  # type: ignore[arg-type]  # by name


@pytest.fixture(scope="module")
def model():
    made = LocalModel(find_model(PACKAGED, Path(), key="model"))
    yield made
    made.close()


def answers(model: LocalModel, requests: list[ChatRequest]) -> list[ChatAnswer]:
    return [future.result(600) for future in [model.ask(one, 300.0) for one in requests]]


def test_an_answer_at_temperature_0_does_not_depend_on_its_batch(model: LocalModel):
    asked = [chat(f"I {verb} the {thing}, and so did my {who}.")
             for verb in ("loved", "hated", "forgot") for thing in ("film", "soup", "train", "book")
             for who in ("sister", "boss")]  # fmt: skip
    together = {r: a.text for r, a in zip(map(str, asked), answers(model, asked), strict=True)}
    random.Random(1).shuffle(asked)
    apart = [answers(model, asked[i : i + 5]) for i in range(0, len(asked), 5)]
    flat = [answer.text for batch in apart for answer in batch]
    assert flat == [together[str(request)] for request in asked]


def test_tokens_are_counted_and_answers_end_where_they_should(model: LocalModel):
    long, short = answers(
        model, [chat("Fine.", max_tokens=3), chat("Fine.", max_tokens=4000, stop=("i",))]
    )
    assert 0 < long.completion_tokens <= 3
    assert long.prompt_tokens > 20
    assert "i" not in short.text
    (too_long,) = answers(model, [chat("word " * 9000)])
    assert too_long.finish_reason == "context"


def test_the_template_runs_on_this_machine(tmp_path: Path):
    for name, text in plan_files("local-llm").items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    cases = json.loads((tmp_path / "city_cases.json").read_text("utf-8"))
    (tmp_path / "city_cases.json").write_text(json.dumps(cases[:30]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "convergence", "optimize", "city.yaml", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["cost_usd"] == 0.0
    assert result["n_missing"] == 0


def test_it_chats_and_each_answer_is_logged(tmp_path: Path):
    """Answers come in pieces, and the second one knows of the first turn."""
    from tasks.chat.conversation import Conversation
    from tasks.chat.logged_chat import LoggedChat
    from tasks.inputs.environment import Environment
    from tasks.store.feedback.feedback_store import FeedbackStore
    from tasks.store.runtime.runtime_store import RuntimeStore
    from tests.support.configurations import loaded

    tokens = {"type": "int", "min": 4, "max": 48, "default": 12}
    made = loaded(
        api={
            "name": "talk",
            "kind": "local",
            "request": {"options": {"model": PACKAGED}, "timeout_seconds": 300},
        },
        search_space__parameters={"max_tokens": tokens},
    )

    async def go(chat: LoggedChat) -> list[list[str]]:
        found = []
        async with chat:
            conversation = Conversation(chat, user_id="ada")
            for question in ("What is the capital of France?", "And what do people eat there?"):
                async with conversation.ask(question) as stream:
                    found.append([piece async for piece in stream])
                await conversation.rate(3)
        return found

    with FeedbackStore(tmp_path) as feedback, RuntimeStore(tmp_path) as runtime:
        chat = LoggedChat(made, Environment.unchecked(made.configuration), feedback, runtime)
        pieces = asyncio.run(go(chat))
        (first, _), (second, mark) = feedback.history("ada")
    assert all(len(one) > 1 for one in pieces)
    said = [one.response for one in (first, second)]
    assert ["".join(one) for one in pieces] == said
    assert "France" in first.response
    assert [one.role for one in second.messages] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
    assert second.sampling == {"temperature": 0.0, "max_tokens": 12}
    assert second.cost_usd == 0.0
    for one in (first, second):
        logprobs = one.logprobs
        assert logprobs is not None
        assert one.n_output_tokens in {len(logprobs), len(logprobs) + 1}
        assert all(-30 < logprob <= 0 for logprob in logprobs)
    # At temperature 0 each token is the likeliest one.
    assert sum(map(math.exp, first.logprobs or ())) > 0.3 * len(first.logprobs or ())
    assert mark is not None
