"""Section on thoughts: gains and evidence from the tables, as blocks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from convergence_core.ports import Store
from convergence_core.records import Params
from convergence_core.result.number_text import UNKNOWN, plural
from convergence_core.rlp.gain import EProcess, interval_of
from convergence_core.rlp.report import BestThought, ThinkingPoint, ThinkingReport
from convergence_core.rlp.strategies import NO_THOUGHT
from convergence_core.space import Space
from tasks.report.blocks import Block, Columns, Grid, LongText, Paragraph, section, table
from tasks.report.evidence import rows_of
from tasks.report.phrases import clean, most_frequent

_THOUGHTS = """
    WITH texts AS (
      SELECT payload_sha256, min(text) AS text FROM payloads
      WHERE run_id = $run AND kind = 'thought' GROUP BY payload_sha256)
    SELECT t.*, x.text FROM thoughts t LEFT JOIN texts x ON x.payload_sha256 = t.text_sha256
    WHERE t.run_id = $run ORDER BY t.generation, t.thought_id"""
_GAINS = """
    SELECT generation, thought_id, subject, gain, resolution FROM predictions
    WHERE run_id = $run AND NOT is_rescored ORDER BY generation, position"""


def thinking_report(
    store: Store, run_id: str, *, space: Space, params_of: Mapping[str, Params]
) -> ThinkingReport | None:
    """Return what thoughts were worth; ``None`` means RLP wrote none.

    Args:
        store: holds the run's tables.
        run_id: of the run.
        space: for labels of candidates.
        params_of: candidate → its parameters.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    run = {"run": run_id}
    thoughts = rows_of(store, _THOUGHTS, run)
    if not thoughts:
        return None
    gains = rows_of(store, _GAINS, run)
    curve = tuple(
        _point(generation, thoughts, gains)
        for generation in sorted({row["generation"] for row in thoughts})
    )
    gain, se = _mean_and_error([point.gain for point in curve])
    resolution, _ = _mean_and_error([point.resolution for point in curve])
    evidence = EProcess.of(point.e_value for point in curve)
    of_resolution = EProcess.of(point.resolution_e_value for point in curve)
    spoken = [row for row in thoughts if row["agent_id"] != NO_THOUGHT]
    scored = [row for row in spoken if row["information_gain"] is not None]
    n_over_budget = sum("budget.max_" in (row["reason"] or "") for row in spoken)
    estimators = [row["estimator"] for row in thoughts if row["estimator"] is not None]
    return ThinkingReport(
        estimator=estimators[-1] if estimators else None,
        n_thoughts=len(spoken),
        n_failed=sum(row["reason"] is not None for row in spoken) - n_over_budget,
        n_over_budget=n_over_budget,
        n_scored=len(scored),
        n_silent=len(thoughts) - len(spoken),
        gain=gain,
        se=se,
        e_value=evidence.e_value,
        top_e_value=evidence.top_e_value,
        resolution=resolution,
        resolution_e_value=of_resolution.e_value,
        top_resolution_e_value=of_resolution.top_e_value,
        best=_best(scored, gains, space, params_of),
        curve=curve,
        reasons=dict(Counter(reason for row in spoken for reason in _reasons(row))),
    )


def _mean_and_error(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Return the mean of the known values and its standard error; ``None`` if too few."""
    known = [value for value in values if value is not None]
    spread = interval_of(known)
    return float(np.mean(known)) if known else None, None if spread is None else spread[1]


def _reasons(thought: Mapping[str, Any]) -> list[str]:
    reasons = dict.fromkeys(thought[name] for name in ("reason", "ignored_reason", "dropped"))
    return [str(reason) for reason in reasons if reason is not None]


def _point(
    generation: int,
    thoughts: Sequence[Mapping[str, Any]],
    gains: Sequence[Mapping[str, Any]],
) -> ThinkingPoint:
    def known(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[float | None, float | None]:
        return _mean_and_error(row[name] for row in rows if row["generation"] == generation)

    gain, se = known(gains, "gain")
    return ThinkingPoint(
        generation=generation,
        gain=gain,
        se=se,
        e_value=known(thoughts, "e_value")[0],
        resolution=known(gains, "resolution")[0],
        resolution_e_value=known(thoughts, "resolution_e_value")[0],
    )


def _best(
    scored: Sequence[Mapping[str, Any]],
    gains: Sequence[Mapping[str, Any]],
    space: Space,
    params_of: Mapping[str, Params],
) -> BestThought | None:
    if not scored:
        return None
    best = max(scored, key=lambda row: row["information_gain"])
    gain_rows = [row for row in gains if row["thought_id"] == best["thought_id"]]
    foreseen = max(gain_rows, key=lambda row: row["gain"], default=None)
    tested = None if foreseen is None else params_of.get(foreseen["subject"])
    return BestThought(
        text=best["text"] or "",
        strategy=best["agent_id"],
        generation=best["generation"],
        gain=best["information_gain"],
        se=best["gain_se"],
        n_outcomes=best["n_outcomes"],
        tested=None if tested is None else space.name(space.candidate(tested)),
    )


# -- blocks and words

_MEASURED = ("gain, nats", "e-value", "resolution, nats", "its e-value")


_ABOUT_NATS = (
    "Gains are in nats, the natural logarithm of how much likelier a thought made what then "
    "happened: +0.69 is twice as likely, 0 no better than without it."
)


def thinking_blocks(report: ThinkingReport | None) -> list[Block]:
    """Return the section on thoughts; empty where RLP wrote none."""
    if report is None:
        return []
    best: list[Block] = []
    if report.best is not None:
        best = [Grid(("best thought",), ((LongText(clean(report.best.text)),),))]
    columns: Columns[ThinkingPoint] = {
        "generation": lambda point: str(point.generation),
        _MEASURED[0]: lambda point: _with_error(point.gain, point.se),
        _MEASURED[1]: lambda point: _number(point.e_value, ".3g"),
        _MEASURED[2]: lambda point: _number(point.resolution, "+.2f"),
        _MEASURED[3]: lambda point: _number(point.resolution_e_value, ".3g"),
    }
    numbers = table(report.curve, columns, numeric=columns, folded="Generation by generation")
    note = Paragraph((_ABOUT_NATS,), "note")
    return section(
        "What thoughts were worth", report.sentence, thinking_lines(report), [*best, note, numbers]
    )


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _with_error(value: float | None, se: float | None) -> str:
    return _number(value, "+.2f") + ("" if se is None else f" ± {se:.2f}")


def thinking_lines(report: ThinkingReport) -> list[str]:
    """Return what is said of thoughts beside the sentence, a line each."""
    parts = [f"{report.n_scored:,} scored", f"{report.n_failed:,} of no use"]
    if report.n_over_budget:
        parts.append(f"{report.n_over_budget:,} refused by the budget")
    if report.n_silent:
        parts.append(f"{report.n_silent:,} times nothing was thought")
    thoughts = plural(report.n_thoughts, "thought")
    lines = [f"{thoughts}: {', '.join(parts)}; probabilities: {report.estimator or 'none'}."]
    best = report.best
    if best is not None:
        lines.append(
            f"Best: {best.strategy}, generation {best.generation}, gain "
            f"{_with_error(best.gain, best.se)} nats on {plural(best.n_outcomes, 'outcome')}."
        )
        if best.tested is not None:
            lines.append(f"Tested: {clean(best.tested)}.")
    if report.gain is not None:
        gain = _with_error(report.gain, report.se)
        lines.append(f"Mean gain {gain} nats over {plural(report.n_episodes, 'episode')}.")
    if report.resolution is not None:
        lines.append(
            f"Mean gain over their own average forecasts {report.resolution:+.2f} nats: 0 is what "
            "thoughts earn that say the same of every candidate."
        )
    return [*lines, *most_frequent(report.reasons)]
