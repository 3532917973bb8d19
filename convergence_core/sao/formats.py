"""Formats of preference rows for trainers, with the evidence of each beside it.

``trl``: conversational rows of TRL, which ``DPOTrainer``, ``RewardTrainer`` and the experimental
``CPOTrainer`` (SimPO) take as they are. ``openai``: rows of OpenAI's preference tuning. Both have one
prompt and exactly one assistant message on each side. A side file holds, in the same order, what a row
rests on; its key is a hash of the row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from convergence_core.records import Json, canonical_json, sha256_hex
from convergence_core.sao.preferences import (
    VERDICT_PROBABILITY,
    Answer,
    Comparison,
    JudgedPair,
    Judgement,
)

Format: TypeAlias = Literal["trl", "openai"]
IMPORTED: Final = "imported"
"""Author of the answers of rows without evidence."""

_PLAIN: Final[Mapping[str, Any]] = {
    "chosen_author": IMPORTED, "rejected_author": IMPORTED, "first_is_chosen": True, "kind": "incumbent",
    "persona": None, "p12": VERDICT_PROBABILITY, "p21": VERDICT_PROBABILITY, "round": 0,
}  # fmt: skip
"""Evidence of a row without any: a plain verdict."""


class BadRowError(ValueError):
    """A row is of no known form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceRow:
    """One row of any format."""

    prompt: str
    chosen: str
    rejected: str

    @property
    def key(self) -> str:
        """Hash of the row: sha256 of prompt, chosen and rejected."""
        return sha256_hex(canonical_json([self.prompt, self.chosen, self.rejected]))

    def to_json(self, form: Format) -> dict[str, Json]:
        """Return the row in a format."""
        messages: list[Json] = [{"role": "user", "content": self.prompt}]
        chosen: list[Json] = [{"role": "assistant", "content": self.chosen}]
        rejected: list[Json] = [{"role": "assistant", "content": self.rejected}]
        if form == "trl":
            return {"prompt": messages, "chosen": chosen, "rejected": rejected}
        return {
            "input": {"messages": messages, "tools": [], "parallel_tool_calls": True},
            "preferred_output": chosen,
            "non_preferred_output": rejected,
        }

    @classmethod
    def from_json(cls, value: Any) -> "PreferenceRow":
        """Read a row of either format; of TRL also with the prompt in both answers.

        Raises:
            BadRowError: it has another form.
        """
        if not isinstance(value, dict):
            raise BadRowError("must be an object")
        if "preferred_output" in value:
            prompt = value.get("input")
            messages = prompt.get("messages") if isinstance(prompt, dict) else None
            return cls(
                prompt=_only(messages, "user", "input.messages"),
                chosen=_only(value["preferred_output"], "assistant", "preferred_output"),
                rejected=_only(
                    value.get("non_preferred_output"), "assistant", "non_preferred_output"
                ),
            )
        if "prompt" in value:
            return cls(
                prompt=_text(value["prompt"], "user", "prompt"),
                chosen=_text(value.get("chosen"), "assistant", "chosen"),
                rejected=_text(value.get("rejected"), "assistant", "rejected"),
            )
        return cls._with_prompt_in_both(value.get("chosen"), value.get("rejected"))

    @classmethod
    def _with_prompt_in_both(cls, chosen: Any, rejected: Any) -> "PreferenceRow":
        if not (isinstance(chosen, list) and isinstance(rejected, list)):
            raise BadRowError("must have `prompt`, or lists of messages with it in both answers")
        if chosen[:-1] != rejected[:-1]:
            raise BadRowError("`chosen` and `rejected` must begin with the same prompt")
        return cls(
            prompt=_only(chosen[:-1], "user", "the prompt"),
            chosen=_only(chosen[-1:], "assistant", "chosen"),
            rejected=_only(rejected[-1:], "assistant", "rejected"),
        )


def row_of(pair: JudgedPair) -> PreferenceRow:
    """Return the row of a kept pair."""
    return PreferenceRow(
        prompt=pair.comparison.prompt, chosen=pair.chosen.text, rejected=pair.rejected.text
    )


def evidence_of(
    pair: JudgedPair, *, run_id: str = "", judge: str | None = None,
    trust: float | None = None, dropped: Mapping[str, int] | None = None,
) -> dict[str, Json]:  # fmt: skip
    """Return what a row rests on, for the side file.

    Args:
        pair: kept.
        run_id: the run that judged it.
        judge: the model that did.
        trust: in it after the round; ``None`` if not known.
        dropped: filter → pairs that it dropped in the same round.
    """
    c, j = pair.comparison, pair.judgement
    return {
        "key": row_of(pair).key,
        "pair_id": c.pair_id,
        "q": max(j.q, 1.0 - j.q),
        "p12": j.p12,
        "p21": j.p21,
        "first_is_chosen": j.log_odds > 0,
        "chosen_length": len(pair.chosen.text),
        "rejected_length": len(pair.rejected.text),
        "chosen_author": pair.chosen.author,
        "rejected_author": pair.rejected.author,
        "kind": c.kind,
        "persona": c.persona,
        "split": pair.split,
        "round": pair.round_number,
        "run_id": run_id,
        "judge": judge,
        "trust": trust,
        "dropped_in_round": None if dropped is None else dict(dropped),
    }


def pair_of(row: PreferenceRow, evidence: Mapping[str, Any] | None, position: int) -> JudgedPair:
    """Return the pair behind a row, as it was judged; without evidence as plain verdicts.

    Args:
        row: as read.
        evidence: its line of the side file; ``None`` if there is none.
        position: number of the row.

    Raises:
        BadRowError: the evidence is of another row, or incomplete.
    """
    known = {**_PLAIN, "key": row.key} if evidence is None else evidence
    try:
        if known["key"] != row.key:
            raise BadRowError("the evidence beside it is of another row")
        answers = [
            Answer(text=row.chosen, author=str(known["chosen_author"])),
            Answer(text=row.rejected, author=str(known["rejected_author"])),
        ]
        is_first = bool(known["first_is_chosen"])
        first, second = answers if is_first else answers[::-1]
        persona = known["persona"]
        pair = JudgedPair(
            comparison=Comparison(
                prompt=row.prompt,
                first=first,
                second=second,
                kind="candidates" if known["kind"] == "candidates" else "incumbent",
                persona=None if persona is None else int(persona),
            ),
            judgement=Judgement(p12=float(known["p12"]), p21=float(known["p21"])),
            dropped_by=None,
            round_number=int(known["round"]),
            position=position,
        )
    except (KeyError, TypeError) as error:
        raise BadRowError(f"the evidence beside it is incomplete: {error}") from None
    if (pair.judgement.log_odds > 0) != is_first:
        raise BadRowError("its probabilities do not favour the chosen answer")
    return pair


def write(rows: Sequence[Mapping[str, Json]], *, as_array: bool) -> str:
    """Return rows as JSON Lines, or as one array."""
    if as_array:
        return json.dumps([*rows], ensure_ascii=False, indent=1) + "\n"
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read(text: str) -> list[Any]:
    """Return the rows of JSON Lines or of one array.

    Raises:
        BadRowError: neither; the message names the line.
    """
    if text.lstrip().startswith("["):
        try:
            items: list[Any] = json.loads(text)
        except ValueError as error:
            raise BadRowError(f"must be one JSON array: {error}") from None
        return items
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise BadRowError(f"line {number} must be JSON: {error}") from None
    return rows


def _only(messages: Any, role: str, where: str) -> str:
    """Return the text of the one message there is."""
    if not isinstance(messages, list) or len(messages) != 1 or not isinstance(messages[0], dict):
        raise BadRowError(f"`{where}` must be a list of one message")
    content = messages[0].get("content")
    if messages[0].get("role") != role or not isinstance(content, str) or not content.strip():
        raise BadRowError(f"`{where}` must be one message of the role `{role}` with a text")
    return content


def _text(value: Any, role: str, where: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    return _only(value, role, where)
