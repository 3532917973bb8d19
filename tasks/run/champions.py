"""Champion that a run is compared with.

Read once when the run begins, so that a resumed run has the same.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convergence_core.records import Candidate, canonical_json
from convergence_core.space import Space
from tasks.store.runtime.promotions import champion_of
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


def tagged_champion(tags: Mapping[str, str], space: Space) -> Candidate | None:
    """Return the champion of a run's tags; ``None``: there was none when it began."""
    text = tags.get(TAG)
    if text is None:
        return None
    try:
        return space.candidate(json.loads(text), origin="default")
    except ValueError:
        return None  # the space changed since the promotion
