"""Conversations: every answer is logged before it ends; marks, comparisons, what is taken back."""

import asyncio
import json
import math
import random
import threading

import pytest

from convergence_core.budget.prices import Price, PriceTable
from convergence_core.errors import (
    CandidateFault,
    ConfigurationError,
    FeedbackRefusedError,
    InfrastructureFault,
)
from convergence_core.feedback.records import ChatMessage, Interaction
from convergence_core.feedback.roles import BUILT_IN
from convergence_core.records import sha256_hex
from tasks.chat.conversation import Conversation
from tasks.mock.mock_server import MockServer
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tests.support.chat_servers import USAGE_CHUNK, chunk, echo, events
from tests.support.configurations import chat_api
from tests.support.http_server import error_answer


async def said(conversation: Conversation, question: str) -> tuple[list[str], Interaction]:
    """Ask, and return the pieces of the answer and what was logged."""
    async with conversation.ask(question) as stream:
        pieces = [piece async for piece in stream]
    return pieces, stream.ending


def test_an_answer_comes_in_pieces_and_is_logged_with_all_that_is_known(chats):
    async def use(chat):
        conversation = Conversation(chat, user_id="ada")
        return conversation, await said(conversation, "Hi?")

    served = Price(input=1e6, output=2e6)
    prices = PriceTable(
        version="1",
        entries={"openai-compatible": {"m": Price(input=0, output=0), "served": served}},
    )
    conversation, (pieces, logged) = chats.run(use, prices=prices)
    assert pieces == ["2:", " Hi?"]
    assert chats.feedback.history("ada") == [(logged, None)]
    assert (logged.response, logged.model, logged.role) == ("2: Hi?", "served", "assistant")
    assert logged.messages == (
        ChatMessage(role="system", content=BUILT_IN["assistant"]),
        ChatMessage(role="user", content="Hi?"),
    )
    assert logged.template_hash == sha256_hex(BUILT_IN["assistant"])
    assert (logged.source, logged.conversation_id) == ("chat", conversation.conversation_id)
    assert logged.sampling == {"temperature": 0.5}
    assert (logged.n_input_tokens, logged.n_output_tokens) == (7, 3)
    assert logged.cost_usd == pytest.approx(7 + 6)
    assert logged.latency_s > 0
    assert (logged.system, logged.decision_id, logged.adapter_version) == (None, None, None)


def test_later_questions_bring_the_turns_before_them(chats):
    async def use(chat):
        conversation = Conversation(chat, user_id="ada", role="code")
        await said(conversation, "one")
        return (await said(conversation, "two"))[1]

    logged = chats.run(use)
    assert [one.content for one in logged.messages] == [BUILT_IN["code"], "one", "2: one", "two"]
    assert logged.role == "code"


def test_an_answer_is_logged_before_its_stream_ends(chats):
    async def use(chat):
        async with Conversation(chat, user_id="ada").ask("Hi?") as stream:
            async for _ in stream:
                pass
            return chats.feedback.history("ada")

    assert len(chats.run(use)) == 1


def test_an_answer_that_is_stopped_is_not_logged_and_no_turn(chats):
    let_go = threading.Event()

    def slow(request):
        if len(chats.server.requests) > 1:
            return events([chunk(content="well"), chunk("stop")])
        let_go.wait(30)
        return events([chunk(content="late"), chunk("stop")])

    chats.answer = slow

    async def use(chat):
        conversation = Conversation(chat, user_id="ada")

        async def read() -> None:
            async with conversation.ask("Hi?") as stream:
                async for _ in stream:
                    pass

        task = asyncio.create_task(read())
        while not chats.server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert conversation.last is None
        let_go.set()
        return await said(conversation, "Again?")

    _, logged = chats.run(use)
    assert [answer for answer, _ in chats.feedback.history("ada")] == [logged]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (events([chunk("stop"), USAGE_CHUNK]), CandidateFault),
        (events([chunk("stop")]), InfrastructureFault),
        (events([chunk(content="cut")], done=False), InfrastructureFault),
        (error_answer(503), InfrastructureFault),
    ],
    ids=["empty", "nothing", "cut", "down"],
)
def test_an_answer_that_fails_is_not_logged(chats, answer, error):
    chats.answer = lambda _: answer

    async def use(chat):
        conversation = Conversation(chat, user_id="ada")
        with pytest.raises(error):
            await said(conversation, "Hi?")
        return conversation.last

    assert chats.run(use) is None
    assert chats.feedback.history("ada") == []


def test_ratings_are_stored_edited_and_taken_back(chats):
    async def use(chat):
        conversation = Conversation(chat, user_id="ada")
        with pytest.raises(LookupError):
            await conversation.rate(4)
        _, logged = await said(conversation, "Hi?")
        assert (await conversation.rate(4)).status == "rated"
        assert (await conversation.rate(2, reason="too long")).status == "edited"
        with pytest.raises(FeedbackRefusedError, match="from 1 to 5"):
            await conversation.rate(6)
        ((_, kept),) = await conversation.history()
        assert kept is not None
        assert (kept.rating, kept.reason) == (2, "too long")
        assert await conversation.undo() == "rating"
        assert chats.feedback.rating(logged.interaction_id, "ada") is None
        assert await conversation.undo() == "turn"
        assert await conversation.undo() is None
        return (await said(conversation, "Anew"))[1]

    assert len(chats.run(use).messages) == 2
    assert len(chats.feedback.history("ada")) == 2


def test_two_answers_are_compared_in_an_order_drawn_by_chance(chats):
    async def use(chat):
        conversation = Conversation(chat, user_id="ada", rng=random.Random(3))
        with pytest.raises(LookupError):
            await conversation.answer_twice()
        orders, pair = set(), None
        for n in range(12):
            texts = iter(("one", "another"))
            chats.answer = lambda _, left=texts: events([chunk(content=next(left)), chunk("stop")])
            pair = await conversation.answer_twice(f"Hi {n}?")
            logged = [answer for answer, _ in chats.feedback.history("ada")][-2:]
            orders.add(pair.first == logged[0])
            better = await conversation.choose(pair, 2)
            assert (better, conversation.last) == (pair.second, pair.second)
        assert pair is not None
        (row,) = chats.feedback.fetch(
            "SELECT chosen_id, first_id, user_id, source FROM comparisons ORDER BY seq DESC LIMIT 1"
        )
        assert tuple(row) == (
            pair.second.interaction_id, pair.first.interaction_id, "ada", "chat",
        )  # fmt: skip
        assert await conversation.undo() == "comparison"
        chats.answer = echo
        again = await conversation.answer_twice()
        assert again.question == "Hi 11?"
        assert again.first.is_same_answer(again.second)
        with pytest.raises(FeedbackRefusedError, match="whose texts are equal"):
            await conversation.choose(again, 1)
        return orders

    assert chats.run(use) == {True, False}


def test_a_system_with_arms_gives_each_answer_by_one_and_names_the_decision(chats):
    arms = tuple(RuntimeArm(arm_id=f"arm{n}", params={"temperature": n / 10}) for n in range(2))
    Systems(chats.runtime).configure(RuntimeConfig(system="system", default_arms=arms, seed=1))

    async def use(chat):
        conversation = Conversation(chat, user_id="ada")
        found = [(await said(conversation, str(n)))[1] for n in range(8)]
        await conversation.rate(4)
        await conversation.rate(1)  # an edit; the first rating was the reward
        return found

    found = chats.run(use)
    decisions = [chats.runtime.decision(one.decision_id) for one in found]
    assert [one.system for one in found] == ["system"] * 8
    assert len({one.decision_id for one in found}) == 8
    assert {one.arm_id for one in decisions} == {"arm0", "arm1"}
    assert chats.runtime.decision(found[-1].decision_id).reward == 0.75
    for answer, decision in zip(found, decisions, strict=True):
        assert answer.sampling["temperature"] == decision.params["temperature"]


def test_linear_arms_read_the_last_message_and_store_none_of_it(chats):
    arms = tuple(RuntimeArm(arm_id=f"arm{n}", params={"temperature": n / 10}) for n in range(2))
    config = RuntimeConfig(system="system", kind="linear", default_arms=arms, seed=1)
    Systems(chats.runtime).configure(config)

    async def use(chat):
        return (await said(Conversation(chat, user_id="ada"), "Wann blühen Rosen?"))[1]

    decision = chats.runtime.decision(chats.run(use).decision_id)
    context = json.loads(decision.context_json)
    assert context["text.script"] == "latin"
    assert context["text.length"] == pytest.approx(math.log(16))
    assert "Rosen" not in decision.context_json


def test_a_stand_in_is_named_as_the_model_and_teaches_no_arm(chats):
    arm = RuntimeArm(arm_id="a", params={"temperature": 0.1})
    Systems(chats.runtime).configure(RuntimeConfig(system="system", default_arms=(arm,)))

    async def use(chat):
        return (await said(Conversation(chat, user_id="ada"), "Hi?"))[1]

    with MockServer() as server:
        logged = chats.run(use, mock_url=server.url)
    assert logged.model == "stand-in m"
    assert (logged.decision_id, logged.cost_usd) == (None, None)
    assert logged.response
    assert chats.server.requests == []


def test_system_messages_that_are_written_follow_the_persona(chats):
    api = chat_api(
        chats.server.url,
        request={
            "messages": [
                {"role": "system", "content": "At {temperature}."},
                {"role": "user", "content": "{input.q}"},
            ]
        },
    )

    async def use(chat):
        return (await said(Conversation(chat, user_id="ada", role="pirate"), "Hi?"))[1]

    logged = chats.run(use, api=api, feedback={"roles": {"pirate": "Arr."}})
    assert [one.content for one in logged.messages] == ["Arr.\n\nAt 0.5.", "Hi?"]


def test_an_unknown_role_is_refused_with_the_known_ones(chats):
    async def use(chat):
        with pytest.raises(ConfigurationError, match="Did you mean `creative`"):
            Conversation(chat, user_id="ada", role="creativ")
        conversation = Conversation(chat, user_id="ada")
        before = conversation.conversation_id
        with pytest.raises(ConfigurationError, match=r"feedback\.roles"):
            conversation.begin("nobody")
        assert (conversation.role, conversation.conversation_id) == ("assistant", before)

    chats.run(use)


def test_a_long_conversation_keeps_within_the_models_context(chats):
    prices = PriceTable(
        version="1",
        entries={"openai": {"m": Price(input=1.0, output=1.0, context_tokens=400)}},
    )

    async def use(chat):
        assert chat.context_tokens == 400
        conversation = Conversation(chat, user_id="ada")
        for n in range(4):
            await said(conversation, f"{n}" * 250)
        return (await said(conversation, "4" * 250))[1]

    logged = chats.run(use, prices=prices)
    assert [one.role for one in logged.messages] == ["system", "user", "assistant", "user"]
