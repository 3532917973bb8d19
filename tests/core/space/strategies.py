"""Search spaces and their parameters as Hypothesis draws them, and short ways to make one."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import settings, strategies as st

from convergence_core.config import SearchSpaceConfig
from convergence_core.space import Choice, Float, Integer, Parameter, Space, When
from convergence_core.space.builder import build_space

EXAMPLES = settings(max_examples=60, deadline=None)
FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def from_config(
    parameters: Mapping[str, Any],
    constraints: Sequence[str] = (),
    texts: Mapping[str, str] | None = None,
) -> Space:
    cfg = SearchSpaceConfig.model_validate(
        {"parameters": parameters, "constraints": list(constraints)}
    )
    return build_space(cfg, texts or {})


@st.composite
def floats(draw: st.DrawFn, when: When = ()) -> Float:
    log = draw(st.booleans())
    if log:
        low = draw(st.floats(1e-8, 1e6))
        high = draw(st.floats(low * (1 + 1e-6), low * 1e12))
    else:
        low = draw(FINITE)
        high = draw(st.floats(low + 1e-6, low + 1e7))
    step = draw(st.none() | st.floats((high - low) / 1000, high - low))
    return Float(min=low, max=high, log=log, step=step, when=when)


@st.composite
def integers(draw: st.DrawFn, when: When = ()) -> Integer:
    log = draw(st.booleans())
    low = draw(st.integers(1 if log else -(10**6), 10**6))
    high = draw(st.integers(low + 1, low + 10 ** draw(st.integers(1, 15))))
    return Integer(min=low, max=high, log=log, step=draw(st.integers(1, 1000)), when=when)


CHOICES = st.lists(
    st.text(max_size=3) | st.integers(-5, 5) | st.booleans() | FINITE,
    min_size=1,
    max_size=6,
    unique_by=lambda value: (isinstance(value, bool), value),
)


def choices(when: When = ()) -> st.SearchStrategy[Choice]:
    return CHOICES.map(lambda c: Choice(kind="categorical", choices=tuple(c), when=when))


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    first = draw(choices())
    when = (("first", first.choices[: draw(st.integers(1, len(first.choices)))]),)
    parameters: dict[str, Parameter] = {
        "first": first,
        "flag": Choice(kind="boolean", choices=(False, True)),
        "free": draw(floats()),
        "whole": draw(integers()),
        "inner": draw(floats(when) | integers(when) | choices(when)),
        "switch": Choice(kind="boolean", choices=(False, True), when=when),
        "deep": draw(integers((("switch", (True,)),))),
    }
    names = draw(st.permutations(list(parameters)))
    return Space(parameters={name: parameters[name] for name in names})


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)
