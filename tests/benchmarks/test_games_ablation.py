"""The ablation of the critic's game: a planted weakness, critics of known quality, one budget."""

import numpy as np
import pytest

from benchmarks.games import hard_cases
from benchmarks.games.ablation import mean_and_half, share_interval
from benchmarks.games.hard_cases import SHARE, Reviewer, first_incumbent, run_nights
from benchmarks.games.planted_sums import (
    TASK,
    WEAK,
    Incumbent,
    PlantedCritic,
    SameProcess,
    Sums,
    kinds_of,
)
from convergence_core.config.evaluation import TestCasesConfig
from convergence_core.games.critic_game import CriticGame
from convergence_core.games.game import PlayKey
from convergence_core.games.play import play
from convergence_core.ports import Player
from tasks.games.players import SandboxPlayer
from tasks.games.sandbox import why_unavailable

SEED = 1
"""Its first incumbent has the planted weakness."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of two generations with a quarter of the calls."""
    for name, value in {"N_GENERATIONS": 2, "N_CALLS": 300, "N_HELD_OUT": 20}.items():
        monkeypatch.setattr(hard_cases, name, value)
    first_incumbent.cache_clear()


def test_given_cases_miss_the_weakness_and_real_questions_show_it():
    world = Sums(SEED, 0.4)
    assert not {kind for text in world.questions(50, 0) for kind in kinds_of(text)}
    real = world.questions(200, 1, share=0.4)
    shown = [world.weakness in kinds_of(text) for text in real]
    assert 0.3 < np.mean(shown) < 0.5
    best: dict[str, str | float] = {
        "method": world.methods()[0],
        "prompt": "steps",
        "temperature": 0.3,
    }
    rewards = np.array([world.reward(best, text) for text in real])
    # 200 draws: four standard errors
    assert rewards[shown].mean() < WEAK + 4 * (WEAK / sum(shown)) ** 0.5
    assert abs(rewards.mean() - world.value(best)) < 4 * 0.5 / 200**0.5
    assert world.value(best, 0.0) == max(
        world.value(best | {"method": one}, 0.0) for one in world.methods()
    )


@pytest.mark.skipif(bool(why_unavailable()), reason="programs cannot be run here")
def test_the_same_process_scores_as_the_limited_one():
    world = Sums(SEED, 0.4)
    weak = Incumbent(world, {"method": world.methods()[0], "prompt": "steps", "temperature": 0.3})
    found = []
    for sandbox in (SameProcess(), SandboxPlayer()):
        players: dict[str, Player] = {
            "critic": PlantedCritic(world, "good"),
            "incumbent": weak,
            "sandbox": sandbox,
        }
        keys = (PlayKey(run_seed=SEED, round_number=0, index=i) for i in range(8))
        found.append([play(CriticGame((TASK,)), players, key).scores for key in keys])
    assert found[0] == found[1]
    assert 0 < sum(one.by_role["critic"] for one in found[0]) < 8


def test_a_good_critic_finds_the_weakness_within_its_share_of_the_calls(small: None):
    nights = run_nights(SEED, "good", 3, share=0.4)
    world = Sums(SEED, 0.4)
    assert any(world.weakness in kinds_of(text) for text in nights.hard) or not nights.found
    assert any(one.coins[0].is_included for one in nights.rounds)
    assert nights.found
    assert 0 < nights.n_calls <= 3 * SHARE * hard_cases.N_CALLS
    again = run_nights(SEED, "good", 1, share=0.4)
    assert again.rounds == nights.rounds[:1]
    assert again.regrets == nights.regrets[: len(again.regrets)]


def test_a_reviewer_who_knows_what_is_asked_leaves_an_adversary_nothing(small: None):
    careful = run_nights(
        SEED, "adversarial", 1, share=0.0, reviewer=Reviewer(approves="what is asked")
    )
    assert careful.hard == {}
    assert run_nights(SEED, "adversarial", 1, share=0.0).hard


def test_hard_cases_weigh_no_more_than_they_may():
    for n in (1, 5, 50):
        texts = {f"c{i:03}": str(i) for i in range(hard_cases.N_GIVEN + n)}
        weights = [*Reviewer(most_weight=0.1).weights(texts).values()]
        assert weights[: hard_cases.N_GIVEN] == [1.0] * hard_cases.N_GIVEN
        assert sum(weights[hard_cases.N_GIVEN :]) / sum(weights) <= 0.1 + 1e-12
        assert {*Reviewer(most_weight=1.0).weights(texts).values()} == {1.0}
    assert Reviewer().most_weight == TestCasesConfig().games_share == 0.2


def test_intervals_are_of_student_and_of_clopper_and_pearson():
    assert mean_and_half(np.array([0.0, 1.0])) == pytest.approx((0.5, 6.353), abs=1e-3)
    assert share_interval(30, 30) == pytest.approx((0.8843, 1.0), abs=1e-4)
    assert share_interval(27, 30) == pytest.approx((0.7347, 0.9789), abs=1e-4)
    assert share_interval(0, 30)[0] == 0.0
