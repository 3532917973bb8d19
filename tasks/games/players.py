"""Players of language games that are models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from convergence_core.ports import Ask, Completion
from convergence_core.records import Json
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import GAME, Model

WORDING_VERSION: Final = "games-1"
PERSONA: Final = "You play a game. Reply with what you are asked for, and with nothing else."
"""Who a model is told to be unless the configuration says it."""


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
