"""Round of a policy: simulation, real rollouts, an update, the gate.

Three policies play the same episodes of a configuration's prompts: the one that learns by PPO, linear Thompson sampling
on the same state, and the best fixed sequence. Each learns from its own episodes alone. An episode is stored when all
three have played it; where one could not be scored, it is left out for all.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from convergence_core.config import Configuration
from convergence_core.errors import PromptScoreMissingError
from convergence_core.feedback.text_features import HASHED_NGRAMS
from convergence_core.policy import (
    PROMPT_ACTIONS,
    STOP,
    PromptEnvironment,
    PromptEnvironments,
    PromptWorld,
    TakenStep,
    UpdateStatistics,
)
from convergence_core.policy.course import (
    RECORDED,
    PlayedEpisode,
    PolicyCourse,
    course_of,
    paired_rewards,
)
from convergence_core.policy.gate import BASELINES, PPO, PolicyGate, PolicyName, judge_policy
from convergence_core.prompts.state import text_id_of
from tasks.inputs.loader import Loaded
from tasks.policy.baselines import Baseline, baseline_of
from tasks.policy.recorded_prompts import RecordedPrompts, recorded_edits, recorded_texts
from tasks.policy.records import ExperienceReport, PolicyQuestion, PolicySettings
from tasks.policy.served_policy import ServedPolicy
from tasks.policy.target_prompts import TargetPrompts
from tasks.run.assembly import Caller
from tasks.run.assessment import BUDGET_REACHED, interrupted
from tasks.run.opener import prepare_run, with_overrides
from tasks.run.run import Run
from tasks.store.policy.experience_store import ExperienceStore
from tasks.store.policy.round_store import RoundStore
from tasks.store.tables.lineage import POLICY_TAG

EMBEDDING_DIM: Final = 1536
N_COPIES: Final = 8
SIMULATED_STEPS: Final = 2048
"""Simulated environments beside each other."""
OFFLINE_FOLDER: Final = "-offline"
"""End of the folder's name where the built-in mock answers: what it teaches is not to serve."""
_ROUNDS: Final[dict[str, "PolicyRound"]] = {}
"""Run → its round, for tasks whose parameters are ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRoundReport:
    """What a round did."""

    system: str
    label: str
    """Of the run that holds its evaluations."""
    writer: str
    n_episodes: int
    """Of this round, that all three policies have played."""
    n_missing: int
    """Episodes left out, for a prompt could not be scored."""
    limit: str | None
    """Why it ended early; ``None`` if it did not."""
    simulated: UpdateStatistics | None
    """Of the last update in the simulation; ``None`` if nothing was simulated in this round."""
    updated: UpdateStatistics | None
    """Of the update; ``None`` if fewer steps than a minibatch are ready."""
    n_calls: int
    cost_usd: float | None
    """``None`` if no price is known."""
    version: int
    gate: PolicyGate
    course: PolicyCourse
    """Learning curves, actions and refusals, of all rounds of the system."""


class PolicyRound:
    """A round in progress; ``open_policy_round`` opens one."""

    def __init__(
        self, run: Run, world: TargetPrompts, store: ExperienceStore, served: ServedPolicy
    ) -> None:
        """Begin a round, or continue with one.

        Args:
            run: its calls and limits.
            world: the prompts, scored by the run.
            store: the policy's experiences.
            served: the policy.
        """
        self.run, self.world, self.served = run, world, served
        self.settings = run.configuration.prompts.policy
        self.system = run.record.name.removesuffix(f".{POLICY_TAG}")
        self.rounds = RoundStore(store)
        given = [text for prompt in world.texts.values() for text in prompt]
        self._edits = recorded_edits(run.store, self.system, run.record.name, given)
        self._prices = [self.settings.price * (name != STOP) for name in PROMPT_ACTIONS]
        self._environment = self._over(world)
        earlier = [
            episode.episode for episode in self.rounds.episodes() if episode.run_id == run.run_id
        ]
        self.number = max(earlier, default=RECORDED) + 1
        """Of the next episode; a round that continues after a kill continues here."""
        self._baselines = [self._begun(name) for name in BASELINES]
        self._n_played, self._n_missing = 0, 0
        self._limit: str | None = None
        self._simulated: UpdateStatistics | None = None
        self._updated: UpdateStatistics | None = None

    # -- the story

    @property
    def run_id(self) -> str:
        """Of the run that holds the evaluations."""
        return self.run.run_id

    @property
    def is_simulation_due(self) -> bool:
        """Whether the policy is to learn from the simulation: it knows nothing yet."""
        return self.served.version == 0

    def simulate(self) -> UpdateStatistics | None:
        """Let the policy learn from simulated edits; return diagnostics of the last update."""
        rng = np.random.default_rng([self.run.record.seed, 11])
        texts = [text for prompt in self.world.texts.values() for text in prompt]
        world = RecordedPrompts(texts, self._edits, rng, embedding_dim=EMBEDDING_DIM)
        copies = PromptEnvironments([self._over(world) for _ in range(N_COPIES)])
        self._simulated = self.served.simulate(copies, SIMULATED_STEPS)
        return self._simulated

    def should_continue(self) -> bool:
        """Whether another episode is to be played.

        Raises:
            RunInterruptedError: the run was asked to stop.
        """
        self.run.check_stop()
        return self._limit is None and self.number < self.settings.episodes

    def play(self) -> int:
        """Let each policy play the next episode; return how many evaluations they took together.

        Raises:
            StoreError: nothing of the episode is kept.
        """
        number, self.number = self.number, self.number + 1
        episodes: list[PlayedEpisode] = []
        reports: list[ExperienceReport] = []
        try:
            for at, name in enumerate((PPO, *BASELINES)):
                rng = np.random.default_rng([self.run.record.seed, 13, number])
                self._environment.begin(rng)
                rng = np.random.default_rng([self.run.record.seed, 17, number, at])
                episode, steps_played = self._played(name, number, rng)
                episodes.append(episode)
                reports += steps_played
        except PromptScoreMissingError as error:
            self._n_missing += 1
            if "budget" in str(error):
                self._limit = str(error)
            self.world.publish()
            return 0
        # A kill keeps all of an episode, or nothing.
        also = partial(self.rounds.write, episodes=episodes)
        for receipt in self.served.take(reports, also):
            if isinstance(receipt, Exception):
                raise receipt
        self.world.publish()
        for baseline in self._baselines:
            baseline.policy.learn(next(e.steps for e in episodes if e.policy == baseline.name))
        self._n_played += 1
        return sum(episode.n_evaluations for episode in episodes)

    def update(self) -> UpdateStatistics | None:
        """Let the policy learn from the steps that are ready; ``None``: fewer than a minibatch are."""
        self._updated = self.served.update()
        return self._updated

    def judge(self) -> PolicyGate:
        """Look at the system's episodes, write down what the gate says, and let that policy serve."""
        gate = judge_policy(
            paired_rewards(self.rounds.compared(self.system)),
            max_steps=self.served.settings.max_steps,
            price=self.settings.price,
        )
        self.rounds.record_gate(self.system, self.run.run_id, self.served.version, gate)
        self.served.choose_champion(self.system)
        return gate

    def report(self, gate: PolicyGate) -> PolicyRoundReport:
        """Mark the run as done, and return what the round did."""
        done = self._limit is None
        self.run.save("done" if done else "stopped", "" if done else BUDGET_REACHED)
        totals = self.run.journal.totals(self.run.run_id)
        return PolicyRoundReport(
            system=self.system,
            label=self.run.label,
            writer=self.world.writer,
            n_episodes=self._n_played,
            n_missing=self._n_missing,
            limit=self._limit,
            simulated=self._simulated,
            updated=self._updated,
            n_calls=totals.n_attempts,
            cost_usd=totals.cost_usd,
            version=self.served.version,
            gate=gate,
            course=course_of(self.rounds.episodes(self.system)),
        )

    # -- one policy

    def _over(self, world: PromptWorld) -> PromptEnvironment:
        steps = self.served.settings.max_steps
        return PromptEnvironment(world, max_steps=steps, prices=self._prices)

    def _begun(self, name: PolicyName) -> Baseline:
        """Return a baseline; a new one begins with the recorded edits, as the policy does by the simulation."""
        if not self.rounds.episodes(self.system, name):
            steps = [
                edit.step(self.served.settings.max_steps, EMBEDDING_DIM) for edit in self._edits
            ]
            self.rounds.add([self._recorded(name, steps)])
        return baseline_of(self.rounds, name, EMBEDDING_DIM)

    def _recorded(self, name: PolicyName, steps: Sequence[TakenStep]) -> PlayedEpisode:
        return PlayedEpisode(
            system=self.system,
            run_id=self.run.run_id,
            episode=RECORDED,
            policy=name,
            version=self.served.version,
            category="",
            text_id="",
            actions=(),
            verdicts=(),
            start_score=0.0,
            gain=0.0,
            reward=0.0,
            n_evaluations=0,
            steps=tuple(steps),
        )

    def _played(
        self, name: PolicyName, number: int, rng: np.random.Generator
    ) -> tuple[PlayedEpisode, list[ExperienceReport]]:
        """Play an episode that has begun; return it, and what PPO is to be told."""
        environment, start = self._environment, self._environment.situation
        baseline = next((baseline for baseline in self._baselines if baseline.name == name), None)
        steps: list[TakenStep] = []
        reports: list[ExperienceReport] = []
        episode_id, is_over, n_texts = f"{self.run.run_id}/{number}", False, 1
        while not is_over:
            state, legal = environment.observation(), environment.legal()
            before = environment.situation.prompt
            if baseline is None:
                question = PolicyQuestion(
                    embedding=environment.situation.embedding,
                    episode=environment.episode,
                    excluded=environment.excluded,
                )
                answer = self.served.decide(question, episode_id=episode_id, chooser="ppo")
                action = PROMPT_ACTIONS.index(answer.action)
            else:
                answer, action = None, baseline.policy.choose(state, legal, rng)
            step = environment.act(action, rng)
            n_texts += environment.situation.prompt != before
            is_over = step.is_over
            steps.append(TakenStep(state=state, legal=legal, action=action, reward=step.reward))
            if answer is not None and answer.decision_id is not None:
                reports.append(
                    ExperienceReport(
                        decision_id=answer.decision_id,
                        episode_id=episode_id,
                        step=answer.step,
                        reward=step.reward,
                        terminated=is_over,
                    )
                )
        played = PlayedEpisode(
            system=self.system,
            run_id=self.run.run_id,
            episode=number,
            policy=name,
            version=self.served.version,
            category=self.world.parameter,
            text_id=text_id_of(start.prompt),
            actions=tuple(PROMPT_ACTIONS[step.action] for step in steps),
            verdicts=tuple(self.world.verdicts),
            start_score=start.score,
            gain=environment.situation.score - start.score,
            reward=sum(step.reward for step in steps),
            n_evaluations=n_texts * self.world.n_cases,
            steps=() if baseline is None else tuple(steps),
        )
        return played, reports


@contextmanager
def open_policy_round(
    loaded: Loaded, *, seed: int | None = None, mock_url: str | None = None
) -> Iterator[PolicyRound]:
    """Open a round of a configuration's policy; one that was interrupted continues.

    Args:
        loaded: the configuration and its files.
        seed: in place of ``optimization.seed``.
        mock_url: server that answers in place of chat models; the store is one beside the usual one then.

    Raises:
        ConfigurationError: no text has ``mutate``, or something that it names is wrong.
        LeaseHeldError: another process plays a round of this system.
        PolicyBusyError: another process serves the store's policy.
        PolicyCheckpointError: the store's policy is of another embedding.
        StoreError: the store cannot be used.
    """
    with opened_world(loaded, seed=seed, mock_url=mock_url) as (run, world):
        settings = PolicySettings.of(HASHED_NGRAMS, EMBEDDING_DIM)
        with (
            ExperienceStore(run.store.path) as store,
            ServedPolicy(store, settings) as served,
        ):
            opened = PolicyRound(run, world, store, served)
            _ROUNDS[run.run_id] = opened
            try:
                yield opened
            finally:
                del _ROUNDS[run.run_id]


def play_round(
    opened: PolicyRound, tell: Callable[[str], None] | None = None
) -> PolicyRoundReport:
    """Take an open round to its end, as the flow ``policy`` does; return what it did.

    Args:
        opened: the round.
        tell: told of each step.
    """
    say = tell or (lambda _: None)
    if opened.is_simulation_due:
        n_simulated = opened.simulate()
        if n_simulated is not None:
            say(
                f"simulated: mean reward of a step {n_simulated.mean_reward:+.4f} in the last rollout"
            )
    while opened.should_continue():
        number = opened.number
        say(f"episode {number + 1}: {opened.play():,} evaluations")
    opened.update()
    return opened.report(opened.judge())


def round_of(run_id: str) -> PolicyRound:
    """Return a round that this process holds open.

    Raises:
        KeyError: there is none.
    """
    return _ROUNDS[run_id]


@contextmanager
def opened_world(
    loaded: Loaded, *, seed: int | None = None, mock_url: str | None = None
) -> Iterator[tuple[Run, TargetPrompts]]:
    """Open the prompts of a configuration, with the run that scores them; see ``open_policy_round``."""
    run = open_target_run(loaded, seed=seed, mock_url=mock_url)
    with run:
        run.begin_final()
        name = run.record.name.removesuffix(f".{POLICY_TAG}")
        world = TargetPrompts(
            run,
            n_cases=run.configuration.prompts.policy.n_cases,
            embedding_dim=EMBEDDING_DIM,
            texts=recorded_texts(run.store, name),
            mock_url=mock_url,
        )
        with closing(world):
            yield run, world


def open_target_run(
    loaded: Loaded, *, seed: int | None = None, mock_url: str | None = None
) -> Run:
    """Open a run under whose limits, ledger and journal prompts are scored, or go on with an interrupted one.

    Args:
        loaded: the configuration and its files.
        seed: in place of ``optimization.seed``.
        mock_url: server that answers in place of chat models.
    """
    configuration = with_overrides(
        loaded.configuration, seed=seed, budget=_share(loaded.configuration)
    )
    if mock_url is not None:
        configuration = _apart(configuration)
    loaded = replace(loaded, configuration=configuration)
    caller: Caller = {} if mock_url is None else {"mock_url": mock_url}
    return interrupted(loaded, caller, POLICY_TAG) or prepare_run(
        loaded, part=POLICY_TAG, **caller
    )


def _share(configuration: Configuration) -> dict[str, float | None]:
    """Return the limits of a round: its share of those of a run."""
    share, budget = configuration.prompts.policy.max_share, configuration.budget
    usd, calls = budget.max_usd, budget.max_calls
    return {
        "max_usd": None if usd is None else share * usd,
        "max_calls": None if calls is None else max(1, int(share * calls)),
    }


def _apart(configuration: Configuration) -> Configuration:
    """Return a configuration whose store lies beside the usual one."""
    storage = configuration.storage
    apart = storage.model_copy(update={"path": f"{storage.folder.rstrip('/')}{OFFLINE_FOLDER}"})
    return configuration.model_copy(update={"storage": apart})
