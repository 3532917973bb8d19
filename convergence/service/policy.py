"""Routes of the policy that chooses changes of prompts."""

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
    """A policy and where it is served."""

    policy: ServedPolicy
    mutator: PromptMutator
    prefix: str = ""
    """Before its paths, e.g. ``/policy``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActionRequest(PolicyQuestion):
    """A request for an action."""

    episode_id: Name | None = None
    """The episode that this goes on with. Absent: a new one."""
    deterministic: StrictBool = False
    """Whether to take the likeliest action. Nothing is learned from it then."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MutationRequest(ActionRequest):
    """A request for a changed prompt."""

    prompt: PromptText
    failures: Annotated[tuple[PromptFailure, ...], Field(max_length=32)] = ()
    """Cases that the prompt got wrong, which the writer sees. `reflect` needs some."""


ActionBody = Annotated[ActionRequest, AfterValidator(without_secrets)]
MutationBody = Annotated[MutationRequest, AfterValidator(without_secrets)]


class TransitionBody(BaseModel):
    """What came of an action, in the form of a Markov decision process, without ids."""

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
    """Its name, or its index among the `actions` of `GET /stats`."""
    reward: StepReward
    next_state: Embedding
    """Embedding of the prompt after it."""
    done: StrictBool
    """Whether the episode ended for good. Otherwise the value of `next_state` stands for what follows."""


OutcomeBody = Annotated[ExperienceReport | TransitionBody, AfterValidator(without_secrets)]


class CheckpointBody(Body):
    """A checkpoint's name."""

    name: CheckpointName = Field(DEFAULT_CHECKPOINT, validation_alias=AliasChoices("name", "path"))
    """A word of small letters, digits, - and _, within the store's folder of checkpoints. `path` means the same."""


class UpdateAnswer(BaseModel):
    """What an update did."""

    updated: bool
    """False: the steps that are ready are fewer than a minibatch."""
    policy_version: int
    statistics: UpdateStatistics | None


class DistributionAnswer(BaseModel):
    """Probabilities of all actions."""

    probabilities: dict[str, float]
    """By action; 0 for an illegal one."""
    value: float
    policy_version: int


class PolicyStatsAnswer(BaseModel):
    """Numbers of the policy."""

    policy_version: int
    n_steps_learned: int
    n_experiences: int
    """That are stored, those of older versions included."""
    n_ready: int
    """Steps that an update could learn from now."""
    n_pending: int
    """Decisions whose outcome was not reported."""
    is_updating: bool
    embedding: str
    embedding_dim: int
    max_steps: int
    actions: list[str]
    checkpoints: list[str]
    config: dict[str, Any]
    last_update: UpdateStatistics | None
    """Of this process. Null: there was none."""


class CheckpointAnswer(BaseModel):
    """A checkpoint that was saved or loaded."""

    name: str
    policy_version: int
    """That was saved, or that goes on from it."""


class PolicyRoutes:
    """The policy's routes, and what runs beside them; docstrings are the schema's descriptions."""

    def __init__(self, mount: PolicyMount, metrics: Metrics) -> None:
        self._policy, self._mutator = mount.policy, mount.mutator
        self._metrics = metrics
        self._learning: asyncio.Task[None] | None = None
        self.router = self._routes(mount.prefix)

    async def aclose(self) -> None:
        """Wait for an update that runs, and close the policy and the models."""
        if self._learning is not None:
            await self._learning
        await asyncio.to_thread(self._policy.close)
        await self._mutator.aclose()

    async def select_action(self, body: ActionBody) -> Response:
        """Choose the next change of a prompt. Scope: select."""
        answer = self._decided(body)
        self._metrics.policy("decision", answer.action)
        return json_answer(answer)

    async def select_mutation(self, body: MutationBody) -> Response:
        """Choose the next change of a prompt, and do it: a call of the writer. Scope: chat."""
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
        """Take in what came of a decision; durable when this answers. Scope: update.

        The same outcome again is a duplicate and counts once, so this may be repeated at will. The
        log-probability and the value are those that the policy itself had when it chose. A transition without
        ids belongs to the decision that waits for this state and action; without one, the policy counts it as a
        choice of its current version, and a repetition counts again.
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
        """Learn from the steps that are ready; other requests go on meanwhile. Scope: update."""
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
        """Return the probabilities of all actions; nothing is kept. Scope: select."""
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
        """Save the policy under a name, in place of the one that had it. Scope: admin."""
        version = await asyncio.to_thread(self._policy.save, body.name)
        return json_answer({"name": body.name, "policy_version": version})

    async def load(self, body: CheckpointBody) -> Response:
        """Go on with a saved policy, as a new version. Scope: admin."""
        version = await asyncio.to_thread(self._policy.load, body.name)
        return json_answer({"name": body.name, "policy_version": version})

    async def stats(self) -> Response:
        """Return numbers of the policy: versions, steps, settings, the last update. Scope: select."""
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
        """Return a question with the embedding of its prompt, if it came without one."""
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
        """Learn from a whole rollout, unless a request asked for it already."""
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
