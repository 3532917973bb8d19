"""Section on written prompts: the winner's lineage from the tables, as blocks."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from convergence_core.prompts.report import FamilyEdge, PromptReport
from convergence_core.prompts.state import DRAWN, NO_ANSWER, OVER_BUDGET, RULES
from convergence_core.records import sha256_hex
from convergence_core.result import CandidateReport, RunResult
from convergence_core.result.number_text import UNKNOWN, plural, signed, signed_interval, usd
from tasks.report.blocks import Block, Columns, Heading, Paragraph, TextDiff, section, table
from tasks.report.phrases import clean
from tasks.store.journal.ledger import WHOLE_USD
from tasks.store.tables.parquet_store import ParquetStore

_SQL = "SELECT * FROM mutation_effects WHERE run_id = $run ORDER BY generation, position"
_COST = f"""
    SELECT {WHOLE_USD} AS usd FROM attempts
    WHERE run_id = $run AND purpose = 'writing' AND state <> 'cached'"""  # noqa: S608 - constants


def prompt_report(
    store: ParquetStore, result: RunResult, texts: Mapping[str, str]
) -> PromptReport | None:
    """Return the report on written prompts; ``None`` if none were written.

    Args:
        store: store with the run's tables.
        result: result of the run, with its winner.
        texts: text id → prompt, of the user's prompts.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    rows = store.rows(_SQL, {"run": result.run_id})
    if not rows:
        return None
    (cost,) = store.rows(_COST, {"run": result.run_id})
    return PromptReport(
        writers=tuple(dict.fromkeys(row["writer"] for row in rows)),
        n_written=sum(row["verdict"] not in (NO_ANSWER, OVER_BUDGET) for row in rows),
        n_kept=sum(row["verdict"] == "kept" for row in rows),
        n_over_budget=sum(row["verdict"] == OVER_BUDGET for row in rows),
        refusals=Counter(
            row["verdict"] for row in rows if row["verdict"] not in ("kept", OVER_BUDGET)
        ),
        cost_usd=cost["usd"],
        family=() if result.best is None else tuple(_family(rows, result.best, texts)),
        gap=_gap(result.best),
        gap_defaults=_gap(result.baseline),
    )


def _gap(report: CandidateReport | None) -> float | None:
    if report is None:
        return None
    fresh, held_out = report.estimate("fresh"), report.estimate("holdout")
    return None if fresh is None or held_out is None else fresh.mean - held_out.mean


def _family(
    rows: Sequence[Mapping[str, Any]], winner: CandidateReport, texts: Mapping[str, str]
) -> Iterator[FamilyEdge]:
    """Yield the edits from given prompts to the winner's, by parameter."""
    for name, value in winner.params.items():
        kept = [row for row in rows if row["parameter"] == name and row["verdict"] == "kept"]
        by_id = {row["text_id"]: row for row in kept}
        known = {**texts, **{row["text_id"]: row["text"] for row in kept}}
        edges: list[FamilyEdge] = []
        at = sha256_hex(str(value))[:16]
        while (row := by_id.pop(at, None)) is not None:
            edges.append(_edge(row, known))
            at = edges[-1].parent_id
        yield from reversed(edges)


def _edge(row: Mapping[str, Any], texts: Mapping[str, str]) -> FamilyEdge:
    parents = json.loads(row["parent_ids_json"])
    return FamilyEdge(
        parameter=row["parameter"],
        generation=row["generation"],
        operator=row["operator"],
        category=row["category"],
        parent_id=parents[0],
        other_id=parents[1] if len(parents) > 1 else None,
        text_id=row["text_id"],
        parent=texts.get(parents[0], ""),
        text=row["text"],
        diagnosis=row["diagnosis"],
        failures=tuple(json.loads(row["failures_json"])),
        n_shared=row["n_shared"],
        effect=row["effect"],
        effect_se=row["effect_se"],
        fixed=row["fixed"] if row["n_shared"] else 0,
        broken=row["broken"] if row["n_shared"] else 0,
    )


# -- blocks and sentences


def prompt_blocks(report: PromptReport, *, is_offline: bool) -> list[Block]:
    """Return the section on written prompts; an offline run's are the mock's."""
    blocks: list[Block] = []
    if report.family:
        blocks.append(table(report.family, _COLUMNS, numeric=_NUMERIC))
    for number, edge in enumerate(report.family, 1):
        title = f"{number}. {edge.parameter}: {edge.operator}"
        blocks.append(Heading(title, 3))
        if edge.diagnosis:
            blocks.append(Paragraph((f"Diagnosis: {clean(edge.diagnosis)}",), "note"))
        if edge.failures:
            blocks.append(Paragraph((f"Shown: {', '.join(edge.failures)}.",), "note"))
        blocks.append(TextDiff(edge.diff()))
    lines = prompt_lines(report, is_offline=is_offline)
    return section("Prompt edits", report.sentence, lines, blocks)


def prompt_lines(report: PromptReport, *, is_offline: bool) -> list[str]:
    """Return the lines after the section's sentence."""
    cost = UNKNOWN if report.cost_usd is None else usd(report.cost_usd)
    names = [
        f"the mock for {name}" if is_offline and name != RULES else name
        for name in report.writers
        if name != DRAWN
    ]
    drawn = ["demonstrations drawn from search cases"] if DRAWN in report.writers else []
    lines = [f"Written by: {', '.join([*names, *drawn])}; cost of writing: {cost}."]
    if is_offline or RULES in report.writers:
        how = "`llm`, `prompts.writer`" if RULES in report.writers else "without `--offline`"
        lines.append(f"Rules wrote these prompts; a model writes better ones ({how}).")
    if report.n_over_budget:
        lines.append(
            f"The budget refused {plural(report.n_over_budget, 'request')} for a prompt "
            "(`budget.max_usd`, `prompts.max_share_usd`)."
        )
    if report.refusals:
        listed = (f"{n:,} {name.replace('_', ' ')}" for name, n in report.refusals.items())
        lines.append(f"Rejected without evaluation: {', '.join(listed)}.")
    return [*lines, *([] if report.overfitting is None else [report.overfitting])]


def edit_lines(report: PromptReport) -> tuple[str, ...]:
    """Return a line per edit of the lineage, in order: operator, failures shown, effect."""
    return tuple(f"{n}. {_edit_line(edge)}" for n, edge in enumerate(report.family, 1))


def _edit_line(edge: FamilyEdge) -> str:
    shown = "shown no case"
    if edge.failures:
        shown = f"shown {plural(len(edge.failures), 'case')}"
    if edge.category != "none":
        shown += f" (failures: {edge.category})"
    effect = "no search case shared with its parent"
    if edge.n_shared:
        meaning = " (95 % interval)" if edge.effect_se else ""
        effect = (
            f"{effect_text(edge.effect, edge.effect_se)}{meaning} on "
            f"{plural(edge.n_shared, 'search case')}, {edge.fixed:,} better, {edge.broken:,} worse"
        )
    return (
        f"{edge.parameter}: {edge.operator} before generation {edge.generation}, {shown}: {effect}"
    )


def effect_text(effect: float | None, se: float | None) -> str:
    """Return an edit's effect with its 95 % interval, two standard errors to each side.

    If all cases changed equally, the spread is unknown and the interval is omitted.
    """
    if effect is None:
        return UNKNOWN
    if not se:
        return "no case changed" if effect == 0 else f"{signed(effect)} on each"
    low, high = max(-1.0, effect - 2 * se), min(1.0, effect + 2 * se)
    return signed_interval(effect, low, high)


_EFFECT: Final = "effect, 95 % interval"
_COLUMNS: Columns[FamilyEdge] = {
    "before generation": lambda mutation: str(mutation.generation),
    "parameter": lambda mutation: mutation.parameter,
    "operator": lambda mutation: mutation.operator,
    "failures of the parent": lambda mutation: mutation.category,
    _EFFECT: lambda mutation: effect_text(mutation.effect, mutation.effect_se),
    "on": lambda mutation: plural(mutation.n_shared, "search case"),
    "better": lambda mutation: str(mutation.fixed),
    "worse": lambda mutation: str(mutation.broken),
}
_NUMERIC = ("before generation", _EFFECT, "better", "worse")
