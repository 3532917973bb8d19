"""Simulated systems with test cases: known truth, differing cases, correlated answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from benchmarks.optimizer.spaces import Point, Space, categorical, integer, real
from benchmarks.optimizer.tasks.base import CaseTask

N_MODELS, N_PROMPTS, N_STEPS, N_DOCS = SHAPE = 6, 8, 11, 10
"""Numbers of models, prompts, temperature steps and retrieved documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Properties of a system."""

    seed: int
    easiness: tuple[float, float] = (0.3, 1.5)
    """Mean and spread of case difficulty, in log-odds."""
    is_recorded: bool = False
    """Whether a repeated case gives the same answer, and similar configurations share its noise."""
    is_graded: bool = False
    """Whether rewards are graded between 0 and 1."""
    n_skills: int = 1
    """Number of skills that cases require, each with separate effects."""
    has_crash: bool = False
    """Whether many documents overflow every second model: reward 0 on all cases."""


KINDS: Mapping[str, Kind] = {
    "binary-recorded": Kind(seed=1, is_recorded=True),
    "binary-drawn": Kind(seed=2),
    "binary-decided": Kind(seed=3, easiness=(1.5, 4.0), is_recorded=True),
    "binary-skills": Kind(seed=4, n_skills=2, is_recorded=True),
    "binary-crash": Kind(seed=5, has_crash=True),
    "graded-drawn": Kind(seed=6, is_graded=True),
    "graded-recorded": Kind(seed=7, is_graded=True, is_recorded=True),
    "graded-crash": Kind(seed=8, is_graded=True, is_recorded=True, has_crash=True),
}


class SimulatedTask(CaseTask):
    """Model, prompt, temperature and documents. A temperature maps to the nearest step."""

    suite = "sim"

    def __init__(self, name: str, kind: Kind | None = None) -> None:
        kind = self.kind = kind or KINDS[name]
        space = Space(
            [
                categorical("model", *(f"m{i}" for i in range(N_MODELS))),
                categorical("prompt", *(f"p{i}" for i in range(N_PROMPTS))),
                real("temperature", 0.0, 1.0),
                integer("docs", 1, N_DOCS),
            ]
        )
        super().__init__(f"sim:{name}", space)
        self._rewards = _rewards(kind, self.n_cases)
        """Expected rewards, (n_points, n_cases)."""
        self._mean = self._rewards.mean(axis=1)

    @property
    def best_and_median(self) -> tuple[float, float]:
        """True values of the best point and a median one."""
        return float(self._mean.max()), float(np.median(self._mean))

    def true(self, point: Point) -> float:
        """Return the mean over all cases."""
        return float(self._mean[_row(point)])

    def evaluate_cases(
        self, point: Point, cases: Sequence[int], rng: np.random.Generator
    ) -> list[float]:
        """Return the rewards of cases."""
        p = self._rewards[_row(point)][list(cases)]
        if self.kind.is_recorded:
            answers = p
        elif self.kind.is_graded:
            answers = rng.beta(3 * p + 1e-9, 3 * (1 - p) + 1e-9)
        else:
            answers = (rng.random(len(p)) < p).astype(float)
        return [float(answer) for answer in answers]


def _row(point: Point) -> int:
    model, prompt = int(str(point["model"])[1:]), int(str(point["prompt"])[1:])
    step = round(float(point["temperature"]) * (N_STEPS - 1))
    return int(np.ravel_multi_index((model, prompt, step, int(point["docs"]) - 1), SHAPE))


def _rewards(kind: Kind, n_cases: int) -> np.ndarray:
    """Return the expected rewards of all points, (n_points, n_cases)."""
    rng = np.random.default_rng(kind.seed)
    m, p, t, d = np.ix_(*(range(n) for n in SHAPE))
    ability = np.empty((kind.n_skills, *SHAPE))
    for k in range(kind.n_skills):
        ability[k] = (
            rng.normal(0, 0.7, N_MODELS)[m]
            + rng.normal(0, 0.4, N_PROMPTS)[p]
            + rng.normal(0, 0.25, (N_MODELS, N_PROMPTS))[m, p]
            - 1.5 * (t / (N_STEPS - 1) - rng.uniform(0.1, 0.6)) ** 2
            - 1.2 * ((d - rng.uniform(3, 8)) / N_DOCS) ** 2
            + rng.normal(0, 0.1, SHAPE)
        )
    easiness = rng.normal(*kind.easiness, n_cases)
    skill = rng.integers(kind.n_skills, size=n_cases)
    log_odds = ability.reshape(kind.n_skills, -1)[skill].T + easiness
    model, prompt, _, docs = np.indices(SHAPE).reshape(len(SHAPE), -1)
    if kind.is_recorded:
        log_odds = log_odds + rng.normal(0, 1.0, (N_MODELS, n_cases))[model]
        log_odds = log_odds + rng.normal(0, 0.7, (N_PROMPTS, n_cases))[prompt]
        log_odds = log_odds + rng.normal(0, 1.2, log_odds.shape)
    is_decided = kind.is_recorded and not kind.is_graded
    rewards = (log_odds > 0).astype(float) if is_decided else expit(log_odds)
    if kind.has_crash:
        rewards[(docs >= 6) & (model % 2 == 0)] = 0.0
    return np.asarray(rewards, np.float64)
