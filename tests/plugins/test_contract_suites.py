"""The contract suites pass what keeps the contract, and fail what breaks one promise of it."""

import inspect
import json
import re
import sys
import unittest
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from convergence.testing import HostileAnswer, LoopbackService, MetricContract, TargetContract
from tests.support.plugin_packages import install

GOOD = """
import asyncio
import json
import time

import httpx

from convergence.plugins import (
    CandidateFault, Case, ConfigurationError, InfrastructureFault, Reply, WorstCase,
)


class Remote:
    provider = "remote"

    def __init__(self, context):
        unknown = context.options.keys() - {"url"}
        if unknown:
            raise ConfigurationError.of(f"api.plugin_options.{min(unknown)}", "is unknown", "Write `url`.")
        self.url = context.options["url"]
        self.context = context
        self.client = httpx.AsyncClient(timeout=5)

    def __repr__(self):
        return "Remote()"

    def request(self, params, case):
        return {"url": self.url, "text": case.input["text"], "k": params["k"]}

    def worst_case(self, params, case):
        return WorstCase(usd=0.01)

    async def call(self, params, case):
        if case.input["text"] == "slow":
            await asyncio.sleep(2)
        body = json.dumps({"text": case.input["text"], "k": params["k"]})
        try:
            answer = await self.client.post(
                self.url, content=body, headers={"Authorization": f"Bearer {self.context.secret()}"}
            )
        except httpx.HTTPError as error:
            raise InfrastructureFault(f"no answer: {error}", error_type="network") from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise InfrastructureFault("the service is busy", error_type=f"http_{answer.status_code}")
        if answer.status_code >= 400:
            raise CandidateFault("the service refused it", error_type=f"http_{answer.status_code}")
        try:
            found = json.loads(answer.content)["result"]
            json.dumps(found, allow_nan=False)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CandidateFault("the answer has no result", error_type="bad_answer") from None
        return Reply(value=found, latency_ms=1.0, cost_usd=0.001)

    async def aclose(self):
        await self.client.aclose()


def make_target(context):
    return Remote(context)


def make_metric(context):
    for name in context.options:
        raise ConfigurationError.of(f"{context.key}.plugin_options.{name}", "is unknown", "Remove it.")
    return length


def length(result, expected):
    return 1.0 / (1 + len(result)) if isinstance(result, str) else 0.0
"""

BROKEN_TARGETS: dict[str, tuple[tuple[str, str], str]] = {
    "an_unknown_option": (("if unknown:", "if False:"), "an unknown option was accepted silently"),
    "a_request_is_json": (('"k": params["k"]}\n', '"at": time.perf_counter()}\n'), "different requests"),
    "other_parameters": ((', "k": params["k"]}\n', "}\n"), "both made the request"),
    "costs_no_more": (("WorstCase(usd=0.01)", "WorstCase(usd=0.0001)"), "more than its worst case"),
    "a_reply_is_json": (("cost_usd=0.001", "cost_usd=-1.0"), "`cost_usd` is -1.0"),
    "gets_the_same_answer": (("value=found", "value=time.perf_counter()"), "the answers differ"),
    "do_not_mix": (("value=found", "value=time.perf_counter()"), "the answers differ"),
    "a_hostile_input": (("await self.client.post(", "[][len(body) > 100000] or await self.client.post("), "IndexError"),
    "a_hostile_answer": (("if answer.status_code == 429 or", "if"), "status 429 became"),
    "of_a_bug": (('except (ValueError, KeyError, TypeError', "except (ValueError, TypeError"), "KeyError"),
    "is_in_no_request": (('"k": params["k"]}\n', '"k": params["k"], "key": self.context.secret()}\n'), "in its request"),
    "is_in_no_fault": (('"the service refused it"', 'f"refused {self.context.secret()}"'), "in its fault"),
    "given_up_ends": (("await asyncio.sleep(2)", "time.sleep(1.2)"), "held its loop"),
    "closed_twice": (("await self.client.aclose()", "self.client = await self.client.aclose()"), "NoneType"),
}  # fmt: skip
TESTS = {
    "of_a_bug": "a_hostile_answer",
    "is_in_no_request": "no_request_or_reply",
}
"""What stands in the name of the test that must fail, where it is not the breach's own name."""


@pytest.fixture
def service() -> Iterator[LoopbackService]:
    def answer(path: str, body: bytes) -> HostileAnswer:
        text = str(json.loads(body)["text"])
        return HostileAnswer("good", json.dumps({"result": text[:20]}).encode())

    with LoopbackService(answer) as running:
        yield running


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("acme_remote", None)


ENTRIES = {
    "convergence.targets": {"remote": "make_target"},
    "convergence.metrics": {"length": "make_metric"},
}


def target_suite(service: LoopbackService) -> TargetContract:
    class Suite(TargetContract):
        plugin = "remote"
        options = {"url": service.url}  # noqa: RUF012 - as users write it
        params = {"k": 1}  # noqa: RUF012 - as above
        other_params = {"k": 2}  # noqa: RUF012 - as above
        case_input = {"text": "hello"}  # noqa: RUF012 - as above
        slow_input = {"text": "slow"}  # noqa: RUF012 - as above
        timeout_s = 5.0

        @contextmanager
        def answering(self, answer: HostileAnswer) -> Iterator[Mapping[str, Any]]:
            with LoopbackService(lambda _path, _body: answer) as broken:
                yield {"url": broken.url}

    return Suite()


def failures(suite: object, word: str = "") -> dict[str, str]:
    """The tests of a suite that fail, by name, with their messages; skipped ones are not among them.

    With ``word`` only those in whose name it stands.
    """
    found = {}
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_") and word in name:
            try:
                test()
            except unittest.SkipTest:
                continue
            except Exception as error:  # noqa: BLE001 - whatever a user would see
                found[name] = f"{type(error).__name__}: {error}"
    return found


def test_a_target_that_keeps_the_contract_passes_every_test(packages, service):
    install(packages, "acme-remote", GOOD, ENTRIES)
    assert failures(target_suite(service)) == {}
    assert any("authorization" in headers for _, headers, _ in service.requests)


@pytest.mark.parametrize("name", BROKEN_TARGETS)
def test_a_target_that_breaks_one_promise_fails_with_its_reason(packages, service, name):
    (old, new), message = BROKEN_TARGETS[name]
    assert old in GOOD
    install(packages, "acme-remote", GOOD.replace(old, new, 1), ENTRIES)
    found = failures(target_suite(service), TESTS.get(name, name))
    assert found
    assert any(re.search(re.escape(message), told) for told in found.values()), found


def test_hooks_that_are_left_out_skip_their_tests(packages, service):
    install(packages, "acme-remote", GOOD, ENTRIES)

    class Least(TargetContract):
        plugin = "remote"
        options = {"url": service.url}  # noqa: RUF012 - as above
        params = {"k": 1}  # noqa: RUF012 - as above
        case_input = {"text": "hello"}  # noqa: RUF012 - as above

    least = Least()
    for test in (
        least.test_a_hostile_answer_is_a_reply_or_a_fault,
        least.test_other_parameters_make_another_request,
    ):
        with pytest.raises(unittest.SkipTest, match=r"`\w+`"):
            test()
    assert Least.__test__
    assert not TargetContract.__test__


class Length(MetricContract):
    __test__ = False
    plugin = "length"
    result = "ab"
    worse_result = "abcdef"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("isinstance(result, str)", "isinstance(result, str)", ""),
        ("for name in context.options:", "for name in ():", "an unknown option was accepted"),
        ("1.0 / (1 + len(result))", "0.5", "the good answer scores 0.5"),
        ("1.0 / (1 + len(result))", "__import__('itertools').count().__next__() + __import__('time').perf_counter()", "one answer has the values"),
        ("else 0.0", "else float('inf')", "not a finite number"),
    ],
)  # fmt: skip
def test_a_metric_passes_or_fails_with_its_reason(packages, old, new, message):
    assert old in GOOD
    install(packages, "acme-remote", GOOD.replace(old, new, 1), ENTRIES)
    suite = Length()
    suite.expected = {"words": 2}  # type: ignore[misc]
    found = failures(suite)
    assert bool(found) is bool(message), found
    assert not message or any(message in told for told in found.values()), found
