"""Joint world: two texts and four knobs, tuned together or one after the other.

The two texts are read as one prompt of the planted world; a knob's best value depends on what the texts say:

    q(texts, knobs, case) = .7 prompt quality(texts, case) + temperature + context + model + style

``temperature`` is best at .8 with ``steps`` and ``check`` and at .3 without; ``context`` at 8 passages with ``facts``
and at 3 without; the large model earns its place by ``terms``, the small one by ``example``; ``style`` is best plain
where ``format`` asks for the name alone, else a list. The default knobs are good ones for texts without properties. The
optimum is found by trying all 1,024 sets of properties with their best knobs, which do not depend on each other.

Arms, of equal evaluations: ``together``, one run over all six; ``prompt first``, half of them on the texts with
default knobs, then half on the knobs with the best texts; ``knobs first``, the other way round.
"""

import hashlib
import itertools
import tempfile
from collections.abc import Mapping, Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.prompts.ours import N_NEW, writer_endpoint
from benchmarks.prompts.world import (
    NAMES,
    NOISE_SD,
    PROPERTIES,
    START,
    WorldCase,
    cases,
    missing,
    properties_of,
    quality,
)
from convergence import run_optimization_sync

N_CASES: Final = 20
"""Cases of the search; all kinds are among them."""
N_EVALUATIONS: Final = 320
POPULATION: Final = 4
"""Candidates of a generation, in runs of all arms."""
N_TEXTS: Final = 2
"""Texts written before each generation but the first; those tuned in half of a run get half of them."""
TEXTS: Final[Mapping[str, str]] = {"system": START, "user": "Here is the message."}
"""Text parameter → the given text."""
KNOBS: Final[Mapping[str, Mapping[str, Any]]] = {
    "temperature": {"type": "float", "min": 0.0, "max": 1.2, "default": 0.3},
    "context": {"type": "int", "min": 0, "max": 12, "default": 3},
    "model": {"type": "categorical", "choices": ["small", "medium", "large"], "default": "medium"},
    "style": {"type": "categorical", "choices": ["plain", "list", "table"], "default": "list"},
}
DEFAULTS: Final[Mapping[str, Any]] = {**TEXTS, **{n: one["default"] for n, one in KNOBS.items()}}
ARMS: Final = ("together", "prompt first", "knobs first")
"""Arm → the order in which parameters are tuned."""
PROMPT: Final = 0.7
"""Weight of what the texts alone are worth."""
TEMPERATURE: Final = 0.3
"""Lost per squared unit from the best temperature."""
CONTEXT: Final = 0.003
"""Lost per squared passage from the best number."""
MODEL: Final = {
    "small": (0.0, "example", 0.1),
    "medium": (0.04, "", 0.0),
    "large": (0.0, "terms", 0.12),
}
"""Model → what it is worth, and what more with a property."""
STYLE: Final = {"plain": (0.0, 0.1), "list": (0.05, -0.05), "table": (0.0, -0.05)}
"""Style → what it is worth without, and with ``format``."""


def best_knobs(there: AbstractSet[str]) -> dict[str, Any]:
    """Return the best knobs of texts with these properties."""
    return {
        "temperature": 0.8 if there >= {"steps", "check"} else 0.3,
        "context": 8 if "facts" in there else 3,
        "model": max(MODEL, key=lambda name: _of_model(name, there)),
        "style": max(STYLE, key=lambda name: STYLE[name]["format" in there]),
    }


def _of_model(name: str, there: AbstractSet[str]) -> float:
    worth, needs, more = MODEL[name]
    return worth + more * (needs in there)


def knob_gain(there: AbstractSet[str], knobs: Mapping[str, Any]) -> float:
    """Return what knobs add to the quality of texts with these properties."""
    best = best_knobs(there)
    return float(
        -TEMPERATURE * (knobs["temperature"] - best["temperature"]) ** 2
        - CONTEXT * (knobs["context"] - best["context"]) ** 2
        + _of_model(knobs["model"], there)
        + STYLE[knobs["style"]]["format" in there]
    )


def joint_quality(params: Mapping[str, Any], kind: str | None = None) -> float:
    """Return the mean quality of a configuration's answers to a kind of case; ``None``: over all."""
    text = joined(params)
    value = PROMPT * quality(text, kind) + knob_gain(set(properties_of(text)), params)
    return float(np.clip(value, 0.0, 1.0))


def joined(params: Mapping[str, Any]) -> str:
    """Return the whole prompt of a configuration."""
    return f"{params['system']} {params['user']}"


@cache
def optimum() -> float:
    """Return the highest mean quality."""
    best = 0.0
    for n in range(len(NAMES) + 1):
        for chosen in itertools.combinations(NAMES, n):  # NAMES stand in their best order
            user = " ".join(PROPERTIES[name].sentences[-1] for name in chosen)
            best = max(best, joint_quality({**TEXTS, "user": user, **best_knobs(set(chosen))}))
    return best


def joint_gap_closed(params: Mapping[str, Any]) -> float:
    """Return which share of the way from the defaults to the optimum a configuration has gone."""
    start = joint_quality(DEFAULTS)
    return (joint_quality(params) - start) / (optimum() - start)


class JointWorld:
    """The stand-in model of one arm; asked the same again it draws other noise."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._n_asked: dict[tuple[str, str], int] = {}
        self.n_calls = 0

    def ask(self, params: Mapping[str, Any], case: WorldCase) -> dict[str, Any]:
        """Answer one case."""
        of = repr(sorted(params.items()))
        key = (of, case.case_id)
        n = self._n_asked[key] = self._n_asked.get(key, 0) + 1
        self.n_calls += 1
        digest = hashlib.sha256(f"{self._seed} {n} {case.case_id} {of}".encode()).digest()
        noise = NOISE_SD * np.random.default_rng(int.from_bytes(digest[:8], "big")).normal()
        score = float(np.clip(joint_quality(params, case.kind) + noise, 0.0, 1.0))
        lacking = missing(joined(params), case.kind)
        told = f"answer to {case.message}"
        if lacking and score < 0.8:
            told = f"{told}; {PROPERTIES[lacking].symptom}"
        return {"result": told, "metrics": {"score": score}}


def tuned(
    world: JointWorld,
    seed: int,
    fixed: Mapping[str, Any],
    names: AbstractSet[str],
    *,
    n_evaluations: int,
) -> dict[str, Any]:
    """Return the configuration that one run recommends.

    Args:
        world: answers.
        seed: of the run.
        fixed: values of all parameters; of those not tuned they stay.
        names: parameters that are tuned.
        n_evaluations: of the search.
    """
    by_id = {case.case_id: case for case in cases(N_CASES)}

    def answer(case: str, kind: str, **chosen: Any) -> dict[str, Any]:  # noqa: ARG001 - an input
        return world.ask({**fixed, **chosen}, by_id[case])

    parameters: dict[str, Any] = {
        name: {"type": "text", "variants": [fixed[name]], "default": fixed[name], "mutate": True}
        for name in TEXTS
        if name in names
    }
    parameters |= {
        name: {**one, "default": fixed[name]} for name, one in KNOBS.items() if name in names
    }
    with tempfile.TemporaryDirectory() as folder, writer_endpoint(seed, "honest") as url:
        tree: dict[str, Any] = {
            "api": {"name": "joint", "kind": "function"},
            "search_space": {"parameters": parameters},
            "evaluation": {
                "cases_per_candidate": N_NEW,
                "test_cases": {
                    "inline": [
                        {"id": c.case_id, "input": {"case": c.case_id, "kind": c.kind}}
                        for c in by_id.values()
                    ]
                },
                "metrics": {"score": {"type": "function", "weight": 1}},
            },
            "optimization": {
                "algorithm": "mab_evolution",
                "seed": seed,
                "evolution": {
                    "population_size": POPULATION,
                    "generations": n_evaluations // (N_NEW * POPULATION),
                    "elite_size": 0,
                },
                "execution": {"early_stopping": {"enabled": False}},
            },
            "storage": {"path": str(Path(folder) / "store")},
            "output": {"save_path": str(Path(folder) / "results")},
        }
        if names & TEXTS.keys():
            tree |= {
                "llm": {"model": "writer", "endpoint": url},
                "prompts": {"n_texts": N_TEXTS, "max_share_usd": 1.0},
                "prices": {"writer": {"input": 0.0, "output": 0.0}},
            }
        found = run_optimization_sync(tree, local_function=answer).result.found
    assert found is not None
    return {**fixed, **found.params}


def tune(arm: str, seed: int, n_evaluations: int = N_EVALUATIONS) -> dict[str, Any]:
    """Return the configuration that an arm hands over, and its world for what it has asked."""
    world, texts, knobs = JointWorld(seed), TEXTS.keys(), KNOBS.keys()
    if arm == "together":
        return tuned(world, seed, DEFAULTS, texts | knobs, n_evaluations=n_evaluations)
    half, found = n_evaluations // 2, dict(DEFAULTS)
    for names in (texts, knobs) if arm == "prompt first" else (knobs, texts):
        found = tuned(world, seed, found, set(names), n_evaluations=half)
    return found
