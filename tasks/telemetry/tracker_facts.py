"""Options and numbers shared by the listeners of MLflow and Weights & Biases."""

import importlib.util
from collections.abc import Mapping

from convergence_core.config.problems import guessed, listing
from convergence_core.errors import ConfigurationError
from convergence_core.events import GenerationFinished, RunOutcome, RunStarted
from tasks.plugins.entry_points import PluginContext
from tasks.version import install_command


def read_options(
    context: PluginContext, known: Mapping[str, tuple[str, ...] | None]
) -> dict[str, str]:
    """Return a listener's options, all of them texts.

    Args:
        context: holds them.
        known: option → its values; ``None``: any text.

    Raises:
        ConfigurationError: one is unknown, no text, or none of its values.
    """
    found: dict[str, str] = {}
    for name, value in context.options.items():
        key = f"{context.key}.{name}"
        if name not in known:
            fix = guessed(name, [*known], f"Known are {listing([*known])}.")
            raise ConfigurationError.of(key, "is not a known option", fix)
        values = known[name]
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError.of(key, "must be a text", "Write one, or remove the option.")
        if values is not None and value not in values:
            raise ConfigurationError.of(key, f"must be one of {listing(values)}", "Choose one.")
        found[name] = value
    return found


def check_installed(context: PluginContext, module: str) -> None:
    """Check that the package behind a shipped listener is there.

    Raises:
        ConfigurationError: its extra is missing.
    """
    if importlib.util.find_spec(module) is None:
        rule = f"needs the extra `{context.name}`, which is not installed"
        fix = f"Run: {install_command(context.name)}"
        raise ConfigurationError.of(context.key, rule, fix)


def described(event: RunStarted) -> dict[str, str]:
    """Return what describes a run, as texts."""
    return {
        "system": event.system,
        "algorithm": event.algorithm,
        "seed": str(event.seed),
        "n_generations": str(event.n_generations),
        "n_search_cases": str(event.n_search_cases),
        "n_holdout_cases": str(event.n_holdout_cases),
    }


def generation_numbers(event: GenerationFinished) -> dict[str, float]:
    """Return the numbers of a generation that are known."""
    low, high = event.best_interval or (None, None)
    return _known(
        {
            "best_mean": event.best_mean,
            "best_low": low,
            "best_high": high,
            "n_evaluations": event.n_evaluations,
            "n_failed": event.n_failed,
            "n_calls": event.n_calls,
            "cost_usd": event.cost_usd,
        }
    )


def outcome_numbers(outcome: RunOutcome) -> dict[str, float]:
    """Return the final numbers that are known."""
    low, high = outcome.interval or (None, None)
    baseline_low, baseline_high = outcome.baseline_interval or (None, None)
    return _known(
        {
            "recommended_mean": outcome.mean,
            "recommended_low": low,
            "recommended_high": high,
            "default_mean": outcome.baseline_mean,
            "default_low": baseline_low,
            "default_high": baseline_high,
            "total_calls": outcome.n_calls,
            "total_cost_usd": outcome.cost_usd,
        }
    )


def _known(numbers: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(number) for name, number in numbers.items() if number is not None}
