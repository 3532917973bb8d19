"""CPU of one think-and-learn step, without the model's time.

The step as a run makes it: prompts of thoughts and of all arms, their calls, the
second question to the sampler (whose first places are predicted), what is read of the
answers, the posterior's predictions, advice, scoring, the update, and every fiftieth outcome's
calibration. The model is a stub, and what it takes itself is taken off. The commitment's file is told
apart. Not in it: the journal's entries of the calls, as of any other.
"""

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.runs import Generation, Setting, evaluate
from convergence_core.ports import Completion
from convergence_core.records import Json, Params
from convergence_core.rlp.commitments import Estimator
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.policy import StrategyPolicy
from convergence_core.rlp.replay import Replay
from convergence_core.rlp.rows import commitment_rows
from convergence_core.rlp.strategies import STRATEGIES
from convergence_core.search.sampler import Advice, SearchState
from convergence_core.search.samplers import make_sampler
from convergence_core.search.study import Asked
from convergence_core.space.builder import build_space
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.channel_probe import ChannelProbe
from tasks.rlp.elicited_channel import CHANNELS
from tasks.rlp.learner import RlpLearner
from tasks.rlp.learner_calls import LearnerCalls, SubBudget
from tasks.rlp.model_calls import Model
from tasks.rlp.prompts import RlpPrompts
from tasks.rlp.thought_writer import ThoughtWriter
from tasks.store import ParquetStore

N_TRIALS: Final = 200
N_CANDIDATES: Final = 16
N_STEPS: Final = 30
CHANNELS_TIMED: Final[tuple[Estimator, ...]] = ("elicited", "chat", "echo")
_TRIAL: Final = re.compile(r"^(trial_\d+): ", re.MULTILINE)
_WEIGHTS: Final = [1, 1, 2, 3, 5, 8, 5, 3, 2, 1]
_SHARES: Final = [weight / sum(_WEIGHTS) for weight in _WEIGHTS]
_THOUGHT: Final = "Low temperatures do better. " * 30


class Stub:
    """A model that answers at once, and knows how long that took.

    By the wall clock, since it never waits: asking for the CPU clock sixty times takes milliseconds where
    that is a system call, and half of each would be left in the step.
    """

    provider, base_url = "stub", "stub"

    def __init__(self, rung: Estimator) -> None:
        self.rung = rung
        self.own_s = 0.0
        self.n_calls = 0
        self._n_thoughts = 0

    async def complete(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, **options: Json
    ) -> Completion:
        """Answer a chat."""
        del model
        begun = time.perf_counter()
        self.n_calls += 1
        raw: dict[str, Json] = {}
        text = str(messages[-1]["content"])
        if options.get("logprobs"):
            shares = self._shares(text)
            told = [{"token": str(i), "logprob": float(np.log(p))} for i, p in enumerate(shares)]
            raw = {"choices": [{"logprobs": {"content": [{"top_logprobs": told}]}}]}  # type: ignore[dict-item]  # JSON
            text = "5"
        elif "ten weights" in text:
            weights = [round(100 * p) for p in self._shares(text)]
            text = json.dumps(dict.fromkeys(_TRIAL.findall(text), weights))
        else:
            self._n_thoughts += 1
            region = json.dumps({"regions": [{"temperature": [0.2, 0.4], "model": ["large"]}]})
            text = f"{_THOUGHT} {self._n_thoughts} {region}"
        self.own_s += time.perf_counter() - begun
        return Completion(text=text, latency_ms=1.0, raw=raw)

    async def exchange(self, path: str, body: Mapping[str, Any]) -> tuple[dict[str, Json], float]:
        """Answer an echo."""
        del path
        begun = time.perf_counter()
        self.n_calls += 1
        choices: list[Json] = []
        for i, text in enumerate(body["prompt"]):
            offsets: list[Json] = [0, len(text) - 2]
            logs: list[Json] = [None, float(np.log(self._shares(text)[i % 10]))]
            told: dict[str, Json] = {"text_offset": offsets, "token_logprobs": logs}
            choices.append({"index": i, "logprobs": told})
        self.own_s += time.perf_counter() - begun
        return {"choices": choices}, 1.0

    def _shares(self, text: str) -> list[float]:
        """Return what is predicted: a thought moves it, or it would have no weight."""
        return _SHARES[::-1] if _THOUGHT[:20] in text else _SHARES

    async def aclose(self) -> None:
        """Nothing is open."""


class Unjournaled:
    """A session whose calls are made and not kept."""

    def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run work to its end."""

        async def ask(call: PaidCall, *, label: str, generation: int) -> tuple[Any, int]:
            del label, generation
            return await call.send(), 1

        return self._loop.run_until_complete(work(ask))

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        """Close the loop."""
        self._loop.close()


def cpu() -> None:
    """Print the CPU of one think-and-learn step at 200 trials, for each channel."""
    print(
        "\n| probabilities | calls | think | ask again | predict | advise | learn | all | commitment's file |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in CHANNELS_TIMED:
        n_calls, parts = measure(name)
        step = [parts[part] for part in ("think", "ask again", "predict", "advise", "learn")]
        cells = [name, str(n_calls), *(f"{ms:.1f}" for ms in (*step, sum(step), parts["file"]))]
        print("| " + " | ".join(cells) + " |")
    print(f"\nmedians of {N_STEPS} steps, ms of CPU")


def measure(rung: Estimator) -> tuple[int, dict[str, float]]:
    """Return calls of the model in one step, and milliseconds of CPU of its parts."""
    landscape = LANDSCAPES["mixed"]
    configuration = landscape.configuration(0)
    space = build_space(configuration.search_space, {})
    sampler = make_sampler(configuration, space)
    stub, session = Stub(rung), Unjournaled()
    model = Model(llm=stub, name="stub", wording_version="stub")
    learner = RlpLearner(
        run_id="r",
        seed=0,
        writer=ThoughtWriter(model=model),
        calls=LearnerCalls("RLP", session, SubBudget(limit_usd=None)),  # type: ignore[arg-type]  # as it is
        state=RlpState.first(tuple(STRATEGIES)),
        replay=Replay(),
    )
    learner.calls._probe = ChannelProbe(channel=CHANNELS[rung](model, RlpPrompts()), refused={})
    with tempfile.TemporaryDirectory() as folder:
        play = partial(
            step,
            learner=learner,
            setting=Timed(sampler, space, 50, N_CANDIDATES, np.random.default_rng(0)),
            world=np.random.default_rng(1),
            value=landscape.value,
            store=ParquetStore(Path(folder) / "store"),
        )
        search, generation = sampler.start(), 0
        while len(learner.state.history) < N_TRIALS:
            search, _ = play(generation, search=search)
            generation += 1
        # As costly as can be: a thought is drawn each time.
        theta = learner.state.policy.theta.copy()
        theta[0, 0] = -100.0
        learner.state = replace(learner.state, policy=StrategyPolicy(theta))
        n_before = stub.n_calls
        steps = [play(generation, search=search, stub=stub)[1] for _ in range(N_STEPS)]
    session.close()
    found = {name: float(np.median([ms[name] for ms in steps])) for name in steps[0]}
    return (stub.n_calls - n_before) // N_STEPS, found


class Timed(Setting):
    """A setting whose plans are timed apart from what a learner does around them."""

    clock: ClassVar["Clock | None"] = None

    def ask(self, state: Generation, advice: Advice, *, keeps: bool = False) -> Asked:
        """See ``Setting``."""
        clock = Timed.clock
        if clock is not None:
            clock.stop("think")
            super().ask(state, Advice())  # what a generation without thoughts costs anyway
            clock.start()
        asked = super().ask(state, advice, keeps=keeps)
        if clock is not None:
            clock.stop("ask again")
        return asked


def step(
    generation: int,
    learner: RlpLearner,
    setting: Timed,
    search: SearchState,
    *,
    world: np.random.Generator,
    value: Callable[[Params], float],
    store: ParquetStore,
    stub: Stub | None = None,
) -> tuple[SearchState, dict[str, float]]:
    """Run a generation; with a stub it is timed, and nothing of it is kept.

    Returns:
        the search after it, and milliseconds of CPU of its parts, without the stub's.
    """
    setting.rng.bit_generator.state = np.random.default_rng(generation).bit_generator.state
    state: Any = Generation(search, generation)
    study: Any = setting
    clock = Timed.clock = Clock(stub)
    clock.start()
    learner.think(study, state, Advice())
    clock.stop("predict")
    advice = learner.advise(study, state, Advice())
    clock.stop("advise")
    Timed.clock = None
    asked = setting.ask(state, advice)
    trials = evaluate(asked.plan, value, generation, world)
    clock.start()
    learner.learn(study, state, asked, trials)
    clock.stop("learn")
    commitment = learner.commitment(generation)
    if commitment is not None:
        clock.start()
        store.write_ahead("r", generation, {"commitments": commitment_rows("r", commitment)})
        clock.stop("file")
    if stub is not None:
        return search, clock.found
    learner.commit()
    return setting.sampler.tell(search, trials), {}


class Clock:
    """CPU of this process, without that of a stub."""

    def __init__(self, stub: Stub | None) -> None:
        self.found: dict[str, float] = {}
        self._stub = stub
        self._begun = 0.0

    def start(self) -> None:
        """Begin a part."""
        self._begun = self._now()

    def stop(self, name: str) -> None:
        """End a part, and begin the next."""
        now = self._now()
        self.found[name] = 1000.0 * (now - self._begun)
        self._begun = now

    def _now(self) -> float:
        return time.process_time() - (0.0 if self._stub is None else self._stub.own_s)
