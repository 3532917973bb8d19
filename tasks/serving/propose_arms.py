"""Proposals of new arms, bred from the best."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from convergence_core.config import Configuration, parse_mapping
from convergence_core.config.search_space import TextParam
from convergence_core.errors import ConfigurationError
from convergence_core.records import Candidate, Json, Params
from convergence_core.search.evolution import Breeder
from convergence_core.space import Space
from convergence_core.space.builder import build_space
from tasks.serving.offers import arm_id_of
from tasks.serving.settings import RuntimeArm
from tasks.store.runtime.rows import StoredArm


def proposed_arms(
    arms: Sequence[StoredArm],
    rng: np.random.Generator,
    *,
    top_n: int = 3,
    search_space: Mapping[str, Any] | None = None,
    evolution: Mapping[str, Any] | None = None,
) -> list[RuntimeArm]:
    """Return children of the best arms that differ from every existing arm.

    Args:
        arms: active and retired arms; a child equal to one of them is bred again.
        rng: random generator.
        top_n: number of parents, the best active arms.
        search_space: space as in a configuration; ``None`` means the range of the active arms.
        evolution: settings as in ``optimization.evolution``; ``population_size`` is the number of
            children, by default ``top_n``.

    Raises:
        ConfigurationError: the space or the evolution is wrong, or no active arm lies in the
            space.
    """
    offered = [arm for arm in arms if not arm.is_retired]
    spanned = spanned_by([arm.params for arm in offered])
    tree = dict(search_space) if search_space is not None else {"parameters": spanned}
    configuration = _configuration(tree, evolution or {})
    space = _space(configuration)
    ranked = sorted(offered, key=lambda arm: -arm.mean)
    parents = _within(space, ranked)
    if not parents:
        raise ConfigurationError.of(
            "search_space",
            "must hold the parameters of an active arm",
            "Describe every parameter that the arms have, with bounds that hold them.",
            value=", ".join(sorted(space.parameters)),
        )
    seen = {candidate.candidate_id for candidate in _within(space, arms)}
    settings = configuration.optimization.evolution
    breeder = Breeder(
        space=space,
        mutation_rate=settings.mutation_rate,
        crossover_rate=settings.crossover_rate,
    )
    n = settings.population_size if "population_size" in (evolution or {}) else top_n
    children = [dict(child.params) for child in breeder.brood(parents[:top_n], rng, seen, n)]
    return [RuntimeArm(arm_id=arm_id_of(params), params=params) for params in children]


def spanned_by(points: Sequence[Mapping[str, Json]]) -> dict[str, Any]:
    """Return the parameters of the space that points span, in the form of a configuration.

    Numbers lie between their minimum and maximum. Other parameters, and those that only some
    points have or that never vary, are choices among the values seen.
    """
    parameters: dict[str, Any] = {}
    for name in sorted({name for point in points for name in point}):
        values = [point[name] for point in points if name in point]
        kinds = {type(value) for value in values}
        numbers = [value for value in values if isinstance(value, int | float)]
        if kinds <= {int, float} and min(numbers) < max(numbers):
            kind = "int" if kinds == {int} else "float"
            parameters[name] = {"type": kind, "min": min(numbers), "max": max(numbers)}
        else:
            choices = list({(type(value), str(value)): value for value in values}.values())
            parameters[name] = {"type": "categorical", "choices": choices}
    return parameters


def _within(space: Space, arms: Sequence[StoredArm]) -> list[Candidate]:
    """Return the arms that are points of a space."""
    return [
        space.candidate(cast("Params", arm.params))
        for arm in arms
        if not space.validate(arm.params)
    ]


def _configuration(search_space: Mapping[str, Any], evolution: Mapping[str, Any]) -> Configuration:
    """Return a configuration with this space, so that its rules and errors are those of a file."""
    return parse_mapping(
        {
            "api": {"name": "arms", "function": "none:none"},
            "search_space": dict(search_space),
            "evaluation": {
                "test_cases": {"path": "none.json"},
                "metrics": {"exact_match": {"weight": 1}},
            },
            "optimization": {
                # The algorithm that reads these keys; existing arms stay active, so there are no
                # elites.
                "algorithm": "evolution",
                "evolution": {"elite_size": 0, **evolution},
            },
        }
    )


def _space(configuration: Configuration) -> Space:
    texts = {
        variant: variant
        for parameter in configuration.search_space.parameters.values()
        if isinstance(parameter, TextParam)
        for variant in parameter.variants
    }
    return build_space(configuration.search_space, texts)
