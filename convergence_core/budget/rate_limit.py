"""Rate limits of an endpoint: calls at once, pauses, circuit breaker.

* ``Aimd`` finds how many calls may be in flight: one more for each round that went well, half as
  many when the endpoint says it is too many (D.-M. Chiu, R. Jain, "Analysis of the Increase and
  Decrease Algorithms for Congestion Avoidance in Computer Networks", 1989: of the linear controls
  this one converges to a fair and efficient share, whoever else uses the same key). It begins at 8
  and grows by one for each answer until the endpoint first complains (slow start, RFC 5681 §3.1):
  a burst of 64 calls on a key that allows 5 costs 59 attempts, three rounds of growth cost
  nothing that can be measured.
* ``Pacer`` knows before which moment nothing may be sent: what the endpoint asked for.
* ``Breaker`` stops asking an endpoint that does not answer, and tries it once in a while
  (M. Nygard, "Release It!", 2007, "Circuit Breaker").
* ``TokenBucket`` lets so many calls through each second (J. Turner, "New Directions in
  Communications", 1986).
* ``AddressCheck`` tells a wrong address from a candidate whose parameters lead to none.

None of them knows a clock: times are arguments, in seconds of any clock that never goes back.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from convergence_core.records import RateInfo

State = Literal["closed", "open", "half_open", "dead"]
_OF_THIS_MACHINE: Final = re.compile(
    r"https?://(?:127\.0\.0\.1|localhost|\[::1\])(?::(?P<port>\d+))?"
)
_REFUSED: Final = re.compile(r"refused|all connection attempts failed", re.IGNORECASE)
"""As operating systems, httpx and browsers say it."""
_NO_COMMANDS: Final[Mapping[str, str]] = MappingProxyType({})


class Aimd:
    """How many calls may be in flight, in [1, ``most``].

    A *round* is as many answers as there were calls in flight when the limit last fell: all of
    them were asked for under the old limit, so their complaints are no news.
    """

    def __init__(self, *, most: int, start: int = 8) -> None:
        self.limit = min(most, start)
        """Calls that may be in flight."""
        self._most = most
        self._is_starting = True
        self._n_good = 0
        self._n_stale = 0

    def answered(self, n_in_flight: int) -> None:
        """Take in an answer.

        Args:
            n_in_flight: calls in flight, the answered one included. Where less than half of the
                limit is in use, the answer does not show that more would do (RFC 7661 §4.1).
        """
        self.ended()
        if self.limit >= self._most or 2 * n_in_flight < self.limit:
            return
        self._n_good += 1
        if self._is_starting or self._n_good >= self.limit:
            self.limit += 1
            self._n_good = 0

    def throttled(self, n_in_flight: int) -> bool:
        """Take in a complaint about too many calls; return whether it is news.

        The limit falls to half of what was in flight (RFC 5681 eq. 4), at most once in a round.
        """
        is_news = self._n_stale == 0
        self.ended()
        if not is_news:
            return False
        self.limit = max(1, min(self.limit, n_in_flight) // 2)
        self._n_stale = n_in_flight - 1
        self._is_starting = False
        self._n_good = 0
        return True

    def ended(self) -> None:
        """Take in that a call ended in a way that says nothing about load."""
        self._n_stale = max(0, self._n_stale - 1)


LONGEST_HINT_S = 60.0
"""Providers count ``reset`` to when a limit is whole again, a day for a daily one; the first
request is allowed much sooner. So this is heeded so long, and then one is sent to see."""
BACK_OFF_S = (0.5, 30.0)
"""First and longest pause after a complaint that names none; each doubles the one before."""


class Pacer:
    """Before which moment nothing may be sent."""

    def __init__(self) -> None:
        self.not_before_s = -math.inf
        """The latest moment that any answer asked for."""
        self._n_unsaid = 0

    def back_off(self, now_s: float) -> None:
        """Pause on our own, since an endpoint complains even about single calls."""
        first_s, longest_s = BACK_OFF_S
        pause_s = min(longest_s, first_s * 2.0 ** min(self._n_unsaid, 30))
        self._n_unsaid += 1
        self.not_before_s = max(self.not_before_s, now_s + pause_s)

    def answered(self) -> None:
        """Take in an answer: the next pause of our own is a short one again."""
        self._n_unsaid = 0

    def observe(self, rate: RateInfo, now_s: float) -> float:
        """Take in what an answer says; return by how many seconds the pause got longer."""
        pause_s = rate.retry_after_s or 0.0
        if rate.is_used_up and rate.reset_s is not None:
            pause_s = max(pause_s, min(rate.reset_s, LONGEST_HINT_S))
        before_s = self.wait_s(now_s)
        if pause_s > before_s:
            self.not_before_s = now_s + pause_s
        return max(0.0, pause_s - before_s)

    def wait_s(self, now_s: float) -> float:
        """Return for how long nothing may be sent."""
        return max(0.0, self.not_before_s - now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """When an endpoint is left alone, and when it is given up."""

    n_failures: int = 8
    """Failures in a row after which it is left alone. With a quarter of all calls failing by
    chance, eight in a row are one in 65,000."""
    first_cool_down_s: float = 1.0
    """Before the first probe; doubles with each probe that fails."""
    longest_cool_down_s: float = 60.0
    n_probes: int = 8
    """Failed probes after which it is given up: three minutes."""
    n_first_probes: int = 4
    """The same for an endpoint that has never answered, most likely a wrong address: 15 s."""
    most_failures: int = 64
    """The same after controls: each that is answered doubles ``n_failures``, up to this."""
    n_refusals: int = 3
    """Refusals after which an endpoint that has never answered is given up."""


_DEFAULT_RULES = BreakerRules()


class Breaker:
    """Whether an endpoint answers: ``closed`` (yes), ``open``, ``half_open`` (probing), ``dead``.

    Calls in flight when it opens are probes of their own: an answer of theirs closes it, and the
    probe proper waits until they have ended, so that it is always known whose end one sees.

    A *control* is a probe by a request that was answered before. If it fails, so does the endpoint,
    which is given up after ``n_failures`` and ``n_probes`` (16 calls). If it is answered, the
    failures are of the settings asked: they end nothing, and the next control waits for twice as many.
    """

    def __init__(
        self,
        host: str,
        rules: BreakerRules = _DEFAULT_RULES,
        *,
        commands: Mapping[str, str] = _NO_COMMANDS,
    ) -> None:
        self.state: State = "closed"
        self.verdict: str | None = None
        """Why it is dead, in words."""
        self.n_failed = 0
        """Failures since the last answer."""
        self.absent: str | None = None
        """Service of this machine that was not started, in words; ``None`` if the last failure was
        another."""
        self._commands = commands
        self._host = host
        self._rules = rules
        self.has_answered = False
        """Whether it has ever dealt with a request."""
        self._most = rules.n_failures
        """Failures in a row after which it opens."""
        self._n_refused = 0
        self._n_probes = 0
        self._retry_s = -math.inf
        self._opened_s = 0.0

    def wait_s(self, now_s: float, n_in_flight: int) -> float:
        """Return for how long no call may start; infinite: until one in flight has ended."""
        if self.state == "closed":
            return 0.0
        if self.state == "dead" or n_in_flight > 0:
            return math.inf
        return max(0.0, self._retry_s - now_s)

    def started(self) -> None:
        """Take in that a call starts, after ``wait_s`` allowed it."""
        if self.state == "open":
            self.state = "half_open"

    def unused(self) -> None:
        """Take back ``started``: the call was not made."""
        if self.state == "half_open":
            self.state = "open"

    def answered(self, *, is_success: bool = True, is_control: bool = False) -> bool:
        """Take in any sign of life; return whether this closed it.

        Args:
            is_success: whether the request was dealt with; a 429 only says that somebody is there.
            is_control: whether the request was a control: it repeats one that was answered before.
        """
        if self.state == "dead":
            return False
        was_open = self.state != "closed"
        self.state = "closed"
        self.n_failed = self._n_probes = 0
        rules = self._rules
        self._most = min(2 * self._most, rules.most_failures) if is_control else rules.n_failures
        if is_success:
            self.has_answered = True
            self._n_refused = 0
        return was_open

    def failed(self, why: str, now_s: float) -> bool:
        """Take in a failure; return whether this opened it (again)."""
        rules = self._rules
        self.absent = None if self.has_answered else self._absent_service(why)
        self.n_failed += 1
        if self.state == "closed" and self.n_failed >= (self._most if self.absent is None else 1):
            self._opened_s = now_s
        elif self.state == "half_open":
            self._n_probes += 1
            if self._n_probes >= (rules.n_probes if self.has_answered else rules.n_first_probes):
                self._give_up(why, now_s)
                return False
        else:
            return False
        self.state = "open"
        cool_down_s = rules.first_cool_down_s * 2.0**self._n_probes
        self._retry_s = now_s + min(cool_down_s, rules.longest_cool_down_s)
        return True

    def refused(self, why: str, *, is_final: bool = False, most: int | None = None) -> None:
        """Take in that somebody is there who refuses us, e.g. for a wrong key.

        Args:
            why: in words, with what to do about it.
            is_final: whether earlier answers change nothing, e.g. since the credit is spent now.
            most: refusals after which it is given up; ``None`` means as its rules say.
        """
        if self.state == "dead":
            return
        self.answered(is_success=False)
        self._n_refused += 1
        n_refusals = self._rules.n_refusals if most is None else most
        if self._n_refused >= n_refusals and (is_final or not self.has_answered):
            self.state = "dead"
            none = "" if self.has_answered else " and has answered none"
            self.verdict = f"{self._host} refused {self._n_refused} calls{none}. {why}"

    def _give_up(self, why: str, now_s: float) -> None:
        self.state = "dead"
        ever = "any more" if self.has_answered else "at all"
        fix = "" if self.has_answered else "Check the address and the network. "
        self.verdict = self.absent or (
            f"{self._host} does not answer {ever}: {self.n_failed} calls in a row failed, the "
            f"last {self._n_probes} of them probes over {now_s - self._opened_s:.0f} s. "
            f"{fix}The last error: {why}"
        )

    def _absent_service(self, why: str) -> str | None:
        """Return which service of this machine refuses connections, with its fix.

        In a browser's session it is that of the page, not the browser.
        """
        address = _OF_THIS_MACHINE.search(why)
        if address is None or not _REFUSED.search(why):
            return None
        command = self._commands.get(address["port"])
        start = f"Start it with `{command}`" if command else "Start the service there"
        return f"nothing listens on {address[0]}. {start}, or correct the address"


_LEAST_MISSES = 10
"""Answers that found nothing, before which no address counts as wrong."""
_LEAST_CANDIDATES = 3
"""Distinct candidates behind these answers, at least; all of a smaller space."""
_ENOUGH_CANDIDATES = 10
"""Distinct candidates that are enough, however many more the space holds."""


class AddressCheck:
    """Whether an endpoint that finds nothing (404, 405, 410) does so for every candidate.

    A parameter may be the name of a model or a part of the address, so one candidate shows nothing:
    it takes several, each choice of the parameter ``model`` among them, and not one success.

    Args:
        n_candidates: distinct candidates of the space; ``None`` means many.
        n_models: choices of the parameter ``model``; 1: there is none.
        commands: port of this machine → the command that starts its service.
    """

    def __init__(
        self,
        *,
        n_candidates: int | None = None,
        n_models: int = 1,
        commands: Mapping[str, str] = _NO_COMMANDS,
    ) -> None:
        self.commands = commands
        self.candidates: set[str] = set()
        """Those that nothing was found for."""
        self.n_answers = 0
        """Answers that found nothing."""
        self._models: set[str] = set()
        self._n_models = n_models
        self._n_needed = min(_LEAST_CANDIDATES, n_candidates or _LEAST_CANDIDATES)

    def missed(self, candidate_id: str, model: str) -> None:
        """Take in that nothing was found for a candidate with this ``model``."""
        self.n_answers += 1
        self.candidates.add(candidate_id)
        self._models.add(model)

    @property
    def has_tried_all_models(self) -> bool:
        """Whether nothing was found for each choice of ``model``."""
        return len(self._models) >= self._n_models

    def is_wrong(self, *, others_wait: bool) -> bool:
        """Whether the address is wrong for every candidate.

        Args:
            others_wait: whether other candidates could be asked now, or are.
        """
        n_tried = len(self.candidates)
        if self.n_answers < _LEAST_MISSES or n_tried < self._n_needed:
            return False
        return self.has_tried_all_models and (not others_wait or n_tried >= _ENOUGH_CANDIDATES)


class TokenBucket:
    """A bucket that ``per_second`` tokens flow into evenly, and that holds one second's worth."""

    __slots__ = ("_capacity", "_filled_s", "_level", "_rate")

    def __init__(self, per_second: float, now_s: float) -> None:
        self._rate, self._filled_s = per_second, now_s
        self._capacity = self._level = max(1.0, per_second)

    def take(self, now_s: float) -> float:
        """Take a token if there is one and return 0, else the seconds until there is."""
        level = self._level + (now_s - self._filled_s) * self._rate
        self._level, self._filled_s = min(self._capacity, level), now_s
        if self._level >= 1.0 - 1e-9:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self._rate
