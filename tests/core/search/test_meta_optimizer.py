"""Choice of breeding operators: what a generation gained, and what the next one breeds by."""

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from convergence_core.records import Candidate
from convergence_core.search.evolution import (
    OPERATORS,
    BreedingMix,
    PoolBreeder,
    operator_of,
)
from convergence_core.search.evolution.operators import FIXED_SHARES
from convergence_core.search.meta_optimizer import (
    META_KEY,
    P_MIN,
    QUALITY_KEY,
    GenerationGains,
    OperatorCredit,
    entry_of,
)
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import ThompsonSampler, make_sampler
from convergence_core.space import Choice, Float, Space
from convergence_core.space.arrays import Encoding
from tests.support import problems
from tests.support.operator_choices import (
    after_a_search,
    ids_of,
    memory_of,
    outcome,
    sampler,
    whole_search,
)

SPACE = Space(
    parameters={
        "x": Float(min=0.0, max=1.0),
        "y": Float(min=0.0, max=1.0),
        "a": Choice(kind="categorical", choices=("p", "q", "r")),
        "b": Choice(kind="categorical", choices=("p", "q", "r")),
    }
)
ENCODING = Encoding.of(SPACE)
FRESH = OPERATORS.index("fresh")


# -- fixed ---------------------------------------------------------------------------------------


def test_fixed_shares_ask_what_they_asked_before_there_was_a_choice():
    # Recorded with a sampler that knew no meta-optimizer, of evidence that is read once.
    recorded = "bc5e25f962759dd8"
    for settings in ({}, {"meta_optimizer": "fixed"}):
        made = make_sampler(problems.configuration("mab_evolution", **settings), problems.space())
        state, plans = problems.search(made, seed=3, n_generations=4)
        asked = " ".join(ids_of(plans))
        assert hashlib.sha256(asked.encode()).hexdigest()[:16] == recorded
        assert META_KEY not in state.memory


# -- operators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "moved", "operator"),
    [
        ("sample", {}, "fresh"),
        ("crossover", {0: 0.9}, "crossover"),
        ("mutation", {0: 0.55}, "small_step"),
        ("mutation", {0: 0.57}, "large_step"),
        ("mutation", {2: 2.0}, "small_step"),
        ("mutation", {2: 2.0, 3: 0.0}, "large_step"),
        ("mutation", {0: np.nan}, "large_step"),
        ("rlp", {0: 0.9}, None),
        ("elite", {}, None),
    ],
)
def test_an_operator_is_told_by_origin_and_move(origin, moved, operator):
    parent = np.array([0.5, 0.5, 1.0, 1.0])
    child = parent.copy()
    for column, value in moved.items():
        child[column] = value
    candidate = Candidate(candidate_id="c", params={}, origin=origin, parent_ids=("p",))
    found = operator_of(candidate, child, parent, 2)
    assert (OPERATORS[found] if found >= 0 else None) == operator


def test_a_step_from_a_parent_that_is_not_known_is_credited_to_nobody():
    candidate = Candidate(candidate_id="c", params={}, origin="mutation", parent_ids=("p",))
    assert operator_of(candidate, np.zeros(4), None, 2) == -1


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_pool_of_one_operator_is_mostly_made_by_it(operator):
    breeder, rng = PoolBreeder(encoding=ENCODING), np.random.default_rng(0)
    parents = breeder.sample(12, rng).genes
    shares = tuple(float(name == operator) for name in OPERATORS)
    pool = BreedingMix(shares=shares).pool(breeder, parents, 4, 400, rng)
    made = []
    for row in range(len(pool)):
        first = pool.parents[row, 0]
        candidate = Candidate(candidate_id="c", params={}, origin=pool.origin(row))
        genes = None if first < 0 else parents[first]
        made.append(operator_of(candidate, pool.genes[row], genes, 2))
    n_made = made.count(OPERATORS.index(operator))
    assert n_made > 0.6 * len(pool), f"{n_made} of {len(pool)}"


def test_the_fixed_shares_are_those_of_the_fixed_pool():
    # As `Competitors.pool` breeds without a mix: three quarters bred, one quarter drawn.
    breeder, rng = PoolBreeder(encoding=Encoding.of(WIDE)), np.random.default_rng(1)
    parents = breeder.sample(400, rng).genes  # so many that few children have one parent twice
    pool = breeder.breed(parents, 4_000, rng)
    crossed = (pool.parents[:, 1] >= 0).mean()
    assert crossed == pytest.approx(FIXED_SHARES[0] / 0.75, abs=0.03)
    made = [
        operator_of(
            Candidate(candidate_id="c", params={}, origin="mutation"),
            pool.genes[row],
            parents[pool.parents[row, 0]],
            12,
        )
        for row in np.flatnonzero(pool.parents[:, 1] < 0)
    ]
    small = made.count(OPERATORS.index("small_step")) / len(made)
    assert small == pytest.approx(0.5, abs=0.1)


WIDE = Space(parameters={f"x{i}": Float(min=0.0, max=1.0) for i in range(12)})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shares": (0.5, 0.5)}, "4 numbers"),
        ({"shares": (0.5, 0.5, 0.5, -0.5)}, "0 or more"),
        ({"shares": (0.5, 0.5, 0.5, 0.5)}, "add up to 1"),
        ({"shares": (float("nan"), 0.5, 0.5, 0.0)}, "add up to 1"),
        ({"exploration": -1.0}, "`exploration`"),
        ({"exploration": float("nan")}, "`exploration`"),
    ],
)
def test_a_mix_that_is_none_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BreedingMix(**settings)


def test_exploration_is_a_share_however_large_its_factor():
    assert BreedingMix(exploration=3.0).exploration_rate(0.1) == pytest.approx(0.3)
    assert BreedingMix(exploration=3.0).exploration_rate(0.5) == 1.0


# -- gains ---------------------------------------------------------------------------------------


def test_gains_are_of_new_candidates_over_the_leader_before_by_one_posterior():
    made, (states, _) = sampler("credit"), whole_search("credit")
    before, after = states[2], states[3]
    fitted = made.surrogate.warm(after.memory).fit(after.archive)
    competitors = made.competitors(after.archive, fitted, after.memory, n_steps=0)
    found = GenerationGains.of(competitors, before.memory, 2, 300)
    mean = competitors.marginals[0]
    leader = competitors.members[found.leader].candidate_id
    assert leader == entry_of(before.memory)["leader"]
    new = [after.archive.members[m.candidate_id].generation == 2 for m in competitors.members]
    assert (found.operators[~np.array(new)] == -1).all()
    assert set(found.operators[new]) <= {0, 1, 2, 3}
    expected = np.where(new, np.maximum(0, mean - mean[found.leader]) / mean.std(), 0.0)
    assert found.gains == pytest.approx(expected)


def test_the_first_generation_has_no_leader_to_gain_on():
    found = GenerationGains.of(after_a_search(1), {}, 0, 300)
    assert found.leader == -1
    assert (found.operators == -1).all()
    assert not found.gains.any()
    assert np.isnan(found.per_candidate()).all()


# -- credit --------------------------------------------------------------------------------------


def test_credit_begins_at_the_shares_of_the_fixed_pool():
    credit = OperatorCredit()
    assert credit.mix({}) is None
    learned = credit.learn({}, outcome([], []))
    mix: Any = credit.mix(memory_of(learned))
    assert mix.shares == pytest.approx(FIXED_SHARES)
    assert mix.exploration == pytest.approx(1.0)


def test_credit_follows_the_equations():
    credit = OperatorCredit(alpha=0.5, p_min=0.1)
    memory = memory_of({QUALITY_KEY: [0.2, 0.4, 0.6, 0.8]})
    # Crossover gained 1.5 on average, small steps 3, large steps nothing; fresh ones were not made.
    found = outcome([0, 0, 1, 2], [1.0, 2.0, 3.0, 0.0])
    assert found.per_candidate()[:3] == pytest.approx([1.5, 3.0, 0.0])
    learned = credit.learn(memory, found)
    assert learned[QUALITY_KEY] == pytest.approx([0.35, 0.7, 0.3, 0.8])
    mix: Any = credit.mix(memory_of(learned))
    assert mix.shares == pytest.approx([0.1 + 0.6 * q / 2.15 for q in (0.35, 0.7, 0.3, 0.8)])
    assert mix.exploration == pytest.approx(mix.shares[FRESH] / FIXED_SHARES[FRESH])


def test_a_generation_without_a_gain_changes_no_credit():
    credit = OperatorCredit()
    memory = memory_of({QUALITY_KEY: [0.2, 0.4, 0.6, 0.8]})
    assert credit.learn(memory, outcome([0, 1, 2, 3], [0.0] * 4))[QUALITY_KEY] == [
        0.2,
        0.4,
        0.6,
        0.8,
    ]


def test_an_operator_that_always_gains_gets_all_but_the_least_shares_of_the_others():
    credit, memory = OperatorCredit(), memory_of({})
    for _ in range(60):
        memory = memory_of(credit.learn(memory, outcome([0, 1, 2, 3], [0, 0, 1.0, 0])))
    mix: Any = credit.mix(memory)
    shares = mix.shares
    assert shares[2] == pytest.approx(1 - 3 * P_MIN, abs=1e-6)
    assert min(shares) == pytest.approx(P_MIN, abs=1e-6)


@pytest.mark.parametrize("broken", [None, "x", [1, 2], [1, 2, 3, float("nan")], [1, 2, 3, "x"]])
def test_a_memory_of_something_else_begins_anew(broken):
    assert OperatorCredit().mix(memory_of({QUALITY_KEY: broken})) is None


# -- in a search ---------------------------------------------------------------------------------


def test_the_configuration_names_who_chooses():
    for name, chooser in {"fixed": None, "credit": OperatorCredit()}.items():
        cfg = problems.configuration("mab_evolution", meta_optimizer=name)
        made = make_sampler(cfg, problems.space())
        assert isinstance(made, ThompsonSampler)
        assert made.meta_optimizer == chooser


def test_a_choice_of_operators_changes_what_is_asked():
    (_, fixed), (_, chosen) = whole_search("fixed"), whole_search("credit")
    assert fixed[:12] == chosen[:12]  # nothing is known yet
    assert fixed != chosen


def test_a_search_that_is_taken_up_from_its_state_makes_the_same_choices():
    made, world = sampler("credit"), problems.World(3)
    states, asked = whole_search("credit")
    for cut in (2, 4):
        state = SearchState.from_json(json.loads(json.dumps(states[cut].to_json())))
        again, rng = sampler("credit"), np.random.default_rng([3, 2])
        for generation in range(cut):  # brings the generator to where it was
            made.ask(states[generation], rng, problems.request(world, generation, 6, 300))
        plans = []
        for generation in range(cut, 6):
            plan = again.ask(state, rng, problems.request(world, generation, 6, 300))
            plans.append(plan)
            state = again.tell(state, world.trials(plan, generation))
        found = ids_of(plans)
        assert found == asked[-len(found) :]
        assert state.memory[META_KEY] == states[-1].memory[META_KEY]


def test_the_order_of_trials_does_not_matter():
    made, world = sampler("credit"), problems.World(3)
    states, _ = whole_search("credit")
    plan = made.ask(states[1], np.random.default_rng(5), problems.request(world, 1, 6, 300))
    trials = world.trials(plan, 1)
    there, back = made.tell(states[1], trials), made.tell(states[1], trials[::-1])
    assert there.memory[META_KEY] == back.memory[META_KEY]
