"""What a thought may have read: trials revealed before its generation, and nothing later.

Everything that enters a prompt passes through ``History.as_of``, so a thought of generation g
cannot hold an outcome of g (arXiv 2510.01265, Prop. 3: the thought must not depend on what it is
to predict).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convergence_core.records import Evaluation, Json, Params, Trial
from convergence_core.rlp.policy import N_FEATURES
from convergence_core.space import Choice, Parameter, Space

MANY_TRIALS = 200
"""Trials that count as a full history."""
N_PLACES = 5
"""Parts that a number's range is divided into to tell what was covered."""
SLOPE_WINDOW = 3
"""Generations over which improvement is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reveal:
    """One trial as it became known."""

    generation: int
    candidate_id: str
    params: Params
    reward: float
    """Mean over the trial's cells, less what is known of their cases, in [0, 1]."""
    n_cells: int
    n_failed: int = 0
    """Cells that failed by the candidate's own fault."""
    failure: str | None = None
    """Most frequent reason of those; ``None``: none failed."""
    latency_ms: float | None = None
    """Mean over its cells; ``None``: not known."""
    cost_usd: float | None = None
    """Mean per cell of known prices; ``None``: none is known."""


@dataclass(frozen=True, slots=True)
class History:
    """All reveals, oldest first."""

    reveals: tuple[Reveal, ...] = ()

    def __len__(self) -> int:
        """Trials."""
        return len(self.reveals)

    def as_of(self, generation: int) -> "History":
        """Return what was revealed before a generation."""
        return History(tuple(r for r in self.reveals if r.generation < generation))

    def told(
        self, trials: Sequence[Trial], generation: int, easier: Mapping[str, float] | None = None
    ) -> "History":
        """Return the history with a generation's trials; those without a reward are left out.

        Args:
            trials: all of the generation.
            generation: its number.
            easier: of its commitment, see there.
        """
        found = [reveal_of(trial, generation, easier) for trial in trials]
        known = [reveal for reveal in found if reveal is not None]
        known.sort(key=lambda reveal: reveal.candidate_id)
        return History((*self.reveals, *known))

    def best(self, n: int) -> list[Reveal]:
        """Return the n of highest reward, best first."""
        return sorted(self.reveals, key=lambda r: (-r.reward, r.candidate_id))[:n]

    def worst(self, n: int) -> list[Reveal]:
        """Return the n of lowest reward, worst first."""
        return sorted(self.reveals, key=lambda r: (r.reward, r.candidate_id))[:n]

    def latest(self, n: int) -> list[Reveal]:
        """Return the n revealed last, oldest first."""
        return list(self.reveals[-n:]) if n else []

    def to_json(self) -> Json:
        """Return rows without parameters, which the archive has."""
        return [
            [
                r.generation,
                r.candidate_id,
                r.reward,
                r.n_cells,
                r.n_failed,
                r.failure,
                r.latency_ms,
                r.cost_usd,
            ]
            for r in self.reveals
        ]

    @classmethod
    def from_json(cls, value: Json, params_of: Mapping[str, Params]) -> "History":
        """Rebuild what ``to_json`` wrote; reveals of unknown candidates are left out."""
        rows: list[Any] = value if isinstance(value, list) else []
        return cls(
            tuple(
                Reveal(
                    generation=row[0],
                    candidate_id=row[1],
                    params=params_of[row[1]],
                    reward=row[2],
                    n_cells=row[3],
                    n_failed=row[4],
                    failure=row[5],
                    latency_ms=row[6],
                    cost_usd=row[7],
                )
                for row in rows
                if row[1] in params_of
            )
        )


def adjusted_mean(evaluations: Sequence[Evaluation], easier: Mapping[str, float]) -> float:
    """Return the mean reward less what is known of the cases, within [0, 1].

    Args:
        evaluations: with a reward, at least one.
        easier: case → by how much its rewards lie above the mean over cases; others count for 0.
    """
    adjusted = [(e.reward or 0.0) - easier.get(e.cell.case_id, 0.0) for e in evaluations]
    return min(1.0, max(0.0, sum(adjusted) / len(adjusted)))


def reveal_of(
    trial: Trial, generation: int, easier: Mapping[str, float] | None = None
) -> Reveal | None:
    """Return what a trial revealed; ``None``: no search cell of it has a reward."""
    cells = [e for e in trial.evaluations if e.cell.role == "search" and e.reward is not None]
    if not cells:
        return None
    failed = [e.error_type or "error" for e in cells if e.fault == "candidate"]
    return Reveal(
        generation=generation,
        candidate_id=trial.candidate.candidate_id,
        params=trial.candidate.params,
        reward=adjusted_mean(cells, easier or {}),
        n_cells=len(cells),
        n_failed=len(failed),
        failure=max(sorted(set(failed)), key=failed.count) if failed else None,
        latency_ms=_mean(e.latency_ms for e in cells),
        cost_usd=_mean(e.cost_usd for e in cells),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the policy sees before it chooses strategies."""

    history: History
    space: Space
    budget_left: float
    """Share of the run that is left, in [0, 1]."""
    entropy: float = 1.0
    """Mean entropy of the last statistical predictions over log 10."""
    last_gain: float = 0.0
    """Mean information gain of the last generation, in nats."""

    def features(self) -> np.ndarray:
        """Return s_g, (N_FEATURES,), each within [-1, 1]."""
        s = np.array(
            [
                1.0,
                self.budget_left,
                self.entropy,
                _slope(self.history),
                len(self.history) / MANY_TRIALS,
                coverage(self.history, self.space),
                self.last_gain,
            ]
        )
        assert s.shape == (N_FEATURES,)  # noqa: S101 - one list, one length
        return np.asarray(np.clip(s, -1.0, 1.0), np.float64)


def _slope(history: History) -> float:
    """Return ten times the gain of the best reward per generation, over the last three."""
    by_generation: dict[int, float] = {}
    for reveal in history.reveals:
        best = by_generation.get(reveal.generation, 0.0)
        by_generation[reveal.generation] = max(best, reveal.reward)
    generations = sorted(by_generation)
    if len(generations) < 2:
        return 0.0
    best_so_far = np.maximum.accumulate([by_generation[g] for g in generations])
    window = best_so_far[-SLOPE_WINDOW - 1 :]
    return 10.0 * float(window[-1] - window[0]) / (len(window) - 1)


def coverage(history: History, space: Space) -> float:
    """Return the mean share of each parameter's values, or fifths of its range, that were tried."""
    if not space.parameters:
        return 1.0
    return float(np.mean([_share_tried(history, name, p) for name, p in space.parameters.items()]))


def _share_tried(history: History, name: str, parameter: Parameter) -> float:
    tried: set[int] = set()
    n = N_PLACES if parameter.n_values is None else parameter.n_values
    if not isinstance(parameter, Choice):
        n = min(n, N_PLACES)
    for reveal in history.reveals:
        value = reveal.params.get(name)
        if value is None:
            continue
        if isinstance(parameter, Choice):
            tried.add(parameter.index(value))
        else:
            tried.add(min(n - 1, int(n * parameter.to_unit(value))))
        if len(tried) == n:
            break
    return len(tried) / n


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOutcomes:
    """What came of the candidates that were predicted."""

    observed: Mapping[str, int] = field(default_factory=dict)
    """Candidate → index of the outcome."""
    void: Mapping[str, str] = field(default_factory=dict)
    """Candidate → why its outcome counts for nothing."""
