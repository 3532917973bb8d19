"""Notes, comments and lenient reading of a migration."""

from dataclasses import dataclass, field
from typing import Any, TypeGuard

from convergence_core.config.schema import known_keys, sections_at

Section = dict[str, Any]
Path = tuple[str, ...]


@dataclass(slots=True)
class Migrator:
    """Collects notes and comments while the sections are rewritten."""

    notes: list[str] = field(default_factory=list)
    comments: dict[Path, list[str]] = field(default_factory=dict)

    def say(self, path: Path, text: str) -> None:
        """Note something about a key that stays, and write it above the key."""
        note = f"`{'.'.join(path)}`: {text}."
        if note not in self.notes:
            self.notes.append(note)
            self.comments.setdefault(path, []).append(f"{text}.")

    def drop(self, path: Path, reason: str) -> None:
        """Note a key that goes, and say so at the end of its section."""
        self.notes.append(f"dropped `{'.'.join(path)}`: {reason}.")
        place = (*path[:-1], "")
        self.comments.setdefault(place, []).append(f"dropped `{path[-1]}`: {reason}.")

    def keep_known(self, old: Section, path: Path) -> Section:
        """Return a section without the keys that neither we nor version 0.1 know."""
        known = known_keys(sections_at(path, {}))
        for key in [key for key in old if key not in known]:
            del old[key]
            self.drop((*path, key), "version 0.1 did not read it")
        return {key: value for key, value in old.items() if value is not None}

    def clamp(self, holder: Section, path: Path, **ranges: tuple[float, float]) -> None:
        """Bring the numbers of a section at ``path`` within what is allowed."""
        for key, (low, high) in ranges.items():
            value = number(holder.get(key))
            if not is_number(value):
                continue
            holder[key] = min(max(value, low), high)
            if holder[key] != value:
                self.say((*path, key), f"was {value}, which is outside of {low} to {high}")


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: Any) -> Any:
    """Return a number where version 0.1, which was lenient, would have read one."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value


def take(holder: Section, key: str) -> Section:
    """Remove and return a subsection; an empty one when there is none."""
    return as_section(holder.pop(key, None))


def as_section(value: Any) -> Section:
    """Return a mapping; an empty one for everything else."""
    return value if isinstance(value, dict) else {}
