"""The benchmark of the gate: its many contests at once are the gate's own, one by one."""

import numpy as np
import pytest

from benchmarks.gate import Contests, contested, shares_of
from convergence_core.gate import BestArmTest
from convergence_core.gate.best_arm_test import missing_evidence
from tests.core.gate.requests import batch


def test_many_contests_at_once_are_those_of_the_gate():
    rng, means = np.random.default_rng(3), np.array([0.45, 0.7, 0.7])
    many, single = Contests(4, 3), [BestArmTest.begin(3) for _ in range(4)]
    for look in range(25):
        leaders = many.leaders()
        shares = shares_of(many, rng, "verdict" if look % 2 else "even")
        sent = rng.multinomial(60, shares)
        good = rng.binomial(sent, means)
        many.tell(leaders, shares, good, sent)
        for run, contest in enumerate(single):
            design = contest.design()
            assert (design.leader, design.rival) == tuple(leaders[run])
            single[run] = contest.tell(design, batch(good[run], sent[run], shares[run]))
    for run, contest in enumerate(single):
        assert many.log_wealth[run] == pytest.approx(contest.log_wealth)
        assert many.out[run].tolist() == contest.eliminated.tolist()
        assert many.needs()[run] == pytest.approx(missing_evidence(contest))
    assert many.out.any()


def test_runs_end_with_a_winner_or_at_the_cap():
    runs = contested((0.2, 0.8), 20, mode="verdict", cap=400)
    assert set(runs.winners.tolist()) == {1}
    assert runs.n.max() < 400
    short = contested((0.5, 0.5), 5, mode="even", cap=300)
    assert set(short.n.tolist()) == {300}
    assert set(short.winners.tolist()) == {-1}
