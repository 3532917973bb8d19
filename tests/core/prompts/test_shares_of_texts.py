"""New texts and what else a space holds share the candidates of a generation."""

import numpy as np
import pytest

from convergence_core.posterior import SpaceModel
from convergence_core.records import Cell
from convergence_core.search.sampler import Advice, SearchState
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.space import Choice, Float, Space
from tests.core.search.racing import CASES, request
from tests.support.mixed_problem import trial

TEXTS = tuple(f"Text number {i}." for i in range(8))
TEXT = Choice(kind="text", choices=TEXTS, names=TEXTS)


def origins(space: Space, n_candidates: int) -> list[str]:
    """Return the origins of a generation's new candidates; six new texts are offered."""
    rng = np.random.default_rng(0)
    sample = [space.canonical({"system": TEXTS[i], "t": t}) if "t" in space.parameters
              else space.canonical({"system": TEXTS[i]})
              for i, t in ((0, 0.2), (1, 0.7))]  # fmt: skip
    trials = []
    for params in sample:
        one = space.candidate(params, origin="sample")
        cells = [Cell(candidate_id=one.candidate_id, case_id=c, repeat=0) for c in CASES[:6]]
        trials.append(trial(one, {cell: float(rng.uniform(0.3, 0.6)) for cell in cells}))
    state = SearchState().tell(trials)
    written = tuple({**sample[0], "system": text} for text in TEXTS[2:])
    sampler = ThompsonSampler(
        name="mab_evolution", space=space, surrogate=SpaceModel(space=space), cases_per_candidate=4
    )
    asked = request(
        2, n_candidates=n_candidates, n_cells=4 * n_candidates, advice=Advice(written=written)
    )
    plan = sampler.ask(state, rng, asked)
    return [
        a.candidate.origin
        for a in plan.assignments
        if a.candidate.candidate_id not in state.archive
    ]


@pytest.mark.parametrize(("n_candidates", "expected"), [(2, 1), (4, 2), (8, 4), (20, 6)])
def test_half_of_a_generation_is_left_to_numbers(n_candidates, expected):
    space = Space(parameters={"system": TEXT, "t": Float(min=0.0, max=1.0)})
    assert origins(space, n_candidates).count("written") == expected


@pytest.mark.parametrize(("n_candidates", "expected"), [(2, 2), (4, 4), (20, 6)])
def test_where_there_are_texts_alone_new_ones_take_all_they_need(n_candidates, expected):
    assert origins(Space(parameters={"system": TEXT}), n_candidates).count("written") == expected
