"""``optimization``, ``storage``, ``output``: how to search, and where results go."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import Section, Text
from convergence_core.visualization import VISUALIZATIONS, Visualization

Algorithm: TypeAlias = Literal["mab_evolution", "thompson", "evolution", "random"]
OutputFormat: TypeAlias = Literal["json", "markdown", "csv", "html"]
Runner: TypeAlias = Literal["threads", "processes", "dask", "ray"]


class MabConfig(Section):
    """The bandit's part of the search."""

    strategy: Literal["thompson_sampling"] = "thompson_sampling"
    """How arms are chosen."""
    exploration_rate: float = Field(default=0.1, ge=0, le=1)
    """Share of a generation's places that go to candidates drawn uniformly from the space, whatever
    the posterior says (`thompson`, `mab_evolution`)."""
    confidence_level: float = Field(default=0.95, gt=0.5, lt=1)
    """Probability that a reported interval covers a candidate's mean reward; and with which no
    candidate that left the race lies above the leader."""


class EvolutionConfig(Section):
    """The evolutionary part of the search."""

    population_size: int = Field(default=20, ge=2, le=10_000)
    """Candidates of one generation, if each is asked all cases; `thompson` and `mab_evolution`
    spend as many evaluations on more candidates, asking the poor ones fewer cases."""
    generations: int = Field(default=10, ge=1, le=100_000)
    """Generations at most."""
    mutation_rate: float = Field(default=0.2, ge=0, le=1)
    """Probability that one parameter of a child is changed (`evolution`)."""
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    """Probability that a child has two parents (`evolution`)."""
    elite_size: int = Field(default=2, ge=0)
    """Best candidates that survive unchanged, 0 for no elitism; below `population_size`
    (`evolution`)."""
    selection: Literal["tournament", "rank"] = "tournament"
    """How parents are chosen (`evolution`): the best of a few drawn at random, or each with a
    probability that falls linearly with its rank, from 1.5 times the average for the best to half of
    it for the last."""
    tournament_size: int | None = Field(default=None, ge=1)
    """Candidates that compete to be a parent (`evolution`). Absent: a quarter of the population, at
    least 2."""


class EarlyStoppingConfig(Section):
    """When to stop before the last generation: nothing was gained, or nothing is left to gain."""

    enabled: bool = True
    """Whether a run may stop early."""
    patience: int = Field(default=3, ge=1)
    """Generations in a row in which no candidate came to lie credibly (with 90 % probability)
    `min_improvement` above the leader, before it stops."""
    min_improvement: float = Field(default=0.01, ge=0, le=1)
    """Gain in mean reward that counts. A run of `thompson` or `mab_evolution` also stops when, with
    95 % probability, no candidate considered, asked or not, lies more than this above the leader."""


Rate: TypeAlias = Annotated[float, Field(gt=0, le=10_000)]


class ExecutionConfig(Section):
    """How calls are made."""

    parallel_workers: int = Field(default=5, ge=1, le=512)
    """Calls in flight at most."""
    max_retries: int = Field(default=3, ge=0, le=20)
    """Further attempts of one call after a fault of network or server; 0: none, nor after a rate
    limit."""
    max_rate_limit_retries: int = Field(default=5, ge=0, le=100)
    """Further attempts of one call after a rate limit (HTTP 429, Groq's 498), beside `max_retries`.
    So a call is attempted at most 1 + both times; the waits it is asked for come to 600 s at most."""
    early_stopping: EarlyStoppingConfig = Field(default_factory=EarlyStoppingConfig)
    runner: Runner = "threads"
    """Where candidates are evaluated: in this process, in others of this machine, or on a cluster of
    Dask or Ray. The result is the same."""
    processes: int | None = Field(default=None, ge=1, le=512)
    """Candidates evaluated at the same time, each in a process of its own with an equal part of
    `parallel_workers` (not runner `threads`). Absent: one for each processor of this machine, and
    at most `parallel_workers`."""
    cluster: Text | None = None
    """Address of a running cluster (runners `dask` and `ray`), e.g. `tcp://10.0.0.5:8786` or
    `ray://10.0.0.5:10001`. Absent: one is started on this machine for the run."""
    calls_per_second: dict[str, Rate] = Field(default_factory=dict)
    """Host, as in its URL → calls per second at most, over all processes that share the store, or
    with `storage.journal` all hosts that share the journal, e.g. `{api.openai.com: 10}`. Calls leave
    evenly, without bursts. Absent: as fast as the endpoint takes them."""

    @property
    def most_attempts(self) -> int:
        """Attempts of one call at most: the first, and all that faults and rate limits allow."""
        return 1 + (self.max_retries + self.max_rate_limit_retries if self.max_retries else 0)


class WarmStartConfig(Section):
    """What a run takes over from earlier runs of the same system, i.e. `api.name` in one store."""

    enabled: bool = False
    """Whether their winners are asked again at first, and their rewards believed as far as they
    agree with this run's. What a seed gives then depends on the runs that the store holds."""
    runs: int = Field(default=2, ge=1, le=10)
    """Earlier runs at most, finished or stopped, newest first."""
    production: float = Field(default=0.5, ge=0, le=1)
    """Share of the rewards of requests that count beside those of earlier runs, forty of an arm at
    most; 0: none."""


class OptimizationConfig(Section):
    """How to search."""

    algorithm: Algorithm = "mab_evolution"
    """The original's `genetic` is read as `evolution`, its `mab_only` as `thompson`."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Same seed, same run."""
    mab: MabConfig = Field(default_factory=MabConfig)
    evolution: EvolutionConfig = Field(default_factory=EvolutionConfig)
    execution: ExecutionConfig = Field(default_factory=ExecutionConfig)
    cost_aware: Literal["usd", "seconds"] | None = None
    """Predicted costs count in the draws, in dollars or in seconds of an answer: what a candidate may
    gain over the leader is divided by what it costs to ask, so an expensive one has to promise more;
    less and less so while generations and `budget.max_usd` are spent (`thompson`, `mab_evolution`).
    Absent: cost does not count."""
    warm_start: WarmStartConfig = Field(default_factory=WarmStartConfig)


class StorageConfig(Section):
    """Where runs are kept."""

    path: Text = "./convergence-data"
    """Folder of tables and journal, relative to the configuration; or an address of object storage
    (`s3://`, `gs://`, `az://`), to which the tables are published."""
    local: Text | None = None
    """With an address: folder of its working copy, of journal and runtime state, relative to the
    configuration. Absent: `./convergence-data`."""
    journal: Text | None = Field(default=None, pattern=r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$")
    """`${ENV_NAME}` of a variable that holds a `postgresql://` URL: the journal of calls is kept
    there, for several machines. Absent: a file in the folder."""

    keep_text: bool = True
    """Whether requests and answers are kept as text; `false`: as hashes only."""

    @property
    def folder(self) -> str:
        """Folder of the store on this machine, relative to the configuration."""
        return self.path if self.remote is None else self.local or "./convergence-data"

    @property
    def remote(self) -> str | None:
        """Address of object storage; ``None``: the tables stay in the folder."""
        return self.path if "://" in self.path else None


class ExportConfig(Section):
    """The best configuration in a form that programs can use."""

    enabled: bool = True
    """Whether it is written."""
    format: Literal["python", "json", "yaml"] = "python"
    """Form of the file."""
    output_path: Text | None = None
    """File, relative to the configuration. Absent: `best_config.<ending>` in `save_path`."""


def _all_formats() -> list[OutputFormat]:
    return ["json", "markdown", "csv", "html"]


def _all_visualizations() -> list[Visualization]:
    return list(VISUALIZATIONS)


class OutputConfig(Section):
    """What is written at the end of a run."""

    save_path: Text = "./results"
    """Folder of the results, relative to the configuration."""
    formats: list[OutputFormat] = Field(default_factory=_all_formats)
    """Kinds of files."""
    save_all_experiments: bool = True
    """Whether `detailed_results.json` and `experiments.csv` hold every candidate; `false`: each
    generation's first, the winner and the default only."""
    visualizations: list[Visualization] = Field(default_factory=_all_visualizations)
    """Plots of the report. The original's `score_over_time`, `parameter_importance`,
    `pareto_front` and `cost_vs_quality` are read too."""
    export_best_config: ExportConfig = Field(default_factory=ExportConfig)
