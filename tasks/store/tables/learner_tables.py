"""Tables of learners: thoughts, preferences, audits and written texts."""

from tasks.store.tables.columns import table

THOUGHTS = table("""
thoughts (run_id, generation, thought_id): One hypothesis, written before the outcomes it is
scored on; no-ops and failures too.
1  | run_id                   | text |        | the run
2  | generation               | i32  |        | the generation whose outcomes it is judged by
3  | thought_id               | text |        | hash of run, generation and number
4  | agent_id                 | text |        | strategy that wrote it; none: the no-op
5  | text_sha256              | text |        | the text in payloads
6  | prediction               | f64  | [0, 1] | mean predicted reward; NULL: pairs, or none
7  | logp_with                | f64  | nats   | mean log-likelihood of the outcomes with it
8  | logp_without             | f64  | nats   | the same of the baseline
9  | information_gain         | f64  | nats   | its reward; NULL: not scored
10 | advantage                | f64  |        | as used in the policy's update
11 | created_at               | ts   |        | when it was durable: before any outcome
12 | prompt_sha256            | text |        | hash of its prompt
13 | estimator                | text |        | chat_echo, echo, chat or elicited; of earlier versions also decisions and pairwise
14 | n_outcomes               | i32  |        | outcomes it was scored on
15 | gain_se                  | f64  | nats   | standard error of its gain over outcomes
16 | paper_gain               | f64  | nats   | gain over the same model without a thought
17 | e_value                  | f64  |        | evidence of this generation; above 1: it beat the baseline
18 | log_policy               | f64  |        | log-probability of its strategy when it was drawn
19 | weight                   | f64  |        | its probability in the mixture that candidates were drawn from
20 | tokens_out               | i64  |        | tokens of the text
21 | cost_usd                 | f64  | USD    | of the text alone; its predictions are in attempts
22 | reason                   | text |        | why it earned no reward; NULL: it did, or is a no-op
23 | ignored_reason (unheard) | text |        | why it had no weight in the draws; NULL: it had, or is a no-op
24 | dropped                  | text |        | its proposals outside of the space, and why; NULL: none
25 | resolution               | f64  | nats   | mean gain over its own average forecast
26 | resolution_e_value       | f64  |        | evidence of that; above 1: it distinguished candidates
""")

COMMITMENTS = table("""
commitments (run_id, generation, arm): Thoughts and predictions, written before anything of the
generation was evaluated.
1  | run_id         | text |        | the run
2  | generation     | i32  |        | whose outcomes are predicted
3  | arm            | text |        | the thought; none: without one; posterior: the search's own
4  | agent_id       | text |        | strategy of the thought
5  | prompt         | text |        | prompt of the thought, messages as JSON
6  | text           | text |        | the thought
7  | text_sha256    | text |        | hash of the text
8  | reason         | text |        | why it can earn no reward; NULL: it can
9  | subjects_json  | text |        | candidates or pairs, chosen without any thought
10 | forecasts_json | text |        | subject → distribution of its outcome, as read
11 | estimator      | text |        | where the probabilities come from
12 | committed_at   | ts   |        | when the last of it was durable in the journal
13 | record_sha256  | text |        | hash of all of the row but this
14 | low            | f64  | [0, 1] | where the bins of rewards begin
15 | high           | f64  | [0, 1] | where they end
16 | cases_json     | text |        | arm posterior: case → ease, taken off outcomes
""")

PREDICTIONS = table("""
predictions (run_id, generation, thought_id, subject): One thought and one outcome that it
predicted: the memory that thoughts are learned from.
1  | run_id           | text |      | the run
2  | generation       | i32  |      | when the outcome came
3  | thought_id       | text |      | the thought
4  | subject          | text |      | the candidate; of pairs: both, joined by a bar
5  | position         | i32  |      | number within the generation
6  | observed         | i32  |      | the outcome: bin of the reward, or which of a pair
7  | p                | f64  |      | probability given to it, with the thought
8  | baseline         | f64  |      | probability that the baseline gave it
9  | gain             | f64  | nats | information gain
10 | paper_gain       | f64  | nats | against the same model without a thought
11 | crps_gain        | f64  |      | difference of scores; no information gain
12 | estimator        | text |      | where the probabilities come from
13 | is_rescored      | bool |      | the thought is of an earlier generation: no reward
14 | forecast_json    | text |      | distribution as read, with the thought
15 | no_thought_json  | text |      | the same without a thought
16 | statistical_json | text |      | distribution of the search's own posterior
17 | committed_at     | ts   |      | when all predictions were durable
18 | is_censored      | bool |      | an arm's probability of the outcome is a bound
19 | resolution       | f64  | nats | gain over the thought's own average forecast
""")

POLICY_UPDATES = table("""
policy_updates (run_id, generation, update_id): One update of the policy that chooses strategies
of thought.
1  | run_id        | text |      | the run
2  | generation    | i32  |      | after whose outcomes
3  | update_id     | text |      | number of the update
4  | policy        | text |      | which policy: rlp
5  | step          | i64  |      | gradient steps taken
6  | loss          | f64  |      | of the clipped objective and the entropy
7  | kl            | f64  | nats | from the policy before it
8  | grad_norm     | f64  |      | of the last gradient
10 | stats         | map  |      | p_…: probability of a strategy; w_…: weight of an expert; more
11 | created_at    | ts   |      | when the generation's predictions were durable
12 | params_sha256 | text |      | hash of the parameters after it
13 | params_json   | text |      | the parameters after it
""")

PREFERENCES = table("""
preferences (run_id, generation, pair_id): One prompt and two answers that a judge compared in
both orders; discarded ones too.
1  | run_id        | text |      | the run
2  | generation    | i32  |      | before which it was judged
3  | pair_id       | text |      | hash of prompt and both answers
4  | round         | i32  |      | number of the round, from 0
5  | position      | i32  |      | number within the round
6  | kind          | text |      | incumbent: both answers are its own; candidates: of two
7  | split         | text |      | train, or audit: frozen, never learned from
8  | prompt_sha256 | text |      | the prompt in payloads
9  | first_sha256  | text |      | the first answer in payloads
10 | second_sha256 | text |      | the second answer in payloads
11 | first_author  | text |      | candidate that wrote the first answer
12 | second_author | text |      | candidate that wrote the second
13 | persona       | i64  |      | index of the persona that asks; NULL: imported
14 | p12           | f64  |      | P(first is better), shown first
15 | p21           | f64  |      | P(first is better), shown second
16 | log_odds      | f64  | nats | mean of both; above 0: the first is better
17 | estimator     | text |      | chat_echo, echo, chat or verdict; of earlier versions also decisions
18 | dropped_by    | text |      | margin, length_bias or aborted; NULL: kept
""")

# Field 14 was `weight`, of the judge in the draws; files of earlier versions hold it.
PREFERENCE_ROUNDS = table("""
preference_rounds (run_id, generation): One round of preference pairs: its counts, and the audits
of its judge.
1  | run_id      | text |        | the run
2  | generation  | i32  |        | before which it ran
3  | round       | i32  |        | number of the round, from 0
4  | n_prompts   | i32  |        | prompts that were asked for
5  | n_pairs     | i32  |        | pairs of answers that came to be
6  | n_judged    | i32  |        | of these judged in both orders
7  | n_kept      | i32  |        | of these kept
8  | dropped     | map  |        | filter → pairs that it dropped
9  | judge       | map  |        | agreement, position, length and more of the last 200 pairs
10 | coverage    | map  |        | how wide texts and configurations are
11 | n_items     | i32  |        | grounded items that the judge was tried on
12 | accuracy    | f64  | [0, 1] | share of these that it judged right
13 | trust       | f64  | [0, 1] | lower bound, over all audits; below .2: disabled
15 | n_variants  | i32  |        | texts distilled for parameters
16 | estimator   | text |        | how judgements were read; NULL: nothing was judged
17 | is_frozen   | bool |        | judge exploitation was found
18 | note        | text |        | why it was aborted, raised an alarm or ended the rounds
19 | errors_json | text |        | failure → how often, a JSON object
""")

PREFERENCE_AUDITS = table("""
preference_audits (run_id, generation, item_id): One pair whose truth was executed, judged blind.
1  | run_id         | text |  | the run
2  | generation     | i32  |  | before which it was judged
3  | item_id        | text |  | hash of the case and both answers
4  | case_id        | text |  | the test case; never a held-out one
5  | first_author   | text |  | candidate that wrote the first answer
6  | second_author  | text |  | candidate that wrote the second
7  | first_is_right | bool |  | which answer executed metrics call right
8  | p12            | f64  |  | P(first is better), shown first
9  | p21            | f64  |  | P(first is better), shown second
10 | p_right        | f64  |  | probability that the judge gave to the truth
11 | estimator      | text |  | how the judgement was read
""")

PREFERENCE_PROBES = table("""
preference_probes (run_id, generation, position): One prompt that was written while an alarm of
coverage lasts; it is not answered.
1 | run_id        | text |  | the run
2 | generation    | i32  |  | before which it was written
3 | position      | i32  |  | number within the round
4 | round         | i32  |  | number of the round, from 0
5 | persona       | i64  |  | index of the persona that asks
6 | prompt_sha256 | text |  | the prompt in payloads
""")

MUTATIONS = table("""
mutations (run_id, generation, mutation_id): One text that was written for a text parameter; refused
ones too.
1  | run_id          | text |        | the run
2  | generation      | i32  |        | before which it was written
3  | mutation_id     | text |        | hash of run, place and operator
4  | position        | i32  |        | number within the writing
5  | parameter       | text |        | the text parameter
6  | operator        | text |        | kind of edit
7  | parent_ids_json | text |        | text_id of the texts that it was written from, a JSON list
8  | category        | text |        | failure category of the first parent
9  | propensity      | f64  | [0, 1] | probability of parameter and operator when they were drawn
10 | failures_json   | text |        | cases that the request showed, a JSON list; never held-out ones
11 | diagnosis       | text |        | what was wrong, in the writer's words
12 | text_id         | text |        | 16 hexadecimal digits of the text's SHA-256
13 | text            | text |        | the text; NULL: it was refused
14 | verdict         | text |        | kept, no_answer, over_budget, untagged, or the invariant that it breaks
15 | writer          | text |        | the model; rules: fixed rules; drawn: demonstrations
16 | wording_version | text |        | of the instructions
17 | cost_usd        | f64  | USD    | of the call; NULL: unknown
18 | reason          | text |        | why there is no answer
""")

GAME_ROUNDS = table("""
game_rounds (run_id, generation): One round of language games, and its look at the held-out cases.
1  | run_id       | text |        | the run
2  | generation   | i32  |        | of the run, before which it was played; 0 of a run that is nothing but the round
3  | round        | i32  |        | number of the round of this system, from 0
4  | seed         | i64  |        | of coins and plays
5  | candidate_id | text |        | whose answers to held-out cases were looked at before the round: the leader of the run that it was played in, else the champion, else the defaults
6  | look         | f64  | [0, 1] | mean reward of these answers; NULL: a case has none, or there is no held-out case
7  | rewards_json | text |        | held-out case → reward, a JSON object
8  | is_new_look  | bool |        | cases were asked; false: the same candidate was looked at in the round before
9  | n_plays      | i32  |        | plays that ended
10 | cost_usd     | f64  | USD    | of all calls of the round; NULL: unknown
11 | limit_reason | text |        | why it ended early; NULL: it did not
""")

GAME_COINS = table("""
game_coins (run_id, generation, game): One game in one round; fixed before anything was played.
1  | run_id      | text |  | the run
2  | generation  | i32  |  | of the run, before which it was played; 0 of a run that is nothing but the round
3  | game        | text |  | id of the game
4  | version     | i32  |  | of its protocol and score
5  | round       | i32  |  | number of the round
6  | feeds       | text |  | what its plays are for
7  | grounded    | bool |  | its score compares with what was executed, dealt or measured
8  | p_keep      | f64  |  | P(its effect is above 0) after the rounds before; NULL: off
9  | probability | f64  |  | of being included; NULL: off
10 | is_included | bool |  | how the coin fell
11 | n_plays     | i32  |  | plays that it was given
12 | off_reason  | text |  | why it was not on offer; NULL: it was
""")

GAME_PLAYS = table("""
game_plays (run_id, generation, play_id): One play of a language game, whole: enough to score it again.
1  | run_id      | text |     | the run
2  | generation  | i32  |     | of the run, before which it was played; 0 of a run that is nothing but the round
3  | play_id     | text |     | hash of seed, game, version, round and position
4  | game        | text |     | id of the game
5  | version     | i32  |     | of its protocol and score
6  | round       | i32  |     | number of the round
7  | position    | i32  |     | number within round and game, from 0
8  | seed        | i64  |     | of the round; it decides the play's chance
9  | status      | text |     | played; void: it says nothing; lost: a player could not answer
10 | scores      | map  |     | role → score, in the game's own unit
11 | reason      | text |     | why it is void or lost, or which rule was broken
12 | players_json | text |    | role → who played it, a JSON object
13 | turns_json  | text |     | list of [role, what was asked, reply], secrets replaced
14 | facts_json  | text |     | what the protocol knew and no role did
15 | sha256      | text |     | hash of the transcript; NULL: lost
16 | n_calls     | i32  |     | replies of models
17 | cost_usd    | f64  | USD | of these; NULL: unknown
""")

TASK_AUDITS = table("""
task_audits (package, version, audit, generator, audited_at): What the audit of a library's tasks found of one generator; of several audits the last counts.
1 | package      | text |  | the library
2 | version      | text |  | its installed version
3 | audit        | i32  |  | version of what the audit asks
4 | generator    | text |  | name of the generator
5 | n_seeds      | i32  |  | items that were tried
6 | is_admitted  | bool |  | whether it can be played
7 | reason       | text |  | why it cannot; NULL: it can
8 | n_generators | i32  |  | generators of that version
9 | audited_at   | ts   |  | when it was tried
""")
