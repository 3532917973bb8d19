"""Registry of tables: names, types and meanings of all columns.

Field ids are the contract between versions: a parquet column is found by its id, so columns may
be added (new id, NULL in old files), renamed and widened (i32 → i64 → f64) without a new
format. An id is never used twice; the ids missing below belong to columns of tables as designed
that nothing fills yet.
"""

from collections.abc import Mapping

from tasks.store.tables.columns import Column, Table
from tasks.store.tables.society_tables import (
    COMMITMENTS,
    POLICY_UPDATES,
    PREDICTIONS,
    PREFERENCE_AUDITS,
    PREFERENCE_PROBES,
    PREFERENCE_ROUNDS,
    PREFERENCES,
    THOUGHTS,
)

RUNS = Table(
    "runs",
    "One row per optimization with one seed.",
    ("run_id",),
    (
        Column(1, "run_id", "text", "ULID: sorts by start"),
        Column(2, "name", "text", "the optimized system, `api.name`"),
        Column(13, "label", "text", "short name for people: name and the end of the id"),
        Column(3, "started_at", "ts", "when the run began"),
        Column(4, "ended_at", "ts", "when it ended or was stopped; NULL: it has not"),
        Column(
            5,
            "status",
            "text",
            "running, stopped, failed, done, or interrupted: killed, as the next command that reads "
            "the store or the system's next run finds",
        ),
        Column(14, "reason", "text", "why it ended, in words"),
        Column(6, "config_json", "text", "the whole configuration, without secrets"),
        Column(7, "config_sha256", "text", "hash of the configuration"),
        Column(15, "config_path", "text", "file it was read from; NULL: a Python mapping"),
        Column(16, "base_dir", "text", "folder that its relative paths start from"),
        Column(8, "search_space_json", "text", "normalized search space"),
        Column(17, "cases_sha256", "text", "hash of all test cases"),
        Column(9, "seed", "i64", "seed of the run"),
        Column(10, "code_version", "text", "package version and commit"),
        Column(12, "tags_json", "text", "labels and facts about the machine, a JSON object"),
        Column(18, "n_generations", "i32", "committed generations when this row was written"),
        Column(19, "summary_json", "text", "the result handed over; NULL: not finished"),
    ),
)

GENERATIONS = Table(
    "generations",
    "One ask, evaluate, tell; its file makes all others of the generation visible.",
    ("run_id", "generation"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "number of the generation, from 0"),
        Column(3, "started_at", "ts", "when its first call was sent"),
        Column(4, "ended_at", "ts", "when its last call was answered"),
        Column(5, "status", "text", "done, or partial: cut short by a budget"),
        Column(6, "n_candidates", "i32", "candidates evaluated"),
        Column(7, "n_evaluations", "i32", "rows in evaluations"),
        Column(
            8,
            "raw_best_reward",
            "f64",
            "highest raw mean of a candidate over the cells of this generation; candidates were "
            "asked different cases",
            "[0, 1]",
        ),
        Column(9, "raw_mean_reward", "f64", "mean of these raw means", "[0, 1]"),
        Column(
            15,
            "posterior_mean",
            "f64",
            "mean of the posterior means, after it, of the candidates evaluated in it",
            "[0, 1]",
        ),
        Column(10, "cost_usd", "f64", "sum of known prices of its evaluations", "USD"),
        Column(11, "prefect_flow_run_id", "text", "flow run in Prefect; NULL: none"),
        Column(12, "rng_state_json", "text", "generator state after it"),
        Column(13, "sampler_state_json", "text", "sampler state after it"),
        Column(14, "progress_json", "text", "numbers of the stopper and the budget after it"),
    ),
)

CANDIDATES = Table(
    "candidates",
    "One point of the search space, in the generation that first asked it.",
    ("run_id", "candidate_id"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "candidate_id", "text", "hash of the active parameters"),
        Column(3, "generation", "i32", "first asked"),
        Column(4, "origin", "text", "default, sample, mutation, crossover, elite, rlp or sao"),
        Column(5, "parent_ids", "text[]", "candidates it was bred from"),
        Column(6, "params_json", "text", "active parameters, canonical JSON"),
        Column(7, "params_sha256", "text", "hash of params_json: finds repeats across runs"),
    ),
)

EVALUATIONS = Table(
    "evaluations",
    "The outcome of one cell: one candidate, one test case, one repeat.",
    ("run_id", "eval_id"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "NULL: the re-estimation after the last generation"),
        Column(3, "eval_id", "text", "hash of run, generation and cell"),
        Column(4, "candidate_id", "text", "the candidate"),
        Column(5, "case_id", "text", "the test case"),
        Column(6, "replicate", "i32", "repeat of the same cell, from 0"),
        Column(27, "weight", "f64", "the case's weight in a candidate's mean; NULL: 1"),
        Column(23, "role", "text", "search, fresh or holdout; samplers saw search alone"),
        Column(7, "attempt", "i32", "the attempt that counted, from 1"),
        Column(8, "status", "text", "ok, error, timeout or skipped"),
        Column(24, "fault", "text", "candidate, infrastructure or evaluator; NULL: none"),
        Column(9, "error_type", "text", "short reason, e.g. http_500"),
        Column(25, "error", "text", "message and original traceback, redacted"),
        Column(10, "model", "text", "as answered by the provider"),
        Column(11, "provider", "text", "kind of target"),
        Column(
            12,
            "reward",
            "f64",
            "0 for the candidate's own fault; NULL: missing (skipped, other faults)",
            "[0, 1]",
        ),
        Column(13, "metrics", "map", "metric → value in the metric's unit"),
        Column(14, "latency_ms", "f64", "of the original call, also when cached", "ms"),
        Column(
            28,
            "first_token_ms",
            "f64",
            "of the original call, to the first piece of its answer; NULL: not streamed",
            "ms",
        ),
        Column(15, "cost_usd", "f64", "what this evaluation paid; cached 0", "USD"),
        Column(16, "tokens_in", "i64", "tokens of the request, also when cached"),
        Column(17, "tokens_out", "i64", "tokens of the answer, also when cached"),
        Column(18, "started_at", "ts", "when the call was sent"),
        Column(19, "ended_at", "ts", "when it was answered"),
        Column(20, "call_key", "text", "the target call in attempts"),
        Column(21, "cached", "bool", "the answer was first paid by another evaluation"),
        Column(29, "dropped", "text", "request fields left out and why, joined by `; `"),
        Column(26, "request_sha256", "text", "the request in payloads"),
        Column(22, "payload_sha256", "text", "the answer in payloads"),
    ),
)

ESTIMATES = Table(
    "estimates",
    "What the evidence after a generation says of a candidate's mean reward: of the search a "
    "posterior that compares candidates asked different cases, of the re-estimation what was "
    "measured. A generation has those of the first places and the default, a run's end all.",
    ("run_id", "generation", "candidate_id", "role"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "after which it was made; NULL: when the run ended"),
        Column(3, "candidate_id", "text", "the candidate"),
        Column(4, "role", "text", "search: posterior; fresh or holdout: measured"),
        Column(5, "n_generations", "i32", "committed generations behind it"),
        Column(6, "rank", "i32", "1: recommended, by this evidence; NULL: measured"),
        Column(7, "mean", "f64", "posterior mean, or mean over the cases measured", "[0, 1]"),
        Column(8, "low", "f64", "lower end of its interval", "[0, 1]"),
        Column(9, "high", "f64", "upper end of its interval", "[0, 1]"),
        Column(10, "level", "f64", "probability of the interval"),
        Column(
            11,
            "cautious",
            "f64",
            "what ranks: the lower end of the posterior's 68 % interval; NULL: measured",
            "[0, 1]",
        ),
        Column(
            12,
            "feasible",
            "f64",
            "probability that it keeps the hard constraints, which comes first in the rank; NULL: "
            "none was broken",
        ),
        Column(13, "n_cases", "i32", "distinct cases with a reward behind it"),
        Column(14, "recommended", "bool", "the candidate handed over by this evidence"),
    ),
)

ATTEMPTS = Table(
    "attempts",
    "The ledger: one row per call made, retries and lost ones included, and per cache hit, which "
    "used 0 tokens and 0 USD. The only source of money.",
    ("run_id", "eval_id", "purpose", "call_key", "attempt"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "NULL: outside a generation"),
        Column(15, "eval_id", "text", "evaluation that asked; NULL: none"),
        Column(3, "call_key", "text", "hash of all that shapes the answer"),
        Column(8, "attempt", "i32", "number of the attempt, from 1; a hit bears the payer's"),
        Column(4, "purpose", "text", "the role that pays: evaluation, judge, …"),
        Column(5, "provider", "text", "kind of target"),
        Column(6, "model", "text", "as answered, or as asked before the answer"),
        Column(7, "state", "text", "done, failed, cached, or started: nobody saw its end"),
        Column(19, "error_type", "text", "short reason of a failed attempt; lost: process died"),
        Column(9, "tokens_in", "i64", "tokens of the whole request"),
        Column(10, "tokens_out", "i64", "tokens of the whole answer"),
        Column(16, "cached_tokens", "i64", "of the request: those the provider had cached"),
        Column(20, "cache_write_tokens", "i64", "of the request: those the provider then cached"),
        Column(17, "reasoning_tokens", "i64", "of the answer: those spent on reasoning"),
        Column(11, "cost_usd", "f64", "NULL: price unknown", "USD"),
        Column(18, "price_version", "text", "date of the price table; NULL: the target said it"),
        Column(22, "max_usd", "f64", "worst case, told before the call; NULL: unknown", "USD"),
        Column(
            12,
            "maybe_usd",
            "f64",
            "at most this was paid for an attempt whose end nobody saw; NULL: unknown",
            "USD",
        ),
        Column(23, "maybe_tokens", "i64", "at most this was used by such an attempt"),
        Column(21, "payer_run_id", "text", "of a cache hit: the run that paid; NULL: no hit"),
        Column(13, "started_at", "ts", "when the call was sent"),
        Column(14, "ended_at", "ts", "when it was answered; NULL: not known"),
    ),
)

PAYLOADS = Table(
    "payloads",
    "Texts sent and received, apart so that evaluations stay narrow.",
    ("run_id", "payload_sha256"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "payload_sha256", "text", "hash of the redacted text"),
        Column(3, "kind", "text", "prompt, response or thought"),
        Column(4, "text", "text", "the redacted text"),
    ),
)

DECISIONS = Table(
    "decisions",
    "One choice of an arm for one request, as of the latest fold.",
    ("seq",),
    (
        Column(1, "system", "text", "the optimized system"),
        Column(12, "agent_type", "text", "its kind of agent"),
        Column(11, "seq", "i64", "number in the runtime state, by time"),
        Column(3, "decision_id", "text", "UUID of version 7"),
        Column(13, "user_id", "text", "whom it served"),
        Column(4, "arm_id", "text", "the arm that served"),
        Column(5, "policy_version", "i64", "the policy that chose, counted for each agent type"),
        Column(6, "propensity", "f64", "probability of this arm when it was drawn", "(0, 1]"),
        Column(14, "fresh", "bool", "drawn for this request; false: kept by its user or session"),
        Column(7, "context_json", "text", "features of the request; NULL: none were given"),
        Column(8, "created_at", "ts", "when it was made"),
        Column(10, "expires_at", "ts", "from then on a reward is late; NULL: never"),
        Column(9, "run_id", "text", "the run that its arm came from; NULL: none"),
    ),
)

REWARDS = Table(
    "rewards",
    "One reward as it arrived, as of the latest fold; duplicates are not kept.",
    ("seq",),
    (
        Column(1, "system", "text", "the optimized system; NULL: nobody's decision"),
        Column(8, "seq", "i64", "number in the runtime state, by arrival"),
        Column(3, "decision_id", "text", "at most one `ok` or `late` row each"),
        Column(4, "reward", "f64", "as it was given", "[0, 1]"),
        Column(5, "status", "text", "ok: the posterior learned from it; late, conflict or orphan"),
        Column(6, "received_at", "ts", "when it arrived"),
        Column(7, "delay_s", "f64", "since the decision; NULL: nobody's", "s"),
    ),
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        *(RUNS, GENERATIONS, CANDIDATES, EVALUATIONS, ESTIMATES, ATTEMPTS, PAYLOADS),
        *(COMMITMENTS, THOUGHTS, PREDICTIONS, POLICY_UPDATES),
        *(PREFERENCES, PREFERENCE_ROUNDS, PREFERENCE_AUDITS, PREFERENCE_PROBES),
        *(DECISIONS, REWARDS),
    )
}
"""All tables by name."""

RUNTIME_TABLES: tuple[Table, ...] = (DECISIONS, REWARDS)
"""Tables that a fold fills from the runtime state; they belong to no run."""

GENERATION_TABLES: tuple[Table, ...] = (
    *(PAYLOADS, CANDIDATES, EVALUATIONS, ESTIMATES, ATTEMPTS),
    *(COMMITMENTS, THOUGHTS, PREDICTIONS, POLICY_UPDATES),
    *(PREFERENCES, PREFERENCE_ROUNDS, PREFERENCE_AUDITS, PREFERENCE_PROBES),
    GENERATIONS,
)
"""Tables published per generation, in the order of publishing: the commit marker last."""

AHEAD_TABLES: tuple[Table, ...] = (COMMITMENTS,)
"""Of these, those that are written before the generation is evaluated, and never again with it."""


def describe() -> str:
    """Return the tables as Markdown, for the documentation."""
    parts = []
    for table in TABLES.values():
        parts.append(f"## {table.name}\n\n{table.meaning} Key: {', '.join(table.key)}.\n")
        parts.append("| id | column | type | unit | meaning |\n|---|---|---|---|---|")
        parts.extend(
            f"| {column.field_id} | {column.name} | {column.type} | {column.unit} "
            f"| {column.meaning} |"
            for column in sorted(table.columns, key=lambda column: column.field_id)
        )
        parts.append("")
    return "\n".join(parts)
