"""Probability channels over real sockets: they agree, and faulty servers are refused."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convergence_core.rlp.baseline import Mixture
from convergence_core.rlp.bins import N_BINS
from convergence_core.rlp.commitments import Estimator
from convergence_core.rlp.gain_rows import score
from convergence_core.rlp.outcomes import CandidateOutcomes
from convergence_core.rlp.replay import Replay
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.mock.tiny_model import BINS, FIRST_BIN, encode, stories, tiny_model
from tasks.rlp.channel_probe import ChannelProbe, allowed_channels, probe_channels
from tasks.rlp.elicited_channel import CHANNELS, weights_of
from tasks.rlp.model_calls import Model, UnreadableAnswerError
from tasks.rlp.probability_channels import (
    CENSORED,
    TAIL,
    Prediction,
    PredictionSide,
    forced,
    of_options,
    prompt_tail,
)
from tests.rlp.thoughts import a_commitment
from tests.rlp.tiny_wording import PlainAsker, TinyWords, tiny_chat, with_model
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer, error_answer

WORDS = TinyWords()
STORIES = list(stories(12, seed=11))


def side() -> PredictionSide:
    story = STORIES[0]
    begin, _, _ = story.prompt(("best", "ant", "near", "t3")).partition(" cfg ")
    questions = {f"c{i}": f"cfg {m} t{i} ->" for i, m in enumerate(("ant", "bee", "cat", "dog"))}
    return PredictionSide(label="side", context=begin, questions=questions)


def expected(name: str) -> np.ndarray:
    row = tiny_model().row(encode(f"{side().context} {side().questions[name]}"))
    bins = row[FIRST_BIN : FIRST_BIN + N_BINS]
    return np.asarray(bins / bins.sum())


@pytest.fixture(scope="module")
def server():
    with MockServer() as running:
        yield running


def predicted(running: MockServer, name: Estimator) -> tuple[Prediction, PlainAsker]:
    asker = PlainAsker()

    async def work(model: Model) -> Prediction:
        return await CHANNELS[name](model, WORDS).predict(side(), asker)

    return with_model(running, work), asker


def probed(running: MockServer, **options: Any) -> ChannelProbe:
    return with_model(running, lambda model: probe_channels(model, WORDS, PlainAsker(), **options))


def test_echo_and_chat_agree_to_the_last_digits(server: MockServer):
    found = {name: predicted(server, name)[0].forecasts for name in allowed_channels(True)}
    for name in side().questions:
        echo, chat = found["echo"][name], found["chat"][name]
        assert np.abs(np.log(echo) - np.log(chat)).max() <= 1e-6
        assert np.abs(np.log(echo) - np.log(found["chat_echo"][name])).max() <= 1e-6
        assert np.abs(echo - expected(name)).max() <= 1e-5
        for p in (echo, chat):
            assert p.sum() == pytest.approx(1.0, abs=1e-6)


def test_echo_asks_one_request_per_candidate_and_a_chats_echo_one_per_option(server: MockServer):
    assert len(predicted(server, "echo")[1].requests) == len(side().questions)
    assert len(predicted(server, "chat_echo")[1].requests) == N_BINS * len(side().questions)


def test_a_sound_server_has_the_best_channel(server: MockServer):
    probe = probed(server)
    assert (probe.estimator, probe.refused, probe.disabled_reason) == ("chat_echo", {}, None)
    assert probed(server, allowed=("echo",)).estimator == "echo"
    assert probed(server, allowed=("chat",)).estimator == "chat"


@pytest.mark.parametrize(
    ("mode", "estimator", "check"),
    [
        ("off_by_one", "chat", "i: an echo differs"),
        ("temperature", None, "ii: at temperature .2"),
        ("ignore", None, "did not echo"),
        ("stale", None, "iv: asked again"),
    ],
)
def test_a_faulty_server_falls_to_the_channel_that_passes(mode, estimator, check):
    with MockServer(MockOptions(fault_modes=(mode,))) as faulty:
        probe = probed(faulty, allowed=allowed_channels(True))
    assert probe.estimator == estimator
    assert check in probe.refused["echo"]
    if estimator is None:
        assert probe.disabled_reason is not None
        assert "no probability channel" in probe.disabled_reason
        assert set(probe.refused) == {"chat_echo", "echo", "chat"}


@pytest.mark.parametrize(
    ("mode", "check"),
    [
        ("off_by_one", "i: an answer differs from the next token's own by"),
        ("temperature", "ii: at temperature .2"),
        ("ignore", "the server told no `prompt_logprobs`"),
        ("stale", "iv: asked again"),
        ("no_prompt_logprobs", "HTTP 400"),
    ],
)
def test_a_faulty_server_is_not_believed_what_it_tells_of_a_chats_prompt(mode, check):
    with MockServer(MockOptions(fault_modes=(mode,))) as faulty:
        probe = probed(faulty, allowed=("chat_echo",))
    assert probe.channel is None
    assert check in probe.refused["chat_echo"]


def told_of_prompt(*words: tuple[str, float], n_more: int = 0) -> dict[str, Any]:
    """As vLLM tells a prompt's log-probabilities, under the ids of its tokens."""
    entries = [{i: {"logprob": log, "rank": 1, "decoded_token": i}} for i, log in words]
    more = [{"0": {"logprob": -1.0}}] * n_more
    return {"prompt_logprobs": [None, *more, *entries], "usage": {"prompt_tokens": 1 + len(words)}}


def test_what_all_prompts_share_cancels_and_options_may_have_several_tokens():
    begin = ("7", -0.3), ("8", -0.2)
    tails = [
        prompt_tail(told_of_prompt(*begin, ("1", -1.0))),
        prompt_tail(told_of_prompt(*begin, ("2", -2.0), ("1", -0.5))),
    ]
    assert forced(tails) == pytest.approx([-1.0, -2.5])
    assert forced([tails[0], prompt_tail(told_of_prompt(*begin, ("3", -3.0)))]) == pytest.approx(
        [-1.0, -3.0]
    )
    long = [told_of_prompt(("1", -1.0), *[("5", -1.0)] * k, n_more=40) for k in (0, TAIL)]
    for bad in (
        [
            tails[0],
            prompt_tail(told_of_prompt(*begin, ("1", -1.0), ("2", -1.0))),
        ],  # begins another
        [prompt_tail(one) for one in long],
    ):
        with pytest.raises(UnreadableAnswerError):
            forced(bad)
    unreadable: list[dict[str, Any]] = [
        {},
        {"prompt_logprobs": [None, {"1": {"logprob": -1.0}, "2": {"logprob": -2.0}}]},
        {"prompt_logprobs": [None, {"1": {"logprob": CENSORED}}]},
        {"prompt_logprobs": [None, {"1": {}}]},
    ]
    for raw in unreadable:
        with pytest.raises(UnreadableAnswerError):
            prompt_tail(raw)


def test_options_outside_of_the_top_are_censored_and_never_averaged():
    top: list[Any] = [
        ["b7", math.log(0.5)],
        [" b7", math.log(0.1)],
        ["b6", math.log(0.3)],
        ["b5", -9999.0],
    ]
    p, censored = of_options({"top": top}, BINS)
    assert p[7] == pytest.approx(0.6, abs=0.05)
    assert censored == tuple(b not in (6, 7) for b in range(10))
    assert p.min() > 0
    assert p[5] == p[0]
    assert math.log(p.min()) > CENSORED / 100
    with pytest.raises(UnreadableAnswerError, match="none of the options"):
        of_options({"top": [["yes", -0.1]]}, BINS)


def test_of_three_words_a_third_of_the_truths_is_censored_and_flagged(server: MockServer):
    flagged = []

    async def work(model: Model) -> None:
        channel: Any = CHANNELS["chat"](model, WORDS)
        asker = PlainAsker()
        for story in stories(150, seed=21):
            call = channel.call(story.prompt(("none",)), top=3)
            answered = await asker.ask(call, "x")
            p, censored = of_options(answered.reply.value, BINS)
            flagged.append(censored[story.trial.outcome])
            assert np.log(p).min() > -20

    with_model(server, work)
    assert 0.2 <= np.mean(flagged) <= 0.45, np.mean(flagged)


def three_words(_: Request) -> Answer:
    """Answer a chat with the three likeliest words, as a server may that tells no more."""
    top = [{"token": f"b{i}", "logprob": math.log(p)} for i, p in ((7, 0.6), (6, 0.3), (5, 0.05))]
    choice = {
        "index": 0,
        "finish_reason": "length",
        "message": {"role": "assistant", "content": "b7"},
        "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
    }
    return Answer({"model": "m", "choices": [choice]})


def test_what_a_server_does_not_tell_is_flagged_to_the_row_and_teaches_no_temperature():
    told = run_scripted(three_words, "chat")
    outside = tuple(b not in (5, 6, 7) for b in range(N_BINS))
    assert told.censored == dict.fromkeys(side().questions, outside)
    p = told.forecasts["c0"]
    base = np.full(N_BINS, 0.1)
    whole = a_commitment(
        {"c0": p, "c1": p},
        {"c0": base, "c1": base},
        estimator="chat",
        censored={"t": told.censored},
    )
    outcomes = CandidateOutcomes(observed={"c0": 7, "c1": 2})
    scored = score(whole, outcomes, Mixture(), 1.0)
    assert [row.is_censored for row in scored.rows] == [False, True]
    assert min(row.gain for row in scored.rows) >= np.log(0.02)
    forecasts, observed = Replay().after(scored.rows, whole.thoughts).forecasts()
    assert (forecasts.shape, observed) == ((2, N_BINS), [7, 7])
    # A bound in the arm without a thought says nothing of how good that model is.
    without = replace(whole, censored={"none": told.censored})
    assert [len(of) for of in score(without, outcomes, Mixture(), 1.0).likelihoods] == [1, 1]


def test_channels_follow_the_configuration():
    assert allowed_channels("auto") == ("chat_echo", "echo", "chat", "elicited")
    assert allowed_channels(True) == ("chat_echo", "echo", "chat")
    assert allowed_channels(False) == ("elicited",)
    assert allowed_channels(False, "verdict") == ("verdict",)


# -- the channel of what a model writes


def run_scripted(answer, name: Estimator) -> Prediction:
    async def go(url: str) -> Prediction:
        llm = tiny_chat(url.removesuffix("/v1"))
        try:
            model = Model(llm=llm, name="m", wording_version="t")
            return await CHANNELS[name](model, WORDS).predict(side(), PlainAsker())
        finally:
            await llm.aclose()

    with LoopbackServer(answer) as server:
        return asyncio.run(go(server.url))


def test_weights_that_a_model_writes_become_distributions():
    row = [0, 0, 0, 0, 0, 10, 30, 40, 20, 0]
    text = "Here: " + str({f"trial_{i}": row for i in (1, 2, 3)}).replace("'", '"')
    told = run_scripted(lambda _: chat_answer(text), "elicited")
    assert set(told.forecasts) == {"c0", "c1", "c2"}  # the fourth was not told
    assert told.forecasts["c0"][7] == pytest.approx(0.4, abs=0.01)
    assert told.forecasts["c0"][0] > 0
    assert "trial_4" in told.notes[0]


@pytest.mark.parametrize(
    "text",
    ["", "no", "{", '{"a": 1}', '{"a": [1, 2]}', '{"a": [0,0,0,0,0,0,0,0,0,0]}',
     '{"a": [1,1,1,1,1,1,1,1,1,-1]}', '{"a": ["x",1,1,1,1,1,1,1,1,1]}'],
)  # fmt: skip
def test_weights_that_cannot_be_read_are_no_forecast(text: str):
    with pytest.raises(UnreadableAnswerError):
        weights_of({"text": text}, "a", N_BINS, spread=0.002)


def test_failing_servers_leave_notes_and_no_forecast():
    told = run_scripted(lambda _: error_answer(500), "elicited")
    assert told.forecasts == {}
    assert "HTTP 500" in told.notes[0]
    told = run_scripted(lambda _: error_answer(501), "echo")
    assert told.forecasts == {}
    assert "the server has no `completions` for this model" in told.notes[0]
