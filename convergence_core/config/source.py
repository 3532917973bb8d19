"""Plain data together with where each part of it stands in its file."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from convergence_core.config.shown import dotted
from convergence_core.errors import Problem

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document down."""


def texts_of(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each text in plain data, with the path to it.

    Args:
        value: mappings, lists and what they hold.
        path: where ``value`` stands.
    """
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts_of(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from texts_of(item, (*path, i))


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands in its file."""

    line: int
    """1-based."""
    column: int
    """1-based, in characters."""


@dataclass(slots=True)
class ConfigSource:
    """Plain data and where it came from."""

    file: str | None = None
    """As the user gave it; ``None`` when the data came from Python."""
    data: Any = None
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def position(self, path: Path, *, of_key: bool) -> Position | None:
        """Return where a value (or its key) stands, else the nearest thing around it."""
        if not of_key and path in self.values:
            return self.values[path]
        for end in range(len(path), 0, -1):
            found = self.keys.get(path[:end]) or self.values.get(path[:end])
            if found is not None:
                return found
        return self.values.get(())

    def located(self, problem: Problem) -> Problem:
        """Return a problem that knows its key alone with the place of what the key names.

        The key is compared as it is written, since names of parameters may hold dots.
        """
        around = [
            path
            for path in {*self.keys, *self.values}
            if problem.key == dotted(path) or problem.key.startswith(f"{dotted(path)}.")
        ]
        at = self.position(max(around, key=len, default=()), of_key=False)
        return replace(
            problem,
            file=self.file,
            line=at.line if at else None,
            column=at.column if at else None,
        )

    def problem(
        self, path: Path, rule: str, fix: str, *, value: str = "", of_key: bool = False
    ) -> Problem:
        """Return a problem located at a path."""
        at = self.position(path, of_key=of_key)
        return Problem(
            key=dotted(path),
            rule=rule,
            value=value,
            fix=fix,
            file=self.file,
            line=at.line if at else None,
            column=at.column if at else None,
        )
