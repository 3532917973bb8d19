"""Choosers of changes beside the policy, the simulated copies that they play."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.policy import variants
from benchmarks.policy.choosers import (
    N_CHANGES,
    STOPS,
    CategoryThompson,
    KnownSequence,
    RandomLegal,
    StateThompson,
    sequences,
)
from benchmarks.policy.variants import (
    MAX_STEPS,
    VARIANTS,
    SimulatedCopies,
    known,
    learned_by,
    learned_by_ppo,
    outcomes,
    true_gain,
)
from convergence_core.policy import PROMPT_ACTIONS, Offer, PromptEpisode
from tasks.policy.prompt_worlds import SimulatedPrompts


def offered(n: int, size: int = 3) -> Offer:
    return Offer(observations=np.ones((n, size)), legal=np.ones((n, len(PROMPT_ACTIONS)), bool))


def test_copies_show_and_pay_what_one_prompt_of_the_environment_does():
    world = SimulatedPrompts(3, order_effect=0.08, noise=0.0)
    rng, copies = np.random.default_rng(0), SimulatedCopies(world, 1)
    offer = copies.reset(np.random.default_rng(1))
    for _ in range(20):
        situation = replace(
            world.start(rng), category=int(copies.category[0]), embedding=copies.directions[0]
        )
        while True:
            one = PromptEpisode(
                history=situation.history, score=situation.score, max_steps=MAX_STEPS
            )
            assert offer.observations[0] == pytest.approx(one.observation(situation.embedding))
            assert offer.legal[0].tolist() == one.legal().tolist()
            action = int(RandomLegal().choose(offer, copies.category, rng)[0])
            step = copies.step(np.array([action]))
            offer = step.offer
            if action == STOPS:
                assert (step.rewards[0], step.terminated[0]) == (0.0, True)
                break
            after = world.changed(situation, PROMPT_ACTIONS[action], rng)
            assert step.rewards[0] == pytest.approx(after.score - situation.score)
            situation = after
            assert step.terminated[0] == (len(situation.history) == MAX_STEPS)
            if step.terminated[0]:
                break


def test_every_measured_score_is_one_evaluation():
    copies = SimulatedCopies(SimulatedPrompts(0), 4)
    copies.reset(np.random.default_rng(0))
    assert copies.n_evaluations == 4
    copies.step(np.array([0, 1, STOPS, 2]))
    assert copies.n_evaluations == 4 + 3 + 1  # three changes, and the beginning of one episode


def test_the_known_bounds_are_those_that_are_played():
    world = SimulatedPrompts(1, order_effect=0.08, noise=0.05)
    about = known(world)
    fixed = KnownSequence(about.fixed)
    played = true_gain(world, lambda offer, c: fixed.choose(offer, c, None), 0)
    assert played == pytest.approx(about.fixed_gain, abs=1e-9)
    assert about.best_gain > about.fixed_gain > 0
    by_category = {c: _best_of_category(world, c) for c in range(len(world.gains))}

    def best(offer: Offer, category: np.ndarray) -> np.ndarray:
        at = offer.observations[:, world.embedding_dim : world.embedding_dim + N_CHANGES].sum(1)
        return np.array([
            [*by_category[int(c)], STOPS][int(n)] for c, n in zip(category, at, strict=True)
        ])  # fmt: skip

    assert true_gain(world, best, 0) == pytest.approx(about.best_gain, abs=1e-9)


def _best_of_category(world: SimulatedPrompts, category: int) -> tuple[int, ...]:
    rng = np.random.default_rng(0)
    quiet = SimulatedPrompts(1, order_effect=0.08, noise=0.0)
    quiet.gains, quiet.pairs = world.gains, world.pairs
    start = replace(quiet.start(rng), category=category)

    def gain(sequence: tuple[int, ...]) -> float:
        situation = start
        for a in sequence:
            situation = quiet.changed(situation, PROMPT_ACTIONS[a], rng)
        return situation.worth

    return max(sequences(MAX_STEPS), key=gain)


def test_all_sequences_are_tried_once():
    listed = sequences(5)
    assert len(listed) == len(set(listed)) == 1 + 6 + 30 + 120 + 360 + 720


@pytest.mark.parametrize("chooser", [CategoryThompson(2), StateThompson(3)])
def test_a_bandit_takes_what_paid_and_stops_where_nothing_does(chooser):
    offer, category = offered(1), np.zeros(1, dtype=np.int64)
    for _ in range(30):
        for action, reward in ((0, 0.1), (1, 0.3), *((a, -0.2) for a in range(2, N_CHANGES))):
            chooser.learn(offer, category, np.array([action]), np.array([reward]))
    assert chooser.choose(offer, category, None).tolist() == [1]
    offer.legal[0, 1] = False
    assert chooser.choose(offer, category, None).tolist() == [0]
    offer.legal[0, 0] = False
    assert chooser.choose(offer, category, None).tolist() == [STOPS]


def test_the_bandit_of_categories_learns_each_by_itself_and_ignores_stop():
    chooser, offer = CategoryThompson(2), offered(2)
    for _ in range(30):
        chooser.learn(offer, np.array([0, 1]), np.array([0, 1]), np.array([0.2, 0.2]))
        chooser.learn(offer, np.array([0, 1]), np.array([STOPS, STOPS]), np.array([9.0, 9.0]))
    assert chooser.choose(offer, np.array([0, 1]), None).tolist() == [0, 1]
    assert chooser.n.sum() == 60


def test_choices_before_anything_is_known_are_spread_over_the_legal_ones():
    offer, rng = offered(2_000), np.random.default_rng(0)
    offer.legal[:, 2] = False
    category = np.zeros(2_000, dtype=np.int64)
    drawn = np.bincount(CategoryThompson(1).choose(offer, category, rng), minlength=7)
    # Six legal draws but one: each the largest equally often, and all below 0 in 1 of 2^5.
    expected = np.array([*[2_000 * (1 - 2**-5) / 5] * N_CHANGES, 2_000 * 2**-5])
    expected[2] = 0.0
    assert drawn[2] == 0
    assert (np.abs(drawn - expected) <= 4 * np.sqrt(np.maximum(expected, 1))).all(), drawn
    uniform = np.bincount(RandomLegal().choose(offer, category, rng), minlength=7)
    assert uniform[2] == 0
    assert (np.abs(np.delete(uniform, 2) - 2_000 / 6) <= 4 * np.sqrt(2_000 / 6)).all(), uniform
    with pytest.raises(ValueError, match="rng"):
        RandomLegal().choose(offer, category, None)


def test_nobody_learns_from_more_than_its_budget():
    world = SimulatedPrompts(0)
    paid: list[int] = []

    class Counting(CategoryThompson):
        def learn(self, offer, category, actions, rewards) -> None:
            super().learn(offer, category, actions, rewards)
            paid.append(int(self.n.sum()))

    found = [(budget, len(paid)) for budget, _ in learned_by(Counting(8), world, 0, (200, 400))]
    assert [budget for budget, _ in found] == [200, 400]
    for budget, n in found:
        assert paid[n - 1] < budget
    assert [b for b, _ in learned_by_ppo(world, 0, (100, 3_000))] == [100, 3_000]


@pytest.mark.slow
def test_what_is_reached_is_the_same_again_and_has_a_table(tmp_path):
    path, learners = tmp_path / "variants.csv", ("ours", "LinTS", "random legal")
    variants.run(range(2), ["strong order, noisy"], learners, path, (128, 256))
    table = variants.table(path)
    for name in ("strong order, noisy, 2 seeds", *learners):
        assert name in table
    assert "|  | 128 | 256 | ours ahead at 256 |" in table
    variants.run(range(1), ["strong order, noisy"], ["LinTS"], tmp_path / "again.csv", (128,))
    again = (tmp_path / "again.csv").read_text().splitlines()[1].rpartition(",")[0]
    assert again in path.read_text()


def test_a_bandit_solves_the_variant_without_order_and_noise():
    found = outcomes("additive, exact", "Thompson, category told", 0, (5_120,))
    assert found[0].share > 0.97
    assert VARIANTS["default"].order_effect == 0.03  # of the environment
