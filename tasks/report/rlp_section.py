"""Section on hypotheses: gains, evidence and proposed settings, as blocks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from convergence_core.records import Params
from convergence_core.result.number_text import UNKNOWN, plural
from convergence_core.rlp.gain import EProcess, interval_of
from convergence_core.rlp.reply import written_notes
from convergence_core.rlp.report import BestThought, ProposedReport, ThinkingPoint, ThinkingReport
from convergence_core.space import Space
from tasks.report.blocks import Block, Columns, Grid, Paragraph, long_text, section, table
from tasks.report.phrases import clean, most_frequent
from tasks.store.tables.parquet_store import ParquetStore

_THOUGHTS = """
    WITH texts AS (
      SELECT payload_sha256, min(text) AS text FROM payloads
      WHERE run_id = $run AND kind = 'thought' GROUP BY payload_sha256)
    SELECT t.*, x.text FROM thoughts t LEFT JOIN texts x ON x.payload_sha256 = t.text_sha256
    WHERE t.run_id = $run ORDER BY t.generation, t.thought_id"""
_CURVE = """
    WITH thought AS (
      SELECT generation, avg(e_value) AS e_value, avg(resolution_e_value) AS resolution_e_value,
             avg(weight) AS weight, bool_or(agent_id NOT IN ('none', 'start')) AS has_notes
      FROM thoughts WHERE run_id = $run GROUP BY generation),
    forecast AS (
      SELECT generation, avg(gain) AS gain, stddev_samp(gain) / sqrt(count(gain)) AS se,
             avg(resolution) AS resolution
      FROM predictions WHERE run_id = $run GROUP BY generation)
    SELECT * FROM thought LEFT JOIN forecast USING (generation) ORDER BY generation"""
_PROPOSED = """
    WITH forecasts AS (
      SELECT *, bool_or(is_own) OVER (PARTITION BY generation) AS is_beside
      FROM predictions WHERE run_id = $run)
    SELECT count(*) FILTER (is_own) AS n, avg(outcome) FILTER (is_own) AS mean,
           max(outcome) FILTER (is_own) AS best, arg_max(subject, outcome) FILTER (is_own) AS subject,
           avg(outcome) FILTER (NOT is_own AND is_beside) AS others
    FROM forecasts"""


def thinking_report(
    store: ParquetStore, run_id: str, *, space: Space, params_of: Mapping[str, Params]
) -> ThinkingReport | None:
    """Return the report on hypotheses; ``None`` if RLP wrote none.

    Args:
        store: store with the run's tables.
        run_id: id of the run.
        space: search space, for labels of candidates.
        params_of: candidate → its parameters.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    run = {"run": run_id}
    thoughts = store.rows(_THOUGHTS, run)
    if not thoughts:
        return None
    curve = tuple(ThinkingPoint(**row) for row in store.rows(_CURVE, run))
    gain, se = _mean_and_error([point.gain for point in curve])
    resolution, _ = _mean_and_error([point.resolution for point in curve])
    evidence = EProcess.of(point.e_value for point in curve)
    of_resolution = EProcess.of(point.resolution_e_value for point in curve)
    requested = [row for row in thoughts if row["prompt_sha256"] is not None]
    scored = [row for row in requested if row["information_gain"] is not None]
    failed = [row for row in requested if row["reason"] is not None and row["text_sha256"] is None]
    failed += [row for row in requested if (row["reason"] or "").startswith("unreadable")]
    failed = [*{row["thought_id"]: row for row in failed}.values()]
    n_over_budget = sum("budget.max_" in (row["reason"] or "") for row in failed)
    return ThinkingReport(
        n_thoughts=len(requested),
        n_failed=len(failed) - n_over_budget,
        n_over_budget=n_over_budget,
        n_scored=len(scored),
        gain=gain,
        se=se,
        e_value=evidence.e_value,
        top_e_value=evidence.top_e_value,
        resolution=resolution,
        resolution_e_value=of_resolution.e_value,
        top_resolution_e_value=of_resolution.top_e_value,
        of_notes=_of_notes(curve),
        best=_best(scored),
        proposed=_proposed(store.rows(_PROPOSED, run)[0], space, params_of),
        curve=curve,
        reasons=dict(Counter(reason for row in requested for reason in _reasons(row))),
    )


def _mean_and_error(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Return the mean of the known values and its standard error; ``None`` if too few."""
    known = [value for value in values if value is not None]
    spread = interval_of(known)
    return float(np.mean(known)) if known else None, None if spread is None else spread[1]


def _reasons(thought: Mapping[str, Any]) -> list[str]:
    reasons = dict.fromkeys(thought[name] for name in ("reason", "dropped"))
    return [str(reason) for reason in reasons if reason is not None]


def _of_notes(curve: Sequence[ThinkingPoint]) -> tuple[float, float] | None:
    """Return the mean gain with notes minus that without, and its error; ``None`` if unknown."""
    arms = [
        interval_of([p.gain for p in curve if p.gain is not None and p.has_notes is has_notes])
        for has_notes in (True, False)
    ]
    if arms[0] is None or arms[1] is None:
        return None
    return arms[0][0] - arms[1][0], float(np.hypot(arms[0][1], arms[1][1]))


def _best(scored: Sequence[Mapping[str, Any]]) -> BestThought | None:
    if not scored:
        return None
    best = max(scored, key=lambda row: row["information_gain"])
    return BestThought(
        text=written_notes(best["text"] or ""),
        strategy=best["agent_id"],
        generation=best["generation"],
        gain=best["information_gain"],
        se=best["gain_se"],
        n_outcomes=best["n_outcomes"],
    )


def _proposed(
    row: Mapping[str, Any], space: Space, params_of: Mapping[str, Params]
) -> ProposedReport | None:
    if not row["n"]:
        return None
    params = params_of.get(row["subject"])
    return ProposedReport(
        name=None if params is None else space.name(space.candidate(params)),
        **{name: row[name] for name in ("n", "mean", "best", "others")},
    )


# -- blocks and sentences

_KINDS: Final = {"notes": "with notes", "none": "without notes", "start": "starting settings"}
"""Kind of a hypothesis → its label."""
_ABOUT_NATS = (
    "Gains are in nats, the natural logarithm of how much more likely a forecast made what then "
    "happened than the search's own posterior did: +0.69 is twice as likely."
)


def thinking_blocks(report: ThinkingReport | None) -> list[Block]:
    """Return the section on hypotheses; empty if RLP wrote none."""
    if report is None:
        return []
    best: list[Block] = []
    if report.best is not None:
        best = [Grid(("best thought",), ((long_text(clean(report.best.text)),),))]
    columns: Columns[ThinkingPoint] = {
        "generation": lambda point: str(point.generation),
        "notes": lambda point: "yes" if point.has_notes else "no",
        "gain, nats": lambda point: _with_error(point.gain, point.se),
        "e-value": lambda point: _number(point.e_value, ".3g"),
        "resolution, nats": lambda point: _number(point.resolution, "+.2f"),
        "its e-value": lambda point: _number(point.resolution_e_value, ".3g"),
        "weight": lambda point: _number(point.weight, ".2f"),
    }
    numeric = tuple(name for name in columns if name not in ("generation", "notes"))
    numbers = table(report.curve, columns, numeric=numeric, folded="Generation by generation")
    note = Paragraph((_ABOUT_NATS,), "note")
    return section("Hypotheses", report.sentence, thinking_lines(report), [*best, note, numbers])


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _with_error(value: float | None, se: float | None) -> str:
    return _number(value, "+.2f") + ("" if se is None else f" ± {se:.2f}")


def thinking_lines(report: ThinkingReport) -> list[str]:
    """Return the lines on hypotheses after the section's sentence."""
    parts = [f"{report.n_scored:,} scored", f"{report.n_failed:,} failed"]
    if report.n_over_budget:
        parts.append(f"{report.n_over_budget:,} refused by the budget")
    lines = [f"{plural(report.n_thoughts, 'thought')}: {', '.join(parts)}."]
    proposed = report.proposed
    if proposed is not None:
        others = "" if proposed.others is None else f" (forecast ones: {proposed.others:.3f})"
        name = "" if proposed.name is None else f", {clean(proposed.name)}"
        lines.append(
            f"{plural(proposed.n, 'proposed setting')} evaluated: mean score {proposed.mean:.3f}{others}, best "
            f"{proposed.best:.3f}{name}."
        )
    best = report.best
    if best is not None:
        lines.append(
            f"Best: {_KINDS.get(best.strategy, best.strategy)}, generation {best.generation}, gain "
            f"{_with_error(best.gain, best.se)} nats on {plural(best.n_outcomes, 'outcome')}."
        )
    if report.gain is not None:
        gain = _with_error(report.gain, report.se)
        lines.append(f"Mean gain {gain} nats over {plural(report.n_episodes, 'episode')}.")
    if report.of_notes is not None:
        lines.append(
            f"Notes added {_with_error(*report.of_notes)} nats to forecasts made without them."
        )
    if report.resolution is not None:
        lines.append(
            f"Mean gain over their own average forecasts {report.resolution:+.2f} nats: "
            "thoughts that forecast the same for every candidate gain 0."
        )
    return [*lines, *most_frequent(report.reasons)]
