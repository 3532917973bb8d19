"""Inputs by which a game broke the system, proposed as test cases.

Proposed are plays of games that feed ``hard_cases`` in which the system itself was the incumbent and the critic
scored: the executed reference solved the input, the check accepted its answer and refused the system's. Nothing
is a test case before a person says so.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from convergence_core.config.games import SANDBOX, SYSTEM
from convergence_core.feedback.records import ChatMessage, Interaction
from convergence_core.records import canonical_json
from tasks.store import ParquetStore
from tasks.store.feedback.proposals import ProposedCase

CRITIC, INCUMBENT = "critic", "incumbent"
MOST: Final = 200
"""Hard cases that are proposed at a time, the oldest first."""
_HARD: Final = f"""
    SELECT p.play_id, p.game, p.turns_json, p.round, epoch_us(g.started_at) AS at_us
    FROM game_plays p JOIN runs r USING (run_id) JOIN generations g USING (run_id, generation)
    JOIN game_coins c ON c.run_id = p.run_id AND c.generation = p.generation AND c.game = p.game
    WHERE r.name IN ($system, $system || '.games') AND c.feeds = 'hard_cases' AND c.grounded AND p.status = 'played'
      AND p.scores['{CRITIC}'] = 1
      AND json_extract_string(p.players_json, '$.{INCUMBENT}') = $player
    ORDER BY p.round, p.game, p.position"""  # noqa: S608 - constants


def hard_cases(
    store: ParquetStore, system: str, decided: Iterable[str] = ()
) -> list[ProposedCase]:
    """Return the hard cases of a system's games that nobody has decided about; one of each prompt.

    Args:
        store: holds the plays.
        system: name of the optimized system.
        decided: ids of what was decided.
    """
    found: dict[str, ProposedCase] = {}
    gone, known = set(decided), set()
    parameters = {"system": system, "player": SYSTEM}
    for row in store.rows(_HARD, parameters):
        turns = json.loads(str(row["turns_json"]))
        asked = [(text, reply) for role, text, reply in turns if role == INCUMBENT]
        if len(asked) != 1:
            continue
        ((prompt, answer),) = asked
        if str(row["play_id"]) in gone:
            known.add(prompt)  # decided for all plays that found it
        found.setdefault(prompt, _proposed(system, row, prompt, answer, _right(turns)))
    return [one for prompt, one in found.items() if prompt not in known][:MOST]


def _right(turns: list[list[str]]) -> str | None:
    """Return the reference's answer, as it was executed; ``None``: the reports hold none."""
    reports = [json.loads(reply) for role, _, reply in turns if role == SANDBOX]
    value = reports[0].get("value") if reports else None
    if value is None or isinstance(value, str):
        return value
    return canonical_json(value)


def _proposed(system: str, row: Any, prompt: str, answer: str, right: str | None) -> ProposedCase:
    shown = "" if right is None else f"; the reference answers {right}"
    return ProposedCase(
        interaction=Interaction(
            interaction_id=str(row["play_id"]),
            source="games",
            event_id=str(row["play_id"]),
            role=INCUMBENT,
            user_id="games",
            model=SYSTEM,
            messages=(ChatMessage(role="user", content=prompt),),
            response=answer,
            created_us=int(row["at_us"]),
            system=system,
        ),
        failed=f"{row['game']}: by execution the answer is wrong{shown}",
        right=right,
    )
