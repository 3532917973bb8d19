"""A project that plays language games, and a server that plays in a model's place.

As a program it plays a round of a folder: a child that a test kills.
"""

import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convergence_core.games.round_records import GamesReport
from tasks.inputs.loader import load
from tasks.run.games_opener import open_games_round, play_games
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.writing_runs import write_project

KUHN: dict[str, Any] = {"kuhn-poker": {"roles": {"second": {"player": "solver"}}}}
NIM: dict[str, Any] = {"nim": {"roles": {"second": {"player": "chance"}}}}


def write_games(folder: Path, url: str, games: dict[str, Any], **keys: Any) -> Path:
    """Write a project with games; keys by path, ``__`` for dots."""
    given: dict[str, Any] = {"society__games__games": games, "society__games__plays": 20,
                             "prompts__enabled": False, "optimization__seed": 5,
                             "prices": {"scribe": {"input": 1.0, "output": 2.0},
                                        "function": {"request": 1e-6}}, **keys}  # fmt: skip
    return write_project(folder, url, **given)


class Gamer:
    """A model's double: a function of what it is asked, else a legal move by a hash of it."""

    def __init__(self, answer: Callable[[str, int], str] | None = None) -> None:
        self.asked: list[str] = []
        self.before_answer: Callable[[int], None] = lambda _: None
        self._answer = answer or legal

    def respond(self, request: Request) -> Answer:
        """Answer one request."""
        text = "\n".join(str(one["content"]) for one in request.body["messages"])
        self.asked.append(text)
        self.before_answer(len(self.asked))
        return chat_answer(self._answer(text, len(self.asked)))

    def server(self) -> LoopbackServer:
        """Return its server; a context manager."""
        return LoopbackServer(self.respond)


def legal(request: str, number: int) -> str:
    """Return one of the listed moves."""
    listed = re.findall(r"Reply with (?:one of: )?([^\n]*)\.$", request)[-1]
    moves = re.split(r", | or ", listed)
    return moves[int(hashlib.sha256(request.encode()).hexdigest(), 16) % len(moves)]


def play_round(config: Path, **options: Any) -> GamesReport:
    """Play a round to its end."""
    with open_games_round(load(config), **options) as opened:
        return play_games(opened)


if __name__ == "__main__":
    play_round(Path(sys.argv[1]))
