"""Operator credit: what counts for whom, what shares follow, and that evidence alone decides."""

from dataclasses import replace

import numpy as np
import pytest

from convergence_core.posterior import SpaceModel
from convergence_core.records import Params
from convergence_core.search.archive import Archive, Member
from convergence_core.search.evolution.credit import FLOOR, OPERATORS, PSEUDO_COUNT, counts, shares
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.sampler import AskRequest, SearchState
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.space import Choice, Float, Space
from tests.support.mixed_problem import CaseProblem, mixed_space, mixed_value, search

NAN = np.nan
SPACE = Space(
    parameters={
        "x": Float(min=0.0, max=1.0),
        "y": Float(min=0.0, max=1.0),
        "kind": Choice(kind="categorical", choices=("a", "b")),
    }
)
CREDITS = Rules(credits_operators=True)


@pytest.mark.parametrize(
    ("child", "first", "second", "expected"),
    [
        ([0.51, 0.5, 0], [0.5, 0.5, 0], None, [1, 0, 0, 0]),
        ([0.7, 0.5, 0], [0.5, 0.5, 0], None, [0, 1, 0, 0]),
        ([0.9, 0.1, 0], [0.9, 0.5, 1], [0.2, 0.11, 0], [0, 0, 1, 0]),
        ([0.9, 0.4, 0], [0.9, 0.9, 1], [0.2, 0.1, 0], [0, 0, 0, 1]),
        ([0.5, 0.5, 1], [0.5, 0.5, 0], None, [0.5, 0.5, 0, 0]),
        ([0.5, NAN, 1], [0.5, 0.5, 0], None, [0.5, 0.5, 0, 0]),
        ([0.5, 0.9, 0], [0.5, NAN, 0], [0.5, 0.89, 1], [0, 0, 1, 0]),
    ],
    ids=["near", "far", "crossed near", "crossed far", "choice", "put to sleep", "woken by one"],
)
def test_a_child_counts_for_what_made_it(child, first, second, expected):
    parents = np.array([[first, [NAN] * 3 if second is None else second]], dtype=np.float64)
    assert counts(np.array([child]), parents, 2).tolist() == [expected]


def test_shares_match_what_was_earned_above_a_floor():
    count = np.repeat(np.eye(4), 5, axis=0)
    earned = np.repeat([0.1, 0.1, 0.1, 0.5], 5)
    found = shares(count, earned)
    quality = (np.array([0.5, 0.5, 0.5, 2.5]) + PSEUDO_COUNT * 0.2) / (5 + PSEUDO_COUNT)
    assert found == pytest.approx(FLOOR + (1 - 4 * FLOOR) * quality / quality.sum())
    assert found.sum() == pytest.approx(1.0)
    crushed = shares(np.repeat(np.eye(4), 500, axis=0), np.repeat([0.0, 0.0, 0.0, 1.0], 500))
    assert crushed.min() >= FLOOR
    assert crushed[3] == pytest.approx(1 - 3 * FLOOR, abs=0.01)


@pytest.mark.parametrize("n", [0, 8])
def test_without_earnings_all_operators_are_alike(n):
    assert shares(np.full((n, 4), 0.25), np.zeros(n)).tolist() == [0.25] * len(OPERATORS)


def field(archive: Archive, rules: Rules) -> Competitors:
    model = SpaceModel(space=SPACE)
    return Competitors(rules, model.encoding, archive, model.fit(archive))


def families(value_of_far: float) -> Archive:
    """Ten parents worth .5 with a child near each worth .5, and one far away."""
    rng = np.random.default_rng(0)
    members: dict[str, Member] = {}

    def add(params: Params, value: float, *parents: str) -> str:
        candidate = SPACE.candidate(params, "mutation" if parents else "sample", parents)
        rewards = {(f"c{j}", 0): value + 0.02 * float(rng.standard_normal()) for j in range(8)}
        members[candidate.candidate_id] = Member(
            candidate=candidate, generation=len(parents), rewards=rewards
        )
        return candidate.candidate_id

    for i in range(10):
        x = 0.3 + 0.01 * i
        parent = add({"x": x, "y": 0.2, "kind": "a"}, 0.5)
        add({"x": x, "y": 0.21, "kind": "a"}, 0.5, parent)
        add({"x": x, "y": 0.9, "kind": "a"}, value_of_far, parent)
    return Archive(members)


def test_the_operator_whose_children_are_better_breeds_more():
    up = field(families(0.8), CREDITS).operator_shares
    down = field(families(0.2), CREDITS).operator_shares
    assert up is not None
    assert down is not None
    assert up[1] > 1.3 * up[0]
    assert down[1] < down[0] / 1.3
    assert up[2] == pytest.approx(up[3])  # nobody was crossed


def test_by_default_no_operator_earns_credit():
    assert not Rules().credits_operators
    assert field(families(0.8), Rules()).operator_shares is None


def test_a_state_plans_the_same_after_json():
    space = mixed_space()
    sampler = ThompsonSampler(
        name="mab_evolution", space=space, surrogate=SpaceModel(space=space), rules=CREDITS
    )
    problem = CaseProblem(space=space, value=mixed_value, n_cases=10)
    state = search(sampler, problem, seed=1, n_generations=3, max_cells=300)
    request = AskRequest(
        generation=3, n_generations=8, n_candidates=16, n_cells=60, case_ids=problem.case_ids
    )
    again = SearchState.from_json(state.to_json())
    plans = [sampler.ask(one, np.random.default_rng(4), request) for one in (state, again)]
    assert plans[0] == plans[1]
    plain = replace(sampler, rules=Rules()).ask(state, np.random.default_rng(4), request)
    assert plain != plans[0]
