"""What routing by case would earn, and the night's router as a doubtable prior."""

import json
import math
from typing import Any

import numpy as np
import pytest

from convergence_core.bandit.contextual import ContextualArms
from convergence_core.bandit.features import case_contexts, request_features
from convergence_core.bandit.report import Routing
from convergence_core.bandit.router import CaseTable, portfolio, routing_of
from convergence_core.records import Case, Json, canonical_json

TOPICS = {
    "law": "contract court statute appeal clause evidence ruling liability",
    "code": "function loop variable import return class compile error",
}
COMMON = "please tell me how this can be done in the case of a given list"
REWARDS = np.array([[0.9, 0.5], [0.3, 0.5]])
"""Of topic and candidate: the first is best for law, the second for code."""


def cases_of(n: int, seed: int) -> tuple[list[Case], np.ndarray]:
    """Return questions, and the topic of each."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(2, size=n)
    words = [text.split() for text in TOPICS.values()]
    texts = [" ".join([*rng.choice(words[t], 8), *rng.choice(COMMON.split(), 8)]) for t in topics]
    return [Case(case_id=str(i), input={"question": t}) for i, t in enumerate(texts)], topics


def features(cases: list[Case]) -> list[dict[str, Any]]:
    return [request_features(context) for context in case_contexts(cases)]


def table(n: int, seed: int, *, by_topic: bool, **changed: Any) -> CaseTable:
    cases, topics = cases_of(n, seed)
    means = REWARDS[topics] if by_topic else np.full((n, 2), 0.5)
    rewards = (np.random.default_rng(seed + 100).random((n, 2)) < means).astype(float)
    fields = {
        "contexts": features(cases), "candidates": ["a", "b"], "rewards": rewards,
        "groups": [None] * n, "weights": np.ones(n),
    }  # fmt: skip
    return CaseTable(**{**fields, **changed})


def routed(cases: CaseTable) -> Routing:
    return routing_of(cases, rng=np.random.default_rng(0))


@pytest.mark.statistical
def test_routing_earns_where_the_text_says_which_candidate_is_better():
    routing = routed(table(200, 0, by_topic=True))
    assert 0.02 < routing.low < 0.1 < routing.high < 0.3, "by the true topic it is .1"
    assert routing.single == pytest.approx(0.6, abs=0.08)
    assert set(routing.shares) == {"a", "b"}
    night = ContextualArms.from_json(
        json.loads(json.dumps(routing.night)), [math.nan] * 2, [1.0] * 2
    )
    means = {
        name: night.posterior(request_features({"text": text})).mean_sd[0]
        for name, text in TOPICS.items()
    }
    a, b = list(routing.shares).index("a"), list(routing.shares).index("b")
    assert means["law"][a] - means["law"][b] > means["code"][a] - means["code"][b] + 0.2


@pytest.mark.slow
@pytest.mark.statistical
def test_routing_that_earns_nothing_leaves_no_prior():
    n_earning = 0
    for seed in range(25):
        routing = routed(table(40, seed, by_topic=False))
        n_earning += routing.night is not None
        assert (routing.night is not None) == (routing.low > 0.0)
    assert n_earning <= 2, "one in 40 may"


@pytest.mark.parametrize(
    ("n", "changed", "words"),
    [
        (1, {}, "it takes 20 independent cases, and the run has 1"),
        (60, {"groups": ["same"] * 60}, "the run has 1"),
        (60, {"contexts": [{}] * 60}, "no text, field or tag"),
        (60, {"rewards": np.full((60, 2), np.nan)}, "fewer than two settings"),
        (60, {"rewards": np.tile([1.0, np.nan], (60, 1))}, "fewer than two settings"),
    ],
)
def test_without_an_estimate_it_says_why(n: int, changed: dict[str, Any], words: str):
    routing = routed(table(n, 0, by_topic=True, **changed))
    assert words in routing.missing
    assert routing.night is None


def test_missing_cells_count_for_no_one():
    rewards = table(80, 1, by_topic=True).rewards
    rewards[::7, 0], rewards[5, 1] = np.nan, np.inf
    routing = routed(table(80, 1, by_topic=True, rewards=rewards))
    assert not routing.missing
    assert np.all(np.isfinite([routing.single, routing.gain, routing.low, routing.high]))


def test_arms_are_added_as_long_as_they_raise_what_is_expected():
    expected = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5], [0.6, 0.5, 0.5]])
    even = np.ones(3)
    assert portfolio(expected, even) == [0, 1], "the third is best for no case"
    assert portfolio(expected[:, [2]], even) == [0]


def test_the_single_best_is_the_best_by_the_weights_of_the_cases():
    is_heavy = np.arange(60) < 20
    rewards = np.where(is_heavy[:, None], [1.0, 0.0], [0.2, 1.0])
    weights = np.where(is_heavy, 10.0, 0.1)
    routing = routed(table(60, 2, by_topic=False, rewards=rewards, weights=weights))
    assert routing.single == pytest.approx(np.average(rewards[:, 0], weights=weights))


def test_arms_and_their_knowledge_keep_one_order_through_the_store():
    """Keys are sorted when they are stored, and the better of both comes last."""
    routing = routed(table(200, 0, by_topic=True, candidates=["z", "b"]))
    stored = json.loads(canonical_json({"shares": routing.shares, "night": routing.night}))
    night = ContextualArms.from_json(stored["night"], [math.nan] * 2, [1.0] * 2)
    law = night.posterior(request_features({"text": TOPICS["law"]})).mean_sd[0]
    assert law[[*stored["shares"]].index("z")] > law[[*stored["shares"]].index("b")]


def served_regret(night: ContextualArms | None, seed: int, n: int = 150) -> float:
    cases, topics = cases_of(n, seed)
    rng, total = np.random.default_rng(seed + 200), 0.0
    arms = ContextualArms([0.6, 0.5], [20.0, 20.0], night)
    for context, topic in zip(features(cases), topics, strict=True):
        arm = int(rng.choice(2, p=arms.posterior(context).propensities))
        total += REWARDS[topic].max() - REWARDS[topic, arm]
        arms.tell(arm, float(rng.random() < REWARDS[topic, arm]), context)
    return total


@pytest.mark.slow
@pytest.mark.statistical
def test_a_night_saves_regret_and_one_that_misleads_costs_little():
    without, right, wrong = (
        np.mean([served_regret(night(seed), seed) for seed in range(4)])
        for night in (
            lambda _: None,
            lambda seed: night_of(seed, [0, 1]),
            lambda seed: night_of(seed, [1, 0]),
        )
    )
    assert right < without - 2.0
    assert wrong < without + 5.0


def night_of(seed: int, columns: list[int]) -> ContextualArms:
    learned = table(120, seed + 50, by_topic=True)
    return ContextualArms.of_table(learned.contexts, learned.rewards[:, columns])


def test_the_night_stands_in_the_prior_as_the_rewards_of_its_cases():
    """Until a reward comes, half of the choices are those of a regression on the cases, half know the means alone."""
    night = night_of(0, [0, 1])
    arms = ContextualArms([0.6, 0.5, 0.7], [20.0, 20.0, 20.0], night)
    context = request_features({"text": TOPICS["law"], "plan": "new"})
    expected, posterior = night.posterior(context).means[0], arms.posterior(context)
    assert posterior.probabilities[1::2].sum() == pytest.approx(0.5)
    assert posterior.means[0] == pytest.approx([0.6, 0.5, 0.7])
    assert posterior.means[1, :2] == pytest.approx(expected)
    assert posterior.means[1, 2] == pytest.approx(0.7), "an arm that the run did not have"


def test_a_night_survives_moved_numbers_new_features_and_saving():
    night = night_of(1, [0, 1]).placed([None, 1, 0])
    arms = ContextualArms([math.nan] * 3, [1.0] * 3, night)
    rng = np.random.default_rng(0)
    before = arms.posterior(request_features({"text": TOPICS["code"]})).means[1]
    assert before[1] > before[2], "in the order of the arms on offer"
    for number in range(40):
        text = " ".join(rng.choice(TOPICS["code"].split(), 200))
        given: dict[str, Json] = {"text": text, "words": number, "plan": "ab"[number % 2]}
        arms.tell(number % 3, 0.5, request_features(given))
    context = request_features({"text": TOPICS["code"], "words": 3, "plan": "a"})
    while not arms.is_fitted:
        arms.tell(0, 0.5, context)
    again = ContextualArms.from_json(
        json.loads(json.dumps(arms.to_json())), [math.nan] * 3, [1.0] * 3
    )
    expected, posterior = arms.posterior(context), again.posterior(context)
    assert posterior.probabilities == pytest.approx(expected.probabilities)
    assert posterior.means == pytest.approx(expected.means)


def test_when_an_origin_moves_the_night_is_as_if_its_cases_came_after():
    learned = table(40, 2, by_topic=True)
    night = ContextualArms.of_table(learned.contexts, learned.rewards)
    arms = ContextualArms([math.nan] * 2, [1.0] * 2, night)
    rng = np.random.default_rng(0)
    for number in range(60):
        text = " ".join(rng.choice(TOPICS["code"].split(), 300))
        arms.tell(number % 2, 0.5, request_features({"text": text}))
    places, sums = arms._places, arms._night
    assert sums is not None
    x = np.array([places.encode(context) for context in learned.contexts])
    assert x[:, 1].mean() < -0.5, "requests are longer than cases"
    x[:, places.right > 0] = 0.0  # cases say nothing of pairs
    assert sums.gram[1] == pytest.approx(x.T @ x, abs=1e-6)
    assert sums.cross == pytest.approx(learned.rewards.T @ x, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "context"),
    [
        ("Sum it", {"text": "Sum it"}),
        ([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], {"text": "u"}),
        ([{"role": "user", "content": [{"type": "text", "text": "u"}]}], {"text": "u"}),
        ({"text": "Sum it", "n": 3, "deep": {"x": 1}}, {"text": "Sum it", "n": 3}),
        ({"n": math.inf, "m": math.nan}, {"text": ""}),
        (None, {"text": ""}),
        (7, {"text": ""}),
        ([], {"text": ""}),
    ],
)
def test_a_case_is_read_as_the_request_that_it_stands_for(value: Json, context: dict[str, Json]):
    case = Case(case_id="1", input=value, tags=("math",))
    assert case_contexts([case]) == [{**context, "tags.math": "yes"}]


def test_texts_that_recur_are_features_and_others_are_the_text():
    cases = [
        Case(case_id=str(i), input={"language": "de" if i % 2 else "fr", "question": f"Why {i}?"})
        for i in range(6)
    ]
    assert case_contexts(cases)[1] == {"language": "de", "text": "Why 1?"}


def test_a_text_is_described_by_length_script_code_and_hashed_words():
    prose, code = (
        request_features({"text": text})
        for text in ("Wie heißt die Hauptstadt?", "for (int i = 0; i < n; i++) { a[i] = {}; }")
    )
    assert prose["text.script"] == "latin"
    assert prose["text.length"] == pytest.approx(math.log(22))
    assert prose["text.code"] == 0.0
    share = code["text.code"]
    assert isinstance(share, float)
    assert share > 0.3
    assert {name: request_features({"text": text})["text.script"] for name, text in {
        "ru": "Привет", "zh": "你好吗", "none": "12 + 3", "mixed": "Привет, dear"}.items()
    } == {"ru": "cyrillic", "zh": "cjk", "none": "none", "mixed": "cyrillic"}  # fmt: skip
    assert request_features({"text": "  "}) == {}
    assert request_features({"text": "x"}, "the request's own") == request_features(
        {}, "the request's own"
    )


def test_names_of_the_text_win_over_those_of_the_context():
    given = request_features({"text": "Sum it", "text.length": 99.0})
    assert given == request_features({"text": "Sum it"})
    assert request_features({"text.length": 99.0}) == {"text.length": 99.0}
