"""The flow of games: its tasks, what it shows, its deployment."""

from pathlib import Path

import pytest

from tests.games.game_worlds import KUHN, Gamer, write_games

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
        "kuhn-poker was given 3 plays",
        "P(keep)",
    ):
        assert text in shown
