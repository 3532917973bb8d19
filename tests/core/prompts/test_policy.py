"""Which edit is tried next, and how probable that was."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chisquare

from convergence_core.config.prompts import OPERATORS
from convergence_core.prompts.demonstrations import drawn
from convergence_core.prompts.evidence import (
    TextEvidence,
    front,
    gain,
    merge_partners,
    text_posterior,
)
from convergence_core.prompts.failures import Observed, category_of, main_category, merged
from convergence_core.prompts.policy import (
    LEAST_EXAMPLES,
    Tried,
    agreed_chances,
    chances_by_text,
    parameter_propensities,
    prior_mean,
    propensities,
)
from convergence_core.prompts.shots import Shot, joined, split
from convergence_core.prompts.state import KEPT, Mutation, PromptState, text_id_of
from convergence_core.records import CATEGORIES

tried = st.lists(
    st.builds(
        Tried,
        operator=st.sampled_from(OPERATORS),
        category=st.sampled_from(CATEGORIES),
        gain=st.floats(-1, 1),
        variance=st.floats(1e-4, 1),
    ),
    max_size=20,
)


@given(tried, st.sampled_from(CATEGORIES), st.integers(0, 2**32))
def test_propensities_are_positive_and_sum_to_one(edits, category, seed):
    p = propensities(OPERATORS, category, edits, np.random.default_rng(seed))
    assert abs(p.sum() - 1.0) < 1e-9
    assert (p > 0.0).all()
    q = parameter_propensities([edits, [], edits[:3]], np.random.default_rng(seed))
    assert abs(q.sum() - 1.0) < 1e-9
    assert (q > 0.0).all()


def test_operators_are_drawn_as_often_as_their_propensity_says():
    edits = [Tried(operator="reflect", category="wrong", gain=0.1, variance=0.01)]
    rng = np.random.default_rng(1)
    p = propensities(OPERATORS, "wrong", edits, rng)
    counts = np.bincount(rng.choice(len(p), size=5000, p=p), minlength=len(p))
    assert chisquare(counts, 5000 * p).pvalue > 1e-3


def test_what_has_helped_a_category_is_chosen_there_and_less_elsewhere():
    edits = [
        Tried(operator="expansion", category="empty", gain=0.3, variance=0.002) for _ in range(5)
    ]
    at = OPERATORS.index("expansion")
    here = propensities(OPERATORS, "empty", edits, np.random.default_rng(0))[at]
    elsewhere = propensities(OPERATORS, "wrong", edits, np.random.default_rng(0))[at]
    assert here > 0.7 * (1 - LEAST_EXAMPLES)
    assert 1 / len(OPERATORS) < elsewhere < here


def test_a_third_of_the_edits_draw_demonstrations_whatever_has_helped():
    edits = [Tried(operator="reflect", category="wrong", gain=0.5, variance=0.001)] * 9
    p = propensities(OPERATORS, "wrong", edits, np.random.default_rng(0))
    assert p[OPERATORS.index("examples")] == pytest.approx(1 / 3)
    assert p[OPERATORS.index("reflect")] == pytest.approx(2 / 3, abs=0.07)
    alone = propensities(["examples"], "wrong", edits, np.random.default_rng(0))
    without = propensities(["reflect", "merge"], "wrong", edits, np.random.default_rng(0))
    assert (alone.sum(), without.sum()) == pytest.approx((1.0, 1.0))


def test_a_reduction_is_chosen_more_often_the_more_edits_lie_behind():
    at = OPERATORS.index("context-reduction")
    found = [
        propensities(OPERATORS, "partial", [], np.random.default_rng(0), n_edits)[at]
        for n_edits in (0, 3, 6)
    ]
    assert found[0] < 0.02 < found[1] < found[2] < 0.5
    assert prior_mean("context-reduction", 1000) == prior_mean("reflect", 1000) == 0.1


def test_edits_are_counted_from_a_given_text():
    state = PromptState().after([edit_of("a", "b"), edit_of("b", "c"), edit_of("given", "d")])
    assert [state.n_edits_of("p", text) for text in ("a", "b", "c", "d", "e")] == [0, 1, 2, 1, 0]
    assert state.n_edits_of("q", "c") == 0


def test_texts_that_were_written_from_one_another_are_counted_to_an_end():
    state = PromptState().after([edit_of("a", "b"), edit_of("b", "a")])
    assert state.n_edits_of("p", "a") == 2


def edit_of(parent: str, text: str) -> Mutation:
    return Mutation(
        mutation_id=text, generation=1, parameter="p", operator="reflect",
        parent_ids=(text_id_of(parent),), category="wrong", propensity=0.5, failures=(),
        diagnosis="", text_id=text_id_of(text), text=text, verdict=KEPT, writer="w",
        wording_version="1",
    )  # fmt: skip


def evidence(**by_case: float) -> TextEvidence:
    return TextEvidence(by_case=by_case, n=len(by_case))


def test_partners_win_where_the_parent_loses():
    found = {
        "a": evidence(x=1.0, y=0.0, z=0.5),
        "b": evidence(x=0.0, y=1.0, z=0.5),
        "c": evidence(x=0.0, y=0.0, z=0.5),
    }
    assert merge_partners(found, "a", [*found]) == ["b"]
    with_shots = joined("a", [Shot(user="u", assistant="v")])
    assert merge_partners({**found, with_shots: found["b"]}, "a", [with_shots]) == []
    assert front(found) == {"x": ("a",), "y": ("b",), "z": ("a", "b", "c")}
    step = gain(found["b"], found["c"])
    assert step is not None
    assert step[0] > 0


def test_a_text_is_worth_its_parent_until_more_is_known():
    found = {"p": evidence(**{f"c{i}": 0.9 for i in range(50)}), "k": evidence(c0=0.9)}
    found["o"] = evidence(**{f"c{i}": 0.1 for i in range(50)})
    means = text_posterior(found, {"k": "p"}, {})
    alone = text_posterior(found, {}, {})
    assert means["k"][0] > alone["k"][0]
    assert means["k"][1] > means["p"][1]
    priced = text_posterior(found, {"k": "p"}, {"p": 0.2})
    assert abs(means["p"][0] - priced["p"][0] - 0.2) < 1e-12


def test_parents_are_drawn_where_both_posteriors_agree():
    own = {"a": 0.5, "b": 0.4, "c": 0.1}
    found = agreed_chances(own, {"b": 0.5, "c": 0.4, "elsewhere": 0.1})
    assert found == pytest.approx({"a": 0.0, "b": 0.2 / 0.24, "c": 0.04 / 0.24})
    assert agreed_chances(own, {}) == own
    assert agreed_chances(own, {"elsewhere": 1.0}) == own


def test_categories_of_failures():
    assert category_of(1.0, "yes", "yes", failed=False) == "none"
    assert category_of(0.0, "It is Yes.", "yes", failed=False) == "format"
    assert category_of(0.0, "", "yes", failed=False) == "empty"
    assert category_of(0.4, "no", "yes", failed=False) == "partial"
    assert category_of(0.0, "no", "yes", failed=False) == "wrong"
    assert category_of(0.0, "", None, failed=True) == "error"
    assert main_category(()) == "none"


def test_of_equally_bad_answers_to_a_case_the_earlier_is_remembered_and_the_worst_come_first():
    def observed(case_id: str, reward: float, answer: str) -> Observed:
        return Observed(case_id=case_id, reward=reward, answer=answer, reason="", category="wrong")

    old = [observed("a", 0.5, "old"), observed("b", 0.1, "old")]
    new = [observed("a", 0.5, "new"), observed("b", 0.0, "new"), observed("c", 0.9, "new")]
    assert [o.answer for o in merged(old, new, 2)] == ["new", "old"]


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_demonstrations_are_drawn_from_what_is_offered(seed, most):
    rng = np.random.default_rng(seed)
    offered = [Shot(user=f"u{i}", assistant="ab"[i % 2]) for i in range(6)]
    text, known = "Do it.", frozenset({"Do it."})
    for _ in range(6):
        found = drawn(text, offered, known, most, rng)
        if found is None:
            break
        text, shots = found
        assert split(text) == ("Do it.", shots)
        assert 1 <= len(shots) <= most
        assert len({shot.user for shot in shots}) == len(shots)
        assert {*shots} <= {*offered}
        known |= {text}


def test_a_text_is_a_parent_as_often_as_a_candidate_with_it_is_the_best():
    draws = np.array([[0.1, 0.9, 0.2], [0.1, 0.2, 0.9], [0.8, 0.1, 0.2], [0.1, 0.9, 0.3]])
    found = chances_by_text(draws, [{"t": "a"}, {"t": "b", "k": 1}, {"t": "b", "k": 2}], "t")
    assert found == {"b": 0.75, "a": 0.25}
    assert chances_by_text(draws, [{"k": 1}, {"k": 2}, {"k": 3}], "t") == {}
