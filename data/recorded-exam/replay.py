"""Replay an exam: the answer, its cost and its time as they were logged, no model asked.

`answers.jsonl` holds one line per run of the exam, a combination of model, prompting technique and
temperature, with one entry per problem in each of its lists. README.md tells where it comes from
and what the numbers mean.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

ANSWERS = Path(__file__).with_name("answers.jsonl")
TECHNIQUE = "chain_of_thought"
"""The technique of the models that were asked by one only."""

RunKey: TypeAlias = tuple[str, str, int]
"""Model, technique, temperature in tenths."""


@functools.cache
def runs() -> Mapping[RunKey, Mapping[str, Any]]:
    """Return every run of the exam."""
    rows = [json.loads(line) for line in ANSWERS.read_text(encoding="utf-8").splitlines()]
    return {(row["model"], row["technique"], round(row["temperature"] * 10)): row for row in rows}


def answer(case: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the logged answer to one problem, with its logged cost and latency.

    Args:
        case: `{"problem": number}`, from 1.
        params: `model`, `temperature`, rounded to the nearest recorded tenth, and `technique`,
            by default chain of thought.

    Raises:
        ValueError: no such run was recorded, or the exam has no such problem.
    """
    model, technique = params["model"], params.get("technique", TECHNIQUE)
    run = runs().get((model, technique, round(params["temperature"] * 10)))
    if run is None:
        raise ValueError(
            f"no run of model={model}, technique={technique}, "
            f"temperature={params['temperature']:g} was recorded"
        )
    place = case["problem"] - 1
    if not 0 <= place < len(run["answers"]):
        raise ValueError(
            f"`problem` must lie between 1 and {len(run['answers'])}, but got {place + 1}"
        )
    usd = (
        run["tokens_in"][place] * run["usd_per_million_tokens_in"]
        + run["tokens_out"][place] * run["usd_per_million_tokens_out"]
    ) / 1e6
    return {
        "result": run["answers"][place],
        # Not the envelope's own `cost_usd`: the ledger would book what nobody pays today.
        "metrics": {"cost_usd": usd, "latency_ms": 1000.0 * run["seconds"][place]},
    }


def logged(reply: Mapping[str, Any], metric: str) -> float:
    """Return the number of this metric that `answer` gave in its `metrics`."""
    return float(reply[metric])
