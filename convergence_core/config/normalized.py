"""Data on its way from what the user wrote to the models' form."""

from dataclasses import dataclass, field
from typing import Any

from convergence_core.config.shown import shown
from convergence_core.config.source import ConfigSource, Path
from convergence_core.errors import Problem


@dataclass(slots=True)
class Normalized:
    """Data in the models' form, and what the user wrote for each part of it."""

    source: ConfigSource
    data: dict[str, Any]
    renamed: dict[Path, Path] = field(default_factory=dict)
    """New path → path as written."""
    problems: list[Problem] = field(default_factory=list)
    broken: list[Path] = field(default_factory=list)
    """Paths whose value was refused and removed."""

    def origin(self, path: Path) -> Path:
        """Return the path the user wrote for a path of the normalized data."""
        for end in range(len(path), 0, -1):
            written = self.renamed.get(path[:end])
            if written is not None:
                return (*written, *path[end:]) if len(written) >= end else written
        return path

    def rename(self, holder: dict[str, Any], path: Path, old: str, new: str) -> None:
        """Give a key its name of today; both spellings at once are a problem."""
        if old not in holder:
            return
        if new in holder:
            rule = f"must not stand beside `{new}`, which means the same"
            self.refuse(holder, (*path, old), rule, "Remove one of them.")
            return
        holder[new] = holder.pop(old)
        self.renamed[(*path, new)] = self.origin((*path, old))

    def refuse(self, holder: dict[str, Any], path: Path, rule: str, fix: str) -> None:
        """Note a problem with a key and take the key out."""
        value = holder.pop(str(path[-1]))
        written = self.origin(path)
        self.problems.append(
            self.source.problem(written, rule, fix, value=shown(value, str(path[-1])))
        )
        self.broken.append(path)


def mapping_at(holder: Any, *keys: str) -> dict[str, Any]:
    """Return the mapping at these keys; an unconnected empty one when there is none."""
    for key in keys:
        holder = holder.get(key) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) else {}
