"""What the parts of a migration share: notes, comments, and lenient reading."""

from dataclasses import dataclass, field
from typing import Any

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
        """Return a section without the keys that neither we nor the original know."""
        known = known_keys(sections_at(path, {}))
        for key in [key for key in old if key not in known]:
            del old[key]
            self.drop((*path, key), "the original did not read it")
        return {key: value for key, value in old.items() if value is not None}

    def clamp(self, holder: Section, path: Path, low: float, high: float) -> None:
        """Bring a number within what is allowed."""
        value = number(holder.get(path[-1]))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        holder[path[-1]] = value
        if not low <= value <= high:
            holder[path[-1]] = min(max(value, low), high)
            self.say(path, f"was {value}, which is outside of {low} to {high}")


def number(value: Any) -> Any:
    """Return a number where the original, which was lenient, would have read one."""
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
    value = holder.pop(key, None)
    return value if isinstance(value, dict) else {}
