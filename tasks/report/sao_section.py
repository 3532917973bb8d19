"""Section on preferences: rounds and their judge from the tables, as blocks."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from convergence_core.judges.trust.audit import LEAST_ITEMS, LEAST_TRUST
from convergence_core.judges.trust.drift import LIMIT, Drift
from convergence_core.judges.trust.exploitation import N_ROUNDS
from convergence_core.ports import Store
from convergence_core.result.number_text import UNKNOWN, plural, whole_percent
from convergence_core.sao.preferences import JudgedPair
from convergence_core.sao.report import PreferenceReport, PreferenceRound, SamplePair, missing
from convergence_core.sao.rows import PREFERENCES_SQL, pairs_of
from tasks.report.blocks import Block, Bullets, Columns, Grid, Heading, LongText, Paragraph, table
from tasks.report.evidence import rows_of
from tasks.report.phrases import clean, most_frequent

_ROUNDS = "SELECT * FROM preference_rounds WHERE run_id = $run ORDER BY generation"
_TOTAL = """
    SELECT count(DISTINCT p.pair_id) AS n FROM preferences p JOIN runs r USING (run_id)
    WHERE p.dropped_by IS NULL AND r.name = $system"""
_PROPOSED = "SELECT count(*) AS n FROM candidates WHERE run_id = $run AND origin = 'sao'"
_OF_JUDGE = (
    *("agreement", "position", "length", "length_correlation", "log_score"),
    *("calibration_error", "pooled_right", "pooled_items", "lower_bound"),
)
_OF_COVERAGE = ("vendi", "distinct_2", "duplicates", "held_out", "evaluated", "proposed")
"""Numbers of a round that its maps hold by their names."""
_LONGEST = 600
"""Characters of a sample text."""


def preference_report(store: Store, run_id: str, system: str) -> PreferenceReport | None:
    """Return what preferences came to; ``None``: SAO had no round.

    Args:
        store: holds the run's tables.
        run_id: of the run.
        system: its name, whose earlier runs count in the total.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    rows = rows_of(store, _ROUNDS, {"run": run_id})
    if not rows:
        return None
    pairs = pairs_of(store.rows(PREFERENCES_SQL, {"run": run_id, "system": None}))
    errors: Counter[str] = Counter()
    for row in rows:
        errors.update(json.loads(row["errors_json"]))
    estimators = [row["estimator"] for row in rows if row["estimator"] is not None]
    return PreferenceReport(
        estimator=estimators[-1] if estimators else None,
        rounds=tuple(_round(row) for row in rows),
        sample=_sample(pairs),
        n_total=rows_of(store, _TOTAL, {"system": system})[0]["n"],
        n_variants=sum(row["n_variants"] for row in rows),
        n_proposed=rows_of(store, _PROPOSED, {"run": run_id})[0]["n"],
        errors=dict(errors),
        restored=rows[-1]["is_frozen"],
    )


def _pair(numbers: Mapping[str, float], *names: str) -> tuple[float, float] | None:
    first, second = (numbers.get(name) for name in names)
    return None if first is None or second is None else (first, second)


def _round(row: Mapping[str, Any]) -> PreferenceRound:
    judge, coverage, dropped = (row[name] or {} for name in ("judge", "coverage", "dropped"))
    rho = None
    if "correlation_low" in judge:
        rho = (judge["correlation"], judge["correlation_low"], judge["correlation_high"])
    drift = _pair(coverage, "drift_up", "drift_down")
    return PreferenceRound(
        generation=row["generation"],
        n_prompts=row["n_prompts"],
        n_pairs=row["n_pairs"],
        n_kept=row["n_kept"],
        dropped={name: int(n) for name, n in dropped.items()},
        accuracy=row["accuracy"],
        n_items=row["n_items"],
        correlation=rho,
        trust=row["trust"],
        is_enabled=row["trust"] >= LEAST_TRUST,
        n_missing=max(0, LEAST_ITEMS - int(judge.get("different_items", 0))),
        drift=drift,
        is_drifting=drift is not None and Drift(up=drift[0], down=drift[1]).is_alarming,
        slopes=_pair(judge, "judge_slope", "grounded_slope"),
        is_frozen=row["is_frozen"],
        note=row["note"],
        **{name: judge.get(name) for name in _OF_JUDGE},
        **{name: coverage.get(name) for name in _OF_COVERAGE},
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


def preference_blocks(report: PreferenceReport | None) -> list[Block]:
    """Return the section on preferences; empty where SAO wrote none."""
    if report is None:
        return []
    blocks: list[Block] = [
        Heading("What preferences came to"),
        Paragraph((report.sentence,), "lead"),
        Bullets(tuple((line,) for line in preference_lines(report))),
    ]
    found = report.sample
    if found is not None:
        parts = {"prompt": found.prompt, "chosen": found.chosen, "rejected": found.rejected}
        rows = tuple((name, LongText(clean(text)[:_LONGEST])) for name, text in parts.items())
        blocks.append(Grid(("newest pair", ""), rows))
    grid = table(report.rounds, _COLUMNS, numeric=_COLUMNS, folded="Round by round")
    return [*blocks, grid]


def preference_lines(report: PreferenceReport) -> list[str]:
    """Return what is said of preferences beside the sentence, a line each."""
    n_pairs = sum(one.n_pairs for one in report.rounds)
    lines = [
        f"Pairs: {report.n_kept:,} kept of {n_pairs:,} in {plural(len(report.rounds), 'round')}; "
        f"{report.n_total:,} of this system in the store; judged by: {report.estimator or 'nobody'}."
    ]
    if report.dropped:
        listed = (f"{n:,} {name.replace('_', ' ')}" for name, n in report.dropped.items())
        lines.append(f"Dropped: {', '.join(listed)}.")
    if report.rounds:
        lines += _last_round(report.rounds[-1])
    if report.n_variants:
        lines.append(f"{plural(report.n_variants, 'text')} distilled from preferred answers.")
    return [*lines, *most_frequent(report.errors)]


def _last_round(last: PreferenceRound) -> list[str]:
    judge = "no grounded item to try it on"
    if last.accuracy is not None:
        right = whole_percent(last.accuracy)
        judge = f"right on {right} of {plural(last.n_items, 'grounded item')}"
    return [
        f"Judge: {judge}; {_trust(last)}; {_biases(last)}.",
        _believed(last.why_disbelieved),
        *(f"Audit: {text}." for text in _audited(last)),
        f"Watched: {_watched(last)}.",
        *([] if last.note is None else [f"Last round: {clean(last.note)}."]),
    ]


def _pair_of(pair: tuple[float, float] | None, up: str, down: str, form: str) -> str:
    if pair is None:
        return UNKNOWN
    return f"{up}{pair[0]:{form}} / {down}{pair[1]:{form}}"


def _known(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _right(one: PreferenceRound) -> str:
    accuracy = one.accuracy
    return UNKNOWN if accuracy is None else f"{whole_percent(accuracy)} of {one.n_items:,}"


def _explored(one: PreferenceRound) -> str:
    evaluated, proposed = whole_percent(one.evaluated), whole_percent(one.proposed)
    return f"{evaluated} evaluated, {proposed} compared"


_COLUMNS: Columns[PreferenceRound] = {
    "before generation": lambda one: str(one.generation),
    "prompts": lambda one: f"{one.n_prompts:,}",
    "pairs": lambda one: f"{one.n_pairs:,}",
    "kept": lambda one: f"{one.n_kept:,}",
    "both orders agree": lambda one: whole_percent(one.agreement),
    "judge right": _right,
    "lower bound": lambda one: whole_percent(one.lower_bound if one.pooled_items else None),
    "trust": lambda one: f"{one.trust:.2f}",
    "drift": lambda one: _pair_of(one.drift, "+", "-", ".1f"),
    "slopes": lambda one: _pair_of(one.slopes, "", "", "+.1f"),
    "Vendi": lambda one: _known(one.vendi, ".1f"),
    "distinct-2": lambda one: _known(one.distinct_2, ".2f"),
    "held-out": lambda one: whole_percent(one.held_out),
    "configurations": _explored,
}


def _believed(why_not: str | None) -> str:
    """Return whether the judge is believed, and what hangs on it."""
    if why_not is None:
        return "The judge is believed: exports and distilled texts may rest on the last round."
    return f"The judge is not believed: {why_not}. No export and no distilled text rests on the last round."


def _trust(last: PreferenceRound) -> str:
    """Return trust with what it rests on."""
    text = f"trust {last.trust:.2f}"
    if last.n_missing:
        return f"{text}: {missing(last.n_missing)}"
    if not last.pooled_items or last.pooled_right is None:
        return text
    return (
        f"{text} (over all audits {last.pooled_right:.1f} of {last.pooled_items:.1f} right, so at least "
        f"{whole_percent(last.lower_bound)}; believed from {LEAST_TRUST:g})"
    )


def _audited(last: PreferenceRound) -> list[str]:
    """Return what the last audit says of the judge's probabilities; empty: there was none."""
    if last.log_score is None or last.calibration_error is None:
        return []
    text = (
        f"log score {last.log_score:.2f}, a coin's is -0.69, a perfect judge's 0; calibration error "
        f"{last.calibration_error:.2f}"
    )
    if last.correlation is None:
        return [f"{text}; rank correlation with the truth {UNKNOWN}"]
    rho, low, high = last.correlation
    return [f"{text}; rank correlation with the truth {rho:+.2f} [{low:+.2f}, {high:+.2f}]"]


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
    agreement = f"both orders agree on {whole_percent(last.agreement)}"
    rho = last.length_correlation
    text = UNKNOWN if rho is None else f"{rho:+.2f}"
    if last.position is None or last.length is None:
        return (
            f"{agreement}; length and wins correlate by {text}; position and length effects: "
            "insufficient pairs"
        )
    return (
        f"{agreement}; shown first {last.position:+.2f}, twice as long "
        f"{0.693 * last.length:+.2f} log-odds; length and wins correlate by {text}"
    )
