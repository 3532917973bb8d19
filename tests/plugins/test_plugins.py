"""Plugins of installed packages: found by name, told apart, and believed no more than an endpoint."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import (
    CandidateFault,
    ConfigurationError,
    EndpointDownError,
    InfrastructureFault,
)
from convergence_core.ports import Target
from convergence_core.records import Case, canonical_json
from tasks.inputs.environment import Environment, prices_of
from tasks.inputs.factories import make_metrics, make_target
from tasks.secrets.redaction import Secrets
from tests.support.configurations import loaded
from tests.support.plugin_packages import ECHO, ECHO_ENTRIES, install

API = {"name": "system", "plugin": "echo"}
SECRET = "canary-0123456789"  # noqa: S105 - not one
TARGETS = "convergence.targets"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of the import path that packages are installed into."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("acme_echo", "other_echo"):
        sys.modules.pop(name, None)


@pytest.fixture
def echo(packages: Path) -> Path:
    install(packages, "acme-echo", ECHO, ECHO_ENTRIES)
    return packages


def made(api: Any = API, *, prices: Any = None, **sections: Any) -> Any:
    configured = loaded(api=api, **({"prices": prices} if prices else {}), **sections)
    environment = Environment(
        secrets=Secrets({"ACME_TOKEN": SECRET}), prices=prices_of(configured.configuration)
    )
    return make_target(configured, environment)


def asked(target: Any, question: str) -> Any:
    async def go() -> Any:
        try:
            return await target.call({"k": 2}, case(question))
        finally:
            await target.aclose()
            await target.aclose()

    return asyncio.run(go())


def case(question: str) -> Case:
    return Case(case_id="a", input={"q": question})


def problem(**api: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        made({**API, **api})
    (found,) = caught.value.problems
    return str(found)


def test_a_target_is_asked_and_its_request_names_plugin_version_and_options(echo):
    target = made({**API, "plugin_options": {"suffix": "!"}})
    assert isinstance(target, Target)
    request = target.request({"k": 2}, case("ab"))
    assert request == {
        "plugin": "echo",
        "version": "1.0",
        "options": {"suffix": "!"},
        "request": {"times": 2, "question": "ab"},
    }
    assert canonical_json(request) == canonical_json(target.request({"k": 2}, case("ab")))
    reply = asked(target, "ab")
    assert (reply.value, reply.cost_usd, reply.provider) == ("abab!", 0.001, "plugin")
    assert reply.usage.total == 7
    assert reply.latency_ms > 0


@pytest.mark.parametrize(
    ("question", "kind", "error_type"),
    [
        ("refuse", CandidateFault, "refused"),
        ("crash", CandidateFault, "KeyError"),
        ("overload", InfrastructureFault, "http_429"),
        ("cut", InfrastructureFault, "ConnectionResetError"),
        ("nan", CandidateFault, "not_finite"),
        ("set", CandidateFault, "not_json"),
        ("text", CandidateFault, "bad_result"),
        ("debt", CandidateFault, "bad_bill"),
        ("ruin", CandidateFault, "not_finite"),
    ],
)
def test_what_goes_wrong_is_a_fault_of_its_kind(echo, question, kind, error_type):
    with pytest.raises(kind) as caught:
        asked(made(), question)
    assert caught.value.error_type == error_type
    assert str(caught.value)


def test_a_call_that_hangs_is_given_up_and_may_have_been_billed(echo):
    with pytest.raises(InfrastructureFault) as caught:
        asked(made({**API, "request": {"timeout_seconds": 0.05}}), "hang")
    assert (caught.value.error_type, caught.value.may_be_billed) == ("timeout", True)
    assert "took longer than api.request.timeout_seconds=0.05" in str(caught.value)


def test_a_plugin_that_blocks_its_loop_ends_the_run_with_a_reason(packages):
    code = ECHO.replace("await asyncio.sleep(3600)", "import time; time.sleep(0.6)")
    install(packages, "acme-echo", code, ECHO_ENTRIES)
    target = made(
        {**API, "request": {"timeout_seconds": 0.05}},
        optimization__execution={"parallel_workers": 1},
    )

    async def go() -> None:
        first = asyncio.create_task(target.call({"k": 1}, case("hang")))
        second = asyncio.create_task(target.call({"k": 1}, case("x")))
        with pytest.raises(InfrastructureFault):
            await first
        with pytest.raises(EndpointDownError, match="hang and cannot be stopped"):
            await second

    asyncio.run(go())


def test_its_key_comes_from_the_environment_and_is_hidden_where_faults_are_told(echo):
    api = {**API, "auth": {"token_env": "ACME_TOKEN"}}
    configured = loaded(api=api)
    assert configured.configuration.api.auth.type == "bearer"
    environment = Environment(
        secrets=Secrets({"ACME_TOKEN": SECRET}), prices=prices_of(configured.configuration)
    )
    target = make_target(configured, environment)
    assert SECRET not in json.dumps(target.request({"k": 1}, case("key")))
    with pytest.raises(CandidateFault) as caught:
        asked(target, "key")
    redact = environment.redactor(configured.configuration)
    assert SECRET not in redact(str(caught.value) + caught.value.details)
    assert "[redacted]" in redact(str(caught.value))


def test_an_unknown_name_tells_what_is_installed_and_how_to_install(echo):
    said = problem(plugin="ecko")
    assert said.startswith("`api.plugin` must name an installed plugin of the group")
    assert "Did you mean `echo`? Installed are `echo`." in said
    assert "python -m pip install" in said


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (
            "import no_such_module_of_acme",
            "ModuleNotFoundError: No module named 'no_such_module_of_acme'",
        ),
        ("def make_echo(: pass", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("x = 1", "AttributeError"),
        ("make_echo = 5", "is not a factory but a int"),
        ("def make_echo(context): return 1 / 0", "failed in its factory: ZeroDivisionError"),
        (
            "def make_echo(context): return object()",
            "made a object, which lacks `request`, `worst_case`",
        ),
    ],
)
def test_a_broken_plugin_names_its_package_and_the_fault(packages, code, fault):
    install(packages, "acme-echo", code, {TARGETS: {"echo": "make_echo"}})
    said = problem()
    assert "package acme-echo 1.0" in said
    assert fault in said


def test_a_metric_of_a_package_measures_with_its_options(echo):
    metrics = {"long": {"plugin": "length", "plugin_options": {"longest": 4}, "weight": 1}}
    configured = loaded(api=API, evaluation__metrics=metrics)
    assert configured.configuration.evaluation.metrics["long"].type == "plugin"
    (metric,) = make_metrics(configured)

    async def go() -> Any:
        reply = await made().call({"k": 1}, case("xyz"))
        try:
            return await metric.measure(reply, case("xyz"), {"k": 1})  # type: ignore[union-attr]
        finally:
            await metric.aclose()  # type: ignore[union-attr]

    assert asyncio.run(go()) == 0.75


def test_nothing_is_loaded_unless_a_configuration_names_it(packages):
    install(packages, "acme-echo", "raise RuntimeError('loaded')", ECHO_ENTRIES)
    make_target(loaded())
    make_metrics(loaded())
    assert "acme_echo" not in sys.modules
