"""Search space: its points, their identity, and the constraints between them.

A point is the mapping of its *active* parameters to canonical values. ``candidate`` is the one
door through which points become candidates: it drops inactive parameters, clips, snaps and
rounds, so points that mean the same have one ``candidate_id``.
"""

import difflib
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from convergence_core.config.expressions import Expression
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import (
    DEFAULT_NAME,
    Candidate,
    Json,
    Origin,
    Params,
    ParamValue,
    canonical_json,
    n_shared_words,
    same_value,
    sha256_hex,
    short_id,
)
from convergence_core.space.parameters import Choice, Float, Parameter

MAX_ENUMERATED = 1_000_000
"""Points that ``size`` counts at most."""
MAX_CHECKED = 100_000
"""Points that ``size`` and ``points`` walk at most where conditions or constraints hold."""
RARE = 100
"""One of so many combinations keeps the constraints where points are walked, not drawn."""
MAX_TRIES = 10_000
"""Draws before a space whose constraints refuse them all counts as empty."""
N_PROBES = 2_000
"""Points of which one keeps the constraints where points are drawn; else they are found step by step."""
MAX_CORNERS = 1_024
"""Corners of the space that are tried as beginnings of a chain."""
N_SWEEPS = 6
"""Steps of a chain per parameter."""
N_REDRAWS = 30
"""Draws of one step before a chain stays where it is."""
LEADERS = 10
"""Best candidates whose differences the names of all candidates tell first."""
LONGEST_NAME = 40
"""Characters of a candidate's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Parameters, their conditions, and the constraints between them."""

    parameters: Mapping[str, Parameter]
    """By name, in the order of the configuration."""
    constraints: tuple[Expression, ...] = ()
    """Texts are compared as the configuration spells them: a variant's path, or the text."""
    _order: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Names, each after the parameters its conditions name."""
    _memo: dict[str, int | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _few: dict[str, tuple[Params, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Order the parameters by their conditions, which lead in no circle."""
        object.__setattr__(self, "_order", self._topological_order())

    @property
    def order(self) -> tuple[str, ...]:
        """Names, each after the parameters its conditions name."""
        return self._order

    # -- points ------------------------------------------------------------------------------

    def is_active(self, name: str, params: Params) -> bool:
        """Return whether a parameter's conditions hold, and those of the parameters they name."""
        return all(
            other in params
            and any(same_value(params[other], value) for value in values)
            and self.is_active(other, params)
            for other, values in self.parameters[name].when
        )

    def satisfied(self, params: Params) -> bool:
        """Return whether all constraints hold; those on inactive parameters do not apply."""
        if not self.constraints:
            return True
        spelled = self.spell(params)
        return all(constraint.evaluate(spelled) for constraint in self.constraints)

    def spell(self, params: Params) -> dict[str, ParamValue]:
        """Return params as the configuration spells them: text variants by path, not content."""
        return {name: self._spelling(name, value) for name, value in params.items()}

    def canonical(self, params: Params) -> dict[str, ParamValue]:
        """Return the active parameters in the space's order, each with its canonical value.

        Raises:
            ValueError: an active parameter is missing or its value is of the wrong type.
        """
        known: dict[str, ParamValue] = {}
        for name in self._order:
            if not self.is_active(name, known):
                continue
            if name not in params:
                raise ValueError(f"`{name}` is active but has no value")
            try:
                known[name] = self.parameters[name].canonical(params[name])
            except ValueError as error:
                raise ValueError(f"`{name}` {error}") from None
        return {name: known[name] for name in self.parameters if name in known}

    def candidate(
        self, params: Params, origin: Origin = "sample", parent_ids: tuple[str, ...] = ()
    ) -> Candidate:
        """Return the candidate of a point; equal points have equal ids. Constraints may be broken.

        Raises:
            ValueError: an active parameter is missing or its value is of the wrong type.
        """
        point = self.canonical(params)
        return Candidate(
            candidate_id=_id_of(point), params=point, origin=origin, parent_ids=parent_ids
        )

    def candidate_id(self, params: Params) -> str:
        """Return the identity of a point: 16 digits of the SHA-256 of its canonical JSON.

        Raises:
            ValueError: an active parameter is missing or its value is of the wrong type.
        """
        return _id_of(self.canonical(params))

    def complete(self, params: Params, rng: np.random.Generator) -> dict[str, ParamValue]:
        """Return the point with a drawn value for each active parameter that has none."""
        known: dict[str, ParamValue] = {}
        for name in self._order:
            if self.is_active(name, known):
                parameter = self.parameters[name]
                given = params.get(name)
                known[name] = (
                    parameter.sample(rng) if given is None else parameter.canonical(given)
                )
        return {name: known[name] for name in self.parameters if name in known}

    def sample(self, rng: np.random.Generator) -> dict[str, ParamValue]:
        """Draw a point, uniform per parameter, given that all constraints hold.

        Where a finite space holds few such points, each of them is equally likely. Where they are
        few in a space too large to count, a chain starts at a corner or another known point and
        redraws one or two parameters at a time, numbers by shrinkage (Neal 2003): this is the same
        distribution in the limit of many steps, over the points that such steps reach from there.

        Raises:
            ConfigurationError: no point was found that satisfies the constraints.
        """
        if not (self.constraints and self._is_rare()):
            for _ in range(MAX_TRIES):
                point = self.complete({}, rng)
                if self.satisfied(point):
                    return point
        points = self._starts() if self.size() is None else list(self.points())
        if points:
            point = dict(points[int(rng.integers(len(points)))])
            return self._chained(point, rng) if self.size() is None else point
        raise ConfigurationError.of(
            "search_space.constraints",
            "must leave points to search, but none was found",
            "Loosen a constraint, or narrow the parameters to where it holds.",
            value="; ".join(str(constraint) for constraint in self.constraints),
        )

    def baseline(self) -> dict[str, ParamValue] | None:
        """Return the user's defaults as a point, or ``None`` if no parameter has one.

        An active parameter without a default takes its first choice or the middle of its scale.
        """
        if all(parameter.default is None for parameter in self.parameters.values()):
            return None
        return self.canonical(
            {
                name: p.from_unit(0.0 if isinstance(p, Choice) else 0.5)
                if p.default is None
                else p.default
                for name, p in self.parameters.items()
            }
        )

    # -- checking ----------------------------------------------------------------------------

    def validate(self, params: Mapping[str, object]) -> list[Problem]:
        """Return everything that is wrong with a point that comes from outside; empty: nothing."""
        problems = []
        for name in params:
            if name not in self.parameters:
                near = difflib.get_close_matches(name, list(self.parameters), n=1)
                fix = f"Did you mean `{near[0]}`?" if near else "Remove it."
                rule = "must be a parameter of the space"
                problems.append(Problem(key=name, rule=rule, fix=fix))
        known: dict[str, ParamValue] = {}
        for name in self._order:
            problem = self._value_problem(name, params, known)
            if problem is not None:
                problems.append(problem)
        if problems:
            return problems
        spelled = self.spell(known)
        return [
            Problem(
                key="",
                rule="a constraint must hold",
                value=self.label(known, n=len(known)),
                fix=f"Satisfy `{constraint}`.",
            )
            for constraint in self.constraints
            if not constraint.evaluate(spelled)
        ]

    def _value_problem(
        self, name: str, params: Mapping[str, object], known: dict[str, ParamValue]
    ) -> Problem | None:
        """Return the rule that one value breaks; a right value is added to ``known``."""
        active = self.is_active(name, known)
        parameter, value = self.parameters[name], ""
        if name not in params:
            if not active:
                return None
            rule, fix = "must have a value", "Add it."
        elif not active:
            rule, fix = "must be absent, because its conditions do not hold", "Remove it."
        else:
            broken = parameter.problem(params[name])
            if broken is None:
                known[name] = parameter.canonical(params[name])
                return None
            rule, fix, value = broken, "Write a value that it can take.", str(params[name])[:60]
        return Problem(key=name, rule=rule, value=value, fix=fix)

    # -- counting ----------------------------------------------------------------------------

    def size(self) -> int | None:
        """Return the number of points, or ``None`` if there are infinitely or too many to count.

        Counted up to a million; with conditions or constraints, where the points have to be
        walked, up to a hundred thousand combinations.
        """
        if "size" not in self._memo:
            self._memo["size"] = self._count()
        return self._memo["size"]

    def points(self) -> Iterator[dict[str, ParamValue]]:
        """Walk all points that satisfy the constraints, in a fixed order.

        The points of a space where they are rare are kept after the first walk.

        Raises:
            ValueError: the space cannot be counted, see ``size``.
        """
        if self.size() is None:
            raise ValueError("the space has too many points to walk")
        if not (self.constraints and self._is_rare()):
            yield from self._walk({}, 0)
            return
        if "points" not in self._few:
            self._few["points"] = tuple(self._walk({}, 0))
        yield from (dict(point) for point in self._few["points"])

    def _is_rare(self) -> bool:
        """Return whether so few points keep the constraints that drawing would seldom hit one."""
        size = self.size()
        if size is None:
            return not self._probes()
        return size * RARE < math.prod(p.n_values or 1 for p in self.parameters.values())

    def _probes(self) -> tuple[Params, ...]:
        """Return the first of many points, spread over the space, that keep the constraints."""
        if "probes" not in self._few:
            self._few["probes"] = self._spread(N_PROBES, 1)
        return self._few["probes"]

    def _starts(self) -> tuple[Params, ...]:
        """Return points that keep the constraints: spread ones, defaults, the middle, and corners."""
        if "starts" not in self._few:
            n = len(self.parameters)
            mixed = itertools.islice(itertools.product((0.0, 1.0), repeat=n), MAX_CORNERS)
            places = itertools.chain([(0.5,) * n, (1.0,) * n], mixed)
            known = [self._defaults() or self._at((0.5,) * n), *map(self._at, places)]
            kept = (*self._probes(), *filter(self.satisfied, known))
            starts = kept or self._spread(MAX_TRIES, 1)
            self._refuse_stuck(starts)
            self._few["starts"] = starts
        return self._few["starts"]

    def _refuse_stuck(self, starts: Sequence[Params]) -> None:
        """Refuse constraints such as ``a + b == 1`` of free numbers, which no draw ever meets.

        Raises:
            ConfigurationError: no start keeps the constraints when such a number changes a little.
        """
        for name, parameter in self.parameters.items():
            if not isinstance(parameter, Float) or parameter.n_values is not None:
                continue
            known = [start for start in starts if name in start]
            units = [parameter.to_unit(start[name]) for start in known]
            moves = (
                self.satisfied(
                    {**start, name: parameter.from_unit(min(1.0, max(0.0, u + sign * d)))}
                )
                for start, u in zip(known, units, strict=True)
                for d in (1e-2, 1e-4, 1e-6)
                for sign in (-1.0, 1.0)
                if 0.0 <= u + sign * d <= 1.0
            )
            if known and not any(moves):
                raise ConfigurationError.of(
                    "search_space.constraints",
                    f"must leave more than single values to `{name}`, a number without a `step`",
                    "Give it and the numbers it is compared with a `step`, or write `<=` for `==`.",
                )

    def _spread(self, n_points: int, n: int) -> tuple[Params, ...]:
        """Return the first n that keep the constraints, of so many points of a Kronecker sequence."""
        n_dims = len(self.parameters)
        shifts = 2.0 ** (np.arange(1, n_dims + 1) / (n_dims + 1))
        points = (self._at((i * shifts) % 1.0) for i in range(1, n_points + 1))
        return tuple(itertools.islice(filter(self.satisfied, points), n))

    def _at(self, units: Iterable[float]) -> Params:
        """Return the point at these places of the parameters on [0, 1]."""
        parameters = zip(self.parameters.items(), units, strict=True)
        return self.canonical({name: p.from_unit(unit) for (name, p), unit in parameters})

    def _chained(
        self, point: dict[str, ParamValue], rng: np.random.Generator
    ) -> dict[str, ParamValue]:
        """Return where a chain ends that begins at a point; each eighth step redraws two parameters."""
        n = len(self.parameters)
        for step in range(N_SWEEPS * n):
            chosen = {self._order[int(j)] for j in rng.integers(n, size=1 if step % 8 else 2)}
            draws = itertools.islice(self._redrawn(point, chosen, rng), N_REDRAWS)
            point = next(filter(self.satisfied, draws), point)
        return point

    def _redrawn(
        self, point: Params, chosen: set[str], rng: np.random.Generator
    ) -> Iterator[dict[str, ParamValue]]:
        """Draw parameters anew, and what depends on them; one number ever nearer to its value."""
        name = min(chosen)
        for other in self._order:
            if any(switch in chosen for switch, _ in self.parameters[other].when):
                chosen.add(other)
        rest = {other: value for other, value in point.items() if other not in chosen}
        parameter = self.parameters[name]
        while len(chosen) > 1 or isinstance(parameter, Choice) or name not in point:
            yield self.complete(rest, rng)
        bracket, value = parameter, parameter.canonical(point[name])
        while True:
            drawn = parameter.canonical(bracket.sample(rng))
            if isinstance(parameter, Float):
                drawn = parameter.tidy(drawn)
            yield self.complete({**rest, name: drawn}, rng)
            step = parameter.step or 0
            bound: dict[str, Any] = (
                {"min": parameter.canonical(drawn + step)}
                if drawn < value
                else {"max": parameter.canonical(drawn - step)}
            )
            bracket = replace(bracket, **bound)

    def _walk(self, known: dict[str, ParamValue], depth: int) -> Iterator[dict[str, ParamValue]]:
        if depth == len(self._order):
            point = {name: known[name] for name in self.parameters if name in known}
            if self.satisfied(point):
                yield point
            return
        name = self._order[depth]
        if not self.is_active(name, known):
            yield from self._walk(known, depth + 1)
            return
        parameter = self.parameters[name]
        for index in range(parameter.n_values or 0):
            yield from self._walk({**known, name: parameter.value_at(index)}, depth + 1)

    def _count(self) -> int | None:
        product = 1
        for parameter in self.parameters.values():
            if parameter.n_values is None:
                return None
            product *= parameter.n_values
        if not self.constraints and not any(p.when for p in self.parameters.values()):
            return product if product <= MAX_ENUMERATED else None
        return sum(1 for _ in self._walk({}, 0)) if product <= MAX_CHECKED else None

    # -- showing -----------------------------------------------------------------------------

    def label(self, params: Params, n: int | None = None) -> str:
        """Return a name for people: the active parameters that can vary.

        Args:
            params: a point of the space.
            n: the first so many, and how many more there are; by default all.
        """
        varying = [
            f"{name}={_named(parameter, params[name])}"
            for name, parameter in self.parameters.items()
            if name in params and parameter.n_values != 1
        ]
        n_more = 0 if n is None else len(varying) - n
        return " ".join([*varying[:n], *([f"(+{n_more} more)"] if n_more > 0 else [])])

    def name(self, candidate: Candidate, n: int | None = None) -> str:
        """Return a candidate's name for people: the parameters that differ from the defaults.

        Without defaults it names all that can vary. No two whole names are alike; that of the
        defaults is ``default``.

        Args:
            candidate: a point of the space.
            n: the first so many parameters, and how many more there are; by default all.
        """
        base = self._defaults()
        changed = {
            name: value
            for name, value in candidate.params.items()
            if name not in base or not same_value(base[name], value)
        }
        return self.label(changed, n) or DEFAULT_NAME

    def names(
        self, points: Mapping[str, Params], known: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return candidate → name of at most 40 characters, unique: what tells candidates apart.

        What differs among the leaders comes first, e.g. ``gpt-4o · prompt 2 · t 0.3``; the defaults are
        called ``default``.

        Args:
            points: candidate → its values, the best candidate first.
            known: names that other candidates have already.
        """
        leading = [*points.values()][:LEADERS]
        # Sorting is stable: models and prompts come before numbers, each in the order of the space.
        kinds = {"categorical": 0, "text": 1}
        base = self._defaults()
        varying = self._varying([*points.values(), *([base] if base else [])])
        ordered = sorted(
            varying
            or [name for name, parameter in self.parameters.items() if parameter.n_values != 1],
            key=lambda name: (
                name not in self._varying(leading),
                kinds.get(self.parameters[name].kind, 2),
            ),
        )
        names: dict[str, str] = {}
        taken = set((known or {}).values())
        for candidate_id, params in points.items():
            if base and all(
                same_value(base.get(name), params.get(name)) for name in self.parameters
            ):
                name = _unique(DEFAULT_NAME, [], taken)
            else:
                parts = [_part(self.parameters[n], n, params[n]) for n in ordered if n in params]
                if len(ordered) == 1 and self.parameters[ordered[0]].kind == "text" and parts:
                    prompts = self._earlier(ordered[0], params[ordered[0]])
                    parts = [_with_first_words(parts[0], str(params[ordered[0]]), prompts)]
                name = _unique(*_fitting(parts or [short_id(candidate_id)]), taken)
            names[candidate_id] = name
            taken.add(name)
        return names

    def named_values(self, points: Iterable[Params]) -> dict[str, dict[str, str]]:
        """Return parameter → name in labels → whole value, of values that labels only name."""
        values: dict[str, dict[str, str]] = {}
        for params in points:
            for name, value in params.items():
                parameter = self.parameters.get(name)
                if isinstance(parameter, Choice) and isinstance(value, str):
                    shown = parameter.show(value)
                    if shown != value:
                        values.setdefault(name, {})[shown] = value
        return values

    def to_json(self) -> Json:
        """Describe the space; texts by their names."""
        return {
            "parameters": {
                name: {**parameter.to_json(), "when": self._spelled_when(parameter)}
                for name, parameter in self.parameters.items()
            },
            "constraints": [str(constraint) for constraint in self.constraints],
        }

    # -- inside ------------------------------------------------------------------------------

    def _defaults(self) -> Params:
        """Return the defaults; empty where there are none."""
        if "baseline" not in self._few:
            baseline = self.baseline()
            self._few["baseline"] = () if baseline is None else (baseline,)
        return next(iter(self._few["baseline"]), {})

    def _varying(self, points: Iterable[Params]) -> list[str]:
        """Return the parameters that have several values, or are not active everywhere."""
        every = list(points)
        seen = {name: {_key(point.get(name)) for point in every} for name in self.parameters}
        return [name for name, values in seen.items() if len(values) > 1]

    def _earlier(self, name: str, value: ParamValue) -> list[str]:
        """Return the default of a text parameter and the texts that precede a value."""
        parameter = self.parameters[name]
        assert isinstance(parameter, Choice)  # noqa: S101 - texts are choices
        texts = parameter.choices[: parameter.index(value)]
        return [str(text) for text in (self._defaults().get(name, ""), *texts) if text != value]

    def _spelling(self, name: str, value: ParamValue) -> ParamValue:
        parameter = self.parameters[name]
        return parameter.spelling(value) if isinstance(parameter, Choice) else value

    def _spelled_when(self, parameter: Parameter) -> Json:
        return {
            other: [self._spelling(other, value) for value in values]
            for other, values in parameter.when
        }

    def _topological_order(self) -> tuple[str, ...]:
        """Return names after those they depend on."""
        order: list[str] = []
        for _ in self.parameters:
            order += [
                name
                for name, parameter in self.parameters.items()
                if name not in order and all(other in order for other, _ in parameter.when)
            ]
        return tuple(order)


def _id_of(point: Params) -> str:
    return sha256_hex(canonical_json(dict(point)))[:16]


def _named(parameter: Parameter, value: ParamValue) -> str:
    """Return a value as it stands in a name: numbers whole, so that no two values look alike."""
    return f"{value:.15g}" if isinstance(value, float) else parameter.show(value)


def _key(value: ParamValue | None) -> tuple[bool, object]:
    return isinstance(value, bool), value


def _part(parameter: Parameter, name: str, value: ParamValue) -> str:
    """Return a value as a part of a name: ``gpt-4o``, ``prompt 2``, ``t 0.3``, ``no stream``."""
    name = "t" if name == "temperature" else name
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(parameter, Choice) and parameter.kind != "text" and isinstance(value, str):
        return parameter.show(value)
    shown = f"{value:.3g}" if isinstance(value, float) else parameter.show(value)
    return f"{name} {shown.removeprefix('#')}"


def _with_first_words(name: str, prompt: str, earlier: Iterable[str]) -> str:
    """Return a name and the prompt's first words that fit, from the first that is new.

    Words are whole: half a secret is hard to redact. Later prompts do not count, so a name stays.
    """
    words = prompt.split()
    n_shared = max((n_shared_words(words, other.split()) for other in earlier), default=0)
    shown = _cut_words(f"{name}:", words)
    shared = f"{name}: {' '.join(words[:n_shared])}"
    if n_shared < len(words) and shared.startswith(shown.rstrip("…")):
        return _cut_words(f"{name}: …", words[n_shared:])
    return shown


def _cut_words(shown: str, words: Sequence[str]) -> str:
    """Return a text with the words that fit after it."""
    for i, word in enumerate(words):
        if len(shown) + len(word) + 2 > LONGEST_NAME:
            return f"{shown}…" if i else shown.rstrip(": …")
        shown = f"{shown} {word}"
    return shown


def _fitting(parts: Sequence[str]) -> tuple[str, list[str]]:
    """Return the first parts that fit into a name, at least one, and the others."""
    n = 1
    while n < len(parts) and len(" · ".join(parts[: n + 1])) <= LONGEST_NAME:
        n += 1
    return " · ".join(parts[:n]), list(parts[n:])


def _unique(name: str, others: Sequence[str], taken: Collection[str]) -> str:
    """Return a name that is not taken, cut in the middle, with a further part or a number."""
    ends = ["", *(f" · {part}" for part in others)]
    for end in [*ends, *(f" #{number}" for number in range(2, len(taken) + 3))]:
        text = _cut(name, LONGEST_NAME - len(end)) + end
        if text not in taken and len(text) <= LONGEST_NAME:
            return text
    raise AssertionError("of more numbers than names one is free")


def _cut(text: str, n: int) -> str:
    """Return a text of at most ``n`` characters, cut in the middle."""
    first = max(1, n // 2)
    return (
        text if len(text) <= n else f"{text[:first]}…{text[len(text) - max(0, n - first - 1) :]}"
    )
