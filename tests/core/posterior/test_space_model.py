"""The surrogate of the search: from an archive to beliefs of candidates asked and unasked."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from convergence_core.evidence import Archive, Member
from convergence_core.posterior.space_model import FittedSpaceModel, SpaceModel
from convergence_core.records import Candidate, Cell, Params
from convergence_core.space import Choice, Float, Integer, Space
from tests.support.mixed_problem import mixed_space, mixed_value, trial
from tests.support.random_spaces import points, random_space

CASES = tuple(f"c{j:02d}" for j in range(12))


def archived(
    space: Space,
    some: list[Params],
    reward: Callable[[Params, int], float],
    *,
    n_cases: int = 1,
    seed: int = 0,
) -> Archive:
    """Each point asked ``n_cases`` of the cases, drawn anew for each."""
    rng = np.random.default_rng(seed)
    members = {}
    for i, point in enumerate(some):
        candidate = space.candidate(point)
        asked = rng.permutation(len(CASES))[:n_cases]
        members[candidate.candidate_id] = Member(
            candidate=candidate,
            generation=i // 10,
            rewards={(CASES[j], 0): reward(point, int(j)) for j in sorted(asked)},
        )
    return Archive(members)


def mixed(n: int, *, seed: int = 0, n_cases: int = 1) -> Archive:
    """Rewards of the mixed problem, with cases of their own hardness and some noise."""
    rng = np.random.default_rng(seed)
    b = 0.1 * rng.standard_normal(len(CASES))
    space = mixed_space()
    return archived(
        space,
        points(space, n, rng),
        lambda point, j: 0.7 * mixed_value(point) + b[j] + 0.05 * rng.standard_normal(),
        n_cases=n_cases,
        seed=seed,
    )


def candidates(archive: Archive) -> list[Candidate]:
    return [member.candidate for member in archive]


def unseen(space: Space, n: int, seed: int = 99) -> list[Candidate]:
    rng = np.random.default_rng(seed)
    return [space.candidate(point) for point in points(space, n, rng)]


def assert_same(
    a: FittedSpaceModel, b: FittedSpaceModel, some: list[Candidate], rel: float = 1e-9
) -> None:
    first, second = a.posterior(some), b.posterior(some)
    assert first.mean == pytest.approx(second.mean, rel=rel, abs=1e-12)
    assert first.sd == pytest.approx(second.sd, rel=rel, abs=1e-12)


# -- which candidates it is trained on -----------------------------------------------------------


def test_of_many_candidates_the_best_the_newest_and_a_spread_are_kept():
    archive = mixed(120, n_cases=3)
    model = SpaceModel(space=mixed_space(), max_rows=40)
    fitted = model.fit(archive)
    assert fitted.learned is not None
    ids = list(fitted.learned.evidence.ids)
    everyone = [member.candidate.candidate_id for member in archive]
    assert 20 < len(ids) <= 40
    assert ids == sorted(ids, key=everyone.index)
    assert set(everyone[-10:]) <= set(ids)
    assert {everyone[0], everyone[-1]} <= set(ids)
    shrunk = {m.candidate.candidate_id: sum(m.rewards.values()) / m.n for m in archive}
    best = sorted(everyone, key=lambda name: -shrunk[name])[:20]
    assert set(best) <= set(ids)
    again = model.fit(archive).learned
    assert again is not None
    assert again.evidence.ids == tuple(ids)
    rows = fitted.rows(everyone)
    assert sorted(rows[rows >= 0]) == list(range(len(ids)))
    assert [ids[row] for row in rows[rows >= 0]] == [name for name in everyone if name in ids]


def test_the_best_are_kept_by_their_means_drawn_to_the_average_and_not_by_how_often_they_were_asked():
    some = points(mixed_space(), 60, np.random.default_rng(3))
    # Every second one is asked four cases and earns little, so its sum is the higher one.
    members = [
        Member(
            candidate=mixed_space().candidate(point),
            generation=0,
            rewards=dict.fromkeys([(CASES[j], 0) for j in range(n)], reward),
        )
        for i, point in enumerate(some)
        for n, reward in [(1, 0.1) if i >= 40 else (4, 0.3) if i % 2 else (1, 0.8)]
    ]
    asked = Archive({member.candidate.candidate_id: member for member in members})
    learned = SpaceModel(space=mixed_space(), max_rows=40).fit(asked).learned
    assert learned is not None
    best = {member.candidate.candidate_id for member in members[:40:2]}
    assert best <= set(learned.evidence.ids)


def test_candidates_of_other_cases_take_no_rows():
    archive = mixed(30, n_cases=4)
    only = CASES[:1]
    asked = [m.candidate.candidate_id for m in archive if (only[0], 0) in m.rewards]
    model = SpaceModel(space=mixed_space(), max_rows=len(asked))
    learned = model.fit(archive, case_ids=only).learned
    assert learned is not None
    assert learned.evidence.ids == tuple(asked)
    assert model.fit(archive, case_ids=("nothing",)).learned is None


# -- where a fit begins --------------------------------------------------------------------------


@pytest.mark.parametrize("n_cases", [1, 4])
def test_a_fit_that_begins_at_another_and_takes_no_step_is_the_same(n_cases):
    archive = mixed(25, n_cases=n_cases)
    model = SpaceModel(space=mixed_space())
    first = model.fit(archive)
    assert first.log_params is not None
    memory = {"log_params": first.log_params.tolist()}
    again = model.warm(memory).fit(archive)
    assert again.log_params == pytest.approx(first.log_params, abs=0)
    # With cases the evidence is read where the posterior lies: both come close to the same place.
    rel = 1e-9 if n_cases == 1 else 1e-3
    assert_same(first, again, [*candidates(archive), *unseen(mixed_space(), 10)], rel)
    further = model.warm(memory, n_steps=5).fit(archive)
    assert further.log_params is not None
    assert further.log_params != pytest.approx(first.log_params, abs=1e-12)


def test_a_memory_that_says_nothing_of_use_is_left_aside():
    archive = mixed(12)
    model = SpaceModel(space=mixed_space())
    first = model.fit(archive)
    assert model.warm({}) is model
    assert model.warm({"log_params": None}) is model
    other_space = model.warm({"log_params": [0.0, 1.0]}, n_steps=0).fit(archive)
    assert_same(first, other_space, candidates(archive))


# -- what there may be to learn from -------------------------------------------------------------


def test_before_any_reward_every_candidate_is_the_same_guess():
    space = mixed_space()
    some = unseen(space, 4)
    nothing_told = Member(candidate=some[0], generation=0, missing=frozenset({("c00", 0)}))
    for archive in (Archive(), Archive({some[0].candidate_id: nothing_told})):
        fitted = SpaceModel(space=space).fit(archive)
        assert fitted.learned is None
        assert fitted.log_params is None
        told = fitted.posterior(some)
        assert told.mean == pytest.approx(np.full(4, 0.5), abs=0.05)
        assert (told.sd > 0.1).all()
        assert (fitted.rows([c.candidate_id for c in some]) == -1).all()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("reward", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("n", "n_cases"), [(1, 1), (1, 12), (5, 1), (8, 4)])
def test_equal_rewards_leave_the_others_open(seed, reward, n, n_cases):
    space = random_space(seed)
    some = points(space, n, np.random.default_rng(seed))
    fitted = SpaceModel(space=space).fit(
        archived(space, some, lambda point, j: reward, n_cases=n_cases)
    )
    seen = [space.candidate(point) for point in some]
    told = fitted.posterior([*seen, *unseen(space, 5)])
    drawn = told.draws(np.random.default_rng(0), 50)
    for array in (told.mean, told.sd, drawn, *told.interval(0.9)):
        assert np.isfinite(array).all()
    assert np.abs(told.mean[: len(seen)] - reward).max() < 0.15
    # Somewhere else it may be better or worse: nothing says that rewards never vary.
    low, high = told.interval(0.98)
    assert ((high - low)[len(seen) :] > 0.02).any()


# -- what it learns ------------------------------------------------------------------------------


def test_the_order_of_trials_does_not_matter():
    archive = mixed(20, n_cases=3)
    trials = [
        trial(
            member.candidate,
            {
                Cell(
                    candidate_id=member.candidate.candidate_id,
                    case_id=case,
                    repeat=repeat,
                    role="search",
                ): reward
                for (case, repeat), reward in member.rewards.items()
            },
        )
        for member in archive
    ]
    fits = [
        SpaceModel(space=mixed_space()).fit(Archive().tell(told, 0))
        for told in (trials, trials[::-1])
    ]
    assert_same(fits[0], fits[1], candidates(archive))


def rmse(
    model: SpaceModel,
    archive: Archive,
    value: Callable[[Params], float],
    some: list[Candidate] | None = None,
) -> float:
    """Root mean squared error of the means; of candidates that were not asked, if none are named."""
    if some is None:
        some = [c for c in unseen(model.space, 100) if c.candidate_id not in archive]
    truth = np.array([value(c.params) for c in some])
    return float(np.sqrt(np.mean((model.fit(archive).posterior(some).mean - truth) ** 2)))


def test_it_predicts_candidates_that_nobody_asked():
    space = mixed_space()
    some = unseen(space, 60)
    truth = np.array([0.7 * mixed_value(c.params) for c in some])
    found = []
    for seed in range(4):
        told = SpaceModel(space=space).fit(mixed(60, seed=seed, n_cases=6)).posterior(some)
        found.append(np.corrcoef(told.mean, truth)[0, 1])
    assert np.mean(found) > 0.75, found


def test_texts_that_share_words_share_evidence():
    """Prompts are worth what their words are worth; as plain categories each is a stranger."""
    rng = np.random.default_rng(0)
    worth = {"cite": 0.15, "briefly": -0.1, "step": 0.2, "json": -0.05, "expert": 0.1}
    texts: list[str] = []
    for _ in range(200):
        words = [word for word in worth if rng.random() < 0.5]
        text = " ".join(["answer", "the", "question", *words])
        if text not in texts:
            texts.append(text)
    assert len(texts) == 32
    names = tuple(f"{i}.md" for i in range(len(texts)))
    kinds = {
        "text": Choice(kind="text", choices=tuple(texts), names=names),
        "plain": Choice(kind="categorical", choices=tuple(texts)),
    }

    def value(point: Params) -> float:
        return 0.4 + sum(w for word, w in worth.items() if word in str(point["prompt"]).split())

    error = {}
    for kind, prompt in kinds.items():
        space = Space(parameters={"prompt": prompt, "n": Integer(min=1, max=3)})
        asked: list[Params] = [{"prompt": text, "n": 2} for text in texts[:16]]
        more: list[Params] = [{"prompt": text, "n": 2} for text in texts[16:]]
        archive = archived(space, asked, lambda point, j: value(point))
        some = [space.candidate(point) for point in more]
        error[kind] = rmse(SpaceModel(space=space), archive, value, some)
    assert error["text"] < 0.6 * error["plain"], error


def test_weights_of_cases_move_the_means():
    space = mixed_space()
    some = points(space, 20, np.random.default_rng(0))
    archive = archived(
        space,
        some,
        lambda point, j: 0.8 if j < 6 else 0.2 + 0.01 * mixed_value(point),
        n_cases=12,
    )
    weights = {case: 9.0 if j < 6 else 1.0 for j, case in enumerate(CASES)}
    model = SpaceModel(space=space)
    plain = model.fit(archive).posterior(candidates(archive)).mean
    weighted = model.fit(archive, case_weights=weights).posterior(candidates(archive)).mean
    assert plain == pytest.approx(np.full(20, 0.5), abs=0.03)
    assert weighted == pytest.approx(np.full(20, 0.74), abs=0.03)


@pytest.mark.statistical
@pytest.mark.parametrize("n_cases", [4, 12])
def test_intervals_of_seen_candidates_cover_their_true_means(n_cases):
    space, inside = mixed_space(), []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        b = 0.12 * rng.standard_normal(len(CASES))
        some = points(space, 40, rng)

        def reward(
            point: Params, j: int, b: np.ndarray = b, rng: np.random.Generator = rng
        ) -> float:
            return float(0.1 + 0.6 * mixed_value(point) + b[j] + 0.12 * rng.standard_normal())

        archive = archived(space, some, reward, n_cases=n_cases, seed=seed)
        told = SpaceModel(space=space, bounds=None).fit(archive).posterior(candidates(archive))
        truth = np.array([0.1 + 0.6 * mixed_value(point) + b.mean() for point in some])
        low, high = told.interval(0.9)
        inside.append(float(((truth >= low) & (truth <= high)).mean()))
    assert 0.82 < np.mean(inside) < 0.96, inside


def test_a_kept_fit_is_the_answer_to_the_same_question_and_to_no_other():
    archive, model = mixed(8, n_cases=4), SpaceModel(space=mixed_space())
    cases = sorted({case for member in archive for case, _ in member.rewards})
    first = model.fit(archive, case_ids=cases)
    assert model.fit(archive, case_ids=cases, case_weights={}) is first
    others: list[Callable[[], FittedSpaceModel]] = [
        lambda: model.fit(archive),
        lambda: model.fit(archive, case_ids=cases[:2]),
        lambda: model.fit(archive, case_ids=cases, case_weights={cases[0]: 3.0}),
        lambda: model.fit(Archive(dict(archive.members)), case_ids=cases),
        lambda: replace(model, max_rows=3).fit(archive, case_ids=cases),
    ]
    for other in others:
        model.fit(archive, case_ids=cases)
        assert other() is not first
    weights = dict.fromkeys(cases, 1.0)
    assert model.fit(archive, case_ids=cases, case_weights=weights) is model.fit(
        archive, case_weights=weights
    )


@pytest.mark.parametrize("own", [0.0, 0.08])
def test_repeats_tell_noise_from_what_is_a_candidates_own(own):
    rng = np.random.default_rng(0)
    space = Space(parameters={"x": Float(min=0.0, max=1.0)})
    truth = 0.5 + own * rng.standard_normal(60)
    members = [
        Member(
            candidate=space.candidate({"x": x}),
            generation=0,
            rewards={
                ("only", repeat): float(true + 0.05 * rng.standard_normal()) for repeat in range(4)
            },
        )
        for x, true in zip(np.linspace(0.0, 1.0, 60), truth, strict=True)
    ]
    fitted = SpaceModel(space=space).fit(
        Archive({member.candidate.candidate_id: member for member in members})
    )
    assert fitted.learned is not None
    assert fitted.learned.hides_own
    process, scale = fitted.model.with_own_effects(fitted.learned), fitted.learned.warp.scale
    assert scale * math.sqrt(process.noise) == pytest.approx(0.05, rel=0.15)
    assert scale * math.sqrt(process.nugget_variance) == pytest.approx(own, rel=0.3, abs=0.02)
    claimed, widening = fitted.claimed([member.candidate for member in members])
    half = widening * 1.645 * claimed.sd
    assert np.mean(np.abs(claimed.mean - truth) < half) > 0.8
    assert (widening >= 1.0).all()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_winner_of_one_case_may_have_an_effect_of_its_own_where_nothing_repeats(deterministic):
    rng = np.random.default_rng(0)
    space = Space(parameters={"x": Float(min=0.0, max=1.0)})
    members = [
        Member(
            candidate=space.candidate({"x": x}),
            generation=0,
            rewards={("only", 0): float(0.5 + 0.1 * rng.uniform(-1.0, 1.0))},
        )
        for x in np.linspace(0.0, 1.0, 40)
    ]
    archive = Archive({member.candidate.candidate_id: member for member in members})
    fitted = SpaceModel(space=space, deterministic=deterministic).fit(archive)
    assert fitted.learned is not None
    candidates = [member.candidate for member in members]
    claimed, widening = fitted.claimed(candidates)
    assert (widening > 1.0).all()
    is_wider = claimed.sd > fitted.posterior(candidates).sd
    assert is_wider.any() != deterministic
    assert is_wider.all() != deterministic
