"""Cases that tell the leaders apart are asked more; what that is worth: ``tests/benchmarks``."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from benchmarks.optimizer.ablations import ablatable, ablatable_model
from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate, Trial
from convergence_core.search.racing import Rules
from convergence_core.search.racing.competitors import N_LEADERS, Competitors
from convergence_core.search.racing.plan_builder import MIN_INFORMATION
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import AskRequest, Plan, SearchState
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.space import Choice, Space
from tests.core.search import racing
from tests.support.mixed_problem import trial

N_MODELS, N_STYLES = 12, 5
SPACE = Space(
    parameters={
        "model": Choice(kind="categorical", choices=tuple(range(N_MODELS))),
        "style": Choice(kind="categorical", choices=tuple(range(N_STYLES))),
    }
)
SAMPLER = ThompsonSampler(name="mab_evolution", space=SPACE, surrogate=SpaceModel(space=SPACE))
CASES = tuple(f"case-{j:03d}" for j in range(100))


@dataclass
class Exam:
    """Sixty questions that nearly all answer, ten that nearly nobody does, thirty that tell."""

    seed: int
    skills: int = 1
    """Kinds of cases, each with abilities of its own."""
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.easiness = np.repeat([5.0, -5.0, 0.0], [60, 10, 30]) + self.rng.normal(0, 1.0, 100)
        of_model = self.rng.normal(0, 0.8, (self.skills, N_MODELS, 1))
        self.ability = of_model + self.rng.normal(0, 0.3, (self.skills, N_MODELS, N_STYLES))
        self.skill = self.rng.integers(0, self.skills, 100)

    @cached_property
    def chances(self) -> np.ndarray:
        """(N_MODELS, N_STYLES, N_CASES)."""
        return np.asarray(expit(np.moveaxis(self.ability[self.skill], 0, -1) + self.easiness))

    def of(self, candidate: Candidate) -> np.ndarray:
        """(N_CASES,)."""
        model, style = int(candidate.params["model"]), int(candidate.params["style"])
        return np.asarray(self.chances[model, style])

    def answers(self, plan: Plan) -> Iterable[Trial]:
        for a in plan.assignments:
            p = self.of(a.candidate)
            asked = np.array([int(cell.case_id[-3:]) for cell in a.cells])
            hits = (self.rng.random(len(asked)) < p[asked]).astype(float)
            yield trial(a.candidate, dict(zip(a.cells, hits.tolist(), strict=True)))


def request(generation: int, **changes: object) -> AskRequest:
    settings = {"n_generations": 6, "n_candidates": 10, "n_cells": 200, "case_ids": CASES}
    return racing.request(generation, **{**settings, **changes})


def told(sampler: ThompsonSampler, exam: Exam, n_told: int, **changes: object) -> SearchState:
    state, rng = sampler.start(), np.random.default_rng(exam.seed)
    for generation in range(n_told):
        plan = sampler.ask(state, rng, request(generation, **changes))
        state = sampler.tell(state, list(exam.answers(plan)))
    return state


def field_of(sampler: ThompsonSampler, state: SearchState) -> Competitors:
    fitted = sampler.surrogate.warm(state.memory).fit(
        state.archive, case_ids=CASES, case_weights=sampler.case_weights
    )
    return sampler.competitors(state.archive, fitted, state.memory, n_steps=0)


def enough(telling: Mapping[str, float]) -> int:
    """How many cases, those that tell most, hold three fifths of what all tell."""
    most = sorted(telling.values(), reverse=True)
    n = 1
    while sum(most[:n]) < 0.6 * sum(most):
        n += 1
    return n


def without_item_response() -> ThompsonSampler:
    surrogate = replace(ablatable_model(SAMPLER.surrogate), item_response=False)
    return replace(SAMPLER, surrogate=surrogate)


def test_telling_is_the_information_on_the_leaders():
    state = told(SAMPLER, Exam(0), 3)
    field = field_of(SAMPLER, state)
    telling = field.case_information
    assert telling is not None
    assert tuple(telling) == CASES
    assert max(telling.values()) == 1.0
    learned = field.fitted.learned
    assert learned is not None
    items = learned.effects.items
    assert items is not None
    believed = np.sort(field.fitted.posterior(field.members).mean)[-N_LEADERS:].mean()
    by_hand = items.information(float(believed))
    assert [*telling.values()] == pytest.approx(by_hand / by_hand.max())
    of_group = np.array([*telling.values()])
    assert of_group[70:].mean() > 2 * of_group[:70].mean()
    # The switches.
    whole = ablatable(SAMPLER)
    in_turn = replace(whole, rules=replace(whole.rules, prefers_telling=False))
    assert field_of(in_turn, state).case_information is None
    plain = without_item_response()
    assert field_of(plain, state).case_information is None


@pytest.mark.parametrize("n_cells", [100, 400])
def test_known_candidates_are_asked_what_tells_most_of_what_they_were_not_asked(n_cells):
    state = told(SAMPLER, Exam(1), 3)
    telling = field_of(SAMPLER, state).case_information
    assert telling is not None
    plan = SAMPLER.ask(state, np.random.default_rng(3), request(4, n_cells=n_cells))
    known = [a for a in plan.assignments if a.candidate.candidate_id in state.archive]
    assert known
    for a in known:
        asked = [cell.case_id for cell in a.cells]
        before = {case for case, _ in state.archive.members[a.candidate.candidate_id].rewards}
        left = set(CASES) - before - set(asked)
        assert min(telling[case] for case in asked) >= max((telling[c] for c in left), default=0)


@pytest.mark.parametrize("n_cells", [100, 1000])
def test_newcomers_are_asked_each_case_as_often_as_it_tells(n_cells):
    state = told(SAMPLER, Exam(2), 2)
    telling = field_of(SAMPLER, state).case_information
    assert telling is not None
    plan = SAMPLER.ask(state, np.random.default_rng(3), request(2, n_cells=n_cells))
    new = [a for a in plan.assignments if a.candidate.candidate_id not in state.archive]
    chunk = min(len(a.cells) for a in new)
    begun = {cell.case_id for a in new for cell in a.cells[:chunk]}
    counts = Counter(case for member in state.archive for case, _ in member.rewards)
    turn = {case: (counts[case] + 0.5) / max(telling[case], MIN_INFORMATION) for case in CASES}
    later = sorted(turn[case] for case in CASES if case not in begun)
    if n_cells == 100:  # all the same chunk
        assert len(begun) == chunk
        assert max(turn[case] for case in begun) <= later[0]
    else:  # groups with a chunk each, as many as what tells fills
        assert chunk < len(begun) <= math.ceil(enough(telling) / chunk) * chunk
        assert max(turn[case] for case in begun) <= later[0]


def test_finalists_are_as_many_as_can_be_asked_what_tells():
    """Four hundred cells are four whole evaluations, and several times as many of what tells."""
    sampler = replace(SAMPLER, rules=Rules(confidence_level=1.0))
    state = told(sampler, Exam(3), 2, n_cells=200)
    assert max(member.n for member in state.archive) < 60
    telling = field_of(sampler, state).case_information
    assert telling is not None
    plan = sampler.ask(state, np.random.default_rng(3), request(5, n_cells=400))
    n = round(400 / enough(telling))
    assert n > 6
    assert abs(len(plan.assignments) - n) <= 1
    assert max(len(a.cells) for a in plan.assignments) < 80


def test_a_heavy_case_leaves_what_others_tell():
    """One of a hundred weighs as much as twenty; finalists are not asked it alone."""
    plain = field_of(SAMPLER, told(SAMPLER, Exam(3), 2)).case_information
    assert plain is not None
    heavy = max(plain, key=lambda case: plain[case])
    sampler = replace(SAMPLER, rules=Rules(confidence_level=1.0), case_weights={heavy: 20.0})
    state = told(sampler, Exam(3), 2)
    telling = field_of(sampler, state).case_information
    assert telling is not None
    assert telling[heavy] > 5 * np.sort([*telling.values()])[-2]
    plan = sampler.ask(state, np.random.default_rng(3), request(5, n_cells=400))
    assert np.median([len(a.cells) for a in plan.assignments]) > 10


def test_a_repeat_counts_for_half_an_answer():
    state = told(SAMPLER, Exam(1), 3)
    telling = field_of(SAMPLER, state).case_information
    assert telling is not None
    plan = SAMPLER.ask(state, np.random.default_rng(3), request(4, repeats=2))
    worth = {(c, r): telling[c] / (1 + r) for c in CASES for r in (0, 1)}
    some = False
    for a in plan.assignments:
        if a.candidate.candidate_id in state.archive:
            asked = {(cell.case_id, cell.repeat) for cell in a.cells}
            before = state.archive.members[a.candidate.candidate_id].rewards.keys()
            left = worth.keys() - before - asked
            assert min(worth[key] for key in asked) >= max(worth[key] for key in left)
            some |= any(repeat for _, repeat in asked)
    assert some


def missed(sampler: ThompsonSampler, exam: Exam) -> float:
    """By how much the best of all is better than the one recommended after six generations."""
    state = told(sampler, exam, 6)
    chosen = recommend(state, rng=np.random.default_rng(0), surrogate=sampler.surrogate)
    assert chosen is not None
    handed_over = exam.of(state.archive.members[chosen.candidate_id].candidate)
    return float(exam.chances.mean(axis=-1).max() - handed_over.mean())


@pytest.mark.slow
@pytest.mark.statistical
def test_where_cases_ask_for_two_skills_nothing_is_lost():
    """Ease means little there. That a hundredth is lost is refused, paired over 40 exams, at 1 %."""
    linear = without_item_response()
    lost = [
        missed(SAMPLER, Exam(seed, skills=2)) - missed(linear, Exam(seed, skills=2))
        for seed in range(40)
    ]
    assert stats.ttest_1samp(lost, 0.01, alternative="less").pvalue < 0.01, np.mean(lost)
