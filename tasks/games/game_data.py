"""Training data from plays of language games."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

from convergence_core.games.round_records import PlayRecord
from tasks.games.round_rows import plays_of_run
from tasks.store.tables.parquet_store import ParquetStore

SOLVER: Final = "solver"
CHANCE: Final = "chance"
ALONE: Final = 1.0
"""Least score with which a role that plays alone wins."""
_RUNS: Final = """
    SELECT g.run_id FROM game_rounds g JOIN runs r USING (run_id)
    WHERE CASE WHEN $system IS NULL THEN NOT contains(r.name || '.', '.offline.')
          ELSE r.name IN ($system, $system || '.games') END
    GROUP BY g.run_id ORDER BY min(r.started_at), g.run_id"""
"""Rounds of a system; for ``None`` of all systems, except rounds with the built-in mock."""


class GameForm(StrEnum):
    """Formats of the rows."""

    SFT = "sft"
    """Messages: moves of winners and solvers."""
    DPO = "dpo"
    """Prompt, chosen, rejected: a winning and a losing reply to the same prompt."""
    GRPO = "grpo"
    """Prompt and its verifier: one-question tasks with a library's verifier."""


def stored_plays(store: ParquetStore, system: str | None, game: str | None) -> list[PlayRecord]:
    """Return the plays of all finished rounds, oldest first.

    Args:
        store: Store of the rounds.
        system: Name of the system; ``None`` means all, except plays with the built-in mock.
        game: Id of the game; ``None`` means all.
    """
    runs = [row["run_id"] for row in store.rows(_RUNS, {"system": system})]
    return [play for run_id in runs for play in plays_of_run(store, run_id, game)]


def game_rows(plays: Sequence[PlayRecord], form: GameForm) -> Iterator[dict[str, Any]]:
    """Yield the distinct rows of plays in a format.

    Void and lost plays carry no signal. Good moves are those of winners and solvers. A role wins
    if it scores more than every other, or at least ``ALONE`` if it plays alone.
    """
    played = [play for play in plays if play.status == "played"]
    seen: set[str] = set()
    for row in _FORMS[form](played):
        key = repr({name: row[name] for name in row if name != "play_id"})
        if key not in seen:
            seen.add(key)
            yield row


def has_won(play: PlayRecord, role: str) -> bool:
    """Return whether a role won a play."""
    others = [score for name, score in play.scores.by_role.items() if name != role]
    if role not in play.scores.by_role:
        return False
    return (
        play.scores.by_role[role] > max(others) if others else play.scores.by_role[role] >= ALONE
    )


def _sft(plays: Sequence[PlayRecord]) -> Iterator[dict[str, Any]]:
    for play in plays:
        for role, text, reply in _moves(play):
            if _is_good(play, role):
                yield {
                    "messages": [_user(text), _assistant(reply)],
                    "game": play.game,
                    "version": play.version,
                    "role": role,
                    "player": play.players.get(role, ""),
                    "score": play.scores.by_role[role],
                    "play_id": play.play_id,
                }


def _dpo(plays: Sequence[PlayRecord]) -> Iterator[dict[str, Any]]:
    good: dict[tuple[str, int, str, str], list[str]] = defaultdict(list)
    bad: dict[tuple[str, int, str, str], list[str]] = defaultdict(list)
    for play in plays:
        for role, text, reply in _moves(play):
            side = good if _is_good(play, role) else bad
            side[play.game, play.version, role, text].append(reply)
    for key, chosen in good.items():
        game, version, role, text = key
        # Leave out replies that both won and lost.
        for play_id in dict.fromkeys(chosen):
            for other in dict.fromkeys(bad[key]):
                if play_id not in bad[key] and other not in chosen:
                    yield {
                        "prompt": [_user(text)],
                        "chosen": [_assistant(play_id)],
                        "rejected": [_assistant(other)],
                        "game": game,
                        "version": version,
                        "role": role,
                    }


def _grpo(plays: Sequence[PlayRecord]) -> Iterator[dict[str, Any]]:
    for play in plays:
        facts = play.facts
        if {"library", "generator", "seed"} <= facts.keys() and play.turns:
            yield {
                "prompt": [_user(play.turns[0].ask.text)],
                "task": play.game,
                "info": {name: facts[name] for name in ("library", "generator", "seed")},
            }


_FORMS: Final = {GameForm.SFT: _sft, GameForm.DPO: _dpo, GameForm.GRPO: _grpo}


def _moves(play: PlayRecord) -> Iterator[tuple[str, str, str]]:
    """Yield role, prompt and reply of each move, except random moves."""
    for turn in play.turns:
        if play.players.get(turn.ask.role) != CHANCE and turn.ask.role in play.scores.by_role:
            yield turn.ask.role, turn.ask.text, turn.reply


def _is_good(play: PlayRecord, role: str) -> bool:
    return play.players.get(role) == SOLVER or has_won(play, role)


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
