"""The benchmark of the gate: its many contests at once are the gate's own, one by one."""

import numpy as np
import pytest

from benchmarks.gate import (
    Contests,
    alike,
    contested,
    divergence,
    evidence_rates,
    ladder,
    saved_interval,
    shares_of,
)
from convergence_core.gate import BestArmTest
from convergence_core.gate.allocation import missing_evidence
from tests.core.gate.requests import batch


def test_many_contests_at_once_are_those_of_the_gate():
    rng, means = np.random.default_rng(3), np.array([0.45, 0.7, 0.7])
    many, single = Contests(4, 3), [BestArmTest.begin(3) for _ in range(4)]
    for look in range(25):
        leaders = many.leaders()
        shares = shares_of(many, means, rng, "verdict" if look % 2 else "even")
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


def test_two_arms_gain_nothing_by_shares_and_a_ladder_half():
    optimal, even = evidence_rates((0.7, 0.75))
    assert even == pytest.approx(optimal, rel=2e-3)
    # Half the requests each: the divergence of both from their middle.
    assert even == pytest.approx((divergence(0.7, 0.725) + divergence(0.75, 0.725)) / 2)
    optimal, even = evidence_rates((0.5, 0.55, 0.6, 0.65, 0.7))
    assert 1 - even / optimal == pytest.approx(0.552, abs=0.002)


def test_verdict_saves_nothing_with_two_arms_and_surely_with_six():
    assert ladder(3) == pytest.approx((0.7, 0.65, 0.6))
    assert alike(3) == (0.7, 0.65, 0.65)
    # Two arms are served evenly in either mode, so runs of one seed are the same.
    assert saved_interval(ladder(2), 10).startswith("0 % [")
    low = saved_interval(ladder(6), 20).split("[")[1].split(",")[0]
    assert float(low) > 0.0


def test_runs_end_with_a_winner_or_at_the_cap():
    runs = contested((0.2, 0.8), 20, mode="verdict", cap=400)
    assert set(runs.winners.tolist()) == {1}
    assert runs.n.max() < 400
    short = contested((0.5, 0.5), 5, mode="omniscient", cap=300)
    assert set(short.n.tolist()) == {300}
    assert set(short.winners.tolist()) == {-1}
