"""The report's part on preferences: read from the tables, said in blocks."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from convergence_core.judges.trust.audit import LEAST_ITEMS, LEAST_TRUST
from convergence_core.judges.trust.drift import LIMIT, Drift
from convergence_core.judges.trust.exploitation import N_ROUNDS
from convergence_core.ports import Store
from convergence_core.sao.preferences import JudgedPair
from convergence_core.sao.report import PreferenceReport, PreferenceRound, SamplePair, missing
from convergence_core.sao.rows import PREFERENCES_SQL, pairs_of
from tasks.report.blocks import Block, Bullets, Grid, Heading, Inline, LongText, Paragraph
from tasks.report.phrases import UNKNOWN, clean, plural
from tasks.report.rlp_section import plain_line

_ROUNDS = "SELECT * FROM preference_rounds WHERE run_id = $run ORDER BY generation"
_TOTAL = """
    SELECT count(DISTINCT p.pair_id) AS n FROM preferences p JOIN runs r USING (run_id)
    WHERE p.dropped_by IS NULL AND r.name = $system"""
_PROPOSED = "SELECT count(*) AS n FROM candidates WHERE run_id = $run AND origin = 'sao'"
_LONGEST = 600
"""Characters of a sample text."""


def preference_report(store: Store, run_id: str, system: str) -> PreferenceReport | None:
    """Return what preferences came to; ``None``: no round was played.

    Args:
        store: holds the run's tables.
        run_id: of the run.
        system: its name, whose earlier runs count in the total.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    rows = store.rows(_ROUNDS, {"run": run_id})
    if not rows:
        return None
    pairs = pairs_of(store.rows(PREFERENCES_SQL, {"run": run_id, "system": None}))
    errors: Counter[str] = Counter()
    for row in rows:
        errors.update(json.loads(str(row["errors_json"])))
    estimators = [str(row["estimator"]) for row in rows if row["estimator"] is not None]
    return PreferenceReport(
        estimator=estimators[-1] if estimators else None,
        rounds=tuple(_round(row) for row in rows),
        sample=_sample(pairs),
        n_total=int(str(store.rows(_TOTAL, {"system": system})[0]["n"])),
        n_variants=sum(int(str(row["n_variants"])) for row in rows),
        n_proposed=int(str(store.rows(_PROPOSED, {"run": run_id})[0]["n"])),
        errors=dict(errors),
        restored=bool(rows[-1]["is_frozen"]),
    )


def _numbers(row: Mapping[str, Any], name: str) -> dict[str, float]:
    return {str(k): float(v) for k, v in dict(row[name] or {}).items()}


def _pair(numbers: Mapping[str, float], *names: str) -> tuple[float, float] | None:
    first, second = (numbers.get(name) for name in names)
    return None if first is None or second is None else (first, second)


def _round(row: Mapping[str, Any]) -> PreferenceRound:
    judge, coverage, dropped = (_numbers(row, name) for name in ("judge", "coverage", "dropped"))
    rho = None
    if "correlation_low" in judge:
        rho = (judge["correlation"], judge["correlation_low"], judge["correlation_high"])
    drift = _pair(coverage, "drift_up", "drift_down")
    return PreferenceRound(
        generation=int(row["generation"]),
        n_prompts=int(row["n_prompts"]),
        n_pairs=int(row["n_pairs"]),
        n_kept=int(row["n_kept"]),
        dropped={name: int(n) for name, n in dropped.items()},
        agreement=judge.get("agreement"),
        position=judge.get("position"),
        length=judge.get("length"),
        length_correlation=judge.get("length_correlation"),
        accuracy=row["accuracy"],
        n_items=int(row["n_items"]),
        log_score=judge.get("log_score"),
        calibration_error=judge.get("calibration_error"),
        correlation=rho,
        trust=float(row["trust"]),
        is_enabled=float(row["trust"]) >= LEAST_TRUST,
        pooled_right=judge.get("pooled_right"),
        pooled_items=judge.get("pooled_items"),
        lower_bound=judge.get("lower_bound"),
        n_missing=max(0, LEAST_ITEMS - int(judge.get("different_items", 0))),
        drift=drift,
        is_drifting=drift is not None and Drift(up=drift[0], down=drift[1]).is_alarming,
        slopes=_pair(judge, "judge_slope", "grounded_slope"),
        is_frozen=bool(row["is_frozen"]),
        vendi=coverage.get("vendi"),
        distinct_2=coverage.get("distinct_2"),
        duplicates=coverage.get("duplicates"),
        held_out=coverage.get("held_out"),
        evaluated=coverage.get("evaluated"),
        proposed=coverage.get("proposed"),
        note=row["note"],
    )


def _sample(pairs: Sequence[JudgedPair]) -> SamplePair | None:
    """Return the newest kept pair that is not frozen."""
    for pair in reversed(pairs):
        if pair.is_kept and pair.split == "train":
            return SamplePair(
                prompt=pair.comparison.prompt,
                chosen=pair.chosen.text,
                rejected=pair.rejected.text,
                q=max(pair.judgement.q, 1.0 - pair.judgement.q),
            )
    return None


# -- blocks and words


def preference_lines(report: PreferenceReport) -> list[str]:
    """Return what is told of preferences beside the sentence, a line each."""
    made = sum(one.n_pairs for one in report.rounds)
    lines = [
        f"Pairs: {report.n_kept:,} kept of {made:,} in {plural(len(report.rounds), 'round')}; "
        f"{report.n_total:,} of this system in the store; judged by: {report.estimator or 'nobody'}."
    ]
    if report.dropped:
        listed = ", ".join(f"{n:,} {_named(name)}" for name, n in report.dropped.items())
        lines.append(f"Dropped: {listed}.")
    last = report.rounds[-1] if report.rounds else None
    if last is not None:
        judge = (
            "no grounded item to try it on"
            if last.accuracy is None
            else f"right on {100 * last.accuracy:.0f} % of {plural(last.n_items, 'grounded item')}"
        )
        lines.append(f"Judge: {judge}; {_trust(last)}; {_biases(last)}.")
        lines.append(_believed(last.why_disbelieved))
        lines += [f"Audit: {told}." for told in _audited(last)]
        lines.append(f"Watched: {_watched(last)}.")
        if last.note is not None:
            lines.append(f"Last round: {clean(last.note)}.")
    if report.n_variants:
        lines.append(f"{plural(report.n_variants, 'text')} distilled from preferred answers.")
    lines += [
        f"{plural(n, 'time')}: {clean(error)}"
        for error, n in sorted(report.errors.items(), key=lambda item: -item[1])[:3]
    ]
    return lines


def sample_lines(report: PreferenceReport) -> list[tuple[str, str]]:
    """Return the parts of the sample pair with their names; empty: there is none."""
    found = report.sample
    if found is None:
        return []
    parts = (("prompt", found.prompt), ("chosen", found.chosen), ("rejected", found.rejected))
    return [(name, clean(text)[:_LONGEST]) for name, text in parts]


def preference_blocks(report: PreferenceReport | None) -> list[Block]:
    """Return the section on preferences; empty where none were written."""
    if report is None:
        return []
    blocks: list[Block] = [
        Heading("What preferences came to"),
        Paragraph((report.sentence,), "lead"),
        Bullets(tuple((line,) for line in preference_lines(report))),
    ]
    parts = sample_lines(report)
    if parts:
        rows = tuple((name, LongText(text)) for name, text in parts)
        blocks.append(Grid(("newest pair", ""), rows))
    blocks.append(
        Grid(
            _COLUMNS,
            tuple(_row(one) for one in report.rounds),
            frozenset(range(len(_COLUMNS))),
            folded="Round by round",
        )
    )
    return blocks


def preference_markdown(report: PreferenceReport) -> str:
    """Return the state of preferences as Markdown: sentence, sample, counters, rounds."""
    lines = [f"**{report.sentence}**", ""]
    lines += [f"* {plain_line(line)}" for line in preference_lines(report)]
    for name, text in sample_lines(report):
        lines += ["", f"> {name}: {plain_line(text)}"]
    lines += ["", "| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in _row(one)) + " |" for one in report.rounds]
    return "\n".join(lines) + "\n"


_COLUMNS = (
    *("before generation", "prompts", "pairs", "kept", "both orders agree"),
    *("judge right", "lower bound", "trust", "drift", "slopes"),
    *("Vendi", "distinct-2", "held-out", "configurations"),
)


def _row(one: PreferenceRound) -> tuple[Inline, ...]:
    shares = [
        UNKNOWN if value is None else f"{100 * value:.0f} %"
        for value in (one.evaluated, one.proposed)
    ]
    return (
        str(one.generation),
        f"{one.n_prompts:,}",
        f"{one.n_pairs:,}",
        f"{one.n_kept:,}",
        _percent(one.agreement),
        UNKNOWN if one.accuracy is None else f"{_percent(one.accuracy)} of {one.n_items:,}",
        UNKNOWN if not one.pooled_items else _percent(one.lower_bound),
        f"{one.trust:.2f}",
        UNKNOWN if one.drift is None else f"+{one.drift[0]:.1f} / -{one.drift[1]:.1f}",
        UNKNOWN if one.slopes is None else f"{one.slopes[0]:+.1f} / {one.slopes[1]:+.1f}",
        UNKNOWN if one.vendi is None else f"{one.vendi:.1f}",
        UNKNOWN if one.distinct_2 is None else f"{one.distinct_2:.2f}",
        _percent(one.held_out),
        f"{shares[0]} evaluated, {shares[1]} compared",
    )


def _believed(why_not: str | None) -> str:
    """Return whether the judge is believed, and what hangs on it."""
    if why_not is None:
        return "The judge is believed: exports and distilled texts may rest on the last round."
    return f"The judge is not believed: {why_not}. No export and no distilled text rests on the last round."


def _trust(last: PreferenceRound) -> str:
    """Return trust with what it rests on."""
    told = f"trust {last.trust:.2f}"
    if last.n_missing:
        return f"{told}: {missing(last.n_missing)}"
    if not last.pooled_items or last.pooled_right is None:
        return told
    return (
        f"{told} (over all audits {last.pooled_right:.1f} of {last.pooled_items:.1f} right, so at least "
        f"{_percent(last.lower_bound)}; believed from {LEAST_TRUST:g})"
    )


def _audited(last: PreferenceRound) -> list[str]:
    """Return what the last audit says of the judge's probabilities; empty: there was none."""
    if last.log_score is None or last.calibration_error is None:
        return []
    told = (
        f"log score {last.log_score:.2f} nats, a coin's is -0.69; calibration error "
        f"{last.calibration_error:.2f}"
    )
    if last.correlation is None:
        return [f"{told}; rank correlation with the truth {UNKNOWN}"]
    rho, low, high = last.correlation
    return [f"{told}; rank correlation with the truth {rho:+.2f} [{low:+.2f}, {high:+.2f}]"]


def _watched(last: PreferenceRound) -> str:
    """Return how near drift and exploitation are to an alarm."""
    drift = (
        "drift not known"
        if last.drift is None
        else f"drift +{last.drift[0]:.1f} and -{last.drift[1]:.1f}, alarm above {LIMIT:g}"
    )
    if last.slopes is None:
        return f"{drift}; exploitation: insufficient rounds, fewer than {N_ROUNDS}"
    state = "alarmed" if last.is_frozen else "quiet"
    return (
        f"{drift}; exploitation {state}: t of the judge's slope {last.slopes[0]:+.1f}, of the grounded "
        f"one {last.slopes[1]:+.1f}, over {N_ROUNDS} rounds"
    )


def _biases(last: PreferenceRound) -> str:
    agreement = f"both orders agree on {_percent(last.agreement)}"
    rho = last.length_correlation
    told = UNKNOWN if rho is None else f"{rho:+.2f}"
    if last.position is None or last.length is None:
        return (
            f"{agreement}; length and wins correlate by {told}; position and length effects: "
            "insufficient pairs"
        )
    return (
        f"{agreement}; shown first {last.position:+.2f}, twice as long "
        f"{0.693 * last.length:+.2f} log-odds; length and wins correlate by {told}"
    )


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.0f} %"


def _named(name: str) -> str:
    return name.replace("_", " ")
