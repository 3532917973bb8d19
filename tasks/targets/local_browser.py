"""Browsers of offline runs: a local Chromium instead of sessions."""

import os
import shutil
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Final

from convergence_core.errors import ConfigurationError
from convergence_core.records import Json
from tasks.json_values import mapping
from tasks.targets.browser import RemoteBrowser

AD_HOST: Final = "ads.localhost"
"""Host that ``blockAds`` blocks, as the provider blocks hosts of advertisers."""
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium_path() -> str | None:
    """Return the path of an installed Chromium; ``None`` if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def check_chromium() -> None:
    """Check that an offline run has a browser.

    Raises:
        ConfigurationError: Chromium is not installed.
    """
    if chromium_path() is None:
        rule = "needs Chromium for browser sessions, which is not installed"
        raise ConfigurationError.of("--offline", rule, "Run: apt install chromium")


class LocalSessions:
    """Sessions that ``ScriptRunner`` starts on this machine; see ``SessionClient``.

    ``blockAds`` is the only session setting with an effect.
    """

    def __init__(self) -> None:
        self._id_to_begun_s: dict[str, float] = {}

    async def create(self, body: Mapping[str, Json], run_id: str) -> RemoteBrowser:  # noqa: ARG002 - as the provider's
        """Return a session whose browser the runner starts."""
        session_id = uuid.uuid4().hex
        self._id_to_begun_s[session_id] = time.monotonic()
        blocks_ads = bool(mapping(body.get("browserSettings")).get("blockAds"))
        launch = {
            "executable_path": chromium_path(),
            "args": [f"--host-resolver-rules=MAP {AD_HOST} ~NOTFOUND"] if blocks_ads else [],
            "chromium_sandbox": os.geteuid() != 0,  # Chromium rejects root with a sandbox
        }
        return RemoteBrowser(session_id=session_id, status="RUNNING", launch=launch)

    async def release(self, session_id: str) -> RemoteBrowser:
        """Return the session with its duration; its browser ended with its script."""
        seconds = time.monotonic() - self._id_to_begun_s.pop(session_id)
        return RemoteBrowser(session_id=session_id, status="COMPLETED", seconds=seconds)

    async def sweep(self, run_ids: Collection[str]) -> int:  # noqa: ARG002 - as the provider's
        """Return 0: these browsers end with the process that started them."""
        return 0

    async def aclose(self) -> None:
        """Do nothing: there are no connections to close."""
