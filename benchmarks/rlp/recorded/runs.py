"""One run on a table of trained networks: plain, with recorded replies, or with useless ones."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from zlib import crc32

import numpy as np

from benchmarks.optimizer.regret import read_scales
from benchmarks.optimizer.spaces import Parameter
from benchmarks.optimizer.tasks import get_task
from benchmarks.rlp.runs import Setting, generations, make_learner
from convergence_core.config import parse_mapping
from convergence_core.records import Cell, Params, ParamValue, canonical_json
from convergence_core.rlp.commitments import Thought
from convergence_core.search.samplers import make_sampler
from convergence_core.space.builder import build_space
from tasks.rlp.factory import prompts_of
from tasks.rlp.prompts import ThoughtRequest, asked_names
from tasks.rlp.thought_writer import ThoughtWriter

Way: TypeAlias = Literal["plain", "recorded", "useless"]
WAYS: Final[tuple[Way, ...]] = ("plain", "recorded", "useless")
N_GENERATIONS: Final = 3
N_CANDIDATES: Final = 8
FOLDER: Final = Path(__file__).parent
TASKS: Final[Mapping[str, Any]] = json.loads((FOLDER / "tasks.json").read_text("utf-8"))
REPLIES: Final[Mapping[str, Any]] = json.loads((FOLDER / "replies.json").read_text("utf-8"))
"""Task, seed and generation → reply. All seeds share generation 0's reply."""


class MissingReplyError(LookupError):
    """Missing recorded reply, with its key and prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWriter(ThoughtWriter):
    """The product's writer with recorded replies, or with random settings, as its model."""

    task: str
    seed: int
    is_blind: bool

    async def _asked(
        self, thought: Thought, request: ThoughtRequest, problem: str, number: int, asker: Any
    ) -> Thought:
        del number, asker
        seed = f"-{self.seed}" if request.generation else ""
        key = f"{self.task.partition(':')[2]}{seed}-{request.generation}"
        rng = np.random.default_rng([self.seed, request.generation, 9])
        points = [request.space.sample(rng) for _ in range(request.n_settings)]
        reply: Any = {
            "forecasts": dict.fromkeys(asked_names(request), (0.2, 0.5, 0.8)),
            "settings": [{"values": point, "score": (0.2, 0.5, 0.8)} for point in points],
        }
        if not self.is_blind:
            if key not in REPLIES or problem:
                messages = self.wording.messages(request, problem)
                raise MissingReplyError(key, "\n\n".join(str(m["content"]) for m in messages))
            reply = REPLIES[key]
        return replace(thought, text=json.dumps(reply), sha256="-", committed_us=1)


def play(task: str, way: Way, seed: int) -> tuple[float, float, float]:
    """Return the recommendation's regret after the first and last generation, and the mean gain.

    The gain is the forecasts' information gain in nats per generation; 0 without forecasts.
    """
    configuration = parse_mapping(
        {**TASKS[task], "optimization": {"algorithm": "mab_evolution", "seed": seed}}
    )
    space, table, scale = (
        build_space(configuration.search_space, {}),
        get_task(task),
        read_scales()[task],
    )
    learner = make_learner(
        RecordedWriter(
            model=None,  # type: ignore[arg-type]  # the record answers
            wording=prompts_of(configuration),
            task=task,
            seed=seed,
            is_blind=way == "useless",
        ),
        seed,
    )

    def point(params: Params) -> dict[str, Any]:
        return {p.name: nearest(p, params[p.name]) for p in table.space.parameters}

    def reward(params: Params, cell: Cell) -> float:
        key = f"{seed} {cell.case_id} {canonical_json(point(params))}"
        value = table.evaluate(point(params), np.random.default_rng(crc32(key.encode())))
        return 1.0 + value if value < 0 else value / table.unit

    rng = np.random.default_rng([seed, 2])
    setting = Setting(make_sampler(configuration, space), space, N_GENERATIONS, rng, N_CANDIDATES)
    played = generations(setting, None if way == "plain" else learner, reward)
    regrets = [scale.regret(table.true(point(params))) for _, params in played]
    return regrets[0], regrets[-1], float(np.mean(learner.state.gains or (0.0,)))


def nearest(p: Parameter, value: ParamValue) -> Any:
    """Return a table's choice nearest to a value, on a log scale if no choice is 0."""
    if p.kind == "categorical":
        return value
    place = math.log if p.choices[0] else float
    return min(p.choices, key=lambda choice: abs(place(choice) - place(value)))  # type: ignore[arg-type]
