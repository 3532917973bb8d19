"""``export preferences``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.options import EXIT_NO
from convergence_core.errors import ConfigurationError

if TYPE_CHECKING:
    from tasks.store.tables.parquet_store import ParquetStore


class RowFormat(StrEnum):
    """Row formats."""

    TRL = "trl"
    OPENAI = "openai"


class WantedSplit(StrEnum):
    """Sets of pairs to export."""

    TRAIN = "train"
    AUDIT = "audit"
    ALL = "all"


def export_preferences(  # noqa: PLR0917 - options of a command
    output: Annotated[
        Path, options.output_option(help="File: .jsonl, or .json for one array.")
    ] = Path("preferences.jsonl"),
    form: Annotated[
        RowFormat, options.format_option(help="trl (DPO, reward, SimPO) or openai.")
    ] = RowFormat.TRL,
    system: Annotated[
        str | None,
        typer.Option(help="System (api.name). Default: the only system with preferences."),
    ] = None,
    split: Annotated[
        WantedSplit, typer.Option(help="Split. Do not train on audit pairs.")
    ] = WantedSplit.TRAIN,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Write rows that are unfit for training, too.")
    ] = False,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Write preferences as a dataset, with the evidence of each row.

    Exit code 100: the rows are not fit to train on, and nothing is written; see --anyway.
    """
    if output.is_dir():
        fix = "That is a folder; write e.g. `--output preferences.jsonl`."
        raise ConfigurationError.of("--output", "must name a file", fix, value=str(output))
    opened = locations.open_store(store, config)
    from tasks.sao.dataset import dataset_of, export  # noqa: PLC0415 - DuckDB

    name = system or _only_system(opened)
    dataset = dataset_of(opened, name, split=split.value, anyway=anyway)
    if not (dataset.pairs or dataset.n_unvouched):
        console.say(f"{name} has no preferences of the split {split.value} in this store.")
        raise typer.Exit(EXIT_NO)
    if dataset.doubt is not None:
        console.say(f"Do not train on these rows: {dataset.doubt}.")
    if dataset.doubt is not None and not anyway:
        console.say("Nothing is written. Add --anyway to write them.")
        raise typer.Exit(EXIT_NO)
    files = export(dataset, output, form.value)
    left = f", {dataset.n_duplicates:,} near duplicates left out" if dataset.n_duplicates else ""
    if dataset.n_unvouched and not dataset.holds_all:
        left += f", {dataset.n_unvouched:,} of rounds with a disabled judge left out"
    console.emit(
        {
            "system": name,
            "rows": len(dataset.pairs),
            "near_duplicates": dataset.n_duplicates,
            "of_disabled_judges": dataset.n_unvouched,
            "doubt": dataset.doubt,
            "files": {kind: str(file) for kind, file in files.items()},
        },
        f"Wrote {len(dataset.pairs):,} rows of {name} to {output}{left}.",
    )


def _only_system(store: "ParquetStore") -> str:
    from tasks.sao.dataset import systems_of  # noqa: PLC0415 - brings DuckDB

    names = systems_of(store)
    if len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none"
    rule = "must name one system" if names else "must name a system, but none has preferences here"
    fix = f"This store has preferences of: {known}."
    raise ConfigurationError.of("--system", rule, fix)
