"""Demonstrations of a prompt: which search cases, how many, in which order.

A prompt without demonstrations gets a sample that is balanced over expected answers. One with
demonstrations is changed by one step: another order, one replaced, one more, or one fewer.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from convergence_core.prompts.shots import Shot, joined, split

N_TRIES: Final = 8
"""Maximum draws until one differs from all known prompts."""


def drawn(
    parent: str,
    offered: Sequence[Shot],
    known: frozenset[str],
    most: int,
    rng: np.random.Generator,
) -> tuple[str, tuple[Shot, ...]] | None:
    """Return the parent with other demonstrations, and these; ``None`` if none are new.

    Args:
        parent: Prompt with or without demonstrations.
        offered: Search cases with correct answers.
        known: Prompts of the parameter.
        most: Maximum number of demonstrations.
        rng: Random generator.
    """
    instruction, old = split(parent)
    for _ in range(N_TRIES):
        shots = _moved([*old], offered, most, rng) if old else _balanced(offered, most, rng)
        text = joined(instruction, shots)
        if shots and text not in known:
            return text, tuple(shots)
    return None


def _balanced(offered: Sequence[Shot], most: int, rng: np.random.Generator) -> list[Shot]:
    """Return one to ``most`` demonstrations, cycling through the distinct answers."""
    if not offered or most < 1:
        return []
    n = min(len(offered), max(1, most - int(rng.integers(min(most, 3)))))
    groups: dict[str, list[Shot]] = {}
    for i in rng.permutation(len(offered)):
        groups.setdefault(offered[int(i)].assistant, []).append(offered[int(i)])
    balanced: list[Shot] = []
    while len(balanced) < n:
        for group in groups.values():
            if group and len(balanced) < n:
                balanced.append(group.pop())
    return [balanced[int(i)] for i in rng.permutation(len(balanced))]


def _moved(
    old: list[Shot], offered: Sequence[Shot], most: int, rng: np.random.Generator
) -> list[Shot]:
    """Return demonstrations that differ by one step."""
    new = [shot for shot in offered if shot.user not in {shot.user for shot in old}]
    moves = ["order"] * (3 * (len(old) > 1)) + ["replace"] * (3 * bool(new))
    moves += ["more"] * (2 * (bool(new) and len(old) < most)) + ["less"] * (len(old) > 1)
    if not moves:
        return old
    move = moves[int(rng.integers(len(moves)))]
    if move == "order":
        return [old[int(i)] for i in rng.permutation(len(old))]
    at = int(rng.integers(len(old)))
    if move == "less":
        return [*old[:at], *old[at + 1 :]]
    if move == "more":
        return [*old[:at], new[int(rng.integers(len(new)))], *old[at:]]
    same = [shot for shot in new if shot.assistant == old[at].assistant] or new
    return [*old[:at], same[int(rng.integers(len(same)))], *old[at + 1 :]]
