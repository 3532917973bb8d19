"""Tables of RLP and SAO: thoughts, predictions, preferences and audits."""

from tasks.store.tables.columns import Column, Table

THOUGHTS = Table(
    "thoughts",
    "One text written before the outcomes it is judged by; the silent and the failed ones too.",
    ("run_id", "generation", "thought_id"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "the generation whose outcomes it is judged by"),
        Column(3, "thought_id", "text", "hash of run, generation and number"),
        Column(4, "agent_id", "text", "strategy that wrote it; none: nothing was thought"),
        Column(5, "text_sha256", "text", "the text in payloads"),
        Column(6, "prediction", "f64", "mean predicted reward; NULL: pairs, or none", "[0, 1]"),
        Column(7, "logp_with", "f64", "mean log-likelihood of the outcomes with it", "nats"),
        Column(8, "logp_without", "f64", "the same of the baseline", "nats"),
        Column(9, "information_gain", "f64", "its reward; NULL: not scored", "nats"),
        Column(10, "advantage", "f64", "as used in the policy's update"),
        Column(11, "created_at", "ts", "when it was durable: before any outcome"),
        Column(12, "prompt_sha256", "text", "hash of what the thinker was asked"),
        Column(
            13,
            "estimator",
            "text",
            "chat_echo, echo, chat or elicited; of earlier versions also decisions and pairwise",
        ),
        Column(14, "n_outcomes", "i32", "outcomes it was scored on"),
        Column(15, "gain_se", "f64", "standard error of its gain over outcomes", "nats"),
        Column(16, "paper_gain", "f64", "gain over the same model without a thought", "nats"),
        Column(17, "e_value", "f64", "evidence of this generation; above 1: it beat the baseline"),
        Column(18, "log_policy", "f64", "log-probability of its strategy when it was drawn"),
        Column(19, "weight", "f64", "probability of a place that it had in the draws"),
        Column(20, "tokens_out", "i64", "tokens of the text"),
        Column(21, "cost_usd", "f64", "of the text alone; its predictions are in attempts", "USD"),
        Column(22, "reason", "text", "why it earned no reward; NULL: it did, or was silent"),
        Column(
            23, "unheard", "text", "why it had no say in the draws; NULL: it had, or was silent"
        ),
        Column(
            24, "dropped", "text", "what it proposed outside of the space, and why; NULL: none"
        ),
        Column(25, "resolution", "f64", "mean gain over its own average forecast", "nats"),
        Column(
            26, "resolution_e_value", "f64", "evidence of that; above 1: it told candidates apart"
        ),
    ),
)

COMMITMENTS = Table(
    "commitments",
    "What was thought and foretold, written before anything of the generation was evaluated.",
    ("run_id", "generation", "arm"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "whose outcomes are foretold"),
        Column(3, "arm", "text", "the thought; none: without one; posterior: the search's own"),
        Column(4, "agent_id", "text", "strategy of the thought"),
        Column(5, "prompt", "text", "what the thinker was asked, messages as JSON"),
        Column(6, "text", "text", "what it wrote"),
        Column(7, "text_sha256", "text", "hash of the text"),
        Column(8, "reason", "text", "why it may earn nothing; NULL: it may"),
        Column(9, "subjects_json", "text", "candidates or pairs, chosen without any thought"),
        Column(10, "forecasts_json", "text", "subject → distribution of its outcome, as read"),
        Column(11, "estimator", "text", "where the probabilities come from"),
        Column(12, "committed_at", "ts", "when the last of it was durable in the journal"),
        Column(13, "record_sha256", "text", "hash of all of the row but this"),
        Column(14, "low", "f64", "where the bins of rewards begin", "[0, 1]"),
        Column(15, "high", "f64", "where they end", "[0, 1]"),
        Column(16, "cases_json", "text", "arm posterior: case → ease, taken off outcomes"),
    ),
)

PREDICTIONS = Table(
    "predictions",
    "One thought and one outcome that it predicted: the memory that thoughts are learned from.",
    ("run_id", "generation", "thought_id", "subject"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "when the outcome came"),
        Column(3, "thought_id", "text", "the thought"),
        Column(4, "subject", "text", "the candidate; of pairs: both, joined by |"),
        Column(5, "position", "i32", "number within the generation"),
        Column(6, "observed", "i32", "the outcome: bin of the reward, or which of a pair"),
        Column(7, "p", "f64", "probability given to it, with the thought"),
        Column(8, "baseline", "f64", "probability that the baseline gave it"),
        Column(9, "gain", "f64", "information gain", "nats"),
        Column(10, "paper_gain", "f64", "against the same model without a thought", "nats"),
        Column(11, "crps_gain", "f64", "difference of scores; no information gain"),
        Column(12, "estimator", "text", "where the probabilities come from"),
        Column(13, "is_rescored", "bool", "the thought is of an earlier generation: no reward"),
        Column(14, "forecast_json", "text", "distribution as read, with the thought"),
        Column(15, "no_thought_json", "text", "the same without a thought"),
        Column(16, "statistical_json", "text", "distribution of the search's own posterior"),
        Column(17, "committed_at", "ts", "when all predictions were durable"),
        Column(18, "is_censored", "bool", "an arm's probability of the outcome is a bound"),
        Column(19, "resolution", "f64", "gain over the thought's own average forecast", "nats"),
    ),
)

POLICY_UPDATES = Table(
    "policy_updates",
    "One update of the policy that chooses what to think.",
    ("run_id", "generation", "update_id"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "after whose outcomes"),
        Column(3, "update_id", "text", "number of the update"),
        Column(4, "policy", "text", "which policy: rlp"),
        Column(5, "step", "i64", "gradient steps taken"),
        Column(6, "loss", "f64", "of the clipped objective and the entropy"),
        Column(7, "kl", "f64", "from the policy before it", "nats"),
        Column(8, "grad_norm", "f64", "of the last gradient"),
        Column(
            10, "stats", "map", "p_…: probability of a strategy; w_…: weight of an expert; more"
        ),
        Column(11, "created_at", "ts", "when the generation's predictions were durable"),
        Column(12, "params_sha256", "text", "hash of the parameters after it"),
        Column(13, "params_json", "text", "the parameters after it"),
    ),
)

PREFERENCES = Table(
    "preferences",
    "One prompt and two answers that a judge compared in both orders; those of no use too.",
    ("run_id", "generation", "pair_id"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "before which it was judged"),
        Column(3, "pair_id", "text", "hash of prompt and both answers"),
        Column(4, "round", "i32", "number of the round, from 0"),
        Column(5, "position", "i32", "number within the round"),
        Column(6, "kind", "text", "incumbent: both answers are its own; candidates: of two"),
        Column(7, "split", "text", "train, or audit: frozen, never learned from"),
        Column(8, "prompt_sha256", "text", "the prompt in payloads"),
        Column(9, "first_sha256", "text", "the first answer in payloads"),
        Column(10, "second_sha256", "text", "the second answer in payloads"),
        Column(11, "first_author", "text", "candidate that wrote the first answer"),
        Column(12, "second_author", "text", "candidate that wrote the second"),
        Column(13, "persona", "i64", "index of who asks; NULL: imported"),
        Column(14, "p12", "f64", "P(first is better), shown first"),
        Column(15, "p21", "f64", "P(first is better), shown second"),
        Column(16, "log_odds", "f64", "mean of both; above 0: the first is better", "nats"),
        Column(
            17,
            "estimator",
            "text",
            "chat_echo, echo, chat or verdict; of earlier versions also decisions",
        ),
        Column(18, "dropped_by", "text", "margin, length_bias or aborted; NULL: kept"),
    ),
)

PREFERENCE_ROUNDS = Table(
    "preference_rounds",
    "One round of preferences: what came of it, and what it says of the judge.",
    ("run_id", "generation"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "before which it was played"),
        Column(3, "round", "i32", "number of the round, from 0"),
        Column(4, "n_prompts", "i32", "prompts that were asked for"),
        Column(5, "n_pairs", "i32", "pairs of answers that came to be"),
        Column(6, "n_judged", "i32", "of these judged in both orders"),
        Column(7, "n_kept", "i32", "of these kept"),
        Column(8, "dropped", "map", "filter → pairs that it dropped"),
        Column(9, "judge", "map", "agreement, position, length and more of the last 200 pairs"),
        Column(10, "coverage", "map", "how wide texts and configurations are"),
        Column(11, "n_items", "i32", "grounded items that the judge was tried on"),
        Column(12, "accuracy", "f64", "share of these that it judged right", "[0, 1]"),
        Column(13, "trust", "f64", "lower bound, over all audits; below .2: disabled", "[0, 1]"),
        # 14 was `weight`, of the judge in the draws; files of earlier versions hold it.
        Column(15, "n_variants", "i32", "texts distilled for parameters"),
        Column(16, "estimator", "text", "how judgements were read; NULL: nothing was judged"),
        Column(17, "is_frozen", "bool", "somebody learned to please the judge"),
        Column(18, "note", "text", "why it was aborted, alarmed or ended the rounds"),
        Column(19, "errors_json", "text", "failure → how often, a JSON object"),
    ),
)

PREFERENCE_AUDITS = Table(
    "preference_audits",
    "One pair whose truth was executed, judged blind.",
    ("run_id", "generation", "item_id"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "before which it was judged"),
        Column(3, "item_id", "text", "hash of the case and both answers"),
        Column(4, "case_id", "text", "the test case; never a held-out one"),
        Column(5, "first_author", "text", "candidate that wrote the first answer"),
        Column(6, "second_author", "text", "candidate that wrote the second"),
        Column(7, "first_is_right", "bool", "which answer executed metrics call right"),
        Column(8, "p12", "f64", "P(first is better), shown first"),
        Column(9, "p21", "f64", "P(first is better), shown second"),
        Column(10, "p_right", "f64", "probability that the judge gave to the truth"),
        Column(11, "estimator", "text", "how the judgement was read"),
    ),
)

PREFERENCE_PROBES = Table(
    "preference_probes",
    "One prompt that was written while an alarm of coverage lasts: nobody answers it.",
    ("run_id", "generation", "position"),
    (
        Column(1, "run_id", "text", "the run"),
        Column(2, "generation", "i32", "before which it was written"),
        Column(3, "position", "i32", "number within the round"),
        Column(4, "round", "i32", "number of the round, from 0"),
        Column(5, "persona", "i64", "index of who asks"),
        Column(6, "prompt_sha256", "text", "the prompt in payloads"),
    ),
)
