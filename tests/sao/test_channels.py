"""Probability channels over real sockets: they agree, and faulty servers are refused."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.mock.tiny_model import BINS, FIRST_BIN, encode, stories, tiny_model
from tasks.rlp.model_calls import Model, UnreadableAnswerError
from tasks.sao.channel_probe import ChannelProbe, allowed_channels, probe_channels
from tasks.sao.pair_judge import CHANNELS
from tasks.sao.probability_channels import (
    CENSORED,
    TAIL,
    Estimator,
    Prediction,
    PredictionSide,
    forced,
    normalized,
    of_options,
    prompt_tail,
)
from tests.sao.tiny_wording import PlainAsker, TinyWords, tiny_chat, with_model
from tests.support.http_server import LoopbackServer, error_answer

WORDS = TinyWords()
N_BINS = len(BINS)
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
    options = {"allowed": allowed_channels(True), **options}
    return with_model(
        running,
        lambda model: probe_channels(model, WORDS, PlainAsker(), channels=CHANNELS, **options),
    )


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


def test_channels_follow_the_configuration():
    assert allowed_channels("auto") == ("chat_echo", "echo", "chat", "verdict")
    assert allowed_channels(True) == ("chat_echo", "echo", "chat")
    assert allowed_channels(False) == ("verdict",)


# -- servers that fail


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


def test_failing_servers_leave_notes_and_no_forecast():
    told = run_scripted(lambda _: error_answer(501), "echo")
    assert told.forecasts == {}
    assert "the server has no `completions` for this model" in told.notes[0]


def test_weights_become_probabilities_or_are_refused():
    p = normalized([0, 0, 1, 3])
    assert p.sum() == pytest.approx(1.0)
    assert p.min() > 0
    for wrong in ([0, 0], [-1, 2], [float("nan"), 1], [[1.0]]):
        with pytest.raises(ValueError, match="weights"):
            normalized(np.array(wrong))
