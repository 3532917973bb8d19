"""Builder of a configuration's ``Space``, and of wider ones during a run.

The configuration validates its rules with file and line. This module validates the defaults, and
rules that depend on the content of text files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from convergence_core.config import (
    BooleanParam,
    CategoricalParam,
    FloatParam,
    IntParam,
    ParameterConfig,
    SearchSpaceConfig,
    TextParam,
)
from convergence_core.config.expressions import parse
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.records import fields_of
from convergence_core.space.parameters import Choice, Float, Integer, Parameter, When
from convergence_core.space.space import Space


def build_space(cfg: SearchSpaceConfig, texts: Mapping[str, str]) -> Space:
    """Return the space of a configuration.

    Args:
        cfg: Section ``search_space``.
        texts: Path as written → content, for each text variant that is a file. Other variants are
            the text itself.

    Raises:
        ConfigurationError: Lists every problem.
    """
    problems: list[Problem] = []
    parameters: dict[str, Parameter] = {}
    for name, parameter in cfg.parameters.items():
        try:
            parameters[name] = _parameter(parameter, _when(parameter, cfg, texts), texts)
        except ValueError as error:
            key, fix = f"search_space.parameters.{name}", "Correct the parameter."
            problems.append(Problem(key=key, rule=str(error), fix=fix))
    if problems:
        raise ConfigurationError(problems)
    space = Space(parameters=parameters, constraints=tuple(map(parse, cfg.constraints)))
    _check_baseline(space)
    return space


def _parameter(cfg: ParameterConfig, when: When, texts: Mapping[str, str]) -> Parameter:
    match cfg:
        case FloatParam():
            return Float(**fields_of(cfg, "min", "max", "log", "step", "default"), when=when)
        case IntParam():
            shared = fields_of(cfg, "min", "max", "log", "default")
            return Integer(**shared, step=cfg.step or 1, when=when)
        case CategoricalParam():
            # Adding 0.0 turns -0.0 into 0.0.
            choices = tuple(c + 0.0 if isinstance(c, float) else c for c in cfg.choices)
            return Choice(kind="categorical", choices=choices, default=cfg.default, when=when)
        case BooleanParam():
            return Choice(kind="boolean", choices=(False, True), default=cfg.default, when=when)
        case _:
            return Choice(
                kind="text",
                choices=tuple(texts.get(variant, variant) for variant in cfg.variants),
                names=tuple(cfg.variants),
                default=None if cfg.default is None else texts.get(cfg.default, cfg.default),
                when=when,
            )


def _when(cfg: ParameterConfig, space: SearchSpaceConfig, texts: Mapping[str, str]) -> When:
    """Return the conditions, with text variants replaced by their content, as in all params."""
    return tuple(
        (
            other,
            tuple(
                texts.get(value, value)
                if isinstance(value, str) and isinstance(space.parameters.get(other), TextParam)
                else value
                for value in values
            ),
        )
        for other, values in cfg.when.items()
    )


def _check_baseline(space: Space) -> None:
    """Check that the defaults satisfy the constraints, since the search evaluates them."""
    baseline = space.baseline()
    if baseline is None or space.satisfied(baseline):
        return
    spelled = space.spell(baseline)
    raise ConfigurationError(
        [
            Problem(
                key="search_space.constraints",
                rule="must hold for the defaults",
                value=f"{constraint} with {space.label(baseline, n=len(baseline))}",
                fix="Change a `default`, or the constraint.",
            )
            for constraint in space.constraints
            if not constraint.evaluate(spelled)
        ]
    )


def widened(space: Space, variants: Mapping[str, Sequence[str]]) -> Space:
    """Return the space with additional variants of text parameters, or an equal one without any.

    A variant's name is its text, as for inline variants of the configuration. Candidates keep
    their ids, which are hashes of their values.

    Args:
        space: Space to extend.
        variants: Text parameter → texts.
    """
    parameters = dict(space.parameters)
    for name, texts in variants.items():
        parameter = parameters.get(name)
        if not isinstance(parameter, Choice) or parameter.kind != "text":
            continue
        new = tuple(text for text in dict.fromkeys(texts) if text not in parameter.choices)
        parameters[name] = replace(
            parameter, choices=(*parameter.choices, *new), names=(*parameter.names, *new)
        )
    return replace(space, parameters=parameters)
