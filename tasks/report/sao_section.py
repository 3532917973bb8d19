"""Section on preferences: rounds and their judge from the tables, as blocks."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from convergence_core.judges.trust import LEAST_ITEMS, LEAST_TRUST
from convergence_core.records import fields_of
from convergence_core.result.number_text import UNKNOWN, plural, whole_percent
from convergence_core.sao.preferences import JudgedPair
from convergence_core.sao.report import PreferenceReport, PreferenceRound, SamplePair
from convergence_core.sao.rows import PREFERENCES_SQL, pairs_of
from tasks.report.blocks import Block, Columns, Grid, long_text, section, table
from tasks.report.phrases import clean, most_frequent
from tasks.store.tables.parquet_store import ParquetStore

_ROUNDS = "SELECT * FROM preference_rounds WHERE run_id = $run ORDER BY generation"
_TOTAL = """
    SELECT count(DISTINCT p.pair_id) AS n FROM preferences p JOIN runs r USING (run_id)
    WHERE p.dropped_by IS NULL AND r.name = $system"""
_PROPOSED = "SELECT count(*) AS n FROM candidates WHERE run_id = $run AND origin = 'sao'"
_LONGEST = 600
"""Maximum characters of a sample."""


def preference_report(store: ParquetStore, run_id: str, system: str) -> PreferenceReport | None:
    """Return the report on a run's preferences; ``None`` if it had no round.

    Args:
        store: store with the run's tables.
        run_id: id of the run.
        system: name of the system; its earlier runs count in the total.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    rows = store.rows(_ROUNDS, {"run": run_id})
    if not rows:
        return None
    errors: Counter[str] = Counter()
    for row in rows:
        errors.update(json.loads(row["errors_json"]))
    return PreferenceReport(
        rounds=tuple(_round(row) for row in rows),
        sample=_sample(pairs_of(store.rows(PREFERENCES_SQL, {"run": run_id, "system": None}))),
        n_total=store.rows(_TOTAL, {"system": system})[0]["n"],
        n_variants=sum(row["n_variants"] for row in rows),
        n_proposed=store.rows(_PROPOSED, {"run": run_id})[0]["n"],
        errors=dict(errors),
    )


def _round(row: Mapping[str, Any]) -> PreferenceRound:
    judge, dropped = (row[name] or {} for name in ("judge", "dropped"))
    columns = (
        "generation",
        "n_prompts",
        "n_pairs",
        "n_kept",
        "accuracy",
        "n_items",
        "trust",
        "note",
    )
    return PreferenceRound(
        **{name: row[name] for name in columns},
        agreement=judge.get("agreement"),
        dropped={name: int(n) for name, n in dropped.items()},
        is_enabled=row["trust"] >= LEAST_TRUST,
        n_missing=max(0, LEAST_ITEMS - int(judge.get("different_items", 0))),
        lower_bound=judge.get("lower_bound") if judge.get("pooled_items") else None,
    )


def _sample(pairs: Sequence[JudgedPair]) -> SamplePair | None:
    """Return the newest kept pair outside the audit split."""
    for pair in reversed(pairs):
        if pair.is_kept and pair.split == "train":
            return SamplePair(
                prompt=pair.comparison.prompt,
                chosen=pair.chosen.text,
                rejected=pair.rejected.text,
                q=max(pair.judgement.q, 1.0 - pair.judgement.q),
            )
    return None


# -- blocks and sentences


def preference_blocks(report: PreferenceReport | None) -> list[Block]:
    """Return the section on preferences; empty if SAO wrote none."""
    if report is None:
        return []
    blocks: list[Block] = []
    if report.sample is not None:
        texts = fields_of(report.sample, "prompt", "chosen", "rejected")
        rows = tuple((name, long_text(clean(text)[:_LONGEST])) for name, text in texts.items())
        blocks.append(Grid(("newest pair", ""), rows))
    rounds = table(report.rounds, _COLUMNS, numeric=_COLUMNS, folded="Round by round")
    lines = preference_lines(report)
    return section("Preferences", report.sentence, lines, [*blocks, rounds])


def preference_lines(report: PreferenceReport) -> list[str]:
    """Return the lines on preferences after the section's sentence."""
    n_pairs = sum(each.n_pairs for each in report.rounds)
    lines = [
        f"Pairs: {report.n_kept:,} kept of {n_pairs:,} in {plural(len(report.rounds), 'round')}; "
        f"{report.n_total:,} of this system in the store."
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
        items = plural(last.n_items, "grounded item")
        judge = f"right on {whole_percent(last.accuracy)} of {items}"
    if last.lower_bound is not None:
        judge += (
            f"; trust {last.trust:.2f} (over all audits right on at least "
            f"{whole_percent(last.lower_bound)}; trusted from {LEAST_TRUST:g})"
        )
    judge += f"; both orders agree on {whole_percent(last.agreement)}"
    why = last.why_disbelieved
    believed = (
        "The judge is trusted: exports and distilled prompts may use the last round."
        if why is None
        else f"The judge is not trusted: {why}. No export or distilled prompt uses the last round."
    )
    note = [] if last.note is None else [f"Last round: {clean(last.note)}."]
    return [f"Judge: {judge}.", believed, *note]


def _right(each: PreferenceRound) -> str:
    accuracy = each.accuracy
    return UNKNOWN if accuracy is None else f"{whole_percent(accuracy)} of {each.n_items:,}"


_COLUMNS: Final[Columns[PreferenceRound]] = {
    "before generation": lambda each: str(each.generation),
    "prompts": lambda each: f"{each.n_prompts:,}",
    "pairs": lambda each: f"{each.n_pairs:,}",
    "kept": lambda each: f"{each.n_kept:,}",
    "both orders agree": lambda each: whole_percent(each.agreement),
    "judge right": _right,
    "trust": lambda each: f"{each.trust:.2f}",
}
