"""Rules between keys, for a configuration whose types are right."""

import re

from convergence_core.config.check_api import check_api
from convergence_core.config.check_evaluation import check_evaluation
from convergence_core.config.check_llm import check_llm
from convergence_core.config.check_prices import check_prices
from convergence_core.config.check_runner import check_runner
from convergence_core.config.check_secrets import check_secrets
from convergence_core.config.check_society import check_society
from convergence_core.config.check_space import check_space
from convergence_core.config.check_urls import shown_url
from convergence_core.config.models import Configuration
from convergence_core.config.report import Report
from convergence_core.config.source import Path

_ADDRESS = r"[a-z0-9]+://[A-Za-z0-9_][^/\s?#]*(/[^\s?#]*)?$"
"""Scheme, bucket and prefix."""


def check(configuration: Configuration, report: Report, *, allow_callable: bool) -> None:
    """Check every rule; what does not hold is in the report."""
    check_secrets(configuration, report)
    check_api(configuration, report, allow_callable=allow_callable)
    check_space(configuration.search_space, report)
    check_evaluation(configuration, report, allow_callable=allow_callable)
    check_llm(configuration, report)
    check_prices(configuration, report)
    check_society(configuration, report)
    _check_evolution(configuration, report)
    _check_cost_aware(configuration, report)
    check_runner(configuration, report)
    _check_storage(configuration, report)


def _check_evolution(configuration: Configuration, report: Report) -> None:
    evolution = configuration.optimization.evolution
    path: Path = ("optimization", "evolution")
    about = ((*path, "population_size"),)
    size = evolution.population_size
    algorithm = configuration.optimization.algorithm
    at_default = "elite_size" not in evolution.model_fields_set
    if evolution.elite_size >= size and not (at_default and algorithm != "evolution"):
        rule = f"must be below `population_size` ({size})"
        fix = f"Write {size - 1} or less."
        elite = str(evolution.elite_size)
        where = (*path, "population_size") if at_default else (*path, "elite_size")
        if at_default:
            rule = f"must exceed `elite_size` ({elite} unless written)"
            fix, elite = (
                f"Write {evolution.elite_size + 1} or more, or a smaller `elite_size`.",
                str(size),
            )
        report.add(where, rule, fix, value=elite, about=about)
    tournament = evolution.tournament_size
    if tournament is not None and tournament > size:
        rule = f"must not exceed `population_size` ({size})"
        fix = f"Write {size} or less."
        report.add((*path, "tournament_size"), rule, fix, value=str(tournament), about=about)
    if evolution.selection == "rank" and algorithm != "evolution":
        rule = f"has no effect with `optimization.algorithm: {algorithm}`"
        of_algorithm: tuple[Path, ...] = (("optimization", "algorithm"),)
        fix = "Remove it, or write `algorithm: evolution`."
        report.add((*path, "selection"), rule, fix, of_key=True, about=of_algorithm)
    elif evolution.selection == "rank" and tournament is not None:
        rule = "has no effect with `selection: rank`"
        of_selection: tuple[Path, ...] = ((*path, "selection"),)
        fix = "Remove it, or write `selection: tournament`."
        report.add((*path, "tournament_size"), rule, fix, of_key=True, about=of_selection)


def _check_cost_aware(configuration: Configuration, report: Report) -> None:
    optimization = configuration.optimization
    if optimization.cost_aware is None:
        return
    path: Path = ("optimization", "cost_aware")
    if optimization.algorithm in ("evolution", "random"):
        rule = f"has no effect with `optimization.algorithm: {optimization.algorithm}`"
        about: tuple[Path, ...] = (("optimization", "algorithm"),)
        fix = "Remove it, or write `algorithm: mab_evolution`."
        report.add(path, rule, fix, of_key=True, about=about)
    elif configuration.evaluation.objective == "pareto":
        rule = "has no effect with `evaluation.objective: pareto`, which knows no leader"
        about = (("evaluation", "objective"),)
        fix = "Remove it, and give the metric `cost_usd` or `latency_ms` a weight."
        report.add(path, rule, fix, of_key=True, about=about)


def _check_storage(configuration: Configuration, report: Report) -> None:
    storage = configuration.storage
    results = configuration.output.save_path
    if "://" in results:
        rule, fix = "must be a local folder, not an address", "Write e.g. `./results`."
        report.add(("output", "save_path"), rule, fix, value=shown_url(results))
    if storage.remote is not None and not re.match(_ADDRESS, storage.remote):
        rule = "must name a bucket after `://`"
        fix = "Write e.g. `s3://bucket/nightly`."
        report.add(("storage", "path"), rule, fix, value=shown_url(storage.remote))
    if storage.remote is None and storage.local is not None:
        rule = "has no effect with a folder as `storage.path`"
        fix = "Remove it, or write an address as `storage.path`, e.g. `s3://bucket/nightly`."
        about: tuple[Path, ...] = (("storage", "path"),)
        report.add(("storage", "local"), rule, fix, of_key=True, about=about)
