"""The flow of the policy: its tasks, what it shows, its deployment."""

import asyncio
from pathlib import Path

import pytest

from tests.support.writing_runs import write_project

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


@pytest.mark.slow
def test_a_round_is_a_flow_and_isshown_artifact(tmp_path: Path):
    from flows.policy import policy

    config = write_project(
        tmp_path, None, prompts__policy__episodes=2, prompts__policy__n_cases=3,
        api__name="shown-visitors",
    )  # fmt: skip
    report = policy(str(config))
    assert report.n_episodes == 2
    shown = asyncio.run(shown_artifact("shown-visitors-policy"))
    assert report.gate.reason[1:] in shown
    for heading in ("Mean reward against evaluations", "Actions by category", "Refused texts"):
        assert heading in shown
