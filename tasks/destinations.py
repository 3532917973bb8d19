"""Where results go: looked at before a run is paid for, since they are written when it is over."""

import tempfile
from pathlib import Path

from convergence_core.config import Configuration
from convergence_core.errors import ConfigurationError, Problem


def check_destinations(configuration: Configuration, base_dir: Path) -> None:
    """Check that result files can be written; nothing is left behind.

    Args:
        configuration: of the run.
        base_dir: folder that relative paths of the configuration start from.

    Raises:
        ConfigurationError: a folder of ``output`` is none, or cannot be written to.
    """
    output = configuration.output
    folders = {"output.save_path": base_dir / output.save_path}
    export = output.export_best_config
    if export.enabled and export.output_path is not None:
        key = "output.export_best_config.output_path"
        folders[key] = (base_dir / export.output_path).parent
    problems = [
        Problem(
            key=key,
            rule="must lead to a folder that can be written to",
            value=f"{folder}: {why}",
            fix="Permit writing there, or set another folder.",
        )
        for key, folder in folders.items()
        if (why := _why_not(folder)) is not None
    ]
    if problems:
        raise ConfigurationError(problems)


def _why_not(folder: Path) -> str | None:
    """Return why no file can be written to a folder, or to where it will be made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        # Writing is the only honest question: root, ACLs and read-only mounts fool mode bits.
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
