"""Search space: its points, their identity, and the constraints between them.

A point is the mapping of its *active* parameters to canonical values. Only ``candidate`` turns
points into candidates. It drops inactive parameters, clips, snaps and rounds, so that equivalent
points have one ``candidate_id``.
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
    fields_of,
    n_shared_words,
    same_value,
    sha256_hex,
    short_id,
)
from convergence_core.space.parameters import Choice, Float, Parameter

MAX_ENUMERATED = 1_000_000
"""Maximum number of points that ``size`` reports."""
MAX_CHECKED = 100_000
"""Maximum number of points to enumerate in a space with conditions or constraints."""
RARE = 100
"""Combinations per valid point above which a finite space is enumerated instead of drawn from."""
MAX_TRIES = 10_000
"""Maximum draws before a space without a valid draw counts as empty."""
N_PROBES = 2_000
"""Probe points; if none satisfies the constraints, points are sampled by chains."""
MAX_CORNERS = 1_024
"""Maximum corners of the space tried as starts of a chain."""
N_SWEEPS = 6
"""Steps of a chain per parameter."""
N_REDRAWS = 30
"""Maximum draws of one step before a chain keeps its point."""
LEADERS = 10
"""Number of best candidates whose differences come first in names."""
LONGEST_NAME = 40
"""Maximum characters of a candidate's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Parameters, their conditions, and the constraints between them."""

    parameters: Mapping[str, Parameter]
    """Name → parameter, in the order of the configuration."""
    constraints: tuple[Expression, ...] = ()
    """Constraints; they compare texts as spelled in the configuration: a variant's path, or the
    text."""
    order: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Names, each after the parameters in its conditions."""
    _memo: dict[str, int | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    _few: dict[str, tuple[Params, ...]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Sort the parameters by their conditions, which are acyclic."""
        object.__setattr__(self, "order", self._topological_order())

    # -- points ------------------------------------------------------------------------------

    def is_active(self, name: str, params: Params) -> bool:
        """Return whether a parameter's conditions hold, including those of its parents."""
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
        """Return params as spelled in the configuration: text variants by path, not content."""
        return {name: self._spelling(name, value) for name, value in params.items()}

    def canonical(self, params: Params) -> dict[str, ParamValue]:
        """Return the active parameters in the space's order, with canonical values.

        Raises:
            ValueError: An active parameter is missing, or its value has the wrong type.
        """
        known: dict[str, ParamValue] = {}
        for name in self.order:
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
        """Return the candidate of a point, which may violate constraints.

        Raises:
            ValueError: An active parameter is missing, or its value has the wrong type.
        """
        point = self.canonical(params)
        return Candidate(
            candidate_id=_id_of(point), params=point, origin=origin, parent_ids=parent_ids
        )

    def candidate_id(self, params: Params) -> str:
        """Return the id of a point: 16 digits of the SHA-256 of its canonical JSON.

        Raises:
            ValueError: An active parameter is missing, or its value has the wrong type.
        """
        return _id_of(self.canonical(params))

    def complete(self, params: Params, rng: np.random.Generator) -> dict[str, ParamValue]:
        """Return the point with a drawn value for each missing active parameter."""
        known: dict[str, ParamValue] = {}
        for name in self.order:
            if self.is_active(name, known):
                parameter = self.parameters[name]
                given = params.get(name)
                known[name] = (
                    parameter.sample(rng) if given is None else parameter.canonical(given)
                )
        return {name: known[name] for name in self.parameters if name in known}

    def sample(self, rng: np.random.Generator) -> dict[str, ParamValue]:
        """Draw a point, uniform per parameter, given that all constraints hold.

        In a finite space where such points are rare, they are equally likely. In a larger space, a
        chain starts at a valid point, such as a corner, and redraws one or two parameters at a
        time, numbers by shrinkage (Neal 2003). In the limit of many steps this is the same
        distribution, over the points reachable from there.

        Raises:
            ConfigurationError: No point satisfies the constraints.
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
        """Return the user's defaults as a point, or ``None`` if there are none.

        An active parameter without a default gets its first choice or the middle of its scale.
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
        """Return all problems of a point from outside; the list is empty if it is valid."""
        problems = []
        for name in params:
            if name not in self.parameters:
                near = difflib.get_close_matches(name, list(self.parameters), n=1)
                fix = f"Did you mean `{near[0]}`?" if near else "Remove it."
                rule = "must be a parameter of the space"
                problems.append(Problem(key=name, rule=rule, fix=fix))
        known: dict[str, ParamValue] = {}
        for name in self.order:
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
        """Return the rule that a value violates; valid values are added to ``known``."""
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
        """Return the number of points, or ``None`` if it is infinite or too large to count.

        The limit is a million points. With conditions or constraints, which require enumeration,
        it is a hundred thousand combinations.
        """
        if "size" not in self._memo:
            self._memo["size"] = self._count()
        return self._memo["size"]

    def points(self) -> Iterator[dict[str, ParamValue]]:
        """Yield all points that satisfy the constraints, in a fixed order.

        If such points are rare, they are cached.

        Raises:
            ValueError: The space has too many points, see ``size``.
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
        """Return whether valid points are too rare for rejection sampling."""
        size = self.size()
        if size is None:
            return not self._probes()
        return size * RARE < math.prod(p.n_values or 1 for p in self.parameters.values())

    def _probes(self) -> tuple[Params, ...]:
        """Return the first valid point of many spread over the space, if any."""
        if "probes" not in self._few:
            self._few["probes"] = self._spread(N_PROBES, 1)
        return self._few["probes"]

    def _starts(self) -> tuple[Params, ...]:
        """Return valid points: spread ones, defaults, the middle, and corners."""
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
        """Reject constraints such as ``a + b == 1`` on continuous numbers, which no draw meets.

        Raises:
            ConfigurationError: No small change of such a number keeps any start valid.
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
        """Return the first n valid points among ``n_points`` of a Kronecker sequence."""
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
        """Return the end of a chain from a point; each eighth step redraws two parameters."""
        n = len(self.parameters)
        for step in range(N_SWEEPS * n):
            chosen = {self.order[int(j)] for j in rng.integers(n, size=1 if step % 8 else 2)}
            draws = itertools.islice(self._redrawn(point, chosen, rng), N_REDRAWS)
            point = next(filter(self.satisfied, draws), point)
        return point

    def _redrawn(
        self, point: Params, chosen: set[str], rng: np.random.Generator
    ) -> Iterator[dict[str, ParamValue]]:
        """Yield points with redrawn parameters; a single number approaches its value."""
        name = min(chosen)
        for other in self.order:
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
        if depth == len(self.order):
            point = {name: known[name] for name in self.parameters if name in known}
            if self.satisfied(point):
                yield point
            return
        name = self.order[depth]
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
        """Return a label of the active parameters that can vary.

        Args:
            params: Point of the space.
            n: Maximum number of parameters shown, followed by the number of others; ``None`` shows
                all.
        """
        varying = [
            f"{name}={_named(parameter, params[name])}"
            for name, parameter in self.parameters.items()
            if name in params and parameter.n_values != 1
        ]
        n_more = 0 if n is None else len(varying) - n
        return " ".join([*varying[:n], *([f"(+{n_more} more)"] if n_more > 0 else [])])

    def name(self, candidate: Candidate, n: int | None = None) -> str:
        """Return a candidate's display name: the parameters that differ from the defaults.

        Without defaults it shows all parameters that can vary. Complete names are unique; the
        defaults are ``default``.

        Args:
            candidate: Candidate of the space.
            n: Maximum number of parameters shown, followed by the number of others; ``None`` shows
                all.
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
        """Return candidate → unique name of at most 40 characters, from distinguishing parameters.

        Differences among the leaders come first, for example ``gpt-4o · prompt 2 · t 0.3``; the
        defaults are ``default``.

        Args:
            points: Candidate → its values, best first.
            known: Names already assigned to other candidates.
        """
        leading = [*points.values()][:LEADERS]
        # Stable sort: models and prompts come before numbers, each in the space's order.
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
        """Return parameter → label → full value, for values that labels shorten."""
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
        """Return a description of the space, with texts by name."""
        return {
            "parameters": {
                name: {**_described(parameter), "when": self._spelled_when(parameter)}
                for name, parameter in self.parameters.items()
            },
            "constraints": [str(constraint) for constraint in self.constraints],
        }

    # -- helpers -----------------------------------------------------------------------------

    def _defaults(self) -> Params:
        """Return the defaults; empty if there are none."""
        if "baseline" not in self._few:
            baseline = self.baseline()
            self._few["baseline"] = () if baseline is None else (baseline,)
        return next(iter(self._few["baseline"]), {})

    def _varying(self, points: Iterable[Params]) -> list[str]:
        """Return the parameters with several values, or inactive in some points."""
        every = list(points)
        values_of = {
            name: {(isinstance(value := point.get(name), bool), value) for point in every}
            for name in self.parameters
        }
        return [name for name, values in values_of.items() if len(values) > 1]

    def _earlier(self, name: str, value: ParamValue) -> list[str]:
        """Return the default of a text parameter and the texts before a value."""
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
        """Return names, each after its dependencies."""
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


def _described(parameter: Parameter) -> dict[str, Json]:
    """Describe a parameter without its conditions; texts by their names."""
    if isinstance(parameter, Choice):
        default = None if parameter.default is None else parameter.spelling(parameter.default)
        choices: list[Json] = [*(parameter.names or parameter.choices)]
        return {"type": parameter.kind, "choices": choices, "default": default}
    names = ("min", "max", "log", "step", "default")
    return {"type": parameter.kind, **fields_of(parameter, *names)}


def _named(parameter: Parameter, value: ParamValue) -> str:
    """Return a value for a name: numbers in full, so that names stay distinct."""
    return f"{value:.15g}" if isinstance(value, float) else parameter.show(value)


def _part(parameter: Parameter, name: str, value: ParamValue) -> str:
    """Return a value as part of a name: ``gpt-4o``, ``prompt 2``, ``t 0.3``, ``no stream``."""
    name = "t" if name == "temperature" else name
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(parameter, Choice) and parameter.kind != "text" and isinstance(value, str):
        return parameter.show(value)
    shown = f"{value:.3g}" if isinstance(value, float) else parameter.show(value)
    return f"{name} {shown.removeprefix('#')}"


def _with_first_words(name: str, prompt: str, earlier: Iterable[str]) -> str:
    """Return a name with as many of the prompt's words as fit, starting at the first new one.

    Words are not cut, since half a secret is hard to redact. Later prompts do not matter, so a
    name stays stable.
    """
    words = prompt.split()
    n_shared = max((n_shared_words(words, other.split()) for other in earlier), default=0)
    shown = _cut_words(f"{name}:", words)
    shared = f"{name}: {' '.join(words[:n_shared])}"
    if n_shared < len(words) and shared.startswith(shown.rstrip("…")):
        return _cut_words(f"{name}: …", words[n_shared:])
    return shown


def _cut_words(shown: str, words: Sequence[str]) -> str:
    """Return a text followed by as many of the words as fit."""
    for i, word in enumerate(words):
        if len(shown) + len(word) + 2 > LONGEST_NAME:
            return f"{shown}…" if i else shown.rstrip(": …")
        shown = f"{shown} {word}"
    return shown


def _fitting(parts: Sequence[str]) -> tuple[str, list[str]]:
    """Return a name of the first parts that fit, at least one, and the other parts."""
    n = 1
    while n < len(parts) and len(" · ".join(parts[: n + 1])) <= LONGEST_NAME:
        n += 1
    return " · ".join(parts[:n]), list(parts[n:])


def _unique(name: str, others: Sequence[str], taken: Collection[str]) -> str:
    """Return a free name, shortened in the middle, with another part or a number."""
    ends = ["", *(f" · {part}" for part in others)]
    for end in [*ends, *(f" #{number}" for number in range(2, len(taken) + 3))]:
        text = _cut(name, LONGEST_NAME - len(end)) + end
        if text not in taken and len(text) <= LONGEST_NAME:
            return text
    raise AssertionError("of more numbers than names one is free")


def _cut(text: str, n: int) -> str:
    """Return a text of at most ``n`` characters, shortened in the middle."""
    first = max(1, n // 2)
    return (
        text if len(text) <= n else f"{text[:first]}…{text[len(text) - max(0, n - first - 1) :]}"
    )
