"""Archives made of plain tables of rewards."""

from collections.abc import Mapping

import numpy as np

from convergence_core.evidence import Archive, Member
from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate
from convergence_core.space import Choice, Space


def candidate(name: str) -> Candidate:
    return Candidate(candidate_id=name, params={"x": name})


def archive(
    rewards: Mapping[str, Mapping[str, float] | Mapping[tuple[str, int], float]],
) -> Archive:
    """One member of generation 0 per name."""
    return Archive(
        {
            name: Member(
                candidate=candidate(name),
                generation=0,
                rewards={
                    (k, 0) if isinstance(k, str) else k: float(r) for k, r in by_cell.items()
                },
            )
            for name, by_cell in rewards.items()
        }
    )


def surrogate(archive: Archive) -> SpaceModel:
    """The model of a space whose points are the names: none is nearer to one than to another."""
    names = tuple(archive.members) or ("nobody",)
    return SpaceModel(space=Space(parameters={"x": Choice(kind="categorical", choices=names)}))


def two_way(
    rng: np.random.Generator,
    *,
    n_members: int,
    n_cases: int,
    share: float = 1.0,
    sd_member: float = 0.06,
    sd_case: float = 0.12,
    sd_noise: float = 0.12,
    binary: bool = False,
) -> tuple[Archive, np.ndarray]:
    """An archive drawn from the two-way model, and the candidates' true means over all cases."""
    a = rng.normal(0.5, sd_member, n_members)
    b = rng.normal(0, sd_case, n_cases)
    rewards = {}
    for i in range(n_members):
        seen = rng.choice(n_cases, max(1, int(share * n_cases)), replace=False)
        y = a[i] + b[seen]
        if binary:
            y = (rng.random(len(seen)) < y).astype(float)
        else:
            y = y + rng.normal(0, sd_noise, len(seen))
        rewards[f"m{i:04d}"] = {
            f"c{j:04d}": float(r) for j, r in zip(seen.tolist(), y.tolist(), strict=True)
        }
    return archive(rewards), a + b.mean()
