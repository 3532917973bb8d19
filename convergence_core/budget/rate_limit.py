"""Rate limits of an endpoint: concurrent calls, pauses, circuit breaker.

* ``Aimd`` determines the number of concurrent calls: one more for each successful round, half as
  many
  when the endpoint throttles (D.-M. Chiu, R. Jain, "Analysis of the Increase and Decrease
  Algorithms
  for Congestion Avoidance in Computer Networks", 1989: of the linear controls this one converges
  to a
  fair and efficient share, regardless of other users of the key). It starts at 8 and grows by one
  per
  answer until the endpoint first throttles (slow start, RFC 5681 §3.1). A burst of 64 calls on a
  key
  that allows 5 costs 59 attempts; three rounds of growth have no measurable cost.
* ``Pacer`` determines the pause that the endpoint requested.
* ``Breaker`` stops calls to an endpoint that does not answer, and probes it from time to time
  (M. Nygard, "Release It!", 2007, "Circuit Breaker").
* ``TokenBucket`` limits the calls per second (J. Turner, "New Directions in Communications",
  1986).
* ``AddressCheck`` distinguishes a wrong address from a candidate with invalid parameters.

None of them reads a clock: times are arguments, in seconds of any monotonic clock.
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
"""Wording of operating systems, httpx and browsers."""
_NO_COMMANDS: Final[Mapping[str, str]] = MappingProxyType({})


class Aimd:
    """Limit on concurrent calls, in [1, ``most``].

    A *round* is as many answers as there were calls in flight when the limit last fell. All of
    these calls started under the old limit, so their throttling is no new information.
    """

    def __init__(self, *, most: int, start: int = 8) -> None:
        self.limit = min(most, start)
        """Maximum concurrent calls."""
        self._most = most
        self._is_starting = True
        self._n_good = 0
        self._n_stale = 0

    def answered(self, n_in_flight: int) -> None:
        """Record an answer.

        Args:
            n_in_flight: Calls in flight, including the answered one. If less than half of the
                limit is in use, the answer does not justify more (RFC 7661 §4.1).
        """
        self.ended()
        if self.limit >= self._most or 2 * n_in_flight < self.limit:
            return
        self._n_good += 1
        if self._is_starting or self._n_good >= self.limit:
            self.limit += 1
            self._n_good = 0

    def throttled(self, n_in_flight: int) -> bool:
        """Record a throttled call; return whether it lowered the limit.

        The limit falls to half of the calls in flight (RFC 5681 eq. 4), at most once per round.
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
        """Record the end of a call that shows nothing about load."""
        self._n_stale = max(0, self._n_stale - 1)


LONGEST_HINT_S = 60.0
"""Maximum pause from a ``reset``. Providers report when a limit is fully restored, a day for a
daily one, although the first request is allowed much sooner. After this pause, one request tests
it."""
BACK_OFF_S = (0.5, 30.0)
"""First and maximum pause after throttling without a requested pause; each doubles the last."""


class Pacer:
    """Pause before the next call."""

    def __init__(self) -> None:
        self.not_before_s = -math.inf
        """Latest time that any answer requested."""
        self._n_unsaid = 0

    def back_off(self, now_s: float) -> None:
        """Pause without a request, for an endpoint that throttles even single calls."""
        first_s, longest_s = BACK_OFF_S
        pause_s = min(longest_s, first_s * 2.0 ** min(self._n_unsaid, 30))
        self._n_unsaid += 1
        self.not_before_s = max(self.not_before_s, now_s + pause_s)

    def answered(self) -> None:
        """Record an answer, which resets the length of such pauses."""
        self._n_unsaid = 0

    def observe(self, rate: RateInfo, now_s: float) -> float:
        """Record an answer's rate limits; return the extension of the pause in seconds."""
        pause_s = rate.retry_after_s or 0.0
        if rate.is_used_up and rate.reset_s is not None:
            pause_s = max(pause_s, min(rate.reset_s, LONGEST_HINT_S))
        before_s = self.wait_s(now_s)
        if pause_s > before_s:
            self.not_before_s = now_s + pause_s
        return max(0.0, pause_s - before_s)

    def wait_s(self, now_s: float) -> float:
        """Return the remaining pause in seconds."""
        return max(0.0, self.not_before_s - now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """Thresholds for pausing and abandoning an endpoint."""

    n_failures: int = 8
    """Consecutive failures that open the breaker. If a quarter of all calls fail at random, eight
    in a row have a probability of one in 65,000."""
    first_cool_down_s: float = 1.0
    """Pause before the first probe; doubles with each failed probe."""
    longest_cool_down_s: float = 60.0
    n_probes: int = 8
    """Failed probes after which the endpoint is abandoned: three minutes."""
    n_first_probes: int = 4
    """The same for an endpoint that has never answered, most likely a wrong address: 15 s."""
    most_failures: int = 64
    """Maximum of ``n_failures`` after controls; each answered control doubles it."""
    n_refusals: int = 3
    """Refusals after which an endpoint that has never answered is abandoned."""


_DEFAULT_RULES = BreakerRules()


class Breaker:
    """Circuit breaker: ``closed`` (calls pass), ``open``, ``half_open`` (probing) or ``dead``.

    When it opens, calls in flight act as probes: any answer closes it. The separate probe waits
    until they have ended, so that its outcome is unambiguous.

    A *control* is a probe that repeats an answered request. If it fails, so does the endpoint,
    which is abandoned after ``n_failures`` and ``n_probes`` (16 calls). If it succeeds, the
    failures come from the settings: they have no effect, and the next control requires twice as
    many failures.
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
        """Why it is dead."""
        self.n_failed = 0
        """Consecutive failures since the last answer."""
        self.absent: str | None = None
        """Message about a local service that is not running; ``None`` if the last failure had
        another cause."""
        self._commands = commands
        self._host = host
        self._rules = rules
        self.has_answered = False
        """Whether the endpoint has ever processed a request."""
        self._most = rules.n_failures
        """Consecutive failures that open it."""
        self._n_refused = 0
        self._n_probes = 0
        self._retry_s = -math.inf
        self._opened_s = 0.0

    def wait_s(self, now_s: float, n_in_flight: int) -> float:
        """Return the seconds until a call may start; infinite while a call in flight blocks it."""
        if self.state == "closed":
            return 0.0
        if self.state == "dead" or n_in_flight > 0:
            return math.inf
        return max(0.0, self._retry_s - now_s)

    def started(self) -> None:
        """Record the start of a call that ``wait_s`` allowed."""
        if self.state == "open":
            self.state = "half_open"

    def unused(self) -> None:
        """Undo ``started`` for a call that was not made."""
        if self.state == "half_open":
            self.state = "open"

    def answered(self, *, is_success: bool = True, is_control: bool = False) -> bool:
        """Record any answer; return whether it closed the breaker.

        Args:
            is_success: Whether the request was processed; a 429 only shows that the endpoint is
                alive.
            is_control: Whether the request repeated an answered one.
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
        """Record a failure; return whether it opened the breaker."""
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
        """Record a refusal by the endpoint, for example for a wrong key.

        Args:
            why: Reason with a fix, in words.
            is_final: Whether earlier answers are irrelevant, for example after the credit is
                spent.
            most: Refusals after which the endpoint is abandoned; ``None`` means the default rule.
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
        """Return the local service that refuses connections, with a fix, or ``None``.

        In a browser session it is the service of the page, not the browser.
        """
        address = _OF_THIS_MACHINE.search(why)
        if address is None or not _REFUSED.search(why):
            return None
        command = self._commands.get(address["port"])
        start = f"Start it with `{command}`" if command else "Start the service there"
        return f"nothing listens on {address[0]}. {start}, or correct the address"


_LEAST_MISSES = 10
"""Minimum not-found answers before an address counts as wrong."""
_LEAST_CANDIDATES = 3
"""Minimum distinct candidates behind these answers, or all of a smaller space."""
_ENOUGH_CANDIDATES = 10
"""Distinct candidates that suffice for any space."""


class AddressCheck:
    """Check whether an endpoint answers not found (404, 405, 410) for every candidate.

    A parameter may be the model name or part of the address, so one candidate is no evidence. The
    check requires several, including each choice of the parameter ``model``, and no success.

    Args:
        n_candidates: Distinct candidates of the space; ``None`` means many.
        n_models: Choices of the parameter ``model``; 1 means that there is none.
        commands: Local port → command that starts its service.
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
        """Candidates with not-found answers."""
        self.n_answers = 0
        """Number of not-found answers."""
        self._models: set[str] = set()
        self._n_models = n_models
        self._n_needed = min(_LEAST_CANDIDATES, n_candidates or _LEAST_CANDIDATES)

    def missed(self, candidate_id: str, model: str) -> None:
        """Record a not-found answer for a candidate with this ``model``."""
        self.n_answers += 1
        self.candidates.add(candidate_id)
        self._models.add(model)

    @property
    def has_tried_all_models(self) -> bool:
        """Whether each choice of ``model`` got a not-found answer."""
        return len(self._models) >= self._n_models

    def is_wrong(self, *, others_wait: bool) -> bool:
        """Return whether the address is wrong for every candidate.

        Args:
            others_wait: Whether other candidates are in flight or could start now.
        """
        n_tried = len(self.candidates)
        if self.n_answers < _LEAST_MISSES or n_tried < self._n_needed:
            return False
        return self.has_tried_all_models and (not others_wait or n_tried >= _ENOUGH_CANDIDATES)


class TokenBucket:
    """Bucket that fills evenly by ``per_second`` tokens and holds one second's worth."""

    __slots__ = ("_capacity", "_filled_s", "_level", "_rate")

    def __init__(self, per_second: float, now_s: float) -> None:
        self._rate, self._filled_s = per_second, now_s
        self._capacity = self._level = max(1.0, per_second)

    def take(self, now_s: float) -> float:
        """Take a token and return 0, or return the seconds until one is available."""
        level = self._level + (now_s - self._filled_s) * self._rate
        self._level, self._filled_s = min(self._capacity, level), now_s
        if self._level >= 1.0 - 1e-9:
            self._level -= 1.0
            return 0.0
        return (1.0 - self._level) / self._rate
