"""What was known after each generation: the evidence of that moment, asked again."""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from convergence_core import tallies
from convergence_core.archive import Archive, Member
from convergence_core.posterior import optimism
from convergence_core.recommend import Recommendation
from convergence_core.result import CurvePoint
from convergence_core.sampler import SearchState
from tasks.report.evidence import Evidence

Recommend: TypeAlias = Callable[[SearchState], Recommendation | None]
"""Says whom some evidence would hand over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Height:
    """Posterior mean, with interval, of the candidate to hand over at some moment."""

    mean: float
    low: float
    high: float


def learning_curve(
    evidence: Evidence,
    search: SearchState,
    recommendation: Recommendation | None,
    recommend: Recommend,
    *,
    known: MutableMapping[int, Height | None],
) -> tuple[CurvePoint, ...]:
    """Return one point per committed generation.

    Args:
        evidence: what the store holds.
        search: what was learned by the last of these generations.
        recommendation: whom that evidence hands over.
        recommend: says whom the evidence of an earlier generation would have handed over.
        known: heights by generation, from earlier calls for the same run; is added to.
    """
    if evidence.generations:
        known[evidence.generations[-1].generation] = _height(recommendation)
    points = []
    n_calls = 0
    usd: float | None = None
    for row in evidence.generations:
        if row.generation not in known:
            archive = until(search.archive, row.generation, evidence.cell_to_generation)
            then = replace(
                search, archive=archive, memory=optimism.until(search.memory, row.generation)
            )
            known[row.generation] = _height(recommend(then))
        height = known[row.generation]
        n_calls += row.n_calls
        usd = usd if row.cost_usd is None else row.cost_usd + (usd or 0.0)
        points.append(
            CurvePoint(
                generation=row.generation,
                n_evaluations=row.n_evaluations,
                cumulative_calls=n_calls,
                best_mean=None if height is None else height.mean,
                low=None if height is None else height.low,
                high=None if height is None else height.high,
                mean_reward=row.mean_reward,
                cumulative_usd=usd,
            )
        )
    return tuple(points)


def until(
    archive: Archive, generation: int, cell_to_generation: Mapping[tuple[str, str, int], int]
) -> Archive:
    """Return the archive as it was after a generation; cells the store lacks count as later."""

    def cut(member: Member) -> Member:
        name = member.candidate.candidate_id
        late = generation + 1
        return replace(
            member,
            rewards={
                cell: reward
                for cell, reward in member.rewards.items()
                if cell_to_generation.get((name, *cell), late) <= generation
            },
            missing=frozenset(
                cell
                for cell in member.missing
                if cell_to_generation.get((name, *cell), late) <= generation
            ),
            tallies=tallies.until(member.tallies, generation),
        )

    return Archive(
        {
            name: cut(member)
            for name, member in archive.members.items()
            if member.generation <= generation
        }
    )


def _height(recommendation: Recommendation | None) -> Height | None:
    if recommendation is None:
        return None
    return Height(mean=recommendation.mean, low=recommendation.low, high=recommendation.high)
