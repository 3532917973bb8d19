"""``optimization``, ``society``: how a run searches, and what it learns by."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from convergence_core.config.base import Section, Text
from convergence_core.config.games import GamesConfig

Algorithm: TypeAlias = Literal["mab_evolution", "thompson", "evolution", "random"]
MetaOptimizerName: TypeAlias = Literal["fixed", "credit"]
Runner: TypeAlias = Literal["threads", "processes", "ray"]


class MabConfig(Section):
    """The bandit's part of the search."""

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
    """Where candidates are evaluated: in this process, in others of this machine, or on a Ray
    cluster. The result is the same."""
    processes: int | None = Field(default=None, ge=1, le=512)
    """Candidates evaluated at the same time, each in a process of its own with an equal part of
    `parallel_workers` (not runner `threads`). Absent: one for each processor of this machine, and
    at most `parallel_workers`."""
    cluster: Text | None = None
    """Address of a running cluster (runner `ray`), e.g.
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
    """How candidates are chosen."""
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
    meta_optimizer: MetaOptimizerName = "fixed"
    """How the operators are chosen that breed new candidates, and how much of a generation explores
    (`mab_evolution`). `fixed`: in constant shares; `credit`: those that gained more in the
    generations before get more of the next. No gain of `credit` was measured on public tasks."""
    warm_start: WarmStartConfig = Field(default_factory=WarmStartConfig)


class LearningConfig(Section):
    """What the society learns by."""

    rlp_enabled: bool = True
    """Whether a model thinks before candidates are chosen, and is paid by what it predicts."""
    sao_enabled: bool = False
    """Whether a model writes prompts, has them answered twice and judges the answers, for a dataset and
    new texts of parameters with `mutate`."""


class RlpConfig(Section):
    """How thoughts are written, predicted with, and learned from."""

    nullable = frozenset({"temperature"})

    thought_length: int = Field(default=2048, ge=1, le=1_000_000)
    """Longest thought, in tokens; one that is cut off earns nothing."""
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    """How random thoughts are. `null`: not sent, for models that refuse it."""
    n_thoughts: int = Field(default=4, ge=1, le=64)
    """Thoughts drawn in each generation."""
    n_predicted: int = Field(default=8, ge=1, le=64)
    """Candidates of a generation whose reward is predicted, at most; never more than half."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` that thoughts and predictions may cost. Without `max_usd` there is
    no limit of their own."""
    use_logprobs: Literal["auto"] | bool = "auto"
    """How predictions are read: `true`: from log-probabilities alone; `false`: from what the model
    writes alone; `auto`: from the best that its server can do."""


class SaoConfig(Section):
    """How preferences are written, judged, filtered and used."""

    nullable = frozenset({"temperature"})

    every: int = Field(default=3, ge=1, le=100_000)
    """Generations from one round to the next; each begins before a generation."""
    n_samples: int = Field(default=20, ge=1, le=10_000)
    """Prompts of one round."""
    n_personas: int = Field(default=100, ge=1, le=1_000_000)
    """Personas drawn for a run; those of a round are chosen among them."""
    temperature: float | None = Field(default=0.6, ge=0, le=2)
    """How random the incumbent's answers are, of chat models. `null`: as the incumbent says, and prompts
    are asked for without a temperature, for models that refuse it."""
    response_pairs: int = Field(default=2, ge=2, le=8)
    """Answers to each prompt; above 2 all pairs of them are judged."""
    embedding_model: Text | None = None
    """Model of the endpoint `embeddings` beside `llm`, by which the same prompt in other words is found.
    Absent: words alone decide."""
    quality_filter: bool = True
    """Whether answers are filtered by length, refusals and likeness, and prompts by likeness. Filters
    of cut-off answers, of held-out cases and of unsure judgements stay on."""
    iterative_rounds: int = Field(default=3, ge=1, le=1_000)
    """Rounds of a run at most; an alarm, or a judge that contradicts itself, ends them sooner."""
    audit_items: int = Field(default=50, ge=0, le=1_000)
    """Grounded pairs that the judge is tried on in each round, new ones first. There is no verdict on a judge,
    and it is not believed, before it was tried on 50 different ones over all rounds."""
    max_share_usd: float = Field(default=0.2, gt=0, le=1)
    """Share of `budget.max_usd` that preferences may cost. Without `max_usd` there is no limit of their
    own."""
    use_logprobs: Literal["auto"] | bool = "auto"
    """How judgements are read: `true`: from log-probabilities alone; `false`: from plain verdicts, of
    which those count on which both orders agree; `auto`: from the best that its server can do."""
    released_alarms: int = Field(default=0, ge=0)
    """Alarms of coverage that a person has looked into: after three others nothing goes on."""
    released_silences: int = Field(default=0, ge=0)
    """Times that drift or exploitation silenced the judge and a person has looked into: it is watched
    anew then. Until then exploitation keeps it silent in further runs, and drift as long as it lasts."""


class SocietyConfig(Section):
    """Thoughts before choices, and preferences between answers."""

    enabled: bool = False
    """Whether anybody thinks or prefers. It takes an `llm`; without one the run says so and goes on."""
    auto_generate_agents: bool = False
    """Whether roles of thoughts and personas of preferences are written from `api.description` (without
    one from `api.name`): who thinks knows what the system is for, and personas ask about its subject.
    False: the fixed ones."""
    learning: LearningConfig = Field(default_factory=LearningConfig)
    rlp: RlpConfig = Field(default_factory=RlpConfig)
    sao: SaoConfig = Field(default_factory=SaoConfig)
    games: GamesConfig = Field(default_factory=GamesConfig)
    """Language games; they need no `society.enabled`."""

    @property
    def thinks(self) -> bool:
        """Whether thoughts are to be written."""
        return self.enabled and self.learning.rlp_enabled

    @property
    def prefers(self) -> bool:
        """Whether preferences are to be written."""
        return self.enabled and self.learning.sao_enabled
