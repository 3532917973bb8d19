"""Run of an agent: model calls under its limits, a record of its tools."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from convergence_core.config.api import AgnoConfig
from convergence_core.errors import (
    CandidateFault,
    EvaluationFault,
    EvaluatorFault,
    InfrastructureFault,
)
from convergence_core.records import NO_USAGE, Json, Reply, canonical_json, sha256_hex
from tasks.agents.model_calls import AgentModels
from tasks.calls.metric_calls import Asker, PaidCall
from tasks.calls.outcomes import MASKED
from tasks.functions.workers import WorkOutcome
from tasks.json_values import as_text, mapping, mappings
from tasks.providers.answers import parsed_arguments
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened

TOO_MANY_STEPS: Final = "too_many_steps"
MAX_TOOL_CHARS: Final = 20_000
"""Maximum characters of a tool's result that a model sees."""
MOST_RESULT_CHARS: Final = 2000
"""Maximum characters of a tool's result that are stored with the answer."""
_SHORTEST_LOOK_S: Final = 0.02

_VERBS: Final = frozenset(
    """
    accept add apply approve archive assign ban book buy cancel close comment commit create
    deactivate delete deploy disable dislike draft drop edit enable execute follow forward import
    insert invite kick like mark merge modify move mute order patch pay pin post publish purge push
    put react register reject remove rename reopen replace reply report reset restore revoke run save
    schedule send set share spam star start stop submit subscribe tag tip transfer trash tweet unarchive
    unfollow unlabel unmark unmute unpin unshare unstar unsubscribe untrash update upload upsert upvote
    vote withdraw write
    """.split()  # noqa: SIM905 - as a literal it would be forty lines
)
"""Words at the beginning of a tool's name that mean writing."""

TOOLKIT_READS: Final[Mapping[str, frozenset[str]]] = {
    "DiscordTools": frozenset({"get_channel_messages", "get_channel_info", "list_channels"}),
    "GmailTools": frozenset(
        """
        get_latest_emails get_emails_from_user get_unread_emails get_starred_emails get_emails_by_context
        get_emails_by_date get_emails_by_thread search_emails list_custom_labels get_message get_thread
        search_threads get_draft list_drafts list_labels
        """.split()  # noqa: SIM905 - as a literal it would be fifteen lines
    ),
    "RedditTools": frozenset(
        """
        get_user_info get_top_posts get_subreddit_info get_trending_subreddits get_subreddit_stats
        """.split()  # noqa: SIM905 - as above
    ),
}
"""Class of a toolkit → its read-only tools; all others write, including later additions."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def writes(name: str, *, toolkit: str | None, more: Sequence[str] = ()) -> bool:
    """Return whether a tool may change something outside.

    Args:
        name: Name of the tool.
        toolkit: Class of the tool's toolkit; ``None`` means a user function.
        more: Names of further writing tools, with ``*`` as wildcard.
    """
    if any(fnmatchcase(name, pattern) for pattern in more):
        return True
    reads = TOOLKIT_READS.get(toolkit or "")
    if reads is not None:
        return name not in reads
    return any(word.lower() in _VERBS for word in _WORD.findall(name)[:2])


def dry_run_result(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the result of a call that is not executed."""
    return json.dumps(
        {
            "dry_run": True,
            "message": f"{name} was not carried out: writing is switched off. Nothing was changed.",
            "arguments": {
                key: shortened(str(value), 500, redacted_text) for key, value in arguments.items()
            },
        },
        ensure_ascii=False,
    )


@dataclass(slots=True, eq=False, kw_only=True)
class AgentRun:
    """Calls, limits and tools of an agent's run. Its counters belong to the session's loop."""

    loop: asyncio.AbstractEventLoop
    """Session's loop, which makes the calls."""
    asker: Asker
    models: AgentModels
    config: AgnoConfig
    key: str
    """Part of the keys of its calls."""
    rewrite: Callable[[str], str] = str
    """Function applied to every message, so that requests do not depend on this process."""
    fault: EvaluationFault | None = None
    """Fault that ended the run, however the agent handles it."""
    replies: list[Reply] = field(default_factory=list)
    tools: list[tuple[str, dict[str, Json]]] = field(default_factory=list)
    """Tool uses by call id: name, arguments, result, and whether it was a dry run."""
    on_close: Callable[[], object] | None = None
    """Function that asks the agent's thread to end."""
    _started_s: float | None = None
    _calls_s: float = 0.0
    """Seconds with at least one call in flight."""
    _n_open: int = 0
    _open_since_s: float = 0.0
    _n_calls: int = 0
    _closed: bool = False
    _seen: Counter[str] = field(default_factory=Counter)

    # -- in the agent's threads

    def begin(self) -> None:
        """Start the run's clock."""
        self._started_s = time.monotonic()

    def ask(
        self, model: str, messages: Sequence[Mapping[str, Json]], options: Mapping[str, Json]
    ) -> "Future[Reply]":
        """Call a model in the session's loop, from any other loop or thread.

        The future raises ``EvaluationFault`` if there is no answer; the run then ends.
        """
        return asyncio.run_coroutine_threadsafe(self._ask(model, messages, options), self.loop)

    # -- in the session's loop

    async def _ask(
        self, model: str, messages: Sequence[Mapping[str, Json]], options: Mapping[str, Json]
    ) -> Reply:
        if self._closed:
            raise CandidateFault("the agent's run is over", error_type="timeout")
        if self.fault is not None:
            raise self.fault
        try:
            self._count()
            shown = [self._shown(message) for message in messages]
            self._note_results(shown)
            equal = sha256_hex(canonical_json([model, shown, dict(options)]))
            repeat = self._seen[equal]
            self._seen[equal] += 1
            call = self.models.call(model, shown, options, run_key=self.key, repeat=repeat)
            reply = await self._timed(call)
        except EvaluationFault as fault:
            ended = _of_run(fault)
            self.fault = ended
            raise ended from fault
        self.replies.append(reply)
        self._note_calls(reply.value)
        return reply

    def _count(self) -> None:
        self._n_calls += 1
        most = self.config.max_model_calls
        if self._n_calls > most:
            raise CandidateFault(
                f"the agent exceeded api.agent.max_model_calls={most} in one run; "
                f"the tools it called: {self._called()}",
                error_type=TOO_MANY_STEPS,
            )

    async def _timed(self, call: PaidCall) -> Reply:
        if self._n_open == 0:
            self._open_since_s = time.monotonic()
        self._n_open += 1
        try:
            return await self.asker.ask(call)
        finally:
            self._n_open -= 1
            if self._n_open == 0:
                self._calls_s += time.monotonic() - self._open_since_s

    async def until(self, work: "asyncio.Future[WorkOutcome]", timeout_s: float) -> None:
        """Wait until the work ends, or takes too long outside its model calls.

        Raises:
            CandidateFault: the work took too long.
        """
        while not work.done():
            left_s = timeout_s - self.time_outside_calls_s
            if left_s <= 0 and self._n_open == 0:
                raise CandidateFault(
                    f"the agent took longer than api.request.timeout_seconds={timeout_s:g}, not "
                    f"counting its model calls; the tools it called: {self._called()}",
                    error_type="timeout",
                )
            await asyncio.wait({work}, timeout=max(_SHORTEST_LOOK_S, left_s))

    def close(self) -> None:
        """Reject further calls, and ask the agent's thread to end."""
        self._closed = True
        if self.on_close is not None:
            self.on_close()

    # -- results

    @property
    def time_outside_calls_s(self) -> float:
        """Seconds of the run so far without a model call in flight."""
        if self._started_s is None:
            return 0.0
        now_s = time.monotonic()
        open_s = now_s - self._open_since_s if self._n_open else 0.0
        return max(0.0, now_s - self._started_s - self._calls_s - open_s)

    def reply(self, content: Json, *, time_outside_calls_s: float, provider: str) -> Reply:
        """Return the run's reply: text, tool calls, and the sums over its model calls."""
        costs = [reply.cost_usd for reply in self.replies]
        known = [cost for cost in costs if cost is not None]
        usage = sum((reply.usage for reply in self.replies), NO_USAGE)
        return Reply(
            value={"content": content, "tool_calls": [dict(use) for _, use in self.tools]},
            latency_ms=1000.0 * time_outside_calls_s
            + sum(reply.latency_ms for reply in self.replies),
            cost_usd=sum(known) if len(known) == len(costs) else None,
            price_version=self.replies[0].price_version if self.replies else None,
            usage=usage,
            model=self.replies[-1].model if self.replies else None,
            provider=provider,
            extra={"model_calls": float(len(self.replies))},
        )

    # -- messages and tools

    def _shown(self, message: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return a message as sent, with long tool results shortened."""
        content = message.get("content")
        if not isinstance(content, str):
            return message
        text, most = self.rewrite(content), MAX_TOOL_CHARS
        if message.get("role") == "tool" and len(text) > most:
            text = shortened(text, most, redacted_text)
        return {**message, "content": text}

    def _note_calls(self, message: Json) -> None:
        for call in mappings(mapping(message).get("tool_calls")):
            if isinstance(function := call.get("function"), dict):
                arguments = parsed_arguments(function.get("arguments"))
                use = {"name": as_text(function.get("name")), "arguments": arguments}
                self.tools.append((as_text(call.get("id")), use))

    def _note_results(self, messages: Sequence[Mapping[str, Json]]) -> None:
        results = [message for message in messages if message.get("role") == "tool"]
        for message in results:
            for call_id, use in self.tools:
                if "result" not in use and call_id == as_text(message.get("tool_call_id")):
                    text = as_text(message.get("content"))
                    use["result"] = shortened(text, MOST_RESULT_CHARS, redacted_text)
                    break

    def note_dry(self, call_id: str | None) -> None:
        """Mark a call as a dry run."""
        for known_id, use in reversed(self.tools):
            if known_id == call_id:
                use["dry_run"] = True
                return

    def _called(self) -> str:
        counts = Counter(str(use["name"]) for _, use in self.tools)
        return ", ".join(f"{name} ({n} times)" for name, n in counts.most_common(5)) or "none"


def _of_run(fault: EvaluationFault) -> EvaluationFault:
    """Return the fault of a run after a failed call; the call was retried, so the run is not."""
    if isinstance(fault, CandidateFault):
        # The call's own row holds its cost.
        return CandidateFault(str(fault), error_type=fault.error_type, details=fault.details)
    if fault.error_type == MASKED:
        return EvaluatorFault(str(fault), error_type=MASKED, details=fault.details)
    return InfrastructureFault(
        str(fault), error_type=fault.error_type, details=fault.details, retryable=False
    )
