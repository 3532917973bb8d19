"""Judging in both orders: what cancels, and what aborts a round."""

import pytest

from convergence_core.sao.preferences import (
    LEAST_MARGIN,
    LEAST_TO_ABORT,
    Answer,
    Comparison,
    Judgement,
    abort_reason,
    agreement_of,
    logit,
    sigmoid,
)
from tests.sao.planted import judged


def test_verdicts_pass_the_margin_exactly_when_both_orders_agree():
    agreed, opposed = Judgement.of_verdicts(True, True), Judgement.of_verdicts(False, False)
    assert agreed.log_odds >= LEAST_MARGIN
    assert -opposed.log_odds >= LEAST_MARGIN
    for by_position in (Judgement.of_verdicts(True, False), Judgement.of_verdicts(False, True)):
        assert by_position.log_odds == 0.0
        assert not by_position.agrees
    assert agreed.agrees
    assert not Judgement(p12=0.5, p21=0.9).agrees
    assert sigmoid(-800.0) == 0.0
    assert sigmoid(logit(0.3)) == pytest.approx(0.3)


def test_the_chosen_answer_is_the_likelier_one():
    a, b = Answer(text="a", author="x"), Answer(text="bb", author="y")
    pair = Comparison(prompt="p", first=a, second=b, kind="candidates")
    first, second = judged(pair, 0.9, 0.8), judged(pair, 0.1, 0.2)
    assert (first.chosen, first.rejected) == (a, b)
    assert (second.chosen, second.rejected) == (b, a)
    turned = Comparison(prompt="p", first=b, second=a, kind="candidates")
    assert pair.pair_id != turned.pair_id


def test_a_judge_that_follows_the_position_aborts_the_round():
    a, b = Answer(text="a", author="x"), Answer(text="bb", author="y")
    pair = Comparison(prompt="p", first=a, second=b, kind="candidates")
    by_position, fair = judged(pair, 0.75, 0.25), judged(pair, 0.75, 0.75)
    assert agreement_of([]) is None
    assert abort_reason([]) is None
    assert abort_reason([by_position] * (LEAST_TO_ABORT - 1)) is None
    assert "agrees with itself on 0 % of 10 pairs" in (abort_reason([by_position] * 10) or "")
    assert abort_reason([by_position, fair] * 5) is None
    # The last 200 pairs count.
    assert abort_reason([by_position] * 300 + [fair] * 200) is None
