"""Opponents in separate environments: child processes that exchange JSON lines."""

import atexit
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.optimizer.opponents.base import BestSeen, Claim, Setup
from benchmarks.optimizer.spaces import Point

ROOT = Path(__file__).parents[3]
_servers: dict[str, "subprocess.Popen[str]"] = {}


def _python_of(name: str) -> Path:
    python = ROOT / "benchmarks" / ".venv" / name / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(
            f"{python} does not exist; benchmarks/optimizer/README.md makes it"
        )
    return python


def _server(name: str) -> "subprocess.Popen[str]":
    """Return the child process that serves this peer. It serves successive runs."""
    if name not in _servers or _servers[name].poll() is not None:
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        process = subprocess.Popen(
            [str(_python_of(name)), "-u", "-m", "benchmarks.optimizer.opponents.server", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libraries print thousands of warnings; errors arrive as answers
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **dict.fromkeys(threads, "1")},
        )
        atexit.register(process.kill)
        _servers[name] = process
    return _servers[name]


class RemoteOpponent(BestSeen):
    """Client side of a peer in ``peers``."""

    peer: ClassVar[str]

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._process = _server(self.peer)
        self._cpu_s = 0.0
        self._call(
            "start",
            space=setup.space.to_json(),
            seed=setup.seed,
            batch=setup.batch,
            budget=setup.budget,
        )

    def cpu_s(self) -> float:
        """Return the child's CPU seconds within calls, excluding translation."""
        return self._cpu_s

    def ask(self, n: int) -> list[Point]:
        """Ask the child for points."""
        return [self.setup.space.canonical(raw) for raw in self._call("ask", n=n)]

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Report values to the child."""
        self._call("tell", values=list(values))
        self.note(points, values)

    def recommend(self) -> Claim:
        """Return the child's choice, or the highest observation if it has none."""
        raw = self._call("recommend")
        return super().recommend() if raw is None else Claim(point=self.setup.space.canonical(raw))

    def _call(self, operation: str, **arguments: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"operation": operation, "arguments": arguments}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"the process of `{self.peer}` ended during `{operation}`")
        answer = json.loads(line)
        if answer["error"] is not None:
            raise RuntimeError(f"`{self.peer}` failed at `{operation}`:\n{answer['error']}")
        self._cpu_s += answer["cpu_s"]
        return answer["result"]


class Hebo(RemoteOpponent):
    """HEBO (Cowen-Rivers et al. 2022) with its defaults."""

    peer = "hebo"


class Smac(RemoteOpponent):
    """SMAC 2 (Lindauer et al. 2022) with its tuning facade."""

    peer = "smac"
