"""Entry points of installed packages, loaded when a configuration names them.

A package offers a plugin in its ``pyproject.toml``::

    [project.entry-points."convergence.targets"]
    acme-search = "acme_search:make_target"

The entry point is a factory: it takes a ``PluginContext`` and returns the object of its group. A
plugin is as trusted as any installed package: its code runs in this process.
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
    """Argument of a plugin's factory."""

    name: str
    """Name of the plugin in the configuration."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Options of the configuration, e.g. ``plugin_options``, as written."""
    key: str = "api"
    """Section of the configuration that names the plugin, for messages."""
    name_key: str = "plugin"
    """Key of that section that holds the name, for messages; empty if the section itself names it.
    """
    base_dir: Path = Path()
    """Base of the configuration's relative paths."""
    timeout_s: float = 30.0
    """Maximum seconds of one call, which then times out."""
    n_workers: int = 1
    """Maximum calls in flight."""
    secret: Callable[[], str | None] = lambda: None
    """Function that reads the key of ``api.auth.token_env``; ``None`` if the configuration names
    none. Call it for each request, and keep its result out of ``request`` and messages.
    """

    @property
    def named_at(self) -> str:
        """Configuration key that names the plugin."""
        return f"{self.key}.{self.name_key}" if self.name_key else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """Installed plugin, not loaded yet."""

    group: PluginGroup
    name: str
    package: str
    """Name of its distribution."""
    version: str
    entry_point: EntryPoint

    @property
    def title(self) -> str:
        """Name of the plugin in messages."""
        return f"`{self.name}` of package {self.package} {self.version}"

    def make(self, context: PluginContext, methods: Iterable[str] = ()) -> Any:
        """Load the plugin and return its factory's result.

        Args:
            context: Argument of the factory.
            methods: Methods that the result must have.

        Raises:
            ConfigurationError: it cannot be loaded, or rejects its options.
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
        """Return the error of a faulty plugin."""
        fix = (
            f"`{self.entry_point.value}` is its entry point. Repair or reinstall the package "
            f"{self.package}; its contract is tested by `convergence.testing`."
        )
        rule = f"must name a plugin that works, but {self.title} {fault}"
        return ConfigurationError.of(context.named_at, rule, fix)


def installed_plugins(group: PluginGroup) -> tuple[Plugin, ...]:
    """Return the plugins of a group of entry points by name, without loading them."""
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
    # Two folders of the path may contain one editable installation; it is one package.
    distinct = {(point.name, point.package, point.entry_point.value): point for point in points}
    return tuple(distinct[key] for key in sorted(distinct))


def find_plugin(group: PluginGroup, context: PluginContext) -> Plugin:
    """Return the installed plugin of a name.

    Args:
        group: Group of entry points.
        context: Context with the plugin's name and its key.

    Raises:
        ConfigurationError: there is no such plugin, or there are several.
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
