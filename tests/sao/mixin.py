"""The preference mixin, over a planted server."""

import asyncio
from typing import Any

from convergence.plugins.learning.sao import SAOConfig, SAOMixin, SyntheticDataset
from convergence_core.config.evaluation import LlmConfig
from tasks.providers import make_llm
from tasks.secrets.redaction import Secrets
from tests.support.planted_server import PlantedWorld, planted_server


def items(n: int) -> list[tuple[str, str, str]]:
    """Return tasks with a right and a wrong answer, which ``case_truth`` knows; wrong ones vary in length."""
    return [
        (
            f"Case {i}: what is the code?",
            f"The code is {7 * i}.",
            f"No{' idea at all' * (i % 5)}, not that of {i}.",
        )
        for i in range(n)
    ]


def write(
    world: PlantedWorld,
    n_calls: int = 1,
    n_samples: int = 8,
    n_grounded: int = 60,
    **settings: Any,
) -> tuple[SAOMixin, list[SyntheticDataset]]:
    """Return the mixin after some calls, and what each has brought."""

    async def go(url: str) -> tuple[SAOMixin, list[SyntheticDataset]]:
        llm = make_llm(LlmConfig(model="m", endpoint=url, timeout_seconds=5), Secrets())
        try:
            sao = SAOMixin(
                llm,
                SAOConfig(model_name="m", **settings),
                task="Answers questions of citizens.",
                grounded=items(n_grounded),
            )
            found = [await sao.generate_synthetic_dataset(n_samples) for _ in range(n_calls)]
        finally:
            await llm.aclose()
        return sao, found

    with planted_server(world) as server:
        return asyncio.run(go(server.url))
