"""Collectors that report experiences to a policy's service while SIGKILL repeatedly stops it.

Each decides, reports, and occasionally reports twice. If the service dies before it answers, the collector resends the
report to the next one. There it is a duplicate if the first service stored it; otherwise its decision is unknown. In
the end, the store must hold exactly the acknowledged reports.
"""

import os
import re
import secrets
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tasks.store.policy.experience_store import VERSIONS, ExperienceStore

TOKEN = secrets.token_urlsafe(32)
DIMENSION = 32
DUPLICATES = 0.05
"""Share of reports sent twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledService:
    """Acknowledged and stored reports."""

    acknowledged: frozenset[str]
    stored: frozenset[str]


@dataclass(slots=True)
class _Shared:
    """State shared by the threads."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    url: str = ""
    number: int = 0
    """Number of the running service."""
    acknowledged: set[str] = field(default_factory=set)
    failure: BaseException | None = None


class _Service:
    """Process of ``convergence policy serve``."""

    def __init__(self, store: Path) -> None:
        command = [sys.executable, "-m", "convergence", "policy", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--token", "BENCH_TOKEN", "--store", str(store), "--rate", "0",
             "--embedding", "bench", "--embedding-dim", str(DIMENSION), "--set", "hidden_dim=32"],
            env={**os.environ, "BENCH_TOKEN": TOKEN, "COLUMNS": "1000"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=store.parent,
        )  # fmt: skip
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        if found is None:
            raise RuntimeError(self.process.communicate()[1])
        self.url = found[0]

    def kill(self) -> None:
        """Kill it immediately."""
        self.process.kill()
        self.process.communicate()


def _client(url: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60.0)


def _collect(shared: _Shared, n_each: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_done, pending, seen = 0, None, -1
    while n_done < n_each:
        with shared.changed:
            while shared.number == seen and shared.failure is None:
                shared.changed.wait()
            if shared.failure is not None:
                return
            url, number = shared.url, shared.number
        try:
            with _client(url) as client:
                if pending is not None:
                    n_done += _report(shared, client, pending, is_resent=True)
                    pending = None
                while n_done < n_each:
                    state = {"embedding": rng.normal(size=DIMENSION).tolist()}
                    chosen = client.post("/select_action", json=state).raise_for_status().json()
                    pending = {
                        "decision_id": chosen["decision_id"], "episode_id": chosen["episode_id"],
                        "step": 0, "reward": float(rng.normal()), "terminated": True,
                        "truncated": False,
                    }  # fmt: skip
                    for _ in range(1 + int(rng.random() < DUPLICATES)):
                        _report(shared, client, pending)
                    pending = None
                    n_done += 1
        except httpx.TransportError:
            seen = number  # until another service runs


def _report(
    shared: _Shared, client: httpx.Client, body: dict[str, Any], *, is_resent: bool = False
) -> int:
    """Report an outcome; return whether it counts as acknowledged."""
    found = client.post("/store_experience", json=body)
    if is_resent and found.status_code == 404:
        return 0
    found.raise_for_status()
    with shared.changed:
        shared.acknowledged.add(body["decision_id"])
        shared.changed.notify_all()
    return 1


def _guarded(shared: _Shared, n_each: int, seed: int) -> None:
    try:
        _collect(shared, n_each, seed)
    except BaseException as failure:
        with shared.changed:
            shared.failure = failure
            shared.changed.notify_all()
        raise


def kill_while_collecting(
    store: Path, *, n_collectors: int = 8, n_each: int = 2_000, n_kills: int = 30, seed: int = 0
) -> KilledService:
    """Collect experiences over services that are killed at random moments.

    Args:
        store: Folder of a new store.
        n_collectors: Number of threads that decide and report.
        n_each: Acknowledged experiences per collector.
        n_kills: Number of kills, each after the service has answered again.
        seed: Seed of the kill times, embeddings and rewards.
    """
    rng, shared = np.random.default_rng(seed), _Shared()
    moments = np.sort(rng.choice(n_collectors * n_each * 9 // 10, size=n_kills, replace=False)) + 1
    threads = [
        threading.Thread(target=_guarded, args=(shared, n_each, 1_000 * seed + number))
        for number in range(n_collectors)
    ]
    service = _Service(store)
    _announce(shared, service)
    for thread in threads:
        thread.start()
    try:
        for moment in moments:
            with shared.changed:
                before = len(shared.acknowledged)
                while len(shared.acknowledged) < max(moment, before + 1) and not shared.failure:
                    shared.changed.wait()
            service.kill()
            service = _Service(store)
            _announce(shared, service)
        for thread in threads:
            thread.join()
    finally:
        service.kill()
    if shared.failure is not None:
        raise shared.failure
    with ExperienceStore(store) as experiences:
        versions = experiences.find(VERSIONS, "ORDER BY version")
        stored = frozenset(
            one.decision.decision_id
            for version in versions
            for one in experiences.of_version(version.version)
        )
    return KilledService(acknowledged=frozenset(shared.acknowledged), stored=stored)


def _announce(shared: _Shared, service: _Service) -> None:
    with shared.changed:
        shared.url, shared.number = service.url, shared.number + 1
        shared.changed.notify_all()
