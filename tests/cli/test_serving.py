"""``serve``: what it refuses before it listens."""

from pathlib import Path

import pytest

from tests.support.commands import Runner


def test_it_starts_with_strong_tokens_only(
    tmp_path: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BOT_TOKEN", "weak")
    for options, words in (
        ((), "must name an environment variable"),
        (("--token", "BOT_TOKEN"), "fewer than 32 characters"),
        (("--token", "NOT_SET"), "variable that is set"),
    ):
        done = cli("serve", "--store", tmp_path / "s", *options)
        assert done.code == 2
        assert words in done.err
        assert "weak" not in done.err.replace("not weak", "")
