"""Training rows from audited preferences of a system."""

from typing import Final

from convergence_core.sao.preferences import JudgedPair
from tasks.sao.dataset import dataset_of
from tasks.store.tables.parquet_store import ParquetStore
from tasks.training.jobs import Objective, TrainingRow
from tasks.training.marks import is_held_out_prompt

TARGETS: Final[dict[Objective, tuple[float, float]]] = {"qrpo": (0.75, 0.25), "kto": (1.0, 0.0)}
"""Targets of the better and the worse answer: quantiles of two answers, and desirability."""
MOST_ROWS: Final = 1_000
"""Maximum rows of one round, from the newest pairs."""


def training_rows_of_preferences(
    store: ParquetStore,
    system: str,
    objective: Objective,
    *,
    persona: str,
    held_out: float,
) -> tuple[TrainingRow, ...]:
    """Return rows of the newest pairs whose judge passed its audit.

    The weight of a row is ``|2 q - 1|``, q the judge's probability that the first answer is
    better.

    Args:
        store: Store of the preference rounds.
        system: Name of the system.
        objective: ``dpo`` gives one row per pair, the others one per answer (``TARGETS``).
        persona: System message of the role, before each prompt.
        held_out: Share of held-out prompts, by hash, in [0, 1).

    Example:
        >>> training_rows_of_preferences(
        ...     store, "help_desk", "dpo", persona="You help.", held_out=0.2
        ... )
    """
    pairs = [
        pair
        for pair in dataset_of(store, system).pairs
        if not is_held_out_prompt([("user", pair.comparison.prompt)], held_out)
    ]
    rows = [row for pair in reversed(pairs) for row in _rows(pair, objective, persona)]
    return tuple(rows[:MOST_ROWS])


def _rows(pair: JudgedPair, objective: Objective, persona: str) -> list[TrainingRow]:
    messages = (
        {"role": "system", "content": persona},
        {"role": "user", "content": pair.comparison.prompt},
    )
    weight, key = abs(2.0 * pair.judgement.q - 1.0), f"preference {pair.comparison.pair_id}"
    chosen, rejected = pair.chosen.text, pair.rejected.text
    if objective == "dpo":
        return [
            TrainingRow(
                messages=messages, response=chosen, rejected=rejected, weight=weight, key=key
            )
        ]
    return [
        TrainingRow(
            messages=messages, response=text, target=target, weight=weight, key=f"{key} {target}"
        )
        for text, target in zip((chosen, rejected), TARGETS[objective], strict=True)
    ]
