"""Games about a system's answers whose correct answers are known by execution."""

from collections.abc import Iterable, Mapping
from typing import Final

from convergence_core.games.game import Game
from convergence_core.games.judge_games import DebateGame, JudgeGame
from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.preferences import Answer, Comparison
from convergence_core.sao.prompt_shape import shape_of
from tasks.inputs.loader import Loaded
from tasks.json_values import answers_of, as_text

_KINDS: Final[Mapping[str, type[JudgeGame]]] = {kind.id: kind for kind in (JudgeGame, DebateGame)}


def game_like_cases(name: str, loaded: Loaded) -> Game:
    """Return a game as large as the test cases and their expected answers, for estimates.

    The games of a round are about stored answers: see ``deal``.
    """
    shape = shape_of(loaded.cases)
    texts = [
        (
            "" if shape is None else shape.text(case.input) or "",
            as_text(answers_of(case.expected)[0]),
        )
        for case in loaded.search_cases
    ]
    items = []
    for prompt, expected in texts or [("", "")]:
        answer = Answer(text=expected, author="")
        comparison = Comparison(prompt=prompt, first=answer, second=answer, kind="candidates")
        items.append(AuditItem(item_id="", case_id="", comparison=comparison, first_is_right=True))
    return _KINDS[name](tuple(items))


def deal(name: str, items: Iterable[AuditItem | None]) -> tuple[Game | None, ...]:
    """Return one game per item; ``None`` for an item that is no longer stored."""
    return tuple(None if item is None else _KINDS[name]((item,)) for item in items)
