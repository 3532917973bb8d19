"""Explanations: effects against functions known exactly, cells and discards against the evidence."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy import stats

from convergence_core.config.expressions import parse
from convergence_core.evidence import Archive, Member
from convergence_core.explanation.effects import cut
from convergence_core.explanation.explain import discards, explain
from convergence_core.explanation.fits import is_sure
from convergence_core.explanation.records import Effect, Explanation, Surface
from convergence_core.explanation.settings import Levels, SettingSampler
from convergence_core.posterior import SpaceModel
from convergence_core.records import Params
from convergence_core.search.racing import Competitors, Rules
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import SearchState
from convergence_core.space import Choice, Float, Integer, Space
from convergence_core.space.arrays import Encoding
from tests.support.random_spaces import points, random_space

CASES = tuple(f"c{j:02d}" for j in range(10))
N_SEEDS = 24

ADDITIVE = Space(
    parameters={
        "slope": Float(min=0.0, max=1.0),
        "bend": Float(min=1.0, max=100.0, log=True),
        "model": Choice(kind="categorical", choices=("a", "b", "c")),
        "idle": Float(min=0.0, max=1.0),
        "dummy": Choice(kind="categorical", choices=("u", "v", "w")),
    }
)
MODEL = {"a": -0.05, "b": 0.0, "c": 0.05}


def additive(params: Params) -> float:
    unit = np.log(float(params["bend"])) / np.log(100.0)
    return (
        float(0.5 + 0.2 * (float(params["slope"]) - 0.5) - 0.4 * ((unit - 0.5) ** 2 - 1 / 12))
        + MODEL[str(params["model"])]
    )


def crossed(params: Params) -> float:
    """No single effect at all: which model is above depends on the slope."""
    sign = {"a": 1.0, "b": -1.0, "c": 0.0}[str(params["model"])]
    return 0.5 + 0.3 * sign * (float(params["slope"]) - 0.5)


def names_of(archive: Archive) -> dict[str, str]:
    return {member.candidate.candidate_id: "" for member in archive}


def archive_of(
    space: Space,
    value: Callable[[Params], float],
    *,
    seed: int,
    n: int = 60,
    n_cases: int = 5,
    noise: float = 0.06,
) -> Archive:
    """Points of the space, each asked some cases of their own hardness, with noise."""
    rng = np.random.default_rng(seed)
    hardness = 0.08 * rng.standard_normal(len(CASES))
    hardness -= hardness.mean()
    members = {}
    for i, point in enumerate(points(space, n, rng)):
        candidate = space.candidate(point)
        asked = sorted(rng.permutation(len(CASES))[:n_cases])
        rewards = value(point) + hardness[asked] + noise * rng.standard_normal(n_cases)
        members[candidate.candidate_id] = Member(
            candidate=candidate,
            generation=i // 10,
            rewards={(CASES[j], 0): float(r) for j, r in zip(asked, rewards, strict=True)},
        )
    return Archive(members)


def cut_of(space: Space, archive: Archive, seed: int = 0) -> tuple[tuple[Effect, ...], Surface]:
    fitted = SpaceModel(space=space).fit(archive, case_weights=dict.fromkeys(CASES, 1.0))
    asked = [member.candidate.params for member in archive]
    found = cut(fitted, asked, np.random.default_rng(seed))
    assert found is not None
    return found


@cache
def of_seed(name: str, seed: int) -> tuple[tuple[Effect, ...], Surface]:
    value = {"additive": additive, "crossed": crossed}[name]
    return cut_of(ADDITIVE, archive_of(ADDITIVE, value, seed=seed), seed)


def effects(found: tuple[tuple[Effect, ...], Surface]) -> dict[str, Effect]:
    return {effect.parameter: effect for effect in found[0]}


# -- effects known exactly ---------------------------------------------------------------------


def true_effects(effect: Effect) -> np.ndarray:
    if effect.parameter == "slope":
        return np.array([0.2 * ((p.x or 0.0) - 0.5) for p in effect.points])
    if effect.parameter == "bend":
        units = np.array([np.log(p.x or 1.0) / np.log(100.0) for p in effect.points])
        return np.asarray(-0.4 * ((units - 0.5) ** 2 - 1 / 12), np.float64)
    if effect.parameter == "model":
        return np.array([MODEL[point.label] for point in effect.points])
    return np.zeros(len(effect.points))


@pytest.mark.statistical
@pytest.mark.slow
def test_intervals_cover_the_true_effects_as_often_as_they_say():
    covered = n = 0
    for seed in range(N_SEEDS):
        for effect in of_seed("additive", seed)[0]:
            assert effect.average is not None
            true = true_effects(effect)
            # The grid's mean of a parabola is not exactly the integral's.
            inside = [
                point.low - 0.002 <= effect.average + value <= point.high + 0.002
                for point, value in zip(effect.points, true, strict=True)
            ]
            # Neighbouring values move together: one of each effect, another in every seed.
            covered += inside[seed % len(inside)]
            n += 1
    test = stats.binomtest(covered, n, 0.9, alternative="less")
    assert test.pvalue > 1e-3, f"covered {covered} of {n}, expected {0.9 * n:.0f}"
    assert covered < n, "intervals that never miss are too wide"


@pytest.mark.statistical
@pytest.mark.slow
def test_an_interaction_is_found_where_there_is_one_and_only_there():
    for seed in range(N_SEEDS // 2):
        (strongest, *others) = of_seed("crossed", seed)[1].interactions
        assert set(strongest.parameters) == {"slope", "model"}
        assert strongest.is_sure
        assert strongest.share > 0.6
        assert set(strongest.labels) & {"a", "b"}
        assert strongest.effect_low < strongest.effect < strongest.effect_high
        assert all(pair.share < 0.1 for pair in others)
    # Nothing has an effect of its own: an error of 5 % over all parameters of a run.
    alone = sum(
        any(effect.is_sure for effect in of_seed("crossed", seed)[0])
        for seed in range(N_SEEDS // 2)
    )
    test = stats.binomtest(alone, N_SEEDS // 2, 0.05, alternative="greater")
    assert test.pvalue > 1e-3, f"{alone} of {N_SEEDS // 2} crossed functions had single effects"
    false = sum(
        any(pair.is_sure for pair in of_seed("additive", seed)[1].interactions)
        for seed in range(N_SEEDS)
    )
    test = stats.binomtest(false, N_SEEDS, 0.05, alternative="greater")
    assert test.pvalue > 1e-3, f"{false} of {N_SEEDS} additive functions were said to interact"


def test_what_belongs_to_single_configurations_is_told_apart():
    luck = np.random.default_rng(3)
    value = {CASES[0]: 0.0}

    def own(point: Params) -> float:
        key = str(sorted(point.items()))
        return additive(point) + value.setdefault(key, 0.08 * luck.standard_normal())

    rough = cut_of(ADDITIVE, archive_of(ADDITIVE, own, seed=1, n=80, noise=0.02))
    smooth = cut_of(ADDITIVE, archive_of(ADDITIVE, additive, seed=1, n=80, noise=0.02))
    assert rough[1].share_own > smooth[1].share_own + 0.1
    assert smooth[1].share_own < 0.05
    assert smooth[1].share_single > 0.85
    assert rough[1].share_single < 0.6


# -- conditions, constraints, degenerate spaces ------------------------------------------------


CONDITIONAL = Space(
    parameters={
        "model": Choice(kind="categorical", choices=("small", "large")),
        "depth": Integer(min=1, max=4, when=(("model", ("large",)),)),
        "idle": Float(min=0.0, max=1.0),
    }
)


def test_a_conditional_parameter_is_told_where_it_is_active():
    def value(point: Params) -> float:
        return 0.2 if point["model"] == "small" else 0.5 + 0.1 * (float(point["depth"]) - 2.5)

    members = archive_of(CONDITIONAL, value, seed=0, n=40, n_cases=10, noise=0.01)
    depth = effects(cut_of(CONDITIONAL, members))["depth"]
    assert depth.share_active == pytest.approx(0.5)
    assert depth.average == pytest.approx(0.5, abs=0.02)
    assert [p.mean for p in depth.points] == pytest.approx([0.35, 0.45, 0.55, 0.65], abs=0.02)
    # Active in half of the space; the two models lie .3 apart.
    assert depth.share == pytest.approx(0.00625 / (0.0225 + 0.00625), abs=0.06)


def test_effects_under_a_constraint_are_those_of_a_two_way_fit():
    space = Space(
        parameters={"a": Float(min=0.0, max=1.0), "b": Float(min=0.0, max=1.0)},
        constraints=(parse("a + b <= 1"),),
    )

    def value(point: Params) -> float:
        return 0.3 + 0.2 * float(point["a"]) + 0.3 * float(point["b"])

    found = cut_of(space, archive_of(space, value, seed=0, n=60, noise=0.01))
    for name, slope in (("a", 0.2), ("b", 0.3)):
        effect = effects(found)[name]
        rise = effect.points[-2].mean - effect.points[0].mean
        span = (effect.points[-2].x or 0.0) - (effect.points[0].x or 0.0)
        # Averages over what is permitted would mix in the other parameter, which then falls.
        assert rise / span == pytest.approx(slope, abs=0.05)


def test_a_space_in_which_nothing_varies_has_no_effects():
    space = Space(parameters={"only": Choice(kind="categorical", choices=("one",))})
    fitted = SpaceModel(space=space).fit(archive_of(space, lambda _: 0.5, seed=0, n=1))
    assert cut(fitted, [], np.random.default_rng(0)) is None
    nothing = SpaceModel(space=ADDITIVE).fit(Archive())
    assert cut(nothing, [], np.random.default_rng(0)) is None


def test_one_candidate_is_enough_to_say_that_nothing_is_sure():
    found = cut_of(ADDITIVE, archive_of(ADDITIVE, additive, seed=0, n=1))
    assert not any(effect.is_sure for effect in found[0])
    assert not any(pair.is_sure for pair in found[1].interactions)


def test_a_parameter_that_constraints_hold_in_place_has_no_effect():
    space = Space(
        parameters={"a": Integer(min=0, max=3), "b": Float(min=0.0, max=1.0)},
        constraints=(parse("a == 2"),),
    )
    found = cut_of(space, archive_of(space, lambda p: 0.5 + 0.2 * float(p["b"]), seed=0, n=30))
    assert set(effects(found)) == {"b"}
    assert found[1].interactions == ()


@pytest.mark.parametrize("seed", range(2))
def test_any_space_can_be_cut(seed):
    space = random_space(seed, constrained=seed % 2 == 1)
    rng = np.random.default_rng(seed)
    found = cut_of(space, archive_of(space, lambda _: float(rng.random()), seed=seed, n=25))
    names = {name for name, p in space.parameters.items() if p.n_values != 1}
    assert {effect.parameter for effect in found[0]} <= names
    shares = [effect.share or 0.0 for effect in found[0]]
    assert shares == sorted(shares, reverse=True)
    for effect in found[0]:
        parameter = space.parameters[effect.parameter]
        n_asked = sum(point.n_candidates for point in effect.points)
        assert n_asked <= 25
        assert 0 <= (effect.share_low or 0) <= (effect.share_high or 0) <= 1
        assert all(point.low <= point.mean <= point.high for point in effect.points)
        if isinstance(parameter, Choice):
            assert len(effect.points) <= parameter.n_values


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_settings_lie_in_the_space(seed):
    space = random_space(seed, constrained=True)
    settings = SettingSampler(encoding=Encoding.of(space))
    drawn = settings.sample(40, np.random.default_rng(seed))
    genes = settings.express(drawn)
    assert len(genes) == 40
    assert not np.isnan(drawn).any()
    for row, setting in zip(genes, drawn, strict=True):
        point = settings._breeder.point(row)  # raises where a value is missing
        assert space.validate(point) == []
        assert settings.encoding.genes([point])[0] == pytest.approx(row, nan_ok=True, abs=1e-4)
        assert setting[~np.isnan(row)] == pytest.approx(row[~np.isnan(row)])


def test_a_changed_parameter_wakes_and_puts_to_sleep_what_depends_on_it():
    settings = SettingSampler(encoding=Encoding.of(CONDITIONAL))
    depth, model = (settings.encoding.names.index(name) for name in ("depth", "model"))
    drawn = settings.sample(8, np.random.default_rng(0))
    genes, keeps = settings.varied(drawn, [model], [np.array([0.0, 1.0])])
    assert np.isnan(genes[:, 0, depth]).all()
    assert (genes[:, 1, depth] == drawn[:, depth]).all()
    assert keeps.all()
    _, keeps = settings.varied(drawn, [depth], [np.array([0.0, 1.0])])
    assert (keeps[:, 0] == (drawn[:, model] == 1.0)).all()


@pytest.mark.parametrize(
    ("parameter", "n", "weights"),
    [
        (Choice(kind="boolean", choices=(False, True)), 2, [0.5, 0.5]),
        (Integer(min=1, max=4), 4, [0.25] * 4),
        (Float(min=0.0, max=1.0), 12, [1 / 22, *[1 / 11] * 10, 1 / 22]),
        (Integer(min=3, max=3), 1, [1.0]),
    ],
)
def test_levels_weigh_what_they_stand_for(parameter, n, weights):
    levels = Levels.of(parameter)
    assert len(levels.values) == n
    assert levels.weights == pytest.approx(weights)
    assert levels.some(2).weights.sum() == pytest.approx(1.0)
    assert len(levels.some(3).values) == min(n, 3)


# -- fits ----------------------------------------------------------------------------------------


def test_none_of_the_ball_is_nothing_and_all_of_it_is_an_effect():
    rng = np.random.default_rng(0)
    weights = np.full(3, 1 / 3)
    noise = rng.standard_normal((3, 500))
    noise -= noise.mean(axis=1, keepdims=True)
    assert not is_sure(noise + np.array([[0.1], [0.0], [-0.1]]), weights, 0.05)
    assert is_sure(noise + np.array([[5.0], [0.0], [-5.0]]), weights, 0.05)
    assert is_sure(np.array([[1.0], [-1.0]]), np.array([0.5, 0.5]), 0.05)
    assert not is_sure(np.zeros((2, 4)), np.array([0.5, 0.5]), 0.05)


# -- who left ------------------------------------------------------------------------------------


def test_those_who_left_are_those_whom_the_race_lets_go():
    archive = archive_of(ADDITIVE, additive, seed=0, n=150)
    fitted = SpaceModel(space=ADDITIVE).fit(archive)
    recommendation = recommend(
        SearchState(archive=archive),
        rng=np.random.default_rng(0),
        surrogate=SpaceModel(space=ADDITIVE),
    )
    assert recommendation is not None
    standing = {ranked.candidate_id: ranked for ranked in recommendation.ranking}
    # With room for all, elites are exactly those who have not left.
    rules = Rules(n_elites=1000)
    found = discards(fitted, archive, standing, names=names_of(archive), rules=rules)
    assert found is not None
    field = Competitors(rules, fitted.model.encoding, archive, fitted)
    assert found.n_left == len(archive) - len(field.elites) > 0
    assert found.n_waiting == 0
    assert sum(n for _, n in found.left_by_cells) == found.n_left
    stay = {field.members[i].candidate_id for i in field.elites}
    assert not stay & {one.candidate_id for one in found.closest}
    probabilities = [one.probability for one in found.closest]
    assert probabilities == sorted(probabilities, reverse=True)
    assert max(probabilities) < found.bound == pytest.approx(0.05 / 150)
    few = discards(fitted, archive, standing, names=names_of(archive), rules=Rules(n_elites=5))
    assert few is not None
    assert few.n_left == found.n_left
    assert few.n_waiting == len(archive) - found.n_left - 5


def test_a_race_without_rewards_has_no_discards():
    fitted = SpaceModel(space=ADDITIVE).fit(Archive())
    assert discards(fitted, Archive(), {}, names={}, rules=Rules()) is None


def test_an_explanation_holds_all_parts_and_is_a_function_of_the_evidence():
    archive = archive_of(ADDITIVE, additive, seed=0, n=20)
    surrogate = SpaceModel(space=ADDITIVE)
    recommendation = recommend(
        SearchState(archive=archive), rng=np.random.default_rng(0), surrogate=surrogate
    )
    assert recommendation is not None

    names = names_of(archive)

    def told(rules: Rules | None) -> tuple[tuple[Effect, ...], Explanation]:
        rng = np.random.default_rng(0)
        return explain(surrogate, archive, recommendation, rng=rng, names=names, rules=rules)

    found = told(Rules())
    assert told(Rules()) == found
    assert len(found[0]) == 5
    assert found[1].surface is not None
    assert found[1].discards is not None
    without = told(None)
    assert without[1].discards is None
