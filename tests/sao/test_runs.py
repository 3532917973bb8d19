"""Runs that prefer, over a real server and the real client: rows, resumes, judges of no use."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convergence.cost_estimate import estimate
from convergence_core.events import GenerationFinished, ThinkingStopped
from convergence_core.evidence import Archive
from convergence_core.posterior import SpaceModel
from convergence_core.records import canonical_json
from convergence_core.result import RunResult
from convergence_core.sao.rows import PREFERENCES_SQL, pairs_of, round_tables
from tasks.inputs.loader import load
from tasks.report.markdown import markdown_of, report_markdown
from tasks.report.sao_section import preference_blocks, preference_lines
from tasks.run.result import collect_progress
from tasks.run.run import Run
from tasks.sao.factory import NO_LLM, NO_PROMPT
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import World, learner_of, planted_world, write_preferring
from tests.support.stepped_runs import STORE, begin, go_on, play, play_generation

PROMPTS = {
    "type": "text", "variants": ["Be brief.", "Answer at length, with every detail."],
    "default": "Be brief.", "mutate": True,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "optimization__evolution": {"population_size": 6, "generations": 3},
    "society__sao": {"every": 1, "n_samples": 6, "n_personas": 30, "audit_items": 60},
}


def rows(folder: Path, sql: str) -> list[dict[str, Any]]:
    return ParquetStore(folder / STORE).rows(sql)


def run_whole(folder: Path, world: World, **overrides: Any) -> tuple[Any, list[Any]]:
    """Run a project's generations; return what it has found and what listeners were told."""
    events: list[Any] = []
    with planted_server(world) as server:
        write_preferring(folder, server.url, **{**SMALL, **overrides})
        run = begin(folder, on_event=events.append)
        with run:
            while run.should_continue():
                play_generation(run)
            return collect_progress(run), events


def errors_of(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows(folder, "select errors_json from preference_rounds"):
        for why, n in json.loads(row["errors_json"]).items():
            found[why] = found.get(why, 0) + n
    return found


@pytest.fixture(scope="module")
def fair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World, RunResult]:
    folder = tmp_path_factory.mktemp("fair")
    world = planted_world()
    with planted_server(world) as server:
        write_preferring(folder, server.url, **SMALL)
        return folder, world, play(begin(folder))


# -- what a run leaves


def test_the_estimate_counts_the_calls_that_rounds_make(fair):
    folder, world, _ = fair
    (calls,) = (
        role.calls
        for role in estimate(load(folder / "optimization.yaml")).roles
        if role.role == "sao"
    )
    n_made = sum(n for purpose, n in world.n_asked.items() if purpose != "case")
    assert calls.expected == calls.high is not None
    assert 0.9 * calls.high < n_made <= calls.high


def test_every_pair_has_its_evidence_and_every_drop_its_counter(fair):
    folder, world, _ = fair
    rounds = rows(folder, "select * from preference_rounds order by generation")
    assert [(row["generation"], row["round"]) for row in rounds] == [(1, 0), (2, 1)]
    pairs = pairs_of(
        ParquetStore(folder / STORE).rows(PREFERENCES_SQL, {"run": None, "system": "codes"})
    )
    assert len(pairs) == sum(row["n_judged"] for row in rounds) > 0
    assert world.n_asked["prompt"] == sum(row["n_prompts"] for row in rounds) == 12
    for row in rounds:
        assert row["n_kept"] + sum(row["dropped"].values()) == row["n_pairs"] == 6
        assert 0 < row["trust"] <= 1
        assert row["accuracy"] == 1.0
    for pair in pairs:
        assert pair.comparison.prompt.startswith("What shall I do about")
        assert pair.comparison.first.text.startswith("[[r")
        assert pair.comparison.persona is not None
    assert {pair.comparison.kind for pair in pairs} == {"incumbent", "candidates"}
    assert len({pair.comparison.persona for pair in pairs}) == len(pairs)


def test_the_incumbent_answers_warm_and_candidates_as_they_are(fair):
    folder, _, _ = fair
    answers = rows(folder, "select first_author, second_author, kind from preferences")
    assert all((r["first_author"] == r["second_author"]) == (r["kind"] == "incumbent")
               for r in answers)  # fmt: skip
    asked = {row["candidate_id"] for row in rows(folder, "select candidate_id from candidates")}
    assert {r["first_author"] for r in answers if r["kind"] == "incumbent"} <= asked


def test_audits_use_search_cases_whose_truth_was_executed(fair):
    folder, _, _ = fair
    found = rows(folder, "select a.*, c.n from preference_audits a left join (select case_id, "
                         "count(*) as n from evaluations where role = 'search' group by case_id) c "
                         "using (case_id)")  # fmt: skip
    assert found
    assert all(row["n"] for row in found)
    assert all(row["p_right"] == pytest.approx(0.75) for row in found)


def test_the_report_tells_a_sample_the_counters_and_what_changed(fair):
    _, _, result = fair
    report = result.preferences
    assert report is not None
    assert RunResult.from_json(canonical_json(result.to_json())).preferences == report
    text = report_markdown(result)
    assert "Preferences" in text
    assert "Preferences did not change the search: no prompt was distilled from them." in text
    assert "The judge is trusted: " in text
    assert report.sample is not None
    assert "newest pair" in text
    lines = "\n".join(preference_lines(report))
    assert f"{report.n_kept:,} kept of 12 in 2 rounds" in lines
    assert "right on 100 % of" in lines
    last = report.rounds[-1]
    markdown = markdown_of(preference_blocks(report))
    assert "| before generation | prompts |" in markdown
    assert "| judge right | trust |" in markdown
    assert f"| 100 % of {last.n_items} |" in markdown
    assert "What shall I do" in markdown


# -- resumes


@pytest.mark.parametrize("step", ["sample", "learn"])
@pytest.mark.slow
def test_a_round_is_not_bought_or_kept_twice_after_a_kill(tmp_path: Path, step: str):
    world = planted_world()
    with planted_server(world) as server:
        write_preferring(tmp_path, server.url, **SMALL)
        run = begin(tmp_path)
        with run:
            play_generation(run)
            assert not play_generation(run, stop_before=lambda name: name == step)
            pending = learner_of(run).pending
            assert pending is not None
            before = dict(world.n_asked), round_tables(run.run_id, *pending)
        assert rows(tmp_path, "select * from preferences") == []
        run = go_on(tmp_path)
        with run:
            play_generation(run)
        asked = {what: n for what, n in world.n_asked.items() if what != "case"}
    assert asked == {what: n for what, n in before[0].items() if what != "case"}
    found = rows(tmp_path, "select * from preferences order by position")
    assert [row["pair_id"] for row in found] == [
        row["pair_id"] for row in before[1]["preferences"]
    ]
    # The very numbers of the round before the kill.
    (kept,) = rows(tmp_path, "select * from preference_rounds")
    (told,) = before[1]["preference_rounds"]
    assert kept["judge"] == told["judge"]
    assert kept["trust"] == told["trust"]


# -- judges and authors of no use


@pytest.mark.slow
def test_a_judge_that_always_says_the_first_exports_nothing(tmp_path: Path):
    world = planted_world(mode="always_first")
    result, events = run_whole(
        tmp_path, world,
        optimization__evolution={"population_size": 4, "generations": 2},
        society__sao={"every": 1, "n_samples": 12, "n_personas": 40, "audit_items": 0},
    )  # fmt: skip
    reasons = rows(tmp_path, "select distinct dropped_by from preferences")
    assert reasons == [{"dropped_by": "aborted"}]
    for row in rows(tmp_path, "select * from preference_rounds"):
        assert row["n_kept"] == 0
        assert row["judge"]["agreement"] == 0.0
        assert "agrees with itself on 0 %" in row["note"]
    assert result.preferences.sentence == "Preferences changed nothing: no pair was kept."
    said = [event.learning for event in events if isinstance(event, GenerationFinished)]
    assert said == [(), ("preferences: 12 pairs made, 0 kept; 0 pairs in the dataset",)]


@pytest.mark.parametrize(
    ("mode", "breaks", "says"),
    [
        ("garbage", "prompt", "prompt: the answer is empty, or a refusal"),
        pytest.param("http500", "judgement", "judgement: ", marks=pytest.mark.slow),
        pytest.param("http500", "answer", "answer: http_500", marks=pytest.mark.slow),
    ],
)
def test_what_fails_leaves_an_error_and_no_row(tmp_path: Path, mode, breaks: str, says: str):
    # Answers of very different lengths: "the longer one" never stands in for a verdict.
    world = planted_world(mode=mode, breaks=frozenset({breaks}), n_words=(10, 250))
    sao = {"every": 1, "n_samples": 6, "audit_items": 0, "quality_filter": False}
    size = {"population_size": 4, "generations": 2}
    run_whole(tmp_path, world, society__sao=sao, optimization__evolution=size)
    assert rows(tmp_path, "select * from preferences") == []
    (row,) = rows(tmp_path, "select * from preference_rounds")
    errors = errors_of(tmp_path)
    assert all(why.startswith(says) for why in errors), errors
    n_each = 2 if breaks == "answer" else 1
    assert sum(errors.values()) == 6 * n_each
    assert row["dropped"]["incomplete"] == 6
    assert row["n_kept"] == 0

    # No text of its own either: it was asked for none.


@pytest.mark.parametrize(("wanted", "url", "case"), [(NO_LLM, False, None), (NO_PROMPT, True, {})])
def test_without_a_model_or_a_prompt_the_run_says_so_and_goes_on(
    tmp_path: Path, wanted: str, url: bool, case
):
    events: list[Any] = []
    with planted_server(planted_world()) as server:
        path = write_preferring(tmp_path, server.url, **SMALL)
        if not url:
            text = path.read_text(encoding="utf-8")
            path.write_text(text[: text.index("llm:")], encoding="utf-8")
        if case is not None:
            cases = [
                {"id": name, "input": {"x": "one", "y": "two"}, "expected": "1"} for name in "abcd"
            ]
            (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        run = begin(tmp_path, on_event=events.append)
        with run:
            assert not run.learners
            play_generation(run)
    told = [event.text for event in events if isinstance(event, ThinkingStopped)]
    assert told == [wanted]


# -- what preferences may touch


def test_from_what_a_judge_says_that_nobody_vouches_for_no_text_is_distilled(tmp_path: Path):
    world = planted_world(lies=True)
    with planted_server(world) as server:
        write_preferring(
            tmp_path, server.url, **SMALL, search_space={"parameters": {"system": PROMPTS}}
        )
        run = begin(tmp_path)
        with run:
            while run.should_continue():
                play_generation(run)
            result = collect_progress(run)
    assert rows(tmp_path, "select * from preferences")
    assert "distilled" not in {what for what, _ in world.asked}
    assert rows(tmp_path, "select * from candidates where origin = 'sao'") == []
    assert result.preferences is not None
    assert "joined the search space" not in result.preferences.sentence


def ranking_of(run: Run, space: Any) -> str:
    """Return the ranking by a surrogate of a space, of candidates that lie in the plain one."""
    from convergence_core.search.recommend import recommend

    members = {
        name: member
        for name, member in run.state.search.archive.members.items()
        if "three short steps" not in str(member.candidate.params["system"])
    }
    search = replace(run.state.search, archive=Archive(members))
    rng = np.random.default_rng(0)
    found = recommend(search, rng=rng, surrogate=SpaceModel(space=space))
    assert found is not None
    return canonical_json([[r.candidate_id, r.mean, r.low, r.high] for r in found.ranking])


@pytest.mark.slow
def test_a_text_gains_distilled_variants_that_are_tried_like_any_other(tmp_path: Path):
    world = planted_world()
    parameters = {
        "temperature": {"type": "float", "min": 0.0, "max": 1.0, "default": 0.2},
        "system": PROMPTS,
    }
    with planted_server(world) as server:
        # Answers for the fifty items that a verdict on the judge takes, in the first generation.
        size = {"population_size": 12, "generations": 3}
        write_preferring(
            tmp_path, server.url, search_space={"parameters": parameters},
            **{**SMALL, "optimization__evolution": size},
        )  # fmt: skip
        run = begin(tmp_path)
        with run:
            play_generation(run)
            play_generation(run)
            names = run.loaded.space.parameters["system"]
            assert names.value_at(2) == world.distilled
            # The ranking of what was asked is that of the space before it was widened.
            plain = load(tmp_path / "optimization.yaml").space
            assert plain.parameters["system"].n_values == 2
            before = ranking_of(run, plain)
            assert before == ranking_of(run, run.loaded.space)
        asked = rows(tmp_path, "select candidate_id, origin, params_json from candidates")
        new = [row for row in asked if world.distilled in row["params_json"]]
        assert any(row["origin"] == "sao" for row in new)
        known = {row["candidate_id"] for row in new}
        cells = rows(tmp_path, "select candidate_id from evaluations")
        assert any(row["candidate_id"] in known for row in cells)
        # A resumed run searches the same space.
        run = go_on(tmp_path)
        with run:
            assert run.loaded.space.parameters["system"].value_at(2) == world.distilled
            while run.should_continue():
                play_generation(run)
            result = collect_progress(run)
    assert result.preferences is not None
    assert result.preferences.n_variants >= 1
    for what, shown in world.asked:
        if what == "distilled":
            assert "[[BEGIN BETTER" in shown


# -- rounds alone
