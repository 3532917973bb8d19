"""Limits over the kinds of targets: none is passed by the service's own count, and each request is told."""

from pathlib import Path

import pytest

from benchmarks.caps import line
from tests.support import paid_kinds
from tests.support.paid_kinds import KINDS, Outcome, run_of


def check(kind: str, folder: Path, seed: int) -> Outcome:
    if kind == "agno":
        pytest.importorskip("agno", reason="needs the extra `agno` (pip install '.[agno]')")
    found = run_of(kind, folder, seed)
    assert found.broken == []
    assert found.n_calls == found.n_rows
    return found


@pytest.mark.parametrize(
    "kind",
    # Chats of other providers take the same way as OpenAI's.
    [
        pytest.param(kind, marks=pytest.mark.slow)
        if kind in ("azure", "groq", "gemini", "agno")
        else kind
        for kind in KINDS
    ],
)
def test_no_limit_of_a_kind_is_passed(kind: str, tmp_path: Path):
    """One number for all, whose limits let each kind make some calls and end it."""
    found = check(kind, tmp_path, 2)
    assert found.budget.keys() == {"max_calls"}
    assert 0 < found.n_calls <= found.budget["max_calls"]
    assert found.result.status == "budget"


def test_a_broken_rule_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A service that bills twice what its price says is found out, and so is a request that no row has."""
    honest = paid_kinds.chat_bill
    monkeypatch.setattr(paid_kinds, "chat_bill", lambda stats: 1.0 + honest(stats))
    found = run_of("openai", tmp_path, 2)
    assert found.broken == ["the ledger holds what the service billed"]
    assert line("openai", [found]).endswith("| no such limit | 1 |")
