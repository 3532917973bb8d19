"""Upkeep of adapters: files of those that never answer again go, all others stay."""

import json
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence_core.feedback.records import Rating
from tasks.store.clock import wall_clock_us
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.feedback.adapters import activated, rated, registered, saved_adapter
from tests.support.store_rows import run_record

HOUR_US = 3_600_000_000
DECIDED_US = 1_767_323_045_000_000


def filled(root: Path, at_us: int) -> dict[str, str]:
    """Fill a store with an adapter of each status; return version → status."""
    with FeedbackStore(root, now_us=lambda: at_us) as store:
        adapters = AdapterStore(store)
        sources = [saved_adapter(root.parent / f"trained-{k}", k) for k in range(6)]
        stale = registered(adapters, sources[0], rated(store, "stale"))
        store.rate(Rating(interaction_id="stale", user_id="ann", rating=1))
        rejected = registered(adapters, sources[1], rated(store, "rejected"))
        adapters.reject(rejected, "too far", by="gate")
        activated(adapters, sources[2], rated(store, "inactive"))
        activated(adapters, sources[3], rated(store, "active"))
        activated(adapters, sources[4], rated(store, "rolled back"))
        adapters.rollback("assistant", by="person")
        registered(adapters, sources[5], rated(store, "candidate"))
        found: dict[str, str] = {one.version: one.status for one in adapters.records()}
    assert found[stale] == "stale"
    assert sorted(found.values()) == [
        "active", "candidate", "inactive", "rejected", "rolled_back", "stale",
    ]  # fmt: skip
    return found


def kept(root: Path, now_us: int, *, dry_run: bool = False) -> tuple[set[str], tuple[str, ...]]:
    """Let the store remove what is useless; return the statuses whose files are left, and who went."""
    with FeedbackStore(root, now_us=lambda: now_us) as store:
        adapters = AdapterStore(store)
        gone = adapters.remove_useless(dry_run=dry_run)
        left: set[str] = {
            one.status
            for one in adapters.records()
            if (adapters.folder(one.version) / "adapter_model.safetensors").is_file()
        }
    return left, gone


def test_files_of_stale_adapters_go_after_an_hour_and_of_rejected_ones_after_a_week(
    tmp_path: Path,
):
    root = tmp_path / "store"
    by_status = {status: version for version, status in filled(root, DECIDED_US).items()}
    every, stays = set(by_status), {"active", "inactive", "rolled_back", "candidate"}
    stale, rejected = by_status["stale"], by_status["rejected"]
    assert kept(root, DECIDED_US + HOUR_US - 1) == (every, ())
    assert kept(root, DECIDED_US + HOUR_US, dry_run=True) == (every, (stale,))
    assert kept(root, DECIDED_US + HOUR_US) == (every - {"stale"}, (stale,))
    week_us = 7 * 24 * HOUR_US
    assert kept(root, DECIDED_US + week_us - 1) == (every - {"stale"}, ())
    assert kept(root, DECIDED_US + week_us) == (stays, (rejected,))
    assert kept(root, DECIDED_US + 1_000 * week_us) == (stays, ())
    with FeedbackStore(root) as store:
        adapters = AdapterStore(store)
        assert len(adapters.records()) == len(every)
        assert adapters.checks(rejected)
        assert adapters.files_problem(adapters.record(rejected)) == (
            "they were removed, for an adapter that is rejected never answers again"
        )
        assert adapters.files_problem(adapters.record(by_status["active"])) is None


def test_upkeep_says_whose_files_it_removed_and_a_dry_run_whose_it_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "convergence-data"
    store = ParquetStore(root)
    store.save_run(run_record("r"))
    store.close()
    found = filled(root, wall_clock_us() - 2 * HOUR_US)
    (stale,) = (version for version, status in found.items() if status == "stale")
    assert run(["store", "maintain", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert (
        f"files of adapter {stale}, which never answers again: would be removed"
        in said.out + said.err
    )
    assert (root / "adapters" / stale).is_dir()
    assert run(["store", "maintain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["adapters"] == [stale]
    assert not (root / "adapters" / stale).exists()
    assert len(list((root / "adapters").glob("assistant-*"))) == len(found) - 1
