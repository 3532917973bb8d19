"""The product's sampler and recommendation, through their public interfaces.

A generation is one ``ask`` of the sampler. A task's test cases become the run's cases, and a batch of
20 evaluations becomes ``20 * cases_per_evaluation`` cells. A task without cases gives a run with one
case, whose repeats are the noisy evaluations. Rewards are the task's raw values. Ordered numbers
become integers from 0, since their spacing carries no meaning.

Join ablation settings with ``+``: ``ours:rules.draws=False+n_levels=10``. ``algorithm`` chooses the
sampler. Any other name is a field of the sampler's dataclass, as ``ablations`` extends it, or, with
dots, of a nested dataclass (``surrogate.case_effects=False``). ``recommend.level`` and
``recommend.delta`` are arguments of ``recommend``; ``recommend.optimism=False`` keeps the posterior's
claims uncorrected. ``repeats`` is ``evaluation.repeats``.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from benchmarks.optimizer.ablations import ablatable
from benchmarks.optimizer.opponents.base import Asked, CellOpponent, Claim, PointOpponent, Setup
from benchmarks.optimizer.spaces import Parameter, Point, Value
from convergence_core.config import Configuration, parse_mapping
from convergence_core.posterior.selection_bias import MEMORY_KEY
from convergence_core.records import Cell, Evaluation, Params, Trial, eval_id_of, fields_of
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import AskRequest, Plan, Sampler
from convergence_core.search.samplers import make_sampler
from convergence_core.search.schedule import N_AGAIN
from convergence_core.space import Choice, Float, Integer, Space
from convergence_core.space.parameters import Parameter as CoreParameter

Overrides: TypeAlias = Mapping[str, object]

ALGORITHM = "mab_evolution"
LEVEL = 0.9
"""Level of the recommendation's interval."""
DELTA = 0.01
"""Gap that counts as small, in the task's units."""


def core_parameter(p: Parameter) -> CoreParameter:
    """Return a product parameter with the same values and condition."""
    when = () if p.parent is None else ((p.parent, p.parent_values),)
    if p.kind == "float":
        return Float(min=p.low, max=p.high, log=p.log, when=when)
    if p.kind == "int":
        return Integer(min=int(p.low), max=int(p.high), log=p.log, when=when)
    if p.kind == "ordered":
        return Integer(min=0, max=len(p.choices) - 1, when=when)
    return Choice(kind="categorical", choices=p.choices, when=when)


def task_point(parameters: Sequence[Parameter], params: Params) -> Point:
    """Return a candidate's point in the task's space."""
    point: Point = {}
    for p in parameters:
        if p.name in params:
            value: Value = params[p.name]
            point[p.name] = p.choices[int(value)] if p.kind == "ordered" else value
    return point


def override(settings: Any, path: str, value: object) -> Any:
    """Return a dataclass with the field at a dotted path replaced.

    Raises:
        ValueError: If there is no such field.
    """
    name, _, rest = path.partition(".")
    known = [f.name for f in fields(settings) if f.init] if is_dataclass(settings) else []
    if name not in known:
        raise ValueError(
            f"`{path}` must be a field of {type(settings).__name__}: {', '.join(known)}"
        )
    inner = override(getattr(settings, name), rest, value) if rest else value
    return replace(settings, **{name: inner})


def parse_overrides(text: str) -> dict[str, object]:
    """Parse ``draws=False+elite_size=3``; values that are no Python literals are strings.

    Raises:
        ValueError: If a part has no ``=``.
    """
    overrides: dict[str, object] = {}
    for part in filter(None, text.split("+")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"`{part}` must be written `name=value`")
        try:
            overrides[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            overrides[name] = value
    return overrides


class Run:
    """One product search, in the product's terms."""

    def __init__(self, setup: Setup, overrides: Overrides) -> None:
        settings = dict(overrides)
        algorithm = settings.pop("algorithm", ALGORITHM)
        self.level = float(str(settings.pop("recommend.level", LEVEL)))
        self.delta = float(str(settings.pop("recommend.delta", DELTA))) * setup.unit
        self.is_corrected = bool(settings.pop("recommend.optimism", True))
        # A task without cases is a single case that a candidate may repeat.
        default = setup.budget if setup.n_cases is None else 1
        self.repeats = int(str(settings.pop("repeats", default)))
        self.setup = setup
        self.n_generations = -(-setup.budget // setup.batch)
        self.space = Space(parameters={p.name: core_parameter(p) for p in setup.space.parameters})
        sampler: Any = make_sampler(
            _configuration(algorithm, max(2, setup.batch), self.n_generations), self.space
        )
        # A product run's rewards lie in [0, 1]; values of tasks without cases are unbounded.
        self.bounds = (0.0, 1.0) if setup.n_cases is not None else None
        if hasattr(sampler, "surrogate"):
            sampler = override(sampler, "surrogate.bounds", self.bounds)
        if settings:
            sampler = ablatable(sampler)
        for path, value in settings.items():
            sampler = override(sampler, path, value)
        self.sampler: Sampler = sampler
        search, final = np.random.SeedSequence(setup.seed).spawn(2)
        self._rng, self._final_rng = np.random.default_rng(search), np.random.default_rng(final)
        self.state = self.sampler.start()
        self._generation = 0
        self._plan = Plan(assignments=())
        n_cases = setup.n_cases or 1
        self._case_index = {f"c{i:0{len(str(n_cases))}d}": i for i in range(n_cases)}

    def ask(self, n_cells: int) -> list[tuple[Point, list[int]]]:
        """Plan a generation: points and the indices of their cases."""
        self._plan = self.sampler.ask(
            self.state,
            self._rng,
            AskRequest(
                generation=self._generation,
                n_generations=self.n_generations,
                n_candidates=self.setup.batch,
                n_cells=n_cells,
                case_ids=tuple(self._case_index),
                repeats=self.repeats,
                n_again=N_AGAIN if self.setup.n_cases is None else 0,
            ),
        )
        return [
            (
                self._point(assignment.candidate.params),
                [self._case_index[cell.case_id] for cell in assignment.cells],
            )
            for assignment in self._plan.assignments
        ]

    def tell(self, rewards: Sequence[Sequence[float]]) -> None:
        """Learn one reward per cell, in the plan's order."""
        trials = [
            Trial(
                candidate=assignment.candidate,
                evaluations=tuple(
                    self._evaluation(cell, reward)
                    for cell, reward in zip(assignment.cells, row, strict=True)
                ),
            )
            for assignment, row in zip(self._plan.assignments, rewards, strict=True)
        ]
        self.state = self.sampler.tell(self.state, trials)
        self._generation += 1

    def recommend(self) -> Claim:
        """Return the product's recommendation and its claims."""
        surrogate: Any = getattr(self.sampler, "surrogate", None)
        state = self.state
        if not self.is_corrected:
            memory = {key: value for key, value in state.memory.items() if key != MEMORY_KEY}
            state = replace(state, memory=memory)
        found = recommend(
            state,
            rng=self._final_rng,
            level=self.level,
            delta=self.delta,
            surrogate=surrogate,
            bounds=self.bounds,
        )
        assert found is not None, "nothing was told yet"
        winner = self.state.archive.members[found.candidate_id].candidate
        return Claim(
            point=self._point(winner.params),
            **fields_of(found, "mean", "low", "high", "level", "delta", "probability_within"),
        )

    def _point(self, params: Params) -> Point:
        return task_point(self.setup.space.parameters, params)

    def _evaluation(self, cell: Cell, reward: float) -> Evaluation:
        return Evaluation(
            eval_id=eval_id_of("benchmark", self._generation, cell),
            cell=cell,
            generation=self._generation,
            status="ok",
            reward=reward,
        )


class OursOnValues(PointOpponent):
    """The product on tasks without cases, where a cell is one noisy evaluation."""

    is_budget_aware = True

    def __init__(self, setup: Setup, overrides: Overrides) -> None:
        super().__init__(setup)
        self.run = Run(setup, overrides)
        self._lengths: list[int] = []

    def ask(self, n: int) -> list[Point]:
        """Plan a generation. A point is evaluated once per cell."""
        planned = self.run.ask(n)
        self._lengths = [len(cells) for _, cells in planned]
        return [point for point, cells in planned for _ in cells]

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Learn the values."""
        del points
        rest = iter(values)
        self.run.tell([[next(rest) for _ in range(n)] for n in self._lengths])

    def recommend(self) -> Claim:
        """Return the product's recommendation."""
        return self.run.recommend()


class OursOnCases(CellOpponent):
    """The product on tasks with cases."""

    is_budget_aware = True

    def __init__(self, setup: Setup, overrides: Overrides) -> None:
        super().__init__(setup)
        self.run = Run(setup, overrides)

    def ask_cells(self, n_cells: int) -> list[Asked]:
        """Plan a generation."""
        return [Asked(point=p, cases=tuple(cases)) for p, cases in self.run.ask(n_cells)]

    def tell_cells(self, asked: Sequence[Asked], rewards: Sequence[Sequence[float]]) -> None:
        """Learn the rewards."""
        del asked
        self.run.tell(rewards)

    def recommend(self) -> Claim:
        """Return the product's recommendation."""
        return self.run.recommend()


def make_ours(setup: Setup, settings: str) -> OursOnValues | OursOnCases:
    """Return the product on a task.

    Args:
        setup: Setup of the task.
        settings: Settings after ``ours:``.

    Raises:
        ValueError: If a setting is unknown.
    """
    overrides = parse_overrides(settings)
    if setup.n_cases is None:
        return OursOnValues(setup, overrides)
    return OursOnCases(setup, overrides)


def _configuration(algorithm: object, batch: int, n_generations: int) -> Configuration:
    """Return the default configuration with the benchmark's settings."""
    return parse_mapping(
        {
            "api": {"name": "benchmark", "function": "module:function"},
            # The sampler gets the task's space directly, so its names need not be valid here.
            "search_space": {"parameters": {"x": {"type": "boolean"}}},
            "evaluation": {
                "test_cases": {"path": "cases.json"},
                "metrics": {"exact_match": {"weight": 1}},
            },
            "optimization": {
                "algorithm": algorithm,
                "evolution": {"population_size": batch, "generations": n_generations},
            },
        }
    )
