"""Migration of a configuration of the-convergence 0.1.

What the-convergence 0.1 never read, read differently or got wrong is renamed or dropped, each with a
comment that says why, so that the migrated file does what the old one did or was meant to do.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from convergence.compat.migration.api import migrate_api, move_llm
from convergence.compat.migration.evaluation import migrate_evaluation
from convergence.compat.migration.migrator import Migrator, Section
from convergence.compat.migration.optimization import (
    migrate_optimization,
    migrate_output,
    migrate_plain,
)
from convergence.compat.migration.search_space import migrate_search_space
from convergence.compat.migration.yaml_text import to_yaml
from convergence_core.config import parse_configuration
from convergence_core.config.source import read_yaml
from convergence_core.errors import ConfigurationError

_SECTIONS: dict[str, Callable[[Migrator, Section, Section], Section]] = {
    "api": migrate_api,
    "search_space": migrate_search_space,
    "evaluation": migrate_evaluation,
    "optimization": migrate_optimization,
    "budget": migrate_plain,
    "cache": migrate_plain,
    "prices": migrate_plain,
    "llm": migrate_plain,
    "storage": migrate_plain,
    "output": migrate_output,
}
_GONE = {
    "society": "thoughts and preferences are configured anew, with an `llm`",
    "legacy": "every run is kept in `storage.path` and can be queried",
    "agent": "there are no connectors yet; move its `models` to `api.models`",
}


class Migration(NamedTuple):
    """A migrated configuration."""

    text: str
    """YAML of ours, with comments."""
    notes: tuple[str, ...]
    """What was renamed, dropped or, after "To do", is left to correct by hand."""


def migrate_text(text: str | bytes, file: str | None = None) -> Migration:
    """Return this version's YAML for one of version 0.1; the notes list what is left to correct.

    Args:
        text: the file of version 0.1.
        file: Its path as the user gave it, for messages.

    Raises:
        ConfigurationError: the text is no YAML, or no mapping.
    """
    migrator = Migrator()
    data = _read(text, file)
    move_llm(migrator, data)
    whole = dict(data)
    new: Section = {}
    for name, migrate in _SECTIONS.items():
        old = data.pop(name, None)
        if isinstance(old, dict):
            new[name] = migrate(migrator, dict(old), whole)
        elif old is not None:
            new[name] = old
    for name in data:
        migrator.drop((name,), _GONE.get(name, "the-convergence 0.1 did not read it"))
    head = (
        "# yaml-language-server: $schema=./optimization.schema.json\n"
        "# Written by `convergence migrate`; comments of the old file are not kept.\n\n"
    )
    result = head + to_yaml(new, migrator.comments)
    try:
        parse_configuration(result)
    except ConfigurationError as error:
        migrator.notes += [
            f"To do: `{problem.key}` {problem.rule}. {problem.fix}" for problem in error.problems
        ]
    return Migration(result, tuple(migrator.notes))


def _read(text: str | bytes, file: str | None) -> Section:
    """Return the data as version 0.1 read it, but numbers such as 1e-5 as numbers."""
    source = read_yaml(text, file)
    if not isinstance(source.data, dict):
        rule, fix = (
            "the file must be a mapping of sections",
            "Give a configuration of the-convergence 0.1.",
        )
        raise ConfigurationError(source.problems or [source.problem((), rule, fix)])
    try:
        old = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # a tag that only YAML 1.1 has
        old = None
    data: Section = _as_read(source.data, old)
    return data


def _as_read(ours: Any, theirs: Any) -> Any:
    """Return our reading, but with version 0.1's booleans: yes, no, on and off."""
    if isinstance(ours, dict):
        other = theirs if isinstance(theirs, dict) else {}
        return {key: _as_read(value, other.get(key)) for key, value in ours.items()}
    if isinstance(ours, list):
        others = theirs if isinstance(theirs, list) and len(theirs) == len(ours) else []
        return [_as_read(v, others[i] if others else None) for i, v in enumerate(ours)]
    if isinstance(ours, str) and isinstance(theirs, bool):
        return theirs
    return ours
