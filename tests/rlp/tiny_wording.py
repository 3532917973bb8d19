"""The tiny language model's own words for what RLP asks, and askers that need no run."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from convergence_core.records import Params
from convergence_core.rlp.bins import TENTHS, RewardBins
from convergence_core.rlp.commitments import Thought
from convergence_core.rlp.history import TrialHistory
from convergence_core.rlp.strategies import Strategy
from convergence_core.space import Choice, Integer, Space
from tasks.calls.metric_calls import PaidCall
from tasks.http.clients import ClientSettings
from tasks.mock.mock_server import MockServer
from tasks.mock.tiny_model import BINS, MODELS, TEMPERATURES
from tasks.providers.chat import ChatSettings
from tasks.providers.openai_chat import OpenAIChat
from tasks.rlp.model_calls import Answered, Model
from tasks.rlp.prompts import Messages, RlpPrompts

SPACE = Space(
    parameters={
        "m": Choice(kind="categorical", choices=MODELS),
        "t": Integer(min=0, max=len(TEMPERATURES) - 1),
    }
)
T = TypeVar("T")


class TinyWords(RlpPrompts):
    """The wording of ``tasks.mock.tiny_model``; at most three trials are told."""

    version = "tiny-1"
    options = BINS

    def thinking(
        self, strategy: Strategy, history: TrialHistory, space: Space, exemplars: Sequence[Thought]
    ) -> Messages:
        told = self.context(history, space)("").removesuffix(" end")
        return [{"role": "user", "content": " ".join(told.split())}]

    def context(self, history: TrialHistory, space: Space) -> Callable[[str | None], str]:
        words = ["<bos>"]
        for trial in history.latest(3):
            words += ["hist", *setting(trial.params), "->", BINS[TENTHS.bin_of(trial.reward)]]

        def tell(thought: str | None) -> str:
            said = "none" if thought is None else thought
            return " ".join([*words, "think", *said.split(), "end"])

        return tell

    def question(self, params: Params, space: Space, bins: RewardBins) -> str:
        return " ".join(["cfg", *setting(params), "->"])

    def elicitation(self, context: str, questions: Mapping[str, str]) -> Messages:
        return [{"role": "user", "content": f"{context} " + " ".join(questions.values())}]

    def probes(self) -> tuple[str, str]:
        begin = "<bos> hist ant t3 -> b7 think best"
        return f"{begin} bee near t4 end cfg bee t5 ->", f"{begin} ant near t2 end cfg ant t9 ->"


def setting(params: Params) -> tuple[str, str]:
    return str(params["m"]), TEMPERATURES[int(params["t"])]


class PlainAsker:
    """Makes each call once, with no journal; counts them."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.requests: list[Any] = []

    async def ask(self, call: PaidCall, label: str) -> Answered:
        self.labels.append(label)
        self.requests.append(call.request)
        return Answered(reply=await call.send(), ended_us=len(self.labels))


def tiny_chat(url: str, *, timeout_s: float = 20.0) -> OpenAIChat:
    client = ClientSettings(timeout_s=timeout_s)
    return OpenAIChat(f"{url}/v1", ChatSettings(client=client, unsupported="drop"))


def tiny_model_of(llm: OpenAIChat) -> Model:
    return Model(llm=llm, name="tiny", wording_version="tiny-1", timeout_s=20.0)


def with_model(server: MockServer, work: Callable[[Model], Awaitable[T]]) -> T:
    """Run some work against a server, with the real client."""

    async def go() -> T:
        llm = tiny_chat(server.url)
        try:
            return await work(tiny_model_of(llm))
        finally:
            await llm.aclose()

    return asyncio.run(go())
