"""Registry of tables: names, types and meanings of all columns.

Field ids are the contract between versions: a parquet column is found by its id, so columns may
be added (new id, NULL in old files), renamed and widened (i32 → i64 → f64) without a new
format. An id is never used twice; the ids missing below belong to columns of tables as designed
that nothing fills yet. A renamed column has its old name in parentheses: views give it under both.
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
    PREFERENCE_PROBES,
    PREFERENCE_ROUNDS,
    PREFERENCES,
    TASK_AUDITS,
    THOUGHTS,
)

RUNS = table("""
runs (run_id): One row per optimization with one seed.
1  | run_id            | text |  | ULID: sorts by start
2  | name              | text |  | the optimized system, `api.name`
13 | label             | text |  | short name for people: name and the end of the id
3  | started_at        | ts   |  | when the run began
4  | ended_at          | ts   |  | when it ended or was stopped; NULL: it has not
5  | status            | text |  | running, stopped, failed, done, or interrupted: killed, as the next command that reads the store or the system's next run finds
14 | reason            | text |  | why it ended, in words
6  | config_json       | text |  | the whole configuration, without secrets
7  | config_sha256     | text |  | hash of the configuration
15 | config_path       | text |  | file it was read from; NULL: a Python mapping
16 | base_dir          | text |  | folder that its relative paths start from
8  | search_space_json | text |  | normalized search space
17 | cases_sha256      | text |  | hash of all test cases
9  | seed              | i64  |  | seed of the run
10 | code_version      | text |  | package version and commit
12 | tags_json         | text |  | labels and facts about the machine, a JSON object
18 | n_generations     | i32  |  | committed generations when this row was written
19 | summary_json      | text |  | the result handed over; NULL: not finished
""")

GENERATIONS = table("""
generations (run_id, generation): One ask, evaluate, tell; its file makes all others of the
generation visible.
1  | run_id              | text |        | the run
2  | generation          | i32  |        | number of the generation, from 0
3  | started_at          | ts   |        | when its first call was sent
4  | ended_at            | ts   |        | when its last call was answered
5  | status              | text |        | done, or partial: cut short by a budget
6  | n_candidates        | i32  |        | candidates evaluated
7  | n_evaluations       | i32  |        | rows in evaluations
8  | raw_best_reward     | f64  | [0, 1] | highest raw mean of a candidate over the cells of this generation; candidates were asked different cases
9  | raw_mean_reward     | f64  | [0, 1] | mean of these raw means
15 | posterior_mean      | f64  | [0, 1] | mean of the posterior means, after it, of the candidates evaluated in it
10 | cost_usd            | f64  | USD    | sum of known prices of its evaluations
11 | prefect_flow_run_id | text |        | flow run in Prefect; NULL: none
12 | rng_state_json      | text |        | generator state after it
13 | sampler_state_json  | text |        | sampler state after it
14 | progress_json       | text |        | numbers of the stopper and the budget after it
""")

CANDIDATES = table("""
candidates (run_id, candidate_id): One point of the search space, in the generation that first
asked it.
1 | run_id        | text   |  | the run
2 | candidate_id  | text   |  | hash of the active parameters
3 | generation    | i32    |  | first asked
4 | origin        | text   |  | default, sample, mutation, crossover, elite, rlp, sao or written
5 | parent_ids    | text[] |  | candidates it was bred from
6 | params_json   | text   |  | active parameters, canonical JSON
7 | params_sha256 | text   |  | hash of params_json: finds repeats across runs
""")

EVALUATIONS = table("""
evaluations (run_id, eval_id): The outcome of one cell: one candidate, one test case, one repeat.
1  | run_id         | text |        | the run
2  | generation     | i32  |        | NULL: the re-estimation after the last generation
3  | eval_id        | text |        | hash of run, generation and cell
4  | candidate_id   | text |        | the candidate
5  | case_id        | text |        | the test case
6  | replicate      | i32  |        | repeat of the same cell, from 0
27 | weight         | f64  |        | the case's weight in a candidate's mean; NULL: 1
23 | role           | text |        | search, fresh or holdout; samplers saw search alone
7  | attempt        | i32  |        | the attempt that counted, from 1
8  | status         | text |        | ok, error, timeout or skipped
24 | fault          | text |        | candidate, infrastructure or evaluator; NULL: none
9  | error_type     | text |        | short reason, e.g. http_500
25 | error          | text |        | message and original traceback, redacted
10 | model          | text |        | as answered by the provider
11 | provider       | text |        | kind of target
12 | reward         | f64  | [0, 1] | 0 for the candidate's own fault; NULL: missing (skipped, other faults)
13 | metrics        | map  |        | metric → value in the metric's unit
14 | latency_ms     | f64  | ms     | of the original call, also when cached
28 | first_token_ms | f64  | ms     | of the original call, to the first piece of its answer; NULL: not streamed
15 | cost_usd       | f64  | USD    | what this evaluation paid; cached 0
16 | tokens_in      | i64  |        | tokens of the request, also when cached
17 | tokens_out     | i64  |        | tokens of the answer, also when cached
18 | started_at     | ts   |        | when the call was sent
19 | ended_at       | ts   |        | when it was answered
20 | call_key       | text |        | the target call in attempts
21 | cached         | bool |        | the answer was first paid by another evaluation
29 | dropped        | text |        | request fields left out and why, joined by `; `
26 | request_sha256 | text |        | the request in payloads
22 | payload_sha256 | text |        | the answer in payloads
31 | thinking_sha256 | text |       | the model's thinking before the answer in payloads; NULL: none is known
30 | recording_url  | text |        | where the browser session that answered can be watched; NULL: none, or it failed, and its error names it
""")

ESTIMATES = table("""
estimates (run_id, generation, candidate_id, role): What the evidence after a generation says of a
candidate's mean reward: of the search a posterior that compares candidates asked different cases,
of the re-estimation what was measured. A generation has those of the first places and the
default, a run's end all.
1  | run_id        | text |        | the run
2  | generation    | i32  |        | after which it was made; NULL: when the run ended
3  | candidate_id  | text |        | the candidate
4  | role          | text |        | search: posterior; fresh or holdout: measured
5  | n_generations | i32  |        | committed generations behind it
6  | rank          | i32  |        | from 1, by the search; NULL: measured
7  | mean          | f64  | [0, 1] | posterior mean, or mean over the cases measured
8  | low           | f64  | [0, 1] | lower end of its interval
9  | high          | f64  | [0, 1] | upper end of its interval
10 | level         | f64  |        | probability of the interval
11 | cautious      | f64  | [0, 1] | what ranks: the lower end of the posterior's 68 % interval, less what the length of texts costs (`prompts.length_price`); NULL: measured
12 | feasible      | f64  |        | probability that it keeps the hard constraints, which comes first in the rank; NULL: none was broken
13 | n_cases       | i32  |        | distinct cases with a reward behind it
14 | recommended   | bool |        | the candidate handed over by this evidence
""")

ATTEMPTS = table("""
attempts (run_id, eval_id, purpose, call_key, attempt): The ledger: one row per call made, retries
and lost ones included, and per cache hit, which used 0 tokens and 0 USD. The only source of
money.
1  | run_id             | text |     | the run
2  | generation         | i32  |     | NULL: outside a generation
15 | eval_id            | text |     | evaluation that asked; NULL: none
3  | call_key           | text |     | hash of all that shapes the answer
8  | attempt            | i32  |     | number of the attempt, from 1; a hit bears the payer's
4  | purpose            | text |     | the role that pays: evaluation, judge, …
5  | provider           | text |     | kind of target
6  | model              | text |     | as answered, or as asked before the answer
7  | state              | text |     | done, failed, cached, or started: its end is not known
19 | error_type         | text |     | short reason of a failed attempt; lost: process died
9  | tokens_in          | i64  |     | tokens of the whole request
10 | tokens_out         | i64  |     | tokens of the whole answer
16 | cached_tokens      | i64  |     | of the request: those the provider had cached
20 | cache_write_tokens | i64  |     | of the request: those the provider then cached
17 | reasoning_tokens   | i64  |     | of the answer: those spent on reasoning
11 | cost_usd           | f64  | USD | NULL: price unknown
18 | price_version      | text |     | date of the price table; NULL: the target stated it
22 | max_usd            | f64  | USD | worst case, known before the call; NULL: unknown
12 | maybe_usd          | f64  | USD | upper bound of what an attempt cost whose end is not known; NULL: unknown
23 | maybe_tokens       | i64  |     | upper bound of the tokens of such an attempt
21 | payer_run_id       | text |     | of a cache hit: the run that paid; NULL: no hit
13 | started_at         | ts   |     | when the call was sent
14 | ended_at           | ts   |     | when it was answered; NULL: not known
""")

PAYLOADS = table("""
payloads (run_id, payload_sha256): Texts sent and received, apart so that evaluations stay narrow.
1 | run_id         | text |  | the run
2 | payload_sha256 | text |  | hash of the redacted text
3 | kind           | text |  | prompt, response, thinking or thought
4 | text           | text |  | the redacted text
""")

DECISIONS = table("""
decisions (seq): One choice of an arm for one request, as of the latest export.
1  | system         | text |        | the optimized system
12 | agent_type     | text |        | its kind of agent
11 | seq            | i64  |        | number in the runtime state, by time
3  | decision_id    | text |        | UUID of version 7
13 | user_id        | text |        | whom it served
4  | arm_id         | text |        | the arm that served
5  | policy_version | i64  |        | the policy that chose, counted for each agent type
6  | propensity     | f64  | (0, 1] | probability of this arm when it was drawn
14 | fresh          | bool |        | drawn for this request; false: kept by its user or session
7  | context_json   | text |        | features of the request; NULL: none were given
8  | created_at     | ts   |        | when it was made
10 | expires_at     | ts   |        | when a reward begins to be late; NULL: never
9  | run_id         | text |        | the run that its arm came from; NULL: none
""")

REWARDS = table("""
rewards (seq): One reward as it arrived, as of the latest export; duplicates are not kept.
1 | system      | text |        | the optimized system; NULL: the decision is not known
8 | seq         | i64  |        | number in the runtime state, by arrival
3 | decision_id | text |        | at most one `ok` or `late` row each
4 | reward      | f64  | [0, 1] | as it was given
5 | status      | text |        | ok: the posterior learned from it; late, conflict or orphan
6 | received_at | ts   |        | when it arrived
7 | delay_s     | f64  | s      | since the decision; NULL: that is not known
""")

INTERACTIONS = table("""
interactions (seq): One logged answer with its prompt, as of the latest export; a forgotten user's are gone.
1  | seq             | i64  |     | number in the feedback, by arrival
2  | interaction_id  | text |     | name of the answer, which ratings give
3  | source          | text |     | where it came from, e.g. chat or api
4  | event_id        | text |     | the source's own name of it
5  | role            | text |     | persona that answered
6  | user_id         | text |     | whom it was answered
7  | conversation_id | text |     | NULL: none
8  | model           | text |     | as the service names it
9  | adapter_version | text |     | version of the adapter that answered; NULL: none or unknown
10 | template_hash   | text |     | SHA-256 of the prompt's template; NULL: unknown
11 | system          | text |     | whose arm answered; NULL: none was chosen
12 | decision_id     | text |     | choice of that arm, which the first rating rewards
13 | messages_json   | text |     | the prompt: role and content of each message, secrets replaced
14 | response        | text |     | the answer, secrets replaced
23 | thinking        | text |     | the model's thinking before it, secrets replaced; NULL: none is known
15 | sampling_json   | text |     | settings by which it was sampled
16 | logprobs_json   | text | nat | log-probability of each token of the answer; NULL: not given
17 | n_input_tokens  | i64  |     | NULL: unknown
18 | n_output_tokens | i64  |     | NULL: unknown
19 | latency_s       | f64  | s   | until the whole answer was there; NULL: unknown
20 | cost_usd        | f64  | USD | NULL: unknown
21 | is_shared       | bool |     | whether users other than its own may rate it
22 | created_at      | ts   |     | when it was answered
""")

RATINGS = table("""
ratings (seq): One mark of an answer as it arrived, as of the latest export; of a user's marks of one answer the last counts.
1 | seq            | i64  |        | number in the feedback, by arrival
2 | interaction_id | text |        | the answer
3 | user_id        | text |        | who rated
4 | rating         | i64  | [1, 5] | Poor, Average, Good, Excellent, Outstanding; NULL: thumbs, or a withdrawal
5 | thumbs         | text |        | up or down; NULL with rating NULL too: earlier marks are taken back
6 | reason         | text |        | why, in the user's words
7 | source         | text |        | where it came from
8 | event_id       | text |        | the source's own name of it: stored once
9 | created_at     | ts   |        | when it was given
""")

COMPARISONS = table("""
comparisons (seq): One choice between two answers to one prompt, as of the latest export; of a user's choices in one pair the last counts.
1  | seq        | i64  |  | number in the feedback, by arrival
2  | low_id     | text |  | one of the answers, the first by name
3  | high_id    | text |  | the other one
4  | chosen_id  | text |  | the better one; NULL: earlier choices are taken back
5  | first_id   | text |  | the one that was shown first; NULL: unknown
6  | user_id    | text |  | who chose
7  | reason     | text |  | why, in the user's words
8  | source     | text |  | where it came from
9  | event_id   | text |  | the source's own name of it: stored once
10 | created_at | ts   |  | when it was given
""")

ADAPTER_EVENTS = table("""
adapter_events (seq): One status that an adapter got, as of the latest export; of an adapter's events the last counts.
1  | seq           | i64  |  | number in the feedback, by arrival
2  | version       | text |  | name of the adapter, ROLE-NNNN; never used twice
3  | role          | text |  | persona that it answers for
4  | base_model    | text |  | model that it changes
5  | parent        | text |  | version that it was trained on from; NULL: the base model
6  | objective     | text |  | by which it was trained, e.g. qrpo
7  | n_rows        | i64  |  | marks that it was trained on itself
8  | folder_sha256 | text |  | SHA-256 of its two files, as registered
9  | status        | text |  | candidate, active, inactive, rolled_back, rejected or stale
10 | reason        | text |  | why it got it; NULL: it was registered
11 | changed_by    | text |  | who gave it: training, gate, command line, or the store itself
12 | created_at    | ts   |  | when it got it
""")

TRAINING_ROUNDS = table("""
training_rounds (seq): The beginning or the end of one training round, as of the latest export; of a round's rows the last counts.
1  | seq           | i64  |  | number in the feedback, by arrival
2  | round_id      | text |  | name of the round
3  | role          | text |  | persona whose answers it learned from
4  | version       | text |  | adapter that came of it; NULL: none, or it runs
5  | objective     | text |  | e.g. qrpo
6  | status        | text |  | running, done, interrupted or failed
7  | n_rows        | i64  |  | rows that it trained on
8  | settings_json | text |  | its settings
9  | metrics_json  | text |  | numbers of the training, e.g. losses, and held-out metrics
10 | reason        | text |  | why it failed or was interrupted
11 | started_at    | ts   |  | when it began
12 | ended_at      | ts   |  | NULL: it runs, or was killed
13 | created_at    | ts   |  | when the row was written
""")

GATE_CHECKS = table("""
gate_checks (seq): One verdict on an adapter, as of the latest export; of its verdicts of one name the last counts.
1  | seq        | i64  |  | number in the feedback, by arrival
2  | version    | text |  | the adapter
3  | name       | text |  | the condition, e.g. kl or reward
4  | passed     | bool |  | an adapter is activated only if all are
5  | value      | f64  |  | what was measured, in `unit`; NULL: nothing was, or it is no number
6  | low        | f64  |  | ends of its 95 % interval; NULL: it has none
7  | high       | f64  |  | as above
8  | threshold  | f64  |  | what the value is held against; NULL: the condition has no number
9  | unit       | text |  | of these four
10 | words      | text |  | the verdict in a sentence
11 | created_at | ts   |  | when it was reached
""")

LIVE_TESTS = table("""
live_tests (seq): The beginning or the end of an adapter's blinded test on live traffic, as of the latest export; of a test's rows the last counts.
1  | seq             | i64  |  | number in the feedback, by arrival
2  | test_id         | text |  | name of the test
3  | version         | text |  | adapter that is tried
4  | control         | text |  | adapter that answered before; NULL: the base model
5  | role            | text |  | persona that they answer for
6  | share           | f64  |  | probability that a conversation is answered by `version`
7  | max_ratings     | i64  |  | ratings after which it ends undecided
8  | status          | text |  | running, better, worse, undecided, or ended: something else changed one of the two
9  | n_ratings       | i64  |  | ratings that counted at its end
10 | n_conversations | i64  |  | conversations that they were given in: what is counted
11 | difference      | f64  |  | mean reward of `version` less that of `control`, over conversations, in [-2, 2]; NULL: not known
12 | low             | f64  |  | ends of its 95 % confidence sequence, which holds at any look; NULL: it runs
13 | high            | f64  |  | as above
14 | reason          | text |  | why it ended without a verdict
15 | started_at      | ts   |  | when it began
16 | ended_at        | ts   |  | NULL: it runs
17 | created_at      | ts   |  | when the row was written
""")

POLICY_EXPERIENCES = table("""
policy_experiences (seq): One decision of the policy of prompt changes with what came of it, as of the latest export.
1  | seq         | i64  |     | number in the policy's database, by arrival
2  | decision_id | text |     | name of the decision: stored once
3  | episode_id  | text |     | changes of one prompt, one after the other
4  | step        | i64  |     | number of changes before it in the episode
5  | version     | i64  |     | of the policy that chose
6  | action      | text |     | the change, or stop
7  | legal       | text |     | actions that could be chosen, with commas between
8  | log_prob    | f64  | nat | log-probability of the action when it was chosen; 0, unknown, where the version is -1: another policy chose
9  | value       | f64  |     | discounted return that the policy expected
10 | reward      | f64  |     | as its collector reported it
11 | terminated  | bool |     | whether the episode ended for good
12 | truncated   | bool |     | whether it was cut
13 | final_value | f64  |     | return expected from where it was cut; 0 elsewhere
14 | observation | text |     | what the policy saw: 32-bit floats, little-endian, in base64
15 | decided_at  | ts   |     | when it was chosen
16 | created_at  | ts   |     | when its outcome arrived
""")

POLICY_VERSIONS = table("""
policy_versions (seq): One version of the policy of prompt changes, as of the latest export.
1 | seq             | i64  |  | number in the policy's database
2 | version         | i64  |  | counts up from 0
3 | kind            | text |  | begun, simulated (learned from a simulation), updated, or loaded from a checkpoint
4 | checkpoint      | text |  | name of the one that was loaded; NULL: none was
5 | sha256          | text |  | of the version's own file
6 | n_steps         | i64  |  | steps learned from in all
7 | statistics_json | text |  | diagnostics of the update: kl, clip_fraction, entropy and more
8 | created_at      | ts   |  | when it began to choose
""")

POLICY_EPISODES = table("""
policy_episodes (seq): One prompt, changed step by step by one policy in a round that compares policies, as of the latest export.
1  | seq           | i64  |        | number in the policy's database
2  | system        | text |        | whose prompts
3  | run_id        | text |        | run that holds the evaluations
4  | episode       | i64  |        | number within the run; policies of one number began with the same text and cases
5  | policy        | text |        | ppo, bandit (linear Thompson sampling) or sequence (the best fixed one)
6  | version       | i64  |        | of the policy learned by PPO, at that time
7  | category      | text |        | text parameter whose text was changed: the family of prompts
8  | text_id       | text |        | 16 hexadecimal digits of the first text's SHA-256
9  | actions       | text |        | what was done, with commas between; stop included
10 | verdicts      | text |        | what became of each action's text, with commas between: kept, or why it was refused
11 | start_score   | f64  | [0, 1] | mean reward of the first text on the episode's cases
12 | gain          | f64  |        | mean reward of the last text less that of the first, on the same cases
13 | reward        | f64  |        | the gain less the price of the edits
14 | n_evaluations | i64  |        | evaluations that the episode takes: its texts times its cases
15 | created_at    | ts   |        | when it ended
""")

POLICY_GATES = table("""
policy_gates (seq): One look of the gate of the policy of prompt changes at one baseline, as of the latest export.
1  | seq           | i64  |     | number in the policy's database
2  | system        | text |     | whose prompts
3  | run_id        | text |     | run after which it looked
4  | version       | i64  |     | of the policy learned by PPO
5  | baseline      | text |     | bandit or sequence
6  | decision      | text |     | promote: the policy earns more; keep: it does not; undecided
7  | n             | i64  |     | episodes that both have played
8  | mean          | f64  |     | mean difference of an episode's reward, policy less baseline; NULL: no episode
9  | low           | f64  |     | end of its 95 % confidence sequence, which holds at any look
10 | high          | f64  |     | as above
11 | log_e         | f64  | nat | highest evidence so far that the policy earns more
12 | log_threshold | f64  | nat | evidence that decides
13 | serves        | text |     | the policy that serves from then on: ppo, bandit or sequence
14 | reason        | text |     | why, in words
15 | created_at    | ts   |     | when it looked
""")

TABLES: Mapping[str, Table] = {
    one.name: one
    for one in (
        *(RUNS, GENERATIONS, CANDIDATES, EVALUATIONS, ESTIMATES, ATTEMPTS, PAYLOADS),
        *(COMMITMENTS, THOUGHTS, PREDICTIONS, POLICY_UPDATES, MUTATIONS),
        *(PREFERENCES, PREFERENCE_ROUNDS, PREFERENCE_AUDITS, PREFERENCE_PROBES),
        *(GAME_ROUNDS, GAME_COINS, GAME_PLAYS),
        *(TASK_AUDITS,),
        *(DECISIONS, REWARDS, INTERACTIONS, RATINGS, COMPARISONS),
        *(ADAPTER_EVENTS, TRAINING_ROUNDS, GATE_CHECKS, LIVE_TESTS),
        *(POLICY_EXPERIENCES, POLICY_VERSIONS, POLICY_EPISODES, POLICY_GATES),
    )
}
"""All tables by name."""

FEEDBACK_TABLES: tuple[Table, ...] = (
    *(INTERACTIONS, RATINGS, COMPARISONS),
    *(ADAPTER_EVENTS, TRAINING_ROUNDS, GATE_CHECKS, LIVE_TESTS),
)
"""Tables that a fold fills from the feedback of people and what was trained on it."""

POLICY_TABLES: tuple[Table, ...] = (
    *(POLICY_EXPERIENCES, POLICY_VERSIONS),
    *(POLICY_EPISODES, POLICY_GATES),
)
"""Tables that a fold fills from the policy of prompt changes."""

ADDED_TABLES: tuple[Table, ...] = (TASK_AUDITS,)
"""Tables to which commands add rows, a file each time."""

RUNTIME_TABLES: tuple[Table, ...] = (
    *(DECISIONS, REWARDS),
    *(*FEEDBACK_TABLES, *POLICY_TABLES, *ADDED_TABLES),
)
"""Tables that a fold or a command fills; they belong to no run."""

GENERATION_TABLES: tuple[Table, ...] = (
    *(PAYLOADS, CANDIDATES, EVALUATIONS, ESTIMATES, ATTEMPTS),
    *(COMMITMENTS, THOUGHTS, PREDICTIONS, POLICY_UPDATES, MUTATIONS),
    *(PREFERENCES, PREFERENCE_ROUNDS, PREFERENCE_AUDITS, PREFERENCE_PROBES),
    *(GAME_ROUNDS, GAME_COINS, GAME_PLAYS),
    GENERATIONS,
)
"""Tables published per generation, in the order of publishing: the commit marker last."""

AHEAD_TABLES: tuple[Table, ...] = (COMMITMENTS,)
"""Of these, those that are written before the generation is evaluated, and never again with it."""


def describe() -> str:
    """Return the tables as Markdown, for the documentation."""
    parts = []
    for one in TABLES.values():
        parts.append(f"## {one.name}\n\n{one.meaning} Key: {', '.join(one.key)}.\n")
        parts.append("| id | column | type | unit | meaning |\n|---|---|---|---|---|")
        parts.extend(
            f"| {column.field_id} | {column.name} | {column.type} | {column.unit} "
            f"| {column.meaning} |"
            for column in sorted(one.columns, key=lambda column: column.field_id)
        )
        parts.append("")
    return "\n".join(parts)
