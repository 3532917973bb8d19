"""Registry of tables: names, types and meanings of all columns.

Field ids are the contract between versions. Parquet columns are found by id, so columns may be
added (new id, NULL in old files), renamed and widened (i32 → i64 → f64) without a new format. A
column with a self-explanatory name has no meaning. An id is never used twice; missing ids belong
to designed columns that nothing fills yet. A renamed column has its old name in parentheses, and
views provide it under both.
"""

from collections.abc import Mapping

from tasks.store.tables.columns import Table, table
from tasks.store.tables.learner_tables import (
    COMMITMENTS,
    GAME_COINS,
    GAME_PLAYS,
    GAME_ROUNDS,
    MUTATIONS,
    POLICY_UPDATES,
    PREDICTIONS,
    PREFERENCE_AUDITS,
    PREFERENCE_ROUNDS,
    PREFERENCES,
    TASK_AUDITS,
    THOUGHTS,
)

RUNS = table("""
runs (run_id): One row per run: an optimization with one seed.
1  | run_id            | text |  | ULID, sorts by start
2  | name              | text |  | `api.name`
13 | label             | text |  | short name: name and end of the id
3  | started_at        | ts   |  |
4  | ended_at          | ts   |  | NULL: the run has not ended
5  | status            | text |  | running, stopped, failed, done, or interrupted (killed)
14 | reason            | text |  | why it ended
6  | config_json       | text |  | configuration without secrets
7  | config_sha256     | text |  |
15 | config_path       | text |  | NULL: configured from Python
16 | base_dir          | text |  | folder of its relative paths
8  | search_space_json | text |  |
17 | cases_sha256      | text |  | hash of all test cases
9  | seed              | i64  |  |
10 | code_version      | text |  |
12 | tags_json         | text |  | labels and facts about the machine
18 | n_generations     | i32  |  | committed generations
19 | summary_json      | text |  | the result; NULL: not finished
""")

GENERATIONS = table("""
generations (run_id, generation): One ask, evaluate, tell. Its file makes the generation's other
files visible.
1  | run_id              | text |        |
2  | generation          | i32  |        | from 0
3  | started_at          | ts   |        |
4  | ended_at            | ts   |        |
5  | status              | text |        | done, or partial (a limit cut it)
6  | n_candidates        | i32  |        |
7  | n_evaluations       | i32  |        |
8  | raw_best_reward     | f64  | [0, 1] | highest raw mean of a candidate, over different cases each
9  | raw_mean_reward     | f64  | [0, 1] | mean of raw means
15 | posterior_mean      | f64  | [0, 1] | mean posterior of its candidates
10 | cost_usd            | f64  | USD    | known prices of its evaluations
11 | prefect_flow_run_id | text |        |
12 | rng_state_json      | text |        | generator state after it
13 | sampler_state_json  | text |        |
14 | progress_json       | text |        | stopper and budget after it
""")

CANDIDATES = table("""
candidates (run_id, candidate_id): One configuration, in its first generation.
1 | run_id        | text   |  |
2 | candidate_id  | text   |  | hash of the active parameters
3 | generation    | i32    |  | first evaluated
4 | origin        | text   |  | default, sample, mutation, crossover, elite, rlp, sao or written
5 | parent_ids    | text[] |  | candidates it was bred from
6 | params_json   | text   |  | active parameters
7 | params_sha256 | text   |  | finds repeats across runs
""")

EVALUATIONS = table("""
evaluations (run_id, eval_id): One answer: candidate, test case and repeat.
1  | run_id         | text |        |
2  | generation     | i32  |        | NULL: final re-estimation
3  | eval_id        | text |        | hash of run, generation and cell
4  | candidate_id   | text |        |
5  | case_id        | text |        |
6  | replicate      | i32  |        | repeat, from 0
27 | weight         | f64  |        | weight of the case; NULL: 1
23 | role           | text |        | search, fresh or holdout; samplers see search only
7  | attempt        | i32  |        | the attempt that counts, from 1
8  | status         | text |        | ok, error, timeout or skipped
24 | fault          | text |        | candidate, infrastructure or evaluator; NULL: none
9  | error_type     | text |        | for example http_500
25 | error          | text |        | message and traceback, redacted
10 | model          | text |        | as the provider reports it
11 | provider       | text |        | kind of target
12 | reward         | f64  | [0, 1] | 0 for the candidate's error; NULL: missing
13 | metrics        | map  |        | metric → value
14 | latency_ms     | f64  | ms     | of the original call, also when cached
28 | first_token_ms | f64  | ms     | likewise; NULL: not streamed
15 | cost_usd       | f64  | USD    | paid by this evaluation; cached: 0
32 | price_usd      | f64  | USD    | also when cached
16 | tokens_in      | i64  |        | also when cached
17 | tokens_out     | i64  |        | also when cached
18 | started_at     | ts   |        |
19 | ended_at       | ts   |        |
20 | call_key       | text |        | the call in attempts
21 | cached         | bool |        | another evaluation paid for the answer
29 | dropped        | text |        | request fields left out, and why
26 | request_sha256 | text |        | the request in payloads
22 | payload_sha256 | text |        | the answer in payloads
31 | thinking_sha256 | text |       | the model's thinking in payloads
30 | recording_url  | text |        | recording of the browser session
""")

ESTIMATES = table("""
estimates (run_id, generation, candidate_id, role): A candidate's estimated mean reward after a
generation. Search rows hold posteriors, others measured means. Each generation keeps its leaders
and the default; a run's end keeps all.
1  | run_id        | text |        |
2  | generation    | i32  |        | NULL: end of the run
3  | candidate_id  | text |        |
4  | role          | text |        | search (posterior), fresh or holdout (measured)
5  | n_generations | i32  |        | committed generations behind it
6  | rank          | i32  |        | from 1; NULL: measured
7  | mean          | f64  | [0, 1] |
8  | low           | f64  | [0, 1] | ends of the interval
9  | high          | f64  | [0, 1] |
10 | level         | f64  |        | probability of the interval
11 | cautious      | f64  | [0, 1] | ranking score: lower end of the 68 % interval, less `prompts.length_price`
12 | feasible      | f64  |        | probability of keeping hard constraints; ranks first; NULL: none broken
13 | n_cases       | i32  |        | distinct cases with a reward
14 | recommended   | bool |        | the candidate recommended at that time
""")

ATTEMPTS = table("""
attempts (run_id, eval_id, purpose, call_key, attempt): The ledger and only source of money: one
row per call, with retries, lost calls and cache hits (0 tokens, 0 USD).
1  | run_id             | text |     |
2  | generation         | i32  |     | NULL: outside a generation
15 | eval_id            | text |     | NULL: no evaluation
3  | call_key           | text |     | hash of all that shapes the answer
8  | attempt            | i32  |     | from 1; a hit has the payer's
4  | purpose            | text |     | evaluation, judge, …
5  | provider           | text |     | kind of target
6  | model              | text |     | as answered, or as requested
7  | state              | text |     | done, failed, cached or started (end unknown)
19 | error_type         | text |     | lost: the process died
9  | tokens_in          | i64  |     | the whole request
10 | tokens_out         | i64  |     | the whole answer
16 | cached_tokens      | i64  |     | request tokens read from the provider's cache
20 | cache_write_tokens | i64  |     | request tokens written to it
17 | reasoning_tokens   | i64  |     | answer tokens spent on reasoning
11 | cost_usd           | f64  | USD | NULL: unknown price
18 | price_version      | text |     | date of the price table; NULL: stated by the target
22 | max_usd            | f64  | USD | worst case, known before the call
12 | maybe_usd          | f64  | USD | upper bound if the end is unknown
23 | maybe_tokens       | i64  |     | likewise for tokens
21 | payer_run_id       | text |     | run that paid for a hit
13 | started_at         | ts   |     |
14 | ended_at           | ts   |     | NULL: unknown
""")

PAYLOADS = table("""
payloads (run_id, payload_sha256): Redacted texts, stored once.
1 | run_id         | text |  |
2 | payload_sha256 | text |  | hash of the text
3 | kind           | text |  | prompt, response, thinking or thought
4 | text           | text |  |
""")

DECISIONS = table("""
decisions (seq): One choice of an arm for a request.
1  | system         | text |        |
12 | agent_type     | text |        |
11 | seq            | i64  |        | number in the runtime state
3  | decision_id    | text |        | UUID 7
13 | user_id        | text |        |
4  | arm_id         | text |        | the arm that served
5  | policy_version | i64  |        | counted per agent type
6  | propensity     | f64  | (0, 1] | probability of the arm when drawn, above 0
14 | fresh          | bool |        | drawn for this request; false: kept by user or session
7  | context_json   | text |        | features of the request
8  | created_at     | ts   |        |
10 | expires_at     | ts   |        | later rewards are late; NULL: never, 1970: void
9  | run_id         | text |        | run that the arm comes from
""")

REWARDS = table("""
rewards (seq): One reward as it arrived; duplicates are dropped.
1 | system      | text |        | NULL: unknown decision
8 | seq         | i64  |        | number in the runtime state
3 | decision_id | text |        | at most one `ok` or `late` row each
4 | reward      | f64  | [0, 1] |
5 | status      | text |        | ok (the posterior learned from it), late, conflict or orphan
6 | received_at | ts   |        |
7 | delay_s     | f64  | s      | since the decision
""")

INTERACTIONS = table("""
interactions (seq): One logged answer with its prompt. A forgotten user's rows are gone.
1  | seq             | i64  |     |
2  | interaction_id  | text |     | ratings name it
3  | source          | text |     | for example chat or api
4  | event_id        | text |     | the source's id
5  | role            | text |     | persona that answered
6  | user_id         | text |     | user who got the answer
7  | conversation_id | text |     |
8  | model           | text |     |
9  | adapter_version | text |     | NULL: none or unknown
10 | template_hash   | text |     | SHA-256 of the prompt's template
11 | system          | text |     | whose arm answered; NULL: no arm
12 | decision_id     | text |     | choice of that arm; the first rating rewards it
13 | messages_json   | text |     | the prompt, redacted
14 | response        | text |     | redacted
23 | thinking        | text |     | redacted
15 | sampling_json   | text |     | sampling settings
16 | logprobs_json   | text | nat | log-probability of each answer token, in nats
17 | n_input_tokens  | i64  |     |
18 | n_output_tokens | i64  |     |
19 | latency_s       | f64  | s   | until the whole answer arrived
20 | cost_usd        | f64  | USD |
21 | is_shared       | bool |     | whether other users may rate it
22 | created_at      | ts   |     |
""")

RATINGS = table("""
ratings (seq): One rating as it arrived. A user's last rating of an answer counts.
1 | seq            | i64  |        |
2 | interaction_id | text |        |
3 | user_id        | text |        | the rater
4 | rating         | i64  | [1, 5] | 1 (Poor) to 5 (Outstanding); NULL: thumbs or withdrawal
5 | thumbs         | text |        | up or down; NULL with NULL rating: withdrawn
6 | reason         | text |        | in the user's words
7 | source         | text |        |
8 | event_id       | text |        | the source's id, stored once
9 | created_at     | ts   |        |
""")

COMPARISONS = table("""
comparisons (seq): One choice between two answers to a prompt. A user's last choice counts.
1  | seq        | i64  |  |
2  | low_id     | text |  | one answer, the first by id
3  | high_id    | text |  | the other
4  | chosen_id  | text |  | the better; NULL: withdrawn
5  | first_id   | text |  | shown first
6  | user_id    | text |  | the rater
7  | reason     | text |  | in the user's words
8  | source     | text |  |
9  | event_id   | text |  | the source's id, stored once
10 | created_at | ts   |  |
""")

ADAPTER_EVENTS = table("""
adapter_events (seq): One status change of an adapter. The last counts.
1  | seq           | i64  |  |
2  | version       | text |  | ROLE-NNNN, never reused
3  | role          | text |  | persona it answers for
4  | base_model    | text |  |
5  | parent        | text |  | version it starts from; NULL: the base model
6  | objective     | text |  | for example qrpo
7  | n_rows        | i64  |  | ratings trained on
8  | folder_sha256 | text |  | hash of its two files, as registered
9  | status        | text |  | candidate, active, inactive, rolled_back, rejected or stale
10 | reason        | text |  | NULL: registration
11 | changed_by    | text |  | training, gate, command line or store
12 | created_at    | ts   |  |
""")

TRAINING_ROUNDS = table("""
training_rounds (seq): Start or end of a training round. The last row of a round counts.
1  | seq           | i64  |  |
2  | round_id      | text |  |
3  | role          | text |  | persona it learns from
4  | version       | text |  | resulting adapter; NULL: none yet
5  | objective     | text |  | for example qrpo
6  | status        | text |  | running, done, interrupted or failed
7  | n_rows        | i64  |  | rows trained on
8  | settings_json | text |  |
9  | metrics_json  | text |  | losses and costs of the training
10 | reason        | text |  | why it failed or was interrupted
11 | started_at    | ts   |  |
12 | ended_at      | ts   |  | NULL: running or killed
13 | created_at    | ts   |  |
""")

GATE_CHECKS = table("""
gate_checks (seq): One check of an adapter. The last of each name counts.
1  | seq        | i64  |  |
2  | version    | text |  | the adapter
3  | name       | text |  | for example kl or reward
4  | passed     | bool |  | activation needs all
5  | value      | f64  |  | measured, in `unit`
6  | low        | f64  |  | ends of the 95 % interval
7  | high       | f64  |  |
8  | threshold  | f64  |  | limit for the value; NULL: not numeric
9  | unit       | text |  |
10 | words      | text |  | the verdict in a sentence
11 | created_at | ts   |  |
""")

LIVE_TESTS = table("""
live_tests (seq): Start or end of an adapter's blinded test on live traffic. The last row of a
test counts.
1  | seq             | i64  |  |
2  | test_id         | text |  |
3  | version         | text |  | adapter on trial
4  | control         | text |  | adapter before it; NULL: the base model
5  | role            | text |  | persona they answer for
6  | share           | f64  |  | probability that a conversation gets `version`
7  | max_ratings     | i64  |  | limit; then the test ends undecided
8  | status          | text |  | running, better, worse, undecided or ended (one adapter changed)
9  | n_ratings       | i64  |  | ratings counted
10 | n_conversations | i64  |  | conversations counted: the sample size
11 | difference      | f64  |  | mean reward of `version` minus `control`, in [-2, 2]
12 | low             | f64  |  | ends of the 95 % confidence sequence
13 | high            | f64  |  |
14 | reason          | text |  | why it ended without a verdict
15 | started_at      | ts   |  |
16 | ended_at        | ts   |  | NULL: running
17 | created_at      | ts   |  |
""")

POLICY_EXPERIENCES = table("""
policy_experiences (seq): One decision of the edit policy, with its outcome.
1  | seq         | i64  |     |
2  | decision_id | text |     |
3  | episode_id  | text |     | successive changes of one prompt
4  | step        | i64  |     | changes before it
5  | version     | i64  |     | policy version; -1: another policy
6  | action      | text |     | the edit, or stop
7  | legal       | text |     | possible actions, comma-separated
8  | log_prob    | f64  | nat | of the action, in nats; 0 if version is -1
9  | value       | f64  |     | discounted return the policy expected
10 | reward      | f64  |     |
11 | terminated  | bool |     | the episode ended
12 | truncated   | bool |     | the episode was cut
13 | final_value | f64  |     | expected return at the cut; else 0
14 | observation | text |     | policy input: little-endian 32-bit floats, base64
15 | decided_at  | ts   |     |
16 | created_at  | ts   |     |
""")

POLICY_VERSIONS = table("""
policy_versions (seq): One version of the edit policy.
1 | seq             | i64  |  |
2 | version         | i64  |  | from 0
3 | kind            | text |  | begun, simulated, updated or loaded
4 | checkpoint      | text |  | loaded checkpoint
5 | sha256          | text |  | of the version's file
6 | n_steps         | i64  |  | steps learned from in total
7 | statistics_json | text |  | kl, clip_fraction, entropy and more
8 | created_at      | ts   |  |
""")

FEEDBACK_TABLES: tuple[Table, ...] = (
    *(INTERACTIONS, RATINGS, COMPARISONS),
    *(ADAPTER_EVENTS, TRAINING_ROUNDS, GATE_CHECKS, LIVE_TESTS),
)
"""Tables that a fold fills from the feedback and from trained adapters."""

POLICY_TABLES: tuple[Table, ...] = (POLICY_EXPERIENCES, POLICY_VERSIONS)
"""Tables that a fold fills from the edit policy."""

ADDED_TABLES: tuple[Table, ...] = (TASK_AUDITS,)
"""Tables to which commands add rows, one file per command."""

RUNTIME_TABLES = (*ADDED_TABLES, DECISIONS, REWARDS, *FEEDBACK_TABLES, *POLICY_TABLES)
"""Tables of a fold or a command, which belong to no run."""

GENERATION_TABLES: tuple[Table, ...] = (
    *(CANDIDATES, EVALUATIONS, ESTIMATES, ATTEMPTS, PAYLOADS),
    *(COMMITMENTS, THOUGHTS, PREDICTIONS, POLICY_UPDATES, MUTATIONS),
    *(PREFERENCES, PREFERENCE_ROUNDS, PREFERENCE_AUDITS),
    *(GAME_ROUNDS, GAME_COINS, GAME_PLAYS),
    GENERATIONS,
)
"""Tables published per generation, in order of publishing, the commit marker last."""

AHEAD_TABLES: tuple[Table, ...] = (COMMITMENTS,)
"""Tables of these that are written before the evaluation, and not again with the generation."""

TABLES: Mapping[str, Table] = {
    table.name: table for table in (RUNS, GENERATIONS, *GENERATION_TABLES[:-1], *RUNTIME_TABLES)
}
"""All tables by name, in the order of the documents."""
