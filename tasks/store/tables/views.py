"""Views for queries: the tables and derived views.

Costs come from ``attempts`` alone, since a sum over evaluations would count twice. Means that
compare candidates come from ``estimates`` alone, which the run wrote. Raw means do not compare
candidates, which ran on different cases. They average each case first, since repeats of a case are
not independent, and then weight the cases.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from tasks.store.journal.ledger import KNOWN_USD, UNPRICED
from tasks.store.tables.tables import TABLES

LAST_OF_CELL = """QUALIFY row_number() OVER (
  PARTITION BY run_id, candidate_id, role, case_id, replicate
  ORDER BY status = 'skipped', generation DESC) = 1"""
"""Filter on evaluations that keeps the last outcome of a repeated cell. A skip is kept only if the
cell has no other outcome.
"""

_PER_CASE = f"""per_case AS (
          SELECT run_id, candidate_id, role, case_id, avg(reward) AS reward,
                 CASE WHEN count(reward) > 0 THEN coalesce(max(weight), 1.0) ELSE 0.0 END AS w,
                 count(*) AS n, count(*) FILTER (WHERE status <> 'ok') AS n_failed,
                 avg(latency_ms) AS latency_ms, coalesce(max(weight), 1.0) AS weight
          FROM (SELECT * FROM evaluations WHERE status <> 'skipped' {LAST_OF_CELL}) GROUP BY ALL)"""  # noqa: S608 - constants
"""Mean rewards per case; a case without any has weight 0."""

_MEANS = """means AS (
          SELECT run_id, candidate_id, role,
                 sum(w * reward) / nullif(sum(w), 0) AS raw_mean_reward,
                 count(reward) AS n_cases, sum(n)::BIGINT AS n_evaluations,
                 sum(n_failed)::BIGINT AS n_failed, sum(weight * latency_ms)
                 / nullif(sum(weight) FILTER (WHERE latency_ms IS NOT NULL), 0) AS latency_ms
          FROM per_case GROUP BY run_id, candidate_id, role)"""

DERIVED: Mapping[str, tuple[str, str]] = {
    "metrics": (
        "One row per evaluation and metric, as measured; of a repeated cell the last one.",
        f"""
        SELECT run_id, generation, eval_id, candidate_id, case_id, role,
               m.key AS metric, m.value AS value
        FROM (SELECT *, unnest(map_entries(metrics)) AS m
              FROM (SELECT * FROM evaluations {LAST_OF_CELL}))
        """,  # noqa: S608 - constants
    ),
    "parameters": (
        "One row per candidate and active parameter; `number` is NULL for texts.",
        """
        SELECT c.run_id, c.candidate_id, j.key AS parameter,
               json_extract_string(j.value, '$') AS value,
               CASE WHEN j.type IN ('DOUBLE', 'UBIGINT', 'BIGINT')
                    THEN CAST(j.value AS DOUBLE) END AS number
        FROM candidates c, json_each(c.params_json) j
        """,
    ),
    "costs": (
        "Calls, tokens and money by generation, UTC day, purpose, provider and model. "
        "`n_unpriced` calls have no known price; `maybe_usd` bounds calls whose end is "
        "unknown.",
        f"""
        SELECT run_id, generation, CAST(started_at AT TIME ZONE 'UTC' AS DATE) AS day,
               purpose, provider, model,
               count(*) FILTER (WHERE state <> 'cached') AS n_calls,
               count(*) FILTER (WHERE state = 'failed') AS n_failed,
               count(*) FILTER (WHERE state = 'cached') AS n_cached,
               count(*) FILTER (WHERE {UNPRICED}) AS n_unpriced,
               sum(tokens_in)::BIGINT AS tokens_in, sum(tokens_out)::BIGINT AS tokens_out,
               sum(cached_tokens)::BIGINT AS cached_tokens,
               sum(cache_write_tokens)::BIGINT AS cache_write_tokens,
               sum(reasoning_tokens)::BIGINT AS reasoning_tokens,
               {KNOWN_USD} AS cost_usd, sum(maybe_usd) AS maybe_usd
        FROM attempts GROUP BY ALL
        """,  # noqa: S608 - constants
    ),
    "answer_sources": (
        "Who paid for the answers of a run: this run, or another.",
        """
        SELECT run_id, purpose,
               CASE WHEN state = 'done' THEN 'paid by this run'
                    WHEN payer = run_id THEN 'used again within this run'
                    ELSE 'paid by another run' END AS source,
               payer AS payer_run_id, count(*) AS n_answers
        FROM (SELECT *, CASE WHEN state = 'cached' THEN coalesce(payer_run_id, run_id)
                             ELSE run_id END AS payer
              FROM attempts WHERE state IN ('done', 'cached'))
        GROUP BY ALL
        """,
    ),
    "posteriors": (
        "Newest posterior of each candidate's mean reward.",
        """
        SELECT * FROM estimates WHERE role = 'search'
        QUALIFY 2 * n_generations + (generation IS NULL)::INTEGER
                = max(2 * n_generations + (generation IS NULL)::INTEGER) OVER (PARTITION BY run_id)
        """,
    ),
    "leaderboard": (
        "Candidates as the search ranks them. `recommended` is the result: rank 1, the defaults "
        "or the champion; one that this run did not search stands in `final_estimates` alone. "
        "`posterior_mean` compares candidates, `cautious` orders them.",
        f"""
        WITH {_PER_CASE},
        {_MEANS},
        money AS (
          SELECT run_id, candidate_id, {KNOWN_USD} AS cost_usd
          FROM attempts JOIN (SELECT run_id, eval_id, candidate_id FROM evaluations
                              WHERE role = 'search') USING (run_id, eval_id) GROUP BY ALL)
        SELECT m.run_id, s.rank, coalesce(s.recommended, false) AS recommended, m.candidate_id,
               s.mean AS posterior_mean, s.low AS posterior_low, s.high AS posterior_high,
               s.cautious, s.feasible, m.n_cases, m.raw_mean_reward, m.n_evaluations, m.n_failed,
               money.cost_usd, m.latency_ms, c.generation, c.origin, c.params_json
        FROM means m JOIN candidates c USING (run_id, candidate_id)
             LEFT JOIN posteriors s USING (run_id, candidate_id)
             LEFT JOIN money USING (run_id, candidate_id)
        WHERE m.role = 'search'
        """,  # noqa: S608 - constants
    ),
    "learning_curve": (
        "The search's leader after each generation: `best_so_far` is the posterior mean of "
        "`recommended_id`; `posterior_mean` averages the generation's candidates.",
        """
        WITH money AS (
          SELECT run_id, generation, sum(cost_usd) AS cost_usd, sum(n_unpriced) AS n_unpriced
          FROM costs GROUP BY ALL),
        leaders AS (
          SELECT run_id, n_generations - 1 AS generation, candidate_id, mean, low, high, n_cases
          FROM estimates WHERE rank = 1 AND role = 'search'
          QUALIFY row_number() OVER (PARTITION BY run_id, n_generations
                                     ORDER BY estimates.generation IS NOT NULL) = 1)
        SELECT g.run_id, g.generation, l.candidate_id AS recommended_id, l.mean AS best_so_far,
               l.low AS best_low, l.high AS best_high, l.n_cases AS best_n_cases,
               g.posterior_mean, g.raw_mean_reward, g.raw_best_reward, g.n_evaluations,
               CAST(sum(g.n_evaluations) OVER w AS BIGINT) AS cumulative_evaluations,
               money.cost_usd, sum(money.cost_usd) OVER w AS cumulative_usd,
               CAST(coalesce(sum(money.n_unpriced) OVER w, 0) AS BIGINT) AS cumulative_unpriced
        FROM generations g LEFT JOIN money USING (run_id, generation)
             LEFT JOIN leaders l USING (run_id, generation)
        WINDOW w AS (PARTITION BY g.run_id ORDER BY g.generation)
        """,
    ),
    "final_estimates": (
        "Means on cells that the search never used, by candidate and role, with intervals.",
        f"""
        WITH {_PER_CASE},
        {_MEANS}
        SELECT m.run_id, coalesce(e.recommended, false) AS recommended, m.candidate_id, m.role,
               coalesce(e.mean, m.raw_mean_reward) AS mean_reward, e.low, e.high, e.level,
               m.n_cases, m.n_evaluations, m.n_failed
        FROM means m LEFT JOIN estimates e
             ON e.run_id = m.run_id AND e.candidate_id = m.candidate_id AND e.role = m.role
                AND e.generation IS NULL
        WHERE m.role <> 'search'
        """,  # noqa: S608 - constants
    ),
    "mutation_effects": (
        "Written prompts against their parents on shared search cases: mean difference "
        "`effect`, cases `fixed` and `broken`; NULL without shared cases.",
        """
        WITH by_text AS (
          SELECT p.run_id, p.parameter, left(sha256(p.value), 16) AS text_id, e.case_id,
                 avg(e.reward) AS reward
          FROM parameters p JOIN evaluations e USING (run_id, candidate_id)
          WHERE e.role = 'search' AND e.reward IS NOT NULL AND p.number IS NULL GROUP BY ALL)
        SELECT m.*, json_extract_string(m.parent_ids_json, '$[0]') AS parent_id,
               count(b.case_id) AS n_shared, avg(a.reward - b.reward) AS effect,
               stddev_samp(a.reward - b.reward) / sqrt(count(b.case_id)) AS effect_se,
               CASE WHEN count(b.case_id) > 0 THEN count(*) FILTER (WHERE a.reward - b.reward > 1e-9) END AS fixed,
               CASE WHEN count(b.case_id) > 0 THEN count(*) FILTER (WHERE b.reward - a.reward > 1e-9) END AS broken
        FROM mutations m
             LEFT JOIN by_text a ON a.run_id = m.run_id AND a.parameter = m.parameter
                                 AND a.text_id = m.text_id AND m.verdict = 'kept'
             LEFT JOIN by_text b ON b.run_id = m.run_id AND b.parameter = m.parameter
                                 AND b.text_id = json_extract_string(m.parent_ids_json, '$[0]')
                                 AND b.case_id = a.case_id
        GROUP BY ALL
        """,
    ),
    "failures": (
        "Failed evaluations, and why.",
        """
        SELECT run_id, generation, eval_id, candidate_id, case_id, role, status, fault,
               error_type, error, attempt, latency_ms
        FROM evaluations WHERE status <> 'ok'
        """,
    ),
    "rated_answers": (
        "One row per logged answer and rater, with the rating that counts. `reward` is "
        "(rating - 3) / 2, thumbs are 1 and -1, NULL is unrated.",
        """
        SELECT i.interaction_id, i.role, i.user_id, i.model, i.adapter_version, i.system,
               json_extract_string(i.messages_json, '$[#-1].content') AS prompt, i.response,
               m.user_id AS rater_id, m.rating, m.thumbs, m.reason,
               coalesce((m.rating - 3) / 2.0, CASE m.thumbs WHEN 'up' THEN 1.0 WHEN 'down' THEN -1.0 END)
               AS reward, i.created_at, m.created_at AS rated_at
        FROM interactions i LEFT JOIN (
          SELECT * FROM ratings
          QUALIFY row_number() OVER (PARTITION BY interaction_id, user_id ORDER BY seq DESC) = 1
                  AND (rating IS NOT NULL OR thumbs IS NOT NULL)) m ON m.interaction_id = i.interaction_id
        """,
    ),
    "answer_pairs": (
        "One row per pair of answers and rater, with the choice that counts.",
        """
        SELECT c.user_id AS rater_id, b.role, c.chosen_id, c.rejected_id,
               json_extract_string(b.messages_json, '$[#-1].content') AS prompt,
               b.response AS chosen, w.response AS rejected, c.first_id, c.reason, c.created_at
        FROM (
          SELECT *, CASE WHEN chosen_id = low_id THEN high_id ELSE low_id END AS rejected_id
          FROM comparisons
          QUALIFY row_number() OVER (PARTITION BY low_id, high_id, user_id ORDER BY seq DESC) = 1) c
        JOIN interactions b ON b.interaction_id = c.chosen_id
        JOIN interactions w ON w.interaction_id = c.rejected_id
        """,
    ),
    "adapters": (
        "One row per adapter with its status, whether it passed every check, and why not.",
        """
        SELECT a.version, a.role, a.base_model, a.parent, a.objective, a.n_rows, a.status, a.reason,
               a.changed_by, g.passed, g.failed, a.created_at AS decided_at
        FROM (
          SELECT * FROM adapter_events
          QUALIFY row_number() OVER (PARTITION BY version ORDER BY seq DESC) = 1) a
        LEFT JOIN (
          SELECT version, bool_and(passed) AS passed,
                 string_agg(words, ' ' ORDER BY seq) FILTER (NOT passed) AS failed
          FROM (
            SELECT * FROM gate_checks
            QUALIFY row_number() OVER (PARTITION BY version, name ORDER BY seq DESC) = 1)
          GROUP BY version) g ON g.version = a.version
        """,
    ),
    "answers": (
        "Evaluations with the texts sent and received; NULL if `storage.keep_text` is off.",
        """
        WITH texts AS (
          SELECT run_id, payload_sha256, min(text) AS text FROM payloads GROUP BY ALL)
        SELECT e.run_id, e.generation, e.eval_id, e.candidate_id, e.case_id, e.role, e.status,
               e.reward, p.text AS prompt, r.text AS response, t.text AS thinking
        FROM evaluations e
             LEFT JOIN texts p ON p.run_id = e.run_id AND p.payload_sha256 = e.request_sha256
             LEFT JOIN texts r ON r.run_id = e.run_id AND r.payload_sha256 = e.payload_sha256
             LEFT JOIN texts t ON t.run_id = e.run_id AND t.payload_sha256 = e.thinking_sha256
        """,
    ),
}
"""Derived views: name → (meaning, SELECT). A view uses only earlier ones."""

_SELECTS = {name: select for name, (_, select) in DERIVED.items()}

VIEW_NAMES: tuple[str, ...] = (*TABLES, *_SELECTS)
_NAMES = frozenset(VIEW_NAMES)
_WORD = re.compile(r"\w+")
_CATALOG = re.compile(
    r"\b(information_schema|duckdb_|pg_|sqlite_|show|pragma|query_table)", re.IGNORECASE
)
"""Ways to reach views without naming them."""


def view_statements(
    files: Mapping[str, Sequence[str]], names: Collection[str] = VIEW_NAMES
) -> dict[str, str]:
    """Return the statements that create these views, in executable order.

    Args:
        files: paths by table.
        names: names of the views, including those that they use.
    """
    tables = {name: table.files_sql(files.get(name, ())) for name, table in TABLES.items()}
    selects = {**tables, **_SELECTS}
    return {
        name: f"CREATE OR REPLACE VIEW {name} AS {select}"
        for name, select in selects.items()
        if name in names
    }


def views_for(sql: str) -> frozenset[str]:
    """Return the views that a query may read: those it names and those that they use.

    A word in a string or comment also counts, which costs only an extra view. A query without a
    view's name, or with DuckDB's catalog, gets all views.
    """
    named = _views_named(sql)
    if not named or _CATALOG.search(sql):
        return frozenset(VIEW_NAMES)
    for name in reversed([*_SELECTS]):
        if name in named:
            named |= _views_named(_SELECTS[name])
    return frozenset(named)


def _views_named(sql: str) -> set[str]:
    return {word for word in _WORD.findall(sql.lower()) if word in _NAMES}
