"""Archives made of plain tables of rewards."""

from collections.abc import Mapping, Sequence

import numpy as np

from convergence_core.archive import Archive, Member
from convergence_core.records import Candidate


def candidate(name: str, parents: Sequence[str] = ()) -> Candidate:
    return Candidate(candidate_id=name, params={"x": name}, parent_ids=tuple(parents))


def archive(
    rewards: Mapping[str, Mapping[str, float] | Mapping[tuple[str, int], float]],
    parents: Mapping[str, Sequence[str]] | None = None,
) -> Archive:
    """One member per name; children belong to the generation after their parents'."""
    generation: dict[str, int] = {}
    members = {}
    for name, by_cell in rewards.items():
        own = (parents or {}).get(name, ())
        generation[name] = max((generation[p] + 1 for p in own if p in generation), default=0)
        members[name] = Member(
            candidate=candidate(name, own),
            generation=generation[name],
            rewards={(k, 0) if isinstance(k, str) else k: float(r) for k, r in by_cell.items()},
        )
    return Archive(members)


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
