"""Champions: the one that a run is compared with, and the one in production now.

The first is read once when the run begins, so that a resumed run has the same.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from convergence_core.ports import RunRecord
from convergence_core.records import Candidate, canonical_json
from convergence_core.result import RunResult
from convergence_core.space import Space
from tasks.store.runtime.promotions import champion_of
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore, has_runtime

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded

TAG = "champion"
"""Tag of a run that holds the champion's parameters, as JSON."""


def champion_tag(store_path: Path, system: str, space: Space) -> dict[str, str]:
    """Return the tag of a run that begins now; empty without a champion that its space holds."""
    if not has_runtime(store_path):
        return {}
    with RuntimeStore(store_path) as store:
        found = champion_of(store, system)
    if found is None:
        return {}
    tag = {TAG: canonical_json(dict(found.params))}
    return tag if tagged_champion(tag, space) is not None else {}


def champion_now(loaded: "Loaded") -> Candidate | None:
    """Return the champion that a run of this configuration would meet; ``None``: there is none."""
    configuration = loaded.configuration
    path = (loaded.base_dir / configuration.storage.folder).resolve()
    return tagged_champion(champion_tag(path, configuration.api.name, loaded.space), loaded.space)


def stored_result(record: RunRecord, store_path: Path) -> RunResult:
    """Return the result of a finished run, which knows whether its candidate is in production now."""
    result = RunResult.from_json(record.summary_json or "")
    if not has_runtime(store_path):
        return result
    with RuntimeStore(store_path) as store:
        return with_champion(result, champion_of(store, result.system))


def with_champion(result: RunResult, champion: Champion | None) -> RunResult:
    """Return a result whose verdict says whether its candidate is the present champion."""
    if result.gate is None or result.winner is None:
        return result
    is_adopted = champion is not None and champion.candidate_id == result.winner.candidate_id
    return replace(result, gate=replace(result.gate, is_adopted=is_adopted))


def tagged_champion(tags: Mapping[str, str], space: Space) -> Candidate | None:
    """Return the champion of a run's tags; ``None``: there was none when it began."""
    text = tags.get(TAG)
    if text is None:
        return None
    try:
        return space.candidate(json.loads(text), origin="default")
    except ValueError:
        return None  # the space changed since the promotion
