"""Routes of the policy that chooses prompt changes."""

import asyncio
import functools
import logging
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, StrictBool
from starlette.responses import Response

from convergence.service.bodies import Body, add_route, json_answer, without_secrets
from convergence.service.metrics import Metrics
from convergence_core.errors import PolicyBusyError, StoreError
from convergence_core.field_types import Count, Name
from convergence_core.policy.learner import UpdateStatistics
from convergence_core.policy.prompt_state import PROMPT_ACTIONS
from convergence_core.records import fields_of
from tasks.policy.prompt_mutator import PromptMutator
from tasks.policy.records import (
    Action,
    ChosenAction,
    Embedding,
    ExperienceReceipt,
    ExperienceReport,
    MutatedAction,
    PolicyQuestion,
    PromptFailure,
    PromptText,
    StepReward,
)
from tasks.policy.served_policy import ServedPolicy
from tasks.serving.answers import as_dict

DEFAULT_CHECKPOINT: Final = "latest"
CheckpointName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
_log = logging.getLogger("convergence.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMount:
    """A policy and the path prefix of its routes."""

    policy: ServedPolicy
    mutator: PromptMutator
    prefix: str = ""
    """Path prefix, e.g. ``/policy``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActionRequest(PolicyQuestion):
    """A request for an action."""

    episode_id: Name | None = None
    """The episode to continue. Absent: a new one."""
    deterministic: StrictBool = False
    """Whether to take the most probable action. Nothing is learned from it then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MutationRequest(ActionRequest):
    """A request for a changed prompt."""

    prompt: PromptText
    failures: Annotated[tuple[PromptFailure, ...], Field(max_length=32)] = ()
    """Cases that the prompt failed, for the writer. `reflect` needs some."""


ActionBody = Annotated[ActionRequest, AfterValidator(without_secrets)]
MutationBody = Annotated[MutationRequest, AfterValidator(without_secrets)]


class TransitionBody(BaseModel):
    """Outcome of an action as a transition of a Markov decision process, without ids."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    state: Embedding
    """Embedding of the prompt before the action."""
    action: (
        Action
        | Annotated[
            Count,
            Field(lt=len(PROMPT_ACTIONS), json_schema_extra={"maximum": len(PROMPT_ACTIONS) - 1}),
        ]
    )
    """Action name, or its index among the `actions` of `GET /stats`."""
    reward: StepReward
    next_state: Embedding
    """Embedding of the prompt after it."""
    done: StrictBool
    """Whether the episode terminated. Otherwise the value of `next_state` estimates the rest."""


OutcomeBody = Annotated[ExperienceReport | TransitionBody, AfterValidator(without_secrets)]


class CheckpointBody(Body):
    """A checkpoint's name."""

    name: CheckpointName = Field(DEFAULT_CHECKPOINT, validation_alias=AliasChoices("name", "path"))
    """Checkpoint in the store's folder: small letters, digits, - and _. `path` means the same."""


class UpdateAnswer(BaseModel):
    """Result of an update."""

    updated: bool
    """False if the ready steps are fewer than a minibatch."""
    policy_version: int
    statistics: UpdateStatistics | None


class DistributionAnswer(BaseModel):
    """Probabilities of all actions."""

    probabilities: dict[str, float]
    """Probability of each action; 0 for an illegal one."""
    value: float
    policy_version: int


class PolicyStatsAnswer(BaseModel):
    """Statistics of the policy."""

    policy_version: int
    n_steps_learned: int
    n_experiences: int
    """Stored experiences, those of older versions included."""
    n_ready: int
    """Steps that an update could learn from now."""
    n_pending: int
    """Decisions without a reported outcome."""
    is_updating: bool
    embedding: str
    embedding_dim: int
    max_steps: int
    actions: list[str]
    checkpoints: list[str]
    config: dict[str, Any]
    last_update: UpdateStatistics | None
    """Last update of this process; null if there was none."""


class CheckpointAnswer(BaseModel):
    """A saved or loaded checkpoint."""

    name: str
    policy_version: int
    """Version saved, or version that continues from it."""


class PolicyRoutes:
    """The policy's routes and background learning. Docstrings are the schema's descriptions."""

    def __init__(self, mount: PolicyMount, metrics: Metrics) -> None:
        self._policy, self._mutator = mount.policy, mount.mutator
        self._metrics = metrics
        self._learning: asyncio.Task[None] | None = None
        self.router = self._routes(mount.prefix)

    async def aclose(self) -> None:
        """Wait for a running update, and close the policy and the models."""
        if self._learning is not None:
            await self._learning
        await asyncio.to_thread(self._policy.close)
        await self._mutator.aclose()

    async def select_action(self, body: ActionBody) -> Response:
        """Choose the next prompt change. Scope: select."""
        answer = self._decided(body)
        self._metrics.policy("decision", answer.action)
        return json_answer(answer)

    async def select_mutation(self, body: MutationBody) -> Response:
        """Choose the next prompt change and make it, with a call of the writer. Scope: chat."""
        inapplicable = self._mutator.inapplicable(body.prompt, has_failures=bool(body.failures))
        answer = self._decided(replace(body, excluded=(*body.excluded, *inapplicable)))
        self._metrics.policy("decision", answer.action)
        mutated = await self._mutator.mutate(
            body.prompt,
            answer.action,
            failures=body.failures,
            category=body.category,
        )
        self._metrics.policy("mutation", mutated.verdict)
        return json_answer(as_dict(answer) | as_dict(mutated))

    async def store_experience(self, body: OutcomeBody) -> Response:
        """Store the outcome of a decision; durable when this answers. Scope: update.

        The same outcome again is a duplicate and counts once, so clients may repeat the request.
        The policy's own log-probability and value at the choice count. A transition without ids
        belongs to the decision that waits for this state and action. Without such a decision, it
        counts as a choice of the current version, and a repetition counts again.
        """
        report = self._report_of(body) if isinstance(body, TransitionBody) else body
        if report.final is not None:
            report = replace(report, final=self._embedded(report.final))
        receipt = await asyncio.to_thread(self._policy.take, report)
        if self._policy.is_update_due and (self._learning is None or self._learning.done()):
            self._learning = asyncio.create_task(self._learn())
        self._metrics.policy("experience", receipt.status)
        return json_answer(receipt)

    async def update(self) -> Response:
        """Learn from the ready steps while other requests continue. Scope: update."""
        update = await asyncio.to_thread(self._policy.update)
        self._metrics.policy("update", "done" if update is not None else "too_few_steps")
        return json_answer(
            {
                "updated": update is not None,
                "policy_version": self._policy.version,
                "statistics": update,
            }
        )

    async def distribution(self, body: PolicyQuestion) -> Response:
        """Return the probabilities of all actions; nothing is stored. Scope: select."""
        answer = self._policy.decide(self._embedded(body), deterministic=True)
        shares = dict(zip(PROMPT_ACTIONS, answer.probabilities, strict=True))
        return json_answer(
            {
                "probabilities": shares,
                "value": answer.value,
                "policy_version": answer.policy_version,
            }
        )

    async def save(self, body: CheckpointBody) -> Response:
        """Save the policy, replacing a checkpoint of the same name. Scope: admin."""
        version = await asyncio.to_thread(self._policy.save, body.name)
        return json_answer({"name": body.name, "policy_version": version})

    async def load(self, body: CheckpointBody) -> Response:
        """Continue with a saved policy, as a new version. Scope: admin."""
        version = await asyncio.to_thread(self._policy.load, body.name)
        return json_answer({"name": body.name, "policy_version": version})

    async def stats(self) -> Response:
        """Return the policy's versions, steps, settings and last update. Scope: select."""
        return json_answer(await asyncio.to_thread(self._policy.stats))

    def _routes(self, prefix: str) -> APIRouter:
        router = APIRouter(tags=["policy"], prefix=prefix)

        add = functools.partial(add_route, router)
        add("select", "POST", "/select_action", self.select_action, ChosenAction, 409, 502)
        add("chat", "POST", "/select_mutation", self.select_mutation, MutatedAction, 409, 502)
        add("update", "POST", "/store_experience", self.store_experience, ExperienceReceipt,
            404, 409, 502)  # fmt: skip
        add("update", "POST", "/update", self.update, UpdateAnswer, 409)
        add("select", "POST", "/get_distribution", self.distribution, DistributionAnswer, 409, 502)
        add("admin", "POST", "/save", self.save, CheckpointAnswer, 409)
        add("admin", "POST", "/load", self.load, CheckpointAnswer, 404, 409)
        add("select", "GET", "/stats", self.stats, PolicyStatsAnswer)
        return router

    def _decided(self, body: ActionRequest) -> ChosenAction:
        return self._policy.decide(
            self._embedded(body), episode_id=body.episode_id, deterministic=body.deterministic
        )

    def _embedded(self, question: PolicyQuestion) -> PolicyQuestion:
        """Return a question with its prompt's embedding, computed if absent."""
        if question.embedding is not None or question.prompt is None:
            return question
        settings = self._policy.settings
        embedding = self._mutator.embedding(
            question.prompt, settings.embedding, settings.embedding_dim
        )
        return replace(question, embedding=embedding.tolist())

    def _report_of(self, transition: TransitionBody) -> ExperienceReport:
        """Return the outcome of the decision to which a transition belongs."""
        action = (
            transition.action
            if isinstance(transition.action, str)
            else PROMPT_ACTIONS[transition.action]
        )
        decision = self._policy.claim(PolicyQuestion(embedding=transition.state), action)
        return ExperienceReport(
            **fields_of(decision, "decision_id", "episode_id", "step"),
            reward=transition.reward,
            terminated=transition.done,
            truncated=not transition.done,
            final=None if transition.done else PolicyQuestion(embedding=transition.next_state),
        )

    async def _learn(self) -> None:
        """Learn from a whole rollout, unless an update is already running."""
        try:
            update = await asyncio.to_thread(self._policy.update)
        except PolicyBusyError:
            return
        except StoreError:
            _log.exception("the policy could not be updated; the previous version stays active")
            self._metrics.policy("update", "failed")
            return
        if update is not None:
            self._metrics.policy("update", "done")
