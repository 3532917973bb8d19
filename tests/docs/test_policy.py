"""The page on the policy: its example runs, its tables are the code's."""

import re
from pathlib import Path

import pytest

from convergence_core.policy.prompt_state import PROMPT_ACTIONS
from tasks.policy.records import PolicySettings
from tasks.policy.served_policy import MOST_PENDING
from tests.support.children import ROOT

PAGE = (ROOT / "docs/policy.md").read_text(encoding="utf-8")


def blocks() -> list[tuple[str, str]]:
    """Return each example with what it prints."""
    return re.findall(
        r"^```python\n(.*?)^```\n\nprints\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )


@pytest.mark.slow
def test_the_example_runs_as_printed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    ((example, printed),) = blocks()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    exec(compile(example, "policy.md", "exec"), {})  # noqa: S102 - the page's own example
    assert capsys.readouterr().out == printed


def test_the_numbers_are_those_of_the_code():
    settings = PolicySettings()
    for action in PROMPT_ACTIONS:
        assert f"`{action}`" in PAGE
    assert f"the latest {MOST_PENDING:,}" in PAGE
    assert f"Once {settings.ppo.buffer_size:,} steps" in PAGE


def test_every_path_of_the_policy_is_on_the_page():
    from convergence.service.metrics import Metrics
    from convergence.service.policy import PolicyMount, PolicyRoutes

    routes = PolicyRoutes(
        PolicyMount(policy=None, mutator=None),  # type: ignore[arg-type]  # asked for its paths alone
        Metrics(lambda: 0, lambda: 0),
    )
    paths = {route.path for route in routes.router.routes}  # type: ignore[attr-defined]
    assert {path for path in paths if f" {path}`" not in PAGE} == set()
    assert len(paths) == 8
