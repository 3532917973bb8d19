"""Keys that are written and right, but that nothing reads beside the others of their configuration.

They are told, not refused: a configuration may be kept for several algorithms, and those of the
original write the rates of its genetic algorithm whatever searches.
"""

from convergence_core.config.models import Configuration

READ_BY: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("optimization", "evolution", "mutation_rate"): ("evolution",),
    ("optimization", "evolution", "crossover_rate"): ("evolution",),
    ("optimization", "evolution", "elite_size"): ("evolution",),
    ("optimization", "evolution", "selection"): ("evolution",),
    ("optimization", "evolution", "tournament_size"): ("evolution",),
    ("optimization", "mab", "exploration_rate"): ("thompson", "mab_evolution"),
}
"""Key → algorithms that read it; what else an algorithm does not read is refused beside it."""


def without_effect(configuration: Configuration) -> list[str]:
    """Return a sentence for each key that the configuration writes in vain, in their order."""
    optimization = configuration.optimization
    told = [
        f"`{'.'.join(path)}` is read by {read_by(readers)} only"
        for path, readers in READ_BY.items()
        if optimization.algorithm not in readers
        and path[-1] in getattr(optimization, path[1]).model_fields_set
    ]
    stopping = optimization.execution.early_stopping
    if configuration.evaluation.objective == "pareto" and stopping.enabled:
        told += [
            f"`optimization.execution.early_stopping.{key}`: a `pareto` run never stops early"
            for key in type(stopping).model_fields
            if key in stopping.model_fields_set
        ]
    return told


def read_by(algorithms: tuple[str, ...]) -> str:
    """Return the algorithms in words."""
    return " and ".join(f"`algorithm: {name}`" for name in algorithms)
