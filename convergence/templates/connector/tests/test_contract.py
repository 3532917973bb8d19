"""Contract of the target and the metric, with a service on this machine."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from convergence.testing import HostileAnswer, LoopbackService, MetricContract, TargetContract


def answer(path: str, body: bytes) -> HostileAnswer:  # noqa: ARG001 - the service passes it
    """Answer as the real service does."""
    query = str(json.loads(body)["query"])
    found = {"hits": [query[:20]], "cost_usd": 0.0001}
    return HostileAnswer("good", json.dumps(found).encode())


class TestAcmeSearch(TargetContract):
    """Contract of `acme-search`."""

    plugin = "acme-search"
    params = {"stem": 4, "least": 1}
    other_params = {"stem": 6, "least": 1}
    case_input = {"query": "return a parcel"}

    @pytest.fixture(autouse=True)
    def service(self) -> Iterator[None]:
        """Run the service during a test."""
        with LoopbackService(answer) as running:
            type(self).options = {"url": running.url}
            yield

    @contextmanager
    def answering(self, answer: HostileAnswer) -> Iterator[Mapping[str, Any]]:
        """Let the service give a hostile answer."""
        with LoopbackService(lambda _path, _body: answer) as broken:
            yield {"url": broken.url}


class TestAcmeFirst(MetricContract):
    """Contract of `acme-first`."""

    plugin = "acme-first"
    result = ["returns", "refunds"]
    worse_result = ["refunds", "returns"]
    expected = "returns"
