"""Earlier runs of the same system, and the evidence that a run inherits from them.

A run stores its earlier runs by id and number of committed generations. A resumed run thus has the
same past, even if other runs have continued since.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from convergence_core.config import Configuration
from convergence_core.errors import ResumeError
from convergence_core.ports import RunRecord
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.space_model import LengthPrice
from convergence_core.search.sampler import SearchState
from convergence_core.search.schedule import Schedule
from convergence_core.search.study import Study
from convergence_core.search.warm_start import WarmStart, warm_start
from tasks.inputs.loader import Loaded
from tasks.serving.production import (
    TAG as PRODUCTION,
    ProductionEvidence,
    production_tag,
    with_production,
)
from tasks.store.tables.lineage import ROUNDS_TAG, superseded
from tasks.store.tables.parquet_store import ParquetStore

TAG = "warm_start"
"""Tag of a run with its earlier runs: ``<run id>@<generations>``, newest first."""
_STATE = """
SELECT sampler_state_json FROM generations
WHERE run_id = $run AND generation = $generation
"""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PriorRuns:
    """Evidence from earlier runs."""

    surrogate: SpaceModel
    """Surrogate of the run, which trusts earlier runs as far as they agree."""
    start: WarmStart
    case_weights: Mapping[str, float]
    """Search case → weight in the mean reward."""
    production: ProductionEvidence = field(default_factory=ProductionEvidence)
    """Evidence from production requests, counted as an earlier run."""

    def study(self, loaded: Loaded, schedule: Schedule) -> Study:
        """Return the study of a run with this evidence.

        Args:
            loaded: the run's configuration and space.
            schedule: its schedule in cells.
        """
        return Study.of(
            loaded.configuration,
            loaded.space,
            schedule,
            self.surrogate,
            case_weights=self.case_weights,
            winners=self.start.winners,
        )

    def describe(self) -> str | None:
        """Return a line on the evidence that the run starts from; ``None`` if there is none."""
        n_runs = self.start.n_runs - self.production.is_apart
        description = self.production.describe()
        if not n_runs:
            return None if description is None else f"starts from {description}"
        runs = f"{n_runs} earlier run{'s' * (n_runs != 1)}"
        line = f"starts from {runs} ({self.start.n_candidates:,} candidates)"
        if self.start.n_dropped:
            line += f"; {self.start.n_dropped:,} more do not fit the current search space"
        return line if description is None else f"{line}; {description}"

    def describe_agreement(self, search: SearchState) -> str | None:
        """Return a line on how far this evidence agrees with earlier runs; ``None`` if unknown."""
        if not self.surrogate.earlier:
            return None
        fitted = self.surrogate.fit(search.archive, case_weights=self.case_weights)
        if fitted.learned is None:
            return None
        agreement = fitted.learned.agreement
        if agreement is None:
            return "earlier runs no longer count: this run has evaluated enough candidates"
        if not any(agreement):
            return "earlier runs disagree with this one and are ignored"
        discounts = ", ".join(f"{1.0 - rho * rho:.1f}" if rho else "ignored" for rho in agreement)
        return f"earlier runs: discount learned {discounts} (0: none, 1: all)"


def tags_of(configuration: Configuration, store: ParquetStore, system: str) -> dict[str, str]:
    """Return the tag that names a new run's earlier runs; empty if there are none.

    Args:
        configuration: configuration of the new run.
        store: store with the runs.
        system: the optimized system's name.
    """
    config = configuration.optimization.warm_start
    if not config.enabled:
        return {}
    records = [
        record
        for record in store.runs(system)
        if record.status in {"done", "stopped"}
        and record.n_generations
        and ROUNDS_TAG not in record.tags
    ]
    twice = superseded(records)
    earlier_tags = [
        f"{record.run_id}@{record.n_generations}"
        for record in records
        if record.run_id not in twice
    ]
    earlier = {TAG: " ".join(earlier_tags[: config.runs])} if earlier_tags else {}
    return {**earlier, **production_tag(store.path, system, config.production)}


def read_past(store: ParquetStore, record: RunRecord, loaded: Loaded) -> PriorRuns:
    """Return the evidence of a run's earlier runs.

    Args:
        store: store with the runs.
        record: row of the run.
        loaded: its configuration and cases.

    Raises:
        ResumeError: an earlier run is no longer in the store.
        StoreDamagedError: a file of an earlier run cannot be read.
    """
    archives = []
    for name in record.tags.get(TAG, "").split():
        run_id, _, n_generations = name.partition("@")
        rows = store.rows(_STATE, {"run": run_id, "generation": int(n_generations) - 1})
        if not rows:
            raise ResumeError(
                f"run {record.label} started from the earlier run {run_id}, which the store "
                f"{store.path} no longer holds. Restore it, or start a new run with "
                "`convergence optimize`."
            )
        state = SearchState.from_json(json.loads(str(rows[0]["sampler_state_json"])))
        archives.append((run_id, state.archive))
    production = ProductionEvidence()
    if PRODUCTION in record.tags:
        archives, production = with_production(
            archives,
            store.path,
            record.name,
            space=loaded.space,
            last=int(record.tags[PRODUCTION]),
            discount=loaded.configuration.optimization.warm_start.production,
        )
    configuration = loaded.configuration
    model = SpaceModel(
        space=loaded.space,
        deterministic=configuration.evaluation.deterministic,
        price=LengthPrice.of(configuration),
    )
    start = warm_start(
        model, archives, held_out=frozenset(case.case_id for case in loaded.holdout_cases)
    )
    return PriorRuns(
        surrogate=replace(model, earlier=start.runs),
        start=start,
        production=production,
        case_weights={case.case_id: case.weight for case in loaded.search_cases},
    )
