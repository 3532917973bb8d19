"""``optimization``, ``society``: search and learning of a run."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import Section, Text
from convergence_core.config.games import GamesConfig

Algorithm: TypeAlias = Literal["mab_evolution", "thompson", "evolution", "random"]
Runner: TypeAlias = Literal["threads", "processes", "ray"]


class MabConfig(Section):
    """Bandit of the search."""

    exploration_rate: float = Field(default=0.1, ge=0, le=1)
    """Share of each generation drawn uniformly (`thompson`, `mab_evolution`)."""
    confidence_level: float = Field(default=0.95, gt=0.5, lt=1)
    """Level of reported intervals and of dropping candidates from the race."""


class EvolutionConfig(Section):
    """Evolutionary search."""

    population_size: int = Field(default=20, ge=2, le=10_000)
    """Candidates per generation on all cases. `thompson` and `mab_evolution` spend the same
    evaluations on more candidates, with fewer cases for poor ones."""
    generations: int = Field(default=10, ge=1, le=100_000)
    """Maximum generations."""
    mutation_rate: float = Field(default=0.2, ge=0, le=1)
    """Probability that a child changes one parameter (`evolution`)."""
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    """Probability that a child has two parents (`evolution`)."""
    elite_size: int = Field(default=2, ge=0)
    """Best candidates that survive unchanged (`evolution`)."""


class EarlyStoppingConfig(Section):
    """Stopping before the last generation."""

    enabled: bool = True
    """Whether a run may stop early."""
    patience: int = Field(default=3, ge=1)
    """Generations without a candidate credibly (90 %) `min_improvement` above the leader."""
    min_improvement: float = Field(default=0.01, ge=0, le=1)
    """Minimum gain in mean reward. A run also stops at 95 % probability that no candidate gains
    more."""


Rate: TypeAlias = Annotated[float, Field(gt=0, le=10_000)]


class ExecutionConfig(Section):
    """Execution of calls."""

    parallel_workers: int = Field(default=5, ge=1, le=512)
    """Maximum calls in flight. With 1 and one search case, each evaluation is planned on those
    before it."""
    max_retries: int = Field(default=3, ge=0, le=20)
    """Maximum retries of a call after network or server failures; 0 disables all retries."""
    max_rate_limit_retries: int = Field(default=5, ge=0, le=100)
    """Extra retries after rate limits (HTTP 429, Groq's 498); waits add up to 600 s at most."""
    early_stopping: EarlyStoppingConfig = Field(default_factory=EarlyStoppingConfig)
    runner: Runner = "threads"
    """Place of evaluation: this process, local processes, or Ray. Results are the same."""
    processes: int | None = Field(default=None, ge=1, le=512)
    """Candidates at a time, each in its process with an equal part of `parallel_workers`.
    Default: one per processor."""
    cluster: Text | None = None
    """Ray cluster, such as `ray://10.0.0.5:10001`. Default: a local one."""
    calls_per_second: dict[str, Rate] = Field(default_factory=dict)
    """Rate limit per host, such as `{api.openai.com: 10}`, shared by all processes of the
    store or journal."""

    @property
    def most_attempts(self) -> int:
        """Maximum attempts of one call, including all retries."""
        return 1 + (self.max_retries + self.max_rate_limit_retries if self.max_retries else 0)


class WarmStartConfig(Section):
    """Reuse of earlier runs of the same system."""

    enabled: bool = False
    """Whether to start from earlier winners and trust their rewards as far as they agree. The run
    then depends on the store."""
    runs: int = Field(default=2, ge=1, le=10)
    """Maximum earlier runs, newest first."""
    production: float = Field(default=0.5, ge=0, le=1)
    """Weight of production rewards, at most 40 per arm; 0 ignores them."""


class OptimizationConfig(Section):
    """Search settings."""

    algorithm: Algorithm = "mab_evolution"
    """Algorithm that chooses candidates."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Same seed, same run."""
    mab: MabConfig = Field(default_factory=MabConfig)
    evolution: EvolutionConfig = Field(default_factory=EvolutionConfig)
    execution: ExecutionConfig = Field(default_factory=ExecutionConfig)
    warm_start: WarmStartConfig = Field(default_factory=WarmStartConfig)


class LearningConfig(Section):
    """Learners of the run."""

    rlp_enabled: bool = True
    """Whether a model forecasts scores and proposes settings, with information gain as its
    reward."""
    sao_enabled: bool = False
    """Whether a model writes prompts, gets two answers each and judges them, for a dataset and
    new variants of `mutate` parameters."""


class RlpConfig(Section):
    """Hypotheses (RLP): one call a generation."""

    nullable = frozenset({"temperature"})

    thought_length: int = Field(default=2048, ge=1, le=1_000_000)
    """Maximum reply length, in tokens; a truncated reply is requested once more."""
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    """Sampling temperature; `null` omits it."""
    n_predicted: int = Field(default=8, ge=1, le=64)
    """Maximum candidates to forecast per generation; at most half."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` for hypotheses."""


class SaoConfig(Section):
    """Preferences between answers (SAO)."""

    nullable = frozenset({"temperature"})

    every: int = Field(default=3, ge=1, le=100_000)
    """Generations between rounds."""
    n_samples: int = Field(default=20, ge=1, le=10_000)
    """Prompts per round."""
    n_personas: int = Field(default=100, ge=1, le=1_000_000)
    """Personas per run, from which rounds choose."""
    temperature: float | None = Field(default=0.6, ge=0, le=2)
    """Sampling temperature of the chat answers; `null` means the current best's, and none for
    prompts."""
    response_pairs: int = Field(default=2, ge=2, le=8)
    """Answers per prompt; above 2, all pairs are judged."""
    quality_filter: bool = True
    """Whether to filter by length, refusals and similarity. Truncated answers, held-out cases
    and uncertain judgements never pass."""
    iterative_rounds: int = Field(default=3, ge=1, le=1_000)
    """Maximum rounds of a run."""
    audit_items: int = Field(default=50, ge=0, le=1_000)
    """Pairs with a known answer per round that test the judge; it is trusted only after 50
    distinct ones."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` for preferences."""


class SocietyConfig(Section):
    """Hypotheses before choices, and preferences between answers."""

    enabled: bool = False
    """Whether to use them; needs `llm`, without which the run reports it and continues."""
    auto_generate_agents: bool = False
    """Whether to derive roles and personas from `api.description`; otherwise they are fixed."""
    learning: LearningConfig = Field(default_factory=LearningConfig)
    rlp: RlpConfig = Field(default_factory=RlpConfig)
    sao: SaoConfig = Field(default_factory=SaoConfig)
    games: GamesConfig = Field(default_factory=GamesConfig)
    """Language games; independent of `society.enabled`."""

    @property
    def thinks(self) -> bool:
        """Whether the run writes hypotheses."""
        return self.enabled and self.learning.rlp_enabled

    @property
    def prefers(self) -> bool:
        """Whether the run writes preferences."""
        return self.enabled and self.learning.sao_enabled
