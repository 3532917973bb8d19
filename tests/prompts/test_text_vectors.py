"""Texts compared by the directions that an embedding model tells, or by their words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from convergence_core.config import parse_mapping
from convergence_core.errors import ConfigurationError
from convergence_core.posterior import SpaceModel
from convergence_core.records import Cell
from convergence_core.search.sampler import SearchState
from convergence_core.space import Choice, Space
from convergence_core.space.arrays import Encoding, packed, unpacked
from convergence_core.space.builder import widened
from tests.support.http_server import Answer, LoopbackServer, Request
from tests.support.mixed_problem import trial
from tests.support.writing_runs import (
    Scribe,
    begin,
    play,
    rows,
    write_project,
)

ROOT = Path(__file__).parents[2]
MODEL = "compass-1"
SETTINGS: dict[str, Any] = {
    "prompts": {"embedding_model": MODEL},
    "prices": {"scribe": {"input": 1.0, "output": 2.0}, MODEL: {"input": 1.0, "output": 0.0}},
}


# -- distances


@given(st.lists(st.floats(-1, 1), min_size=8, max_size=64), st.integers(0, 1000))
def test_a_packed_direction_keeps_its_cosines(values, seed):
    vector = np.array(values)
    vector[0] += 2.0
    other = np.random.default_rng(seed).standard_normal(len(values))
    cosine = vector @ other / np.linalg.norm(vector) / np.linalg.norm(other)
    assert unpacked(packed(values_of(vector))) @ unpacked(
        packed(values_of(other))
    ) == pytest.approx(cosine, abs=0.01)


def values_of(vector: np.ndarray) -> list[float]:
    return [float(x) for x in vector / np.linalg.norm(vector)]


def space_of(texts: list[str], vectors: dict[str, np.ndarray]) -> Space:
    return Space(
        parameters={
            "system": Choice(kind="text", choices=tuple(texts), names=tuple(texts)),
            "k": Choice(kind="categorical", choices=("a", "b")),
        },
        vectors={text: packed(values_of(vector)) for text, vector in vectors.items()},
    )


def distances(space: Space) -> np.ndarray:
    return Encoding.of(space).distances[0]


def test_texts_are_as_far_apart_as_their_directions():
    angles = {"be kind": 0.0, "act nicely": 0.1, "reply in French": 0.4}
    vectors = {text: np.array([np.cos(a), np.sin(a)]) for text, a in angles.items()}
    found = distances(space_of([*angles], vectors))
    gaps = np.array([*angles.values()])
    wanted = 1.0 - np.cos(gaps[:, None] - gaps)
    assert found[:3, :3] == pytest.approx(wanted / wanted.max(), abs=0.02)
    assert found[3].tolist() == [1.0, 1.0, 1.0, 0.0], "not active is like nothing"
    values, _ = np.linalg.eigh(np.exp(-3.0 * found))
    assert values.min() > -1e-9


def test_words_decide_where_a_direction_is_lacking():
    texts = ["be kind", "act nicely", "reply in French"]
    some = {text: np.array([1.0, 0.1 * i]) for i, text in enumerate(texts[:2])}
    assert (distances(space_of(texts, some)) == distances(space_of(texts, {}))).all()
    mixed = {**some, texts[2]: np.array([1.0, 0.0, 0.0])}
    assert (distances(space_of(texts, mixed)) == distances(space_of(texts, {}))).all()


def test_texts_of_one_direction_are_one_to_the_posterior():
    texts = ["be kind", "act nicely"]
    same = {text: np.array([1.0, 0.2]) for text in texts}
    assert distances(space_of(texts, same))[:2, :2] == pytest.approx(np.zeros((2, 2)), abs=1e-6)


def test_a_text_nobody_has_asked_is_foreseen_by_those_that_mean_the_same():
    """No two texts share a word; half of them mean what is worth more."""
    rng = np.random.default_rng(0)
    texts = [f"w{i}a w{i}b w{i}c" for i in range(16)]
    vectors = {
        text: np.array([1.0, float(i % 2), *(0.1 * rng.standard_normal(4))])
        for i, text in enumerate(texts)
    }
    errors = {}
    for known in ({}, vectors):
        space = space_of(texts, known)
        trials = []
        for i, text in enumerate(texts[:12]):
            one = space.candidate({"system": text, "k": "a"}, origin="sample")
            cells = [
                Cell(candidate_id=one.candidate_id, case_id=f"c{j}", repeat=0) for j in range(8)
            ]
            rewards = {c: 0.3 + 0.4 * (i % 2) + 0.1 * rng.standard_normal() for c in cells}
            trials.append(trial(one, rewards))
        fitted = SpaceModel(space=space).fit(SearchState().tell(trials).archive)
        unseen = [space.candidate({"system": t, "k": "a"}, origin="sample") for t in texts[12:]]
        truth = np.array([0.3 + 0.4 * (i % 2) for i in range(12, 16)])
        errors[bool(known)] = float(np.abs(fitted.posterior(unseen).mean - truth).mean())
    assert errors[True] < 0.08, errors
    assert errors[False] > 0.15, errors


def test_new_texts_bring_their_directions_and_old_ones_stay():
    space = widened(
        space_of(["a b", "c d"], {"a b": np.array([1.0, 0.0])}),
        {"system": ["e f"]},
        {"e f": "AQ=="},
    )
    assert [*space.vectors] == ["a b", "e f"]
    assert space.vectors["e f"] == "AQ=="


# -- runs


class Compass(Scribe):
    """A writer that also tells directions; it counts who asks for which."""

    def __init__(self, status: int = 200) -> None:
        super().__init__()
        self.embedded: list[str] = []
        self._status = status

    def respond(self, request: Request) -> Answer:
        if not request.path.endswith("/embeddings"):
            return super().respond(request)
        assert request.body["model"] == MODEL
        self.embedded.append(request.body["input"])
        rng = np.random.default_rng(len(request.body["input"]))
        data = [{"index": 0, "object": "embedding", "embedding": rng.standard_normal(12).tolist()}]
        return Answer(
            {"object": "list", "model": MODEL, "data": data,
             "usage": {"prompt_tokens": 20, "total_tokens": 20}},
            status=self._status,
        )  # fmt: skip

    def server(self) -> LoopbackServer:
        return LoopbackServer(self.respond)


def test_each_text_is_embedded_once_and_paid_as_writing(tmp_path):
    compass = Compass()
    with compass.server() as server:
        write_project(
            tmp_path,
            server.url,
            budget={"max_usd": 1.0},
            **{**SETTINGS, "prices": {**SETTINGS["prices"], "function": {"request": 0.0}}},
        )
        with begin(tmp_path) as run:
            play(run)
            space = run.study.space
    (texts,) = [p.choices for p in space.parameters.values() if isinstance(p, Choice)]
    assert sorted(compass.embedded) == sorted(map(str, texts)) == sorted(space.vectors)
    (ledger,) = rows(
        tmp_path,
        "SELECT count(*) n, sum(cost_usd) usd FROM attempts "
        "WHERE purpose = 'writing' AND model = 'compass-1'",
    )
    assert ledger["n"] == len(compass.embedded) > 2
    assert ledger["usd"] == pytest.approx(20e-6 * ledger["n"])


def test_where_no_direction_is_told_words_decide_and_the_run_ends(tmp_path):
    compass = Compass(status=400)
    with compass.server() as server:
        write_project(tmp_path, server.url, **SETTINGS)
        with begin(tmp_path) as run:
            result = play(run)
            assert not run.study.space.vectors
    assert result.status == "done"
    assert compass.embedded


def child(folder: Path, step: int) -> int:
    command = [sys.executable, "-m", "tests.support.writing_runs", str(folder), str(step)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode


@pytest.mark.slow
def test_a_killed_run_buys_no_direction_twice_and_ends_alike(tmp_path):
    found = {}
    for share in (0.0, 0.6):
        folder, compass = tmp_path / str(share), Compass()
        with compass.server() as server:
            write_project(folder, server.url, **SETTINGS)
            if share:
                assert child(folder, round(share * 220)) == -9
            assert child(folder, 0) == 0
        assert len(compass.embedded) == len(set(compass.embedded)), share
        found[share] = rows(
            folder, "SELECT candidate_id, mean FROM estimates ORDER BY generation, 1"
        )
    assert all(one == found[0.0] for one in found.values())


# -- configuration


def configured(**sections: Any) -> list[str]:
    tree = {
        "api": {"name": "x", "function": "m:f"},
        "search_space": {
            "parameters": {"system": {"type": "text", "variants": ["a"], "mutate": True}}
        },
        "evaluation": {"test_cases": {"path": "c.json"}, "metrics": {"exact_match": {}}},
        **sections,
    }
    try:
        assert parse_mapping(tree).prompts.embedding_model in (None, MODEL)
    except ConfigurationError as error:
        return [problem.key for problem in error.problems]
    return []


def test_an_embedding_model_needs_an_endpoint_and_texts_to_compare():
    llm = {"model": "scribe", "endpoint": "http://127.0.0.1:1/v1"}
    prompts = {"embedding_model": MODEL}
    assert configured(llm=llm, prompts=prompts) == []
    assert configured(llm=llm) == []
    assert configured(prompts={**prompts, "writer": "rules"}) == ["llm"]
    off = configured(llm=llm, prompts={**prompts, "enabled": False})
    assert "prompts.embedding_model" in off
