"""Spans of calls: read back by a collector on loopback that parses the protobuf."""

import gzip
import json
import logging
import socket
import threading
from typing import Any

import pytest

from convergence.testing import HostileAnswer, LoopbackService
from convergence_core.budget.limits import Budget, Spent
from convergence_core.records import Assignment, Candidate, Cell, Evaluation
from tasks.inputs.environment import Environment, prices_of
from tasks.runners.evaluation_deps import EvaluationDeps, open_session
from tasks.runners.work_items import RunSpec
from tasks.secrets.redaction import Secrets
from tests.support.configurations import chat_api, loaded
from tests.support.http_server import LoopbackServer, chat_answer, error_answer
from tests.support.scratch_journal import ScratchJournal
from tests.support.store_rows import run_record

trace_service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
    reason="needs the extra `otel` (pip install '.[otel]')",
)
SECRET = "canary-0123456789"  # noqa: S105 - not one
RUN = "01J8ZD0000000000000000RUNA"
CASES = [
    {"id": "a", "input": {"q": "how warm is it?"}, "expected": "warm"},
    {"id": "b", "input": {"q": "please refuse"}, "expected": "warm"},
    {"id": "c", "input": {"q": f"my key is {SECRET}"}, "expected": "warm"},
]


def collector(status: int = 200) -> LoopbackService:
    return LoopbackService(lambda _path, _body: HostileAnswer("told", b"", status=status))


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    return getattr(value, kind)


def spans_of(service: LoopbackService) -> list[tuple[Any, dict[str, Any]]]:
    """Each span that came, with its attributes, in the order of their cases."""
    found = []
    for path, headers, body in service.requests:
        assert path == "/v1/traces"
        assert headers["content-type"] == "application/x-protobuf"
        raw = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        message = trace_service.ExportTraceServiceRequest.FromString(raw)
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                found += [
                    (span, {one.key: plain(one.value) for one in span.attributes})
                    for span in scope.spans
                ]
    return sorted(found, key=lambda one: (one[0].start_time_unix_nano, one[0].name))


def evaluated(api: Any, endpoint: str, *, content: bool = False) -> list[Evaluation]:
    """Ask all cases of one candidate, one after the other, as a run does."""
    made = loaded(
        api={**api, "auth": {"type": "bearer", "token_env": "CANARY"}},
        telemetry={"endpoint": endpoint, "content": content},
        evaluation__test_cases={"inline": CASES},
        prices={"m": {"input": 1.0, "output": 4.0}} if api["kind"] == "openai" else {},
        optimization__execution={"parallel_workers": 1, "max_retries": 0},
    )
    configuration = made.configuration
    environment = Environment(secrets=Secrets({"CANARY": SECRET}), prices=prices_of(configuration))
    record = run_record(RUN)
    spec = RunSpec(record=record, session_id="s", store_path=".", mock_url=None, n_workers=1)
    session = open_session(
        EvaluationDeps.of(made, environment),
        spec,
        journal=ScratchJournal(),
        budget=Budget(configuration.budget, Spent(), threading.Lock()),
    )
    who = Candidate(candidate_id="c" * 16, params={"k": 2})
    cells = tuple(Cell(candidate_id=who.candidate_id, case_id=str(case["id"])) for case in CASES)
    try:
        trial = session.evaluate(Assignment(candidate=who, cells=cells), 3)
    finally:
        session.close()
        session.close()
    return list(trial.evaluations)


def answering() -> LoopbackServer:
    def answer(request: Any) -> Any:
        if "please refuse" in json.dumps(request.body):
            return error_answer(400)
        return chat_answer("it is warm", model="m-2026")

    return LoopbackServer(answer)


CHAT = {
    "options": {"model": "m", "temperature": 0.5, "max_tokens": 9, "stop": ["."], "seed": "{k}"},
    "messages": [{"role": "user", "content": "{input.q}"}],
}


def test_a_chat_s_calls_have_the_attributes_of_the_conventions_and_no_text():
    with answering() as model, collector() as watched:
        evaluations = evaluated(
            chat_api(f"{model.url}/v1", request=CHAT), f"{watched.url}/v1/traces"
        )
        found = spans_of(watched)
        raw = b"".join(body for _, _, body in watched.requests)
    assert [one.status for one in evaluations] == ["ok", "error", "ok"]
    assert len(found) == len(CASES)
    span, told = found[0]
    port = int(model.url.rpartition(":")[2])
    assert told == {
        "convergence.run_id": RUN,
        "convergence.generation": 3,
        "convergence.eval_id": evaluations[0].eval_id,
        "convergence.candidate_id": "c" * 16,
        "convergence.purpose": "evaluation",
        "convergence.attempt": 1,
        "convergence.cost_usd": pytest.approx((7 * 1.0 + 3 * 4.0) / 1e6),
        "server.address": "127.0.0.1",
        "server.port": port,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 2,
        "gen_ai.request.stop_sequences": ["."],
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
    }
    assert (span.name, span.kind) == ("chat m", 3)  # a client's
    assert 0 < span.start_time_unix_nano < span.end_time_unix_nano
    assert len({one.trace_id for one, _ in found}) == 1
    failed, about = found[1]
    assert failed.status.code == 2
    assert about["error.type"] == evaluations[1].error_type
    for text in (b"how warm", b"it is warm", SECRET.encode()):
        assert text not in raw


def test_texts_are_sent_only_where_asked_for_and_redacted():
    with answering() as model, collector() as watched:
        evaluated(
            chat_api(f"{model.url}/v1", request=CHAT), f"{watched.url}/v1/traces", content=True
        )
        found = spans_of(watched)
        raw = b"".join(body for _, _, body in watched.requests)
    _, told = found[0]
    assert json.loads(told["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "how warm is it?"}]}
    ]
    assert json.loads(told["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "it is warm"}],
            "finish_reason": "stop",
        }
    ]
    assert "[redacted]" in found[2][1]["gen_ai.input.messages"]
    assert SECRET.encode() not in raw


@pytest.mark.parametrize("status", [400, 500])
def test_a_collector_that_refuses_stops_no_run_and_is_told_once(status, caplog, monkeypatch):
    monkeypatch.setattr("tasks.telemetry.spans.TIMEOUT_S", 0.3)
    with answering() as model, collector(status) as watched, caplog.at_level(logging.WARNING):
        evaluations = evaluated(
            chat_api(f"{model.url}/v1", request=CHAT), f"{watched.url}/v1/traces"
        )
        assert watched.requests
    assert [one.status for one in evaluations] == ["ok", "error", "ok"]
    told = [
        one.getMessage()
        for one in caplog.records
        if "opentelemetry" in one.name or "telemetry" in one.name
    ]
    assert len(told) == 1, told
    assert "do not reach" in told[0]
    assert "this warning appears once" in told[0]


def test_a_collector_that_hangs_holds_up_no_run(caplog, monkeypatch):
    monkeypatch.setattr("tasks.telemetry.spans.LAST_S", 0.2)
    monkeypatch.setattr("tasks.telemetry.spans.TIMEOUT_S", 60.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        answering() as model,
        caplog.at_level(logging.WARNING),
    ):
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        evaluations = evaluated(chat_api(f"{model.url}/v1", request=CHAT), address)
        waiting = [one for one in threading.enumerate() if one.name == "telemetry"]
        assert all(one.daemon for one in waiting)
        assert waiting, "the end of the run did not wait for it"
    assert [one.status for one in evaluations] == ["ok", "error", "ok"]
    (told,) = (one.getMessage() for one in caplog.records if "do not reach" in one.getMessage())
    assert "no answer within 0.2 s at the end of the run" in told
