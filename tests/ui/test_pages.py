"""What each page shows of a run that has ended."""

import csv
import io
import json
from dataclasses import replace

import pytest

from convergence_core.result import RunResult, number_text, verdict_of
from tasks.pages.source import PageSource
from tasks.report.answers import cases_of
from tasks.report.blocks import Heading
from tasks.report.document import document
from tasks.report.phrases import ROLES
from tasks.run.opener import loaded_of
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.page_viewer import Viewer, actions, column, sections, store_of

_OF_OTHER_PAGES = ("Answers", "Configurations evaluated")


@pytest.fixture(scope="session")
def result(written) -> RunResult:
    (record,) = ParquetStore(store_of(written)).runs()
    return RunResult.from_json(record.summary_json or "")


@pytest.fixture
def run(result: RunResult) -> str:
    return f"runs/{result.run_id}"


def test_the_overview_names_systems_runs_and_what_needs_a_person(viewer: Viewer):
    page = viewer.page("overview")
    assert [*sections(page)] == ["", "Systems", "Runs"]
    assert sections(page)[""].startswith("1 run of 1 system in ")
    assert column(page, "system", of="Systems") == ["known"]
    assert column(page, "champion", of="Systems") == ["none yet: the defaults are in production"]
    assert column(page, "on", of="Runs") == ["held-out cases"]
    assert column(page, "status", of="Runs") == ["done"]
    assert column(page, "generations", of="Runs") == ["4"]


def test_a_run_is_summed_up_in_numbers(viewer: Viewer, result: RunResult, run: str):
    page = viewer.page(run)
    assert page["title"] == result.label
    (figures,) = (block for block in page["blocks"][:3] if block["is"] == "Grid")
    winner = result.winner
    assert winner is not None
    role, estimate = winner.headline()
    assert role == "holdout"
    assert figures["rows"][0] == [
        number_text.interval(estimate.mean, estimate.low, estimate.high),
        f"{result.n_calls:,} calls",
        f"{result.n_candidates:,}",
        f"{result.n_evaluations:,}",
    ]
    assert figures["columns"][2:] == [
        "configurations in 4 generations, 12 test cases", "evaluations, 0 failed, 0 missing",
    ]  # fmt: skip
    assert actions(page) == []
    assert "Progress" not in sections(page)


def test_one_run_can_be_asked_for_by_its_name(viewer: Viewer, result: RunResult):
    rows = viewer.page("runs")["runs"]
    assert viewer.page("runs", of=rows[0]["run_id"])["runs"] == rows[:1]
    assert rows[0]["label"] == result.label
    assert viewer.get("runs", of="none").status_code == 404


def test_a_run_of_a_version_with_other_keys_can_be_read(written):
    """Its keys that this version lacks are left out wherever its configuration is read."""
    store = ParquetStore(store_of(written))
    (record,) = store.runs()
    tree = json.loads(record.config_json)
    tree["society"] = {**(tree["society"] or {}), "gone": 1, "rlp": {"clip_epsilon": 0.2}}
    older = replace(record, config_json=json.dumps(tree))
    assert cases_of(older) == cases_of(record) != (None, "")
    assert loaded_of(older).configuration.api == loaded_of(record).configuration.api
    source = PageSource(store)
    assert source.cases(older)
    assert source.configuration(older).api.name == "known"


def test_files_that_one_run_lacked_are_read_again_for_the_next(project):
    store = ParquetStore(store_of(project))
    (record,) = store.runs()
    record = replace(record, base_dir=str(project))
    source, file = PageSource(store), project / "cases.json"
    content = file.read_bytes()
    file.unlink()
    assert not source.cases(record)
    file.write_bytes(content)
    assert len(source.cases(replace(record, run_id="later"))) == 12


def test_the_sections_of_a_run_are_those_of_its_report(
    viewer: Viewer, result: RunResult, run: str
):
    page = viewer.page(run)
    headings = [*sections(page)][1:]
    blocks = page["blocks"]
    report = [
        block.text for block in document(result) if isinstance(block, Heading) and block.level == 2
    ]
    assert headings == [one for one in report if one not in {*_OF_OTHER_PAGES}]
    assert sections(page)["Result"].startswith(verdict_of(result).sentence.replace("`", ""))
    plots = {plot["name"]: plot for one in blocks if one["is"] == "Plots" for plot in one["plots"]}
    assert {"estimates", "learning_curve", "shares", "effect0", "effect1"} <= set(plots)
    line = plots["learning_curve"]["layers"][1]["points"]
    assert [point["y"] for point in line] == [point.best_mean for point in result.curve]


def test_the_leaderboard_has_every_candidate_with_the_reports_numbers(
    viewer: Viewer, result: RunResult, run: str
):
    page = viewer.page(f"{run}/leaderboard")
    known = {row.candidate_id: row for row in result.leaderboard}
    assert len(page["rows"]) == result.n_candidates
    for row in page["rows"]:
        expected = known[row["candidate_id"]]
        assert (row["rank"], row["mean"], row["low"]) == (
            expected.rank,
            expected.mean,
            expected.low,
        )
        assert (row["n_cells"], row["params"]) == (expected.n_cells, dict(expected.params))
        assert row["name"] == expected.label
    assert page["rows"][0]["tags"] == ["found"]  # three held-out cases prove nothing
    assert [one["name"] for one in page["parameters"]] == ["kind", "x"]
    assert page["parameters"][0]["values"] == ["a", "b", "c"]


def test_the_allocation_counts_every_evaluation_of_the_search(viewer: Viewer, run: str):
    page = viewer.page(f"{run}/allocation")
    assert sum(page["n"]) == viewer.page("sql", q="select count(*) from evaluations where role = "
                                         "'search' and status <> 'skipped'")["rows"][0][0]  # fmt: skip
    assert len(page["candidate"]) == len(page["case"]) == len(page["n"]) == len(page["reward"])
    assert max(page["case"]) == len(page["cases"]) - 1
    assert max(page["candidate"]) < len(page["candidates"])


def test_the_matrix_is_paged_both_ways(viewer: Viewer, run: str):
    whole = viewer.page(f"{run}/answers", n_cases=50, n_candidates=50)
    assert (whole["n_cases"], len(whole["cases"])) == (12, 12)
    part = viewer.page(f"{run}/answers", case_from=3, n_cases=2, candidate_from=1, n_candidates=3)
    assert [case["case_id"] for case in part["cases"]] == ["c03", "c04"]
    assert part["cells"] == [row[1:4] for row in whole["cells"][3:5]]
    assert part["cases"][0]["title"] == '{"n": 3}'


@pytest.mark.parametrize("order", ["failed", "worst", "disagreement"])
def test_the_matrix_can_be_filtered(viewer: Viewer, run: str, order: str):
    page = viewer.page(f"{run}/answers", filter=order)
    keys = {"failed": "n_failed", "worst": "mean", "disagreement": "spread"}
    values = [case[keys[order]] for case in page["cases"]]
    assert values == sorted(values, reverse=order == "disagreement")
    assert len(values) == (0 if order == "failed" else 12)


def test_one_cell_shows_all_that_is_known_of_it(viewer: Viewer, result: RunResult, run: str):
    assert result.best is not None
    page = viewer.page(f"{run}/cell", candidate=result.best.candidate_id, case="c01")
    assert (page["case_id"], page["role"], page["kind"]) == ("c01", "fresh", "repeated")
    assert page["input"] == '{"n": 1}'
    assert len(page["repeats"]) == 2
    for repeat in page["repeats"]:
        assert repeat["answer"] == "0.99"
        assert '"n": 1' in repeat["prompt"]
        assert {one["name"] for one in repeat["metrics"]} == {"worth", "latency_ms"}
        assert repeat["attempts"][0]["state"] == "done"
        assert (repeat["prompt_url"], repeat["error"]) == (None, None)
    text = viewer.get(f"{run}/text", eval=page["repeats"][0]["eval_id"], kind="answer")
    assert (text.text, text.headers["content-type"]) == ("0.99", "text/plain; charset=utf-8")


def test_answers_side_by_side_show_what_each_took_and_cost(
    viewer: Viewer, written, result: RunResult
):
    assert result.best is not None
    assert result.baseline is not None
    shown = {"a": result.baseline.candidate_id, "b": result.best.candidate_id}
    page = viewer.page("compare", **{s: f"{result.run_id}:{c}" for s, c in shown.items()})
    kinds: dict[str, str] = {str(role): kind for role, kind in ROLES.items()}
    stored = {
        (row["candidate_id"], row["case_id"], kinds[str(row["role"])]): row["ms"]
        for row in ParquetStore(store_of(written)).rows(
            "SELECT candidate_id, case_id, role, avg(latency_ms) AS ms FROM evaluations GROUP BY ALL"
        )
    }
    assert page["cases"]
    for case in page["cases"]:
        for side, candidate in shown.items():
            latency_ms = stored[candidate, case["case_id"], case["kind"]]
            assert case[side]["latency_ms"] == pytest.approx(latency_ms)
            assert case[side]["cost_usd"] is None, "a function has no price"


def test_each_documented_question_is_answered(viewer: Viewer):
    page = viewer.page("sql/questions")
    assert len(page["questions"]) == 10
    assert "posterior_mean" in page["tables"]["leaderboard"]
    for question in page["questions"]:
        found = viewer.page("sql", q=question["sql"])
        assert found["n_rows"] == len(found["rows"])


def test_rows_are_limited_and_come_as_csv_too(viewer: Viewer, run: str):
    page = viewer.page("sql", q="select * from range(20000)", limit=100)
    assert (len(page["rows"]), page["cut"]) == (100, True)
    answer = viewer.get("sql.csv", q="select '=1+1' as \"=text\", 2 as n")
    assert list(csv.reader(io.StringIO(answer.text))) == [["'=text", "n"], ["'=1+1", "2"]]
    assert 'filename="query.csv"' in answer.headers["content-disposition"]
    rows = list(csv.reader(io.StringIO(viewer.get(f"{run}/table.csv", of="leaderboard").text)))
    assert rows[0][:2] == ["run_id", "rank"]


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("runs/nobody", {}, 404),
        ("runs/known/cell", {"candidate": "x", "case": "y"}, 404),
        ("runs/known/cell", {}, 422),
        ("runs/known/answers", {"filter": "none"}, 400),
        ("runs/known/answers", {"n_cases": "1e9"}, 422),
        ("runs/known/answers", {"n_cases": "201"}, 422),
        ("runs/known/answers", {"search": "x" * 501}, 400),
        ("runs/known/prompts", {"parameter": "none"}, 400),
        ("runs/known/table.csv", {"of": "runs; drop"}, 400),
        ("runs/known/text", {"eval": "x", "kind": "secret"}, 404),
        ("production/nobody", {}, 404),
        ("nothing", {}, 404),
        ("sql", {"q": "selec 1"}, 400),
    ],
)
def test_what_is_not_there_is_refused_with_a_sentence(
    viewer: Viewer, result: RunResult, path: str, query: dict[str, str], status: int
):
    answer = viewer.get(path.replace("runs/known", f"runs/{result.label}"), **query)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]
