"""Who writes changed prompts: rules, or the model of a configuration."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from convergence_core.config import Configuration
from convergence_core.errors import PolicyRequestError
from convergence_core.judges.text_features import HASHED_NGRAMS
from tasks.inputs.environment import Environment
from tasks.inputs.loader import load
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.policy.prompt_mutator import PromptMutator
from tasks.policy.records import MutatedPrompt, PromptFailure
from tests.support.writing_runs import write_project

PROMPT = "Say what the visitor of {place} thought of it, please."


@pytest.fixture(scope="module")
def mock_url() -> Iterator[str]:
    with MockServer(MockOptions()) as server:
        yield server.url


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return load(write_project(tmp_path, "https://models.invalid")).configuration


def mutated(mutator: PromptMutator, action: str, **more: object) -> MutatedPrompt:
    async def ask() -> MutatedPrompt:
        try:
            return await mutator.mutate(PROMPT, action, **more)  # type: ignore[arg-type]
        finally:
            await mutator.aclose()

    return asyncio.run(ask())


def test_the_model_of_a_configuration_writes(configuration: Configuration, mock_url: str):
    world = Environment.of(configuration, mock_url=mock_url)
    found = mutated(PromptMutator.of(configuration, world), "constraint-addition")
    assert (found.verdict, found.writer) == ("kept", "scribe")
    assert found.prompt is not None
    assert found.prompt != PROMPT
    assert "{place}" in found.prompt
    assert found.cost_usd is not None
    assert found.cost_usd > 0


def test_a_model_that_cannot_be_reached_leaves_no_text_and_says_why(tmp_path: Path):
    path = write_project(tmp_path, "http://127.0.0.1:9")
    configuration = load(path).configuration
    found = mutated(PromptMutator.of(configuration, Environment.of(configuration)), "expansion")
    assert (found.prompt, found.verdict) == (None, "no_answer")
    assert found.reason


def test_prompts_are_embedded_by_hashed_ngrams_and_by_nothing_else():
    assert PromptMutator.embedding(PROMPT, HASHED_NGRAMS, 64).shape == (64,)
    with pytest.raises(PolicyRequestError, match="must be given, by the model other"):
        PromptMutator.embedding(PROMPT, "other", 1536)


def test_secrets_of_failures_do_not_reach_the_writer(monkeypatch: pytest.MonkeyPatch):
    key = "sk-proj-abcdefghijklmnop1234567890"
    failure = PromptFailure(input=f"Use {key}", answer=key, expected=f"no {key}", reason=key)
    found = mutated(PromptMutator(), "reflect", failures=[failure], category="format")
    assert key not in str(found)
    monkeypatch.setattr("tests.policy.test_prompt_mutator.PROMPT", "Answer.")
    assert mutated(PromptMutator(), "stop").prompt == "Answer."
