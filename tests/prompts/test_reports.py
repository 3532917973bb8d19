"""What the report of a run tells of its written prompts."""

import asyncio
from pathlib import Path

import pytest

from convergence import run_optimization_sync
from convergence_core.prompts.report import FamilyEdge, PromptReport
from tasks.report.prompts_section import edit_lines, prompt_lines
from tests.support.stepped_runs import begin, play
from tests.support.writing_runs import PARENT, write_project


def test_the_report_tells_the_family_and_the_winner_is_a_file(tmp_path):
    formats = {"formats": ["json", "markdown", "html"]}
    write_project(tmp_path, None, output=formats)
    result = play(begin(tmp_path))
    report = result.prompts
    assert report is not None
    assert report.family[0].parent == PARENT
    assert report.family[-1].text == result.best.params["system"]
    for one, two in zip(report.family, report.family[1:], strict=False):
        assert one.text_id == two.parent_id
    folder = tmp_path / "results" / result.label
    text = (folder / "report.md").read_text()
    assert "Prompt edits" in text
    assert "Search minus held-out score" in text
    assert "Rules wrote these prompts" in text
    assert "Prompt edits" in (folder / "report.html").read_text()
    if result.winner.params["system"] != PARENT:
        assert (folder / "prompts/system.txt").read_text() == result.winner.params["system"]
        assert (folder / "prompts/system.given.txt").read_text() == PARENT


def edge(**changed: object) -> FamilyEdge:
    settings: dict[str, object] = {
        "parameter": "system", "generation": 2, "operator": "reflect", "category": "wrong",
        "parent_id": "a", "other_id": None, "text_id": "b", "parent": "A", "text": "B",
        "diagnosis": "", "failures": ("c01", "c02"), "n_shared": 24, "effect": 0.25,
        "effect_se": 0.05, "fixed": 7, "broken": 1, **changed,
    }  # fmt: skip
    return FamilyEdge(**settings)  # type: ignore[arg-type]  # as its fields are


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {},
            "reflect before generation 2, shown 2 cases (failures: wrong): +0.250 [+0.150, +0.350] "
            "(95 % interval) on 24 search cases, 7 better, 1 worse",
        ),
        (
            {"operator": "examples", "category": "none", "failures": (), "n_shared": 1,
             "effect": 0.0, "effect_se": None, "fixed": 0, "broken": 0},
            "examples before generation 2, shown no case: no case changed on 1 search case, 0 better, "
            "0 worse",
        ),
        (
            {"n_shared": 0, "effect": None, "effect_se": None, "failures": ("c01",)},
            "reflect before generation 2, shown 1 case (failures: wrong): no search case shared "
            "with its parent",
        ),
    ],
)  # fmt: skip
def test_a_line_tells_an_edit_with_its_interval_and_what_it_rests_on(changed, line):
    report = PromptReport(
        writers=("rules",), n_written=2, n_kept=2, family=(edge(), edge(**changed))
    )
    assert edit_lines(report)[1] == f"2. system: {line}"
    assert edit_lines(PromptReport(writers=("rules",), n_written=1, n_kept=1)) == ()


@pytest.mark.parametrize(
    ("writer", "is_offline", "by", "hint"),
    [
        ("m", False, "m", None),
        ("m", True, "the mock for m", "without `--offline`"),
        ("rules", True, "rules", "`llm`, `prompts.writer`"),
        ("rules", False, "rules", "`llm`, `prompts.writer`"),
    ],
)
def test_who_wrote_is_said_and_what_would_bring_better_texts(writer, is_offline, by, hint):
    report = PromptReport(writers=(writer,), n_written=1, n_kept=1, cost_usd=0.0)
    lines = prompt_lines(report, is_offline=is_offline)
    assert lines[0] == f"Written by: {by}; cost of writing: $0.00."
    said = f"Rules wrote these prompts; a model writes better ones ({hint})."
    assert lines[1:] == ([] if hint is None else [said])


async def artifact(key: str) -> str:
    """Return the newest artifact of a key."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    async with get_client() as client:
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[key]))
        found = await client.read_artifacts(artifact_filter=wanted)
    return str(max(found, key=lambda one: str(one.created)).data)


@pytest.mark.prefect
@pytest.mark.slow
def test_the_family_is_an_artifact_that_the_report_page_links_to(tmp_path: Path):
    config = write_project(tmp_path, None, storage={"path": str(tmp_path / "data")})
    result = run_optimization_sync(config).result
    assert result.prompts is not None
    shown = asyncio.run(artifact("visitors-prompts"))
    assert result.prompts.sentence in shown
    for one in result.prompts.family:
        assert f"{one.parameter}: {one.operator}" in shown
    for title in (
        "operator",
        "failures of the parent",
        "effect, 95 % interval",
        "better",
        "worse",
    ):
        assert f"| {title} |" in shown
    page = asyncio.run(artifact("visitors-report-page"))
    assert "[Prompt edits](/artifacts/key/visitors-prompts)" in page
