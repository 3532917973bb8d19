"""Collects the problems that rules find, without those that follow from a broken place."""

from dataclasses import dataclass, field

from convergence_core.config.problems import Origin
from convergence_core.config.source import ConfigSource, Path
from convergence_core.errors import Problem


@dataclass(slots=True)
class Report:
    """Where rules write what they find."""

    source: ConfigSource
    origin: Origin
    broken: tuple[Path, ...] = ()
    """Places already reported; a rule that looks at one of them has nothing to add."""
    problems: list[Problem] = field(default_factory=list)

    def add(
        self,
        path: Path,
        rule: str,
        fix: str,
        *,
        value: str = "",
        of_key: bool = False,
        about: tuple[Path, ...] = (),
    ) -> None:
        """Note that a rule does not hold.

        Args:
            path: Where, in the models' form.
            rule: What must hold.
            fix: What to write instead.
            value: The offending value, already fit to be shown.
            of_key: Whether the key rather than the value is at fault.
            about: Other places the rule looks at.
        """
        if any(self.is_broken(place) for place in (path, *about)):
            return
        self.problems.append(
            self.source.problem(self.origin(path), rule, fix, value=value, of_key=of_key)
        )

    def is_broken(self, path: Path) -> bool:
        """Whether the place, a part of it or what holds it was already reported."""
        return any(
            path[: len(place)] == place or place[: len(path)] == path for place in self.broken
        )
