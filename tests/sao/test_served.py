"""Over a real server and the real client what pure functions promise of a round.

The author behind the server writes what a test tells it to; what the server received says what was sent.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convergence_core.judges.texts import jaccard, word_set
from convergence_core.judges.trust import LEAST_TRUST
from tasks.sao.factory import shipped_personas
from tasks.store.tables.parquet_store import ParquetStore
from tests.core.sao.test_filters import edited, prompt
from tests.sao.mixin import write
from tests.support.planted_server import PlantedWorld, planted_server
from tests.support.preferring_runs import World, planted_world, write_preferring
from tests.support.stepped_runs import STORE, begin, play_generation

_PERSONA = re.compile(r"^The persona: (.+)$", re.MULTILINE)


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


def dictated(texts: Sequence[str]) -> Callable[[int], str]:
    """Return an author who writes these texts in turn."""
    left = list(texts)
    return lambda _number: left.pop(0)


def personas_sent(world: PlantedWorld) -> list[str]:
    """Return the personas in whose name the server was asked for prompts, in the order of arrival."""
    found = []
    for what, shown in world.asked:
        if what == "prompt":
            (persona,) = _PERSONA.findall(shown)
            found.append(persona)
    return found


# -- near copies


@pytest.mark.slow
def test_near_copies_of_earlier_rounds_are_dropped_unjudged_and_those_farther_off_stay(
    tmp_path: Path,
):
    rng = np.random.default_rng(7)
    originals = [prompt(rng) for _ in range(6)]

    def copies(*n_edits: int) -> list[str]:
        return [" ".join(edited(w, n, rng)) for w in originals[:3] for n in n_edits]

    written = [*(" ".join(words) for words in originals), *copies(1, 2), *copies(3, 4)]
    world = planted_world(prompt_of=dictated(written))
    n_judged = []
    with planted_server(world) as server:
        write_preferring(
            tmp_path,
            server.url,
            optimization__evolution={"population_size": 3, "generations": 4},
            society__sao={"every": 1, "n_samples": 6, "n_personas": 30, "audit_items": 0},
        )
        run = begin(tmp_path)
        with run:
            while run.should_continue():
                before = world.n_asked["answer"], world.n_asked["judgement"]
                play_generation(run)
                n_judged.append(world.n_asked["judgement"] - before[1])
    told = rows(tmp_path, "select * from preference_rounds order by generation")
    assert [row["n_pairs"] for row in told] == [6, 6, 6]
    assert [row["dropped"]["duplicate_prompt"] for row in told] == [0, 6, 0]
    assert [row["n_judged"] for row in told] == [6, 0, 6]
    assert n_judged[2] == 0, "nobody is paid to judge a copy"
    kept = rows(tmp_path, "select x.text from preferences p join payloads x "
                          "on x.payload_sha256 = p.prompt_sha256")  # fmt: skip
    assert {row["text"].strip('"') for row in kept} == {*written[:6], *written[12:]}


# -- personas


@pytest.mark.filterwarnings("ignore:no row was written")
def test_no_persona_is_sent_twice_and_none_like_another():
    # The author writes nothing that could be answered, so that nothing but prompts is asked for.
    world = PlantedWorld(mode="garbage", breaks=frozenset({"prompt"}))
    write(world, 4, n_samples=50, n_grounded=0, n_personas=200, iterative_rounds=5)
    sent = personas_sent(world)
    assert len(sent) == len(set(sent)) == 200
    grammar = shipped_personas()
    walked = {grammar.persona(int(index)).text for index in grammar.walk(0, 0, 200)}
    assert set(sent) == walked
    words = [word_set(text) for text in sent]
    assert max(jaccard(a, b) for i, a in enumerate(words) for b in words[:i]) < 0.9


# -- the judge


class Coin(World):
    """A judge who is right about an item as often as it is told to be, whatever the order."""

    accuracy: float = 0.5
    seed: int = 0

    def _of_case(self, shown: str) -> float | None:
        p = super()._of_case(shown)
        if p is None or p == 0.5:
            return p
        request = shown.partition("[[END REQUEST")[0].rpartition("\n\n")[2]
        number = int(re.findall(r"Case (\d+):", request)[0])
        is_right = np.random.default_rng([self.seed, number]).random() < self.accuracy
        return p if is_right else 1.0 - p


def trust_in(accuracy: float, seed: int) -> tuple[float, float]:
    """Return the share of fifty items judged right over a server, and the trust that follows."""
    world = Coin(truth=planted_world().truth)
    world.accuracy, world.seed = accuracy, seed
    sao, (found,) = write(world, n_samples=1, n_grounded=50)
    assert found.audit is not None
    assert found.audit.n_items == 50
    assert sao.trust.is_enabled == (sao.trust.value >= LEAST_TRUST)
    return found.audit.n_right / 50, sao.trust.value


@pytest.mark.slow
def test_a_coin_behind_a_server_is_disabled_and_a_judge_of_eighty_percent_is_believed():
    # Over all seeds .3 % of coins pass and 3 % of such judges fail; these seeds are fixed.
    coins = [trust_in(0.5, seed) for seed in range(3)]
    judges = [trust_in(0.8, seed) for seed in range(3)]
    assert all(0.3 < accuracy < 0.7 and trust < LEAST_TRUST for accuracy, trust in coins), coins
    assert all(accuracy >= 0.7 and trust >= LEAST_TRUST for accuracy, trust in judges), judges
