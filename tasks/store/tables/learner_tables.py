"""Tables of learners: thoughts, preferences, audits and written texts."""

from tasks.store.tables.columns import table

THOUGHTS = table("""
thoughts (run_id, generation, thought_id): One reply of the thinker, written before its outcomes, with
failures.
1  | run_id                   | text |        |
2  | generation               | i32  |        | whose outcomes score it
3  | thought_id               | text |        |
4  | agent_id                 | text |        | notes; none: forecasts alone; start: before the first generation
5  | text_sha256              | text |        | the reply in payloads
9  | information_gain         | f64  | nats   | its reward, in nats; NULL: not scored
10 | advantage                | f64  |        | in the policy's update
11 | created_at               | ts   |        | when it was durable
12 | prompt_sha256            | text |        |
14 | n_outcomes               | i32  |        | outcomes it is scored on
15 | gain_se                  | f64  | nats   | standard error of the gain
17 | e_value                  | f64  |        | above 1: better than the posterior
18 | log_policy               | f64  |        | log-propensity of its kind
19 | weight                   | f64  |        | of the model in the draws
20 | tokens_out               | i64  |        | of the reply
21 | cost_usd                 | f64  | USD    |
22 | reason                   | text |        | why it has no reward
24 | dropped                  | text |        | what of the reply was left out, and why
25 | resolution               | f64  | nats   | mean gain over its average forecast
26 | resolution_e_value       | f64  |        | above 1: it tells candidates apart
27 | n_own                    | i32  |        | evaluated settings that it proposed
""")

COMMITMENTS = table("""
commitments (run_id, generation, arm): Thought and forecasts, stored before the generation is
evaluated.
1  | run_id         | text |        |
2  | generation     | i32  |        | whose outcomes are predicted
3  | arm            | text |        | the thought; or posterior (the search's own)
4  | agent_id       | text |        | kind of the thought
5  | prompt         | text |        | messages as JSON
6  | text           | text |        | the reply
7  | text_sha256    | text |        |
8  | reason         | text |        | why it cannot earn a reward
9  | subjects_json  | text |        | candidates chosen without the thought
10 | forecasts_json | text |        | subject → 10, 50 and 90 % quantile
12 | committed_at   | ts   |        | when it was durable
13 | record_sha256  | text |        | hash of the other columns
16 | cases_json     | text |        | for posterior: case → ease
17 | settings_json  | text |        | proposed: [values, quantiles]
""")

PREDICTIONS = table("""
predictions (run_id, generation, thought_id, subject): One thought and one score it forecasts.
1  | run_id           | text |      |
2  | generation       | i32  |      | of the outcome
3  | thought_id       | text |      |
4  | subject          | text |      | candidate
5  | position         | i32  |      | number in the generation
7  | p                | f64  |      | density of the forecast at the score
8  | baseline         | f64  |      | density of the posterior there
9  | gain             | f64  | nats | information gain, in nats
14 | forecast_json    | text |      | 10, 50 and 90 % quantile of the thought
16 | statistical_json | text |      | the same of the posterior
17 | committed_at     | ts   |      | when the forecasts were durable
19 | resolution       | f64  | nats | gain over the thought's average forecast
20 | outcome          | f64  |      | score, freed of the cases
21 | is_own           | bool |      | proposed by the thought: no gain
""")

POLICY_UPDATES = table("""
policy_updates (run_id, generation, update_id): One update of the policy that chooses whether notes are
written.
1  | run_id        | text |      |
2  | generation    | i32  |      | after whose outcomes
3  | update_id     | text |      |
4  | policy        | text |      | rlp
5  | step          | i64  |      | gradient steps
6  | loss          | f64  |      | clipped objective and entropy
7  | kl            | f64  | nats | from the policy before, in nats
8  | grad_norm     | f64  |      | of the last gradient
10 | stats         | map  |      | p_…: probability of an action; w_…: weight in the draws
11 | created_at    | ts   |      |
12 | params_sha256 | text |      |
13 | params_json   | text |      | parameters after it
""")

PREFERENCES = table("""
preferences (run_id, generation, pair_id): One prompt with two answers, judged in both orders,
with discarded pairs.
1  | run_id        | text |      |
2  | generation    | i32  |      | before which it is judged
3  | pair_id       | text |      | hash of prompt and answers
4  | round         | i32  |      | from 0
5  | position      | i32  |      | number in the round
6  | kind          | text |      | incumbent (both answers by it) or candidates (two authors)
7  | split         | text |      | train, or audit (never learned from)
8  | prompt_sha256 | text |      | in payloads
9  | first_sha256  | text |      | first answer in payloads
10 | second_sha256 | text |      | second answer in payloads
11 | first_author  | text |      | candidate
12 | second_author | text |      | candidate
13 | persona       | i64  |      | index of the asking persona
14 | p12           | f64  |      | P(first is better), shown first
15 | p21           | f64  |      | P(first is better), shown second
16 | log_odds      | f64  | nats | mean of both; above 0: first is better
18 | dropped_by    | text |      | margin or aborted; NULL: kept
""")

# Fields 14 (`weight`), 16 (`estimator`) and 17 (`is_frozen`) are in files of earlier versions.
PREFERENCE_ROUNDS = table("""
preference_rounds (run_id, generation): One round of preference pairs: counts and audits of its
judge.
1  | run_id      | text |        |
2  | generation  | i32  |        | before which it ran
3  | round       | i32  |        | from 0
4  | n_prompts   | i32  |        | requested
5  | n_pairs     | i32  |        | pairs of answers
6  | n_judged    | i32  |        | judged in both orders
7  | n_kept      | i32  |        |
8  | dropped     | map  |        | filter → pairs
9  | judge       | map  |        | agreement over the last 200 pairs, audited items
11 | n_items     | i32  |        | audit items with a known answer
12 | accuracy    | f64  | [0, 1] | share judged right
13 | trust       | f64  | [0, 1] | lower bound over all audits; below .2: disabled
15 | n_variants  | i32  |        | prompts derived for parameters
18 | note        | text |        | abort or end, and why
19 | errors_json | text |        | failure → count
""")

PREFERENCE_AUDITS = table("""
preference_audits (run_id, generation, item_id): One pair with a known answer, judged blind.
1  | run_id         | text |  |
2  | generation     | i32  |  | before which it is judged
3  | item_id        | text |  | hash of case and answers
4  | case_id        | text |  | never a held-out case
5  | first_author   | text |  | candidate
6  | second_author  | text |  | candidate
7  | first_is_right | bool |  | by executed metrics
8  | p12            | f64  |  | P(first is better), shown first
9  | p21            | f64  |  | P(first is better), shown second
10 | p_right        | f64  |  | probability given to the right answer
""")

MUTATIONS = table("""
mutations (run_id, generation, mutation_id): One prompt written for a text parameter, with
rejected prompts.
1  | run_id          | text |        |
2  | generation      | i32  |        | before which it is written
3  | mutation_id     | text |        |
4  | position        | i32  |        | number in the batch
5  | parameter       | text |        | the text parameter
6  | operator        | text |        | kind of edit
7  | parent_ids_json | text |        | text_id of its parents
8  | category        | text |        | failure category of the first parent
9  | propensity      | f64  | [0, 1] | probability of parameter and operator
10 | failures_json   | text |        | cases shown to the writer; never held-out
11 | diagnosis       | text |        | the writer's analysis
12 | text_id         | text |        | start of the text's SHA-256
13 | text            | text |        | NULL: rejected
14 | verdict         | text |        | kept, no_answer, over_budget, untagged, or the broken invariant
15 | writer          | text |        | model; rules; or drawn (demonstrations)
16 | wording_version | text |        | of the instructions
17 | cost_usd        | f64  | USD    |
18 | reason          | text |        | why there is no answer
""")

GAME_ROUNDS = table("""
game_rounds (run_id, generation): One round of language games.
1  | run_id       | text |        |
2  | generation   | i32  |        | always 0
3  | round        | i32  |        | number for this system, from 0
4  | seed         | i64  |        | of the plays
9  | n_plays      | i32  |        | finished plays
10 | cost_usd     | f64  | USD    | all calls of the round
11 | limit_reason | text |        | why it ended early
""")

GAME_COINS = table("""
game_coins (run_id, generation, game): One game in one round, fixed before play.
1  | run_id      | text |  |
2  | generation  | i32  |  | always 0
3  | game        | text |  | id
4  | version     | i32  |  | of protocol and score
5  | round       | i32  |  |
6  | feeds       | text |  | what its plays are for
7  | grounded    | bool |  | scored by executed, dealt or measured truth
8  | p_keep      | f64  |  | P(effect > 0.04) by earlier searches; NULL: not measured
9  | probability | f64  |  | that a search uses an approved case of the game; NULL: it finds none
11 | n_plays     | i32  |  | plays granted
12 | off_reason  | text |  | why it was off
""")

GAME_PLAYS = table("""
game_plays (run_id, generation, play_id): One play with its transcript: enough to score it again.
1  | run_id      | text |     |
2  | generation  | i32  |     | always 0
3  | play_id     | text |     |
4  | game        | text |     | id
5  | version     | i32  |     | of protocol and score
6  | round       | i32  |     |
7  | position    | i32  |     | number in round and game
8  | seed        | i64  |     | of the round
9  | status      | text |     | played, void (no information) or lost (no answer)
10 | scores      | map  |     | role → score
11 | reason      | text |     | why void or lost, or the broken rule
12 | players_json | text |    | role → player
13 | turns_json  | text |     | [role, request, reply], redacted
14 | facts_json  | text |     | what only the protocol knows
15 | sha256      | text |     | of the transcript; NULL: lost
16 | n_calls     | i32  |     | model replies
17 | cost_usd    | f64  | USD |
""")

TASK_AUDITS = table("""
task_audits (package, version, audit, generator, audited_at): Audit of one task generator of a
library. The last counts.
1 | package      | text |  | the library
2 | version      | text |  | installed version
3 | audit        | i32  |  | version of the audit
4 | generator    | text |  |
5 | n_seeds      | i32  |  | items tried
6 | is_admitted  | bool |  | whether it can be played
7 | reason       | text |  | why not
8 | n_generators | i32  |  | generators of that version
9 | audited_at   | ts   |  |
""")
