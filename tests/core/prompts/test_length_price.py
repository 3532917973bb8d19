"""Length of texts is paid for in every decision, and in no number that is measured."""

from collections import Counter

import numpy as np
import pytest

from convergence_core.config import parse_mapping
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.space_model import LengthPrice
from convergence_core.records import Cell, Params
from convergence_core.search.recommend import Recommendation, recommend
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler
from convergence_core.space import Choice, Space
from tests.core.search.racing import CASES, request, rng
from tests.support.mixed_problem import trial

SHORT, LONG = "Name the mood.", "Name the mood of the message as well as you can. " * 20
SPACE = Space(
    parameters={
        "system": Choice(kind="text", choices=(LONG, SHORT), names=("long", "short")),
        "k": Choice(kind="categorical", choices=("a", "b", "c", "d")),
    }
)
PRICE = LengthPrice(per_1000=0.1, parameters=("system",))
COST = 0.1 * len(LONG) / 1000


def state_of(gain_of_long: float, n_cells: int = 20) -> SearchState:
    """Eight candidates on the same cases; those with the long text are better by a gain."""
    found = SearchState()
    trials = []
    for text in (LONG, SHORT):
        for j, k in enumerate("abcd"):
            params: Params = {"system": text, "k": k}
            one = SPACE.candidate(params, origin="sample")
            cells = [cell_of(one.candidate_id, case) for case in CASES[:n_cells]]
            value = 0.5 + 0.02 * j + gain_of_long * (text == LONG)
            noise = [0.1 * ((7 * i) % 5 - 2) for i in range(n_cells)]
            trials.append(trial(one, dict(zip(cells, (value + z for z in noise), strict=True))))
    return found.tell(trials)


def cell_of(candidate_id: str, case_id: str) -> Cell:
    return Cell(candidate_id=candidate_id, case_id=case_id, repeat=0)


def chosen(state: SearchState, price: LengthPrice | None) -> Recommendation:
    model = SpaceModel(space=SPACE, price=price)
    found = recommend(state, rng=np.random.default_rng(0), surrogate=model)
    assert found is not None
    return found


def text_of(state: SearchState, candidate_id: str) -> object:
    return state.archive.members[candidate_id].candidate.params["system"]


@pytest.mark.parametrize(("gain", "expected"), [(0.03, SHORT), (0.25, LONG)])
def test_a_longer_text_is_recommended_if_it_gains_more_than_it_costs(gain, expected):
    state = state_of(gain)
    assert text_of(state, chosen(state, None).candidate_id) == LONG
    assert text_of(state, chosen(state, PRICE).candidate_id) == expected


def test_the_price_ranks_and_changes_no_reward():
    state = state_of(0.03)
    plain = {one.candidate_id: one for one in chosen(state, None).ranking}
    priced = chosen(state, PRICE)
    for one in priced.ranking:
        before = plain[one.candidate_id]
        assert (one.mean, one.low, one.high) == pytest.approx(
            (before.mean, before.low, before.high)
        )
        cost = COST if text_of(state, one.candidate_id) == LONG else 0.1 * len(SHORT) / 1000
        assert one.cautious == pytest.approx(before.cautious - cost, abs=2e-3)
    order = [one.cautious for one in priced.ranking]
    assert order == sorted(order, reverse=True)
    assert priced.probability_within > 0.5


def test_cells_go_to_texts_that_are_worth_their_length():
    state = state_of(0.03, n_cells=8)
    counts = {}
    for price in (None, PRICE):
        sampler = ThompsonSampler(
            name="mab_evolution", space=SPACE, surrogate=SpaceModel(space=SPACE, price=price)
        )
        plan = sampler.ask(state, rng(), request(3, n_cells=80))
        counts[price] = Counter(
            a.candidate.params["system"] == LONG for a in plan.assignments for _ in a.cells
        )
    assert counts[None][True] > counts[None][False]
    assert counts[PRICE][False] > counts[PRICE][True]


def test_draws_and_means_are_moved_by_the_price_alone():
    state = state_of(0.03)
    candidates = [member.candidate for member in state.archive]
    fitted = SpaceModel(space=SPACE, price=PRICE).fit(state.archive)
    plain, worth = fitted.posterior(candidates), fitted.worth(candidates)
    cost = [0.1 * len(str(one.params["system"])) / 1000 for one in candidates]
    assert plain.mean - worth.mean == pytest.approx(cost, abs=2e-3)
    before = plain.draws(np.random.default_rng(1), 200)
    after = worth.draws(np.random.default_rng(1), 200)
    assert (before - after).mean(axis=0) == pytest.approx(cost, abs=2e-3)
    free = SpaceModel(space=SPACE).fit(state.archive)
    same = free.worth(candidates).draws(np.random.default_rng(1), 200)
    assert (same == before).all()


def configured(**prompts: object):
    text = {"type": "text", "variants": [SHORT, LONG], "default": SHORT}
    return parse_mapping(
        {
            "api": {"name": "x", "function": "m:f"},
            "search_space": {
                "parameters": {
                    "system": {**text, "mutate": True},
                    "given": text,
                    "n": {"type": "int", "min": 1, "max": 4, "default": 2},
                }
            },
            "evaluation": {"test_cases": {"path": "c.json"}, "metrics": {"exact_match": {}}},
            "prompts": {"writer": "rules", **prompts},
        }
    )


def test_texts_with_mutate_are_priced_in_sampler_and_surrogate():
    priced = configured(length_price=0.05)
    assert configured().prompts.length_price == 0.0
    assert LengthPrice.of(configured()) is None
    found = LengthPrice.of(priced)
    assert found == LengthPrice(per_1000=0.05, parameters=("system",))
    sampler = make_sampler(priced, SPACE)
    assert isinstance(sampler, ThompsonSampler)
    assert sampler.surrogate.price == found
    assert make_sampler(configured(), SPACE).surrogate.price is None  # type: ignore[attr-defined]  # it has one


def test_a_text_that_is_not_active_costs_nothing():
    model = SpaceModel(space=SPACE, price=PRICE)
    points = model.encoding.encode([{"k": "a"}, {"system": SHORT, "k": "a"}])
    assert PRICE.of_points(model.encoding, points).tolist() == [0.0, PRICE.of_text(SHORT)]
