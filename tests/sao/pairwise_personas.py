"""Personas chosen pair by pair, one set of words after another: slow, and what the index must agree with."""

from collections.abc import Mapping, Sequence

from convergence_core.judges.texts import jaccard, word_set
from convergence_core.sao.diversity import FACTOR, UNKNOWN
from convergence_core.sao.personas import FACTORS, Persona

_SHARED = (FACTORS.index("domain"), FACTORS.index("goal"))


def choose(
    pool: Sequence[Persona],
    hardness: Mapping[int, float],
    *,
    n: int,
    factor: float = FACTOR,
    chosen: Sequence[Persona] = (),
) -> list[Persona]:
    """Return up to ``n`` personas of a pool, in the order of choice.

    Args:
        pool: to choose from.
        hardness: index → hardness, in [0, 1].
        n: how many.
        factor: f, weight of being unlike the others, in [0, 1].
        chosen: personas asked earlier.
    """
    left = list(pool)
    words = {one.index: word_set(one.text) for one in left}
    before = [word_set(one.text) for one in chosen]
    alike = {
        one.index: max((jaccard(words[one.index], other) for other in before), default=0.0)
        for one in left
    }
    found: list[Persona] = []
    while left and len(found) < n:
        best = max(
            left,
            key=lambda one: (
                (1.0 - factor) * hardness.get(one.index, UNKNOWN) - factor * alike[one.index],
                -one.index,
            ),
        )
        left.remove(best)
        found.append(best)
        for one in left:
            same = jaccard(words[one.index], words[best.index])
            alike[one.index] = max(alike[one.index], same)
    return found


def hardness_of(
    pool: Sequence[Persona], judged: Sequence[tuple[Persona, float]]
) -> dict[int, float]:
    """Return index → hardness of each persona of a pool.

    Args:
        pool: whose hardness is wanted.
        judged: personas that were asked, and q of their pairs.
    """
    seen: dict[str, list[float]] = {}
    for persona, q in judged:
        for place in _SHARED:
            seen.setdefault(persona.levels[place], []).append(1.0 - abs(2.0 * q - 1.0))
    found = {}
    for one in pool:
        values = [v for place in _SHARED for v in seen.get(one.levels[place], ())]
        found[one.index] = sum(values) / len(values) if values else UNKNOWN
    return found
