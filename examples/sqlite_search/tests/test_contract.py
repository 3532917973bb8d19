"""The target and the metric fulfil the contracts of their groups."""

from pathlib import Path

from convergence.testing import MetricContract, TargetContract

FOLDER = Path(__file__).parents[1]


class TestSearch(TargetContract):
    """`sqlite-search`."""

    plugin = "sqlite-search"
    options = {"documents": str(FOLDER / "documents.json")}
    params = {"title_weight": 1.0, "body_weight": 2.0, "prefixes": True}
    other_params = {"title_weight": 5.0, "body_weight": 2.0, "prefixes": True}
    case_input = {"query": "return a parcel"}


class TestReciprocalRank(MetricContract):
    """`reciprocal-rank`."""

    plugin = "reciprocal-rank"
    result = ["returns", "refunds"]
    worse_result = ["refunds", "returns"]
    expected = "returns"
