"""Feedback routes: logged answers, ratings, comparisons, counts."""

import asyncio
import functools
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import AfterValidator, BaseModel
from starlette.responses import Response

from convergence.service.auth import TOKEN
from convergence.service.bodies import Id, UserId, add_route, json_answer, without_secrets
from convergence.service.metrics import Metrics
from convergence.service.problems import RequestRefusedError
from convergence_core.feedback.rater_consensus import RaterProfile
from convergence_core.feedback.records import (
    AnswerChoice,
    AnswerComparison,
    Interaction,
    Mark,
    Rating,
    ReportedAnswer,
)
from tasks.serving.answers import RewardOutcome, as_dict
from tasks.serving.committer import Committer
from tasks.serving.rated_answers import mark_sent, pending_rewards
from tasks.serving.systems import Systems
from tasks.store.feedback.counts import (
    FeedbackCounts,
    comparable_raters,
    feedback_counts,
    store_consensus,
)
from tasks.store.feedback.feedback_store import (
    CompareStatus,
    FeedbackStore,
    RateStatus,
    new_interaction_id,
)

AnswerBody = Annotated[ReportedAnswer, AfterValidator(without_secrets)]
MarkBody = Annotated[Mark, AfterValidator(without_secrets)]
ChoiceBody = Annotated[AnswerChoice, AfterValidator(without_secrets)]


class InteractionAnswer(BaseModel):
    """Id of a logged answer."""

    interaction_id: str
    status: Literal["logged", "duplicate"]


class RatingAnswer(BaseModel):
    """Result of a rating."""

    interaction_id: str
    status: RateStatus
    label: str
    """The mark in words."""
    reward: float
    """The mark scaled to [-1, 1]."""
    arm_reward: RewardOutcome | None
    """Reward that the mark gave to the answer's arm. Null if the answer names no decision or an
    earlier mark was the reward.
    """


class WithdrawalAnswer(BaseModel):
    """Result of withdrawing a mark."""

    interaction_id: str
    deleted: bool
    """False if there was none."""


class ComparisonAnswer(BaseModel):
    """Result of a comparison."""

    status: CompareStatus


class RatersAnswer(BaseModel):
    """Raters who rated the same answers, most ratings first."""

    raters: list[RaterProfile]


class _Handlers:
    """Route handlers. Their docstrings are the schema's descriptions."""

    def __init__(
        self, feedback: FeedbackStore, systems: Systems, committer: Committer, metrics: Metrics
    ) -> None:
        self._feedback, self._systems = feedback, systems
        self._committer, self._metrics = committer, metrics

    async def log(self, body: AnswerBody) -> Response:
        """Log an answer; durable when this answers. Scope: update."""
        fields = as_dict(body) | {"event_id": body.event_id or new_interaction_id()}
        interaction = Interaction(
            **fields, interaction_id=new_interaction_id(), created_us=self._feedback.now_us()
        )
        await asyncio.to_thread(self._check_decision, interaction)
        stored = await asyncio.to_thread(self._feedback.log, interaction)
        is_new = stored.interaction_id == interaction.interaction_id
        status = "logged" if is_new else "duplicate"
        self._metrics.feedback("interaction", status)
        return json_answer({"interaction_id": stored.interaction_id, "status": status})

    async def rate(self, interaction_id: Id, body: MarkBody, request: Request) -> Response:
        """Rate an answer from 1 to 5, or with thumbs; durable when this answers. Scope: update.

        Users rate their own and shared answers; a token with scope admin rates any. A new rating
        of the same user replaces the first, but the arm's reward stays.
        """
        rating = Rating(**as_dict(body), interaction_id=interaction_id)
        receipt = await asyncio.to_thread(self._feedback.rate, rating, any_user=_is_admin(request))
        outcome = await self._reward(interaction_id)
        self._metrics.feedback("rating", receipt.status)
        stored = receipt.rating
        return json_answer(
            {
                "interaction_id": interaction_id,
                "status": receipt.status,
                "label": stored.words,
                "reward": stored.reward,
                "arm_reward": outcome,
            }
        )

    async def unrate(self, interaction_id: Id, user_id: UserId) -> Response:
        """Withdraw a user's mark: the answer becomes unrated. Scope: update."""
        rating = await asyncio.to_thread(self._feedback.unrate, interaction_id, user_id)
        self._metrics.feedback("rating", "deleted" if rating else "duplicate")
        return json_answer({"interaction_id": interaction_id, "deleted": rating is not None})

    async def compare(self, body: ChoiceBody, request: Request) -> Response:
        """Record which of two answers to one prompt is better; durable when this answers.

        Scope: update.
        """
        comparison = AnswerComparison(**as_dict(body))
        status = await asyncio.to_thread(
            self._feedback.compare, comparison, any_user=_is_admin(request)
        )
        self._metrics.feedback("comparison", status)
        return json_answer({"status": status})

    async def status(self) -> Response:
        """Count answers, ratings and comparisons, by role. Scope: select or update."""
        counts = await asyncio.to_thread(feedback_counts, self._feedback)
        return json_answer(counts)

    async def raters(self) -> Response:
        """Compare raters who rated the same answers. Scope: admin."""
        consensus = await asyncio.to_thread(store_consensus, self._feedback)
        return json_answer({"raters": comparable_raters(consensus)})

    async def _reward(self, interaction_id: str) -> RewardOutcome | None:
        """Reward the decision behind an answer, unless a rating has rewarded it already."""
        pending = await asyncio.to_thread(
            lambda: next(pending_rewards(self._feedback, interaction_id), None)
        )
        if pending is None:
            return None
        answer_id, system, reward = pending
        outcome = await self._committer.perform(self._systems.update(system, reward))
        self._metrics.rewarded(system, outcome)
        await asyncio.to_thread(
            mark_sent, self._feedback, answer_id, reward.reward, outcome.status
        )
        return outcome

    def _check_decision(self, interaction: Interaction) -> None:
        if interaction.decision_id is None or interaction.system is None:
            return
        if (
            self._systems.decision(
                interaction.system, interaction.user_id, interaction.decision_id
            )
            is None
        ):
            raise RequestRefusedError(404, "This user has no decision with that id.")


def feedback_routes(
    feedback: FeedbackStore, systems: Systems, committer: Committer, metrics: Metrics
) -> APIRouter:
    """Return the routes.

    Args:
        feedback: logged answers and ratings.
        systems: systems whose arms answered.
        committer: performs the rewards of their arms.
        metrics: counts events.
    """
    handlers = _Handlers(feedback, systems, committer, metrics)
    router = APIRouter(tags=["feedback"])

    add, address = functools.partial(add_route, router), "/v1/interactions/{interaction_id}"
    add("update", "POST", "/v1/interactions", handlers.log, InteractionAnswer, 404, 409)
    add("update", "POST", f"{address}/rating", handlers.rate, RatingAnswer, 404, 409)
    add("update", "DELETE", f"{address}/rating", handlers.unrate, WithdrawalAnswer, 404)
    add("update", "POST", f"{address}/thumbs", handlers.rate, RatingAnswer, 404, 409)
    add("update", "POST", "/v1/comparisons", handlers.compare, ComparisonAnswer, 404, 409)
    add(("select", "update"), "GET", "/v1/feedback/status", handlers.status, FeedbackCounts)
    add("admin", "GET", "/v1/feedback/raters", handlers.raters, RatersAnswer)
    return router


def _is_admin(request: Request) -> bool:
    return "admin" in request.scope[TOKEN].scopes
