"""Players of language games: models, and the role ``sandbox`` that executes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from convergence_core.ports import Ask, Completion, Target
from convergence_core.records import Case, Json, canonical_json
from convergence_core.sao.prompt_shape import PromptShape
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import GAME, Model
from tasks.games.sandbox import Sandbox

WORDING_VERSION: Final = "games-1"
PERSONA: Final = "You play a game. Reply with what you are asked for, and with nothing else."
"""Who a model is told to be unless the configuration says it."""


@dataclass(frozen=True, slots=True)
class SandboxPlayer:
    """Runs what a game asks to be executed, and reports how it ended."""

    sandbox: Sandbox = field(default_factory=Sandbox)

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:  # noqa: ARG002 - the port's signature
        """Run a program and return its report as JSON.

        Raises:
            SandboxUnavailableError: no program can be run on this machine.
        """
        task = json.loads(ask.text)
        outcome = self.sandbox.run(
            task["program"], function=task["function"], arguments=task["arguments"]
        )
        return canonical_json(outcome.to_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSeat:
    """A model that plays a role."""

    model: Model
    persona: str
    temperature: float | None
    limit: int
    """Longest reply, in tokens."""
    redact: Callable[[str], str]

    @property
    def name(self) -> str:
        """Of the model."""
        return self.model.name

    def call(self, ask: Ask) -> PaidCall:
        """Return the call that asks the model once."""
        options: dict[str, Any] = {}
        if self.temperature is not None:
            options["temperature"] = self.temperature
        return self.model.chat(
            GAME,
            [
                {"role": "system", "content": self.persona},
                {"role": "user", "content": ask.text},
            ],
            limit=self.limit,
            read=self._kept,
            **options,
        )

    def _kept(self, done: Completion) -> Json:
        """Return a reply as it is played, scored and stored: without secrets, and writable.

        Without secrets from the beginning, so that a play is the same when it is read from the journal.
        """
        return self.redact(done.text.encode("utf-8", "replace").decode("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSeat:
    """The optimized system itself, asked as one of its test cases asks it."""

    target: Target
    shape: PromptShape
    params: Mapping[str, Any]
    """Of the incumbent."""
    credential: str | None
    timeout_s: float

    def call(self, ask: Ask) -> PaidCall:
        """Return the call that asks the system once.

        Raises:
            CandidateFault: the incumbent's parameters make no request.
        """
        case = Case(case_id="game", input=self.shape.input(ask.text))
        return PaidCall.of_target(
            self.target,
            self.params,
            case,
            purpose=GAME,
            credential=self.credential,
            timeout_s=self.timeout_s,
        )
