"""Runs that prefer, without Prefect: a chat model with a known best temperature and prompt."""

import json
import re
from pathlib import Path
from typing import Any

from tasks.run.run import Run
from tasks.run.sao_rounds import sao_of
from tasks.sao.learner import SaoLearner
from tests.support.configuration_files import write_configuration
from tests.support.planted_server import PlantedWorld

BEST = 0.4
_CASE = re.compile(r"^Case (\d+): what is the code\?$")


def case_truth(prompt: str) -> str | None:
    """Return the right answer to a test case; ``None``: it is none."""
    found = _CASE.match(prompt.strip())
    return None if found is None else f"The code is {int(found[1]) * 7}."


def answers_of(body: dict[str, Any]) -> str | None:
    """Answer a test case: right if temperature and system text are good enough for it."""
    prompt = str(body["messages"][-1]["content"])
    found = _CASE.match(prompt.strip())
    if found is None:
        return None
    n = int(found[1])
    system = str(body["messages"][0]["content"]) if len(body["messages"]) > 1 else ""
    hardness = (n * 37 % 100) / 100
    skill = 1.0 - 1.5 * abs(float(body.get("temperature", 1.0)) - BEST) + 0.2 * ("steps" in system)
    if skill > hardness:
        return case_truth(prompt)
    # Each candidate errs in words of its own: one case makes several items for an audit.
    return f"I do not know that code ({_setting(body)})."


def _setting(body: dict[str, Any]) -> str:
    return f"{body.get('temperature', 1.0):.3f}, {body.get('top_p', 1.0):.3f}"


def quality_of(body: dict[str, Any]) -> float:
    """Return the quality of an author's answers, which rises with its skill."""
    return 2.0 - 4.0 * abs(float(body.get("temperature", 1.0)) - BEST)


class World(PlantedWorld):
    """Answers test cases by skill; ``truth`` tells the judge alone."""

    def _reply(self, body: dict[str, Any], shown: str) -> Any:
        told = answers_of(body)
        if told is None:
            return super()._reply(body, shown)
        self._count("case", shown)
        from tests.support.http_server import chat_answer

        return chat_answer(told)


def planted_world(**more: Any) -> World:
    return World(**{"quality": quality_of, "truth": case_truth, "spread": 0.4, **more})


def write_preferring(
    folder: Path, url: str | None, *, n_cases: int = 16, **overrides: Any
) -> Path:
    """Write a project whose target and judge are at a URL; keys by dotted path, ``__`` for dots."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = [
        {"id": f"c{n:02d}", "input": f"Case {n}: what is the code?",
         "expected": f"The code is {n * 7}."}
        for n in range(n_cases)
    ]  # fmt: skip
    (folder / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    tree: dict[str, Any] = {
        "api": {
            "name": "codes", "kind": "openai", "endpoint": url or "http://127.0.0.1:9",
            "description": "Answers questions of citizens about codes.",
            "request": {"options": {"model": "system"}},
        },
        "search_space": {
            "parameters": {
                "temperature": {"type": "float", "min": 0.0, "max": 1.5, "default": 1.2},
                "top_p": {"type": "float", "min": 0.5, "max": 1.0, "default": 0.9},
            }
        },
        "evaluation": {
            "test_cases": {"path": "cases.json", "holdout": 0.25},
            "metrics": {"exact_match": {"weight": 1}},
        },
        "optimization": {
            "seed": 3,
            "evolution": {"population_size": 6, "generations": 5},
            "execution": {
                "parallel_workers": 8, "max_retries": 0, "early_stopping": {"enabled": False},
            },
        },
        "society": {
            "enabled": True,
            "learning": {"rlp_enabled": False, "sao_enabled": True},
            "sao": {"every": 2, "n_samples": 8, "n_personas": 24, "audit_items": 60},
        },
    }  # fmt: skip
    if url is not None:
        tree["llm"] = {"model": "judge", "endpoint": url, "timeout_seconds": 5,
                       "parallel_workers": 8}  # fmt: skip
    return write_configuration(folder, tree, overrides)


def learner_of(run: Run) -> SaoLearner:
    """SAO of a run in which it is on."""
    found = sao_of(run)
    assert found is not None
    return found
