"""Formats of preference rows for trainers, with the evidence of each beside it.

``trl``: conversational rows of TRL, which ``DPOTrainer``, ``RewardTrainer`` and the experimental
``CPOTrainer`` (SimPO) take as they are. ``openai``: rows of OpenAI's preference tuning. Both have one
prompt and exactly one assistant message on each side. A side file holds, in the same order, what a row
rests on; its key is a hash of the row.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from convergence_core.records import Json, canonical_json, fields_of, sha256_hex
from convergence_core.sao.preferences import JudgedPair

Format: TypeAlias = Literal["trl", "openai"]


def key_of(pair: JudgedPair) -> str:
    """Return the hash of a kept pair's row: sha256 of prompt, chosen and rejected."""
    return sha256_hex(
        canonical_json([pair.comparison.prompt, pair.chosen.text, pair.rejected.text])
    )


def row_of(pair: JudgedPair, form: Format) -> dict[str, Json]:
    """Return the row of a kept pair in a format."""
    messages: list[Json] = [{"role": "user", "content": pair.comparison.prompt}]
    chosen: list[Json] = [{"role": "assistant", "content": pair.chosen.text}]
    rejected: list[Json] = [{"role": "assistant", "content": pair.rejected.text}]
    if form == "trl":
        return {"prompt": messages, "chosen": chosen, "rejected": rejected}
    return {
        "input": {"messages": messages, "tools": [], "parallel_tool_calls": True},
        "preferred_output": chosen,
        "non_preferred_output": rejected,
    }


def evidence_of(
    pair: JudgedPair, *, run_id: str = "", judge: str | None = None,
    trust: float | None = None, dropped: Mapping[str, int] | None = None,
) -> dict[str, Json]:  # fmt: skip
    """Return the evidence of a row, for the side file.

    Args:
        pair: Kept pair.
        run_id: Id of the run that judged it.
        judge: Model that judged it.
        trust: Trust in the judge after the round; ``None`` if unknown.
        dropped: Filter → number of pairs that it dropped in the same round.
    """
    c, j = pair.comparison, pair.judgement
    return {
        "key": key_of(pair),
        "q": max(j.q, 1.0 - j.q),
        **fields_of(c, "pair_id", "kind", "persona"),
        **fields_of(j, "p12", "p21"),
        "first_is_chosen": j.log_odds > 0,
        "chosen_length": len(pair.chosen.text),
        "rejected_length": len(pair.rejected.text),
        "chosen_author": pair.chosen.author,
        "rejected_author": pair.rejected.author,
        "split": pair.split,
        "round": pair.round_number,
        "run_id": run_id,
        "judge": judge,
        "trust": trust,
        "dropped_in_round": None if dropped is None else dict(dropped),
    }


def write(rows: Sequence[Mapping[str, Json]], *, as_array: bool) -> str:
    """Return rows as JSON Lines, or as one array."""
    if as_array:
        return json.dumps([*rows], ensure_ascii=False, indent=1) + "\n"
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
