"""Thinking within and beside answers is kept apart, in every provider's form, whole and streamed."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from convergence_core.errors import CandidateFault
from convergence_core.records import Reply
from convergence_core.thought_tags import AnswerPieces, split_thinking
from tasks.calls.outcomes import reply_of, reply_outcome, scored_outcome
from tasks.calls.scorer import CellScore
from tests.support.chat_servers import (
    CASE,
    anthropic_answer,
    anthropic_api,
    ask,
    chunk,
    events,
    fault_of,
    target_of,
)
from tests.support.configurations import chat_api
from tests.support.http_server import Answer, LoopbackServer, chat_answer


def answer_of(api: Callable[..., Any], answer: Answer) -> Reply:
    """Ask a server that gives this answer, for a stream where it is one."""
    is_stream = "text/event-stream" in str(answer.headers)
    with LoopbackServer(lambda _: answer) as server:
        return ask(api(server.url, request={"stream": is_stream}))


TEXTS = [
    ("<think>\nMaybe no?\n</think>\n\nyes", "Maybe no?", "yes"),
    (" <think>a</think> <think>b</think>yes\n", "a\n\nb", "yes\n"),
    ("<think>\n\n</think>\n\nyes", None, "yes"),
    ("<think>it never ends", "it never ends", ""),
    ("They ask.\n</think>\n\nyes", "They ask.", "yes"),
    ('It is "yes"</think>yes', 'It is "yes"', "yes"),
    ("</think>yes", None, "yes"),
    ("[THINK]hm[/THINK]yes", "hm", "yes"),
    ("<thought>hm</thought>yes", "hm", "yes"),
    ("<thinking>hm</thinking>\n<answer>yes</answer>", "hm", "<answer>yes</answer>"),
    ("◁think▷hm◁/think▷\nyes", "hm", "yes"),
    ("hm◁/think▷yes", "hm", "yes"),
    (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes",
        "hm",
        "yes",
    ),
    ("yes", None, "yes"),
    (" <b>yes</b>", None, " <b>yes</b>"),
    ("Write `</think>` at the end.", None, "Write `</think>` at the end."),
    ("It opens with <think> and ends with </think>.", None, None),
    ("a < b </thinker>", None, None),
]


@pytest.mark.parametrize(("text", "thinking", "answer"), TEXTS)
def test_thinking_is_what_stands_between_tags_before_the_answer(text, thinking, answer):
    assert split_thinking(text) == (thinking, text if answer is None else answer)


@pytest.mark.parametrize(("text", "thinking", "answer"), TEXTS)
def test_pieces_of_a_stream_add_up_to_the_answer(text, thinking, answer):
    closing = "◁/think▷" if "◁" in text else "</think>"
    is_late = not re.search(r"[<\[◁]", text.partition(closing)[0]) and thinking is not None
    for size in (1, 2, 5, 1000):
        heard: list[str] = []
        pieces = AnswerPieces(heard.append, holds=is_late)
        for i in range(0, len(text), size):
            pieces.add(text[i : i + size])
        assert "".join(heard) == (text if answer is None else answer), size


IN_ITS_OWN_PLACE = [
    (chat_api, chat_answer("yes", reasoning_content="hm")),
    (chat_api, chat_answer("yes", reasoning="hm", reasoning_details=[{"text": "hm"}])),
    (chat_api, chat_answer("yes", reasoning_details=[{"type": "reasoning.summary", "summary": "hm"}])),
    (chat_api, chat_answer("<think>hm</think>yes")),
    (chat_api, chat_answer(None, reasoning_content="<think>hm</think>yes")),
    (chat_api, events([chunk(reasoning="h"), chunk(reasoning="m"), chunk(content="yes"), chunk("stop")])),
    (chat_api, events([chunk(content=one) for one in ("<th", "ink>hm</th", "ink>\n", "yes")] + [chunk("stop")])),
    (anthropic_api, anthropic_answer(content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}])),
    (anthropic_api, anthropic_answer("<thinking>hm</thinking>yes")),
]  # fmt: skip


@pytest.mark.parametrize(("api", "answer"), IN_ITS_OWN_PLACE)
def test_every_form_of_thinking_is_kept_beside_the_answer(api, answer):
    reply = answer_of(api, answer)
    assert (reply.value, reply.thinking) == ("yes", "hm")


@pytest.mark.parametrize(
    "answer",
    [
        chat_answer(None, reasoning_content="yes"),
        chat_answer("", reasoning="yes"),
        events([chunk(reasoning_content="y"), chunk(reasoning_content="es"), chunk("stop")]),
    ],
)
def test_an_answer_that_only_the_field_of_thinking_holds_is_read(answer):
    reply = answer_of(chat_api, answer)
    assert (reply.value, reply.thinking) == ("yes", None)


@pytest.mark.parametrize(
    "answer",
    [
        chat_answer("", reasoning_content="hm", finish_reason="length"),
        chat_answer("<think>hm", finish_reason="length"),
        chat_answer("<think>hm"),
    ],
)
def test_thinking_that_was_cut_is_no_answer(answer):
    fault = fault_of(chat_api, answer)
    assert isinstance(fault, CandidateFault)
    assert fault.error_type == "empty_reply"
    assert str(fault).startswith("the model's answer is thinking alone (finish reason: ")


CALL = {"name": "look", "arguments": '{"at": 1}'}


@pytest.mark.parametrize(
    "answer",
    [
        chat_answer(None, function_call=CALL, finish_reason="function_call"),
        chat_answer("", tool_calls=[{"function": {"name": "look", "arguments": {"at": 1}}}]),
        events(
            [
                chunk(function_call={"name": "look", "arguments": '{"at"'}),
                chunk(function_call={"arguments": ": 1}"}),
                chunk("function_call"),
            ]
        ),
        events([chunk("stop", tool_calls=[{"function": {"name": "look", "arguments": {"at": 1}}}])]),
    ],
)  # fmt: skip
def test_calls_of_older_and_looser_forms_are_read(answer):
    assert answer_of(chat_api, answer).value == {
        "tool_calls": [{"name": "look", "arguments": {"at": 1}}]
    }


def test_a_model_whose_prompt_opens_the_thinking_is_held_back_until_its_end():
    """By its name at once, and by its first answer where the name says nothing."""
    late = events(
        [chunk(content=one) for one in ("They ", "ask.</thi", "nk>\n\ny", "es")] + [chunk("stop")]
    )

    def heard(model: str, times: int) -> list[str]:
        with LoopbackServer(lambda _: late) as server:
            options = {"options": {"model": model}}
            target = target_of(chat_api(server.url, request=options))

            async def go() -> list[str]:
                found = []
                try:
                    for _ in range(times):
                        pieces: list[str] = []
                        reply = await target.call({"temperature": 0.5}, CASE, pieces.append)
                        assert (reply.value, reply.thinking) == ("yes", "They ask.")
                        found.append("".join(pieces))
                finally:
                    await target.aclose()
                return found

            return asyncio.run(go())

    assert heard("deepseek-r1:8b", 1) == ["yes"]
    assert heard("m", 2)[1] == "yes"


def test_thinking_is_in_the_journal_and_a_hash_where_no_text_is_kept():
    reply = answer_of(chat_api, chat_answer("<think>hm</think>yes"))
    assert reply_of(reply_outcome(reply)) == reply
    kept = reply_of(scored_outcome(reply, CellScore(reward=1.0)))
    assert kept is not None
    assert kept.thinking is not None
    assert kept.thinking.startswith("sha256 ")
    assert "hm" not in kept.thinking
