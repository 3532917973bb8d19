"""OpenTelemetry spans of calls, with its semantic conventions of generative AI.

Each attempt at a call is one span. The spans of a run share a trace, whose id is a hash of the
run's id, so that several processes share it. Prompts and answers are sent only under
``telemetry.content``, and everything is redacted first. The first failure is logged, and no
failure affects a run.
"""

import importlib.util
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from convergence_core.config import Configuration
from convergence_core.errors import Billed, ConfigurationError, EvaluationFault
from convergence_core.events import CallEnded
from convergence_core.records import Json, Reply, sha256_hex
from tasks.json_values import mapping, mappings
from tasks.secrets.redaction import redact_json, shortened
from tasks.version import code_version, install_command

_LOGGER: Final = logging.getLogger(__name__)
_EXPORTERS: Final = "opentelemetry.exporter"
"""Logger of the exporter, which would repeat each failure."""
TIMEOUT_S: Final = 5.0
"""Maximum seconds of a batch at the collector, retries included."""
LAST_S: Final = 10.0
"""Maximum seconds that a run waits at its end for the collector."""
MAX_CONTENT_CHARS: Final = 20_000
"""Maximum characters of a span's messages or answer."""

PROVIDER_NAMES: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "local": "convergence.local",
}
"""``gen_ai.provider.name`` of our kinds that differ from it."""
_SETTINGS: Final[Mapping[str, str]] = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
}
"""Numbers of a request's body → their attributes."""
_USAGE: Final[Mapping[str, str]] = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}


def check_telemetry(configuration: Configuration) -> None:
    """Check that the packages for ``telemetry`` are installed.

    Raises:
        ConfigurationError: the extra ``otel`` is missing.
    """
    if configuration.telemetry.endpoint is None or _is_installed():
        return
    rule = "needs the extra `otel`, which is not installed"
    raise ConfigurationError.of("telemetry.endpoint", rule, f"Run: {install_command('otel')}")


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


class CallSpans:
    """Exporter of a span for each finished call; the session's loop calls it without blocking.

    Args:
        endpoint: URL for OTLP over HTTP, e.g. ``http://127.0.0.1:4318/v1/traces``.
            ``OTEL_EXPORTER_OTLP_HEADERS`` sets headers, ``OTEL_RESOURCE_ATTRIBUTES`` attributes of
            the resource.
        system: Name of the optimized system.
        redact: Function that removes secrets from a text.
        has_content: Whether to send prompts and answers.
    """

    def __init__(
        self, endpoint: str, *, system: str, redact: Callable[[str], str], has_content: bool
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra's
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

        logging.getLogger(_EXPORTERS).setLevel(logging.CRITICAL)
        self._redact = redact
        self._has_content = has_content
        self._has_warned = False
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT_S)
        self._endpoint = endpoint
        export = exporter.export

        def warning_export(spans: Sequence[Any]) -> Any:
            outcome = export(spans)
            if outcome.name != "SUCCESS":
                self._tell("no answer, or a refusal")
            return outcome

        exporter.export = warning_export  # type: ignore[method-assign]  # no other interface reports the result
        resource = Resource.create({"service.name": "convergence", "convergence.system": system})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("convergence", code_version())

    def __call__(self, call: CallEnded) -> None:
        """Record one call; the first failure is logged."""
        try:
            self._record(call)
        except Exception as error:  # noqa: BLE001 - a span cannot fail a run
            self._tell(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Send the remaining spans within ``LAST_S``, even if the collector hangs."""
        ending = threading.Thread(target=self._end, name="telemetry", daemon=True)
        ending.start()
        ending.join(LAST_S)
        if ending.is_alive():
            self._tell(f"no answer within {LAST_S:g} s at the end of the run")

    def _end(self) -> None:
        try:
            self._provider.force_flush(int(TIMEOUT_S * 1000))
            self._provider.shutdown()
        except Exception as error:  # noqa: BLE001 - as above
            self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            text = self._redact(f"spans do not reach {self._endpoint} (telemetry.endpoint): {why}")
            _LOGGER.warning("%s. The run continues without them; this warning appears once.", text)

    def _record(self, call: CallEnded) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - an extra's

        attributes = attributes_of(call)
        if self._has_content:
            attributes |= content_of(call, self._redact)
        model = attributes.get("gen_ai.request.model")
        name = f"chat {model}" if model else f"{call.purpose} {call.provider}"
        span = self._tracer.start_span(
            name,
            context=trace.set_span_in_context(trace.NonRecordingSpan(_root(call.run_id))),
            kind=trace.SpanKind.CLIENT,
            attributes={key: self._clean(value) for key, value in attributes.items()},
            start_time=call.started_us * 1000,
        )
        if call.fault is not None:
            span.set_status(
                trace.Status(trace.StatusCode.ERROR, self._redact(str(call.fault))[:500])
            )
        span.end(end_time=call.ended_us * 1000)

    def _clean(self, value: Any) -> Any:
        return self._redact(value) if isinstance(value, str) else value


def _root(run_id: str) -> Any:
    """Return the context of a run's trace, the same in every process."""
    from opentelemetry import trace  # noqa: PLC0415 - an extra's

    digest = sha256_hex(run_id)
    return trace.SpanContext(
        trace_id=int(digest[:32], 16),
        span_id=int(digest[32:48], 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )


def attributes_of(call: CallEnded) -> dict[str, Any]:
    """Return the attributes of a call without prompts and answers."""
    request, answer = mapping(call.request), _answer_of(call)
    attributes: dict[str, Any] = {
        "convergence.run_id": call.run_id,
        "convergence.generation": call.generation,
        "convergence.eval_id": call.eval_id,
        "convergence.candidate_id": call.candidate_id or None,
        "convergence.purpose": call.purpose,
        "convergence.attempt": call.attempt,
        "convergence.cost_usd": None if answer is None else answer.cost_usd,
        "error.type": None if call.fault is None else call.fault.error_type,
        **_server(request),
    }
    model = request.get("model")
    if isinstance(model, str):
        provider = PROVIDER_NAMES.get(call.provider, call.provider)
        attributes |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
        }
        attributes |= _settings(mapping(request.get("body")))
    if answer is not None:
        usage = answer.usage.to_json()
        attributes |= {_USAGE[name]: number for name, number in usage.items() if name in _USAGE}
        attributes["gen_ai.response.model"] = answer.model
    if isinstance(answer, Reply) and answer.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = [answer.finish_reason]
    return {name: value for name, value in attributes.items() if value is not None}


def content_of(call: CallEnded, redact: Callable[[str], str]) -> dict[str, str]:
    """Return a model call's prompt and answer in the conventions' form, redacted."""
    request = mapping(redact_json(call.request, redact))
    messages = mapping(request.get("body")).get("messages")
    content: dict[str, str] = {}
    if isinstance(messages, list):
        parts = [
            _message(message["role"], message.get("content"))
            for message in mappings(messages)
            if "role" in message
        ]
        content["gen_ai.input.messages"] = shortened(_json(parts), MAX_CONTENT_CHARS, redact)
    if isinstance(call.reply, Reply) and content:
        answer = _message("assistant", call.reply.value)
        finish = call.reply.finish_reason
        answer |= {"finish_reason": finish} if finish else {}
        content["gen_ai.output.messages"] = shortened(_json([answer]), MAX_CONTENT_CHARS, redact)
    return content


def _message(role: Json, content: Json) -> dict[str, Json]:
    text = content if isinstance(content, str) else _json(content)
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _settings(body: Mapping[str, Json]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        attribute: value
        for name, attribute in _SETTINGS.items()
        if isinstance(value := body.get(name), (int, float)) and not isinstance(value, bool)
    }
    stops = body.get("stop")
    if isinstance(stops, str):
        stops = [stops]
    if isinstance(stops, list) and all(isinstance(stop, str) for stop in stops):
        settings["gen_ai.request.stop_sequences"] = stops
    return settings


def _answer_of(call: CallEnded) -> Reply | Billed | None:
    """Return the object with tokens, model and cost: the reply, or a fault's bill."""
    if isinstance(call.reply, Reply):
        return call.reply
    return call.fault.billed if isinstance(call.fault, EvaluationFault) else None


def _server(request: Mapping[str, Json]) -> dict[str, Any]:
    url = request.get("base_url") or request.get("url")
    if not isinstance(url, str) or "://" not in url:
        return {}
    try:
        parts = urlsplit(url)
        return {"server.address": parts.hostname, "server.port": parts.port}
    except ValueError:
        return {}
