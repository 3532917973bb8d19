"""Prompts, judgements and trust from a system's earlier runs and rounds.

At its start, a run records its earlier runs and their numbers of committed generations. So a
resumed run sees the same past, whatever has happened since.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from convergence_core.ports import RunRecord
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.played_items import PlayedItem
from convergence_core.sao.preferences import JudgedPair
from convergence_core.sao.rows import PREFERENCES_SQL, pairs_of
from convergence_core.sao.state import SaoState
from tasks.providers import split_model
from tasks.store.tables.lineage import superseded
from tasks.store.tables.parquet_store import ParquetStore

TAG: Final = "preferences_of"
"""Tag of a run that names its earlier runs: ``<run id>@<generations>``, newest first."""
MOST_RUNS: Final = 100
"""Maximum earlier runs in the tag."""

_GENERATIONS: Final = """
    SELECT run_id, max(generation) + 1 AS n FROM generations
    WHERE run_id IN (
      SELECT run_id FROM preferences UNION SELECT run_id FROM preference_rounds)
    GROUP BY run_id"""
_STATE: Final = """
    SELECT progress_json FROM generations WHERE run_id = $run AND generation = $generation"""
_AUDITED: Final = """
    SELECT DISTINCT a.run_id, a.generation, a.item_id
    FROM preference_audits a JOIN runs r USING (run_id) WHERE r.name = $system ORDER BY ALL"""
_PLAYED: Final = """
    SELECT p.round, p.scores, p.players_json, p.facts_json
    FROM game_plays p JOIN runs r USING (run_id)
    WHERE r.name = $system AND p.game = 'judge' AND p.status = 'played'
    ORDER BY p.round, p.run_id, p.position"""


def judge_of(config_json: str) -> str | None:
    """Return the judge's model in a run of this configuration; ``None`` if there is none."""
    config = json.loads(config_json)
    society, llm = config.get("society") or {}, config.get("llm") or {}
    name = (society.get("sao") or {}).get("model_name") or llm.get("model")
    return None if name is None else str(name)


def history_tag(store: ParquetStore, system: str) -> dict[str, str]:
    """Return the tag that names a new run's earlier runs; empty if none stored any preferences.

    Args:
        store: Store of the runs.
        system: Name of the system.
    """
    n_of = {row["run_id"]: row["n"] for row in store.rows(_GENERATIONS)}
    runs = [record for record in store.runs(system) if record.run_id in n_of]
    twice = superseded(runs)
    runs = [record for record in runs if record.run_id not in twice]
    runs.sort(key=lambda record: (record.ended_us or record.started_us, record.run_id))
    entries = [f"{record.run_id}@{n_of[record.run_id]}" for record in reversed(runs)]
    return {TAG: " ".join(entries[:MOST_RUNS])} if entries else {}


def history_of(store: ParquetStore, record: RunRecord) -> RoundHistory:
    """Return the results of a run's earlier runs and of its own committed rounds.

    Args:
        store: Store of the runs.
        record: The run, with its tag.

    Raises:
        StoreDamagedError: a file cannot be read.
    """
    limits = {**_tagged(record), record.run_id: None}
    # Oldest first, the run itself last.
    rank = {run: -k for k, run in enumerate(limits)} | {record.run_id: 1}
    known = {run.run_id: run for run in store.runs(record.name) if run.run_id in limits}
    judge = judge_of(record.config_json)

    def seen(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [row for row in rows if row["run_id"] in known and _is_before(row, limits)]

    rows = seen(store.rows(PREFERENCES_SQL, {"run": None, "system": record.name}))
    steps = [
        (_place(row, rank), row, pair) for row, pair in zip(rows, pairs_of(rows), strict=True)
    ]
    pairs: list[JudgedPair] = []
    prompts: list[str] = []
    for _, row, pair in sorted(steps, key=lambda step: step[0]):
        run = known[row["run_id"]]
        prompts.append(pair.comparison.prompt)
        if judge_of(run.config_json) == judge:
            pairs.append(pair)
    audited = [
        row["item_id"]
        for row in seen(store.rows(_AUDITED, {"system": record.name}))
        if judge_of(known[row["run_id"]].config_json) == judge
    ]
    return RoundHistory(
        pairs=tuple(pairs),
        prompts=tuple(prompts),
        audited=tuple(dict.fromkeys(audited)),
    )


def played_items(store: ParquetStore, system: str, judge: str | None) -> list[PlayedItem]:
    """Return the verdicts of the judge of preferences in finished rounds of games, by round.

    Args:
        store: Store of the rounds.
        system: Name of the rounds' runs.
        judge: Configured name of the model; verdicts of other players are left out.
    """
    if judge is None:
        return []
    name = split_model(judge)[1]
    items: list[PlayedItem] = []
    for row in store.rows(_PLAYED, {"system": system}):
        facts, players = json.loads(row["facts_json"]), json.loads(row["players_json"])
        scores = row["scores"] or {}
        if players.get("judge") == name and "item" in facts and "judge" in scores:
            items.append(
                PlayedItem(
                    round_number=row["round"],
                    item_id=str(facts["item"]),
                    log_score=float(scores["judge"]),
                )
            )
    return items


def inherited_state(
    store: ParquetStore, record: RunRecord, *, limit: int, n_personas: int
) -> SaoState | None:
    """Return the initial state of a run; ``None`` if no earlier run left one.

    The state of prompts is the newest run's. The state of the judge is that of the newest run with
    the same judge.

    Args:
        store: Store of the runs.
        record: The run, with its tag.
        limit: Maximum number of rounds.
        n_personas: Number of personas drawn for it.
    """
    judge = judge_of(record.config_json)
    configs = {run.run_id: run.config_json for run in store.runs(record.name)}
    newest: SaoState | None = None
    for run_id, n in _tagged(record).items():
        rows = store.rows(_STATE, {"run": run_id, "generation": n - 1})
        learned = json.loads(str(rows[0]["progress_json"])).get("preferences") if rows else None
        if learned is None or run_id not in configs:
            continue
        same = judge_of(configs[run_id]) == judge
        state = SaoState.from_json(learned, limit=limit)
        renewed = state.next_run(limit=limit, n_personas=n_personas, same_judge=same)
        newest = newest or renewed
        if same:
            walk_from, walk_to = newest.walk_from, newest.walk_to
            return replace(renewed, walk_from=walk_from, walk_to=walk_to)
    return newest


def _tagged(record: RunRecord) -> dict[str, int]:
    """Return a run's earlier runs with their numbers of generations, newest first."""
    tagged = {}
    for name in record.tags.get(TAG, "").split():
        run_id, _, n = name.partition("@")
        tagged[run_id] = int(n)
    return tagged


def _is_before(row: Mapping[str, Any], limits: Mapping[str, int | None]) -> bool:
    n = limits[row["run_id"]]
    return n is None or int(row["generation"]) < n


def _place(row: Mapping[str, Any], rank: Mapping[str, int]) -> tuple[int, int, int]:
    return rank[row["run_id"]], int(row["generation"]), int(row["position"])
