"""Adoption of a candidate that the promotion gate promotes, at most once.

The champion is read once when a run begins, so that a resumed run has the same.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from convergence_core.config import parse_stored
from convergence_core.errors import ConfigurationError
from convergence_core.ports import RunRecord
from convergence_core.records import Candidate, Params, canonical_json, fields_of, same_value
from convergence_core.result import RunResult
from convergence_core.result.run_result import LACK_TAG
from convergence_core.space import Space, same_params
from tasks.inputs.loader import Loaded, load
from tasks.inputs.storage import ready_store, store_path
from tasks.run.run import FLOW_RUN_TAG, Run, is_open
from tasks.serving.promotion import offer_champion, put_on_offer, retire_champion
from tasks.store.clock import wall_clock_us
from tasks.store.runtime.promotions import champion_of, previous_champion, set_champion
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore

Obstacle = Literal["is_champion", "changed"]
"""``is_champion``: the candidate is already the champion. ``changed``: it was not compared with
the current champion.
"""


def awaits_adoption(record: RunRecord, result: RunResult) -> bool:
    """Return whether a run's promoted candidate waits for adoption by the user."""
    if result.gate is None or result.gate.decision != "promote":
        return False
    return parse_stored(record.config_json).promotion.require_adoption


def runs_of_flow(path: Path, flow_run_id: str | None) -> list[RunRecord]:
    """Return the runs of a store last worked on by a flow run, newest first."""
    if flow_run_id is None:
        return []
    records = ParquetStore(path).runs()
    return [record for record in records if record.tags.get(FLOW_RUN_TAG) == flow_run_id]


def concluded_by(
    config: str | None, run_id: str | None, flow_run_id: str | None
) -> tuple[RunRecord, Path] | None:
    """Return the run that a flow run has finished, with its store; ``None`` if there is none.

    Prefect restarts a flow run from its first line after an answer or a crash. Work that it has
    finished is not repeated.

    Args:
        config: path of the configuration.
        run_id: run among the flow run's parameters; if this process holds it open, it has not
            ended.
        flow_run_id: id of the flow run.
    """
    if config is None or flow_run_id is None or (run_id is not None and is_open(run_id)):
        return None
    path = ready_store(load(config))
    for record in runs_of_flow(path, flow_run_id):
        if record.summary_json is not None:
            return record, path
    return None


def obstacle(store: RuntimeStore, result: RunResult) -> Obstacle | None:
    """Return why a run's candidate cannot become the champion; ``None`` if it can."""
    best, gate = result.best, result.gate
    assert best is not None and gate is not None  # noqa: S101, PT018 - they were compared
    champion = champion_of(store, result.system)
    if champion is None:
        return None
    if champion.candidate_id == best.candidate_id:
        return "is_champion"
    compared = gate.champion_id or gate.opponent_id
    return None if compared == champion.candidate_id else "changed"


def describe_obstacle(why: Obstacle, result: RunResult) -> str:
    """Return a sentence on an obstacle."""
    name = "" if result.best is None else result.best.label
    if why == "is_champion":
        return f"{name} is the champion of {result.system} already."
    return (
        f"{result.label} was not compared with the champion of {result.system}: either it changed "
        "after the run had begun, or the search space lacks one of its values. Run `convergence "
        "optimize` again, with a space that holds the champion."
    )


def adopt(
    store: RuntimeStore,
    result: RunResult,
    *,
    reason: str,
    serve: bool = True,
    **offer: Any,
) -> tuple[str | None, str | None]:
    """Make the search's best candidate the champion; there must be no obstacle.

    Args:
        store: the runtime state.
        result: result of the run.
        reason: reason for the list of champions.
        serve: whether to activate it for requests, under a ramp.
        offer: further arguments of ``put_on_offer``, e.g. ``agent_type``.

    Returns:
        Result of ``put_on_offer``; ``(None, None)`` if the candidate is not served.
    """
    best = result.best
    assert best is not None  # noqa: S101 - a promotion has a candidate
    arms: tuple[str | None, str | None] = (None, None)
    if serve:
        arms = put_on_offer(store, result, **offer)
    champion = Champion(
        **fields_of(result, "system", "run_id"),
        candidate_id=best.candidate_id,
        params=dict(best.params),
        reason=reason,
        created_us=wall_clock_us(),
    )
    set_champion(store, champion)
    return arms


def previous_of(store: RuntimeStore, system: str) -> tuple[Champion, Champion]:
    """Return the current champion and the previous one, or the defaults before the first.

    Raises:
        ConfigurationError: there is no previous champion.
    """
    present, former = champion_of(store, system), former_of(store, system)
    if present is None or former is None:
        rule = "must have a champion other than the defaults"
        fix = "`convergence gates` shows which systems had champions."
        raise ConfigurationError.of("SYSTEM", rule, fix, value=system)
    return present, former


def former_of(store: RuntimeStore, system: str) -> Champion | None:
    """Return the champion that a rollback restores, or the defaults of the first one's run.

    ``None`` if the defaults are in production, or the run is gone.
    """
    former, first = previous_champion(store, system), champion_of(store, system)
    if former is not None or first is None:
        return former
    records = [run for run in ParquetStore(store.root).runs() if run.run_id == first.run_id]
    text = records[0].summary_json if records else None
    baseline = None if text is None else RunResult.from_json(text).baseline
    if baseline is None or same_params(baseline.params, first.params):
        return None
    return replace(first, candidate_id=baseline.candidate_id, params=dict(baseline.params))


def roll_back(store: RuntimeStore, system: str) -> Champion:
    """Restore the previous champion in production and return it.

    Raises:
        ConfigurationError: there is no previous champion.
    """
    present, former = previous_of(store, system)
    offer_champion(store, system, former)
    retire_champion(store, system, present)
    set_champion(store, replace(former, reason="rollback", created_us=wall_clock_us()))
    return former


TAG = "champion"
"""Tag of a run that holds the champion's parameters, as JSON."""
ID_TAG = "champion_id"
"""Tag of a run with the id of the champion in production, since another space may give it another
id.
"""
CHAMPION_TAGS = (TAG, ID_TAG, LACK_TAG)


def champion_tags(path: Path, system: str, space: Space) -> dict[str, str]:
    """Return the champion's tags for a new run; empty without a champion."""
    if not RuntimeStore.exists_in(path):
        return {}
    with RuntimeStore(path) as store:
        champion = champion_of(store, system)
    if champion is None:
        return {}
    try:
        _within(space, champion.params)
    except ValueError as error:
        return {LACK_TAG: str(error)}
    return {TAG: canonical_json(dict(champion.params)), ID_TAG: champion.candidate_id}


def champion_now(loaded: Loaded) -> Candidate | None:
    """Return the champion for a run of this configuration; ``None`` if there is none."""
    system, space = loaded.configuration.api.name, loaded.space
    return tagged_champion(champion_tags(store_path(loaded), system, space), space)


def stored_result(record: RunRecord, path: Path) -> RunResult:
    """Return the result of a finished run, with whether its candidate is in production now."""
    result = RunResult.from_json(record.summary_json or "")
    if not RuntimeStore.exists_in(path):
        return result
    with RuntimeStore(path) as store:
        return with_champion(result, champion_of(store, result.system))


def with_champion(result: RunResult, champion: Champion | None) -> RunResult:
    """Return a result with whether its candidate is the current champion."""
    if result.gate is None or result.best is None:
        return result
    is_adopted = champion is not None and champion.candidate_id == result.best.candidate_id
    return replace(result, gate=replace(result.gate, is_adopted=is_adopted))


def tagged_champion(tags: Mapping[str, str], space: Space) -> Candidate | None:
    """Return the champion in a run's tags; ``None`` if there was none at its start."""
    text = tags.get(TAG)
    if text is None:
        return None
    try:
        return _within(space, json.loads(text))
    except ValueError:
        return None  # a run of an earlier version, whose space lacked one of its values


def _within(space: Space, params: Params) -> Candidate:
    """Return a champion as a candidate of a space, with defaults for new parameters.

    Raises:
        ValueError: the space lacks one of its parameters or values.
    """
    if lacking := [f"`{name}`" for name in params if name not in space.parameters]:
        raise ValueError(f"{', '.join(lacking)} is no parameter of the search space")
    candidate = space.candidate({**(space.baseline() or {}), **params}, origin="default")
    for name, value in params.items():
        if not same_value(candidate.params.get(name), value):
            raise ValueError(f"`{name}` can no longer be {value!r}")
    return candidate


def champion_of_run(run: Run) -> Candidate | None:
    """Return the champion at a run's opening; ``None`` if there was none or the space lacks it."""
    return tagged_champion(run.record.tags, run.loaded.space)
