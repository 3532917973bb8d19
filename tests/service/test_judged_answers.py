"""A judge that rewards the arms of a share of a served chat's answers."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.records import Case, Reply
from tasks.chat import judged_answers
from tasks.chat.judged_answers import JudgedAnswers
from tasks.inputs.environment import Environment
from tasks.serving.systems import Systems
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.service.test_chat import HI, JUDGE, TEMPERATURE, Talk
from tests.service.test_gateway import offer
from tests.service.test_paid_answers import PRICES, totals
from tests.support.configurations import chat_api, loaded
from tests.support.http_server import Answer, Request, chat_answer

Talks = Callable[..., Talk]


@pytest.fixture
def talks(store: RuntimeStore) -> Iterator[Talks]:
    prices = {**PRICES, "judge": {"input": 1_000, "output": 1_000}}
    with ExitStack() as stack:
        yield lambda **options: Talk(store, stack, prices=prices, judge_share=1.0, **options)


def judging(verdict: Any) -> Callable[[Request], Answer]:
    """Answer prompts by the model's name, and the judge's questions by a verdict of the answer."""

    def answer(request: Request) -> Answer:
        body: Any = request.body
        if body["model"] != "judge":
            return chat_answer("short" if body["temperature"] == 0.25 else "long")
        return chat_answer(verdict("short" in json.dumps(body["messages"])))

    return answer


def test_the_judges_rating_is_the_reward_of_the_arm_and_its_call_is_in_the_ledger(talks, store):
    systems = offer(store, {"temperature": 0.25}, {"temperature": 0.75}, mode="verdict")
    talk = talks()
    talk.answer = judging(lambda is_short: json.dumps({"rating": 10 if is_short else 1}))
    answers = [talk.post({**HI, "user": f"user{n}"}).json() for n in range(12)]
    talk.end()
    arms = {arm.arm_id: arm for arm in systems.arms("system")}
    assert sum(arm.n for arm in arms.values()) == 12
    assert min(arm.n for arm in arms.values()) > 0
    texts = [answer["choices"][0]["message"]["content"] for answer in answers]
    with store.database.reading() as connection:
        stored = dict(connection.execute("SELECT decision_id, reward FROM rewards").fetchall())
    rewards = [stored[answer["decision_id"]] for answer in answers]
    assert rewards == [1.0 if text == "short" else 0.0 for text in texts]
    assert totals(store.root).n_attempts == 24


def test_a_judge_that_says_nothing_readable_rewards_nothing(talks, store, caplog):
    systems = offer(store, {"temperature": 0.25})
    talk = talks()
    talk.answer = judging(lambda _: "Nice.")
    answer = talk.post(HI).json()
    talk.end()
    assert systems.arms("system")[0].n == 0
    assert f"the answer {answer['id']} is not judged" in caplog.text


def test_an_answer_of_no_arm_is_not_judged(talks):
    talk = talks()
    talk.answer = judging(lambda _: json.dumps({"rating": 10}))
    assert talk.post(HI).status_code == 200
    talk.end()
    assert len(talk.provider.requests) == 1


def test_a_days_limit_covers_the_judge_too(talks, store, caplog):
    systems = offer(store, {"temperature": 0.25})
    talk = talks(max_usd=1.5)  # a judgement may cost more
    talk.answer = judging(lambda _: json.dumps({"rating": 10}))
    assert talk.post({**HI, "max_tokens": 3}).status_code == 200
    talk.end()
    assert systems.arms("system")[0].n == 0
    assert "`--max-usd` must cover the answer" in caplog.text


class CountingJudge:
    """A judge that counts, and gives every answer the same value."""

    name = "quality"

    def __init__(self) -> None:
        self.n = 0

    async def judge(self, *_: Any) -> dict[str, float]:
        self.n += 1
        return {"quality": 0.5}

    async def aclose(self) -> None:
        """Nothing is open."""


def judge_some(store: RuntimeStore, n: int, share: float) -> int:
    async def run() -> int:
        judge, paid = CountingJudge(), None
        judged = JudgedAnswers(
            judge, share=share, paid=paid, systems=Systems(store), system="system"  # type: ignore[arg-type]
        )  # fmt: skip
        for k in range(n):
            judged.consider(
                f"answer{k}", "d", Reply(value="x", latency_ms=1.0), Case(case_id="1", input=1), {}
            )
        await judged.aclose()
        return judge.n

    return asyncio.run(run())


def test_a_share_is_judged_whatever_the_answer_and_a_backlog_is_bounded(store, monkeypatch):
    monkeypatch.setattr(judged_answers, "performed", lambda *_: None)
    assert 30 < judge_some(store, 200, 0.25) < 70
    assert judge_some(store, 1_000, 1.0) == judged_answers.MOST_WAITING


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"a": JUDGE, "b": JUDGE},
        {"a": {**JUDGE, "expected_field": "text"}},
        {"a": {**JUDGE, "mode": "pairwise"}},
    ],
    ids=["none", "two", "with a reference", "of pairs"],
)
def test_one_judge_that_needs_no_reference_is_wanted(store, metrics):
    made = loaded(
        api=chat_api("http://127.0.0.1:1"),
        search_space__parameters=TEMPERATURE,
        evaluation__metrics={"exact": {"type": "exact_match"}, **metrics},
    )
    with pytest.raises(ConfigurationError, match="`--judge-share` needs one metric"):
        JudgedAnswers.of(
            made, Environment.unchecked(made.configuration), share=0.1, paid=None, systems=Systems(store)  # type: ignore[arg-type]
        )  # fmt: skip
