"""Every key that is not available is refused with a reason, and never ignored."""

from typing import Any

import pytest

from convergence_core.config.not_available import REFUSALS, Refusal
from tests.support.config_examples import MINIMAL, problems_of

VALUES: dict[str, list[Any]] = {
    "api.auth.type": ["oauth", "oauth2"],
    "evaluation.metrics.*.type": ["rouge"],
    "evaluation.test_cases.augmentation": [{"enabled": True}],
    "optimization.execution.runner": ["kubernetes", "Docker"],
    "storage.path": ["ftp://host/x", "file:///data", "postgresql://host/db"],
    "storage": ["convex", "Convex"],
    "storage.backend": [True, 3, "x", "convex"],
    "storage.provider": [True, 3, "x", "convex"],
    "legacy": [{}, {"enabled": True}, {"enabled": False, "session_id": "x"}],
    "society.rlp.use_gpu": [True],
}
NAMES = {
    "evaluation.metrics.*.type": "evaluation.metrics.exact_match.type",
}


def values_of(refusal: Refusal) -> list[Any]:
    values = VALUES.get(refusal.pattern, [True, 3, "x", {"a": 1}])
    return [value for value in values if not refusal.unless(value)]


CASES = [
    pytest.param(refusal, value, id=f"{refusal.pattern}={value}")
    for refusal in REFUSALS
    for value in values_of(refusal)
]


@pytest.mark.parametrize(("refusal", "value"), CASES)
def test_key_is_refused_once_with_a_reason_and_a_fix(refusal, value):
    key = NAMES.get(refusal.pattern, refusal.pattern)
    found = problems_of({key.replace(".", "/"): value}, MINIMAL)
    assert [problem.key for problem in found] == [key]
    assert found[0].rule == refusal.rule
    assert found[0].fix == refusal.fix


def test_every_refusal_is_tried():
    assert all(values_of(refusal) for refusal in REFUSALS)


def test_convex_as_storage_is_refused_with_postgresql_named():
    (found,) = problems_of({"storage": "convex"}, MINIMAL)
    assert str(found) == (
        '`storage` is not supported: Convex is not written to, but got "convex". Keep the tables in '
        "`storage.path`, a folder or object storage, and share the journal between machines by "
        "PostgreSQL: `storage: {journal: ${JOURNAL_URL}}`."
    )


def test_an_empty_key_is_refused_unless_it_can_be_switched_off():
    assert [p.key for p in problems_of({"agent": None}, MINIMAL)] == ["agent"]
    assert (
        problems_of({"api/mock_mode": None, "legacy": None, "storage/path": None}, MINIMAL) == []
    )


def test_what_earlier_versions_wrote_of_a_key_that_nobody_set_is_read_again():
    """A stored run's configuration names every default; resuming and adopting read it."""
    assert (
        problems_of({"society": {"enabled": False, "rlp": {"both_orders": False}}}, MINIMAL) == []
    )


def test_society_that_is_switched_off_may_not_keep_its_keys():
    found = problems_of({"society": {"enabled": False, "agents": {}, "weave": {}}}, MINIMAL)
    assert [problem.key for problem in found] == ["society.agents", "society.weave"]


@pytest.mark.parametrize(
    ("path", "value", "fix"),
    [
        ("api/mock_mode", True, "Run `convergence optimize --offline`"),
        ("budget/cache", {"epoch": "7d"}, "Write `cache:` at top level"),
    ],
)
def test_the_fix_names_what_to_write_instead(path, value, fix):
    (problem,) = problems_of({path: value})
    assert fix in problem.fix


def test_an_unknown_key_in_society_is_an_unknown_key():
    found = problems_of({"society": {"enabled": False, "lerning": {}}}, MINIMAL)
    assert [problem.rule for problem in found] == ["is not a known key"]
