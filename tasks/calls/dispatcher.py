"""From cells to evaluations: each is asked by the session's calls, then measured and handed over."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from convergence_core.errors import EvaluatorFault, InfrastructureFault
from convergence_core.ports import CallIntent, Target, WorstCase
from convergence_core.records import (
    Case,
    Cell,
    Evaluation,
    Json,
    Params,
    Reply,
    canonical_json,
    sha256_hex,
)
from tasks.calls.call_keys import Epoch, call_key
from tasks.calls.cells import Job, PendingCell, answered, skipped
from tasks.calls.lanes import CallOutcome, PendingCall
from tasks.calls.metric_calls import PaidCall
from tasks.calls.outcomes import Redact, fault_of, reply_of, scored_outcome, verdict_of
from tasks.calls.paid_calls import STOPPED, Calls
from tasks.calls.rate_limiter import EndpointLimiter, EndpointLimiters
from tasks.calls.scorer import CellScore, Scorer
from tasks.secrets.redaction import redact_json

TARGET_LANE = "evaluation"
JUDGE_LANE = "judge"
THOUGHT_LANE = "thought"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What every call of one session has in common."""

    run_id: str
    epoch: Epoch
    gates: EndpointLimiters
    redact: Redact
    lease_s: Callable[[float], float]
    """From a call's time-out to the time nobody else may make it."""

    def intent(
        self,
        *,
        purpose: str,
        key_purpose: str,
        provider: str,
        model: str | None,
        request: Json,
        cell: Cell,
        vote: int,
        generation: int | None,
        eval_id: str,
        worst: WorstCase,
        timeout_s: float,
    ) -> tuple[CallIntent, str]:
        """Return a call's intent and its request's redacted text."""
        text = canonical_json(redact_json(request, self.redact))
        intent = CallIntent(
            call_key=call_key(
                provider=provider,
                request=request,
                cell=cell,
                purpose=key_purpose,
                vote=vote,
                epoch=self.epoch.name(eval_id),
            ),
            run_id=self.run_id,
            generation=generation,
            eval_id=eval_id,
            purpose=purpose,
            provider=provider,
            model=model,
            request_sha256=sha256_hex(text),
            lease_s=self.lease_s(timeout_s),
            max_usd=worst.usd,
            max_tokens=worst.tokens,
            fresh_since_us=self.epoch.fresh_since_us,
        )
        return intent, text


class Dispatcher:
    """The loop's side of a session. All methods must be called in the loop's thread."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        target: Target,
        timeout_s: float,
        credential: str | None,
        scorer: Scorer,
        calls: Calls,
        asking: Asking,
        keep_text: bool,
    ) -> None:
        self._loop = loop
        self._target = target
        self._timeout_s = timeout_s
        self._credential = credential
        self._scorer = scorer
        self._calls = calls
        self._asking = asking
        self._keep_text = keep_text
        self._cells: set[asyncio.Task[None]] = set()
        self._jobs: set[Job] = set()
        self._to_flush: set[Job] = set()
        self._error: BaseException | None = None

    # -- life

    def add(self, job: Job, cells: list[PendingCell]) -> None:
        """Queue the cells of a job behind all others."""
        if self._error is not None:
            job.results.put(self._error)
            return
        self._jobs.add(job)
        for pending in cells:
            future = self._calls.make(self._call_of(pending))
            future.add_done_callback(partial(self._answer, pending))

    def stop(self, grace_s: float) -> None:
        """Start no further call; calls in flight may go on for ``grace_s``."""
        self._calls.stop(grace_s)

    async def drain(self) -> None:
        """Wait until no call is in flight."""
        await self._calls.drain()

    def fail(self, error: BaseException) -> None:
        """End all jobs with an error that is no fault of a cell."""
        if self._error is None:
            self._error = error
        for job in self._jobs:
            job.results.put(self._error)
        self._jobs.clear()
        self._calls.stop(0.0)

    async def aclose(self) -> None:
        """Stop, give up calls in flight, and wait until what was answered is settled."""
        await self._calls.aclose()
        for cell in self._cells:
            cell.cancel()
        if self._cells:
            await asyncio.wait(self._cells)
        await asyncio.sleep(0)  # their callbacks run

    # -- one cell

    def _call_of(self, pending: PendingCell) -> PendingCall:
        keep = None
        if not self._keep_text:

            async def keep(reply: Reply) -> Json:
                return scored_outcome(reply, await self._verdict(pending, reply))

        return PendingCall(
            lane=TARGET_LANE,
            intent=pending.intent,
            worst=pending.worst,
            send=partial(self._target.call, pending.params, pending.case),
            gate=self._asking.gates.of(pending.endpoint, self._credential),
            candidate_id=pending.cell.candidate_id,
            model_choice=str(pending.params.get("model", "")),
            keep=keep,
            future=self._loop.create_future(),
        )

    def _answer(self, pending: PendingCell, future: "asyncio.Future[CallOutcome]") -> None:
        """Measure what came of a call; runs as soon as it has ended."""
        if future.cancelled():
            return
        task = self._loop.create_task(self._conclude(pending, future.result()))
        self._cells.add(task)
        task.add_done_callback(self._concluded)

    def _concluded(self, task: "asyncio.Task[None]") -> None:
        self._cells.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def _conclude(self, pending: PendingCell, outcome: CallOutcome) -> None:
        if outcome.not_asked is not None:
            self._end(pending, skipped(pending, *outcome.not_asked))
            return
        assert outcome.record is not None  # noqa: S101 - it was asked, or found
        reply = outcome.reply or reply_of(outcome.stored)
        verdict = verdict_of(outcome.stored)
        if outcome.fault is not None:
            verdict = self._scorer.verdict_of_fault(outcome.fault)
        elif reply is None:
            verdict = self._scorer.verdict_of_fault(fault_of(outcome.stored))
        elif verdict is None:
            verdict = await self._verdict(pending, reply)
        evaluation = answered(pending, reply, verdict, outcome.record, keep_text=self._keep_text)
        self._end(pending, evaluation)

    async def _verdict(self, pending: PendingCell, reply: Reply) -> CellScore:
        asker = CellAsker(self, pending)
        return await self._scorer.verdict(reply, pending.case, pending.params, asker)

    def _end(self, pending: PendingCell, evaluation: Evaluation) -> None:
        job = pending.job
        if job.deliver(pending.index, evaluation):
            if not self._to_flush:
                self._loop.call_soon(self._flush)
            self._to_flush.add(job)
        if job.n_left == 0:
            self._jobs.discard(job)

    def _flush(self) -> None:
        """Wake each waiting thread once for all cells that ended in this round."""
        for job in self._to_flush:
            job.flush()
        self._to_flush.clear()

    # -- what metrics ask for

    async def ask(self, pending: PendingCell, call: PaidCall) -> Reply:
        """Make a metric's call on behalf of a cell; see ``Asker.ask``."""
        outcome = await self._make(
            call,
            lane=JUDGE_LANE,
            cell=pending.cell,
            generation=pending.job.generation,
            eval_id=pending.eval_id,
            gate=self._asking.gates.of(endpoint_of(call.request), call.credential),
        )
        return _reply(outcome)

    async def ask_apart(self, call: PaidCall, *, place: str, generation: int) -> tuple[Reply, int]:
        """Make a call for no evaluation, e.g. a thought's; see ``Asker.ask``.

        It passes no gate: an endpoint that is down for thoughts stops no run. Its lane and its
        endpoint's calls per second limit it, and its retries wait by themselves.

        Args:
            call: to be made.
            place: what it is for; part of its key, and in place of an evaluation's id a hash of it.
            generation: in whose books it stands.

        Returns:
            the reply, and when it was durable, in microseconds since the epoch.
        """
        eval_id = sha256_hex(canonical_json([self._asking.run_id, generation, place]))[:24]
        outcome = await self._make(
            call,
            lane=THOUGHT_LANE,
            cell=Cell(candidate_id="", case_id=place),
            generation=generation,
            eval_id=eval_id,
            gate=None,
        )
        reply = _reply(outcome)
        assert outcome.record is not None  # noqa: S101 - it was asked, or found
        return reply, outcome.record.ended_us or 0

    async def _make(
        self,
        call: PaidCall,
        *,
        lane: str,
        cell: Cell,
        generation: int | None,
        eval_id: str,
        gate: EndpointLimiter | None,
    ) -> CallOutcome:
        intent, _ = self._asking.intent(
            purpose=call.purpose,
            key_purpose=call.purpose,
            provider=call.provider,
            model=call.model,
            request=call.request,
            cell=cell,
            vote=call.repeat,
            generation=generation,
            eval_id=eval_id,
            worst=call.worst,
            timeout_s=call.timeout_s,
        )
        return await self._calls.make(
            PendingCall(
                lane=lane,
                intent=intent,
                worst=call.worst,
                send=call.send,
                gate=gate,
                candidate_id=cell.candidate_id,
                pace=self._asking.gates.pace_of(endpoint_of(call.request)),
                future=self._loop.create_future(),
            )
        )

    async def answer_of(self, pending: PendingCell, params: Params, case: Case) -> Reply:
        """Return the target's answer with other parameters; see ``Asker.answer_of``."""
        request = self._target.request(params, case)
        worst = self._target.worst_case(params, case)
        model = request.get("model") if isinstance(request, dict) else None
        intent, _ = self._asking.intent(
            purpose="champion",
            key_purpose=TARGET_LANE,
            provider=self._target.provider,
            model=model if isinstance(model, str) else None,
            request=request,
            cell=Cell(candidate_id="", case_id=case.case_id),
            vote=0,
            generation=pending.job.generation,
            eval_id=pending.eval_id,
            worst=worst,
            timeout_s=self._timeout_s,
        )
        outcome = await self._calls.make(
            PendingCall(
                lane=TARGET_LANE,
                intent=intent,
                worst=worst,
                send=partial(self._target.call, params, case),
                gate=self._asking.gates.of(endpoint_of(request), self._credential),
                future=self._loop.create_future(),
            )
        )
        return _reply(outcome)


class CellAsker:
    """The ``Asker`` of one cell."""

    def __init__(self, dispatcher: Dispatcher, pending: PendingCell) -> None:
        self._dispatcher = dispatcher
        self._pending = pending

    async def ask(self, call: PaidCall) -> Reply:
        """Make a paid call; see ``Asker``."""
        return await self._dispatcher.ask(self._pending, call)

    async def answer_of(self, params: Params, case: Case) -> Reply:
        """Ask the target with other parameters; see ``Asker``."""
        return await self._dispatcher.answer_of(self._pending, params, case)


def endpoint_of(request: Json) -> str | None:
    """Return where a request goes: scheme and host; ``None``: it leaves no process."""
    if not isinstance(request, dict):
        return None
    url = request.get("base_url") or request.get("url")
    if not isinstance(url, str):
        return None
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.split('/', 1)[0].split('?', 1)[0]}"


def _reply(outcome: CallOutcome) -> Reply:
    """Return the answer, or raise why there is none."""
    if outcome.not_asked is not None:
        kind, why = outcome.not_asked
        if kind == "budget":
            raise EvaluatorFault(why, error_type="budget")
        raise InfrastructureFault(STOPPED, error_type="stopped")
    if outcome.fault is not None:
        raise outcome.fault
    reply = outcome.reply or reply_of(outcome.stored)
    if reply is None:
        raise fault_of(outcome.stored)
    return reply
