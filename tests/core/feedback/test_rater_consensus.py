"""Consensus of raters: against dense algebra, against the plain mean, and under attack."""

import numpy as np
import pytest

from benchmarks.feedback.raters import WORLDS, rank_correlations, simulated_marks
from convergence_core.feedback import rater_consensus as module
from convergence_core.feedback.rater_consensus import RaterConsensus, rater_consensus
from convergence_core.feedback.records import Rating


def mark(answer: str, user: str, stars: int) -> Rating:
    return Rating(interaction_id=answer, user_id=user, rating=stars)


def bias(consensus: RaterConsensus, user: str) -> float:
    (found,) = [one.bias for one in consensus.raters if one.user_id == user]
    return found


def noise(consensus: RaterConsensus, user: str) -> float:
    (found,) = [one.noise for one in consensus.raters if one.user_id == user]
    return found


def test_the_posterior_is_that_of_dense_algebra():
    rng = np.random.default_rng(3)
    n_answers, n_raters, n_marks = 9, 5, 24
    cells = rng.choice(n_answers * n_raters, n_marks, replace=False)
    rows, columns = np.unravel_index(np.sort(cells), (n_answers, n_raters))
    _, rows = np.unique(rows, return_inverse=True)
    _, columns = np.unique(columns, return_inverse=True)
    n_answers, n_raters = rows.max() + 1, columns.max() + 1
    rewards = rng.normal(size=n_marks)
    v_quality, v_bias, noises = 0.3, 0.1, rng.uniform(0.1, 0.9, n_raters)
    design = module._Design(
        rows=rows, columns=columns, rewards=rewards, shape=(n_answers, n_raters)
    )
    fit = module._posterior(design, [np.arange(n_raters)], v_quality, v_bias, noises)

    z = np.concatenate([np.eye(n_answers)[rows], np.eye(n_raters)[columns]], axis=1)
    prior = np.diag([v_quality] * n_answers + [v_bias] * n_raters)
    inverse = np.linalg.inv(z @ prior @ z.T + np.diag(noises[columns]))
    ones = np.ones(n_marks)
    mean = ones @ inverse @ rewards / (ones @ inverse @ ones)
    effects = prior @ z.T @ inverse @ (rewards - mean)
    projected = inverse - np.outer(inverse @ ones, ones @ inverse) / (ones @ inverse @ ones)
    covariance = prior - prior @ z.T @ projected @ z @ prior
    with_mean = np.concatenate([np.ones((n_marks, 1)), z], axis=1)  # Henderson's equations
    system = with_mean.T @ np.diag(1 / noises[columns]) @ with_mean
    system[1:, 1:] += np.linalg.inv(prior)
    whole = np.linalg.inv(system)
    to_reward = np.concatenate(
        [np.ones((n_answers, 1)), np.eye(n_answers + n_raters)[:n_answers]], 1
    )
    assert fit.mean == pytest.approx(mean)
    assert fit.quality == pytest.approx(effects[:n_answers])
    assert fit.bias == pytest.approx(effects[n_answers:])
    assert fit.quality_variance == pytest.approx(np.diag(covariance)[:n_answers])
    assert fit.bias_variance == pytest.approx(np.diag(covariance)[n_answers:])
    assert fit.reward_variance == pytest.approx(np.diag(to_reward @ whole @ to_reward.T))
    assert fit.fitted_variance == pytest.approx(np.diag(with_mean @ whole @ with_mean.T))


def test_raters_who_share_no_answer_are_solved_as_a_whole_block_would_be():
    rng = np.random.default_rng(1)
    rows, columns = np.array([0, 1, 2, 2, 3, 4]), np.array([0, 0, 1, 2, 3, 3])
    design = module._Design(rows=rows, columns=columns, rewards=rng.normal(size=6), shape=(5, 4))
    noises = rng.uniform(0.1, 0.9, 4)
    parts = module._posterior(design, [np.array([1, 2])], 0.3, 0.1, noises)
    whole = module._posterior(design, [np.arange(4)], 0.3, 0.1, noises)
    for name in ("quality", "reward_variance", "bias", "bias_variance", "fitted_variance"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name)), name


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.slow
def test_it_beats_the_plain_mean_by_more_than_two_standard_errors(name: str):
    rows = np.array([rank_correlations(WORLDS[name], seed) for seed in range(20)])
    gain = rows[:, 0] - rows[:, 1]
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(20)


def test_who_rates_in_reverse_counts_as_noisier_than_the_others():
    more = []
    for seed in range(20):
        found = rater_consensus(simulated_marks(WORLDS["one rates in reverse"], seed)[0])
        others = [one.noise for one in found.raters if one.user_id != "rater 0"]
        more.append(noise(found, "rater 0") - np.mean(others))
    assert np.mean(more) > 4 * np.std(more, ddof=1) / np.sqrt(20)


def test_a_rater_of_known_bias_is_told_from_better_answers():
    marks = [mark(str(k), user, stars) for k in range(40)
             for user, stars in (("mild", 2 + k % 2 + 1), ("strict", 2 + k % 2 - 1))]  # fmt: skip
    found = rater_consensus(marks)
    assert bias(found, "mild") - bias(found, "strict") == pytest.approx(1.0, abs=0.1)
    profile = found.raters[0]
    assert profile.n_marks == profile.n_shared == 40
    low, high = profile.bias_interval
    assert low < profile.bias < high
    assert "40 ratings, 40 of them shared" in profile.words


def test_no_marks_have_no_reward():
    found = rater_consensus([])
    assert (found.answers, found.raters) == ({}, ())


def test_one_rater_keeps_the_order_and_has_a_bias_that_nothing_tells():
    found = rater_consensus([mark(str(k), "ann", k) for k in range(1, 6)])
    rewards = [found.answers[str(k)].reward for k in range(1, 6)]
    assert rewards == sorted(rewards)
    assert len(set(rewards)) == 5
    (ann,) = found.raters
    assert ann.bias == pytest.approx(0.0, abs=1e-9)
    assert ann.bias_interval[1] > 0.2
    assert ann.n_shared == 0


def test_equal_marks_are_all_the_same_and_finite():
    found = rater_consensus([mark(str(a), f"u{u}", 5) for a in range(30) for u in range(3)])
    assert {round(one.reward, 9) for one in found.answers.values()} == {1.0}
    assert all(np.isfinite(one.standard_error) for one in found.answers.values())
    assert all(one.noise < 0.5 for one in found.raters)


def test_groups_that_share_no_answer_do_not_change_each_others_order():
    def group(name: str) -> list[Rating]:
        return [mark(f"{name}{a}", f"{name} {u}", min(5, max(1, a % 5 + u)))
                for a in range(10) for u in range(3)]  # fmt: skip

    found = rater_consensus([*group("x"), *group("y")])
    for a in range(10):
        assert found.answers[f"x{a}"].reward == pytest.approx(found.answers[f"y{a}"].reward)
    assert len(found.raters) == 6


def test_a_users_thumbs_and_ratings_are_two_raters():
    marks = [mark(str(k), "ann", 3 + k % 2) for k in range(10)]
    marks += [Rating(interaction_id=f"t{k}", user_id="ann", thumbs="up") for k in range(10)]
    assert {(one.user_id, one.kind) for one in rater_consensus(marks).raters} == {
        ("ann", "rating"),
        ("ann", "thumbs"),
    }


def test_two_marks_of_one_user_for_one_answer_are_refused():
    thumbs = Rating(interaction_id="a", user_id="ann", thumbs="up")
    with pytest.raises(ValueError, match="one mark of each user for each answer"):
        rater_consensus([mark("a", "ann", 5), thumbs])
