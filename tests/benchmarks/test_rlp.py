"""The benchmark of thoughts: its landscapes have the optimum it says, and its runs are repeatable."""

import numpy as np
import pytest

from benchmarks.optimizer.tasks import get_task
from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.recorded import runs as recorded
from benchmarks.rlp.runs import play
from benchmarks.rlp.tables import change
from convergence_core.space.builder import build_space

pytestmark = pytest.mark.timeout(3600)  # minutes of arithmetic, more beside other work


@pytest.mark.parametrize("name", [*LANDSCAPES])
def test_no_point_lies_above_the_optimum(name: str):
    landscape = LANDSCAPES[name]
    space = build_space(landscape.configuration(0).search_space, {})
    rng = np.random.default_rng(0)
    values = [landscape.value(space.sample(rng)) for _ in range(3000)]
    assert min(values) >= 0.0
    assert max(values) <= landscape.optimum


@pytest.mark.slow
def test_a_run_is_repeatable_and_thoughts_change_it():
    landscape = LANDSCAPES["hartmann"]
    runs = {
        key: play(landscape, *key, seed=3, n_generations=3)
        for key in (("plain", "good"), ("trust", "good"), ("trust", "wrong"))
    }
    regrets = {key: (found.regret, found.final_regret) for key, found in runs.items()}
    again = play(landscape, "trust", "good", seed=3, n_generations=3)
    assert (again.regret, again.final_regret) == regrets["trust", "good"]
    assert len(set(regrets.values())) == 3
    assert all(regret >= 0.0 for found in regrets.values() for regret in found)


def test_a_change_is_paired_and_in_percent_of_the_plain_mean():
    plain = np.array([1.0, 2.0, 3.0])
    assert change(plain * 1.1 - 0.1 * (plain - 2.0), plain).startswith("+10.0 %")


@pytest.mark.slow
def test_recorded_replies_lead_to_settings_that_the_plain_search_does_not_try_first():
    task = "tab:hpolib-protein_structure"
    plain, replayed = recorded.play(task, "plain", 0), recorded.play(task, "recorded", 0)
    assert replayed[0] < 0.05 < plain[0]
    assert replayed[1] <= replayed[0]
    assert recorded.play(task, "recorded", 0) == replayed
    assert plain[2] == 0.0
    assert replayed[2] > 0.0 > recorded.play(task, "useless", 0)[2]
    # A seed without replies asks for one, and makes none up.
    with pytest.raises(recorded.MissingReplyError) as missing:
        recorded.play(task, "recorded", 3)
    key, prompt = missing.value.args
    assert key == "hpolib-protein_structure-3-1"
    assert "Trials so far:" in prompt


def test_a_number_becomes_the_choice_next_to_it_on_the_scale_of_the_table():
    table = get_task("tab:hpolib-protein_structure").space
    rate, dropout = table.by_name["init_lr"], table.by_name["dropout_1"]
    assert recorded.nearest(rate, 0.0024) == 0.005
    assert recorded.nearest(rate, 0.0022) == 0.001
    assert recorded.nearest(dropout, 0.14) == 0.0
    assert recorded.nearest(dropout, 0.16) == 0.3
