"""Process that runs a user's game.

``tasks.games.own_games`` starts it. It reads one JSON request per line and writes one JSON reply
per line. A request holds all replies of its play so far. If another process started the play, this
one repeats it from the same random state. Output that the game prints is dropped.
"""

import json
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from convergence_core.config.games import SANDBOX
from convergence_core.errors import ConfigurationError
from convergence_core.games.contract import FixedPlayer, broken_rules
from convergence_core.games.game import Game, Turn, Turns
from convergence_core.ports import Ask
from convergence_core.records import fields_of
from tasks.functions.user_functions import load_function

MOST_MEMORY: Final = 8 << 30
"""Maximum address space of this process, in bytes."""
MOST_OPEN: Final = 1_000
"""Maximum open plays; beyond it, the oldest is dropped and repeated if it continues."""
_REPORT: Final = '{"ending": "ok", "reason": "", "value": true}'
"""Report of a program during the contract check, which starts no sandbox."""


class OpenGame:
    """A game and its open plays."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._open: dict[str, tuple[Turns, int]] = {}

    def step(self, play: str, state: dict[str, Any], replies: list[str]) -> dict[str, Any]:
        """Bring a play to the state after its replies; return its next prompt, or its facts."""
        protocol, n_known = self._open.pop(play, (None, 0))
        sent: list[Any] = replies[-1:]
        if protocol is None or n_known != len(replies) - 1:
            protocol, sent = self._begun(state), [None, *replies]
        try:
            ask = [protocol.send(reply) for reply in sent][-1]
        except StopIteration as end:
            return {"facts": dict(end.value or {})}
        if len(self._open) >= MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._open[play] = protocol, len(replies)
        return {"ask": [ask.role, ask.text, ask.state, list(ask.options)]}

    def score(self, turns: list[list[Any]], facts: dict[str, Any]) -> dict[str, Any]:
        """Return the scores of a play."""
        played = [
            Turn(Ask(role=role, text=text, state=state, options=tuple(options)), reply)
            for role, text, state, options, reply in turns
        ]
        scores = self._game.score(tuple(played), facts)
        return {
            "by_role": {k: float(v) for k, v in scores.by_role.items()},
            "reason": scores.reason,
        }

    def _begun(self, state: dict[str, Any]) -> Turns:
        rng = np.random.Generator(np.random.PCG64())
        rng.bit_generator.state = state
        return self._game.protocol(rng)


def made(path: str, base_dir: str, key: str) -> tuple[Game | None, dict[str, Any]]:
    """Make a game and check it against the contract; return it with its description."""
    try:
        make = load_function(path, Path(base_dir), key=key)
    except ConfigurationError as error:
        fields = ("key", "rule", "value", "fix", "file", "line", "column")
        return None, {"problems": [fields_of(problem, *fields) for problem in error.problems]}
    try:
        game: Game = make()
        replies = {SANDBOX: FixedPlayer(_REPORT)} if SANDBOX in getattr(game, "roles", ()) else {}
        broken = broken_rules(game, replies)
    except Exception as error:  # noqa: BLE001 - a user's game may raise anything
        return None, {"raised": f"{type(error).__name__}: {error}"}
    if broken:
        return None, {"broken": broken}
    return game, {
        **fields_of(game, "id", "version", "feeds", "grounded"),
        "roles": list(game.roles),
        "cost": dict(game.cost),
    }


def main() -> None:
    """Answer requests until standard input ends."""
    requests = os.fdopen(os.dup(0), encoding="ascii")
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    opened: OpenGame | None = None
    for line in requests:
        request = json.loads(line)
        action = request.pop("what")
        try:
            if action == "make":
                game, description = made(**request)
                opened = None if game is None else OpenGame(game)
            elif opened is None:
                description = {"raised": "ValueError: there is no game"}
            else:
                description = (
                    opened.step(**request) if action == "step" else opened.score(**request)
                )
            text = json.dumps(description)
        except Exception as error:  # noqa: BLE001 - as above
            text = json.dumps({"raised": f"{type(error).__name__}: {error}"})
        replies.write(text + "\n")
        replies.flush()


def _end_with(parent: int) -> None:
    """Exit when the parent process has exited: a game that hangs would otherwise run forever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
