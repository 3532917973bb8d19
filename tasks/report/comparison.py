"""Comparison of two candidates on the cases that both answered."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from convergence_core.config import Configuration, parse_stored
from convergence_core.errors import RunNotFoundError
from convergence_core.ports import RunRecord
from convergence_core.records import Case, Params, ParamValue, Role, same_value
from convergence_core.result import (
    CaseAnswer,
    CaseAnswers,
    Estimate,
    RunResult,
    number_text,
    worst_first,
)
from convergence_core.result.number_text import UNKNOWN, milliseconds, plural
from convergence_core.search.recommend import paired_difference
from tasks.inputs.cases import groups_of
from tasks.report import phrases
from tasks.report.answers import (
    ROLES,
    cases_of,
    evaluated_cases,
    paired_cases,
    per_answer,
    with_judges_reasons,
)
from tasks.report.answers_section import prompt_blocks
from tasks.report.blocks import (
    Axis,
    Block,
    Columns,
    Grid,
    Heading,
    Inline,
    Layer,
    Paragraph,
    Plot,
    Plots,
    Point,
    code,
    long_text,
    marked,
    table,
)
from tasks.report.phrases import clean, short
from tasks.store.tables.parquet_store import ParquetStore

MOST_CASES = 50

_CANDIDATES = "SELECT candidate_id, params_json FROM candidates WHERE run_id = $run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One of the two compared candidates."""

    name: str
    """Display name, e.g. ``recommended`` or a run's label."""
    run: str
    """Label of its run."""
    run_id: str
    candidate_id: str
    params: Params

    @classmethod
    def of(cls, name: str, record: RunRecord, candidate_id: str, params: Params) -> "Subject":
        """Return a candidate of a run under a display name."""
        return cls(name=name, run=record.label, run_id=record.run_id, candidate_id=candidate_id,
                   params=params)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCases:
    """Rewards of both candidates on the shared cases of a role."""

    role: Role
    first_mean: float
    second_mean: float
    difference: Estimate
    """Second minus first, paired by case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairComparison:
    """Two candidates, side by side."""

    first: Subject
    second: Subject
    parameters: Mapping[str, tuple[ParamValue | None, ParamValue | None]]
    """Differing parameter → both values; ``None`` if not active."""
    shared: tuple[SharedCases, ...]
    """Most trustworthy first."""
    per_answer: tuple[Mapping[str, float | None], Mapping[str, float | None]]
    """Means of ``latency_ms`` and ``cost_usd`` over the answers to shared cases, by case weight;
    ``None`` if unknown.
    """
    cases: tuple[CaseAnswers, ...]
    """Shared cases, largest loss of the second first."""
    notes: tuple[str, ...] = ()
    """Sentences on the limits of the comparison."""


# -- candidates


def candidate_named(name: str, record: RunRecord, store: ParquetStore) -> Subject | None:
    """Return a candidate of a finished run; ``None`` if the run has none of this name.

    Args:
        name: ``default``, ``recommended``, ``found``, a name as in the report (``prompt 2`` for
            ``prompt 2: Answer with …``), or an id.
        record: row of the run.
        store: store with the run.

    Raises:
        RunNotFoundError: the run has no configuration of that role.
    """
    result = RunResult.from_json(record.summary_json or "")
    words = {"default": result.baseline, "recommended": result.winner, "found": result.best}
    if name in words:
        report = words[name]
        if report is None:
            raise RunNotFoundError(
                f"run {record.label} must have a {name} configuration to compare, and has none "
                "that got a reward."
            )
        return Subject.of(name, record, report.candidate_id, report.params)
    known: dict[str, Params] = {
        candidate.candidate_id: candidate.params
        for candidate in words.values()
        if candidate is not None
    }
    for row in store.rows(_CANDIDATES, {"run": record.run_id}):
        known[row["candidate_id"]] = json.loads(row["params_json"])
    wanted = name.lower()
    for candidate_id, label in (*result.names.items(), *((item, item) for item in known)):
        if candidate_id in known and f"{label}:".lower().startswith(f"{wanted}:"):
            title = result.names.get(candidate_id, candidate_id)
            return Subject.of(title, record, candidate_id, known[candidate_id])
    return None


def recommended_of(record: RunRecord) -> Subject:
    """Return the recommendation of a finished run, named after the run.

    Raises:
        RunNotFoundError: there is no recommendation.
    """
    winner = RunResult.from_json(record.summary_json or "").winner
    if winner is None:
        raise RunNotFoundError(f"run {record.label} must recommend something to be compared.")
    return Subject.of(record.label, record, winner.candidate_id, winner.params)


# -- comparison


def compared(store: ParquetStore, first: Subject, second: Subject) -> PairComparison:
    """Compare two candidates on the cases that both answered."""
    records = [store.run(subject.run_id) for subject in (first, second)]
    configurations = [parse_stored(record.config_json) for record in records]
    cases, why = cases_of(records[1])
    notes = [f"Inputs appear as sent, and groups of cases are unknown: {why}."] * (cases is None)
    notes += _notes(*records, configurations=configurations)
    a, b = (
        with_judges_reasons(
            store,
            subject.run_id,
            configuration,
            evaluated_cases(store, subject.run_id, subject.candidate_id),
        )
        for subject, configuration in zip((first, second), configurations, strict=True)
    )
    by_id = None if cases is None else {case.case_id: case for case in cases}
    keep_text = all(configuration.storage.keep_text for configuration in configurations)
    pairs = [
        case
        for case in paired_cases(a, b, by_id, keep_text=keep_text)
        if case.first is not None and case.second is not None
    ]
    level = configurations[1].optimization.mab.confidence_level
    names = dict.fromkeys([*second.params, *first.params])
    values = {name: (first.params.get(name), second.params.get(name)) for name in names}
    return PairComparison(
        first=first,
        second=second,
        parameters={name: pair for name, pair in values.items() if not same_value(*pair)},
        shared=tuple(_judged(_shared(pairs, cases or (), level), first, second, records[1])),
        per_answer=(
            per_answer((case.first, case.weight) for case in pairs),
            per_answer((case.second, case.weight) for case in pairs),
        ),
        cases=worst_first(pairs),
        notes=tuple(notes),
    )


def _notes(
    first: RunRecord, second: RunRecord, *, configurations: Sequence[Configuration]
) -> list[str]:
    stand_in = "a mock wrote its answers, no real model."
    if first.run_id == second.run_id:
        return [f"The run was offline: {stand_in}"] if "offline" in first.tags else []
    notes = []
    if first.cases_sha256 != second.cases_sha256:
        notes.append(
            "The runs have different test cases: only those with the same id are compared."
        )
    rewards = [configuration.evaluation.metrics for configuration in configurations]
    if rewards[0] != rewards[1]:
        notes.append(
            "The runs reward different things (`evaluation.metrics` differs), so compare their answers, "
            "not their rewards."
        )
    notes += [
        f"{run.label} was offline: {stand_in}" for run in (first, second) if "offline" in run.tags
    ]
    return notes


def _shared(
    pairs: Sequence[CaseAnswers], cases: Sequence[Case], level: float
) -> Iterable[SharedCases]:
    groups = groups_of(cases)
    for role in ROLES:
        of_role = [case for case in pairs if case.role == role and case.gap is not None]
        weights = {case.case_id: case.weight for case in of_role}
        first = {case.case_id: _reward(case.first) for case in of_role}
        second = {case.case_id: _reward(case.second) for case in of_role}
        gap = paired_difference(second, first, level=level, weights=weights, groups=groups)
        if gap is None:
            continue
        yield SharedCases(
            role=role,
            first_mean=_weighted(first, weights),
            second_mean=_weighted(second, weights),
            difference=gap,
        )


def _judged(
    shared: Iterable[SharedCases], first: Subject, second: Subject, record: RunRecord
) -> Iterable[SharedCases]:
    """Yield the comparisons; defaults and best of one run get the final test's interval."""
    result = RunResult.from_json(record.summary_json or "")
    ends = [report and report.candidate_id for report in (result.baseline, result.best)]
    pair, gap = [first.candidate_id, second.candidate_id], result.difference
    is_judged = gap is not None and first.run_id == second.run_id
    if gap is not None and pair == ends[::-1]:
        gap = replace(gap, mean=-gap.mean, low=-gap.high, high=-gap.low)
    for cases in shared:
        is_final = is_judged and cases.role == "holdout" and pair in (ends, ends[::-1])
        yield replace(cases, difference=gap) if is_final and gap is not None else cases


def _reward(answer: CaseAnswer | None) -> float:
    assert answer is not None  # noqa: S101 - the case has a gap
    assert answer.reward is not None  # noqa: S101 - as above
    return answer.reward


def _weighted(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(weights[case] * reward for case, reward in rewards.items()) / sum(weights.values())


# -- blocks


def comparison_blocks(comparison: PairComparison, *notes: str) -> list[Block]:
    """Return the blocks of a comparison with further notes: A is the first, B the second."""
    a, b = comparison.first, comparison.second
    return [
        Heading(f"A: {clean(a.name)}; B: {clean(b.name)}"),
        Paragraph((comparison_sentence(comparison),), "lead"),
        *(Paragraph(marked(note)) for note in (*comparison.notes, *notes)),
        *_rewards(comparison),
        *_parameters(comparison),
        *_money_and_time(comparison),
        *_cases(comparison),
        *prompt_blocks(a.params, b.params, "A", "B"),
    ]


def comparison_sentence(comparison: PairComparison) -> str:
    """Return a sentence on the most trustworthy shared cases."""
    if comparison.first.candidate_id == comparison.second.candidate_id:
        return "A and B are the same configuration."
    if not comparison.shared:
        return "A and B share no case on which both have a reward, so they cannot be compared."
    best = comparison.shared[0]
    gap = best.difference
    noun = {"holdout": "held-out case", "fresh": "search case", "search": "search case"}[best.role]
    cases = phrases.counted(gap, noun)
    ends = f"{number_text.signed(gap.low)} and {number_text.signed(gap.high)}"
    level = number_text.percent(gap.level)
    if gap.low > 0:
        statement = f"B scores higher than A by {gap.mean:.3f} on average"
        so = f"On cases like these B is ahead: the true difference lies between {ends}"
    elif gap.high < 0:
        statement = f"B scores lower than A by {-gap.mean:.3f} on average"
        so = f"On cases like these B is behind: the true difference lies between {ends}"
    else:
        may_be = f"the true difference may be anything between {ends}"
        if round(gap.mean, 3) == 0:
            statement = "A and B have the same mean reward"
            so = f"These cases do not separate the two: {may_be}"
        else:
            statement = f"B's mean reward differs from A's by {number_text.signed(gap.mean)}"
            so = f"That may be chance, for these cases do not separate the two: {may_be}"
    return f"On the {cases} that both answered, {statement}. {so} ({level} confidence)."


def _rewards(comparison: PairComparison) -> list[Block]:
    columns: Columns[SharedCases] = {
        "mean reward on": lambda row: phrases.MEASURED_ON[row.role],
        "cases": lambda row: f"{row.difference.n_cases:,}",
        "A": lambda row: number_text.reward(row.first_mean),
        "B": lambda row: number_text.reward(row.second_mean),
        "B minus A": lambda row: phrases.difference(row.difference),
    }
    if not comparison.shared:
        return []
    return [table(comparison.shared, columns, numeric=[*columns][1:])]


def _parameters(comparison: PairComparison) -> list[Block]:
    if not comparison.parameters:
        return []

    def value(parameter: ParamValue | None) -> Inline:
        return "not active" if parameter is None else code(short(phrases.value_text(parameter)))

    columns: Columns[tuple[str, tuple[ParamValue | None, ParamValue | None]]] = {
        "parameter": lambda item: code(clean(item[0])),
        "A": lambda item: value(item[1][0]),
        "B": lambda item: value(item[1][1]),
    }
    return [Heading("Parameters that differ"), table(comparison.parameters.items(), columns)]


def _money_and_time(comparison: PairComparison) -> list[Block]:
    rows: list[tuple[Inline, ...]] = []
    latencies = [means["latency_ms"] for means in comparison.per_answer]
    if latencies != [None, None]:
        rows.append(("latency, mean", *map(milliseconds, latencies)))
    rows.append(("price, mean", *(_price(means["cost_usd"]) for means in comparison.per_answer)))
    grid = Grid(("", "A", "B"), tuple(rows), frozenset({1, 2}))
    return [Heading("One answer"), grid] if comparison.cases else []


def _price(cost_usd: float | None) -> str:
    return "not known" if cost_usd is None else number_text.usd(cost_usd)


def _cases(comparison: PairComparison) -> list[Block]:
    if not comparison.cases:
        return []

    def reward(answer: CaseAnswer | None) -> str:
        return UNKNOWN if answer is None else number_text.reward(answer.reward)

    def text(answer: CaseAnswer | None) -> Inline:
        shown = None if answer is None else answer.text if answer.error is None else answer.error
        return UNKNOWN if shown is None else long_text(clean(shown))

    columns: Columns[CaseAnswers] = {
        "case": lambda row: short(row.name or row.case_id, 40),
        "kind": lambda row: phrases.ROLES[row.role],
        "A": lambda row: reward(row.first),
        "B": lambda row: reward(row.second),
        "B minus A": lambda row: UNKNOWN if row.gap is None else number_text.signed(row.gap),
        "answer of A": lambda row: text(row.first),
        "answer of B": lambda row: text(row.second),
    }
    gaps = sorted(case.gap for case in comparison.cases if case.gap is not None)
    points = tuple(
        Point(x=place, y=gap, y_ends=(min(0.0, gap), max(0.0, gap)))
        for place, gap in enumerate(gaps, 1)
    )
    plot = Plot(
        name="difference-by-case",
        title="Difference of the reward by test case",
        x=Axis(title="test cases, in order of the difference", kind="whole"),
        y=Axis(title="B minus A"),
        layers=(Layer(points=points),),
        height=2.3,
    )
    shown = comparison.cases[:MOST_CASES]
    heading = f"Case by case, where B loses most first ({plural(len(comparison.cases), 'case')})"
    return [
        Heading(heading),
        Plots((plot,) if len(points) > 1 else ()),
        table(shown, columns, numeric=("A", "B", "B minus A")),
        *(
            [Paragraph((f"The first {MOST_CASES} are shown; --json has all.",), "note")]
            if len(shown) < len(comparison.cases)
            else []
        ),
    ]
