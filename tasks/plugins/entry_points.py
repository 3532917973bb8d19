"""Entry points of installed packages, loaded when a configuration names them.

A package offers a plugin in its ``pyproject.toml``::

    [project.entry-points."convergence.targets"]
    acme-search = "acme_search:make_target"

The object behind it is a factory: it takes a ``PluginContext`` and returns what its group is for.
A plugin is as trusted as any installed package: its code runs in this process.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, TypeAlias

from convergence_core.config.problems import guessed, listing
from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

PluginGroup: TypeAlias = Literal[
    "convergence.targets",
    "convergence.metrics",
    "convergence.listeners",
]

_INSTALL = (
    "Install the package that offers it where this command runs, e.g. `python -m pip install "
    "./acme-search`"
)
_MAX_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContext:
    """What a plugin's factory is given."""

    name: str
    """Name under which the configuration asks for the plugin."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Options of the configuration, e.g. ``plugin_options``, as written."""
    key: str = "api"
    """Section of the configuration that names the plugin, for messages."""
    name_key: str = "plugin"
    """Key of that section that holds the name, for messages; empty: the section bears it."""
    base_dir: Path = Path()
    """Folder that relative paths of the configuration start from."""
    timeout_s: float = 30.0
    """Longest duration of one call, in seconds; a longer one is given up."""
    n_workers: int = 1
    """Calls in flight at most."""
    secret: Callable[[], str | None] = lambda: None
    """Reads the key of ``api.auth.token_env`` anew; ``None`` if the configuration names none. Call
    it where a request is sent, and keep what it returns out of ``request`` and of messages."""

    @property
    def named_at(self) -> str:
        """Key of the configuration that names the plugin."""
        return f"{self.key}.{self.name_key}" if self.name_key else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One installed plugin, not loaded yet."""

    group: PluginGroup
    name: str
    package: str
    """Name of the distribution that offers it."""
    version: str
    entry_point: EntryPoint

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"`{self.name}` of package {self.package} {self.version}"

    def make(self, context: PluginContext, methods: Iterable[str] = ()) -> Any:
        """Load the plugin and return what its factory makes.

        Args:
            context: what the factory is given.
            methods: what the result must have.

        Raises:
            ConfigurationError: it cannot be loaded, or refuses its options.
        """
        try:
            factory = self.entry_point.load()
        except (Exception, SystemExit) as error:
            raise self.broken(context, f"is not importable: {_error_text(error)}") from error
        if not callable(factory):
            raise self.broken(context, f"is not a factory but a {type(factory).__name__}")
        try:
            made = factory(context)
        except ConfigurationError:
            raise
        except (Exception, SystemExit) as error:
            raise self.broken(context, f"failed in its factory: {_error_text(error)}") from error
        lacking = [name for name in methods if not callable(getattr(made, name, None))]
        if lacking:
            missing = ", ".join(f"`{name}`" for name in lacking)
            raise self.broken(context, f"made a {type(made).__name__}, which lacks {missing}")
        return made

    def broken(self, context: PluginContext, fault: str) -> ConfigurationError:
        """Return the error of a plugin that is at fault itself."""
        fix = (
            f"`{self.entry_point.value}` is its entry point. Repair or reinstall the package "
            f"{self.package}; its contract is tested by `convergence.testing`."
        )
        rule = f"must name a plugin that works, but {self.title} {fault}"
        return ConfigurationError.of(context.named_at, rule, fix)


def installed_plugins(group: PluginGroup) -> tuple[Plugin, ...]:
    """Return the plugins of a group of entry points, by name; none of them is loaded."""
    points = [
        Plugin(
            group=group,
            name=entry.name,
            package=entry.dist.name if entry.dist is not None else "unknown",
            version=entry.dist.version if entry.dist is not None else "unknown",
            entry_point=entry,
        )
        for entry in entry_points(group=group)
    ]
    # An editable installation may be found by two folders of the path; it is one package.
    distinct = {(point.name, point.package, point.entry_point.value): point for point in points}
    return tuple(distinct[key] for key in sorted(distinct))


def find_plugin(group: PluginGroup, context: PluginContext) -> Plugin:
    """Return the one installed plugin of a name.

    Args:
        group: of entry points.
        context: which plugin is meant, and where the configuration names it.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    name, plugins = context.name, installed_plugins(group)
    named = [plugin for plugin in plugins if plugin.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        packages = " and ".join(f"{plugin.package} {plugin.version}" for plugin in named)
        rule = f"must name one plugin, but {packages} both offer `{name}`"
        fix = "Uninstall one of them by `python -m pip uninstall PACKAGE`, or rename its entry point."
        raise ConfigurationError.of(context.named_at, rule, fix)
    known = sorted({plugin.name for plugin in plugins})
    installed = f"Installed are {listing(known)}." if known else "None is installed."
    rule = f"must name an installed plugin of the group `{group}`"
    fix = guessed(name, known, f"{installed} {_INSTALL}.")
    raise ConfigurationError.of(context.named_at, rule, fix, value=repr(name))


def _error_text(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}", _MAX_SHOWN, redacted_text)
