"""Trials that a thought may have read: those before its generation.

Everything that enters a prompt passes through ``TrialHistory.as_of``, so a thought of generation g
cannot hold an outcome of g (arXiv 2510.01265, Prop. 3: the thought must not depend on what it is
to predict).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from convergence_core.records import Evaluation, Json, Params, Trial
from convergence_core.rlp.policy import N_FEATURES
from convergence_core.space import Choice, Parameter, Space

MANY_TRIALS: Final = 200
"""Trials that count as a full history."""
N_PLACES: Final = 5
"""Parts that a number's range is divided into to tell what was covered."""
SLOPE_WINDOW: Final = 3
"""Generations over which improvement is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSummary:
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
    """Most frequent reason of those; ``None`` means none failed."""
    latency_ms: float | None = None
    """Mean over its cells; ``None`` if not known."""
    cost_usd: float | None = None
    """Mean per cell of known prices; ``None`` if none is known."""


_STORED: Final = (
    "generation", "candidate_id", "reward", "n_cells", "n_failed", "failure", "latency_ms", "cost_usd",
)  # fmt: skip
"""Fields of a row, in their order; the archive has the parameters."""


@dataclass(frozen=True, slots=True)
class TrialHistory:
    """All trials with a reward, oldest first."""

    trials: tuple[TrialSummary, ...] = ()

    def __len__(self) -> int:
        """Trials."""
        return len(self.trials)

    def as_of(self, generation: int) -> "TrialHistory":
        """Return what was known before a generation."""
        return TrialHistory(tuple(t for t in self.trials if t.generation < generation))

    def after(
        self, trials: Sequence[Trial], generation: int, easier: Mapping[str, float] | None = None
    ) -> "TrialHistory":
        """Return the history with a generation's trials; those without a reward are left out.

        Args:
            trials: all of the generation.
            generation: its number.
            easier: of its commitment, see there.
        """
        summaries = (summary_of(trial, generation, easier or {}) for trial in trials)
        known = sorted((t for t in summaries if t is not None), key=lambda t: t.candidate_id)
        return TrialHistory((*self.trials, *known))

    def best(self, n: int) -> list[TrialSummary]:
        """Return the n of highest reward, best first."""
        return sorted(self.trials, key=lambda t: (-t.reward, t.candidate_id))[:n]

    def worst(self, n: int) -> list[TrialSummary]:
        """Return the n of lowest reward, worst first."""
        return sorted(self.trials, key=lambda t: (t.reward, t.candidate_id))[:n]

    def latest(self, n: int) -> list[TrialSummary]:
        """Return the last n, oldest first."""
        return list(self.trials[-n:]) if n else []

    def to_json(self) -> Json:
        """Return a row of ``_STORED`` for each trial."""
        return [[getattr(trial, name) for name in _STORED] for trial in self.trials]

    @classmethod
    def from_json(cls, value: Json, params_of: Mapping[str, Params]) -> "TrialHistory":
        """Rebuild what ``to_json`` wrote; trials of unknown candidates are left out."""
        rows: list[Any] = value if isinstance(value, list) else []
        return cls(
            tuple(
                TrialSummary(params=params_of[row[1]], **dict(zip(_STORED, row, strict=True)))
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


def summary_of(trial: Trial, generation: int, easier: Mapping[str, float]) -> TrialSummary | None:
    """Return what became known of a trial; ``None`` means no search cell of it has a reward."""
    cells = [e for e in trial.evaluations if e.cell.role == "search" and e.reward is not None]
    if not cells:
        return None
    failed = [e.error_type or "error" for e in cells if e.fault == "candidate"]
    return TrialSummary(
        generation=generation,
        candidate_id=trial.candidate.candidate_id,
        params=trial.candidate.params,
        reward=adjusted_mean(cells, easier),
        n_cells=len(cells),
        n_failed=len(failed),
        failure=max(sorted(set(failed)), key=failed.count) if failed else None,
        latency_ms=_mean(e.latency_ms for e in cells),
        cost_usd=_mean(e.cost_usd for e in cells),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def features(
    history: TrialHistory,
    space: Space,
    *,
    budget_left: float,
    entropy: float = 1.0,
    last_gain: float = 0.0,
) -> np.ndarray:
    """Return s_g, what the policy sees before it draws strategies, (N_FEATURES,), each in [-1, 1].

    Args:
        history: what is known.
        space: where candidates lie.
        budget_left: share of the run that is left, in [0, 1].
        entropy: mean entropy of the last statistical predictions over log 10.
        last_gain: mean information gain of the last generation, in nats.
    """
    full, covered = len(history) / MANY_TRIALS, coverage(history, space)
    s = np.array([1.0, budget_left, entropy, _slope(history), full, covered, last_gain])
    assert s.shape == (N_FEATURES,)  # noqa: S101 - one list, one length
    return np.asarray(np.clip(s, -1.0, 1.0), np.float64)


def _slope(history: TrialHistory) -> float:
    """Return ten times the gain of the best reward per generation, over the last three."""
    best_of: dict[int, float] = {}
    for trial in history.trials:
        best_of[trial.generation] = max(best_of.get(trial.generation, 0.0), trial.reward)
    if len(best_of) < 2:
        return 0.0
    best_so_far = np.maximum.accumulate([best_of[g] for g in sorted(best_of)])
    window = best_so_far[-SLOPE_WINDOW - 1 :]
    return 10.0 * float(window[-1] - window[0]) / (len(window) - 1)


def coverage(history: TrialHistory, space: Space) -> float:
    """Return the mean share of each parameter's values, or fifths of its range, that were tried."""
    if not space.parameters:
        return 1.0
    return float(np.mean([_share_tried(history, name, p) for name, p in space.parameters.items()]))


def _share_tried(history: TrialHistory, name: str, parameter: Parameter) -> float:
    n = N_PLACES if parameter.n_values is None else parameter.n_values
    if not isinstance(parameter, Choice):
        n = min(n, N_PLACES)
    values = (trial.params[name] for trial in history.trials if name in trial.params)
    tried: set[int] = set()
    for value in values:
        if isinstance(parameter, Choice):
            tried.add(parameter.index(value))
        else:
            tried.add(min(n - 1, int(n * parameter.to_unit(value))))
        if len(tried) == n:
            break
    return len(tried) / n
