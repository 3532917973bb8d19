"""Games of the user, each in a process that is killed if it hangs.

A protocol or a score that never returns would block a round, and a thread cannot be killed. So the
game's code runs in its own process, without our environment, and each step has a limit. A play
that hangs is void and ends its process. The other plays continue in a new one.
"""

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from convergence_core.errors import ConfigurationError, ConvergenceError, Problem
from convergence_core.games.game import Facts, Feed, Scores, Turn, Turns
from convergence_core.ports import Ask
from tasks.games.line_process import LineProcess, NoReplyError

STEP_S: Final = 10.0
"""Seconds allowed for one step of a protocol, or for one score."""
CHECK_S: Final = 60.0
"""Seconds allowed for making a game and checking it against the contract."""
MOST_HANGS: Final = 3
"""Steps without a result, after which the game is no longer called."""
MOST_SHOWN: Final = 3
"""Maximum broken rules in an error."""


class OwnGameError(ConvergenceError):
    """A user's game raised, or gave no result in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGame:
    """A game whose code runs in its own process."""

    id: str
    version: int
    roles: tuple[str, ...]
    cost: Mapping[str, int]
    feeds: Feed
    grounded: bool
    process: LineProcess
    step_s: float
    """Seconds allowed for one step."""
    hangs: list[str] = field(default_factory=list)
    """Reasons why steps gave no result."""

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Play once and return the game's facts.

        Raises:
            OwnGameError: the game raised, or gave no result in time.
        """
        begun = {"what": "step", "play": uuid.uuid4().hex, "state": rng.bit_generator.state}
        replies: list[str] = []
        while "ask" in (step := self._exchange({**begun, "replies": replies})):
            role, text, state, options = step["ask"]
            replies.append((yield Ask(role=role, text=text, state=state, options=tuple(options))))
        return dict(step["facts"])

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:
        """Return the game's scores.

        Raises:
            OwnGameError: the game raised, or gave no result in time.
        """
        played = [
            [turn.ask.role, turn.ask.text, turn.ask.state, [*turn.ask.options], turn.reply]
            for turn in turns
        ]
        return Scores(**self._exchange({"what": "score", "turns": played, "facts": dict(facts)}))

    def close(self) -> None:
        """Kill the process; safe to call twice."""
        self.process.close()

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if len(self.hangs) >= MOST_HANGS:
            raise OwnGameError(
                f"the game is not asked any more: {MOST_HANGS} times it gave nothing"
            )
        try:
            answer = self.process.ask(request, self.step_s)
        except NoReplyError as error:
            self.hangs.append(str(error))
            raise OwnGameError(f"the game was ended: it gave {error}") from None
        if "raised" in answer:
            raise OwnGameError(f"the game raised {answer['raised']}")
        return answer


def load_game(
    file: str, base_dir: Path, key: str, *, check_s: float = CHECK_S, step_s: float = STEP_S
) -> OwnGame:
    """Make a file's game in a process, which keeps running, and check it against the contract.

    Args:
        file: ``path/to/file.py:NAME`` or ``module:NAME``.
        base_dir: Base folder of relative paths.
        key: Configuration key, for errors.
        check_s: Seconds allowed for making and checking it.
        step_s: Seconds allowed for one step of a play.

    Raises:
        ConfigurationError: it cannot be made, breaks a rule of the contract, or hangs.
    """
    process = LineProcess(
        ["-P", "-m", "tasks.games.own_game_child"],
        {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "0"},
        {"what": "make", "path": file, "base_dir": str(base_dir.absolute()), "key": key},
    )
    try:
        description = process.start(check_s)
        _check(description, key)
    except NoReplyError as error:
        rule = "must make a game that keeps the contract"
        fix = "Fix the endless wait or loop."
        raise ConfigurationError.of(key, rule, fix, value=f"{error}") from None
    except ConfigurationError:
        process.close()
        raise
    return OwnGame(
        process=process, step_s=step_s, **{**description, "roles": tuple(description["roles"])}
    )


def _check(reply: Mapping[str, Any], key: str) -> None:
    if "problems" in reply:
        raise ConfigurationError([Problem(**problem) for problem in reply["problems"]])
    if "raised" in reply:
        rule = "must name a class or a function without arguments that makes the game"
        raise ConfigurationError.of(key, rule, "Mend it.", value=reply["raised"])
    if broken := reply.get("broken"):
        shown, n = "; ".join(broken[:MOST_SHOWN]), len(broken)
        more = f"; and {n - MOST_SHOWN} more" if n > MOST_SHOWN else ""
        fix = "Fix the game: `convergence_core.games.contract.broken_rules` names each rule."
        raise ConfigurationError.of(
            key, "must keep the contract of games", fix, value=f"{shown}{more}"
        )
