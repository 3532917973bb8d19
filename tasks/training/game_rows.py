"""Winners' and solvers' moves of language games as rows that train."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from convergence_core.feedback.objectives import rating_quantiles
from convergence_core.games.round_records import PlayRecord
from convergence_core.ports import Store
from convergence_core.records import canonical_json, sha256_hex
from tasks.games.game_data import GameForm, game_rows, stored_plays
from tasks.training.jobs import Objective, TrainingRow
from tasks.training.marks import is_held_out_prompt

UNDECIDED: Final = 0.5
"""P(keep) of a game of which nothing is known."""
_KEPT: Final = """
    SELECT c.game, c.version, c.p_keep FROM game_coins c JOIN runs r USING (run_id)
    WHERE r.name IN ($system, $system || '.games') AND c.grounded AND c.p_keep IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY c.game ORDER BY c.round DESC, c.run_id DESC, c.generation DESC) = 1"""


def training_rows_of_games(
    store: Store, system: str, objective: Objective, *, held_out: float, most: int
) -> tuple[TrainingRow, ...]:
    """Return rows of the games that the meta-critic keeps rather than not; each once.

    Their weight is P(keep), as the last round of their game wrote it down. Games without a verdict, or with
    one of a half or less, give none, nor do games that are not grounded.

    Args:
        store: of the rounds.
        system: whose.
        objective: with `dpo` what won beside what lost in answer to one text; else moves of winners and
            solvers, which `qrpo` gives their score's quantile among the scores of their role, if it is
            above the median.
        held_out: share of prompts that never train, by hash; in [0, 1).
        most: rows; those of the most likely games come first, and of one game the newest.
    """
    kept = {
        str(row["game"]): (int(str(row["version"])), float(str(row["p_keep"])))
        for row in store.rows(_KEPT, {"system": system})
    }
    rows: dict[str, TrainingRow] = {}
    for game, (version, p_keep) in sorted(
        kept.items(), key=lambda entry: (-entry[1][1], entry[0])
    ):
        if p_keep <= UNDECIDED:
            continue
        plays = [play for play in stored_plays(store, system, game) if play.version == version]
        for row in _rows(plays[::-1], objective, p_keep):
            turns = [(message["role"], message["content"]) for message in row.messages]
            if not is_held_out_prompt(turns, held_out):
                rows.setdefault(row.key, row)
    return tuple(rows.values())[:most]


def _rows(
    plays: Sequence[PlayRecord], objective: Objective, p_keep: float
) -> Iterable[TrainingRow]:
    if objective == "dpo":
        for row in game_rows(plays, GameForm.DPO):
            (chosen,), (rejected,) = row["chosen"], row["rejected"]
            yield TrainingRow(
                messages=tuple(row["prompt"]), response=chosen["content"], rejected=rejected["content"],
                weight=p_keep, key=_key(row["game"], row["prompt"], chosen, rejected),
            )  # fmt: skip
        return
    targets = _quantiles(plays) if objective == "qrpo" else {}
    for row in game_rows(plays, GameForm.SFT):
        *prompt, answer = row["messages"]
        target = targets[row["play_id"], row["role"]] if objective == "qrpo" else 1.0
        if target > UNDECIDED:
            yield TrainingRow(
                messages=tuple(prompt), response=answer["content"], target=target, weight=p_keep,
                key=_key(row["game"], prompt, answer),
            )  # fmt: skip


def _quantiles(plays: Sequence[PlayRecord]) -> Mapping[tuple[str, str], float]:
    """Return (play, role) → the quantile of its score among those of the role."""
    scores = {
        (play.play_id, role): score
        for play in plays
        if play.status == "played"
        for role, score in play.scores.by_role.items()
    }
    roles = [role for _, role in scores]
    quantiles = rating_quantiles(roles, list(scores.values())).tolist() if scores else []
    return dict(zip(scores, quantiles, strict=True))


def _key(*parts: Any) -> str:
    return f"games {sha256_hex(canonical_json(list(parts)))[:24]}"
