"""Markdown tables of results."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.optimizer import records
from benchmarks.optimizer.records import Row
from benchmarks.optimizer.regret import (
    Runs,
    Scale,
    calibrate,
    compare,
    over_seeds,
    raise_scales,
    read_scales,
)
from benchmarks.optimizer.tasks import get_task
from benchmarks.tables import header, row

_NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Rows and their regrets."""

    rows: tuple[Row, ...]
    regrets: Mapping[tuple[str, int], Runs]
    """(opponent, budget) → regrets."""
    evaluated: Mapping[tuple[str, int], Runs]
    """Regrets of the best evaluated point, if the task can compute them."""
    suite_of: Mapping[str, str]

    @classmethod
    def of(cls, rows: Iterable[Row], scales: Mapping[str, Scale]) -> "Results":
        """Compute regrets, with scales raised to the best true value in any row."""
        kept = tuple(rows)
        seen = [(r.task, v) for r in kept for v in (r.true, r.true_best_seen) if v is not None]
        raised = raise_scales(scales, seen)
        regrets: dict[tuple[str, int], dict[tuple[str, int], float]] = defaultdict(dict)
        evaluated: dict[tuple[str, int], dict[tuple[str, int], float]] = defaultdict(dict)
        for r in kept:
            arm, job, scale = (r.opponent, r.budget), (r.task, r.seed), raised[r.task]
            regrets[arm][job] = scale.regret(r.true)
            if r.true_best_seen is not None:
                evaluated[arm][job] = scale.regret(r.true_best_seen)
        suite_of = {r.task: r.suite for r in kept}
        return cls(rows=kept, regrets=regrets, evaluated=evaluated, suite_of=suite_of)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Results":
        """Read result files.

        Raises:
            FileNotFoundError: If a file does not exist.
        """
        return cls.of(records.read(paths), read_scales())

    @property
    def opponents(self) -> list[str]:
        """All opponents, in file order."""
        return list(dict.fromkeys(r.opponent for r in self.rows))

    @property
    def tasks(self) -> list[str]:
        """All tasks, in file order."""
        return list(dict.fromkeys(r.task for r in self.rows))

    @property
    def budgets(self) -> list[int]:
        """All budgets, ascending."""
        return sorted({r.budget for r in self.rows})

    def runs(self, opponent: str, budget: int, tasks: Sequence[str]) -> Runs:
        """Return an opponent's regrets on tasks."""
        chosen = set(tasks)
        found = self.regrets.get((opponent, budget), {})
        return {run: regret for run, regret in found.items() if run[0] in chosen}


def task_table(
    results: Results, opponents: Sequence[str], tasks: Sequence[str], budget: int
) -> str:
    """Return mean regrets by task and opponent, then by suite, overall, and of the best evaluated."""
    cells = {o: _by_task(results.runs(o, budget, tasks)) for o in opponents}
    present = [task for task in tasks if any(task in cells[o] for o in opponents)]
    lines = [header("task", *opponents)]
    for task in present:
        values = [cells[o].get(task, math.nan) for o in opponents]
        least = np.nanmin(values)
        shown = [_show(v, bold=v <= least + 1e-12) for v in values]
        lines.append(row(task, *shown))
    suites = dict.fromkeys(results.suite_of[task] for task in present)
    for suite in suites:
        members = [task for task in present if results.suite_of[task] == suite]
        means = [_mean(cells[o], members) for o in opponents]
        lines.append(row(f"mean of {suite} ({len(members)})", *map(_show, means)))
    means = [_mean(cells[o], present) for o in opponents]
    lines.append(row(f"**mean of all {len(present)}**", *map(_show, means)))
    best = (_by_task(results.evaluated.get((o, budget), {})) for o in opponents)
    lines.append(row("mean of the best evaluated", *(_show(_mean(b, present)) for b in best)))
    return "\n".join(lines)


def summary(
    results: Results, opponents: Sequence[str], tasks: Sequence[str], budget: int, reference: str
) -> str:
    """Return each opponent against a reference, paired by task and seed.

    Means cover the tasks and seeds of both, so they differ from ``task_table`` if runs are missing.
    """
    base = results.runs(reference, budget, tasks)
    lines = [
        header(
            "opponent", "mean", "s.e.", f"{reference} on the same", "difference", "s.e.",
            "better on", "by two s.e.: better, worse", "seeds", "difference by suite",
        )
    ]  # fmt: skip
    for opponent in opponents:
        runs = results.runs(opponent, budget, tasks)
        if not runs:
            continue
        try:
            found = compare(runs, base, results.suite_of) if opponent != reference else None
            own = over_seeds(runs) if found is None else found.own
        except ValueError as error:
            lines.append(row(opponent, f"({error})", *[_NOTHING] * 8))
            continue
        cells = [opponent, _show(own.mean), _show(own.error)]
        if found is None:
            cells += [_NOTHING] * 5 + [str(own.n_seeds), _NOTHING]
        else:
            cells += [
                _show(found.reference.mean),
                f"{100 * found.difference.mean:+.1f}",
                _show(found.difference.error),
                f"{found.n_wins}/{found.n_tasks}",
                f"{found.n_clear_wins}, {found.n_clear_losses}",
                str(found.difference.n_seeds),
                ", ".join(f"{s} {100 * d:+.1f}" for s, d in found.by_suite.items()),
            ]
        lines.append(row(*cells))
    return "\n".join(lines)


def cost_table(results: Results, opponents: Sequence[str]) -> str:
    """Return CPU at the largest budget."""
    budget = max(results.budgets)
    lines = [header("opponent", "ask", "tell", "worst batch", "recommend", "runs")]
    for opponent in opponents:
        rows = [r for r in results.rows if r.opponent == opponent and r.budget == budget]
        if rows:
            means = [np.mean([getattr(r, n) for r in rows]) for n in ("ask_ms", "tell_ms")]
            worst = max(r.worst_batch_ms for r in rows)
            final = np.mean([r.recommend_ms for r in rows])
            shown = [f"{x:.1f}" for x in (*means, worst, final)]
            lines.append(row(opponent, *shown, len(rows)))
    return "\n".join(lines)


def claims_table(results: Results, opponents: Sequence[str]) -> str:
    """Return bias and coverage of claims per suite, or an empty string without claims.

    ``came true`` is how often no evaluated point was truly better by more than delta, next to the
    mean claimed probability. It needs the true values of all evaluated points.
    """
    lines = [
        header(
            "opponent", "budget", "suite", "claimed - true", "s.e.", "coverage", "level",
            "P(within delta)", "came true", "runs",
        )
    ]  # fmt: skip
    for opponent in opponents:
        for budget in results.budgets:
            rows = [r for r in results.rows if (r.opponent, r.budget) == (opponent, budget)]
            rows = [r for r in rows if r.claimed is not None]
            suites = sorted({r.suite for r in rows})
            for suite in [*suites, "all"] if rows else []:
                chosen = rows if suite == "all" else [r for r in rows if r.suite == suite]
                lines.append(row(opponent, budget, suite, *_claims(chosen)))
    return "\n".join(lines) if lines[1:] else ""


def _claims(rows: Sequence[Row]) -> list[str]:
    claims = []
    for r in rows:
        unit = get_task(r.task).unit
        assert r.claimed is not None
        assert r.claimed_low is not None
        assert r.claimed_high is not None
        claims.append(
            (r.claimed / unit, r.claimed_low / unit, r.claimed_high / unit, r.true / unit)
        )
    found = calibrate(claims)
    known = [r for r in rows if r.true_best_seen is not None and r.delta is not None]
    stated = [r.probability_within for r in known if r.probability_within is not None]
    came_true = [
        r.true_best_seen - r.true <= r.delta
        for r in known
        if r.true_best_seen is not None and r.delta is not None
    ]
    return [
        f"{found.bias:+.4f}",
        _NOTHING if math.isnan(found.error) else f"{found.error:.4f}",
        f"{found.coverage:.2f}",
        f"{rows[0].level:g}",
        f"{np.mean(stated):.2f}" if stated else _NOTHING,
        f"{np.mean(came_true):.2f}" if came_true else _NOTHING,
        str(found.n),
    ]


def _by_task(runs: Runs) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for (task, _), regret in runs.items():
        values[task].append(regret)
    return {task: float(np.mean(v)) for task, v in values.items()}


def _mean(by_task: Mapping[str, float], tasks: Sequence[str]) -> float:
    """Return the mean, or NaN if a task is absent."""
    return float(np.mean([by_task.get(task, math.nan) for task in tasks]))


def _show(value: float, *, bold: bool = False) -> str:
    if math.isnan(value):
        return _NOTHING
    return f"**{100 * value:.1f}**" if bold else f"{100 * value:.1f}"
