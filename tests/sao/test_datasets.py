"""Datasets: formats that trainers read, evidence beside each row."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from convergence.cli.app import app
from convergence_core.sao.formats import evidence_of, key_of, row_of
from convergence_core.sao.preferences import Answer, Comparison, JudgedPair, Judgement
from convergence_core.sao.rows import preference_rows, text_rows
from convergence_core.search.sampler import SearchState
from convergence_core.search.study_state import StudyState
from tasks.inputs.loader import load
from tasks.inputs.storage import new_record
from tasks.sao.dataset import EVIDENCE_SUFFIX, dataset_of, export
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.rows import generation_row
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import planted_world, write_preferring
from tests.support.stepped_runs import STORE, begin, play_generation

SIZE: dict[str, Any] = {
    "n_cases": 48,  # enough different items for a verdict after the first generation
    "optimization__evolution": {"population_size": 5, "generations": 2},
    "society__sao": {"every": 1, "n_samples": 20, "n_personas": 60, "audit_items": 60},
}

# What OpenAI documents of a row of preference tuning, as a JSON schema.
_MESSAGES = {
    "type": "array", "minItems": 1,
    "items": {"type": "object", "required": ["role", "content"]},
}  # fmt: skip
_ONE = {
    "type": "array", "minItems": 1, "maxItems": 1,
    "items": {"type": "object", "required": ["role", "content"],
              "properties": {"role": {"const": "assistant"}, "content": {"type": "string"}}},
}  # fmt: skip
OPENAI_SCHEMA = {
    "type": "object",
    "required": ["input", "preferred_output", "non_preferred_output"],
    "additionalProperties": False,
    "properties": {
        "input": {
            "type": "object", "required": ["messages"],
            "properties": {"messages": _MESSAGES, "tools": {"type": "array"},
                           "parallel_tool_calls": {"type": "boolean"}},
        },
        "preferred_output": _ONE,
        "non_preferred_output": _ONE,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with planted_server(planted_world()) as server:
        write_preferring(folder, server.url, **SIZE)
        run = begin(folder)
        with run:
            while run.should_continue():
                play_generation(run)
    return folder


def pair(prompt: str = "Where do I pay?", p: float = 0.9, position: int = 0) -> JudgedPair:
    return JudgedPair(
        comparison=Comparison(
            prompt=prompt,
            first=Answer(text=f"At the office, from nine to five: {prompt}", author="a"),
            second=Answer(text=f"On the web page of the city, at any hour. {prompt}", author="b"),
            kind="candidates",
            persona=7,
        ),
        judgement=Judgement(p12=p, p21=p),
        dropped_by=None,
        round_number=2,
        position=position,
    )


# -- formats


def test_evidence_tells_what_a_row_rests_on():
    one = pair()
    c = one.comparison
    assert evidence_of(one, run_id="r", judge="m", trust=0.5, dropped={"length": 2}) == {
        "key": key_of(one),
        "pair_id": c.pair_id,
        "q": max(one.judgement.q, 1.0 - one.judgement.q),
        "p12": one.judgement.p12,
        "p21": one.judgement.p21,
        "first_is_chosen": True,
        "chosen_length": len(one.chosen.text),
        "rejected_length": len(one.rejected.text),
        "chosen_author": one.chosen.author,
        "rejected_author": one.rejected.author,
        "kind": c.kind,
        "persona": c.persona,
        "split": one.split,
        "round": one.round_number,
        "run_id": "r",
        "judge": "m",
        "trust": 0.5,
        "dropped_in_round": {"length": 2},
    }


# -- out of a store and back


@pytest.mark.parametrize(("form", "ending"), [("trl", "jsonl"), ("openai", "json")])
def test_an_export_holds_rows_and_their_evidence(project: Path, tmp_path: Path, form, ending: str):
    dataset = dataset_of(ParquetStore(project / STORE), "codes", split="all")
    assert len(dataset.pairs) >= 5
    files = export(dataset, tmp_path / f"rows.{ending}", form)
    text = files["rows"].read_text("utf-8")
    rows = json.loads(text) if ending == "json" else [*map(json.loads, text.splitlines())]
    assert rows == [row_of(p, form) for p in dataset.pairs]
    if form == "openai":
        for row in rows:
            jsonschema.validate(row, OPENAI_SCHEMA)
    told = [json.loads(line) for line in files["evidence"].read_text("utf-8").splitlines()]
    assert [one["key"] for one in told] == [key_of(p) for p in dataset.pairs]
    for one in told:
        assert one["judge"] == "judge"
        assert one["q"] >= 0.7
        assert sum(one["dropped_in_round"].values()) > 0


def test_frozen_pairs_are_never_among_those_to_train_on(project: Path):
    store = ParquetStore(project / STORE)
    every = dataset_of(store, "codes", split="all").pairs
    train, audit = (dataset_of(store, "codes", split=name).pairs for name in ("train", "audit"))
    assert {p.split for p in train} == {"train"}
    assert {p.split for p in audit} <= {"audit"}
    assert len(train) + len(audit) == len(every)


@pytest.mark.slow
def test_each_row_is_held_to_its_own_judge_and_round(tmp_path: Path):
    runs = []
    for name, lies in (("liar", True), ("fair", False)):
        with planted_server(planted_world(lies=lies, spread=2.0)) as server:
            sao = {**SIZE["society__sao"], "n_samples": 12}
            write_preferring(
                tmp_path, server.url, llm__model=name, **{**SIZE, "society__sao": sao}
            )
            run = begin(tmp_path)
            with run:
                while run.should_continue():
                    play_generation(run)
                runs.append(run.run_id)
    store = ParquetStore(tmp_path / STORE)
    sound = dataset_of(store, "codes", split="all")
    assert {row["run_id"] for row in sound.evidence} == {runs[1]}
    assert {row["judge"] for row in sound.evidence} == {"fair"}
    assert all(float(str(row["trust"])) >= 0.2 for row in sound.evidence)
    assert sound.n_unvouched > 0
    every = dataset_of(store, "codes", split="all", anyway=True)
    assert len(every.pairs) == len(sound.pairs) + sound.n_unvouched
    assert {row["trust"] for row in every.evidence if row["judge"] == "liar"} == {0.0}
    assert every.doubt is not None
    assert "the judge was disabled in the rounds of" in every.doubt
    assert sound.doubt is None


# -- the command line


def test_the_command_refuses_what_nobody_should_train_on(tmp_path: Path):
    loaded = load(write_preferring(tmp_path, "http://127.0.0.1:9", **SIZE))
    out, store = tmp_path / "rows.jsonl", ParquetStore(tmp_path / STORE)
    record = new_record(loaded, name="codes", tags={})
    store.save_run(record)
    pairs = [pair()]
    state = StudyState(search=SearchState(), rng_state={}, next_generation=1)
    generation = generation_row(
        record.run_id, 0, [], state.to_checkpoint(), flow_run_id=None, partial=False, fallback_us=0
    )
    store.publish(record.run_id, 0, {
        "payloads": text_rows(record.run_id, pairs),
        "preferences": preference_rows(record.run_id, 0, pairs), "generations": [generation],
    })  # fmt: skip
    options = ["--config", str(tmp_path / "optimization.yaml"), "-o", str(out)]
    done = CliRunner().invoke(app, ["export", "preferences", *options])
    assert done.exit_code == 100, done.output
    assert "the judge was disabled in the rounds of 1 pairs" in done.output
    assert not out.exists()
    done = CliRunner().invoke(app, ["export", "preferences", *options, "--anyway", "--json"])
    assert done.exit_code == 0, done.output
    lines = out.read_text("utf-8").splitlines()
    told = json.loads(done.stdout)
    assert told["rows"] == len(lines) > 0
    assert out.with_name(out.name + EVIDENCE_SUFFIX).is_file()
