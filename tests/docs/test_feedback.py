"""The page on feedback: its example runs, its scale is the code's."""

import re
from pathlib import Path

import pytest

from convergence.service.server import Service, ServiceOptions
from convergence_core.feedback.records import LABELS, Rating
from tasks.serving.offers import offer_of
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.service.conftest import SECRETS, all_tokens
from tests.support.children import ROOT

PAGE = (ROOT / "docs/feedback.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_scale_is_that_of_the_code():
    for number, label in LABELS.items():
        mark = Rating(interaction_id="i", user_id="u", rating=number)
        assert f"| {number} | {label} | {mark.reward:g} | {mark.arm_reward:g} |" in PAGE


def test_the_example_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (example,) = [block for block in blocks("python") if "/v1/interactions" in block]
    monkeypatch.setenv("APP_TOKEN", SECRETS["admin"])
    with RuntimeStore(tmp_path / "store") as store:
        arms = [offer_of({"m": name}, name) for name in ("small", "large")]
        store.offer("support_bot", "default", arms, trust=0.5)
        with Service(store, all_tokens(), ServiceOptions(port=0)) as service:
            code = example.replace("http://127.0.0.1:8700", service.url)
            exec(compile(code, "feedback.md", "exec"), {})  # noqa: S102 - the page's own example
    assert re.search(f"prints `{re.escape(capsys.readouterr().out.strip())}`", PAGE)
