"""A recommended configuration in the forms of other tools."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from dotenv import dotenv_values

from convergence.__main__ import run
from convergence_core.errors import ConfigurationError
from tasks.exports.winner_forms import Winner, WinnerForm, winner_text
from tasks.mock.mock_server import MockServer
from tests.support.paid_runs import begin, play, write_project

MESSAGES = [
    {"role": "system", "content": "Be brief: 'yes' or \"no\"."},
    {"role": "user", "content": "{{question}}"},
]


def winner(
    *, provider: str = "openai", base_url: str = "https://api.openai.com/v1", **body: Any
) -> Winner:
    request = {
        "provider": provider, "base_url": base_url, "model": "gpt-4o-mini", "stream": False,
        "body": {"model": "gpt-4o-mini", "messages": MESSAGES, **body},
    }  # fmt: skip
    return Winner(
        system="Help desk",
        note="Better.",
        params={"model": "gpt-4o-mini"},
        request=request,
        key_env="MY_KEY",
    )


def of_params(**params: Any) -> Winner:
    return Winner(system="Help desk", note="Better.", params=params)


def test_a_dotenv_file_is_read_back_by_a_shell_word_for_word(tmp_path: Path):
    text = winner_text(of_params(model="m/1", temperature=0.5, top_k=3, on=True), WinnerForm.ENV)
    assert text == "# Better.\nMODEL=m/1\nTEMPERATURE=0.5\nTOP_K=3\nON=true\n"
    (tmp_path / ".env").write_text(
        winner_text(of_params(prompt="a $HOME `id` \n# x", n=1), WinnerForm.ENV)
    )
    script = 'set -a; . ./.env; printf "%s|%s" "$PROMPT" "$N"'
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "a $HOME `id` \n# x|1"


@pytest.mark.parametrize(
    "value",
    [
        "it's 5 USD",
        "$5 `id` $HOME",
        "a\\nb $5",
        "back\\slash\\",
        'say "hi"',
        "'q' \\n # x",
        "",
        " a ",
        "3.10",
        "two\n'lines'",
    ],
)
def test_quotes_and_backslashes_of_a_dotenv_file_reach_shells_and_python_unchanged(
    tmp_path: Path, value: str
):
    (tmp_path / ".env").write_text(winner_text(of_params(v=value), WinnerForm.ENV))
    script = '. ./.env; printf "%s|" "$V"'
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{value}|"
    assert dotenv_values(tmp_path / ".env") == {"V": value}


@pytest.mark.parametrize(
    "value", ["it's $5", "it's `id`", "${HOME}", "a ${X:-b} c", "two\r\nlines", "\\\\ $5", "$5\\"]
)
def test_a_value_that_shells_and_python_read_differently_is_refused_with_the_fix(value: str):
    with pytest.raises(ConfigurationError, match=r"read alike.*but got V\..*best_config\.json"):
        winner_text(of_params(v=value), WinnerForm.ENV)


def test_names_that_a_shell_cannot_tell_apart_are_refused():
    with pytest.raises(ConfigurationError, match="two are TOP_K"):
        winner_text(of_params(top_k=1, **{"top-k": 2}), WinnerForm.ENV)


def test_a_promptfoo_provider_asks_with_the_recommended_prompt():
    made = yaml.safe_load(winner_text(winner(temperature=0.4), WinnerForm.PROMPTFOO))
    assert json.loads(made["prompts"][0]) == MESSAGES
    assert made["providers"] == [
        {
            "id": "openai:chat:gpt-4o-mini",
            "label": "Help desk",
            "config": {
                "apiBaseUrl": "https://api.openai.com/v1", "apiKeyEnvar": "MY_KEY", "temperature": 0.4,
            },
        }
    ]  # fmt: skip
    azure = yaml.safe_load(winner_text(winner(provider="azure"), WinnerForm.PROMPTFOO))
    assert azure["providers"][0]["id"] == "azure:chat:gpt-4o-mini"


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (of_params(k=3), "needs a chat kind"),
        (winner(provider="local"), "needs a hosted model"),
        (winner(provider="anthropic"), "speaks OpenAI's chat"),
    ],
)
def test_systems_without_such_a_request_are_refused_with_what_they_have(made: Winner, rule: str):
    with pytest.raises(ConfigurationError, match=f"{rule}.*--format env"):
        winner_text(made, WinnerForm.PROMPTFOO)


@pytest.mark.slow
def test_the_command_writes_what_a_run_recommends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with MockServer() as server:
        size = {"optimization__evolution": {"population_size": 4, "generations": 2}}
        write_project(tmp_path, server.url, **size)
        found = play(begin(tmp_path))
    assert found.winner is not None
    monkeypatch.chdir(tmp_path)
    assert run(["export", "config", "--format", "promptfoo"]) == 0
    made = yaml.safe_load(capsys.readouterr().out)
    assert made["providers"][0]["id"] == f"openai:chat:{found.winner.params['model']}"
    assert json.loads(made["prompts"][0]) == [
        {"role": "system", "content": found.winner.params["prompt"]},
        {"role": "user", "content": "{{input}}"},
    ]
    assert run(["export", "config", "-o", ".env"]) == 0
    assert Path(".env").read_text().startswith("# ")
    assert f"Recommended by run {found.label}." in Path(".env").read_text()
    assert run(["export", "config", "--format", "toml"]) == 2
    assert "env, promptfoo" in capsys.readouterr().err
    Path("optimization.yaml").rename("elsewhere.yaml")
    assert run(["export", "config", "--format", "promptfoo", "--store", "convergence-data"]) == 2
    assert "--config" in capsys.readouterr().err
