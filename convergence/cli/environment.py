"""``doctor`` and ``version``: checks of this machine, and the version of this program."""

from pathlib import Path
from typing import Annotated

import typer

from convergence.cli import console, locations, options


def doctor(
    store: options.Store = None,
    config: Annotated[
        Path | None,
        typer.Option(help="Configuration whose environment variables are checked as well."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check that this machine can run optimizations, and say what to do where it cannot.

    Exit code 1 if a check failed; warnings do not count.
    """
    from convergence.doctor import examine  # noqa: PLC0415 - loads SQLite and Prefect's settings

    if config is None and Path(locations.CONFIG_NAME).is_file():
        config = Path(locations.CONFIG_NAME)
    findings = examine(store=locations.store_path(store, config), config=config)
    failed = any(finding.level == "failed" for finding in findings)
    if as_json:
        console.answer_json({"ok": not failed, "findings": findings})
    else:
        marks = {"ok": ("ok", "green"), "warning": ("note", "yellow"), "failed": ("FAIL", "red")}
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            mark, style = marks[finding.level]
            out = console.out()
            out.print(f"{mark:<5}", style=style, end="")
            out.print(f"{finding.check:<{width}}  {finding.found}", markup=False)
            if finding.fix:
                out.print(f"{'':<{5 + width}}  {finding.fix}", markup=False)
    if failed:
        raise typer.Exit(1)


def version(
    as_json: options.AsJson = False,
) -> None:
    """Print the version."""
    from tasks.version import code_version  # noqa: PLC0415 - reads the installed metadata

    if as_json:
        console.answer_json({"convergence-optimizer": code_version()})
    else:
        console.answer(f"convergence-optimizer {code_version()}")
