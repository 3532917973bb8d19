"""Executed metrics that need no expected answer, as a check of answers to written prompts."""

import json

from convergence_core.errors import CandidateFault
from convergence_core.records import Json
from convergence_core.sao.hard import Check
from tasks.comparisons import comparison, needs_expected
from tasks.loading import Loaded
from tasks.values import MISSING, pick

CHECKS = frozenset({"regex", "json_schema"})
"""Types of metrics that tell right from wrong by the answer alone; functions of the user's may need
the case."""


def check_of(loaded: Loaded) -> Check | None:
    """Return the mean of a configuration's checks; ``None``: it has none."""
    checks = [
        (metric.field, comparison(metric, loaded.schemas.get(name)))
        for name, metric in loaded.configuration.evaluation.metrics.items()
        if metric.type in CHECKS and metric.direction == "higher" and not needs_expected(metric)
    ]
    if not checks:
        return None

    def check(text: str) -> float | None:
        values = []
        for field, compare in checks:
            try:
                values.append(compare(_found(text, field), None))
            except CandidateFault:
                values.append(0.0)
        return sum(values) / len(values)

    return check


def _found(text: str, field: str | None) -> Json:
    """Return the text, or a field of the JSON in it.

    Raises:
        CandidateFault: it holds no such field.
    """
    if field is None:
        return text
    try:
        found = pick(json.loads(text), field)
    except ValueError:
        found = MISSING
    if found is MISSING:
        raise CandidateFault(f"the answer has no field `{field}`", error_type="missing_field")
    return found
