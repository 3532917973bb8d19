"""Headers and variables: which are needed, and that none stands in a URL."""

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from convergence_core.config import Configuration
from convergence_core.config.base import EnvName
from convergence_core.errors import ConfigurationError, EvaluationFault
from tasks.http.authentication import check_environment
from tasks.inputs.environment import Environment
from tasks.secrets.redaction import MASK, Redactor, Secrets, secret_names
from tests.support.configurations import http_api, loaded
from tests.support.http_server import Answer, LoopbackServer
from tests.support.http_targets import ask

JUDGE = {"model": "m", "endpoint": "http://127.0.0.1:1/v1", "api_key_env": "GENERAL_KEY"}
OWN = {"model": "m", "endpoint": "http://127.0.0.1:1/v1", "api_key_env": "OWN_KEY"}
METRICS = {
    "a": {"type": "llm_judge", "rubric": "Good?", "weight": 1},
    "b": {"type": "llm_judge", "rubric": "Good?", "weight": 1, "llm": OWN},
}


def full() -> Configuration:
    """A configuration that names a variable in every place that can."""
    return loaded(
        api=http_api(
            "http://127.0.0.1:1/",
            auth={"type": "basic", "username": "me", "password_env": "PASS"},
            request={"headers": {"X-Team": "${TEAM}"}},
        ),
        llm=JUDGE,
        evaluation__metrics=METRICS,
        storage={"journal": "${JOURNAL}"},
    ).configuration


def env_fields(model: type[BaseModel], seen: set[type[BaseModel]]) -> set[str]:
    """Return the fields that name a variable, in a section and those below it."""
    if model in seen:
        return set()
    seen.add(model)
    found: set[str] = set()
    for name, field in model.model_fields.items():
        pending: list[Any] = [field.annotation]
        while pending:
            kind = pending.pop()
            pending += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= env_fields(kind, seen)
            if kind == EnvName or name.endswith("_env"):
                found.add(f"{model.__name__}.{name}")
    return found


def test_no_section_names_a_variable_that_the_redactor_does_not_know_of():
    """A new field that names a secret has to be added to ``secret_names``, and here."""
    assert env_fields(Configuration, set()) == {
        "AgnoConfig.secrets",
        "AuthConfig.password_env",
        "AuthConfig.token_env",
        "LlmConfig.api_key_env",
    }
    names = {"PASS", "TEAM", "GENERAL_KEY", "OWN_KEY", "JOURNAL"}
    assert set(secret_names(full())) == names


def test_every_variable_must_be_set_that_of_the_journal_too():
    with pytest.raises(ConfigurationError) as caught:
        check_environment(full(), Secrets({}))
    key_to_problem = {problem.key: problem for problem in caught.value.problems}
    assert set(key_to_problem) == {
        "api.request.headers.X-Team",
        "api.auth.password_env",
        "llm.api_key_env",
        "evaluation.metrics.b.llm.api_key_env",
        "storage.journal",
    }
    told = key_to_problem["storage.journal"]
    assert "JOURNAL" in told.rule
    assert "export JOURNAL=" in told.fix


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:p%40ss%2Fword@host:5432/base",
        "postgresql://me@host/base?sslmode=require&password=p%40ss%2Fword",
    ],
)
def test_the_journals_url_and_its_password_are_redacted_as_written_and_decoded(url):
    redact = Redactor.from_configuration(full(), Secrets({"JOURNAL": url}))
    text = f"{url} | p%40ss%2Fword | p@ss/word"
    assert redact(text) == f"{MASK} | {MASK} | {MASK}"


def test_an_offline_run_needs_no_key_but_its_journal(monkeypatch):
    monkeypatch.delenv("JOURNAL", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        Environment.of(full(), mock_url="http://127.0.0.1:1")
    assert [problem.key for problem in caught.value.problems] == ["storage.journal"]
    monkeypatch.setenv("JOURNAL", "postgresql://me:offline-pass-1@host/base")
    world = Environment.of(full(), mock_url="http://127.0.0.1:1")
    assert world.redactor(full())("offline-pass-1") == MASK


@pytest.mark.parametrize("value", ["kanarie\n-0123456789", "kanarié-0123456789"])
def test_a_key_that_no_header_can_carry_is_a_fault_that_does_not_show_it(value):
    with (
        LoopbackServer(lambda _: Answer({"result": 1})) as server,
        pytest.raises(EvaluationFault, match="Check T") as caught,
    ):
        ask(http_api(server.url, auth={"type": "bearer", "token_env": "T"}), environ={"T": value})
    assert caught.value.error_type == "bad_header"
    assert "0123456789" not in f"{caught.value!r} {caught.value.details}"


LEAKY = "https://me:hunter2-0123@host.example/v1"


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("api.endpoint", {"api": http_api(LEAKY)}),
        (
            "api.models.a.endpoint",
            {
                "api": {"name": "s", "kind": "http", "models": {"a": {"endpoint": LEAKY}}},
                "search_space__parameters": {"model": {"type": "categorical", "choices": ["a"]}},
            },
        ),
        ("llm.endpoint", {"llm": JUDGE | {"endpoint": LEAKY}, "evaluation__metrics": METRICS}),
        (
            "evaluation.metrics.b.llm.endpoint",
            {
                "llm": JUDGE,
                "evaluation__metrics": METRICS | {
                    "b": METRICS["b"] | {"llm": OWN | {"endpoint": LEAKY}}
                },
            },
        ),
    ],
)  # fmt: skip
def test_a_url_with_credentials_is_refused_wherever_it_stands_and_not_shown(key, sections):
    with pytest.raises(ConfigurationError) as caught:
        loaded(**sections)
    assert key in [problem.key for problem in caught.value.problems]
    assert "hunter2" not in str(caught.value)
