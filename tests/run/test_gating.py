"""The gate at the end of a run: which cases it bets on, and what it says of groups."""

import numpy as np
import pytest
from scipy import stats

from convergence_core.records import Candidate, Cell, Evaluation, Trial
from convergence_core.result import GateReport
from tasks.report.candidates import Final
from tasks.run.conclusion import case_mark, judge, mark_of_bets
from tests.support.configurations import loaded

CONFIGURATION = loaded().configuration


def trial(name: str, rewards: dict[str, float]) -> Trial:
    candidate = Candidate(candidate_id=name, params={})
    return Trial(
        candidate=candidate,
        evaluations=tuple(
            Evaluation(
                eval_id=f"{name}-{case}",
                generation=None,
                cell=Cell(candidate_id=name, case_id=case, role="holdout"),
                status="ok",
                reward=reward,
            )
            for case, reward in rewards.items()
        ),
    )


def judged(
    own: dict[str, float],
    other: dict[str, float],
    groups: dict[str, str] | None = None,
    n_looks: dict[str, int] | None = None,
) -> GateReport:
    trials = [trial("new", own), trial("old", other)]
    final = Final(trials=trials, level=0.95, weights={}, groups=groups or {})
    made = judge(
        CONFIGURATION.promotion,
        final,
        trials[0].candidate,
        trials[1].candidate,
        is_champion=True,
        n_looks=n_looks or {},
        forecasts=False,
    )
    assert made is not None
    return made


def test_ten_copies_of_a_case_are_one_bet():
    rng = np.random.default_rng(0)
    own, other = ({f"c{i}": float(x) for i, x in enumerate(row)} for row in rng.random((2, 12)))
    once = judged(own, other)
    many_own, many_other = (
        {f"{case}-{k}": reward for case, reward in rewards.items() for k in range(10)}
        for rewards in (own, other)
    )
    groups = {case: case.partition("-")[0] for case in many_own}
    ten = judged(many_own, many_other, groups)
    assert (once.n_cases, once.n_groups) == (12, None)
    assert (ten.n_cases, ten.n_groups) == (120, 12)
    assert (ten.mean, ten.low, ten.high, ten.log_e) == pytest.approx(
        (once.mean, once.low, once.high, once.log_e)
    )


def test_a_look_spends_what_earlier_looks_left_on_its_cases():
    own, other = ({f"c{i}": x for i in range(40)} for x in (0.8, 0.5))
    first = judged(own, other)
    assert (first.level, first.left) == pytest.approx((0.045, 0.005))
    n_looks = {case_mark(f"c{i}"): 1 for i in range(20)}
    half = judged(own, other, n_looks=n_looks)
    assert half.level == pytest.approx(0.045 * 0.55)
    # A new paraphrase of a question that was looked at is not fresh.
    groups = {f"c{i}": f"g{i % 20}" for i in range(40)}
    assert judged(own, other, groups, n_looks=n_looks).level == pytest.approx(0.0045)


def test_other_weights_or_groups_make_another_look_at_the_same_rewards():
    own, other = {"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.5}

    def mark(weights: dict[str, float], groups: dict[str, str]) -> str:
        final = Final(trials=[], level=0.95, weights=weights, groups=groups)
        return mark_of_bets(final, ["a", "b"], own, other)

    plain, heavy, grouped = mark({}, {}), mark({"a": 2.0}, {}), mark({}, {"a": "g", "b": "g"})
    assert len({plain, heavy, grouped}) == 3
    assert mark({"a": 1.0, "b": 1.0, "elsewhere": 3.0}, {"elsewhere": "g"}) == plain


@pytest.mark.slow
@pytest.mark.statistical
def test_equals_are_rarely_promoted_on_ten_paraphrases_a_question():
    """Two candidates that are equally good, and answer the paraphrases of a question alike."""
    groups = {f"q{i}-{k}": f"q{i}" for i in range(40) for k in range(10)}
    n_runs, wrong = 200, {"groups": 0, "cases": 0}
    for seed in range(n_runs):
        rng = np.random.default_rng([20, seed])
        own, other = (
            {
                case: float(knows if rng.random() < 0.9 else rng.random() < 0.5)
                for case, knows in zip(groups, np.repeat(rng.random(40) < 0.5, 10), strict=True)
            }
            for _ in range(2)
        )
        for name, given in (("groups", groups), ("cases", None)):
            wrong[name] += judged(own, other, given).decision == "promote"
    # Significance 1e-3 against 5 %; betting on each case is wrong far more often.
    assert stats.binomtest(wrong["groups"], n_runs, 0.05, alternative="greater").pvalue > 1e-3
    assert wrong["groups"] <= 10, wrong
    assert wrong["cases"] > 20, wrong
