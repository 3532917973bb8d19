"""Optimism: what leaders failed to show when they were asked again."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from convergence_core.evidence import Archive
from convergence_core.posterior.selection_bias import MEMORY_KEY, N_LEADERS, SelectionBias
from convergence_core.posterior.space_model import FittedSpaceModel, SpaceModel
from convergence_core.records import Candidate, Cell, Trial
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.space import Choice, Float, Space
from tests.support.mixed_problem import trial

CASES = tuple(f"case-{j:03d}" for j in range(200))
N_VALUES = 60
SPACE = Space(parameters={"x": Choice(kind="categorical", choices=tuple(range(N_VALUES)))})
CANDIDATES = [SPACE.candidate({"x": x}) for x in range(N_VALUES)]
SURROGATE = SpaceModel(space=SPACE)


@dataclass(frozen=True)
class World:
    """Candidates' mean rewards, cases' effects, and the luck of a cell."""

    rng: np.random.Generator
    values: np.ndarray
    noise: float = 0.1
    effects: np.ndarray = field(default_factory=lambda: np.zeros(len(CASES)))

    def answers(self, indices: Iterable[int], cases: Sequence[str]) -> list[Trial]:
        effect = dict(zip(CASES, self.effects, strict=True))
        return [
            trial(
                CANDIDATES[i],
                {
                    Cell(candidate_id=CANDIDATES[i].candidate_id, case_id=case): float(
                        self.values[i] + effect[case] + self.noise * self.rng.standard_normal()
                    )
                    for case in cases
                },
            )
            for i in indices
        ]


def fit(archive: Archive, cases: Sequence[str]) -> FittedSpaceModel:
    return SURROGATE.fit(archive, case_ids=cases)


def leaders_of(fitted: FittedSpaceModel, archive: Archive) -> list[Candidate]:
    assert fitted.learned is not None
    members = [archive.members[name].candidate for name in fitted.learned.evidence.ids]
    order = np.argsort(-fitted.posterior(members).mean, kind="stable")
    return [members[i] for i in order[:N_LEADERS]]


def test_optimism_is_the_least_squares_of_the_module():
    """Against a loop over leaders; those who were not asked again, and followers, do not count."""
    rng = np.random.default_rng(0)
    values = 0.5 + 0.05 * rng.standard_normal(N_VALUES)
    world = World(rng, values, effects=0.1 * rng.standard_normal(len(CASES)))
    all_cases = CASES[:12]
    before = Archive().tell(world.answers(range(40), CASES[:5]), 0)
    then = fit(before, all_cases)
    leaders = leaders_of(then, before)
    again = [*range(N_VALUES)]
    again.remove(int(str(leaders[1].params["x"])))
    after = before.tell(world.answers(again, CASES[5:12]), 1)
    now = fit(after, all_cases)

    assert now.learned is not None
    effect = dict(zip(all_cases, now.learned.effects.case_effect, strict=True))
    cross = square = 0.0
    for leader in [leaders[0], *leaders[2:]]:
        belief = then.posterior([leader])
        sd = float(belief.sd[0])
        rewards = after.members[leader.candidate_id].rewards
        shown = np.mean([rewards[case, 0] - effect[case] for case in CASES[5:12]])
        shown += np.mean([*effect.values()])
        noise = now.learned.effects.noise[now.rows([leader.candidate_id])[0]]
        variance = sd**2 + noise / 7
        cross += float(belief.mean[0] - shown) * sd / variance
        square += sd**2 / variance
    found = SelectionBias.of_generation(then, before, now, after)
    assert found.cross == pytest.approx(cross)
    assert found.square == pytest.approx(square)
    assert found.zeta == pytest.approx(max(0.0, cross / (square + 1)))


def test_with_one_case_newcomers_of_whom_much_was_believed_count_as_well():
    """Against a loop, where the process learns the noise; most leaders are asked for the first time."""
    rng = np.random.default_rng(2)
    space = Space(parameters={"x": Float(min=0.0, max=1.0)})
    surrogate = SpaceModel(space=space)

    def answers(xs: Iterable[float], repeat: int) -> list[Trial]:
        candidates = [space.candidate({"x": float(x)}) for x in xs]
        return [
            trial(c, {Cell(candidate_id=c.candidate_id, case_id="only", repeat=repeat): value})
            for c, value in (
                (c, 0.8 - (float(str(c.params["x"])) - 0.5) ** 2 + 0.1 * rng.standard_normal())
                for c in candidates
            )
        ]

    before = Archive().tell(answers(np.linspace(0, 1, 24), 0), 0)
    newcomers, known = np.linspace(0.45, 0.55, 8), np.linspace(0, 1, 24)[10:14]
    after = before.tell([*answers(newcomers, 0), *answers(known, 1)], 1)
    then, now = surrogate.fit(before), surrogate.fit(after)
    assert then.learned is not None
    assert not then.learned.effects.is_measured

    everybody = [member.candidate for member in after]
    leaders = sorted(everybody, key=lambda c: -float(then.posterior([c]).mean[0]))[:N_LEADERS]
    cross = square = 0.0
    n_new = 0
    for leader in leaders:
        belief = then.posterior([leader])
        new = set(after.members[leader.candidate_id].rewards.items())
        if leader.candidate_id in before:
            new -= set(before.members[leader.candidate_id].rewards.items())
        else:
            n_new += 1
        if not new:
            continue
        ((_, shown),) = new
        mean, sd = float(belief.mean[0]), float(belief.sd[0])
        slope = then.learned.warp.slope(belief.mean)[0]
        variance = sd**2 + then.learned.process.noise / slope**2
        cross += (mean - shown) * sd / variance
        square += sd**2 / variance
    assert n_new > 0
    found = SelectionBias.of_generation(then, before, now, after)
    assert found.cross == pytest.approx(cross)
    assert found.square == pytest.approx(square)


def test_nothing_is_shown_where_nobody_is_asked_again_or_several_cases_do_not_tell_the_noise():
    world = World(np.random.default_rng(0), np.full(N_VALUES, 0.5))
    before = Archive().tell(world.answers(range(20), CASES[:5]), 0)
    after = before.tell(world.answers(range(20, 40), CASES[5:10]), 1)
    shown = SelectionBias.of_generation(
        fit(before, CASES[:10]), before, fit(after, CASES[:10]), after
    )
    assert shown == SelectionBias(0.0, 0.0)
    assert (shown.zeta, shown.widening) == (0.0, 1.0)
    one_each = Archive().tell(world.answers(range(20), CASES[:1]), 0)
    more = one_each.tell(world.answers(range(5), CASES[1:2]), 1)
    unmeasured = [fit(archive, CASES[:2]) for archive in (one_each, more)]
    assert (
        SelectionBias.of_generation(unmeasured[0], one_each, unmeasured[1], more)
        == SelectionBias()
    )
    nothing = Archive()
    assert (
        SelectionBias.of_generation(fit(nothing, CASES), nothing, fit(before, CASES), before)
        == SelectionBias()
    )


def test_memory_keeps_what_each_generation_showed():
    memory = SelectionBias(1.0, 2.0).noted({"generation": 1}, 0)
    memory = SelectionBias(0.5, 1.0).noted(memory, 1)
    memory = json.loads(json.dumps(memory))
    assert memory["generation"] == 1
    assert SelectionBias.of_memory(memory) == SelectionBias(1.5, 3.0)
    assert SelectionBias.of_memory({}) == SelectionBias()
    # Batches of one generation add up.
    assert SelectionBias(0.25, 1.0).noted(memory, 1)[MEMORY_KEY] == [[0, 1.0, 2.0], [1, 0.75, 2.0]]


def test_claims_are_never_raised():
    assert SelectionBias(-3.0, 4.0).zeta == 0.0
    assert SelectionBias(-3.0, 4.0).widening == pytest.approx(np.sqrt(1.2))


def test_claims_are_lowered_and_widened_and_nobody_else_is_chosen():
    rng = np.random.default_rng(3)
    trials = World(rng, 0.5 + 0.1 * rng.standard_normal(N_VALUES)).answers(range(30), CASES[:6])
    name = CANDIDATES[
        0
    ].candidate_id  # repeats a case and differs: there is one reading of rewards
    trials += [trial(CANDIDATES[0], {Cell(candidate_id=name, case_id=CASES[0], repeat=1): 0.4})]
    sampler = ThompsonSampler(name="thompson", space=SPACE, surrogate=SURROGATE)
    state = sampler.tell(sampler.start(), trials)
    plain = recommend(state, rng=rng, surrogate=SURROGATE, level=0.9)
    memory = SelectionBias(3.0, 2.0).noted(state.memory, 1)  # zeta = 1, its variance 1/3
    lower = recommend(replace(state, memory=memory), rng=rng, surrogate=SURROGATE, level=0.9)
    assert plain is not None
    assert lower is not None
    assert [r.candidate_id for r in plain.ranking] == [r.candidate_id for r in lower.ranking]
    posterior = SURROGATE.fit(state.archive).posterior(
        [state.archive.members[r.candidate_id].candidate for r in plain.ranking]
    )
    pairs = [*zip(posterior.sd, plain.ranking, lower.ranking, strict=True)]
    for sd, was, now in pairs[:N_LEADERS]:
        assert now.mean == pytest.approx(was.mean - sd)
        assert now.mean - now.low == pytest.approx((was.mean - was.low) * np.sqrt(4 / 3))
        assert now.high - now.mean == pytest.approx((was.high - was.mean) * np.sqrt(4 / 3))
    assert len(pairs) > N_LEADERS
    assert all(was == now for _, was, now in pairs[N_LEADERS:])  # followers, and the baseline
    assert lower.mean == lower.ranking[0].mean


def test_a_sampler_writes_down_what_leaders_show():
    """From the second generation on, and once a generation, however it is asked."""
    rng = np.random.default_rng(5)
    world = World(rng, 0.5 + 0.1 * rng.standard_normal(N_VALUES))
    sampler = ThompsonSampler(name="thompson", space=SPACE, surrogate=SURROGATE)
    state = SearchState()
    for generation in range(3):
        cases = CASES[5 * generation : 5 * generation + 5]
        before, fitted = state.archive, SURROGATE.warm(state.memory)
        state = sampler.tell(state, world.answers(range(30), cases))
        rows = state.memory[MEMORY_KEY]
        assert isinstance(rows, list)
        assert [row[0] for row in rows if isinstance(row, list)] == list(range(generation + 1))
        if generation:
            asked = CASES[: 5 * generation + 5]
            now = sampler.surrogate.warm(state.memory).fit(state.archive, case_ids=asked)
            shown = SelectionBias.of_generation(
                fitted.fit(before, case_ids=asked), before, now, state.archive
            )
            last = rows[-1]
            assert isinstance(last, list)
            assert shown.square > 0
            assert last[1:] == pytest.approx([shown.cross, shown.square], rel=1e-6)
