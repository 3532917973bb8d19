"""Chat targets within a session: limits and latencies under load."""

import time

from tests.support.chat_servers import target_of
from tests.support.configurations import chat_api
from tests.support.http_server import LoopbackServer, chat_answer
from tests.support.sessions import assignment, session


def test_worker_limit_is_hard_and_latency_leaves_out_the_queue():
    with LoopbackServer(lambda _: chat_answer("hello"), delay_s=0.05) as server:
        target = target_of(
            chat_api(server.url + "/v1"), optimization__execution={"parallel_workers": 1}
        )
        with session(target, workers=8) as s:
            started = time.monotonic()
            trial = s.evaluate(assignment({"temperature": 0.5}, [f"c{i}" for i in range(8)]), 0)
            elapsed_ms = (time.monotonic() - started) * 1000
    assert server.most_in_flight == 1
    latencies = [e.latency_ms or 0.0 for e in trial.evaluations]
    assert min(latencies) >= 50.0
    assert sum(latencies) < 1.5 * elapsed_ms  # with the queue in them, 4.5 times as long
