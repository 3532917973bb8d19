"""ASGI application of the service: its routes and their error handlers."""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from convergence.service import bodies
from convergence.service.bodies import Id, RequestKey, System, UserId, add_route, json_answer
from convergence.service.chat import chat_routes, generation_routes
from convergence.service.feedback import feedback_routes
from convergence.service.metrics import CONTENT_TYPE, Metrics
from convergence.service.passthrough import passthrough_routes
from convergence.service.policy import PolicyMount, PolicyRoutes
from convergence.service.problems import (
    PROBLEM,
    ProblemResponse,
    RequestRefusedError,
    error_handler,
    refusals,
)
from convergence.service.tokens import SCOPES
from convergence_core.errors import (
    ArmChangedError,
    FeedbackRefusedError,
    InteractionNotFoundError,
    NoArmsError,
    PolicyBusyError,
    PolicyCheckpointError,
    PolicyDecisionNotFoundError,
    RequestReusedError,
    RewardError,
    StoreError,
    WrongUserError,
)
from tasks.chat.logged_chat import LoggedChat
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.serving.answers import Arm, RewardOutcome, Selection, as_dict
from tasks.serving.committer import BusyError, Committer
from tasks.serving.settings import RuntimeArm
from tasks.serving.systems import Systems
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.rows import Decision

AgentType = Annotated[str | None, Query(min_length=1, max_length=200)]
_MISMATCH = "The request does not match the schema."
_NOT_FOUND = (NoArmsError, InteractionNotFoundError, PolicyDecisionNotFoundError)
_CONFLICTS = (
    ArmChangedError, FeedbackRefusedError, PolicyBusyError, PolicyCheckpointError, RequestReusedError
)  # fmt: skip


def make_app(
    systems: Systems,
    committer: Committer,
    metrics: Metrics,
    feedback: FeedbackStore,
    *,
    version: str,
    has_docs: bool,
    chat: LoggedChat | None = None,
    policy: PolicyMount | None = None,
) -> FastAPI:
    """Return the application, which belongs behind an ``AuthMiddleware``.

    Args:
        systems: the runtime systems to serve.
        committer: performs choices and rewards.
        metrics: counts choices and rewards.
        feedback: logged answers and their ratings; closed with the application.
        version: product version.
        has_docs: whether `/docs` shows the schema of `/openapi.json`.
        chat: answers conversations; closed with the application. ``None`` leaves out the routes.
        policy: chooses changes of prompts; closed with the application. ``None`` leaves out the
            routes.
    """
    learning = None if policy is None else PolicyRoutes(policy, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if chat is not None:
            await chat.aclose()
        if learning is not None:
            await learning.aclose()
        # All requests have their answers by now. The committer still stores what waits in its
        # queue.
        await asyncio.to_thread(committer.close)
        await asyncio.to_thread(feedback.close)

    app = FastAPI(
        title="The Convergence",
        version=version,
        description="Arms for requests, their rewards, and people's ratings of answers.",
        lifespan=lifespan,
        docs_url="/docs" if has_docs else None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    _add_error_handlers(app)
    _add_routes(app, _Handlers(systems, committer, metrics, version))
    app.include_router(feedback_routes(feedback, systems, committer, metrics))
    if chat is not None:
        app.include_router(chat_routes(chat))
        app.include_router(generation_routes(chat))
        app.include_router(passthrough_routes(chat))
    if learning is not None:
        app.include_router(learning.router)
    _secure(app)
    return app


class _Handlers:
    """Route handlers. Their docstrings are the schema's descriptions."""

    def __init__(
        self, systems: Systems, committer: Committer, metrics: Metrics, version: str
    ) -> None:
        self._systems, self._committer = systems, committer
        self._metrics, self._version = metrics, version

    async def select(
        self, system: System, body: bodies.SelectBody, key: RequestKey = None
    ) -> Response:
        """Choose an arm for a request; the decision is durable when this answers. Scope: select."""
        operation = self._systems.selection(
            system,
            user_id=body.user_id,
            agent_type=body.agent_type,
            context=body.context,
            request_key=key,
        )
        if "text" in (body.context or {}):  # an embedder needs time for it
            await asyncio.to_thread(operation.read)
        selection = await self._committer.perform(operation)
        if not operation.is_repeat:
            self._metrics.decided(system, selection.arm_id)
        return json_answer(as_dict(selection, Selection))

    async def update(self, system: System, body: bodies.RewardBody) -> Response:
        """Learn the reward of a decision; durable when this answers. Scope: update.

        The same reward again is a duplicate and counts once, so clients may repeat the request.
        """
        outcome = await self._committer.perform(self._systems.update(system, body))
        if outcome.status != "none":
            self._metrics.rewarded(system, outcome)
        return json_answer(outcome, {"unknown": 404, "conflict": 409}.get(outcome.status, 200))

    async def arms(self, system: System, agent_type: AgentType = None) -> Response:
        """List all arms, active and retired, with their posteriors. Scope: select."""
        arms = await asyncio.to_thread(self._systems.arms, system, agent_type)
        return json_answer({"arms": arms})

    async def offer(self, system: System, arm_id: Id, body: bodies.ArmBody) -> Response:
        """Activate an arm, new or retired. Scope: admin."""
        prior = body.prior and {"prior_mean": body.prior.mean, "prior_sd": body.prior.sd}
        arm = RuntimeArm(arm_id=arm_id, params=body.params, cost=body.cost, **(prior or {}))

        def offered() -> Arm:
            self._systems.offer(system, (arm,), body.agent_type)
            kind = body.agent_type or self._systems.config(system).agent_type
            return next(arm for arm in self._systems.arms(system, kind) if arm.arm_id == arm_id)

        return json_answer(await asyncio.to_thread(offered))

    async def retire(self, system: System, arm_id: Id, agent_type: AgentType = None) -> Response:
        """Retire an arm; its decisions and rewards stay. Scope: admin."""
        was_on = await asyncio.to_thread(self._systems.retire, system, arm_id, agent_type)
        return json_answer({"arm_id": arm_id, "retired": was_on})

    async def decision(self, system: System, decision_id: Id, user_id: UserId) -> Response:
        """Return a user's decision and its reward. Scope: select or update."""
        decision = await asyncio.to_thread(self._systems.decision, system, user_id, decision_id)
        if decision is None:
            raise RequestRefusedError(404, "This user has no decision with that id.")
        return json_answer(decision)

    async def gates(self, system: System) -> Response:
        """Return the evidence from traffic, every look of a gate, and the champion.

        Scope: select.
        """
        gates = await asyncio.to_thread(self._systems.gates, system)
        if gates is None:
            raise RequestRefusedError(404, "No such system is known.")
        return json_answer(gates)

    async def health(self) -> Response:
        """Report that the service runs and can read its store. Any token."""
        await asyncio.to_thread(self._systems.store.systems)
        waiting = self._committer.n_waiting
        return json_answer({"status": "ok", "version": self._version, "waiting": waiting})

    async def metrics(self) -> Response:
        """Return the metrics of this process for Prometheus. Any token."""
        return Response(self._metrics.page(), headers={"Content-Type": CONTENT_TYPE})


def _add_routes(app: FastAPI, handlers: _Handlers) -> None:
    add = functools.partial(add_route, app.router)
    unmet = {
        404: "The decision is not known.",
        409: "The decision has another reward already.",
    }
    not_learned: dict[int | str, Any] = {
        status: {"model": RewardOutcome, "description": meaning, "content": PROBLEM}
        for status, meaning in unmet.items()
    }
    system = "/v1/systems/{system}"
    one_arm, one_decision = f"{system}/arms/{{arm_id}}", f"{system}/decisions/{{decision_id}}"
    add("select", "POST", f"{system}/select", handlers.select, Selection, 404, 409,
        tags=["traffic"])  # fmt: skip
    add("update", "POST", f"{system}/update", handlers.update, RewardOutcome, tags=["traffic"],
        responses=not_learned)  # fmt: skip
    add("select", "GET", f"{system}/arms", handlers.arms, bodies.ArmsAnswer, 404, tags=["arms"])
    add("admin", "PUT", one_arm, handlers.offer, Arm, 409, tags=["arms"])
    add("admin", "DELETE", one_arm, handlers.retire, bodies.RetiredAnswer, 404, tags=["arms"])
    add(("select", "update"), "GET", one_decision, handlers.decision, Decision, 404,
        tags=["traffic"])  # fmt: skip
    add("select", "GET", f"{system}/gates", handlers.gates, bodies.GatesAnswer, 404,
        tags=["evidence"])  # fmt: skip
    add(SCOPES, "GET", "/health", handlers.health, bodies.HealthAnswer, tags=["service"])
    text: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    app.add_api_route(
        "/metrics", handlers.metrics, responses={**text, **refusals()}, response_class=Response,
        tags=["service"],
    )  # fmt: skip


def _add_error_handlers(app: FastAPI) -> None:
    answers: dict[type[Exception], Callable[[Any], ProblemResponse]] = {
        RequestRefusedError: _refused,
        WrongUserError: lambda e: ProblemResponse(403, str(e)),
        **dict.fromkeys(_NOT_FOUND, lambda e: ProblemResponse(404, str(e))),
        **dict.fromkeys(_CONFLICTS, lambda e: ProblemResponse(409, str(e))),
        BusyError: lambda e: ProblemResponse(503, str(e), {"Retry-After": "1"}),
        StoreError: lambda _: ProblemResponse(503, "The store cannot be used; see the log."),
        RewardError: lambda e: ProblemResponse(422, one_line(str(e), 500, redacted_text)),
        # A value that fits the schema but not this system's arms.
        ValueError: lambda e: ProblemResponse(409, one_line(str(e), 500, redacted_text)),
        RequestValidationError: lambda e: ProblemResponse(
            422, _MISMATCH, errors=[_reason(error) for error in e.errors()[:20]]
        ),
        Exception: lambda _: ProblemResponse(500, "The service failed; see its log."),
    }

    async def refuse(request: Request, error: Exception) -> ProblemResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type
        headers = dict(error.headers or {})
        reason = _unread_reason(error.__cause__)
        if error.status_code == 400 and reason is not None:
            return ProblemResponse(422, _MISMATCH, errors=[reason])
        if error.status_code == 405:  # a route knows its own method only
            headers["Allow"] = ", ".join(sorted(_methods(app, request.url.path)))
        return ProblemResponse(error.status_code, str(error.detail), headers)

    app.add_exception_handler(HTTPException, refuse)
    for kind, answer in answers.items():
        app.add_exception_handler(
            kind, error_handler(answer, is_logged=kind in {StoreError, Exception})
        )


def _reason(error: dict[str, Any]) -> str:
    """Return the place and rule of an invalid part of a request, without its content."""
    if error["type"] == "json_invalid":
        part, at = error["loc"]
        return f"{part}: must be JSON, but at character {at + 1}: {error['ctx']['error']}"
    place = ".".join(str(part) for part in error["loc"])
    reason = f"{place}: {error['msg'].removeprefix('Value error, ')}"
    return one_line(reason, 500, redacted_text)  # a key of the body may be anything


def _unread_reason(cause: BaseException | None) -> str | None:
    """Return why a body could not be read as JSON; ``None`` if for another reason."""
    if isinstance(cause, RecursionError):
        return "body: is nested too deeply. Send fewer levels"
    if isinstance(cause, UnicodeDecodeError):
        return f"body: must be UTF-8 text, but byte {cause.start + 1} is not"
    if isinstance(cause, ValueError):
        return f"body: a whole number must have at most {sys.get_int_max_str_digits():,} digits"
    return None


def _refused(error: RequestRefusedError) -> ProblemResponse:
    more = {} if error.code is None else {"code": error.code}
    return ProblemResponse(error.status, error.detail, error.headers, **more)


def _methods(app: FastAPI, path: str) -> set[str]:
    """Return the methods that a path accepts."""
    return {
        method
        for route in app.routes
        if isinstance(route, Route) and route.path_regex.match(path)
        for method in route.methods or ()
    }


def _secure(app: FastAPI) -> None:
    """Add the bearer token and the form of a refusal to the schema of every path."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        parts = schema.setdefault("components", {})
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        problem = bodies.ProblemAnswer.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        parts.setdefault("schemas", {})["ProblemAnswer"] = problem
        schema["security"] = [{"token": []}]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
