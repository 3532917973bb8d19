"""Projects with an Agno agent as target, and its scripted model."""

import importlib.util
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from convergence.templates import plan_files
from tests.support.configuration_files import write_configuration
from tests.support.http_server import Answer, Request, chat_answer

AGENTS = '''
from pathlib import Path

from agno.agent import Agent

CARRIED_OUT = Path(__file__).with_name("carried-out.txt")


def look_up(article: str) -> str:
    """Return how many of an article are in stock."""
    return f"{len(article)} of {article} in stock"


def send_order(article: str) -> str:
    """Order an article."""
    with CARRIED_OUT.open("a") as file:
        file.write(article + "\\n")
    return "ordered"


def make(params, context):
    return Agent(model=context.model(), instructions=params["role"], tools=[look_up, send_order])
'''


def write_project(folder: Path, url: str, agents: str = AGENTS, **overrides: Any) -> Path:
    """Write a project whose agents call the model at ``url``; see ``write_configuration``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agents.py").write_text(agents, encoding="utf-8")
    cases = [
        {"id": f"c{n}", "input": f"stock of {'x' * n}?", "expected": str(n)} for n in range(1, 5)
    ]
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    tree: dict[str, Any] = {
        "api": {
            "name": "stock",
            "kind": "agno",
            "function": "agents.py:make",
            "endpoint": f"{url}/v1",
        },
        "search_space": {
            "parameters": {
                "model": {"type": "categorical", "choices": ["m"], "default": "m"},
                "role": {"type": "categorical", "choices": ["clerk", "cook"], "default": "clerk"},
            }
        },
        "evaluation": {
            "test_cases": {"path": "cases.json"},
            "metrics": {"right": {"type": "contains", "field": "content", "weight": 1}},
        },
        "optimization": {
            "seed": 5,
            "evolution": {"population_size": 2, "generations": 1, "elite_size": 1},
            "execution": {"parallel_workers": 4, "max_retries": 0},
        },
        "prices": {"m": {"input": 1.0, "output": 2.0}},
        "budget": {"max_usd": 1},
        "output": {"formats": ["json"]},
    }
    return write_configuration(folder, tree, overrides)


def call_of(name: str, call_id: str = "call_1", **arguments: Any) -> Answer:
    """Return an answer that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return chat_answer(None, model="m", finish_reason="tool_calls", tool_calls=[call])


def results_of(request: Request) -> list[str]:
    """Return the tool results in a request."""
    return [m["content"] for m in request.body["messages"] if m["role"] == "tool"]


def article_of(request: Request) -> str:
    """Return the article that a request's case asks about."""
    (asked,) = (m["content"] for m in request.body["messages"] if m["role"] == "user")
    return str(asked).removeprefix("stock of ").removesuffix("?")


def clerk(request: Request) -> Answer:
    """Look up an article and report the result."""
    results = results_of(request)
    if results:
        return chat_answer(f"There are {results[-1]}.", model="m")
    return call_of("look_up", article=article_of(request))


# -- templates of agents


def write_template(template: str, folder: Path, **api: Any) -> dict[str, Any]:
    """Write a template's files with other keys of ``api``; return the configuration."""
    for name, text in plan_files(template).items():
        (folder / name).write_text(text, encoding="utf-8")
    tree: dict[str, Any] = yaml.safe_load((folder / "optimization.yaml").read_text())
    tree["api"].update(api)
    return tree


def service_of(template: str, folder: Path) -> Any:
    """Return the simulated service that a template writes into a folder."""
    name = f"{template.removeprefix('agno-')}_service"
    (folder / f"{name}.py").write_text(plan_files(template)[f"{name}.py"])
    spec = importlib.util.spec_from_file_location(f"{name}_under_test", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.service


def asked(
    service: Any, method: str, path: str, headers: dict[str, str], data: bytes | None
) -> tuple[int, Any]:
    """Return a simulated service's status and JSON; ``None`` means an empty body."""
    request = urllib.request.Request(  # noqa: S310 - loopback
        service.url + path, method=method, headers=headers, data=data
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
            raw = answer.read()
            return answer.status, json.loads(raw) if raw else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
