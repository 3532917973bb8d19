"""The flow of games: its tasks, what it shows, its deployment."""

from pathlib import Path

import pytest

from tests.games.game_worlds import EVERY_2, KUHN, Gamer, write_games

pytestmark = pytest.mark.prefect


async def shown_artifact(key: str) -> str:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
    from prefect.client.schemas.sorting import ArtifactSort

    async with get_client() as client:
        found = await client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])),
            sort=ArtifactSort.CREATED_DESC,
        )
    return str(found[0].data)


def test_a_round_is_a_flow_and_is_shown(tmp_path: Path):
    import asyncio

    from flows.games import games

    with Gamer().server() as server:
        config = write_games(
            tmp_path, server.url, KUHN, society__games__plays=3, api__name="shown-games"
        )
        report = games(str(config))
    assert report.n_plays == 3
    shown = asyncio.run(shown_artifact("shown-games-games"))
    for text in (
        "Round 1 of shown-games: 3 plays of 1 game",
        "kuhn-poker was included by a coin of 0.50 and given 3 plays",
        "P(keep)",
    ):
        assert text in shown


@pytest.mark.slow
def test_a_round_within_an_optimization_is_its_subflow(tmp_path: Path):
    import asyncio

    from flows.optimize import optimize

    with Gamer().server() as server:
        config = write_games(
            tmp_path, server.url, KUHN, **EVERY_2 | {"society__games__every": 1, "api__name": "subflow-games",
            "optimization__evolution": {"population_size": 3, "generations": 2}},
        )  # fmt: skip
        result = optimize(str(config))
    assert result.status == "done"
    assert asyncio.run(n_subflows("games before generation 01")) == 1
    assert "Round 1 of subflow-games" in asyncio.run(shown_artifact("subflow-games-games"))


async def n_subflows(name: str) -> int:
    """Return how many flow runs have a name and a parent, and have ended well."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

    async with get_client() as client:
        found = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name]))
        )
    return sum(
        one.parent_task_run_id is not None and one.state is not None and one.state.is_completed()
        for one in found
    )
