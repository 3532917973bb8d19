"""Migration of ``optimization`` and ``output``."""

from typing import Any, get_args

from convergence.compat.migration.migrator import Migrator, Path, Section, number, take
from convergence_core.config.models import OutputFormat
from convergence_core.config.optimization import Algorithm
from convergence_core.config.rules import READ_BY, read_by
from convergence_core.config.schema import ALGORITHMS, VISUALIZATIONS
from convergence_core.visualization import Visualization


def migrate_optimization(m: Migrator, old: Section, _whole: Section) -> Section:
    """Return our ``optimization``."""
    path: Path = ("optimization",)
    mab, evolution = take(old, "mab"), take(old, "evolution")
    execution = take(old, "execution")
    new = m.keep_known(old, path)
    algorithm = new.get("algorithm")
    if algorithm is not None:
        plain = ALGORITHMS.get(str(algorithm), algorithm)
        if plain not in get_args(Algorithm):
            del new["algorithm"]
            m.drop((*path, "algorithm"), f"{str(algorithm)[:40]!r} is none; the default is used")
        elif plain != algorithm:
            new["algorithm"] = plain
            m.say((*path, "algorithm"), f"was {algorithm!r}")
    for key, section in (
        ("mab", _mab(m, mab)),
        ("evolution", _evolution(m, evolution, has_elite=new.get("algorithm") == "evolution")),
        ("execution", _execution(m, execution)),
    ):
        if section:
            new[key] = section
    for (*section_path, key), readers in READ_BY.items():
        reads = new.get("algorithm", "mab_evolution") in readers
        if key in new.get(section_path[-1], {}) and not reads:
            m.say((*section_path, key), f"read by {read_by(readers)} only")
    return new


def _mab(m: Migrator, old: Section) -> Section:
    path: Path = ("optimization", "mab")
    new = m.keep_known(old, path)
    if new.get("strategy", "thompson_sampling") != "thompson_sampling":
        del new["strategy"]
        m.drop((*path, "strategy"), "version 0.1 had Thompson sampling only, too")
    m.clamp(new, path, exploration_rate=(0, 1), confidence_level=(0.51, 0.999))
    return new


def _evolution(m: Migrator, old: Section, *, has_elite: bool) -> Section:
    path: Path = ("optimization", "evolution")
    new = m.keep_known(old, path)
    m.clamp(new, path, population_size=(2, 10_000), generations=(1, 100_000))
    m.clamp(new, path, mutation_rate=(0, 1), crossover_rate=(0, 1))
    size = new.get("population_size", 20)
    if has_elite and isinstance(size, int) and size <= 2:
        new.setdefault("elite_size", 1)
    if isinstance(size, int):
        m.clamp(new, path, elite_size=(0, size - 1))
    return new


def _execution(m: Migrator, old: Section) -> Section:
    path: Path = ("optimization", "execution")
    if "experiments_per_generation" in old:
        del old["experiments_per_generation"]
        reason = "version 0.1 never read it; `evolution.population_size` says it"
        m.drop((*path, "experiments_per_generation"), reason)
    stopping = take(old, "early_stopping")
    new = m.keep_known(old, path)
    m.clamp(new, path, parallel_workers=(1, 512), max_retries=(0, 20))
    below = (*path, "early_stopping")
    stopping = m.keep_known(stopping, below)
    m.clamp(stopping, below, patience=(1, 100_000), min_improvement=(0, 1))
    return new | ({"early_stopping": stopping} if stopping else {})


def migrate_output(m: Migrator, old: Section, _whole: Section) -> Section:
    """Return our ``output``."""
    path: Path = ("output",)
    export = take(old, "export_best_config")
    new = m.keep_known(old, path)
    _keep_choices(m, new, (*path, "formats"), get_args(OutputFormat))
    if new.get("visualizations") == []:
        del new["visualizations"]  # version 0.1's default, and it drew none anyway
    _keep_choices(m, new, (*path, "visualizations"), get_args(Visualization))
    below = (*path, "export_best_config")
    export = m.keep_known(export, below)
    if export.get("format", "json") not in ("python", "json", "yaml"):
        m.drop((*below, "format"), f"{str(export.pop('format'))[:40]!r} is none")
    return new | ({"export_best_config": export} if export else {})


def _keep_choices(m: Migrator, holder: Section, path: Path, choices: tuple[Any, ...]) -> None:
    values = holder.get(path[-1])
    if not isinstance(values, list):
        return
    kept: list[str] = []
    for value in values:
        plain = VISUALIZATIONS.get(str(value), value)
        if plain not in choices:
            m.say(path, f"lost {str(value)[:40]!r}, which is not known")
        elif plain not in kept:
            kept.append(str(plain))
    holder[path[-1]] = kept


def migrate_plain(_m: Migrator, old: Section, _whole: Section) -> Section:
    """Return a section of ours that version 0.1 did not have."""
    return {key: number(value) for key, value in old.items()}
