"""The ASGI application: routes of the service."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from convergence.runtime.settings import RuntimeArm
from convergence.runtime.systems import (
    DefaultServed,
    MissingRewardError,
    Reward,
    Systems,
    shown_update,
)
from convergence.service import bodies
from convergence.service.auth import TOKEN
from convergence.service.fast_bodies import body_of, described, key_of, read_bodies, system_of
from convergence.service.metrics import CONTENT_TYPE, Metrics
from convergence.service.problems import PROBLEM, ProblemResponse, RequestRefusedError, refusals
from convergence.service.tokens import Scope
from convergence_core.errors import ArmChangedError, NoArmsError, RequestReusedError, StoreError
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.serving.committer import BusyError, Committer
from tasks.store.runtime.promotions import champion_of, looks
from tasks.store.runtime.watches import alarms, guards as guards_of

System = Annotated[str, Path(min_length=1, max_length=200)]
Id = Annotated[str, Path(min_length=1, max_length=200)]
UserId = Annotated[str, Query(min_length=1, max_length=200)]
AgentType = Annotated[str | None, Query(min_length=1, max_length=200)]
_GUARD = ("promoted", "champion", "alpha", "tolerance", "holdback", "decision")
_ALARM = ("agent_type", "arm_id", "before", "after", "n", "created_us")
_log = logging.getLogger("convergence.service")


def make_app(
    systems: Systems, committer: Committer, metrics: Metrics, *, version: str, has_docs: bool
) -> FastAPI:
    """Return the application, to be put behind a ``AuthMiddleware``.

    Args:
        systems: what is served.
        committer: performs choices and rewards.
        metrics: counts them.
        version: of the product.
        has_docs: whether `/docs` shows the schema of `/openapi.json`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        # Requests have been answered by now; what is in line is none's any more, and is kept.
        await asyncio.to_thread(committer.close)

    app = FastAPI(
        title="The Convergence",
        version=version,
        description="Arms for requests, and what came of them.",
        lifespan=lifespan,
        docs_url="/docs" if has_docs else None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    _add_error_handlers(app)
    _add_traffic(app, systems, committer, metrics)
    _add_arms(app, systems)
    _add_looks(app, systems)
    _add_health(app, systems, committer, metrics, version)
    _secure(app)
    return app


def _add_traffic(app: FastAPI, systems: Systems, committer: Committer, metrics: Metrics) -> None:
    @app.post(
        "/v1/systems/{system}/select",
        responses={200: {"model": bodies.SelectAnswer}, **refusals(404, 409)},
        openapi_extra=described(bodies.SelectBody, has_key=True),
        tags=["traffic"],
    )
    async def select(request: Request) -> Response:
        """Choose an arm for a request; the decision is durable when this answers. Scope: select."""
        _require(request, "select")
        system, body = system_of(request), await body_of(request, bodies.SelectBody)
        found = await committer.perform(
            systems.selecting(
                system,
                user_id=body.user_id,
                agent_type=body.agent_type,
                context=body.context,
                request_key=key_of(request),
            )
        )
        if isinstance(found, DefaultServed):
            metrics.decided(system, found.arm_id)
            return _json(
                {
                    "decision_id": None, "arm_id": found.arm_id, "params": dict(found.params),
                    "sampled_value": None, "propensity": None, "policy_version": None,
                    "fresh": False,
                }
            )  # fmt: skip
        metrics.decided(system, found.arm_id)
        return _json(
            {
                "decision_id": found.decision_id, "arm_id": found.arm_id,
                "params": dict(found.params), "sampled_value": found.sampled_value,
                "propensity": found.propensity, "policy_version": found.version,
                "fresh": found.is_fresh,
            }
        )  # fmt: skip

    @app.post(
        "/v1/systems/{system}/update",
        responses={
            200: {"model": bodies.UpdateAnswer},
            **refusals(),
            404: {
                "model": bodies.UpdateAnswer,
                "description": "Nobody knows the decision.",
                "content": PROBLEM,
            },
            409: {
                "model": bodies.UpdateAnswer,
                "description": "It has another reward already, or learns from no such reward.",
                "content": PROBLEM,
            },
        },
        openapi_extra=described(bodies.UpdateBody),
        tags=["traffic"],
    )
    async def update(request: Request) -> Response:
        """Take in what came of a decision; durable when this answers. Scope: update.

        The same reward again is a duplicate and counts once, so this may be repeated at will.
        """
        _require(request, "update")
        system, body = system_of(request), await body_of(request, bodies.UpdateBody)
        told = Reward(
            user_id=body.user_id,
            decision_id=body.decision_id,
            reward=body.reward,
            signals=body.signals,
            engagement_score=body.engagement_score,
            grading_score=body.grading_score,
            metadata=body.metadata,
            cost=body.cost,
        )
        operation = systems.updating(system, told)
        try:
            learned = await committer.perform(operation)
        except MissingRewardError:
            return _json(shown_update(told, None, None))
        metrics.rewarded(system, learned.status, is_alarm=learned.alarm is not None)
        status = {"unknown": 404, "conflict": 409}.get(learned.status, 200)
        return _json(shown_update(told, operation.reward, learned), status)


def _add_arms(app: FastAPI, systems: Systems) -> None:
    @app.get(
        "/v1/systems/{system}/arms",
        responses={200: {"model": bodies.ArmsAnswer}, **refusals(404)},
        tags=["arms"],
    )
    async def arms(system: System, request: Request, agent_type: AgentType = None) -> Response:
        """List arms with what is believed of them, those retired included. Scope: select."""
        _require(request, "select")
        return _json({"arms": await asyncio.to_thread(systems.arms, system, agent_type)})

    @app.put(
        "/v1/systems/{system}/arms/{arm_id}",
        responses={200: {"model": bodies.ArmAnswer}, **refusals(409)},
        tags=["arms"],
    )
    async def offer(
        system: System, arm_id: Id, body: bodies.ArmBody, request: Request
    ) -> Response:
        """Put an arm on offer, or back on offer. Scope: admin."""
        _require(request, "admin")
        return _json(await asyncio.to_thread(_offered, systems, system, arm_id, body))

    @app.delete(
        "/v1/systems/{system}/arms/{arm_id}",
        responses={200: {"model": bodies.RetiredAnswer}, **refusals(404)},
        tags=["arms"],
    )
    async def retire(
        system: System, arm_id: Id, request: Request, agent_type: AgentType = None
    ) -> Response:
        """Take an arm off offer; its decisions and rewards are kept. Scope: admin."""
        _require(request, "admin")
        was_on = await asyncio.to_thread(systems.retire, system, arm_id, agent_type)
        return _json({"arm_id": arm_id, "retired": was_on})


def _add_looks(app: FastAPI, systems: Systems) -> None:
    @app.get(
        "/v1/systems/{system}/decisions/{decision_id}",
        responses={200: {"model": bodies.DecisionAnswer}, **refusals(404)},
        tags=["traffic"],
    )
    async def decision(
        system: System, decision_id: Id, user_id: UserId, request: Request
    ) -> Response:
        """Return a user's decision and its reward. Scope: select or update."""
        _require(request, "select", "update")
        found = await asyncio.to_thread(systems.decision, system, user_id, decision_id)
        if found is None:
            raise RequestRefusedError(404, "This user has no decision of that id.")
        return _json(found)

    @app.get(
        "/v1/systems/{system}/gates",
        responses={200: {"model": bodies.GatesAnswer}, **refusals(404)},
        tags=["evidence"],
    )
    async def gates(system: System, request: Request) -> Response:
        """Return the evidence of the traffic, every look of a gate, the champion. Scope: select."""
        _require(request, "select")
        return _json(await asyncio.to_thread(_gates, systems, system))


def _add_health(
    app: FastAPI, systems: Systems, committer: Committer, metrics: Metrics, version: str
) -> None:
    @app.get(
        "/health",
        responses={200: {"model": bodies.HealthAnswer}, **refusals()},
        tags=["service"],
    )
    async def health() -> Response:
        """Say that the service lives and its store can be read. Any token."""
        await asyncio.to_thread(systems.store.systems)
        return _json({"status": "ok", "version": version, "waiting": committer.n_waiting})

    @app.get(
        "/metrics",
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **refusals(),
        },
        response_class=Response,
        tags=["service"],
    )
    async def numbers() -> Response:
        """Return the numbers of this process for Prometheus. Any token."""
        return Response(metrics.page(), headers={"Content-Type": CONTENT_TYPE})


def _offered(systems: Systems, system: str, arm_id: str, body: bodies.ArmBody) -> dict[str, Any]:
    config = systems.config(system)
    kind = body.agent_type or config.agent_type
    prior = {} if body.prior is None else {
        "prior_mean": body.prior.mean, "prior_sd": body.prior.sd
    }  # fmt: skip
    values = {"arm_id": arm_id, "params": body.params, "cost": body.cost, **prior}
    arm = RuntimeArm.model_validate(values)
    systems.offer(config, kind, (arm,))
    return next(one for one in systems.arms(system, kind) if one["arm_id"] == arm_id)


def _gates(systems: Systems, system: str) -> dict[str, Any]:
    kinds = [kind for name, kind in systems.store.systems() if name == system]
    found = looks(systems.store, system)
    champion = champion_of(systems.store, system)
    if not kinds and not found and champion is None:
        raise RequestRefusedError(404, "Nobody knows that system.")
    evidence, quality, guards = {}, {}, []
    for kind in kinds:
        group = systems.known_group(system, kind)
        watches = guards_of(systems.store, group.group_id)
        guards += [
            {**{name: getattr(one, name) for name in _GUARD}, "agent_type": kind}
            for one in watches
        ]
        bandit = systems.bandit(system, kind)
        if bandit.settings.mode == "quality" and bandit.n_on_offer():
            quality[kind] = [asdict(arm) for arm in bandit.quality()]
        try:
            told = bandit.evidence()
        except NoArmsError:
            continue  # one arm has nobody to be compared with
        evidence[kind] = {name: getattr(told, name) for name in told.__slots__}
    return {
        "evidence": evidence,
        "quality": quality,
        "guards": guards,
        "alarms": [
            {name: getattr(one, name) for name in _ALARM} for one in alarms(systems.store, system)
        ],
        "looks": [
            {name: getattr(look, name) for name in look.__slots__ if name != "system"}
            for look in found
        ],
        "champion": None
        if champion is None
        else {name: getattr(champion, name) for name in champion.__slots__ if name != "system"},
    }


def _require(request: Request, *scopes: Scope) -> None:
    token = request.scope[TOKEN]
    if not token.may(*scopes):
        raise RequestRefusedError(403, f"This token lacks the scope {' or '.join(scopes)}.")


def _json(value: Any, status: int = 200) -> Response:
    return Response(
        json.dumps(value, allow_nan=False).encode(), status, media_type="application/json"
    )


def _add_error_handlers(app: FastAPI) -> None:
    told: dict[type[Exception], Callable[[Any], ProblemResponse]] = {
        RequestRefusedError: _refused,
        NoArmsError: lambda e: ProblemResponse(404, str(e)),
        RequestReusedError: lambda e: ProblemResponse(409, str(e)),
        ArmChangedError: lambda e: ProblemResponse(409, str(e)),
        BusyError: lambda e: ProblemResponse(503, str(e), {"Retry-After": "1"}),
        StoreError: lambda _: ProblemResponse(503, "The store cannot be used; see the log."),
        # A value that fits the schema and not this system's arms.
        ValueError: lambda e: ProblemResponse(409, one_line(str(e), 500, redacted_text)),
        RequestValidationError: lambda e: ProblemResponse(
            422,
            "The request is not of this form.",
            errors=[
                f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"
                for one in e.errors()[:20]
            ],
        ),
        Exception: lambda _: ProblemResponse(500, "This is a fault of the service; see its log."),
    }

    async def refuse(request: Request, error: Exception) -> ProblemResponse:
        assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for these
        headers = dict(error.headers or {})
        if error.status_code == 405:  # a route knows its own method only
            headers["Allow"] = ", ".join(sorted(_methods(app, request.url.path)))
        return ProblemResponse(error.status_code, str(error.detail), headers)

    app.add_exception_handler(HTTPException, refuse)
    for kind, answer in told.items():
        app.add_exception_handler(
            kind, _handler(answer, is_logged=kind in {StoreError, Exception})
        )


def _refused(error: RequestRefusedError) -> ProblemResponse:
    more = {} if error.errors is None else {"errors": error.errors}
    return ProblemResponse(error.status, error.detail, error.headers, **more)


def _methods(app: FastAPI, path: str) -> set[str]:
    """Return the methods that a path answers to."""
    return {
        method
        for route in app.routes
        if isinstance(route, Route) and route.path_regex.match(path)
        for method in route.methods or ()
    }


def _handler(answer: Callable[[Any], ProblemResponse], *, is_logged: bool) -> Any:
    async def handle(_: Request, error: Exception) -> ProblemResponse:
        if is_logged:
            _log.error("request failed: %s", error, exc_info=error)
        return answer(error)

    return handle


def _secure(app: FastAPI) -> None:
    """Say in the schema that every path takes a bearer token, and what a refusal looks like."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        parts = schema.setdefault("components", {})
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        problem = bodies.ProblemAnswer.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        parts.setdefault("schemas", {})["ProblemAnswer"] = problem
        parts["schemas"].update(read_bodies())
        schema["security"] = [{"token": []}]
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
