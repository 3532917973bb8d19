"""Keys of calls: hashes of all that shapes an answer, and of who may use it again.

No secret and no clock is in it. The epoch is: a nightly run that was fed last night's answers
would never see drift, so by default answers are used again within their run alone.
"""

from dataclasses import dataclass

from convergence_core.config import CacheConfig
from convergence_core.records import Cell, Json, canonical_json, sha256_hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Who shares answers with whom."""

    run_id: str
    cache: CacheConfig
    run_started_us: int
    """Ages are counted back from the beginning of the run, so a resume finds the same answers."""
    world: str = ""
    """Whose answers these are: the mock's never mix with those of real models."""

    def name(self, eval_id: str) -> str:
        """Return what goes into the keys of one evaluation's calls."""
        if self.cache.shared:
            return f"shared/{self.world}" if self.world else "shared"
        return self.run_id if self.cache.epoch == "run" else f"{self.run_id}/{eval_id}"

    @property
    def fresh_since_us(self) -> int | None:
        """End of the oldest answer that may be used; ``None``: however old."""
        age_s = self.cache.max_age_s
        return None if age_s is None else self.run_started_us - int(age_s * 1e6)


def call_key(
    *, provider: str, request: Json, cell: Cell, purpose: str, vote: int, epoch: str
) -> str:
    """Return the journal's key of a call made for a cell.

    Fresh cells have keys of their own: an answer that the search has seen is no fresh one.

    Args:
        provider: short name, as in the tables.
        request: everything that is sent, base URL and model included, secrets not.
        cell: its case and its repeat are part of the key.
        purpose: the role that pays.
        vote: number of the vote of a judge; 0 for all others.
        epoch: see ``Epoch.name``.
    """
    return sha256_hex(
        canonical_json(
            {
                "provider": provider,
                "request": request,
                "case": cell.case_id,
                "repeat": [cell.repeat, vote] if vote else cell.repeat,
                "epoch": epoch,
                "purpose": f"{purpose}/fresh" if cell.role == "fresh" else purpose,
            }
        )
    )
