"""Thoughts through the real flow: killed between commit and reveal, shown as artifacts."""

from pathlib import Path

import pytest

from tests.support.optimizations import kill_once, ledger, run_command, start_command
from tests.support.thinking_server import ThinkingWorld, thinking_server
from tests.support.thoughtful_runs import rows, scored_thoughts, truth, write_thoughtful

SIZE = {"optimization__evolution": {"population_size": 6, "generations": 3}}
FIRST = 6 * 9
"""Calls of the first generation."""


def kill_amid_evaluations(folder: Path, world: ThinkingWorld) -> None:
    """Kill -9 once the second generation's thought is bought and it is being evaluated."""
    process = start_command("optimize", "--quiet", cwd=folder, TARGET_DELAY_S="0.05")
    kill_once(process, lambda: len(ledger(folder)) >= FIRST + 8)
    assert world.n_asked["thought"] > 0


def check_artifacts() -> None:
    """Prefect shows the thoughts of each generation; artifacts of one key form a history."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    with get_client(sync_client=True) as client:
        found = client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=["known-thoughts"]))
        )
    assert len(found) >= 2
    newest = str(max(found, key=lambda artifact: str(artifact.created)).data)
    assert "evidence" in newest or "helped" in newest
    for title in ("generation", "e-value"):
        assert f"| {title} |" in newest, title


@pytest.mark.slow
@pytest.mark.prefect
def test_a_run_killed_between_commit_and_reveal_buys_and_scores_no_thought_twice(tmp_path: Path):
    found, asked = {}, {}
    for name in ("unbroken", "killed"):
        folder, world = tmp_path / name, ThinkingWorld(truth, "good", {"x": 0.71, "kind": "b"})
        with thinking_server(world) as server:
            write_thoughtful(folder, server.url, **SIZE)
            if name == "killed":
                kill_amid_evaluations(folder, world)
                run_command("resume", "--quiet", cwd=folder)
            else:
                run_command("optimize", "--quiet", cwd=folder)
        found[name], asked[name] = scored_thoughts(folder), world.n_asked
    # Nothing was in flight to the thinker when it was killed: not one call more, not one row more.
    assert asked["killed"] == asked["unbroken"]
    assert found["killed"] == found["unbroken"]
    # The report tells the thought, what it foresaw, and the one sentence.
    printed = run_command("report", cwd=tmp_path / "unbroken")
    assert "Hypotheses" in printed
    assert "Best: " in printed
    assert "1 proposed setting evaluated" in printed
    folder = tmp_path / "killed"
    late = rows(
        folder,
        "select count(*) as n from predictions p join (select generation, min(started_at) as first "
        "from evaluations group by generation) e using (generation) where committed_at >= first",
    )
    assert late == [{"n": 0}]
    scored = rows(
        folder,
        "select count(*) as n, count(distinct (generation, thought_id, subject)) as d "
        "from predictions",
    )
    assert scored[0]["n"] == scored[0]["d"] > 0
    check_artifacts()
