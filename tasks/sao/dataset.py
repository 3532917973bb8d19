"""Datasets of preferences with their evidence, exported from a store.

Not every pair is fit for training: the export holds pairs that passed all filters, from a judge
whose audit on grounded items it passed. Without such pairs it gives the reason and writes nothing,
unless forced.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from convergence_core.judges.trust import LEAST_ITEMS, LEAST_TRUST
from convergence_core.records import Json
from convergence_core.sao.duplicates import Duplicates
from convergence_core.sao.formats import Format, evidence_of, row_of, write
from convergence_core.sao.preferences import JudgedPair, Split
from convergence_core.sao.rows import PREFERENCES_SQL, pairs_of
from tasks.sao.history import judge_of
from tasks.store.layout import keep_mode, make_folder, write_file
from tasks.store.tables.parquet_store import ParquetStore

WantedSplit: TypeAlias = Split | Literal["all"]

EVIDENCE_SUFFIX: Final = ".evidence.jsonl"

_ROUNDS = """
    SELECT q.run_id, q.generation, q.dropped, q.trust, r.config_json
    FROM preference_rounds q JOIN runs r USING (run_id)
    WHERE r.name = $system OR $system IS NULL ORDER BY r.started_at, q.generation"""
_SYSTEMS = "SELECT DISTINCT r.name FROM preferences p JOIN runs r USING (run_id) ORDER BY 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Pairs to export, each with its evidence."""

    pairs: tuple[JudgedPair, ...]
    evidence: tuple[dict[str, Json], ...]
    n_unvouched: int = 0
    """Number of kept pairs from rounds whose judge did not pass its audit."""
    holds_all: bool = False
    """Whether the rows include these pairs."""
    n_duplicates: int = 0
    """Number of pairs left out because an earlier run has nearly the same prompt."""

    @property
    def doubt(self) -> str | None:
        """Reason not to train on the dataset; ``None`` if there is none."""
        if not self.n_unvouched or (self.pairs and not self.holds_all):
            return None
        return (
            f"the judge was disabled in the rounds of {self.n_unvouched:,} pairs: grounded items "
            f"did not vouch for it (trust below {LEAST_TRUST:g}, or fewer than {LEAST_ITEMS} "
            "different items)"
        )


def systems_of(store: ParquetStore) -> list[str]:
    """Return the systems that have preferences in a store."""
    return [row["name"] for row in store.rows(_SYSTEMS)]


def dataset_of(
    store: ParquetStore, system: str, *, split: WantedSplit = "train", anyway: bool = False
) -> Dataset:
    """Return the kept pairs of all runs of a system.

    Each pair depends on its own round: pairs whose judge did not pass the audit of that round are
    left out.

    Args:
        store: Store of the pairs.
        system: Name of the system.
        split: ``train``, the frozen ``audit`` pairs, or ``all``.
        anyway: Whether to include pairs of judges that did not pass.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    rows = store.rows(PREFERENCES_SQL, {"run": None, "system": system})
    rounds = {
        (row["run_id"], row["generation"]): row for row in store.rows(_ROUNDS, {"system": system})
    }
    duplicates, seen = Duplicates(), set()
    prompts: dict[tuple[Any, Any, str], bool] = {}
    kept: list[tuple[JudgedPair, dict[str, Json]]] = []
    n_duplicates = n_unvouched = 0
    for row, pair in zip(rows, pairs_of(rows), strict=True):
        if not pair.is_kept or pair.comparison.pair_id in seen:
            continue
        wanted = split in ("all", pair.split)
        its_round = rounds.get((row["run_id"], row["generation"]), {})
        # Whether the judge was trusted after the round.
        is_vouched = bool(its_round) and float(its_round["trust"]) >= LEAST_TRUST
        n_unvouched += wanted and not is_vouched
        if not anyway and not is_vouched:
            continue
        # Pairs of one prompt and run belong together; another run's similar prompt is a copy.
        key = row["run_id"], pair.comparison.persona, pair.comparison.prompt
        if key not in prompts:
            prompts[key] = duplicates.add(pair.comparison.prompt)
        if not prompts[key]:
            n_duplicates += 1
            continue
        seen.add(pair.comparison.pair_id)
        if wanted:
            kept.append((pair, _evidence(pair, row, its_round)))
    return Dataset(
        pairs=tuple(pair for pair, _ in kept),
        evidence=tuple(evidence for _, evidence in kept),
        n_unvouched=n_unvouched,
        holds_all=anyway,
        n_duplicates=n_duplicates,
    )


def _evidence(
    pair: JudgedPair, row: Mapping[str, Any], its_round: Mapping[str, Any]
) -> dict[str, Json]:
    config_json, trust = its_round.get("config_json"), its_round.get("trust")
    return evidence_of(
        pair,
        run_id=row["run_id"],
        judge=None if config_json is None else judge_of(str(config_json)),
        trust=None if trust is None else float(trust),
        dropped={str(k): int(v) for k, v in dict(its_round.get("dropped") or {}).items()},
    )


def export(
    dataset: Dataset,
    path: Path,
    form: Format,
    *,
    as_array: bool | None = None,
) -> dict[str, Path]:
    """Write a dataset and its evidence; return name → file.

    Args:
        dataset: Dataset to write.
        path: Path of the rows; ``.json`` means one array, any other ending JSON Lines.
        form: Format of the rows.
        as_array: Whether to write one array; ``None`` means by the path's ending.
    """
    files = {
        "rows": path,
        "evidence": path.with_name(path.name + EVIDENCE_SUFFIX),
    }
    texts = {
        "rows": write(
            [row_of(pair, form) for pair in dataset.pairs],
            as_array=path.suffix == ".json" if as_array is None else as_array,
        ),
        "evidence": write(dataset.evidence, as_array=False),
    }
    make_folder(path.parent)
    for name, file in files.items():
        unfinished = file.with_name(f".{file.name}.part")
        write_file(unfinished, texts[name])
        keep_mode(unfinished, file)
        unfinished.replace(file)
    return files
