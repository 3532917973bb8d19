"""A project that plays language games, and a server that plays in a model's place.

As a program it plays a round of a folder, or a run with rounds in it: a child that a test kills.
"""

import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convergence_core.games.round_records import GamesReport
from convergence_core.result import RunResult
from tasks.inputs.loader import load
from tasks.run.conclusion import choose_finalists, conclude
from tasks.run.games_opener import open_games_round, open_round_within, play_games
from tasks.run.opener import prepare_run, resume_run
from tasks.store import ParquetStore
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.writing_runs import PARENT, STORE, play_generation, write_project

KUHN: dict[str, Any] = {"kuhn-poker": {"roles": {"second": {"player": "solver"}}}}
EVERY_2: dict[str, Any] = {
    "society__games__every": 2,
    "society__games__n_at_once": 1,
    "society__games__plays": 6,
    "optimization__evolution": {"population_size": 3, "generations": 5},
    "search_space__parameters": {
        "system": {"type": "text", "variants": [PARENT], "default": PARENT, "mutate": True},
        "warmth": {"type": "float", "min": 0.0, "max": 1.0, "default": 0.5},
    },
}
"""Keys of a run with a round every second generation, one play at a time."""
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


def optimize(config: Path) -> RunResult:
    """Take the run of a configuration to its end as the flow does, or go on with the one that was left."""
    loaded = load(config)
    left = left_unfinished(config.parent / STORE)
    run = prepare_run(loaded) if left is None else resume_run(config.parent / STORE, left)
    with run:
        while run.should_continue():
            if run.is_due("games"):
                with open_round_within(run) as opened:
                    play_games(opened)
            play_generation(run)
        trials = [run.session.evaluate(one, None) for one in choose_finalists(run)]
        return conclude(run, trials)


def left_unfinished(store: Path) -> str | None:
    """Return the id of a run that has not ended; ``None``: there is none."""
    if not store.is_dir():
        return None
    ids = [one.run_id for one in ParquetStore(store).runs() if one.status != "done"]
    return ids[0] if ids else None


if __name__ == "__main__":
    what, path = sys.argv[1], Path(sys.argv[2])
    play_round(path) if what == "round" else optimize(path)
