"""The same prompt in other words: found by its direction, where an endpoint tells it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convergence_core.sao.duplicates import Duplicates
from tasks.rlp.embeddings import DIGITS
from tasks.store import ParquetStore
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import (
    STORE,
    World,
    begin,
    planted_world,
    play_generation,
    write_preferring,
)

SUBJECTS = ("roof", "boiler", "invoice")
SETTINGS: dict[str, Any] = {
    "optimization__evolution": {"population_size": 6, "generations": 2},
    "society__sao": {
        "every": 1, "n_samples": 6, "n_personas": 30, "audit_items": 4,
        "embedding_model": "text-embedding-3-small",
    },
}  # fmt: skip


def asks(number: int) -> str:
    """Ask about one of three things, in words that no two prompts share."""
    words = " ".join(f"word{number}x{k}" for k in range(20))
    return f"{words} {SUBJECTS[number % 3]}"


def world(**more: Any) -> World:
    return planted_world(prompt_of=asks, meaning_of=lambda text: text.split()[-1], **more)


def played(folder: Path, settings: dict[str, Any], made: World) -> dict[str, Any]:
    """Run two generations, a round before the second; return the round's row."""
    with planted_server(made) as server:
        write_preferring(folder, server.url, **settings)
        with begin(folder) as run:
            while run.should_continue():
                play_generation(run)
    (row,) = ParquetStore(folder / STORE).rows("select * from preference_rounds")
    return row


@pytest.mark.slow
def test_prompts_of_one_meaning_are_asked_once(tmp_path: Path):
    made = world()
    row = played(tmp_path / "with", SETTINGS, made)
    without = {**SETTINGS["society__sao"], "embedding_model": None}
    plain = played(tmp_path / "without", {**SETTINGS, "society__sao": without}, world())
    assert plain["dropped"]["duplicate_prompt"] == 0
    assert row["dropped"]["duplicate_prompt"] > 0
    prompts = {shown for what, shown in made.asked if what == "embedding"}
    assert made.n_asked["embedding"] == len(prompts)
    assert 0 < row["n_judged"] <= 3 < plain["n_judged"]  # pairs; there are three meanings
    costs = ParquetStore(tmp_path / "with" / STORE).rows(
        "select sum(n_calls) as n, sum(cost_usd) as usd from costs "
        "where model = 'text-embedding-3-small' and purpose = 'sao'"
    )
    assert costs[0]["n"] == made.n_asked["embedding"]


def test_directions_count_where_words_do_not():
    duplicates = Duplicates()
    a = np.array([1.0, 0.0])
    near = np.round(np.array([0.95, np.sqrt(1 - 0.95**2)]), DIGITS)
    assert duplicates.add("who mends the roof", a)
    assert not duplicates.add("what repairs that ceiling of mine", near)
    assert duplicates.add("what repairs that ceiling of mine", np.array([0.0, 1.0]))
    assert duplicates.add("and a third one without a direction")
    assert len(duplicates) == 3
