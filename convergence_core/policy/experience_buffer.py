"""Steps of episodes that arrive one by one, until a policy learns from them.

Collectors ask for a decision, act, and report what came of it: in any order, several at once, sometimes twice.
The buffer keeps what the policy itself knew when it chose; a report adds the reward and whether the episode
ended. Only steps of the current version are learned from: the likelihood ratio of older ones would not begin at 1.
"""

from dataclasses import dataclass

import numpy as np

from convergence_core.errors import PolicyRequestError
from convergence_core.policy.distribution import Bools
from convergence_core.policy.network import Floats
from convergence_core.policy.rollout import Rollout
from convergence_core.policy.settings import PPOConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyDecision:
    """One choice of the policy."""

    decision_id: str
    episode_id: str
    """Episode, whose steps are ordered by number, from any start."""
    step: int
    """Number of the step, 0 or more."""
    version: int
    """Version of the policy that chose."""
    observation: Floats
    """(d,)."""
    legal: Bools
    """(n_actions,)."""
    action: int
    log_prob: float
    """Log-probability in nats."""
    value: float
    """Expected discounted return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """Outcome of a decision."""

    reward: float
    terminated: bool = False
    """Whether the episode ended naturally."""
    truncated: bool = False
    """Whether a limit cut the episode."""
    final_value: float = 0.0
    """Value of the observation at which the episode was cut; used only then."""


class ExperienceBuffer:
    """Decisions and their outcomes."""

    def __init__(self, version: int) -> None:
        self.version = version
        """Start with the version of the current policy."""
        self._decisions: dict[str, PolicyDecision] = {}
        self._outcomes: dict[str, StepOutcome] = {}
        self._places: dict[tuple[str, int], str] = {}

    def decide(self, decision: PolicyDecision) -> None:
        """Keep a decision of the current version.

        Raises:
            PolicyRequestError: its place in the episode is taken, or the episode has ended.
        """
        place = decision.episode_id, decision.step
        if place in self._places:
            raise PolicyRequestError(
                f"`step` must be new in its episode, but got {decision.step} of "
                f"{decision.episode_id!r} again; count steps up"
            )
        before = self._outcomes.get(self._places.get((place[0], place[1] - 1), ""))
        if before is not None and (before.terminated or before.truncated):
            raise PolicyRequestError(
                f"`episode_id` must be of an open episode, but {decision.episode_id!r} ended with "
                f"step {decision.step - 1}; start another one"
            )
        self._decisions[decision.decision_id] = decision
        self._places[place] = decision.decision_id

    def report(self, decision_id: str, outcome: StepOutcome) -> None:
        """Keep the outcome of a decision that waits; the same report may come again.

        Raises:
            PolicyRequestError: another outcome was reported before, or an episode would end before a
                step of it that was decided.
        """
        before = self._outcomes.get(decision_id)
        if before is not None and before != outcome:
            raise PolicyRequestError(
                f"`decision_id` {decision_id!r} has another outcome already: {before}; "
                "an outcome is reported once, or again as it was"
            )
        decision = self._decisions[decision_id]
        if (outcome.terminated or outcome.truncated) and self._following(decision) is not None:
            raise PolicyRequestError(
                f"`terminated` and `truncated` must be false for step {decision.step} of "
                f"{decision.episode_id!r}, because its next step was decided already"
            )
        self._outcomes[decision_id] = outcome

    def discard(self, decision_id: str) -> None:
        """Forget a decision whose outcome was not reported; the step before it stays unlearned."""
        decision = self._decisions.pop(decision_id)
        del self._places[decision.episode_id, decision.step]

    @property
    def n_ready(self) -> int:
        """Number of steps from which an update could learn now."""
        return sum(len(trajectory) for trajectory in self._trajectories())

    def rollout(self, config: PPOConfig) -> Rollout | None:
        """Return all ready steps as one column; ``None`` if they are fewer than a minibatch.

        A step is ready when its outcome is known, and either its episode ended or the value of its
        next decision is known.
        """
        pieces = self._trajectories()
        if sum(len(piece) for piece in pieces) < config.batch_size:
            return None
        rows = [row for piece in pieces for row in piece]
        outcomes = [self._outcomes[row.decision_id] for row in rows]
        last = {piece[-1].decision_id for piece in pieces}
        cut = [
            row.decision_id in last and not outcome.terminated
            for row, outcome in zip(rows, outcomes, strict=True)
        ]
        finals = [
            self._value_after(row, outcome) if is_cut else 0.0
            for row, outcome, is_cut in zip(rows, outcomes, cut, strict=True)
        ]

        def column(values: list[float]) -> Floats:
            return np.array(values, dtype=rows[0].observation.dtype)[:, None]

        return Rollout(
            version=self.version,
            observations=np.stack([row.observation for row in rows])[:, None],
            legal=np.stack([row.legal for row in rows])[:, None],
            actions=np.array([row.action for row in rows], dtype=np.int64)[:, None],
            log_probs=column([row.log_prob for row in rows]),
            values=column([row.value for row in rows]),
            rewards=column([outcome.reward for outcome in outcomes]),
            terminated=np.array([outcome.terminated for outcome in outcomes])[:, None],
            truncated=np.array(cut)[:, None],
            final_values=column(finals),
            last_values=column([0.0])[0],
        )

    def advance(self, version: int) -> None:
        """Begin the next version, without the decisions before it."""
        self.version = version
        self._decisions, self._outcomes, self._places = {}, {}, {}

    def _following(self, decision: PolicyDecision) -> PolicyDecision | None:
        decision_id = self._places.get((decision.episode_id, decision.step + 1))
        return None if decision_id is None else self._decisions[decision_id]

    def _value_after(self, decision: PolicyDecision, outcome: StepOutcome) -> float:
        """Return the value of the observation at which a trajectory stops."""
        following = self._following(decision)
        return outcome.final_value if outcome.truncated or following is None else following.value

    def _trajectories(self) -> list[list[PolicyDecision]]:
        """Return runs of consecutive ready steps, by episode and step."""
        pieces: list[list[PolicyDecision]] = []
        is_open = False
        for episode, step in sorted(self._places):
            following = self._decisions[self._places[episode, step]]
            outcome = self._outcomes.get(following.decision_id)
            ends = outcome is not None and (outcome.terminated or outcome.truncated)
            if outcome is None or not (ends or self._following(following) is not None):
                is_open = False
                continue
            joins = is_open and pieces[-1][-1].episode_id == episode
            if joins and pieces[-1][-1].step == step - 1:
                pieces[-1].append(following)
            else:
                pieces.append([following])
            is_open = not ends
        return pieces
