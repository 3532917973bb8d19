"""Budgets: no schedule of calls overshoots, nothing is left over that fits, and people are told."""

import math
import random
import threading

import pytest

from convergence_core.budget.limits import Budget, Exhausted, Reservation, Spent, Wait, dollars
from convergence_core.config.models import BudgetConfig
from convergence_core.ports import CallTotals, WorstCase

CENT = WorstCase(usd=0.01, tokens=100)
UNKNOWN = WorstCase()


def granted(budget: Budget, worst: WorstCase = CENT, now_s: float = 0.0) -> Reservation:
    found = budget.reserve(worst, now_s)
    assert isinstance(found, Reservation), found
    return found


def refused(budget: Budget, worst: WorstCase = CENT, now_s: float = 0.0) -> Exhausted:
    found = budget.reserve(worst, now_s)
    assert isinstance(found, Exhausted), found
    return found


class TestMoney:
    def test_what_is_reserved_is_not_given_twice(self):
        budget = Budget(BudgetConfig(max_usd=0.02))
        first, second = granted(budget), granted(budget)
        assert budget.reserve(CENT) == Wait(limit="max_usd")
        budget.settle(first, 0.001, 50)
        assert budget.reserve(CENT) == Wait(limit="max_usd")  # 0.001 + 0.01 + 0.01 > 0.02
        budget.settle(second, 0.001, 50)
        budget.settle(granted(budget), 0.01, 100)
        assert budget.spent == Spent(usd=0.012, calls=3, tokens=200)

    def test_last_cent_is_spent_exactly(self):
        budget = Budget(BudgetConfig(max_usd=0.3))
        for _ in range(30):  # 30 * 0.01 > 0.3 in floating point
            budget.settle(granted(budget), 0.01, 1)
        assert budget.spent.usd == 0.3
        refused(budget)

    def test_call_that_can_never_fit_does_not_wait(self):
        budget = Budget(BudgetConfig(max_usd=0.02))
        budget.settle(granted(budget), 0.01, 1)
        outstanding = granted(budget)
        assert refused(budget, WorstCase(usd=0.011, tokens=1)).limit == "max_usd"
        budget.release(outstanding)
        granted(budget)

    def test_released_call_was_not_made(self):
        budget = Budget(BudgetConfig(max_usd=0.01, max_calls=1))
        reservation = granted(budget)
        budget.release(reservation)
        budget.release(reservation)
        assert budget.spent == Spent()
        granted(budget)

    def test_call_is_settled_once(self):
        budget = Budget(BudgetConfig(max_usd=1))
        reservation = granted(budget)
        budget.settle(reservation, 0.0, 0)
        with pytest.raises(ValueError, match="not outstanding"):
            budget.settle(reservation, 0.0, 0)

    def test_unknown_cost_counts_as_its_worst_case(self):
        budget = Budget(BudgetConfig(max_usd=1))
        budget.settle(granted(budget), None, None)
        assert budget.spent == Spent(usd=0.01, calls=1, tokens=100)

    @pytest.mark.parametrize("usd", [math.nan, math.inf, -1.0])
    def test_cost_that_is_no_amount_is_unknown(self, usd: float):
        budget = Budget(BudgetConfig(max_usd=1))
        budget.settle(granted(budget), usd, 5)
        assert budget.spent.usd == 0.01

    def test_charge_beyond_the_worst_case_is_counted_all_the_same(self):
        budget = Budget(BudgetConfig(max_usd=1))
        budget.settle(granted(budget), 1.5, 100)
        assert budget.spent.usd == 1.5
        assert "$1.50 paid" in refused(budget).reason

    def test_free_calls_go_on_when_all_is_spent(self):
        budget = Budget(BudgetConfig(max_usd=0.01))
        budget.settle(granted(budget), 0.01, 1)
        granted(budget, WorstCase(usd=0.0, tokens=1))

    def test_unknown_price_is_refused_under_a_cap(self):
        found = refused(Budget(BudgetConfig(max_usd=5)), WorstCase(usd=None, tokens=5))
        assert found.is_unknown
        assert found.reason.startswith("price unknown, but budget.max_usd=5 needs")
        assert "allow_unknown_prices: true" in found.reason

    def test_unknown_price_may_be_allowed_and_is_counted_apart(self):
        budget = Budget(BudgetConfig(max_usd=0.01, allow_unknown_prices=True))
        budget.settle(granted(budget, UNKNOWN), None, 7)
        assert budget.spent == Spent(usd=0, calls=1, tokens=7, n_unpriced=1)
        budget.settle(granted(budget, UNKNOWN), 0.004, 7)  # the endpoint said it after all
        assert budget.spent.usd == 0.004
        assert budget.spent.n_unpriced == 1

    def test_an_unknown_price_is_refused_once_the_cap_is_spent(self):
        budget = Budget(BudgetConfig(max_usd=1.0, allow_unknown_prices=True))
        for _ in range(2):
            budget.settle(granted(budget, UNKNOWN), 0.5, 7)
        assert "$1.00 paid or reserved" in refused(budget, UNKNOWN).reason

    def test_without_a_cap_any_price_will_do(self):
        budget = Budget(BudgetConfig())
        budget.settle(granted(budget, UNKNOWN), None, None)
        assert budget.spent == Spent(calls=1, n_unpriced=1)


class TestOtherLimits:
    def test_calls_under_way_are_calls(self):
        budget = Budget(BudgetConfig(max_calls=2))
        first = granted(budget)
        granted(budget)
        assert budget.reserve(CENT) == Wait(limit="max_calls")
        budget.release(first)
        budget.settle(granted(budget), 0, 0)
        assert budget.reserve(CENT) == Wait(limit="max_calls")

    def test_calls_are_spent(self):
        budget = Budget(BudgetConfig(max_calls=2), Spent(calls=2))
        found = refused(budget)
        assert found.limit == "max_calls"
        assert found.reason == (
            "budget.max_calls=2 is spent: 2 calls, retries included. "
            "Raise it: `convergence resume --max-calls …`."
        )

    def test_tokens_are_bounded(self):
        budget = Budget(BudgetConfig(max_tokens=250))
        first = granted(budget)
        granted(budget)
        assert budget.reserve(CENT) == Wait(limit="max_tokens")
        budget.settle(first, 0, 1)
        granted(budget, WorstCase(usd=None, tokens=149))
        found = refused(budget, WorstCase(usd=0, tokens=250))
        assert found.limit == "max_tokens"
        assert "budget.max_tokens=250 is spent: 1 tokens" in found.reason

    def test_unbounded_answer_is_refused_under_a_limit_of_tokens(self):
        found = refused(Budget(BudgetConfig(max_tokens=250)), WorstCase(usd=0.01))
        assert found.is_unknown
        assert "set `max_tokens`" in found.reason

    def test_time_between_stop_and_resume_does_not_count(self):
        budget = Budget(BudgetConfig(max_minutes=1), Spent(seconds=50))
        budget.start(1000.0)
        granted(budget, CENT, 1009.9)
        found = refused(budget, CENT, 1010.0)
        assert found.limit == "max_minutes"
        assert found.reason.startswith("budget.max_minutes=1 is over: 1.0 minutes of work.")
        assert budget.spent.seconds == 60

    def test_time_before_the_work_begins_does_not_count(self):
        budget = Budget(BudgetConfig(max_minutes=1))
        assert budget.warnings(0.0) == []
        budget.start(500.0)
        assert budget.spent.seconds == 0
        granted(budget, CENT, 559.9)
        assert refused(budget, CENT, 560.0).limit == "max_minutes"

    def test_the_beginning_comes_from_the_journal(self):
        totals = CallTotals(
            n_attempts=4, cost_usd=1.5, maybe_usd=0.25, tokens=10, maybe_tokens=2, n_unpriced=1,
            active_s=9.0, unpriced_usd=0.5, unpriced_tokens=3,
        )  # fmt: skip
        assert Spent.of(totals) == Spent(usd=2.25, calls=4, tokens=15, n_unpriced=1, seconds=9.0)
        assert Spent.of(CallTotals(cost_usd=None)).usd == 0


class TestKeepingBack:
    def test_what_is_kept_back_cannot_be_spent_until_it_is_given_free(self):
        budget = Budget(BudgetConfig(max_usd=0.02, max_calls=4, max_tokens=1_000))
        budget.keep_back(share=0.5, calls=1)
        budget.settle(granted(budget), 0.01, 10)
        reason = refused(budget).reason
        assert "budget.max_usd=0.02, $0.01 of it kept for the final test, is spent" in reason
        budget.keep_back()
        budget.settle(granted(budget), 0.01, 10)
        assert budget.spent.usd == 0.02

    def test_calls_are_kept_back_by_number(self):
        budget = Budget(BudgetConfig(max_calls=4))
        budget.keep_back(share=0.9, calls=3)
        budget.settle(granted(budget), 0.0, 0)
        assert refused(budget).limit == "max_calls"

    def test_warnings_are_of_the_whole_limit(self):
        budget = Budget(BudgetConfig(max_usd=0.04))
        budget.keep_back(share=0.5)
        budget.settle(granted(budget), 0.01, 0)
        assert budget.warnings() == []


class TestWords:
    def test_message_names_limit_amount_and_fix(self):
        budget = Budget(BudgetConfig(max_usd=0.5), Spent(usd=0.4971))
        assert refused(budget).reason == (
            "budget.max_usd=0.5 is spent: $0.4971 paid or reserved, and the next call may cost up "
            "to $0.01. Raise it: `convergence resume --max-usd …`."
        )

    def test_cap_below_one_call_says_so(self):
        found = refused(Budget(BudgetConfig(max_usd=0.005)))
        assert found.reason.startswith(
            "budget.max_usd=0.005 is less than one call may cost: $0.01"
        )

    @pytest.mark.parametrize(
        ("usd", "text"),
        [(0, "$0.00"), (12.5, "$12.50"), (0.001, "$0.001"), (0.4971, "$0.4971"), (0.00042, "$0.00042"),
         (0.0000031, "$0.0000031"), (1234.5, "$1,234.50")],
    )  # fmt: skip
    def test_small_amounts_keep_their_digits(self, usd: float, text: str):
        assert dollars(usd) == text

    def test_each_share_is_told_once(self):
        budget = Budget(BudgetConfig(max_usd=0.1, max_calls=100))
        told = []
        for _ in range(10):
            budget.settle(granted(budget), 0.01, 1)
            told += budget.warnings()
        assert told == [
            (0.5, "50 % of budget.max_usd=0.1 is spent: $0.05."),
            (0.8, "80 % of budget.max_usd=0.1 is spent: $0.08."),
        ]

    def test_two_shares_crossed_at_once_are_one_warning(self):
        budget = Budget(BudgetConfig(max_calls=1))
        budget.settle(granted(budget), 0, 0)
        assert budget.warnings() == [(0.8, "80 % of budget.max_calls=1 is spent: 1 calls.")]
        assert budget.warnings() == []

    def test_what_was_crossed_before_the_resume_is_not_told_again(self):
        budget = Budget(BudgetConfig(max_usd=1, max_tokens=100), Spent(usd=0.6, tokens=10))
        assert budget.warnings() == []
        budget.settle(granted(budget, WorstCase(usd=0.25, tokens=45)), 0.25, 45)
        assert budget.warnings() == [
            (0.8, "80 % of budget.max_usd=1 is spent: $0.85."),
            (0.5, "50 % of budget.max_tokens=100 is spent: 55 tokens."),
        ]

    def test_time_is_told_too(self):
        budget = Budget(BudgetConfig(max_minutes=10))
        assert budget.warnings(299) == []
        sentence = "50 % of budget.max_minutes=10 is spent: 5.0 minutes."
        assert budget.warnings(300) == [(0.5, sentence)]

    def test_reservations_are_not_told_as_spent(self):
        budget = Budget(BudgetConfig(max_usd=0.01))
        granted(budget)
        assert budget.warnings() == []


class RandomRun:
    """A run of parallel calls that is killed now and then, checked at each step.

    ``paid``, ``tokens`` and ``calls`` are what really happened, whatever the budget believes.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.cap = rng.choice([0.001, 0.05, 0.3, 1.0, 7.77]) * rng.uniform(0.5, 2)
        self.limits = BudgetConfig(
            max_usd=self.cap,
            max_calls=rng.choice([None, rng.randint(1, 60)]),
            max_tokens=rng.choice([None, rng.randint(100, 20_000)]),
        )
        self.budget = Budget(self.limits)
        self.under_way: list[Reservation] = []
        self.paid: list[float] = []
        self.tokens = 0
        self.calls = 0

    def play(self) -> None:
        for _ in range(self.rng.randint(20, 120)):
            move = self.rng.random()
            if move < 0.55:
                scale = self.rng.choice([0.001, 0.02, 0.2, 1.1])
                usd, tokens = self.cap * self.rng.random() * scale, self.rng.randint(0, 400)
                self.ask(WorstCase(usd=usd, tokens=tokens))
            elif move < 0.97 and self.under_way:
                self.finish()
            elif move >= 0.97:
                self.die()
        self.use_what_is_left()

    def ask(self, worst: WorstCase) -> bool:
        """Whether a call could still fit."""
        found = self.budget.reserve(worst)
        if isinstance(found, Reservation):
            self.under_way.append(found)
        elif isinstance(found, Wait):
            assert self.under_way  # else nothing would ever end the wait
            self.finish()
        self.check()
        return not isinstance(found, Exhausted)

    def finish(self) -> None:
        """End a call: it costs a part of its worst case, all of it, or was not made at all."""
        rng = self.rng
        reservation = self.under_way.pop(rng.randrange(len(self.under_way)))
        usd, tokens = reservation.worst.usd, reservation.worst.tokens
        assert usd is not None
        assert tokens is not None
        if rng.random() < 0.1:
            self.budget.release(reservation)
            return
        share = rng.choice([0, 1, rng.random()])
        self.happen(usd * share, int(tokens * share))
        if rng.random() < 0.1:  # the provider does not say what it charged
            self.budget.settle(reservation, None, None)
        else:
            self.budget.settle(reservation, usd * share, int(tokens * share))

    def die(self) -> None:
        """Kill the process: what was under way is maybe paid, and the run is resumed."""
        spent, held = self.budget.spent, [reservation.worst for reservation in self.under_way]
        for reservation in self.under_way:
            share = self.rng.choice([0, 1])
            self.happen(
                (reservation.worst.usd or 0) * share, (reservation.worst.tokens or 0) * share
            )
        self.under_way = []
        before = Spent(
            usd=spent.usd + sum(worst.usd or 0.0 for worst in held),
            calls=spent.calls + len(held),
            tokens=spent.tokens + sum(worst.tokens or 0 for worst in held),
        )
        self.budget = Budget(self.limits, before)
        self.check()

    def happen(self, usd: float, tokens: int) -> None:
        self.paid.append(usd)
        self.tokens += tokens
        self.calls += 1

    def check(self) -> None:
        assert self.budget.spent.usd <= self.cap * (1 + 1e-12)
        assert math.fsum(self.paid) <= self.cap + 1e-12 * (1 + len(self.paid))
        assert self.limits.max_calls is None or self.calls <= self.limits.max_calls
        assert self.limits.max_tokens is None or self.tokens <= self.limits.max_tokens

    def use_what_is_left(self) -> None:
        """Small leftovers are still used: what fits is granted, at the latest when others end."""
        usd, tokens = self.cap * self.rng.uniform(1e-4, 0.02), self.rng.randint(1, 50)
        while self.ask(WorstCase(usd=usd, tokens=tokens)) or self.under_way:
            if self.under_way and self.rng.random() < 0.5:
                self.finish()
        spent, limits = self.budget.spent, self.limits
        assert (
            spent.usd + usd > self.cap * (1 - 1e-9)
            or (limits.max_calls is not None and spent.calls == limits.max_calls)
            or (limits.max_tokens is not None and spent.tokens + tokens > limits.max_tokens)
        )


def test_no_schedule_of_1000_random_runs_overshoots_or_leaves_what_fits():
    for seed in range(1000):
        RandomRun(seed).play()


def test_threads_that_reserve_at_once_do_not_overshoot():
    budget = Budget(BudgetConfig(max_usd=1.0), lock=threading.Lock())
    barrier = threading.Barrier(8)
    paid: list[float] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        barrier.wait()
        while True:
            worst = WorstCase(usd=rng.uniform(0.001, 0.02), tokens=1)
            found = budget.reserve(worst)
            if isinstance(found, Exhausted):
                return
            if isinstance(found, Reservation):
                assert worst.usd is not None
                usd = worst.usd * rng.random()
                paid.append(usd)
                budget.settle(found, usd, 1)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.spent.usd <= 1.0
    assert math.fsum(paid) <= 1.0 + 1e-9
    assert budget.spent.usd > 0.97
