"""The row that commits a generation: what each stored column holds."""

from convergence_core.ports import Checkpoint, Row
from convergence_core.records import Cell, Evaluation
from tasks.store import clock
from tasks.store.tables.rows import generation_row
from tasks.store.tables.tables import TABLES
from tests.support.store_rows import RUN

CHECKPOINT = Checkpoint(
    generation=3, rng_state_json="{1}", sampler_state_json="{2}", progress_json="{3}"
)


def evaluation(candidate: str, case: str, **fields: object) -> Evaluation:
    cell = Cell(candidate_id=candidate, case_id=case)
    return Evaluation(eval_id=candidate + case, cell=cell, generation=3, **fields)  # type: ignore[arg-type]


def row_of(*evaluations: Evaluation, partial: bool = False) -> Row:
    return generation_row(
        RUN, 3, evaluations, CHECKPOINT, flow_run_id="flow", partial=partial, fallback_us=7
    )


def test_a_generations_row_is_told_by_its_evaluations():
    # The last to begin is not the last to end, and one was answered from the journal: no times.
    row = row_of(
        evaluation("a", "1", status="ok", reward=0.25, cost_usd=0.5, started_us=20, ended_us=95),
        evaluation("a", "2", status="ok", reward=0.75, cost_usd=0.25, started_us=40, ended_us=60),
        evaluation("b", "1", status="ok", reward=0.25, cached=True),
        evaluation("b", "2", status="error", started_us=30, ended_us=50),
    )
    expected = {
        "run_id": RUN,
        "generation": 3,
        "started_at": 20,
        "ended_at": 95,
        "status": "done",
        "n_candidates": 2,
        "n_evaluations": 4,
        "raw_best_reward": 0.5,  # each candidate's mean
        "raw_mean_reward": 0.375,
        "cost_usd": 0.75,
        "prefect_flow_run_id": "flow",
        "rng_state_json": "{1}",
        "sampler_state_json": "{2}",
        "progress_json": "{3}",
    }
    assert {name: row[name] for name in expected} == expected
    assert set(row) <= {column.name for column in TABLES["generations"].columns}


def test_no_table_gives_a_field_id_or_a_name_twice():
    for name, table in TABLES.items():
        ids = [column.field_id for column in table.columns]
        assert len(set(ids)) == len(ids), name
        assert len({column.name for column in table.columns}) == len(ids), name


def test_what_ends_after_the_clock_was_set_back_ends_when_it_began(monkeypatch):
    monkeypatch.setattr(clock, "wall_clock_us", lambda: 5)
    assert clock.end_us(7) == 7
    assert clock.end_us(3) == 5
