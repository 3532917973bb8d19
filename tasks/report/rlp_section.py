"""The report's part on thoughts: read from the tables, said in blocks."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convergence_core.ports import Store
from convergence_core.records import Params
from convergence_core.rlp.gain import EProcess, interval_of
from convergence_core.rlp.report import BestThought, ThinkingPoint, ThinkingReport
from convergence_core.rlp.strategies import NO_THOUGHT
from convergence_core.space import Space
from tasks.report.blocks import Block, Bullets, Grid, Heading, Inline, LongText, Paragraph
from tasks.report.phrases import UNKNOWN, clean, plural

_THOUGHTS = """
    WITH texts AS (
      SELECT payload_sha256, min(text) AS text FROM payloads
      WHERE run_id = $run AND kind = 'thought' GROUP BY payload_sha256)
    SELECT t.*, x.text FROM thoughts t LEFT JOIN texts x ON x.payload_sha256 = t.text_sha256
    WHERE t.run_id = $run ORDER BY t.generation, t.thought_id"""
_GAINS = """
    SELECT generation, thought_id, subject, gain, resolution FROM predictions
    WHERE run_id = $run AND NOT is_rescored ORDER BY generation, position"""
_MEASURED = ("gain, nats", "e-value", "resolution, nats", "its e-value")
_UPDATES = "SELECT generation, stats FROM policy_updates WHERE run_id = $run ORDER BY generation"


def thinking_report(
    store: Store, run_id: str, *, space: Space, params_of: Mapping[str, Params]
) -> ThinkingReport | None:
    """Return what thoughts were worth; ``None``: nobody thought.

    Args:
        store: holds the run's tables.
        run_id: of the run.
        space: for labels of candidates.
        params_of: candidate → its parameters.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    thoughts = store.rows(_THOUGHTS, {"run": run_id})
    if not thoughts:
        return None
    gains = store.rows(_GAINS, {"run": run_id})
    updates: dict[Any, dict[str, float]] = {
        row["generation"]: _map(row["stats"]) for row in store.rows(_UPDATES, {"run": run_id})
    }
    curve = tuple(
        _point(generation, thoughts, gains, updates.get(generation, {}))
        for generation in sorted({int(str(row["generation"])) for row in thoughts})
    )
    means = [point.gain for point in curve if point.gain is not None]
    spread = interval_of(means)
    resolved = [point.resolution for point in curve if point.resolution is not None]
    evidence = EProcess.of(point.e_value for point in curve)
    of_resolution = EProcess.of(point.resolution_e_value for point in curve)
    spoken = [row for row in thoughts if row["agent_id"] != NO_THOUGHT]
    scored = [row for row in spoken if row["information_gain"] is not None]
    estimators = [str(row["estimator"]) for row in thoughts if row["estimator"] is not None]
    return ThinkingReport(
        estimator=estimators[-1] if estimators else None,
        n_thoughts=len(spoken),
        n_failed=sum(row["reason"] is not None for row in spoken),
        n_scored=len(scored),
        n_silent=len(thoughts) - len(spoken),
        gain=float(np.mean(means)) if means else None,
        se=None if spread is None else spread[1],
        e_value=evidence.e_value,
        top_e_value=evidence.top_e_value,
        resolution=float(np.mean(resolved)) if resolved else None,
        resolution_e_value=of_resolution.e_value,
        top_resolution_e_value=of_resolution.top_e_value,
        best=_best(scored, gains, space, params_of),
        curve=curve,
        reasons=dict(Counter(reason for row in spoken for reason in _reasons(row))),
    )


def _reasons(thought: Mapping[str, Any]) -> list[str]:
    found = dict.fromkeys(thought[name] for name in ("reason", "unheard", "dropped"))
    return [str(reason) for reason in found if reason is not None]


def _point(
    generation: int,
    thoughts: Sequence[Mapping[str, Any]],
    gains: Sequence[Mapping[str, Any]],
    stats: Mapping[str, float],
) -> ThinkingPoint:
    own = _known(gains, "gain", generation)
    e_values = _known(thoughts, "e_value", generation)
    resolved = _known(gains, "resolution", generation)
    resolution_e_values = _known(thoughts, "resolution_e_value", generation)
    heard = {
        str(row["agent_id"]): float(row["weight"])
        for row in thoughts
        if row["generation"] == generation and row["weight"] is not None
    }
    spread = interval_of(own)
    return ThinkingPoint(
        generation=generation,
        gain=float(np.mean(own)) if own else None,
        se=None if spread is None else spread[1],
        e_value=float(np.mean(e_values)) if e_values else None,
        resolution=float(np.mean(resolved)) if resolved else None,
        resolution_e_value=float(np.mean(resolution_e_values)) if resolution_e_values else None,
        probabilities={k[2:]: v for k, v in stats.items() if k.startswith("p_")},
        weights={k[2:]: v for k, v in stats.items() if k.startswith("w_")},
        weight=sum(heard.values()),
    )


def _known(rows: Sequence[Mapping[str, Any]], name: str, generation: int) -> list[float]:
    """Return a column's values of a generation, unknown ones left out."""
    of_it = (row[name] for row in rows if row["generation"] == generation)
    return [float(value) for value in of_it if value is not None]


def _best(
    scored: Sequence[Mapping[str, Any]],
    gains: Sequence[Mapping[str, Any]],
    space: Space,
    params_of: Mapping[str, Params],
) -> BestThought | None:
    if not scored:
        return None
    best = max(scored, key=lambda row: float(row["information_gain"]))
    own = [row for row in gains if row["thought_id"] == best["thought_id"]]
    foreseen = max(own, key=lambda row: float(row["gain"]), default=None)
    tested = None if foreseen is None else params_of.get(str(foreseen["subject"]))
    return BestThought(
        text=str(best["text"] or ""),
        strategy=str(best["agent_id"]),
        generation=int(best["generation"]),
        gain=float(best["information_gain"]),
        se=best["gain_se"],
        n_outcomes=int(best["n_outcomes"]),
        tested=None if tested is None else space.label(tested),
    )


def _map(value: Any) -> dict[str, float]:
    return {str(k): float(v) for k, v in dict(value or {}).items()}


# -- blocks and words


def thinking_markdown(report: ThinkingReport) -> str:
    """Return the state of thoughts as Markdown: sentence, thought, gains, policy, weights."""
    lines = [f"**{report.sentence}**", "", *(f"* {plain_line(line)}" for line in lines_of(report))]
    if report.best is not None:
        lines += ["", *(f"> {plain_line(part)}" for part in report.best.text.splitlines() or [""])]
    names = sorted({name for point in report.curve for name in point.probabilities})
    columns = ("generation", *_MEASURED, "weight in the draws", *names)
    lines += ["", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for point in report.curve:
        *measured, _, weight = _row(point)
        shares = [f"{100 * point.probabilities.get(name, 0.0):.0f} %" for name in names]
        cells = (*measured, weight, *shares)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def plain_line(text: str) -> str:
    """Return a line in which nothing is markup."""
    line = " ".join(clean(text).split())
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", line)


def thinking_blocks(report: ThinkingReport | None) -> list[Block]:
    """Return the section on thoughts; empty where nobody thought."""
    if report is None:
        return []
    blocks: list[Block] = [
        Heading("What thoughts were worth"),
        Paragraph((report.sentence,), "lead"),
        Bullets(tuple((line,) for line in lines_of(report))),
    ]
    if report.best is not None:
        blocks.append(Grid(("best thought",), ((LongText(clean(report.best.text)),),)))
    rows = tuple(_row(point) for point in report.curve)
    columns = ("generation", *_MEASURED, "most likely next", "weight in the draws")
    numbers = frozenset({0, 1, 2, 3, 4, 6})
    blocks.append(Grid(columns, rows, numbers, folded="Generation by generation"))
    return blocks


def lines_of(report: ThinkingReport) -> list[str]:
    """Return what is told of thoughts beside the sentence, a line each."""
    asked = plural(report.n_thoughts, "thought")
    parts = [f"{report.n_scored:,} scored", f"{report.n_failed:,} of no use"]
    if report.n_silent:
        parts.append(f"{report.n_silent:,} times nothing was thought")
    lines = [f"{asked}: {', '.join(parts)}; probabilities: {report.estimator or 'none'}."]
    best = report.best
    if best is not None:
        se = "" if best.se is None else f" ± {best.se:.2f}"
        lines.append(
            f"Best: {best.strategy}, generation {best.generation}, gain {best.gain:+.2f}{se} nats "
            f"on {plural(best.n_outcomes, 'outcome')}."
        )
        if best.tested is not None:
            lines.append(f"Tested: {clean(best.tested)}.")
    if report.gain is not None:
        se = "" if report.se is None else f" ± {report.se:.2f}"
        lines.append(
            f"Mean gain {report.gain:+.2f}{se} nats over {plural(report.n_episodes, 'episode')}."
        )
    if report.resolution is not None:
        lines.append(
            f"Mean gain over their own average forecasts {report.resolution:+.2f} nats: 0 is what "
            "thoughts earn that say the same of every candidate."
        )
    lines += [
        f"{plural(n, 'time')}: {clean(reason)}"
        for reason, n in sorted(report.reasons.items(), key=lambda item: -item[1])[:3]
    ]
    return lines


def _row(point: ThinkingPoint) -> tuple[Inline, ...]:
    se = "" if point.se is None else f" ± {point.se:.2f}"
    likely = max(point.probabilities.items(), key=lambda item: item[1], default=None)
    return (
        str(point.generation),
        UNKNOWN if point.gain is None else f"{point.gain:+.2f}{se}",
        UNKNOWN if point.e_value is None else f"{point.e_value:.3g}",
        UNKNOWN if point.resolution is None else f"{point.resolution:+.2f}",
        UNKNOWN if point.resolution_e_value is None else f"{point.resolution_e_value:.3g}",
        UNKNOWN if likely is None else f"{likely[0]} {100 * likely[1]:.0f} %",
        UNKNOWN if point.weight is None else f"{100 * point.weight:.0f} %",
    )
