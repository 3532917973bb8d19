"""Player that executes: the role ``sandbox`` of language games."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from convergence_core.games.critic_game import CriticTask
from convergence_core.ports import Ask
from convergence_core.records import canonical_json
from tasks.games.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class SandboxPlayer:
    """Runs what a game asks to be executed, and reports how it ended."""

    sandbox: Sandbox = field(default_factory=Sandbox)

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:  # noqa: ARG002 - the port's signature
        """Run a program and return its report as JSON.

        Raises:
            SandboxUnavailableError: no program can be run on this machine.
        """
        asked = json.loads(ask.text)
        found = self.sandbox.run(
            asked["program"], function=asked["function"], arguments=asked["arguments"]
        )
        return canonical_json(found.to_json())


def why_unsound(task: CriticTask, inputs: Sequence[str], sandbox: Sandbox) -> str:
    """Return why a task cannot be played: its check refuses its reference; empty: it is sound.

    Args:
        task: the owner's.
        inputs: legal ones.
        sandbox: where its programs run.
    """
    for written in inputs:
        solved = sandbox.run(task.reference, function="solve", arguments=[written])
        if solved.ending != "ok":
            return f"the reference of {task.task_id!r} fails for {written!r}: {solved.reason}"
        if task.check is None:
            continue
        right = solved.value if isinstance(solved.value, str) else canonical_json(solved.value)
        checked = sandbox.run(task.check, function="check", arguments=[written, right])
        if checked.value is not True:
            why = checked.reason or "it returns no true value"
            return f"the check of {task.task_id!r} refuses the reference's answer: {why}"
    return ""
