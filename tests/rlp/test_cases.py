"""Easy and hard cases: what is known of them is taken off outcomes, so that predictions are of candidates."""

import numpy as np
import pytest

from convergence_core.records import Cell, Evaluation, Trial
from convergence_core.rlp.commitments import Commitment
from convergence_core.rlp.history import TrialHistory, adjusted_mean
from convergence_core.rlp.outcomes import outcomes_of
from convergence_core.rlp.statistical import easier_cases, predictive
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import make_surrogate
from convergence_core.space import Float, Space

SPACE = Space(parameters={"x": Float(min=0.0, max=1.0)})
N_CASES, N_CELLS = 24, 4


class World:
    """Rewards x/2 + b_case + noise, with cases that differ more than candidates do."""

    def __init__(self, seed: int, sd_of_cases: float) -> None:
        self.rng = np.random.default_rng(seed)
        self.ease = sd_of_cases * self.rng.standard_normal(N_CASES)
        self.ease -= self.ease.mean()

    def trials(self, generation: int, n: int) -> list[Trial]:
        return [self._trial(generation) for _ in range(n)]

    def _trial(self, generation: int) -> Trial:
        candidate = SPACE.candidate(SPACE.sample(self.rng), "sample")
        asked = self.rng.choice(N_CASES, N_CELLS, replace=False)
        x = float(candidate.params["x"])
        return Trial(
            candidate=candidate,
            evaluations=tuple(
                Evaluation(
                    eval_id=f"{generation}-{case}",
                    cell=Cell(candidate_id=candidate.candidate_id, case_id=f"c{case:02}"),
                    generation=generation,
                    status="ok",
                    reward=float(
                        np.clip(
                            0.25 + x / 2 + self.ease[case] + 0.02 * self.rng.standard_normal(),
                            0,
                            1,
                        )
                    ),
                    started_us=10**9,
                )
                for case in asked
            ),
        )


CASE_IDS = tuple(f"c{i:02}" for i in range(N_CASES))


def test_an_outcome_is_the_mean_less_what_is_known_of_its_cases():
    trial = World(0, 0.1).trials(0, 1)[0]
    first, *_ = trial.evaluations
    plain = float(np.mean([e.reward or 0.0 for e in trial.evaluations]))
    easier = {first.cell.case_id: 0.2, "unasked": 9.0}
    assert adjusted_mean(trial.evaluations, {}) == pytest.approx(plain)
    assert adjusted_mean(trial.evaluations, easier) == pytest.approx(plain - 0.2 / N_CELLS)
    assert adjusted_mean(trial.evaluations, dict.fromkeys(CASE_IDS, 5.0)) == 0.0
    told = TrialHistory().after([trial], 3, easier)
    assert told.trials[0].reward == pytest.approx(plain - 0.2 / N_CELLS)


def test_the_ease_of_cases_is_learned_and_has_no_mean():
    world = World(1, 0.15)
    assert easier_cases(make_surrogate(SPACE).fit(SearchState().archive)) == {}
    fitted = make_surrogate(SPACE).fit(
        SearchState().tell(world.trials(0, 60)).archive, case_ids=CASE_IDS
    )
    found = easier_cases(fitted)
    assert tuple(found) == CASE_IDS
    assert sum(found.values()) == pytest.approx(0.0, abs=1e-9)
    assert np.corrcoef([found[name] for name in CASE_IDS], world.ease)[0, 1] > 0.95


@pytest.mark.statistical
def test_the_posterior_foretells_outcomes_better_once_cases_are_taken_off():
    """Paired over 40 outcomes in each of ten worlds; one-sided, at .001."""
    gaps = []
    for seed in range(10):
        world = World(seed, 0.15)
        fitted = make_surrogate(SPACE).fit(
            SearchState().tell(world.trials(0, 40)).archive, case_ids=CASE_IDS
        )
        trials = world.trials(1, 40)
        candidates = [trial.candidate for trial in trials]
        p = predictive(fitted, candidates)
        subjects = tuple(c.candidate_id for c in candidates)
        cells = frozenset(e.cell for trial in trials for e in trial.evaluations)
        logs = []
        for easier in (easier_cases(fitted), {}):
            commitment = Commitment(
                generation=1,
                state=np.zeros(7),
                thoughts=(),
                subjects=subjects,
                easier=easier,
                committed_us=1,
            )
            observed = outcomes_of(commitment, trials, cells).observed
            logs.append([np.log(p[i, observed[name]]) for i, name in enumerate(subjects)])
        with_cases, without = map(np.array, logs)
        gaps.append(float((with_cases - without).mean()))
    assert np.mean(gaps) > 3.0 * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    assert np.mean(gaps) > 0.2
