"""Openings of sealed held-out cases, as a store holds them."""

from collections.abc import Sequence
from typing import Any, Final

from convergence_core.games.held_out import HeldOutError
from convergence_core.games.round_records import SealedResult
from convergence_core.ports import Store
from tasks.inputs.loader import Loaded
from tasks.inputs.storage import store_path
from tasks.store import ParquetStore
from tasks.store.tables.lineage import OFFLINE, SEALED_TAG

ANEW: Final = "Begin anew with other held-out cases, or write `society.games.sealed_share: 0` and go on without."
_OPENED: Final = """
    SELECT o.* FROM game_openings o JOIN runs r USING (run_id)
    WHERE r.name = $system ORDER BY r.started_at, o.run_id"""


def sealed_results(store: Store, system: str) -> list[SealedResult]:
    """Return what sealed cases of a system said, the oldest opening first.

    Args:
        store: where rounds are kept.
        system: its name, offline or not.
    """
    found: Any = store.rows(_OPENED, {"system": f"{system}.{SEALED_TAG}"})
    names = SealedResult.__dataclass_fields__
    rows = [{**row, "case_ids": tuple(row["case_ids"])} for row in found]
    return [SealedResult(**{name: row[name] for name in names}) for row in rows]


def opening_of(loaded: Loaded, *, mock_url: str | None = None) -> SealedResult | None:
    """Return what a configuration's sealed cases said; ``None``: they are sealed still, or there are none."""
    store = store_of(loaded)
    if not store.exists:
        return None
    return opening_among(loaded, sealed_results(store, system_name(loaded, mock_url)))


def check_still_sealed(loaded: Loaded, *, mock_url: str | None = None) -> None:
    """Raise if sealed cases of a configuration were opened: their rounds have ended.

    Raises:
        HeldOutError: they were.
    """
    if (done := opening_of(loaded, mock_url=mock_url)) is not None:
        raise HeldOutError(
            f"the sealed cases were opened after round {done.last_round + 1}, which ended the rounds. {ANEW}"
        )


def store_of(loaded: Loaded) -> ParquetStore:
    """Return the store of a configuration."""
    return ParquetStore(store_path(loaded))


def system_name(loaded: Loaded, mock_url: str | None) -> str:
    """Return the name of a configuration's system, offline or not."""
    name = loaded.configuration.api.name
    return name if mock_url is None else f"{name}.{OFFLINE}"


def opening_among(loaded: Loaded, results: Sequence[SealedResult]) -> SealedResult | None:
    """Return the latest opening of a case that is sealed now; ``None``: all are sealed still."""
    sealed = {case.case_id for case in loaded.sealed_cases}
    return next((one for one in reversed(results) if not sealed.isdisjoint(one.case_ids)), None)
