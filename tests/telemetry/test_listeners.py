"""Listeners to runs: what they hear, and that nothing they do harms a run."""

import importlib
import importlib.util
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError
from convergence_core.events import (
    BudgetWarned,
    CellEvaluated,
    Event,
    GenerationFinished,
    RunFinished,
    RunStarted,
)
from convergence_core.result import RunResult
from convergence_core.result.run_result import LACK_TAG
from convergence_core.result.verdict import outcome_of, verdict_of
from tasks.inputs.environment import Environment
from tasks.inputs.loader import load
from tasks.run.opener import prepare_run, resume_run
from tasks.runners.evaluation_deps import EvaluationDeps
from tasks.secrets.redaction import Redactor
from tasks.telemetry import listeners
from tasks.telemetry.listeners import (
    ListenerThreads,
    check_listeners,
    open_listeners,
    remote_exports,
)
from tasks.telemetry.trackers import outcome_numbers, settings_texts
from tests.docs.test_documents import ROOT, blocks
from tests.support.configurations import loaded
from tests.support.optimizations import write_project
from tests.support.plugin_packages import install
from tests.support.searching import finish
from tests.telemetry.listener_contract import ListenerContract, generation, started, whole_run

SECRET = "canary-0123456789"  # noqa: S105 - not one
SMALL: dict[str, Any] = {
    "optimization__evolution": {"population_size": 3, "generations": 2},
    "output": {"formats": ["json"]},
}
PAGE = (ROOT / "docs/telemetry.md").read_text(encoding="utf-8")
EARS = """
from convergence.plugins import ConfigurationError

heard = []


class Ears:
    def __init__(self, context):
        for name in context.options.keys() - {"why"}:
            raise ConfigurationError.of(f"{context.key}.{name}", "is unknown", "Write `why`.")
        self.context = context

    def on_event(self, event):
        heard.append(event)

    def close(self):
        heard.append("closed")


def make(context):
    return Ears(context)


def make_raising(context):
    class Raising(Ears):
        def on_event(self, event):
            raise RuntimeError(f"no room for {context.options['why']}")
    return Raising(context)


def make_ending(context):
    raise SystemExit("bye")
"""
ENTRIES = {
    "convergence.listeners": {"ears": "make", "raising": "make_raising", "ending": "make_ending"}
}


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the listener `ears` of an installed package has heard."""
    folder = tmp_path / "site-packages"
    install(folder, "acme-ears", EARS, ENTRIES)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("acme_ears").heard
    sys.modules.pop("acme_ears")


def told_by(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == listeners.__name__]


def searched(folder: Path, named: dict[str, Any], **settings: Any) -> RunResult:
    path = write_project(folder, telemetry={"listeners": named}, **SMALL)
    return finish(prepare_run(load(path), **settings))


# -- what is heard


def test_a_listener_hears_a_run_from_its_beginning_to_its_outcome(tmp_path, heard):
    events: list[Event] = []
    result = searched(tmp_path / "p", {"ears": {}}, on_event=events.append)
    assert heard.pop() == "closed"
    assert heard == [one for one in events if not isinstance(one, CellEvaluated)]
    assert any(isinstance(one, CellEvaluated) for one in events), "the caller hears all"
    assert [type(one) for one in heard].count(GenerationFinished) == 2
    begun, ended = heard[0], heard[-1]
    assert isinstance(begun, RunStarted)
    assert (begun.system, begun.seed) == ("known", 3)
    assert isinstance(ended, RunFinished)
    assert ended.outcome == outcome_of(result)


def test_the_outcome_has_both_means_on_the_same_kind_of_cells(tmp_path):
    result = searched(tmp_path, {})
    outcome = outcome_of(result)
    winner, baseline = result.winner, result.baseline
    assert winner is not None
    assert winner.holdout is not None
    assert baseline is not None
    assert baseline.holdout is not None
    assert outcome.params == winner.params
    # A champion that could not be compared leaves nothing recommended, to trackers as in the report.
    for facts, title in (({}, "recommended"), ({LACK_TAG: "x"}, "found")):
        told = outcome_of(replace(result, facts={**result.facts, **facts}))
        assert set(settings_texts(told)) == {f"{title}.{name}" for name in winner.params}
        assert outcome_numbers(told)[f"{title}_mean"] == outcome.mean
        assert ("recommended_mean" in outcome_numbers(told)) is (title == "recommended")
    assert (outcome.role, outcome.mean) == ("holdout", winner.holdout.mean)
    assert outcome.interval == (winner.holdout.low, winner.holdout.high)
    assert outcome.baseline_mean == baseline.holdout.mean
    assert outcome.sentence.startswith(verdict_of(result).sentence)


def test_notices_reach_the_listeners_and_the_caller_s_own_listener_once(tmp_path, heard):
    events: list[Event] = []
    notices: list[Event] = []
    path = write_project(
        tmp_path / "p", telemetry={"listeners": {"ears": {}}}, budget={"max_calls": 6}, **SMALL
    )
    finish(prepare_run(load(path), on_event=events.append, on_notice=notices.append))
    warned = [one for one in heard if isinstance(one, BudgetWarned)]
    assert warned
    assert notices == warned
    assert not any(isinstance(one, BudgetWarned) for one in events)


def test_a_resumed_run_is_told_with_the_same_id(tmp_path, heard):
    path = write_project(tmp_path / "p", telemetry={"listeners": {"ears": {}}}, **SMALL)

    def leave(event: Event) -> None:
        if isinstance(event, GenerationFinished):
            run.stop()

    run = prepare_run(load(path), on_event=leave)
    with pytest.raises(Exception, match="was stopped"):
        finish(run)
    assert [one.status for one in heard if isinstance(one, RunFinished)] == ["stopped"]
    finish(resume_run(path.parent / "convergence-data"))
    begun = [one for one in heard if isinstance(one, RunStarted)]
    assert [one.resumed_from for one in begun] == [0, 1]
    assert len({one.run_id for one in begun}) == 1
    assert [one.generation for one in heard if isinstance(one, GenerationFinished)] == [0, 1]


def test_secrets_are_taken_out_before_a_listener_sees_an_event(heard, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "wandb-canary-987654321")
    secret = [SECRET, "wandb-canary-987654321"]
    made = loaded(telemetry={"listeners": {"ears": {}}})
    opened = open_listeners(made.configuration.telemetry, Path(), redact=Redactor(values=[SECRET]))
    for text in secret:
        opened(BudgetWarned(text=f"the key {text} is wrong"))
        opened(generation(0, best_params={"prompt": f"say {text}", text: [{"x": text}]}))
    opened(RunFinished(run_id="r", status="failed", reason=f"401 for {SECRET}"))
    opened.close()
    assert len(heard) == 6
    assert not any(text in repr(heard) for text in secret)
    assert repr(heard).count("[redacted]") == 9


# -- what goes wrong


def test_listeners_that_raise_end_or_are_missing_harm_no_run(tmp_path, heard, caplog):
    with caplog.at_level(logging.WARNING):
        result = searched(
            tmp_path / "p",
            {"raising": {"why": "it"}, "ending": {}, "absent": {}, "ears": {"typo": 1}},
        )
    assert result.status == "done"
    told = sorted(told_by(caplog))
    assert len(told) == 4, told
    for words, message in zip(["`absent`", "`ears`", "`ending`", "`raising`"], told, strict=True):
        assert words in message
        assert message.endswith("The run continues without it; this warning appears once.")
    assert "must name an installed plugin of the group `convergence.listeners`" in told[0]
    assert "telemetry.listeners.ears.typo" in told[1]
    assert "RuntimeError: no room for it" in told[3]


class Hanging:
    """A listener that never comes back, until it is let go."""

    def __init__(self) -> None:
        self.may_go = threading.Event()

    def on_event(self, event: Event) -> None:
        self.may_go.wait()

    def close(self) -> None:
        pass


def test_a_listener_that_hangs_holds_up_no_run_and_drops_events(caplog, monkeypatch):
    monkeypatch.setattr(listeners, "LAST_S", 0.2)
    hanging = Hanging()
    ears: list[Any] = []

    class Good:
        def on_event(self, event: Event) -> None:
            ears.append(event)

        def close(self) -> None:
            ears.append("closed")

    makes = {"hanging": lambda: hanging, "good": Good}
    with caplog.at_level(logging.WARNING):
        threads = ListenerThreads(makes, redact=str)  # type: ignore[arg-type]  # as it is made
        for event in whole_run():
            threads(event)
        threads.close()
        threads.close()
    assert ears[-1] == "closed"
    assert len(ears) == len(whole_run()) + 1
    (told,) = told_by(caplog)
    assert "`hanging`" in told
    assert "did not end within 0.2 s" in told
    hanging.may_go.set()


def test_events_beyond_the_waiting_ones_are_dropped_and_told_once(caplog, monkeypatch):
    monkeypatch.setattr(listeners, "LAST_S", 0.2)
    monkeypatch.setattr(listeners, "MAX_WAITING", 3)
    hanging = Hanging()
    with caplog.at_level(logging.WARNING):
        threads = ListenerThreads({"slow": lambda: hanging}, redact=str)
        for number in range(20):
            threads(generation(number))
        threads.close()
    (told,) = told_by(caplog)
    assert "3 events wait for it" in told
    hanging.may_go.set()


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_without_the_extra_a_sentence_names_the_command(monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=rf"needs the extra `{name}`.*\[{name}\]'"):
        check_listeners(loaded(telemetry={"listeners": {name: {}}}).configuration, Path())


# -- packages


class Ears(ListenerContract):
    __test__ = False
    plugin = "ears"


def test_the_contract_s_suite_tells_a_good_listener_from_a_bad_one(heard):
    suite = Ears()
    tests = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    assert len(tests) == 5
    for test in tests:
        test()
    suite.plugin = "raising"  # type: ignore[misc]
    suite.options = {"why": "it"}  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="no room for it"):
        suite.test_a_whole_run_is_heard()


def test_the_page_s_listener_keeps_the_contract_and_writes_its_line(tmp_path, monkeypatch):
    (code,) = blocks(PAGE, "python")
    (entries,) = blocks(PAGE, "toml")
    group, name, function = re.findall(r'"(convergence[^"]+)"\]\n([\w-]+) = "\w+:(\w+)"', entries)[
        0
    ]
    folder = tmp_path / "site-packages"
    install(folder, "acme-results", code, {group: {name: function}})
    monkeypatch.syspath_prepend(str(folder))

    class Suite(ListenerContract):
        __test__ = False
        plugin = name
        options = {"file": str(tmp_path / "contract.jsonl")}  # noqa: RUF012 - as users write it

    for test in dir(Suite):
        if test.startswith("test_"):
            getattr(Suite(), test)()
    result = searched(tmp_path / "p", {name: {"file": "results.jsonl"}})
    (line,) = (tmp_path / "p/results.jsonl").read_text().splitlines()
    assert json.loads(line)["run"] == result.run_id
    sys.modules.pop("acme_results", None)


# -- MLflow and Weights & Biases themselves


def stopped_and_resumed(folder: Path, named: dict[str, Any]) -> RunResult:
    """A run that stops after its first generation and goes on."""
    path = write_project(folder, telemetry={"listeners": named}, **SMALL)

    def leave(event: Event) -> None:
        if isinstance(event, GenerationFinished):
            run.stop()

    run = prepare_run(load(path), on_event=leave)
    with pytest.raises(Exception, match="was stopped"):
        finish(run)
    return finish(resume_run(folder / "convergence-data"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_with_the_numbers_of_a_run_that_was_resumed(tmp_path, caplog):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra `mlflow`")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    # Its database exists, as a user's does: to make one takes seconds of the time a listener has.
    mlflow.MlflowClient(tracking_uri=uri).search_experiments()
    with caplog.at_level(logging.WARNING):
        result = stopped_and_resumed(
            tmp_path / "p", {"mlflow": {"tracking_uri": uri, "experiment": "bot"}}
        )
    assert told_by(caplog) == []
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("bot")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", result.label)
    assert run.data.tags["convergence.run_id"] == result.run_id
    assert run.data.tags["convergence.verdict"] == outcome_of(result).sentence
    steps = client.get_metric_history(run.info.run_id, "best_mean")
    assert [one.step for one in steps] == [0, 1]
    assert [one.value for one in steps] == [point.best_mean for point in result.curve]
    outcome = outcome_of(result)
    assert run.data.metrics["recommended_mean"] == outcome.mean
    assert run.data.metrics["default_mean"] == outcome.baseline_mean
    assert run.data.params["recommended.kind"] == (outcome.params or {})["kind"]
    assert run.data.params["seed"] == "3"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_a_resumed_run_offline_under_one_id(tmp_path, caplog, monkeypatch):
    pytest.importorskip("wandb", reason="needs the extra `wandb`")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        result = stopped_and_resumed(tmp_path / "p", {"wandb": {"mode": "offline"}})
    assert told_by(caplog) == []
    files = sorted((tmp_path / "p/wandb").glob("offline-run-*/run-*.wandb"))
    assert {one.stem for one in files} == {f"run-{result.run_id.lower()}"}
    written = b"".join(file.read_bytes() for file in files)
    for name in ("best_mean", "recommended_mean", "default_mean", "recommended.kind", "verdict"):
        assert name.encode() in written
    assert result.label.encode() in written
    with caplog.at_level(logging.WARNING):
        searched(tmp_path / "q", {"wandb": {"mode": "online"}})
    (told,) = told_by(caplog)
    assert "set WANDB_API_KEY, or write `mode: offline`" in told


TELEMETRY: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a collector here": ({"endpoint": "http://127.0.0.1:4318/v1/traces"}, []),
    "a collector by IPv6 here": ({"endpoint": "http://[::1]:4318/v1/traces"}, []),
    "a collector elsewhere": ({"endpoint": "https://otel.example/v1/traces"}, ["endpoint"]),
    "a host that begins like this one": (
        {"endpoint": "https://localhost.example/v1/traces"},
        ["endpoint"],
    ),
    "mlflow as it chooses": ({"listeners": {"mlflow": {}}}, []),
    "mlflow in a database": ({"listeners": {"mlflow": {"tracking_uri": "sqlite:///m.db"}}}, []),
    "mlflow here": ({"listeners": {"mlflow": {"tracking_uri": "http://localhost:5000"}}}, []),
    "mlflow elsewhere": (
        {"listeners": {"mlflow": {"tracking_uri": "https://mlflow.example"}}},
        ["listeners.mlflow"],
    ),
    "mlflow of Databricks": (
        {"listeners": {"mlflow": {"tracking_uri": "databricks"}}},
        ["listeners.mlflow"],
    ),
    "wandb": ({"listeners": {"wandb": {}}}, ["listeners.wandb"]),
    "wandb offline": ({"listeners": {"wandb": {"mode": "offline"}}}, []),
    "a listener of the user's": ({"listeners": {"acme": {}}}, []),
}


@pytest.mark.parametrize(("telemetry", "keys"), TELEMETRY.values(), ids=TELEMETRY)
def test_offline_no_other_machine_hears_of_a_run(
    telemetry: dict[str, Any], keys: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = loaded(telemetry=telemetry)
    assert list(remote_exports(made.configuration.telemetry)) == [f"telemetry.{k}" for k in keys]
    world = Environment.unchecked(made.configuration)
    deps = EvaluationDeps.of(made, world)
    assert deps.telemetry == made.configuration.telemetry
    offline = replace(deps, environment=replace(world, mock_url="http://127.0.0.1:1"))
    assert not remote_exports(offline.telemetry)
    assert (offline.telemetry == made.configuration.telemetry) == (not keys)


def test_a_secret_in_what_a_listener_raises_is_not_told(caplog):
    class Leaking:
        def on_event(self, event: Event) -> None:
            raise ValueError(f"bad key {SECRET}")

        def close(self) -> None:
            raise ValueError("a second time")

    with caplog.at_level(logging.WARNING):
        threads = ListenerThreads({"leaking": Leaking}, redact=Redactor(values=[SECRET]))
        threads(started())
        threads.close()
    (told,) = told_by(caplog)
    assert SECRET not in told
    assert "bad key [redacted]" in told
