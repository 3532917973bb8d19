"""Adjusted means: candidates that were asked different cases compare."""

import numpy as np
import pytest

from convergence_core.posterior.case_effects import adjusted_means


def test_who_was_asked_the_easy_cases_gains_nothing_by_it():
    ease = {f"c{j}": j / 10 for j in range(10)}
    cells = [("all", case, value, 1) for case, value in ease.items()]
    cells += [("other", case, value - 0.1, 1) for case, value in ease.items()]
    cells += [("lucky", case, ease[case] - 0.05, 1) for case in ("c7", "c8", "c9")]
    found = adjusted_means(cells)
    assert found["all"] == pytest.approx(0.45, abs=0.01)
    assert found["lucky"] == pytest.approx(0.40, abs=0.01)  # its raw mean is 0.75
    assert found["all"] > found["lucky"] > found["other"]


def test_adjusted_means_lie_nearer_to_the_truth_than_raw_ones():
    rng = np.random.default_rng(1)
    skill, ease = rng.normal(0, 0.1, 60), rng.normal(0, 0.3, 40)
    easiest_first = np.argsort(-ease)
    cells = []
    for i in range(60):
        asked = np.arange(40) if i < 10 else easiest_first[: rng.integers(8, 30)]
        cells += [
            (f"a{i}", f"c{j}", 0.5 + skill[i] + ease[j] + rng.normal(0, 0.3), 1) for j in asked
        ]
    found = adjusted_means(cells)
    truth = 0.5 + skill + ease.mean()
    raw = [np.mean([value for name, _, value, _ in cells if name == f"a{i}"]) for i in range(60)]
    adjusted = np.array([found[f"a{i}"] for i in range(60)])
    of_raw, of_adjusted = (float(np.sqrt(np.mean((x - truth) ** 2))) for x in (raw, adjusted))
    assert of_adjusted < 0.5 * of_raw, (of_adjusted, of_raw)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_unit_changes_nothing(unit):
    cells = [("a", "x", 1.0, 1), ("a", "y", 3.0, 2), ("b", "x", 2.0, 1), ("b", "y", 5.0, 1)]
    plain = adjusted_means(cells)
    scaled = adjusted_means([(name, case, unit * value, n) for name, case, value, n in cells])
    for name, mean in plain.items():
        assert scaled[name] == pytest.approx(unit * mean)


def test_cases_count_by_their_weights():
    cells = [(name, case, v, 1) for name in "ab" for case, v in (("x", 0.0), ("y", 1.0))]
    assert adjusted_means(cells)["a"] == pytest.approx(0.5)
    weighted = adjusted_means(cells, case_weights={"x": 3.0, "y": 1.0})
    assert weighted["a"] == pytest.approx(0.25, abs=0.01)


def test_adjusted_means_stay_within_the_values_seen():
    """The one that fails each case is asked the easy ones alone; no share of passes is below 0."""
    easy, hard = [f"e{i}" for i in range(5)], [f"h{i}" for i in range(5)]
    cells = [("bad", case, 0.0, 1) for case in easy]
    cells += [(f"good{k}", case, float(case in easy), 1) for k in range(6) for case in easy + hard]
    assert adjusted_means(cells)["bad"] == 0.0
