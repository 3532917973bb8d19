"""Report on the sources of settings: their share of a run and their gain.

    g_i = max(0, m_i - max_j m_j),    j evaluated before i                                         (1)

is what setting i adds to the leader's posterior mean m, under the latest posterior. ``LINE`` of a
bred setting's gain goes to the sources of its parents, recursively.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from convergence_core.records import Origin

if TYPE_CHECKING:
    from convergence_core.evidence import Archive, Member

POOL: Final = "pool"
SOURCES: Final[Mapping[Origin, str]] = {
    "sample": POOL,
    "mutation": POOL,
    "crossover": POOL,
    "written": "edits",
    "rlp": "thoughts",
    "sao": "preferences",
}
"""Origin of a setting → its source; the defaults and winners of earlier runs have none."""
LINE: Final = 0.5
"""Share of a bred setting's gain that goes to its parents' sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """Share of a source in a run, and its gain."""

    source: str
    n_settings: int
    n_evaluations: int
    """Number of rewards of these settings."""
    n_leads: int
    """Number of settings whose posterior mean exceeds all earlier ones."""
    gain: float
    """Sum of gains (eq. 1), credited along ancestry."""
    n_calls: int = 0
    """Calls of the source itself, which evaluate no setting."""
    cost_usd: float | None = 0.0
    """Cost of these calls in US dollars; ``None`` if a price is unknown."""


def parts_of(archive: "Archive") -> dict[str, dict[str, float]]:
    """Return setting → source → share; a setting's shares sum to 1, or to 0 without a source."""
    parts: dict[str, dict[str, float]] = {}
    for name, member in archive.members.items():
        source = SOURCES.get(member.candidate.origin)
        parents = [parts[parent] for parent in member.candidate.parent_ids if parts.get(parent)]
        parts[name] = {} if source is None else {source: 1.0 - LINE if parents else 1.0}
        for parent in parents if source is not None else ():
            for other, part in parent.items():
                parts[name][other] = parts[name].get(other, 0.0) + LINE * part / len(parents)
    return parts


def source_reports(archive: "Archive", means: Mapping[str, float]) -> tuple[SourceReport, ...]:
    """Return a report per source of a run, the pool first, without the sources' own calls.

    Args:
        archive: Evidence of the run.
        means: Setting → posterior mean; other settings are skipped.
    """
    parts, best = parts_of(archive), -1.0
    members: dict[str, list[Member]] = {source: [] for source in dict.fromkeys(SOURCES.values())}
    n_leads, gains = dict.fromkeys(members, 0), dict.fromkeys(members, 0.0)
    for name, member in archive.members.items():
        if name not in means:
            continue
        source, is_first = SOURCES.get(member.candidate.origin), best < 0.0
        gain = 0.0 if is_first else max(0.0, means[name] - best)
        best = max(best, means[name])
        for other, part in parts[name].items():
            gains[other] += part * gain
        if source is not None:
            members[source].append(member)
            n_leads[source] += gain > 0.0
    return tuple(
        SourceReport(
            source=source,
            n_settings=len(own),
            n_evaluations=sum(member.n for member in own),
            n_leads=n_leads[source],
            gain=gains[source],
        )
        for source, own in members.items()
        if own
    )
