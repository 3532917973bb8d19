"""What is asked and what is read: all that the posterior knows, nothing of what came, and replies as models write them."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convergence_core.errors import EvaluatorFault
from convergence_core.records import ParamValue, Reply, sha256_hex
from convergence_core.rlp.commitments import Thought
from convergence_core.rlp.quantiles import Quantiles
from convergence_core.rlp.reply import UnreadableReplyError, read_reply, written_notes
from convergence_core.space import Choice, Float, Integer, Space
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import Model
from tasks.inputs.loader import load_mapping
from tasks.rlp.factory import prompts_of
from tasks.rlp.prompts import RlpPrompts, ThoughtRequest, TrialRow, asked_names
from tasks.rlp.thought_writer import ThoughtWriter
from tests.rlp.plain_asker import PlainAsker, plain_chat
from tests.support.configurations import mapping
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer, error_answer

SPACE = Space(
    parameters={
        "rate": Float(min=1e-5, max=1.0, log=True, default=1e-3),
        "size": Integer(min=8, max=64),
        "kind": Choice(kind="categorical", choices=("a", "b")),
        "words": Choice(
            kind="text", choices=("Be brief and exact.", "Think."), names=("brief.md", "think.md")
        ),
    }
)
BEST: dict[str, ParamValue] = {"rate": 0.01, "size": 16, "kind": "b", "words": "Think."}


def read(text: str, **more: Any) -> Thought:
    settings: dict[str, Any] = {
        "names": {"n1": "n1", "n2": "n2"}, "around": BEST, "known": (), "most_settings": 5,
        "rng": np.random.default_rng(0), **more,
    }  # fmt: skip
    thought = Thought(thought_id="t", generation=1, kind="notes", text=text)
    return read_reply(thought, SPACE, **settings)


# -- replies


def test_numbers_beyond_floats_and_halves_of_characters_are_read():
    huge = 10**400
    value: dict[str, Any] = {
        "forecasts": {"n1": [0.1, 0.2, huge]},
        "notes": "a\ud800b",
        "settings": [{"values": {"kind": "\ud800"}}, {"values": {"size": huge}}],
    }
    reply = read(json.dumps(value))
    assert reply.forecasts["n1"] == Quantiles(0.1, 0.2, 1.0)
    assert reply.notes == "a?b"
    assert reply.settings == ()
    assert reply.dropped[1] == "setting 1: `kind` must be one of a, b, but got ?"
    assert reply.dropped[2].startswith("setting 2: `size` must lie in [8, 64], but got 1000")
    assert written_notes(json.dumps(value | {"notes": "\ud800"})) == "?"


@pytest.mark.parametrize(
    "form", ["{}", "Here it is:\n```json\n{}\n```", 'I think {{"x"}} is good.\n\n{}\nDone.']
)
def test_a_reply_is_read_alone_in_a_block_and_in_prose(form: str):
    value = {
        "notes": "High rates fail.",
        "forecasts": {"n1": [0.9, 0.7, 0.8], "n2": [0, 0.5, 1]},
        "settings": [{"values": {"rate": 0.1, "words": "brief"}, "score": [0.5, 0.6, 0.7]}],
    }
    reply = read(form.replace("{}", json.dumps(value)).replace("{{", "{").replace("}}", "}"))
    assert reply.notes == "High rates fail."
    assert reply.forecasts == {"n1": Quantiles(0.7, 0.8, 0.9), "n2": Quantiles(0.0, 0.5, 1.0)}
    (setting,) = reply.settings
    assert setting.params == {**BEST, "rate": 0.1, "words": "Be brief and exact."}
    assert setting.forecast == Quantiles(0.5, 0.6, 0.7)
    assert reply.dropped == ()
    assert written_notes(json.dumps(value)) == "High rates fail."
    assert written_notes("only prose") == "only prose"


def test_what_cannot_be_read_is_left_out_with_a_reason_and_the_rest_counts():
    known = SPACE.candidate({**BEST, "size": 32}).candidate_id
    settings = [
        {"values": {"size": 16.0, "rate": 0.02}},
        {"values": {"size": 16, "rate": 0.02}},
        {"values": {"size": 32}},
        {"values": {"size": 7}},
        {"values": {"kind": "c"}},
        {"values": {"speed": 1}},
        {"values": {"rate": "fast"}},
        "fast",
        {"values": {"size": 40}, "score": [1, 2]},
        {"values": {"size": 41}},
    ]
    text = json.dumps({"forecasts": {"n1": [0.1, "x", 0.3]}, "settings": settings})
    reply = read(text, known={known}, most_settings=2)
    assert [s.params["size"] for s in reply.settings] == [16, 40]
    assert [s.forecast for s in reply.settings] == [None, None]
    assert reply.dropped == (
        "n1: a forecast must be three numbers: the 10, 50 and 90 % quantile",
        "n2: no forecast",
        "setting 2: it is known already",
        "setting 3: it is known already",
        "setting 4: `size` must lie in [8, 64], but got 7",
        "setting 5: `kind` must be one of a, b, but got c",
        "setting 6: there is no parameter `speed`",
        "setting 7: `rate` must be a number, but got fast",
        "setting 8: it must have `values`, parameters with their values",
        "setting 10: there are more than 2",
    )


@pytest.mark.parametrize(
    "text",
    ["", "no", "{", '{"a": 1}', '{"notes": "x"}', '{"forecasts": []}', "[1]", '{"a":' * 200_000],
    ids=range(8),
)
def test_a_reply_without_a_forecast_and_a_setting_is_unreadable(text: str):
    with pytest.raises(UnreadableReplyError):
        read(text)


# -- prompts


ROWS = (
    TrialRow(
        candidate_id="a",
        params=BEST,
        n=5,
        mean=0.812345,
        se=0.0312,
        forecast=Quantiles(0.7, 0.8, 0.9),
    ),
    TrialRow(candidate_id="b", params={**BEST, "size": 8}, n=1, mean=0.4, se=None),
)
REQUEST = ThoughtRequest(
    generation=2, kind="notes", space=SPACE, around=BEST, trials=ROWS,
    reserved={"new": {**BEST, "size": 64}, "a": BEST}, n_cells={"new": 3}, notes="Rates matter.",
)  # fmt: skip


def test_a_thinker_is_told_what_the_posterior_knows():
    system, user = (
        str(m["content"]) for m in RlpPrompts("Bot. It sorts.", "- f1: weight 1").messages(REQUEST)
    )
    assert "10, 50 and 90 % quantile" in system
    assert "System: Bot. It sorts.\n" in user
    assert "Score:\n- f1: weight 1\n" in user
    assert "- rate: number from 1e-05 to 1, log scale; default 0.001\n" in user
    assert "- size: whole number from 8 to 64" in user
    assert "brief (Be brief and exact.)" in user
    assert "\nt1|5|0.8123|0.031|0.7/0.8/0.9|0.01|16|b|think\nt2|1|0.4|-|-|0.01|8|b|think\n" in user
    assert "\nn1|3|0.01|64|b|think\nt1|1|0.01|16|b|think\n" in user
    assert asked_names(REQUEST) == {"n1": "new", "t1": "a"}
    assert user.count("Rates matter.") == 1
    assert "[[BEGIN NOTES" in user


def test_without_notes_none_are_shown_and_none_are_asked_for():
    silent = str(RlpPrompts().messages(replace(REQUEST, kind="none"))[1]["content"])
    assert "Rates matter." not in silent
    assert "notes" not in silent.partition("Task: ")[2]
    first = str(
        RlpPrompts().messages(
            replace(REQUEST, kind="start", trials=(), reserved={}, n_settings=6)
        )[1]["content"]
    )
    assert "up to 6 settings" in first
    assert '"forecasts"' not in first


def test_of_many_trials_the_best_and_the_newest_are_told():
    rows = tuple(
        replace(ROWS[1], candidate_id=f"c{i}", mean=(i * 37 % 200) / 200) for i in range(200)
    )
    user = str(RlpPrompts().messages(replace(REQUEST, trials=rows, reserved={}))[1]["content"])
    told = {
        line.split("|")[0] for line in user.splitlines() if line.startswith("t") and "|1|" in line
    }
    assert len(told) == 60
    assert {f"t{i + 1}" for i in range(190, 200)} <= told
    assert {f"t{i + 1}" for i, row in enumerate(rows) if row.mean >= 0.95} <= told


def test_the_configuration_tells_description_and_rules(tmp_path):
    tree = mapping(
        api__description="It answers parcels.",
        evaluation__metrics={
            "numeric": {"tolerance": 0.5, "weight": 2},
            "latency_ms": {"weight": 0},
        },
    )
    prompts = prompts_of(load_mapping(tree, tmp_path).configuration)
    user = str(prompts.messages(REQUEST)[1]["content"])
    assert "It answers parcels." in user
    assert "- numeric: weight 2 {" in user
    assert '"tolerance":0.5' in user
    assert "latency_ms" not in user


# -- calls


def written(answer: Callable[[Request], Answer], asker: Any = None) -> tuple[Thought, Any]:
    asker = asker or PlainAsker()

    async def go(url: str) -> Thought:
        llm = plain_chat(url)
        try:
            writer = ThoughtWriter(model=Model(llm=llm, name="m", wording_version="t"))
            draft = Thought(thought_id="t", generation=2, kind="notes")
            return await writer.write(draft, REQUEST, asker, lambda: np.random.default_rng(0))
        finally:
            await llm.aclose()

    with LoopbackServer(answer) as server:
        return asyncio.run(go(server.url)), asker


GOOD = json.dumps(
    {"notes": "n", "forecasts": {"n1": [0.1, 0.2, 0.3], "t1": [0.7, 0.8, 0.9]}, "settings": []}
)


def test_a_reply_becomes_a_thought_with_its_hash():
    thought, asker = written(lambda _: chat_answer(GOOD))
    assert (thought.reason, thought.notes, thought.text) == (None, "n", GOOD)
    assert thought.sha256 == sha256_hex(GOOD)
    assert thought.prompt_sha256 == sha256_hex(thought.prompt)
    assert set(thought.forecasts) == {"new", "a"}
    assert thought.committed_us == 1
    assert len(asker.requests) == 1


def test_an_unreadable_reply_is_asked_once_more_and_then_counted():
    def hesitant(request: Request) -> Answer:
        again = "could not be read" in request.body["messages"][-1]["content"]
        return chat_answer(GOOD if again else "Let me think.")

    thought, asker = written(hesitant)
    assert thought.reason is None
    assert len(asker.requests) == 2
    thought, asker = written(lambda _: chat_answer("Let me think."))
    assert thought.reason == "unreadable: it holds no JSON object with `forecasts` or `settings`"
    assert len(asker.requests) == 2
    assert thought.forecasts == {}


@pytest.mark.parametrize(
    ("answer", "reason", "n"),
    [
        (lambda _: chat_answer(""), "unreadable: it is empty", 2),
        (lambda _: error_answer(500), "failed (http_500)", 1),
        (lambda _: error_answer(400), "refused (http_400)", 1),
    ],
)
def test_a_model_that_fails_leaves_a_reason_and_no_text_of_ours(answer: Any, reason: str, n: int):
    thought, asker = written(answer)
    assert thought.reason is not None
    assert thought.reason.startswith(reason)
    assert (thought.text, thought.forecasts, thought.settings) == ("", {}, ())
    assert len(asker.requests) == n


def test_a_spent_budget_is_a_reason():
    async def broke(call: PaidCall, label: str) -> tuple[Reply, int | None]:
        raise EvaluatorFault(
            "the share of thoughts in `budget.max_usd` is spent", error_type="budget"
        )

    thought, _ = written(lambda _: chat_answer(GOOD), broke)
    assert (
        thought.reason == "not asked (budget): the share of thoughts in `budget.max_usd` is spent"
    )
