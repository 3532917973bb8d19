"""Deciding cells: where the recommended candidate and its rivals differed."""

from collections import Counter
from collections.abc import Mapping, Sequence

from convergence_core.explanation.records import CandidateCells, CaseGap, RivalComparison
from convergence_core.posterior import FittedSpaceModel
from convergence_core.search.archive import Archive, Member
from convergence_core.space import Space

MAX_CASES = 10
"""Cases listed in one comparison."""
N_LEADING = 5
"""Candidates whose cells are listed by generation."""

CellToGeneration = Mapping[tuple[str, str, int], int]
"""(candidate, case, repeat) → generation that first asked it."""


def compare(
    fitted: FittedSpaceModel,
    archive: Archive,
    ranking: Sequence[str],
    *,
    space: Space,
    baseline_id: str | None = None,
    case_weights: Mapping[str, float] | None = None,
) -> tuple[RivalComparison, ...]:
    """Compare the recommended candidate with the runner-up and with the default.

    Args:
        fitted: the surrogate with the evidence.
        archive: the evidence.
        ranking: candidates with a reward, the recommended one first, at least one.
        space: for labels.
        baseline_id: the default; ``None``: the configuration gives none.
        case_weights: case → positive weight; absent ones weigh 1.
    """
    winner = archive.members[ranking[0]]
    rivals = dict.fromkeys([*ranking[1:2], *([baseline_id] if baseline_id else [])])
    return tuple(
        _comparison(
            winner,
            rival,
            label=space.name(rival.candidate),
            is_default=rival_id == baseline_id,
            probability=float(
                fitted.posterior([winner.candidate, rival.candidate]).probability_above(1)[0]
            ),
            weights=case_weights or {},
        )
        for rival_id in rivals
        if (rival := archive.members.get(rival_id)) and rival.n and rival is not winner
    )


def spent_on(
    archive: Archive,
    ranking: Sequence[str],
    *,
    space: Space,
    cell_to_generation: CellToGeneration,
) -> tuple[CandidateCells, ...]:
    """Return the leading candidates' cells by generation.

    Cells whose generation is unknown count for the one that first asked the candidate.
    """
    found = []
    for name in ranking[:N_LEADING]:
        member = archive.members[name]
        counts = Counter(
            cell_to_generation.get((name, case, repeat), member.generation)
            for case, repeat in member.rewards
        )
        found.append(
            CandidateCells(
                candidate_id=name,
                label=space.name(member.candidate),
                by_generation=tuple(sorted(counts.items())),
            )
        )
    return tuple(found)


def _comparison(
    winner: Member,
    rival: Member,
    *,
    label: str,
    is_default: bool,
    probability: float,
    weights: Mapping[str, float],
) -> RivalComparison:
    ours, theirs = _by_case(winner), _by_case(rival)
    gaps = {case: ours[case] - theirs[case] for case in sorted(ours.keys() & theirs.keys())}
    total = sum(weights.get(case, 1.0) for case in gaps)
    parts = [
        CaseGap(case_id=case, gap=gap, share=gap * weights.get(case, 1.0) / total)
        for case, gap in gaps.items()
    ]
    parts.sort(key=lambda part: -abs(part.share))  # stable: by name among equal ones
    n_above = sum(gap > 0 for gap in gaps.values())
    n_equal = sum(gap == 0 for gap in gaps.values())
    return RivalComparison(
        rival_id=rival.candidate.candidate_id,
        rival="default" if is_default else "runner-up",
        label=label,
        n_shared=len(gaps),
        n_above=n_above,
        n_equal=n_equal,
        n_below=len(gaps) - n_above - n_equal,
        gap=sum(part.share for part in parts) if parts else None,
        probability=probability,
        cases=tuple(part for part in parts if part.gap)[:MAX_CASES],
    )


def _by_case(member: Member) -> dict[str, float]:
    """Return case → mean reward over repeats."""
    seen: dict[str, list[float]] = {}
    for (case, _), reward in member.rewards.items():
        seen.setdefault(case, []).append(reward)
    return {case: sum(rewards) / len(rewards) for case, rewards in seen.items()}
