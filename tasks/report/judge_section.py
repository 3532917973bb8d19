"""Section on judges: agreement with users' labels, and consistency.

A label belongs to the answer that the user saw, usually one of the current system. Labels are
therefore compared with the judgements of the defaults' answers, or without defaults with those of
all configurations. Several judgements of one case are averaged first, so that one label is one
pair.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from convergence_core.config import Configuration, JudgeMetric
from convergence_core.judges.agreement import pass_fail_agreement, rating_agreement, wilson
from convergence_core.judges.report import Agreement, Figure, JudgeReport
from convergence_core.records import Case, Json
from convergence_core.result import number_text
from convergence_core.result.number_text import plural, whole_percent
from tasks.json_values import Missing
from tasks.metrics.judge.judge import INCONSISTENT
from tasks.metrics.judge.verdicts import BEST, label_at, passed_of, rating_of
from tasks.report.blocks import Block, Bullets, Heading, Paragraph, marked
from tasks.report.phrases import clean
from tasks.store.tables.parquet_store import ParquetStore

_JUDGED = """
SELECT case_id, metric, value FROM metrics
WHERE run_id = $run AND list_contains($names, metric) AND value IS NOT NULL
  AND ($candidate IS NULL OR candidate_id = $candidate)
ORDER BY metric, case_id, eval_id
"""

_CHANGED = """
SELECT metric, count(*) AS n, sum(value) AS n_changed FROM metrics
WHERE run_id = $run AND list_contains($names, metric) AND value IS NOT NULL GROUP BY metric
"""

_BIAS = (
    "A judge is a model: it may prefer long answers, its own style, or the answer that comes "
    "first. Its agreement with you holds for answers like the labelled ones."
)


LabeledJudgement: TypeAlias = tuple[str, float, Json]
"""Case, judgement of one evaluation in [0, 1], and the case's label as written."""


def judge_reports(
    store: ParquetStore,
    run_id: str,
    *,
    configuration: Configuration,
    cases: Iterable[Case],
    baseline_id: str | None,
) -> tuple[JudgeReport, ...]:
    """Return reports on a run's judges from its committed generations, in configured order.

    Args:
        store: store with the run.
        run_id: id of the run.
        configuration: configuration of the run.
        cases: test cases, for their labels.
        baseline_id: id of the defaults; ``None`` if there are none.
    """
    judges = configuration.evaluation.judges
    if not judges:
        return ()
    cases = tuple(cases)
    run = {"run": run_id}
    judged = store.rows(_JUDGED, {**run, "names": list(judges), "candidate": baseline_id})
    kept = {f"{name}.{INCONSISTENT}": name for name in judges}
    changed = {
        kept[row["metric"]]: (int(row["n"]), float(row["n_changed"]))
        for row in store.rows(_CHANGED, {**run, "names": list(kept)})
    }
    reports = []
    for name, metric in judges.items():
        rows = None
        if metric.label_field is not None:
            labels = _labels(cases, metric.label_field)
            rows = [
                (case_id, row["value"], labels[case_id])
                for row in judged
                if row["metric"] == name and (case_id := row["case_id"]) in labels
            ]
        n_pairs, n_changed = changed.get(name, (0, 0.0))
        of_default = baseline_id is not None
        report = judge_report(
            name, metric, rows, of_default=of_default, n_pairs=n_pairs, n_inconsistent=n_changed
        )
        reports.append(report)
    return tuple(reports)


def judge_report(
    name: str,
    metric: JudgeMetric,
    rows: Sequence[LabeledJudgement] | None,
    *,
    of_default: bool = False,
    n_pairs: int = 0,
    n_inconsistent: float = 0.0,
) -> JudgeReport:
    """Return the report on one judge from its evaluations; pure.

    Args:
        name: name of the metric.
        metric: configuration of the metric.
        rows: evaluations of labelled cases; ``None`` if the metric names no label.
        of_default: whether they are only those of the defaults.
        n_pairs: evaluations with answers compared in both orders.
        n_inconsistent: those of them whose verdict changed with the order; fractional with several
            votes.
    """
    agreement, n_bad, n_undecided = None, 0, 0
    if rows is not None:
        agreement, n_bad, n_undecided = _agreement(metric, rows)
    return JudgeReport(
        name=name,
        mode=metric.mode,
        agreement=agreement,
        of_default=of_default,
        n_bad_labels=n_bad,
        n_undecided=n_undecided,
        n_pairs=n_pairs,
        inconsistent=wilson(n_inconsistent, n_pairs),
    )


def judge_sentences(report: JudgeReport) -> tuple[str, ...]:
    """Return sentences on a judge, with names of metrics in back ticks."""
    name = f"`{clean(report.name)}`"
    sentences = []
    agreement = report.agreement
    if agreement is not None:
        sentences.append(_agreement_sentence(name, report, agreement))
        if agreement.unknown:
            sentences.append(f"{agreement.unknown[0].upper()}{agreement.unknown[1:]}.")
    if report.n_undecided:
        cases = plural(report.n_undecided, "labelled case")
        sentences.append(f"Its votes were evenly split on {cases}, left out.")
    if report.n_bad_labels:
        labels = plural(report.n_bad_labels, "label")
        sentences.append(f"{labels} of another form than the judge's left out.")
    if report.inconsistent is not None:
        sentences.append(
            f"The judge {name} changed its verdict with the order of the answers in "
            f"{whole_percent(report.inconsistent.value)} of {plural(report.n_pairs, 'comparison')} "
            f"({_range(report.inconsistent, 0.95)}); each of these counts as a tie."
        )
    return tuple(sentences)


def judge_blocks(reports: Sequence[JudgeReport]) -> list[Block]:
    """Return the section on judges; empty if nothing is known of any."""
    texts = [" ".join(judge_sentences(report)) for report in reports]
    items = tuple(marked(text) for text in texts if text)
    return [Heading("Judges"), Bullets(items), Paragraph((_BIAS,), "note")] if items else []


def _agreement_sentence(name: str, report: JudgeReport, agreement: Agreement) -> str:
    answers = "the default configuration's answers" if report.of_default else "all answers"
    if agreement.n < 2:
        return f"The judge {name} cannot be compared with labels yet."
    if report.mode == "rating":
        assert agreement.difference is not None  # noqa: S101 - two cases have one
        text = (
            f"The judge {name} differs from {plural(agreement.n, 'label')} by "
            f"{agreement.difference.value:.2f} points of 1 to {BEST} on average"
            f"{_in_brackets(agreement.difference, agreement.level)}, on {answers}"
        )
        text += "" if agreement.kappa is None else f"; weighted kappa {_figure(agreement.kappa)}"
        text += (
            ""
            if agreement.spearman is None
            else f"; rank correlation {_figure(agreement.spearman)}"
        )
        return text + "."
    assert agreement.rate is not None and agreement.n_equal is not None  # noqa: S101, PT018 - as above
    text = (
        f"The judge {name} agrees with {agreement.n_equal:,} of {plural(agreement.n, 'label')} "
        f"({whole_percent(agreement.rate.value)}, {_range(agreement.rate, agreement.level)}) on {answers}"
    )
    return text + ("." if agreement.kappa is None else f"; kappa {_figure(agreement.kappa)}.")


def _range(figure: Figure, level: float) -> str:
    if figure.low is None or figure.high is None:
        return "interval unknown"
    low, high = 100 * figure.low, 100 * figure.high
    return f"{number_text.percent(level)} interval {low:.0f}\N{EN DASH}{high:.0f} %"


def _in_brackets(figure: Figure, level: float) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f" ({number_text.percent(level)} interval {figure.low:.2f} to {figure.high:.2f})"


def _figure(figure: Figure) -> str:
    def number(value: float) -> str:
        text = f"{abs(value):.2f}"
        return text if value >= 0 or float(text) == 0 else "\N{MINUS SIGN}" + text

    if figure.low is None or figure.high is None:
        return number(figure.value)
    return f"{number(figure.value)} [{number(figure.low)}, {number(figure.high)}]"


# -- from rows to pairs


def _agreement(
    metric: JudgeMetric, rows: Sequence[LabeledJudgement]
) -> tuple[Agreement, int, int]:
    """Return the agreement, the number of unusable labels, and that of undecided cases."""
    values: dict[str, list[float]] = {}
    labels: dict[str, Json] = {}
    for case_id, value, label in rows:
        values.setdefault(case_id, []).append(value)
        labels[case_id] = label
    means = {case_id: math.fsum(numbers) / len(numbers) for case_id, numbers in values.items()}
    order = sorted(means)
    rng = np.random.default_rng(0)  # makes repeated reports identical
    if metric.mode == "rating":
        known = [(means[c], r) for c in order if (r := rating_of(labels[c])) is not None]
        judged = [1 + (BEST - 1) * value for value, _ in known]
        agreement = rating_agreement(judged, [r for _, r in known], rng=rng)
        return agreement, len(order) - len(known), 0
    passed = [(means[c], p) for c in order if (p := passed_of(labels[c])) is not None]
    decided = [(value > 0.5, p) for value, p in passed if abs(value - 0.5) > 1e-9]
    agreement = pass_fail_agreement(
        [verdict for verdict, _ in decided], [p for _, p in decided], rng=rng
    )
    return agreement, len(order) - len(passed), len(passed) - len(decided)


def _labels(cases: Iterable[Case], path: str) -> dict[str, Json]:
    labels = {case.case_id: label_at(case, path) for case in cases}
    return {key: label for key, label in labels.items() if not isinstance(label, Missing)}
