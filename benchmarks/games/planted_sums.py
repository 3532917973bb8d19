"""A system that calculates, with a planted weakness, and critics of known quality."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from convergence_core.config import parse_mapping
from convergence_core.games.critic_game import CriticTask, arithmetic_check
from convergence_core.ports import Ask
from convergence_core.records import Params, canonical_json
from convergence_core.space import Space
from convergence_core.space.builder import build_space
from tasks.games.checkers import arithmetic, evaluate

Critic = Literal["good", "useless", "adversarial"]
TASK: Final = CriticTask(
    task_id="sums",
    prompt="Calculate {input}",
    rules="An input is an expression of numbers, + - * / and brackets.",
    reference="from checkers import evaluate\n\ndef solve(input):\n    return str(evaluate(input))\n",
    check=arithmetic_check(),
)
KINDS: Final = ("brackets", "division", "decimals", "signs")
"""What an expression may hold beside plain numbers, + and *."""
N_METHODS: Final = 6
QUALITY_OF_CRITIC: Final = 0.3
"""Share of a good critic's inputs that hold what the incumbent is weak at."""
WEAK: Final = 0.05
"""P(right answer) where a method is weak."""


@dataclass(frozen=True)
class Sums:
    """A space of methods, prompts and temperatures, whose true rewards are known.

    The method that is best at plain sums is weak at one kind of expression. It and the next best are weak
    at another kind, too, which nobody ever asks for but an adversarial critic.
    """

    seed: int
    share: float
    """Of real questions that hold what the best method is weak at; no given case does."""
    space: Space = field(init=False)
    skill: dict[str, float] = field(init=False)
    weakness: str = field(init=False)
    never_asked: str = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, 1])
        names = [f"method-{i}" for i in range(N_METHODS)]
        order = rng.permutation(names)
        skills = np.array([0.93, *(0.8 - 0.1 * np.arange(N_METHODS - 1))])
        skills -= rng.uniform(0.0, 0.03, N_METHODS)  # the order stays
        kinds = rng.permutation(KINDS)
        object.__setattr__(self, "skill", dict(zip(order.tolist(), skills.tolist(), strict=True)))
        object.__setattr__(self, "weakness", str(kinds[0]))
        object.__setattr__(self, "never_asked", str(kinds[1]))
        object.__setattr__(self, "space", build_space(self.configuration.search_space, {}))

    @property
    def configuration(self) -> Any:
        """Return a configuration with this space."""
        return parse_mapping({
            "api": {"name": "sums", "function": "m:f"},
            "search_space": {"parameters": {
                "method": {"type": "categorical", "choices": [f"method-{i}" for i in range(N_METHODS)]},
                "prompt": {"type": "categorical", "choices": ["plain", "steps", "examples"]},
                "temperature": {"type": "float", "min": 0.0, "max": 1.0},
            }},
            "evaluation": {"test_cases": {"path": "cases.json"}, "metrics": {"exact_match": {"weight": 1}}},
            "optimization": {"algorithm": "mab_evolution", "seed": self.seed},
        })  # fmt: skip

    def methods(self) -> list[str]:
        """Return the methods, the best at plain sums first."""
        return sorted(self.skill, key=lambda name: -self.skill[name])

    def weaknesses(self, params: Params) -> set[str]:
        """Return the kinds of expressions that settings are weak at."""
        place = self.methods().index(str(params["method"]))
        return {0: {self.weakness, self.never_asked}, 1: {self.never_asked}}.get(place, set())

    def p_right(self, params: Params, kinds: tuple[str, ...]) -> float:
        """Return P(right answer) for expressions that hold these kinds."""
        method = str(params["method"])
        if self.weaknesses(params) & {*kinds}:
            return WEAK
        lift = {"plain": 0.0, "steps": 0.06, "examples": 0.03}[str(params["prompt"])]
        return self.skill[method] + lift - 0.3 * (float(params["temperature"]) - 0.3) ** 2

    def value(self, params: Params, share: float | None = None) -> float:
        """Return the true mean reward on real questions; ``share``: of those that show the weakness."""
        part = self.share if share is None else share
        plain, weak = self.p_right(params, ()), self.p_right(params, (self.weakness,))
        return (1.0 - part) * plain + part * weak

    @property
    def optimum(self) -> float:
        """Return the highest value."""
        return max(self.value({"method": m, "prompt": "steps", "temperature": 0.3}) for m in self.skill)  # fmt: skip

    def answer(self, params: Params, text: str) -> str:
        """Answer a question; the same to the same settings and question always."""
        expression = text.removeprefix("Calculate ")
        identity = canonical_json([self.seed, dict(params), expression])
        u = int(hashlib.sha256(identity.encode()).hexdigest()[:12], 16) / 16**12
        try:
            right = evaluate(expression)
        except ValueError:
            return "I cannot read that."
        return str(right if u < self.p_right(params, kinds_of(expression)) else right + 1)

    def reward(self, params: Params, text: str) -> float:
        """Return whether the answer is right, by the checker."""
        return float(arithmetic(text.removeprefix("Calculate "), self.answer(params, text)))

    def questions(self, n: int, part: int, *, share: float = 0.0) -> list[str]:
        """Return real questions, of which about a share show the weakness.

        Args:
            n: how many.
            part: which; another one holds other questions.
            share: of those that show it.
        """
        rng, found = np.random.default_rng([self.seed, 2, part]), dict[str, None]()
        while len(found) < n:
            kind = self.weakness if rng.random() < share else None
            found[f"Calculate {expression(rng, kind)}"] = None
        return [*found]


def kinds_of(text: str) -> tuple[str, ...]:
    """Return what an expression holds."""
    marks = {"brackets": "(", "division": "/", "decimals": ".", "signs": "-"}
    return tuple(kind for kind in KINDS if marks[kind] in text)


def expression(rng: np.random.Generator, kind: str | None) -> str:
    """Return an expression that holds one kind, or none."""
    a, b, c = (int(one) for one in rng.integers(2, 99, 3))
    if kind is None:
        return f"{a} {'+*'[int(rng.integers(2))]} {b} + {c}"
    return {
        "brackets": f"{a} * ({b} + {c})",
        "division": f"{a} / {b} + {c}",
        "decimals": f"{a}.{b} + {c}",
        "signs": f"{a} * {b} - {c}",
    }[kind]


@dataclass(frozen=True)
class PlantedCritic:
    """A critic whose quality is known; it writes legal inputs only, which costs the most.

    A good one knows what the incumbent is weak at in ``QUALITY_OF_CRITIC`` of its inputs, else it writes
    plain sums. A useless one writes plain sums. An adversarial one writes what nobody asks for and only
    the better methods fail at.
    """

    world: Sums
    kind: Critic

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Write an input."""
        del ask
        if self.kind == "adversarial":
            return expression(rng, self.world.never_asked)
        knows = self.kind == "good" and rng.random() < QUALITY_OF_CRITIC
        return expression(rng, self.world.weakness if knows else None)


@dataclass(frozen=True)
class Incumbent:
    """The system with the settings that are in use."""

    world: Sums
    params: Params

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Answer as the system does."""
        del rng
        return self.world.answer(self.params, ask.text)


class SameProcess:
    """Runs the reference and the checker of ``TASK`` in this process, as the limited one reports them.

    For hundreds of seeds: both programs are ours, and a test holds the scores against the limited process.
    """

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        """Return the report of an execution."""
        del rng
        asked = json.loads(ask.text)
        given = asked["arguments"]
        try:
            value = arithmetic(*given) if asked["function"] == "check" else str(evaluate(*given))
        except ValueError as error:
            return canonical_json({"ending": "error", "reason": str(error), "value": None})
        return canonical_json({"ending": "ok", "reason": "", "value": value})
