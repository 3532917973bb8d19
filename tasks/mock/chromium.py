"""Browsers of the mock: Chromium, wiped after each session and used again."""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from convergence_core.errors import ConfigurationError, ConvergenceError
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_INSTALL: Final = "apt install chromium"
_START_S: Final = 30.0
_ANSWER_S: Final = 10.0
# Chromium ends with the process that started it, also when that one is killed: its input closes then.
_WATCHED: Final = '"$@" <&- & cat >/dev/null; kill -9 0'
_MAX_SHOWN: Final = 300
_IDLE: Final = 4
"""Browsers that wait for a next session; the oldest ends first."""
AD_HOST: Final = "ads.localhost"
"""Host that the mock's ``blockAds`` blocks, as the provider's does those of advertisers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserForm:
    """What a browser is started with."""

    width: int = 1288
    height: int = 711
    blocks_ads: bool = False


class ChromiumError(ConvergenceError):
    """The browser of the mock did not start."""


def chromium_path() -> str | None:
    """Return the path of an installed Chromium; ``None`` if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def check_chromium() -> None:
    """Check that the mock has a browser to open.

    Raises:
        ConfigurationError: none is installed.
    """
    if chromium_path() is None:
        rule = "needs Chromium for browser sessions, which is not installed"
        raise ConfigurationError.of("--offline", rule, f"Run: {_INSTALL}")


@dataclass(slots=True, eq=False)
class Chromium:
    """One running browser."""

    form: BrowserForm
    address: str
    """Of its DevTools protocol."""
    _process: "subprocess.Popen[str]"
    profile: Path
    """Folder of its settings, cookies and cache."""

    @classmethod
    def start(cls, form: BrowserForm) -> "Chromium":
        """Start a browser; blocks until it listens.

        Raises:
            ChromiumError: it is not installed, or ends at once.
        """
        path = chromium_path()
        if path is None:
            raise ChromiumError(f"Chromium is not installed. Run: {_INSTALL}")
        profile = Path(tempfile.mkdtemp(prefix="convergence-chromium-"))
        command = [
            *(path, "--headless", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
            *("--disable-background-networking", "--disable-sync", "--mute-audio"),
            *("--remote-debugging-port=0", f"--user-data-dir={profile}"),
            f"--window-size={form.width},{form.height}",
        ]
        if os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium refuses root with one
        if form.blocks_ads:
            command.append(f"--host-resolver-rules=MAP {AD_HOST} ~NOTFOUND")
        process = subprocess.Popen(  # noqa: S603 - our own command
            ["/bin/sh", "-c", _WATCHED, "sh", *command, "about:blank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for the program, which ends its browsers itself
        )
        assert process.stderr is not None  # noqa: S101 - asked for
        lines = []
        for line in process.stderr:
            lines.append(line.strip())
            _, separator, address = line.partition("DevTools listening on ")
            if separator:
                return cls(form, address.strip(), process, profile)
        process.wait()
        _close_pipes(process)
        _remove(profile)
        last = one_line(" ".join(lines[-3:]), _MAX_SHOWN, redacted_text)
        raise ChromiumError(f"Chromium ended at once: {last}")

    def end(self) -> None:
        """End the browser and forget its profile; safe to call twice."""
        _close_pipes(self._process)
        self._process.wait()
        _remove(self.profile)

    async def wipe(self) -> None:
        """Close all pages, and forget cookies, storage and cache of the last session.

        Raises:
            OSError: it does not answer.
        """
        async with _Control.open(self.address) as control:
            before = await control.ask("Target.getTargets")
            page = (await control.ask("Target.createTarget", url="about:blank"))["targetId"]
            attached = await control.ask("Target.attachToTarget", targetId=page, flatten=True)
            of_page = attached["sessionId"]
            await control.ask(
                "Storage.clearDataForOrigin", of_page, origin="*", storageTypes="all"
            )
            await control.ask("Network.clearBrowserCache", of_page)
            await control.ask("Storage.clearCookies")
            for target in before["targetInfos"]:
                if target["type"] == "page":
                    await control.ask("Target.closeTarget", targetId=target["targetId"])


def _close_pipes(process: "subprocess.Popen[str]") -> None:
    for pipe in (process.stdin, process.stderr):
        if pipe is not None:
            pipe.close()


def _remove(folder: Path) -> None:
    """Remove a profile; the browser's helpers may still write for a moment."""
    for pause_s in (0.0, 0.05, 0.2, 0.5, 1.0):
        time.sleep(pause_s)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


class _Control:
    """A connection of our own to a browser."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._ids = itertools.count(1)

    @classmethod
    def open(cls, address: str) -> "_Opened":
        """Return a context in which a connection is open."""
        return _Opened(address, cls)

    async def ask(self, method: str, session: str | None = None, /, **params: Any) -> Any:
        """Return what a command answers.

        Raises:
            OSError: the browser refuses or does not answer.
        """
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        await self._connection.send(json.dumps(message))
        async with asyncio.timeout(_ANSWER_S):
            while (response := json.loads(await self._connection.recv())).get("id") != number:
                pass
        if "error" in response:
            raise OSError(f"{method}: {response['error'].get('message')}")
        return response["result"]


class _Opened:
    """Context of a ``_Control``."""

    def __init__(self, address: str, make: Callable[[Any], _Control]) -> None:
        self._address = address
        self._make = make
        self._connection: Any = None

    async def __aenter__(self) -> _Control:
        self._connection = await connect(self._address)
        return self._make(self._connection)

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()


async def connect(address: str) -> Any:
    """Return an open WebSocket to a browser on this machine."""
    from websockets.asyncio.client import connect as opened  # noqa: PLC0415 - with its only user

    return await opened(address, max_size=None, compression=None, proxy=None, ping_interval=None)


@dataclass(slots=True, eq=False)
class BrowserPool:
    """Browsers in use and waiting; belongs to one event loop, but for ``close``."""

    _idle: list[Chromium] = field(default_factory=list)
    _busy: set[Chromium] = field(default_factory=set)
    _is_closed: bool = False

    async def take(self, form: BrowserForm) -> Chromium:
        """Return a wiped browser of a form, started if none waits.

        Raises:
            ChromiumError: it does not start.
        """
        browser = next((browser for browser in self._idle if browser.form == form), None)
        if browser is None:
            browser = await asyncio.wait_for(asyncio.to_thread(Chromium.start, form), _START_S)
        else:
            self._idle.remove(browser)
        self._busy.add(browser)
        if self._is_closed:
            browser.end()
        return browser

    async def give_back(self, browser: Chromium) -> None:
        """Wipe a browser and keep it for the next session; one that does not answer ends."""
        from websockets.exceptions import WebSocketException  # noqa: PLC0415 - as ``connect``

        try:
            await browser.wipe()
        except (OSError, WebSocketException):
            self._busy.discard(browser)
            await asyncio.to_thread(browser.end)
            return
        self._busy.discard(browser)
        self._idle.append(browser)
        while len(self._idle) > _IDLE:
            await asyncio.to_thread(self._idle.pop(0).end)

    def close(self) -> None:
        """End all browsers; safe to call twice."""
        self._is_closed = True
        for browser in (*self._idle, *self._busy):
            browser.end()
        self._idle.clear()
        self._busy.clear()
