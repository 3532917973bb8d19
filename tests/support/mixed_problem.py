"""Synthetic problems with a known optimum, asked case by case, and the loop that searches them."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from convergence_core.records import Candidate, Cell, Evaluation, Params, Trial
from convergence_core.search.sampler import Plan
from convergence_core.space import Choice, Float, Integer, Space

_T_BEST = {"mini": 0.3, "base": 0.5, "large": 0.9, "turbo": 0.2}
_MODEL = {"mini": 0.55, "base": 0.70, "large": 0.80, "turbo": 0.75}
_PROMPT = {"plain": 0.0, "cot": 0.10, "fewshot": 0.07, "role": 0.03, "json": -0.05}


def mixed_space() -> Space:
    """A chat model's settings: categories, a switch, a conditional integer, three floats."""
    return Space(
        parameters={
            "model": Choice(kind="categorical", choices=tuple(_MODEL)),
            "prompt": Choice(kind="categorical", choices=tuple(_PROMPT)),
            "rag": Choice(kind="boolean", choices=(False, True)),
            "k": Integer(min=1, max=20, when=(("rag", (True,)),)),
            "temperature": Float(min=0.0, max=1.5),
            "top_p": Float(min=0.1, max=1.0),
            "penalty": Float(min=-1.0, max=1.0),
        }
    )


def mixed_value(params: Params) -> float:
    """True value in [0, 1]; the optimum, 1, is an interaction of model and prompt."""
    model, prompt = str(params["model"]), str(params["prompt"])
    value = _MODEL[model] + _PROMPT[prompt]
    value += 0.12 * (model == "turbo" and prompt == "fewshot")
    if params["rag"]:
        value += 0.06 - 0.0012 * (float(params["k"]) - 8) ** 2
    value -= 0.35 * (float(params["temperature"]) - _T_BEST[model]) ** 2
    value -= 0.25 * (float(params["top_p"]) - 0.85) ** 2
    value -= 0.12 * (float(params["penalty"]) - 0.2) ** 2
    return min(1.0, max(0.0, value))


def _noise(seed: int, *parts: object) -> np.random.Generator:
    digest = hashlib.sha256(repr((seed, *parts)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


@dataclass
class CaseProblem:
    """reward(candidate, case, repeat) = .15 + .7 value + case effect + noise, cut to [0, 1]."""

    space: Space
    value: Callable[[Params], float]
    n_cases: int = 40
    seed: int = 0
    case_sd: float = 0.2
    noise_sd: float = 0.2
    binary: bool = False
    n_asked: int = 0
    asked: list[Cell] = field(default_factory=list)

    @property
    def case_ids(self) -> tuple[str, ...]:
        return tuple(f"case-{j:03d}" for j in range(self.n_cases))

    def reward(self, params: Params, cell: Cell) -> float:
        effect = self.case_sd * _noise(self.seed, cell.case_id).standard_normal()
        g = _noise(self.seed, cell.candidate_id, cell.case_id, cell.repeat)
        reward = 0.15 + 0.7 * self.value(params) + effect
        if self.binary:
            return float(g.random() < reward)
        return min(1.0, max(0.0, reward + self.noise_sd * g.standard_normal()))

    def evaluate(self, plan: Plan, generation: int) -> list[Trial]:
        trials = []
        for assignment in plan.assignments:
            rewards = {c: self.reward(assignment.candidate.params, c) for c in assignment.cells}
            self.n_asked += len(rewards)
            self.asked += rewards
            trials.append(trial(assignment.candidate, rewards, generation))
        return trials


def trial(
    candidate: Candidate, rewards: Mapping[Cell, float | None], generation: int = 0
) -> Trial:
    """A trial with these rewards; ``None``: missing."""
    return Trial(
        candidate=candidate,
        evaluations=tuple(
            Evaluation(
                eval_id=f"{cell.candidate_id}-{cell.case_id}-{cell.repeat}",
                cell=cell,
                generation=generation,
                status="ok" if reward is not None else "error",
                fault=None if reward is not None else "infrastructure",
                reward=reward,
            )
            for cell, reward in rewards.items()
        ),
    )
