"""Spaces of every kind of parameter, drawn by a seed, and points of them."""

import numpy as np

from convergence_core.config.expressions import parse
from convergence_core.records import Params
from convergence_core.space import Choice, Float, Integer, Parameter, Space, When

WORDS = ("answer", "briefly", "cite", "sources", "step", "by", "think", "json", "only", "politely")


def texts(rng: np.random.Generator, n: int, n_words: int = 6) -> tuple[str, ...]:
    """Different texts that share words; the first has none."""
    found = [""]
    while len(found) < n:
        text = " ".join(rng.choice(WORDS, n_words))
        if text not in found:
            found.append(text)
    return tuple(found)


def number(rng: np.random.Generator, when: When = ()) -> Float | Integer:
    """A number, free or in steps, on a linear or log scale."""
    is_log = bool(rng.random() < 0.5)
    kind = int(rng.integers(4))
    if kind == 0:
        low = 0.001 if is_log else -1.0
        return Float(min=low, max=2.0, log=is_log, when=when)
    if kind == 1:
        low = 0.25 if is_log else 0.0
        return Float(min=low, max=2.0, log=is_log, step=0.25, when=when)
    high = 3 if kind == 2 else 4000
    return Integer(min=1, max=high, log=is_log, when=when)


def random_space(seed: int, *, constrained: bool = False) -> Space:
    """A space of 3 to 8 parameters, some of them conditional."""
    rng = np.random.default_rng(seed)
    model = Choice(kind="categorical", choices=tuple("abcdefg"[: int(rng.integers(2, 7))]))
    parameters: dict[str, Parameter] = {
        "model": model,
        "first": number(rng),
        "steps": Integer(min=0, max=4),
    }
    prompts = texts(rng, int(rng.integers(2, 6)))
    some: dict[str, Parameter] = {
        "prompt": Choice(kind="text", choices=prompts, names=tuple(f"{t}.md" for t in prompts)),
        "template": Choice(kind="categorical", choices=tuple(range(int(rng.integers(16, 40))))),
        "only": Choice(kind="categorical", choices=("one",)),
        "inner": number(rng, (("model", ("a",)),)),
        "switch": Choice(kind="boolean", choices=(False, True), when=(("steps", (1, 2)),)),
    }
    parameters |= {name: parameter for name, parameter in some.items() if rng.random() < 0.6}
    if "switch" in parameters:
        parameters["deep"] = number(rng, (("switch", (True,)), ("model", model.choices[:2])))
    names = [str(name) for name in rng.permutation(list(parameters))]
    constraints = (parse("steps <= 3 or model != 'a'"),) if constrained else ()
    return Space(parameters={name: parameters[name] for name in names}, constraints=constraints)


def points(space: Space, n: int, rng: np.random.Generator) -> list[Params]:
    """Different points, at most n."""
    found: dict[str, Params] = {}
    for _ in range(4 * n):
        point = space.sample(rng)
        if len(found) < n:
            found[space.candidate_id(point)] = point
    return list(found.values())
