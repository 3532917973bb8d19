"""Spaces that gain variants of a text while a run goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from convergence_core.space.parameters import Choice
from convergence_core.space.space import Space


def widened(space: Space, variants: Mapping[str, Sequence[str]]) -> Space:
    """Return the space with further variants of text parameters, the same where there are none.

    A variant's name is its text, as of one that was written into the configuration. Candidates keep
    their identity: it is a hash of their values.
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
