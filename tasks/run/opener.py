"""Opener of runs, new or continued."""

import contextlib
import json
import platform
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, Unpack

import httpx

from convergence_core.config import Configuration, parse_mapping, stored_mapping
from convergence_core.config.loader import configuration_of
from convergence_core.config.secrecy import dotted, shown_url
from convergence_core.config.source import read_yaml
from convergence_core.errors import ConfigurationError, Problem, ResumeError, StoreError
from convergence_core.ports import RunRecord
from convergence_core.records import canonical_json, sha256_hex
from convergence_core.result import RunResult
from tasks.games.game_cases import case_tag
from tasks.inputs.loader import Loaded, load, load_mapping, read_config
from tasks.inputs.storage import new_record, ready_store
from tasks.run.adoption import CHAMPION_TAGS, champion_tags, runs_of_flow
from tasks.run.assembly import Caller, OnNotice, assemble
from tasks.run.prior_runs import tags_of
from tasks.run.run import FLOW_RUN_TAG, Run, is_open, run_of
from tasks.sao.history import history_tag
from tasks.store.layout import check_format, store_root
from tasks.store.tables.lineage import (
    GAMES_TAG,
    OFFLINE,
    PARTS,
    RETRY_TAG,
    ROUNDS_TAG,
    TEST_TAG,
    check_missing,
    successor,
)
from tasks.store.tables.parquet_store import ParquetStore
from tasks.version import code_version

Limits: TypeAlias = Mapping[str, float | None]
"""Limits by key, e.g. ``max_usd``, that override those under ``budget``; ``None`` leaves a limit
unchanged.
"""
Notices: TypeAlias = Callable[[str], OnNotice]
"""Returns the listener to notices of the named system."""
Resume: TypeAlias = Literal["auto", "never"]
"""Whether a scheduled run continues an unfinished one."""


def with_overrides(
    configuration: Configuration,
    *,
    seed: int | None = None,
    generations: int | None = None,
    budget: Limits | None = None,
    save_path: str | None = None,
) -> Configuration:
    """Return the configuration with overrides of the command line or the deployment.

    Args:
        configuration: configuration as written.
        seed: replaces ``optimization.seed``.
        generations: replaces ``optimization.evolution.generations``.
        budget: limits.
        save_path: replaces ``output.save_path``.

    Raises:
        ConfigurationError: an override breaks the rule of its key.
    """
    overrides: dict[tuple[str, ...], object] = {
        ("optimization", "seed"): seed,
        ("optimization", "evolution", "generations"): generations,
        ("output", "save_path"): save_path,
        **{("budget", name): limit for name, limit in (budget or {}).items()},
    }
    written = {path: value for path, value in overrides.items() if value is not None}
    if not written:
        return configuration
    tree = json.loads(configuration.to_json())
    for (*sections, key), value in written.items():
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[key] = value
    return parse_mapping(tree, allow_callable=True)


def prepare_run(
    loaded: Loaded,
    *,
    seed: int | None = None,
    generations: int | None = None,
    budget: Limits | None = None,
    save_path: str | None = None,
    tags: Mapping[str, str] | None = None,
    part: str | None = None,
    **caller: Unpack[Caller],
) -> Run:
    """Open a new run of the configured system.

    Args:
        loaded: the configuration and its files.
        seed: see ``with_overrides``.
        generations: see ``with_overrides``.
        budget: see ``with_overrides``.
        save_path: see ``with_overrides``.
        tags: labels of the run.
        part: kind of a run that is not a search, one of ``lineage.PARTS``. Such runs are a
            separate system, so that no search treats them as its predecessors.
        caller: see ``Caller``. A run with ``mock_url`` is a separate system, since it says nothing
            about the real one.

    Raises:
        ConfigurationError: an override or an object that the configuration names is wrong.
        LeaseHeldError: another process optimizes this system.
        StoreError: the store cannot be used.
    """
    is_offline = caller.get("mock_url") is not None
    configuration = with_overrides(
        _offline(loaded.configuration, save_path) if is_offline else loaded.configuration,
        seed=seed,
        generations=generations,
        budget=budget,
        save_path=None if is_offline else save_path,
    )
    loaded = replace(loaded, configuration=configuration)
    check_destinations(configuration, loaded.base_dir)
    path = ready_store(loaded)
    store = ParquetStore(path)
    name, run_tags = configuration.api.name, dict(tags or {})
    if is_offline:
        name, run_tags = f"{name}.{OFFLINE}", {OFFLINE: "true", **run_tags}
    run_tags |= champion_tags(path, name, loaded.space)
    if part is not None:
        name, run_tags = f"{name}.{part}", {part: "true", **run_tags}
    history = history_tag(store, name) if configuration.society.prefers else {}
    tags = {
        **_facts(loaded),
        **tags_of(configuration, store, name),
        **history,
        **(case_tag(store, name, loaded) if part is None else {}),
        **run_tags,
    }
    return assemble(new_record(loaded, name=name, tags=tags), loaded, caller)


def _offline(configuration: Configuration, save_path: str | None) -> Configuration:
    """Return a configuration with a separate folder for offline result files."""
    output = configuration.output
    folder = Path(save_path or output.save_path) / OFFLINE
    files = output.model_copy(update={"save_path": str(folder)})
    return configuration.model_copy(update={"output": files})


def resume_run(
    path: Path | str,
    name: str | None = None,
    *,
    retry_missing: bool = False,
    rounds: bool = False,
    budget: Limits | None = None,
    tags: Mapping[str, str] | None = None,
    **caller: Unpack[Caller],
) -> Run:
    """Open an unfinished run after its last committed generation.

    A finished run never changes. A new run continues from it, with its generations and paid
    answers, and counts its spending against the limits.

    Args:
        path: folder of the results store.
        name: id, label or unambiguous part of the run's id. ``None`` means the latest resumable
            run: an unfinished one, with ``budget`` also one that a limit ended, with
            ``retry_missing`` any.
        retry_missing: whether to repeat the cells without a reward first; for a finished run, in a
            new run.
        rounds: whether the run holds preference rounds only.
        budget: limits that override the run's; for a run that a limit ended, in a new run.
        tags: labels of the run, which override its own.
        caller: see ``Caller``. A run started from Python with callables needs them again, and a
            run started with ``mock_url`` needs one.

    Raises:
        RunNotFoundError: no such run.
        ResumeError: the run is finished and has nothing left to do, or its test cases or facts
            have changed.
    """
    store = ParquetStore(path)
    if store.mirror is not None:
        store.mirror.pull()
    raised = {key: limit for key, limit in (budget or {}).items() if limit is not None}

    def can_go_on(record: RunRecord) -> bool:
        if (ROUNDS_TAG in record.tags) != rounds or PARTS & {*record.tags}:
            return False
        return record.status != "done" or retry_missing or (bool(raised) and _hit_limit(record))

    record = store.run(name) if name is not None else _latest(store, can_go_on)
    _check_resumable(record, caller, can_go_on=can_go_on(record), rounds=rounds)
    loaded = loaded_of(record)
    if raised:
        configuration = with_overrides(loaded.configuration, budget=raised)
        loaded = replace(loaded, configuration=configuration)
        config_json = configuration.to_json()
        record = replace(record, config_json=config_json, config_sha256=sha256_hex(config_json))
    check_destinations(loaded.configuration, loaded.base_dir)
    _check_unchanged(record, loaded)
    if record.status == "done":
        if not (raised and _hit_limit(record)):
            check_missing(store, record)
        record = _successor(store, record, loaded, retry_missing=retry_missing)
    record = replace(record, tags={**record.tags, **(tags or {})})
    return assemble(record, loaded, caller, retry_missing=retry_missing, is_raised=bool(raised))


def open_run(  # noqa: PLR0917 - as the flow passes them
    config: str | None,
    run_id: str | None,
    seed: int | None = None,
    generations: int | None = None,
    max_calls: int | None = None,
    max_usd: float | None = None,
    *,
    resume: Resume = "never",
    flow_run_id: str | None = None,
    notices: Notices | None = None,
) -> Run:
    """Return the run for a flow run's parameters.

    A run id names a run that this process holds open, or an unfinished one in the configuration's
    store. Without one the function opens a new run, or, when Prefect restarts a flow run (a retry,
    a rescheduled crash), resumes the flow run's own. With ``resume`` "auto" it also resumes the
    system's latest run if that is unfinished and has the same settings.

    Raises:
        ConfigurationError: neither a configuration nor an open run is named, or it is wrong.
    """
    if run_id is not None and is_open(run_id):
        return run_of(run_id)
    loaded, path, on_notice = open_config(config, notices)
    tags = {} if flow_run_id is None else {FLOW_RUN_TAG: flow_run_id}
    run_id = run_id or started_by(path, flow_run_id)
    if run_id is not None:
        return resume_run(path, run_id, on_notice=on_notice, tags=tags)
    budget = {"max_calls": max_calls, "max_usd": max_usd}
    if resume == "auto":
        wanted = with_overrides(
            loaded.configuration, seed=seed, generations=generations, budget=budget
        )
        left = _left_unfinished(path, wanted)
        # If its cases or prompts have changed, it cannot continue and a new run starts.
        with contextlib.suppress(ResumeError):
            if left is not None:
                return resume_run(path, left, on_notice=on_notice, tags=tags)
    return prepare_run(
        loaded,
        on_notice=on_notice,
        seed=seed,
        generations=generations,
        budget=budget,
        tags=tags,
    )


def open_config(
    config: str | None, notices: Notices | None
) -> tuple[Loaded, Path, OnNotice | None]:
    """Return the files, the store and the listener of a flow run's configuration.

    Raises:
        ConfigurationError: no configuration is named, or it is wrong.
    """
    if config is None:
        rule, fix = "must be the path of a configuration file", "Give `config`, e.g. "
        raise ConfigurationError.of("config", rule, f"{fix}`--param config=optimization.yaml`.")
    loaded = load(config)
    on_notice = None if notices is None else notices(loaded.configuration.api.name)
    return loaded, ready_store(loaded), on_notice


def started_by(path: Path, flow_run_id: str | None) -> str | None:
    """Return the unfinished run that a flow run started; ``None`` if there is none."""
    records = runs_of_flow(path, flow_run_id)
    return next((record.run_id for record in records if record.status != "done"), None)


def _hit_limit(record: RunRecord) -> bool:
    """Return whether a limit of its budget ended a run."""
    text = record.summary_json
    return text is not None and RunResult.from_json(text).status == "budget"


def _left_unfinished(path: Path, configuration: Configuration) -> str | None:
    """Return the system's latest run if it is unfinished and has this configuration."""
    runs = ParquetStore(path).runs(configuration.api.name)
    latest = next((record for record in runs if ROUNDS_TAG not in record.tags), None)
    if latest is None or latest.status == "done":
        return None
    same = latest.config_sha256 == sha256_hex(configuration.to_json())
    return latest.run_id if same else None


def _latest(store: ParquetStore, can_go_on: Callable[[RunRecord], bool]) -> RunRecord:
    record = next(filter(can_go_on, store.runs()), None)
    if record is None:
        raise ResumeError(
            f"the store {store.path} holds no run to continue. "
            "Start one with `convergence optimize`."
        )
    return record


_OTHER_RUNS: Final = {
    ROUNDS_TAG: (
        "holds rounds of preferences only",
        "the flow `sao` again: it continues from the system's last saved round",
    ),
    TEST_TAG: (
        "tests the current settings",
        "`convergence test` again: it continues with a test that was interrupted",
    ),
    GAMES_TAG: (
        "plays language games",
        "`convergence games run` again: it continues with a round that was interrupted",
    ),
}
"""Tag of a run that is not a search → its activity, and how to continue it."""


def _check_resumable(record: RunRecord, caller: Caller, *, can_go_on: bool, rounds: bool) -> None:
    label = record.label
    for tag, (activity, fix) in _OTHER_RUNS.items():
        if tag in record.tags and not (rounds and tag == ROUNDS_TAG):
            raise ResumeError(f"run {label} {activity}. Run {fix}.")
    if not can_go_on:
        raise ResumeError(
            f"run {label} is finished. Read it with `convergence report {label}`, "
            "repeat its missing evaluations in a new run with `convergence "
            f"resume --retry-errors {label}`, or start again with `convergence optimize`."
        )
    if (OFFLINE in record.tags) != (caller.get("mock_url") is not None):
        how = "offline: add" if OFFLINE in record.tags else "not offline: leave out"
        raise ResumeError(f"run {label} was started {how} `--offline`.")


_OF_REWARDS: Final = ("api", "search_space", "evaluation")


def loaded_of(record: RunRecord) -> Loaded:
    """Read the files of an existing run."""
    tree = stored_mapping(record.config_json)
    loaded = load_mapping(tree, Path(record.base_dir), allow_callable=True)
    path = record.config_path
    return loaded if path is None else replace(loaded, config_path=Path(path))


def edited_keys(loaded: Loaded) -> list[str]:
    """Return the keys in which a run's file now differs from the run's configuration.

    Only keys that affect rewards are compared. A missing or unreadable file gives none.
    """
    began, path = loaded.configuration, loaded.config_path
    try:
        today = path and configuration_of(read_yaml(read_config(path), str(path)))
    except ConfigurationError:
        return []
    parts = [(name, getattr(today, name)) for name in _OF_REWARDS] if today else []
    return [
        f"{name}.{key}"
        for name, section in parts
        for key in type(section).model_fields
        if getattr(section, key) != getattr(getattr(began, name), key)
    ]


def _successor(
    store: ParquetStore, finished: RunRecord, loaded: Loaded, *, retry_missing: bool
) -> RunRecord:
    """Return the row of a new run that continues a finished one, with the current champion."""
    dropped = {FLOW_RUN_TAG, RETRY_TAG, *CHAMPION_TAGS}
    tags = {name: text for name, text in finished.tags.items() if name not in dropped}
    tags |= {**_facts(loaded), **champion_tags(store.path, finished.name, loaded.space)}
    return successor(finished, tags, code_version=code_version(), retry_missing=retry_missing)


def _facts(loaded: Loaded) -> dict[str, str]:
    """Return the facts that rewards depend on, for the run's tags."""
    return {"python": platform.python_version(), **loaded.facts}


def _check_unchanged(record: RunRecord, loaded: Loaded) -> None:
    begin = "start a new run with `convergence optimize`."
    if loaded.cases_sha256 != record.cases_sha256:
        raise ResumeError(
            f"the test cases of run {record.label} changed since it started, so its rewards would "
            f"not compare. Restore the file, or {begin}"
        )
    if canonical_json(loaded.space.to_json()) != record.search_space_json:
        raise ResumeError(
            f"a prompt file of run {record.label} changed since it started. Restore it, or {begin}"
        )
    for name, value in loaded.facts.items():
        then = record.tags.get(name)
        if then != value:
            raise ResumeError(
                f"`{name}` of run {record.label} was {then} when it started and is {value} now, "
                f"so its rewards would not compare. {begin.capitalize()}"
            )


def check_destinations(configuration: Configuration, base_dir: Path) -> None:
    """Check that store and result files can be written, and that clients accept each address.

    The check leaves no files and makes no call.

    Args:
        configuration: configuration of the run.
        base_dir: base folder of the configuration's relative paths.

    Raises:
        ConfigurationError: a folder of ``storage`` or ``output`` is not a folder, holds something
            else or is not writable, or a host name contains invalid characters.
    """
    output, storage = configuration.output, configuration.storage
    store_key = "storage.path" if storage.remote is None else "storage.local"
    store = base_dir / storage.folder
    folders = {store_key: store, "output.save_path": base_dir / output.save_path}
    problems = [
        Problem(
            key=key,
            rule="must lead to a folder that can be written to",
            value=f"{folder}: {why}",
            fix="Permit writing there, or set another folder.",
        )
        for key, folder in folders.items()
        if (why := _why_not(folder)) is not None
    ]
    wrong = {problem.key for problem in problems}
    if store_key not in wrong:
        problems += _store_problems(store, store_key)
    problems += _address_problems(configuration)
    if problems:
        raise ConfigurationError(problems)


def _address_problems(configuration: Configuration) -> list[Problem]:
    """Return the problems of addresses that clients reject."""
    api = configuration.api
    key_to_url = {"api.endpoint": api.endpoint}
    key_to_url |= {f"api.models.{name}.endpoint": m.endpoint for name, m in api.models.items()}
    key_to_url |= {dotted((*path, "endpoint")): llm.endpoint for path, llm in configuration.llms}
    problems: list[Problem] = []
    for key, url in key_to_url.items():
        try:
            httpx.URL(url or "")
        except httpx.InvalidURL as error:
            rule, fix = "must be a URL that can be called", "Write the host as its provider does."
            why = str(error).rstrip(".")
            problems.append(
                Problem(key=key, rule=rule, value=shown_url(url or ""), fix=f"{why}. {fix}")
            )
    return problems


def _store_problems(root: Path, key: str) -> list[Problem]:
    """Return why a writable folder cannot be a store."""
    try:
        check_format(store_root(root))
    except StoreError as error:
        rule = "must lead to a store's folder, or to a new or an empty one"
        return [Problem(key=key, rule=rule, value=f"this: {error}", fix="Set another folder.")]
    return []


def _why_not(folder: Path) -> str | None:
    """Return why no file can be written to a folder or to its future parent."""
    try:
        while not folder.exists() and folder != folder.parent:
            if folder.is_symlink():
                return "a link that leads nowhere"
            folder = folder.parent
        # Only writing gives the answer: root, ACLs and read-only mounts invalidate mode bits.
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
