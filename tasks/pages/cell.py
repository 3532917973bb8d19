"""One cell with its prompts, answers, metrics, judges' reasons and attempts."""

from collections.abc import Mapping, Sequence
from typing import Any

from convergence_core.errors import RunNotFoundError
from convergence_core.ports import RunRecord
from tasks.json_values import as_text
from tasks.pages.source import Page, PageFile, PageSource
from tasks.report.answers import judges_reasons
from tasks.report.evidence import TEXTS, WITH_TEXTS, parsed_text
from tasks.report.phrases import ROLES
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened

LONGEST = 100_000
"""Maximum characters of a string on a page; the full string is offered as a file."""
_REPEATS = f"""
WITH e AS (
  SELECT * FROM evaluations
  WHERE run_id = $run AND candidate_id = $candidate AND case_id = $case AND status <> 'skipped'),
{TEXTS}
SELECT e.eval_id, e.replicate, e.generation, e.role, e.status, e.reward, e.error, e.error_type,
       e.fault, e.cached, e.metrics, e.latency_ms, e.cost_usd, e.tokens_in, e.tokens_out,
       e.recording_url, p.text AS prompt, r.text AS answer, t.text AS thinking
FROM e {WITH_TEXTS}
ORDER BY e.role, e.replicate, e.generation NULLS LAST
"""  # noqa: S608 - constants
_ATTEMPTS = """
SELECT eval_id, attempt, purpose, state, model, error_type, cost_usd, tokens_in, tokens_out,
       strftime(started_at AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%gZ') AS started_at,
       (epoch_us(ended_at) - epoch_us(started_at)) / 1000.0 AS ms
FROM attempts WHERE run_id = $run AND eval_id IN (SELECT unnest($evaluations))
ORDER BY eval_id, started_at, attempt
"""
_TEXT = """
SELECT p.text FROM evaluations e JOIN payloads p
  ON p.run_id = e.run_id AND p.payload_sha256 = {column}
WHERE e.run_id = $run AND e.eval_id = $evaluation LIMIT 1
"""
_COLUMNS = {
    "prompt": "e.request_sha256",
    "answer": "e.payload_sha256",
    "thinking": "e.thinking_sha256",
}


def cell(source: PageSource, record: RunRecord, candidate_id: str, case_id: str) -> Page:
    """Return all data of one cell.

    Raises:
        RunNotFoundError: it was never evaluated.
    """
    known = {"run": record.run_id, "candidate": candidate_id, "case": case_id}
    repeats = source.rows(_REPEATS, **known)
    if not repeats:
        raise RunNotFoundError(
            f"the configuration {candidate_id} did not run on {case_id!r} in {record.label}."
        )
    names = [row["eval_id"] for row in repeats]
    attempts: dict[str, list[Page]] = {}
    for row in source.rows(_ATTEMPTS, run=record.run_id, evaluations=names):
        attempts.setdefault(row.pop("eval_id"), []).append(row)
    configuration = source.configuration(record)
    reasons = judges_reasons(source.store, record.run_id, configuration, names)
    params = source.params(record, candidate_id) or {}
    case = source.cases(record).get(case_id)
    keeps = configuration.storage.keep_text
    return {
        "candidate": {
            "candidate_id": candidate_id,
            "name": source.names(record, {candidate_id: params})[candidate_id],
            "params": params,
        },
        "case_id": case_id,
        "role": repeats[0]["role"],
        "kind": ROLES[repeats[0]["role"]],
        "input": _cut(as_text(case.input)) if case is not None and keeps else None,
        "expected": _cut(as_text(case.expected))
        if case is not None and case.expected is not None and keeps
        else None,
        "repeats": [
            _repeat(record, row, attempts.get(row["eval_id"], []), reasons.get(row["eval_id"], ()))
            for row in repeats
        ],
    }


def whole_text(source: PageSource, record: RunRecord, eval_id: str, kind: str) -> PageFile:
    """Return the full redacted prompt, answer or thinking of an evaluation.

    Raises:
        RunNotFoundError: none is stored.
    """
    column = _COLUMNS.get(kind)
    sql = _TEXT.format(column=column)
    rows = source.rows(sql, run=record.run_id, evaluation=eval_id) if column else []
    if not rows:
        raise RunNotFoundError(f"the evaluation {eval_id} has no {kind} that is stored.")
    content = redacted_text(str(rows[0]["text"])).encode()
    return PageFile(name=f"{kind}.txt", content=content, media_type="text/plain; charset=utf-8")


def _repeat(
    record: RunRecord, row: Mapping[str, Any], attempts: Sequence[Page], reasons: Sequence[str]
) -> Page:
    same = ("eval_id", "replicate", "generation", "status", "reward", "fault", "cached",
            "tokens_in", "tokens_out", "cost_usd", "latency_ms", "recording_url")  # fmt: skip
    error = row["error"] or row["error_type"]
    texts = {kind: row[kind] for kind in _COLUMNS}
    page: Page = {name: row[name] for name in same}
    for kind, text in texts.items():
        plain = text if text is None or kind == "thinking" else as_text(parsed_text(str(text)))
        is_long = plain is not None and len(plain) > LONGEST
        page[kind] = None if plain is None else _cut(plain)
        page[f"{kind}_bytes"] = None if plain is None else len(plain.encode())
        page[f"{kind}_url"] = (
            f"runs/{record.run_id}/text?eval={row['eval_id']}&kind={kind}" if is_long else None
        )
    return {
        **page,
        "error": None if error is None else _cut(str(error)),
        "metrics": [
            {"name": name, "value": value, "unit": unit_of(name)}
            for name, value in (row["metrics"] or {}).items()
        ],
        "judgements": [
            {"metric": "judge", "order": None, "value": None, "reason": _cut(reason)}
            for reason in reasons
        ],
        "attempts": list(attempts),
    }


def unit_of(metric: str) -> str | None:
    """Return a metric's unit by its suffix; ``None`` if it has none."""
    return {"ms": "ms", "usd": "USD"}.get(metric.rpartition("_")[2])


def _cut(text: str) -> str:
    return shortened(text, LONGEST, redacted_text)
