"""Genetic operators on candidates: selection, uniform crossover, mutation.

Every operator returns a valid, canonical point that keeps bounds, conditions and constraints,
and that differs from its parents if the space has such a point. With probability
``crossover_rate`` a child is the uniform crossover of two parents, without mutation. Otherwise it
is one mutated parent, whose numbers move by N(0, .1 range).
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from convergence_core.records import Candidate, Params, ParamValue
from convergence_core.space import (
    Choice,
    Float,
    Integer,
    Parameter,
    Space,
    same_params,
    same_value,
)

N_TRIES = 20
"""Attempts at one child before a random point of the space replaces it."""
MAX_ENUMERATED = 20_000
"""Maximum size of a finite space to enumerate for unseen points."""
STEP = 0.1
"""Standard deviation of a number's move, as a share of its scale."""


def fresh(space: Space, rng: np.random.Generator, seen: Set[str], n: int) -> list[Candidate]:
    """Draw up to ``n`` different candidates uniformly from those not in ``seen``.

    Fewer than ``n`` mean that the space has no more. In a space too large to enumerate, they may
    also mean 100 misses in a row.
    """
    candidates: dict[str, Candidate] = {}
    misses = 0
    size = space.size()
    while (
        len(candidates) < n and misses < 5 * N_TRIES and (size is None or len(candidates) < size)
    ):
        candidate = space.candidate(space.sample(rng))
        if candidate.candidate_id in seen or candidate.candidate_id in candidates:
            misses += 1
            continue
        misses = 0
        candidates[candidate.candidate_id] = candidate
    if len(candidates) < n and size is not None and size <= MAX_ENUMERATED:
        rest = [space.candidate(point) for point in space.points()]
        rest = [c for c in rest if c.candidate_id not in seen and c.candidate_id not in candidates]
        for i in rng.permutation(len(rest))[: n - len(candidates)]:
            candidates[rest[i].candidate_id] = rest[i]
    return list(candidates.values())


def mutate(
    space: Space, params: Params, rng: np.random.Generator, rate: float
) -> dict[str, ParamValue]:
    """Change each active parameter with probability ``rate``, at least one.

    Args:
        space: Search space.
        params: Canonical point.
        rng: Random generator.
        rate: Probability per parameter.

    Returns:
        Another point, or the same one if many draws found no other.
    """
    for _ in range(N_TRIES):
        child = _moved(space, params, rng, rate)
        if not same_params(child, params) and space.satisfied(child):
            return child
    return _other(space, rng, (params,))


def crossover(
    space: Space, a: Params, b: Params, rng: np.random.Generator
) -> dict[str, ParamValue]:
    """Take each parameter from one of two parents with equal probability.

    If no mix is new (they differ in one parameter only, or every mix violates a constraint),
    mutate a parent instead.
    """
    differing = sum(not same_value(a.get(name), b.get(name)) for name in space.parameters)
    for _ in range(N_TRIES if differing > 1 else 0):
        child = space.complete(_mixed(space, a, b, rng), rng)
        if not (same_params(child, a) or same_params(child, b)) and space.satisfied(child):
            return child
    for _ in range(N_TRIES):
        child = mutate(space, a if rng.random() < 0.5 else b, rng, 0.0)
        if not (same_params(child, a) or same_params(child, b)):
            return child
    return _other(space, rng, (a, b))


def tournament(n: int, size: int, rng: np.random.Generator) -> int:
    """Return the best rank (0 is best) among ``size`` different contestants out of ``n``."""
    return int(rng.choice(n, size=min(size, n), replace=False).min())


@dataclass(frozen=True, slots=True, kw_only=True)
class Breeder:
    """Breeder of single candidates from parents."""

    space: Space
    mutation_rate: float = 0.2
    """Probability that a mutation changes a parameter."""
    crossover_rate: float = 0.7
    """Probability that a child has two parents."""

    def child(self, parents: Sequence[Candidate], rng: np.random.Generator) -> Candidate:
        """Return one child of parents, which are sorted best first."""
        a = self._parent(parents, rng)
        if len(parents) > 1 and rng.random() < self.crossover_rate:
            b = self._parent(parents, rng)
            if b.candidate_id != a.candidate_id:
                point = crossover(self.space, a.params, b.params, rng)
                ids = (a.candidate_id, b.candidate_id)
                return self.space.candidate(point, "crossover", ids)
        point = mutate(self.space, a.params, rng, self.mutation_rate)
        return self.space.candidate(point, "mutation", (a.candidate_id,))

    def _parent(self, parents: Sequence[Candidate], rng: np.random.Generator) -> Candidate:
        size = max(2, len(parents) // 4)
        return parents[tournament(len(parents), size, rng)]

    def brood(
        self, parents: Sequence[Candidate], rng: np.random.Generator, seen: Set[str], n: int
    ) -> list[Candidate]:
        """Return up to ``n`` different children, none of ``seen``.

        Children already seen are bred again. If breeding finds nothing new, draws from the space
        fill the rest. Fewer than ``n`` mean that the space has no more.
        """
        children: dict[str, Candidate] = {}
        misses = 0
        while parents and len(children) < n and misses < N_TRIES:
            child = self.child(parents, rng)
            if child.candidate_id in seen or child.candidate_id in children:
                misses += 1
                continue
            misses = 0
            children[child.candidate_id] = child
        missing = n - len(children)
        return [*children.values(), *fresh(self.space, rng, seen | children.keys(), missing)]


def _moved(
    space: Space, params: Params, rng: np.random.Generator, rate: float
) -> dict[str, ParamValue]:
    names = [name for name in space.parameters if name in params]
    movable = [name for name in names if space.parameters[name].n_values != 1]
    hits = [name for name in movable if rng.random() < rate]
    if not hits and movable:
        hits = [movable[int(rng.integers(len(movable)))]]
    moved = {name: _move(space.parameters[name], params[name], rng) for name in hits}
    return space.complete({**params, **moved}, rng)


def _move(parameter: Parameter, value: ParamValue, rng: np.random.Generator) -> ParamValue:
    """Return another value: a neighbour of a number, or any other choice."""
    if isinstance(parameter, Choice):
        shift = 1 + int(rng.integers(parameter.n_values - 1))
        return parameter.value_at((parameter.index(value) + shift) % parameter.n_values)
    assert isinstance(parameter, Float | Integer)  # noqa: S101 - there is no other kind
    unit = _reflected(parameter.to_unit(value) + STEP * rng.standard_normal())
    moved = parameter.from_unit(unit)
    if isinstance(parameter, Float):
        moved = parameter.tidy(float(moved))
    return moved if moved != value else _next(parameter, value, 1 if rng.random() < 0.5 else -1)


def _next(parameter: Float | Integer, value: ParamValue, direction: int) -> ParamValue:
    """Return the neighbouring value of a number whose move was too small to change it."""
    width = parameter.step or (parameter.max - parameter.min) * 1e-3
    moved = parameter.canonical(float(value) + direction * width)
    return moved if moved != value else parameter.canonical(float(value) - direction * width)


def _reflected(unit: float) -> float:
    """Fold a number beyond a border back inside, so that borders do not attract."""
    unit = abs(unit) % 2.0
    return 2.0 - unit if unit > 1.0 else unit


def _mixed(space: Space, a: Params, b: Params, rng: np.random.Generator) -> dict[str, ParamValue]:
    """Return each parameter of a random parent, or of the other parent if that one lacks it."""
    child: dict[str, ParamValue] = {}
    for name in space.parameters:
        first, second = (a, b) if rng.random() < 0.5 else (b, a)
        if name in first:
            child[name] = first[name]
        elif name in second:
            child[name] = second[name]
    return child


def _other(
    space: Space, rng: np.random.Generator, parents: tuple[Params, ...]
) -> dict[str, ParamValue]:
    """Return any other point, or the first parent if there is none."""
    seen = {space.candidate_id(parent) for parent in parents}
    others = fresh(space, rng, seen, 1)
    return dict(others[0].params) if others else dict(parents[0])
