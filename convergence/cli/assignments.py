"""``--set key=value``: keys of a configuration, replaced on the command line."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convergence import console
from convergence_core.errors import ConfigurationError

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded


def load_with(config: Path, assignments: Sequence[str] | None) -> "Loaded":
    """Load a configuration, with some of its keys replaced.

    Args:
        config: path of the file.
        assignments: ``dotted.key=value``, values as in YAML; the latest of a key counts.

    Raises:
        ConfigurationError: the file or an assignment is wrong; holds all problems.
    """
    loaded = _load(config, assignments)
    for warning in loaded.warnings:
        console.say(f"warning: {warning}", style="yellow")
    return loaded


def _load(config: Path, assignments: Sequence[str] | None) -> "Loaded":
    from convergence_core.config.source import read_yaml  # noqa: PLC0415 - brings pydantic
    from tasks.inputs.loader import load, load_mapping, read_config  # noqa: PLC0415 - as above

    if not assignments:
        return load(config)
    source = read_yaml(read_config(config), str(config))
    if source.problems or not isinstance(source.data, dict):
        return load(config)  # says what is wrong
    tree: dict[str, Any] = source.data
    for assignment in assignments:
        _assign(tree, assignment)
    return replace(load_mapping(tree, config.parent), config_path=config)


def _assign(tree: dict[str, Any], assignment: str) -> None:
    """Put one value into a tree.

    Raises:
        ConfigurationError: it is no assignment, or leads through what is no mapping.
    """
    import yaml  # noqa: PLC0415 - where a key is set

    key, equals, text = assignment.partition("=")
    *above, last = key.strip().split(".")
    if not equals or not all([*above, last]):
        rule, fix = "must be `dotted.key=value`", "Write e.g. `--set optimization.seed=3`."
        raise ConfigurationError.of("--set", rule, fix, value=repr(assignment))
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        rule, fix = "must have a value of YAML", "Put it in quotes."
        raise ConfigurationError.of("--set", rule, fix, value=repr(assignment)) from error
    here = tree
    for part in above:
        below = here.setdefault(part, {})
        if below is None:
            below = here[part] = {}
        if not isinstance(below, dict):
            rule = f"must lead through mappings, but `{part}` is none"
            fix = "Replace the whole of it: `--set " + ".".join(above) + "={…}`."
            raise ConfigurationError.of("--set", rule, fix, value=repr(assignment))
        here = below
    here[last] = value
