"""Tallies: which cells count, once each, in any order, and through JSON."""

import json

import numpy as np
import pytest

from convergence_core.evidence import KEPT, METRIC, Archive, Measures, total_of
from convergence_core.objective import RewardModel
from convergence_core.records import Candidate, Cell, Evaluation, Trial, canonical_json
from tests.support.single_metrics import metric

REWARDS = RewardModel(
    {
        "quality": metric(),
        "seconds": metric(direction="lower", scale={"good": 0.0, "bad": 2.0}, max=1.0),
        "words": metric(weight=0.0, min=3.0),
    }
)
MEASURES = Measures(rewards=REWARDS, constraints=True, metrics=("quality", "seconds"))
GOOD = {"quality": 0.9, "seconds": 0.5, "words": 10.0}


def evaluation(
    case: str, metrics: dict[str, float], generation: int | None = 0, **changes: object
) -> Evaluation:
    scored = REWARDS.score(metrics)
    fields: dict[str, object] = {
        "eval_id": case,
        "cell": Cell(candidate_id="a", case_id=case),
        "generation": generation,
        "status": "ok",
        "reward": scored.reward,
        "fault": scored.fault,
        "metrics": metrics,
    }
    return Evaluation(**(fields | changes))  # type: ignore[arg-type]


def told(*evaluations: Evaluation, before: Archive | None = None) -> Archive:
    candidate = Candidate(candidate_id="a", params={"x": 1})
    trial = Trial(candidate=candidate, evaluations=evaluations)
    return (before or Archive()).tell([trial], 0, MEASURES)


def sums(archive: Archive, name: str) -> tuple[int, float, float]:
    return total_of(archive.members["a"].tallies, name)


@pytest.mark.parametrize(
    ("metrics", "breaks"),
    [
        (GOOD, False),
        (GOOD | {"seconds": 1.5}, True),
        (GOOD | {"words": 2.0}, True),
        ({"quality": 1.0, "seconds": 0.5}, None),
        ({"quality": 1.0, "seconds": 1.5}, True),
        ({}, None),
        (GOOD | {"words": float("nan")}, None),
    ],
)
def test_a_cell_breaks_a_constraint_keeps_all_or_does_not_tell(metrics, breaks):
    assert REWARDS.breaks(metrics) is breaks


def test_parts_are_on_their_scales_whatever_constraints_say():
    parts = REWARDS.parts(GOOD | {"seconds": 1.5})
    assert parts == {"quality": 0.9, "seconds": 0.25}
    assert REWARDS.parts({"quality": 3.0, "seconds": float("inf")}) == {}


def test_each_cell_is_summed_once():
    first = told(evaluation("c1", GOOD), evaluation("c2", GOOD | {"seconds": 1.5}))
    assert sums(first, KEPT) == (2, 1.0, 1.0)
    n, total, squares = sums(first, METRIC + "seconds")
    assert (n, total) == (2, 0.75 + 0.25)
    assert squares == pytest.approx(0.75**2 + 0.25**2)
    again = told(evaluation("c1", GOOD), evaluation("c3", GOOD), before=first)
    assert sums(again, KEPT) == (3, 2.0, 2.0)
    assert again.members["a"].rewards.keys() == {("c1", 0), ("c2", 0), ("c3", 0)}


def test_order_does_not_matter():
    cells = [
        evaluation(f"c{i}", GOOD | {"quality": q})
        for i, q in enumerate(np.random.default_rng(0).random(9))
    ]
    assert told(*cells) == told(*reversed(cells))


def test_only_rewarded_search_cells_count():
    holdout = Cell(candidate_id="a", case_id="h", role="holdout")
    archive = told(
        evaluation("c1", GOOD, reward=None),
        evaluation("h", GOOD, cell=holdout),
        evaluation("c2", GOOD),
    )
    assert sums(archive, KEPT)[0] == 1


def test_a_failed_cell_is_worth_nothing_and_keeps_and_breaks_nothing():
    archive = told(evaluation("c1", {}, fault="candidate", reward=0.0, status="error"))
    assert sums(archive, METRIC + "quality") == (1, 0.0, 0.0)
    assert sums(archive, KEPT)[0] == 0


def test_tallies_go_through_json_and_old_states_have_none():
    archive = told(evaluation("c1", GOOD), evaluation("c2", GOOD | {"words": 0.0}))
    text = canonical_json(archive.to_json())
    assert Archive.from_json(json.loads(text)) == archive
    rows = json.loads(text)
    del rows[0]["tallies"]
    assert Archive.from_json(rows).members["a"].tallies == ()


def test_a_state_grows_with_candidates_and_not_with_cells():
    def size(n: int) -> int:
        archive = told(*(evaluation(f"c{i:03d}", GOOD) for i in range(n)))
        return len(json.dumps([tally.to_json() for tally in archive.members["a"].tallies]))

    assert size(200) < size(10) + 30


def test_without_measures_nothing_is_tallied_or_written():
    trial = Trial(
        candidate=Candidate(candidate_id="a", params={}), evaluations=(evaluation("c", GOOD),)
    )
    archive = Archive().tell([trial], 0)
    assert archive.members["a"].tallies == ()
    assert "tallies" not in json.dumps(archive.to_json())
