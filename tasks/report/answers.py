"""Answers of candidates by case, from a run's tables and its journal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from convergence_core.config import Configuration, stored_mapping
from convergence_core.errors import ConfigurationError, StoreError
from convergence_core.ports import RunRecord
from convergence_core.records import Case, Json, Role
from convergence_core.result import CaseAnswer, CaseAnswers, RunResult, case_names, worst_first
from tasks.inputs.environment import Environment
from tasks.inputs.loader import load_mapping
from tasks.json_values import as_text
from tasks.metrics.judge.judge import PURPOSE
from tasks.metrics.judge.verdicts import read_reasoning
from tasks.report.answers_section import MOST_GAINED
from tasks.report.evidence import TEXTS, WITH_TEXTS, mean_of_known, metric_or, parsed_text
from tasks.report.phrases import failure_example
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import journal_url, shortened
from tasks.store.journal.sqlite_journal import open_journal
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.views import LAST_OF_CELL

MOST_REPORTED = 10
"""Maximum worst cases of a report."""
PERFECT = 0.9995
"""Reward from which an answer counts as perfect."""
LONGEST_TEXT = 2_000
"""Maximum characters of a string in a result; `convergence show` prints all."""

ROLES: tuple[Role, ...] = ("holdout", "fresh", "search")
"""Roles by trustworthiness of their rewards, best first."""

_ANSWERS = f"""
WITH e AS (
  SELECT * FROM evaluations
  WHERE run_id = $run AND candidate_id = $candidate AND status <> 'skipped' {LAST_OF_CELL}),
{TEXTS},
prices AS (  -- of rows that earlier versions wrote
  SELECT call_key, max(cost_usd) AS usd FROM attempts
  WHERE state = 'done' AND call_key IN (SELECT call_key FROM e WHERE price_usd IS NULL) GROUP BY ALL)
SELECT e.eval_id, e.case_id, e.role, e.replicate, e.error_type, e.error, e.reward, e.metrics,
       e.latency_ms, e.recording_url, coalesce(e.weight, 1.0) AS weight,
       coalesce(e.price_usd, CASE WHEN e.status = 'ok' OR prices.usd > 0 THEN prices.usd END)
         AS price_usd,
       p.text AS request, r.text AS response, t.text AS thinking
FROM e LEFT JOIN prices USING (call_key) {WITH_TEXTS}
ORDER BY e.case_id, e.role, e.replicate, e.generation
"""  # noqa: S608 - constants

_JUDGED = """
SELECT eval_id, call_key FROM attempts
WHERE run_id = $run AND purpose = $purpose AND state IN ('done', 'cached')
  AND eval_id IN (SELECT unnest($evaluations))
ORDER BY eval_id, call_key
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedCase:
    """Evaluations of one candidate on one case in one role."""

    answer: CaseAnswer
    weight: float
    request: str | None
    """Request as sent; ``None`` if not kept."""
    eval_ids: tuple[str, ...]


def evaluated_cases(
    store: ParquetStore, run_id: str, candidate_id: str | None
) -> dict[tuple[str, Role], EvaluatedCase]:
    """Return (case, role) → a candidate's request and answer; empty without a candidate."""
    if candidate_id is None:
        return {}
    rows = store.rows(_ANSWERS, {"run": run_id, "candidate": candidate_id})
    return {
        key: _evaluated_case([*group])
        for key, group in groupby(rows, key=lambda row: (row["case_id"], row["role"]))
    }


def _evaluated_case(rows: Sequence[Mapping[str, Any]]) -> EvaluatedCase:
    first = rows[0]
    failed = next((row for row in rows if row["error_type"] or row["error"]), None)
    names = dict.fromkeys(name for row in rows for name in row["metrics"] or ())
    response = first["response"]
    answer = CaseAnswer(
        text=None if response is None else as_text(parsed_text(response)),
        thinking=first["thinking"],
        reward=mean_of_known(row["reward"] for row in rows),
        metrics={
            name: value
            for name in names
            if (value := mean_of_known((row["metrics"] or {}).get(name) for row in rows))
            is not None
        },
        latency_ms=mean_of_known(
            metric_or("latency_ms", row["metrics"], row["latency_ms"]) for row in rows
        ),
        cost_usd=mean_of_known(
            metric_or("cost_usd", row["metrics"], row["price_usd"]) for row in rows
        ),
        n_repeats=len(rows),
        error=None
        if failed is None
        else redacted_text(failure_example(failed["error"] or failed["error_type"], 400)),
        recording_url=first["recording_url"],
    )
    return EvaluatedCase(
        answer=answer,
        weight=first["weight"],
        request=first["request"],
        eval_ids=tuple(row["eval_id"] for row in rows),
    )


def per_answer(answers: Iterable[tuple[CaseAnswer | None, float]]) -> dict[str, float | None]:
    """Return mean latency (ms) and price (USD) of (answer, case weight) pairs.

    ``None`` for an unknown mean.
    """
    known = [(answer, weight) for answer, weight in answers if answer is not None]
    weights = [weight for _, weight in known]
    return {
        name: mean_of_known((getattr(answer, name) for answer, _ in known), weights)
        for name in ("latency_ms", "cost_usd")
    }


def paired_cases(
    first: Mapping[tuple[str, Role], EvaluatedCase],
    second: Mapping[tuple[str, Role], EvaluatedCase],
    cases: Mapping[str, Case] | None,
    *,
    keep_text: bool = True,
) -> tuple[CaseAnswers, ...]:
    """Return one entry per case on which either candidate ran.

    It covers the most trustworthy role that both have, or that either has.

    Args:
        first: cases of one candidate.
        second: cases of the other.
        cases: test cases by id; ``None`` shows requests as sent.
        keep_text: whether to show inputs and expected values.
    """
    pairs, names = [], case_names(() if cases is None else cases.values())
    for case_id in dict.fromkeys(case for case, _ in (*second, *first)):
        roles = [role for role in ROLES if (case_id, role) in {**first, **second}]
        shared = [role for role in roles if (case_id, role) in first and (case_id, role) in second]
        role = (shared or roles)[0]
        pair = first.get((case_id, role)), second.get((case_id, role))
        known = next(answer for answer in pair if answer is not None)
        case = None if cases is None else cases.get(case_id)
        expected = None if case is None else case.expected
        request = known.request if case is None else as_text(case.input)
        pairs.append(
            CaseAnswers(
                case_id=case_id,
                name=names.get(case_id, case_id),
                role=role,
                weight=known.weight,
                input=request if keep_text else None,
                expected=as_text(expected) if keep_text and expected is not None else None,
                first=None if pair[0] is None else pair[0].answer,
                second=None if pair[1] is None else pair[1].answer,
            )
        )
    return tuple(pairs)


def answers_of(
    result: RunResult,
    store: ParquetStore,
    configuration: Configuration,
    cases: Iterable[Case] | None,
) -> tuple[CaseAnswers, ...]:
    """Return the answers of the defaults and of the configuration found, worst cases first.

    Args:
        result: result of the run.
        store: store with the run.
        configuration: configuration of the run.
        cases: test cases; ``None`` if they are unknown.
    """
    if result.best is None:
        return ()
    baseline = None if result.best_is_baseline else result.baseline
    first, second = (
        with_judges_reasons(
            store,
            result.run_id,
            configuration,
            evaluated_cases(store, result.run_id, None if report is None else report.candidate_id),
        )
        for report in (baseline, result.best)
    )
    by_id = None if cases is None else {case.case_id: case for case in cases}
    keep_text = configuration.storage.keep_text
    return worst_first(paired_cases(first, second, by_id, keep_text=keep_text))


def reported_answers(
    result: RunResult, store: ParquetStore, configuration: Configuration, cases: Iterable[Case]
) -> tuple[CaseAnswers, ...]:
    """Return the cases of a report, held-out ones first, with shortened contents.

    They are the worst ones, then those with the largest gains over the defaults. Cases that both
    answered perfectly are omitted if there are others.
    """
    known = answers_of(result, store, configuration, cases)
    worst = worst_first(
        [case for case in known if not _is_perfect(case)] or known, holdout_first=True
    )
    gained = sorted(
        (case for case in worst[MOST_REPORTED:] if (case.gap or 0.0) > 0.0),
        key=lambda case: (case.role != "holdout", -(case.gap or 0.0), case.case_id),
    )
    return tuple(
        replace(
            case,
            input=_cut(case.input),
            expected=_cut(case.expected),
            first=_cut_answer(case.first),
            second=_cut_answer(case.second),
        )
        for case in (*worst[:MOST_REPORTED], *gained[:MOST_GAINED])
    )


def _is_perfect(case: CaseAnswers) -> bool:
    rewards = [None if answer is None else answer.reward for answer in (case.first, case.second)]
    return all(reward is not None and reward >= PERFECT for reward in rewards)


def _cut_answer(answer: CaseAnswer | None) -> CaseAnswer | None:
    if answer is None:
        return None
    reasons = tuple(_cut(reason) or "" for reason in answer.reasons)
    thinking = _cut(answer.thinking)
    return replace(answer, text=_cut(answer.text), thinking=thinking, reasons=reasons)


def _cut(text: str | None) -> str | None:
    return None if text is None else shortened(text, LONGEST_TEXT, redacted_text)


# -- test cases of a finished run


def cases_of(record: RunRecord) -> tuple[tuple[Case, ...] | None, str]:
    """Return a run's test cases with an empty reason, or ``None`` with the reason."""
    try:
        tree = stored_mapping(record.config_json)
        loaded = load_mapping(tree, Path(record.base_dir), allow_callable=True)
    except ConfigurationError:
        return None, "some files of the run are missing"
    if loaded.cases_sha256 != record.cases_sha256:
        return None, "the test cases have changed since this run"
    return loaded.cases, ""


# -- judges


def with_judges_reasons(
    store: ParquetStore,
    run_id: str,
    configuration: Configuration,
    cases: Mapping[tuple[str, Role], EvaluatedCase],
) -> dict[tuple[str, Role], EvaluatedCase]:
    """Return cases with the judges' reasons; unchanged if none are kept."""
    names = [eval_id for case in cases.values() for eval_id in case.eval_ids]
    reasons = judges_reasons(store, run_id, configuration, names)
    written = {
        key: tuple(reason for eval_id in case.eval_ids for reason in reasons.get(eval_id, ()))
        for key, case in cases.items()
    }
    return {
        key: replace(case, answer=replace(case.answer, reasons=written[key]))
        for key, case in cases.items()
    }


def judges_reasons(
    store: ParquetStore, run_id: str, configuration: Configuration, eval_ids: Sequence[str]
) -> dict[str, list[str]]:
    """Return evaluation → the judges' reasons; empty if none are kept."""
    if not configuration.evaluation.judges or not configuration.storage.keep_text or not eval_ids:
        return {}
    parameters = {"run": run_id, "purpose": PURPOSE, "evaluations": [*eval_ids]}
    rows = store.rows(_JUDGED, parameters)
    if not rows:
        return {}
    try:
        Environment.unchecked(configuration)  # registers its secrets for redaction
        journal = open_journal(Path(store.path), journal_url(configuration))
    except (ConfigurationError, StoreError):
        return {}  # a shared journal that this machine cannot reach
    try:
        stored = journal.answers(sorted({row["call_key"] for row in rows}))
    finally:
        journal.close()
    reasons_of: dict[str, list[str]] = {}
    for row in rows:
        answer = stored.get(row["call_key"])
        reason = None if answer is None else read_reasoning(_reply_text(answer.outcome))
        if reason is not None:
            reasons_of.setdefault(row["eval_id"], []).append(redacted_text(reason))
    return reasons_of


def _reply_text(outcome: Json) -> Json:
    reply = outcome.get("reply") if isinstance(outcome, dict) else None
    return reply.get("value") if isinstance(reply, dict) else None
