"""SAO without a run: over the real client and a real server, outside of Prefect."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from convergence_core.sao.formats import row_of
from tests.sao.mixin import write
from tests.support.planted_server import PlantedWorld
from tests.support.preferring_runs import case_truth


def test_a_call_writes_answers_judges_and_tries_the_judge(tmp_path: Path):
    world = PlantedWorld(truth=case_truth, spread=2.0)
    # The double answers test cases as its `truth` says; here nobody asks it any.
    sao, (found,) = write(world)
    assert world.n_asked["prompt"] == 8
    assert len(found.pairs) + sum(found.dropped.values()) >= 8
    assert found.kept
    assert found.audit is not None
    assert found.audit.accuracy == 1.0
    assert sao.trust.is_enabled
    assert found.stop_reason is None
    files = sao.export_dataset(tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in files["rows"].read_text().splitlines()]
    train = [p for p in found.kept if p.split == "train"]
    assert rows == [row_of(p, "trl") for p in train]


def test_rows_of_a_judge_that_nobody_vouches_for_come_with_a_warning(tmp_path: Path):
    sao, (found,) = write(PlantedWorld(truth=case_truth, spread=2.0, lies=True))
    assert found.kept
    assert not sao.trust.is_enabled
    with pytest.warns(UserWarning, match="the judge was disabled in the rounds of"):
        sao.export_dataset(tmp_path / "rows.json", "openai")
    row = json.loads((tmp_path / "rows.json").read_text().splitlines()[0])
    assert {*row} == {"input", "preferred_output", "non_preferred_output"}


def test_rounds_end_and_then_nothing_more_is_written():
    world = PlantedWorld(truth=case_truth)
    with pytest.warns(UserWarning, match=r"all 2 rounds were run\. Raise `iterative_rounds`"):
        sao, found = write(world, 3, n_samples=4, iterative_rounds=2)
    assert found[0][:2] == [*found[0]][:2]
    assert [found[0][0], found[0][-1]] == [[*found[0]][i] for i in (0, -1)]
    assert found[1].stop_reason == "all 2 rounds were run"
    assert found[2].pairs == ()
    assert world.n_asked["prompt"] == 8
    assert len({p.comparison.persona for p in sao.pairs}) == len(sao.pairs)


@pytest.mark.slow
def test_a_call_says_which_round_it_was_and_why_it_was_aborted():
    world = PlantedWorld(mode="always_first", truth=case_truth)
    with pytest.warns(UserWarning, match=r"agrees with itself on 0 % of|all 2 rounds were run"):
        _, (first, second, third) = write(world, 3, n_samples=25, iterative_rounds=2)
    for number, found in enumerate((first, second)):
        assert found.round_number == number
        assert {pair.dropped_by for pair in found.pairs} == {"aborted"}
        assert found.kept == ()
        assert found.why_aborted is not None
        assert "agrees with itself on 0 % of" in found.why_aborted
    assert first.stop_reason is None
    assert (third.round_number, third.why_aborted) == (None, None)
    _, (fair,) = write(PlantedWorld(truth=case_truth))
    assert (fair.round_number, fair.why_aborted) == (0, None)


@pytest.mark.parametrize("mode", ["garbage", "http500"])
def test_a_broken_model_brings_errors_and_no_pair(mode, tmp_path: Path):
    with pytest.warns(UserWarning, match="no row was written: 4 times prompt: "):
        sao, (found,) = write(PlantedWorld(mode=mode, truth=case_truth), n_samples=4)
    assert found.pairs == ()
    assert sum(found.errors.values()) == 4
    with pytest.raises(ValueError, match="no kept pair"):
        sao.export_dataset(tmp_path / "rows.jsonl")


def test_it_works_outside_of_prefect():
    code = (
        "import sys, convergence.plugins.learning.sao;"
        "sys.exit('prefect' in sys.modules or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
