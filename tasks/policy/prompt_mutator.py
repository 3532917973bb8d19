"""Embeddings of prompts, and the changes that a policy's actions name."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final, cast

import numpy as np

from convergence_core.config import Configuration
from convergence_core.config.prompts import OperatorName, PromptsConfig
from convergence_core.errors import PolicyRequestError
from convergence_core.judges.text_features import HASHED_NGRAMS, hashed_ngrams
from convergence_core.policy.network import Floats
from convergence_core.policy.prompt_state import REFLECT, STOP
from convergence_core.prompts.editor import LEAST_WORDS, Editor
from convergence_core.prompts.failures import Observed
from convergence_core.prompts.invariants import Invariants, held_out_texts
from convergence_core.prompts.operators import Shown
from convergence_core.prompts.state import KEPT
from convergence_core.records import Category, fields_of
from tasks.calls.model_calls import ask_directly
from tasks.inputs.environment import Environment
from tasks.policy.records import Action, MutatedPrompt, PromptFailure
from tasks.prompts.factory import LONGEST_SHOWN, configured_writer
from tasks.prompts.writer import ModelWriter, RulesWriter, TextWriter
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened

_PARAMETER: Final = "prompt"


class PromptMutator:
    """Embeds prompts by hashed n-grams and applies actions to them."""

    def __init__(
        self,
        *,
        writer: TextWriter | None = None,
        settings: PromptsConfig | None = None,
        task: str = "",
        redact: Callable[[str], str] = redacted_text,
    ) -> None:
        """Set the writer and its limits.

        Args:
            writer: Writer of prompts; by default rules, which make no call.
            settings: Limits of prompts.
            task: Purpose of the prompts.
            redact: Removes secrets from requests.
        """
        self._writer: TextWriter = writer or RulesWriter()
        self._settings = settings or PromptsConfig()
        self._task, self._redact = task, redact

    @classmethod
    def of(cls, configuration: Configuration, world: Environment) -> "PromptMutator":
        """Return a configuration's mutator: its ``llm`` writes, or rules without one.

        Raises:
            ConfigurationError: no endpoint is known.
        """
        return cls(
            writer=configured_writer(configuration, world),
            settings=configuration.prompts,
            task=configuration.api.description or configuration.api.name,
            redact=world.redactor(configuration),
        )

    @property
    def writer(self) -> str:
        """Name of the writer."""
        return self._writer.name

    @staticmethod
    def embedding(prompt: str, name: str, dim: int) -> Floats:
        """Return the embedding of a prompt, (dim,).

        Raises:
            PolicyRequestError: the policy uses a model's embeddings, which callers must send.
        """
        if name != HASHED_NGRAMS:
            raise PolicyRequestError(
                f"`embedding` must be given, by the model {name} that this policy started with. Send "
                f"`embedding`, or serve with `--embedding {HASHED_NGRAMS}`"
            )
        return hashed_ngrams(prompt, dim)

    @staticmethod
    def inapplicable(prompt: str, *, has_failures: bool) -> list[Action]:
        """Return the actions that cannot be applied to a prompt."""
        actions: list[Action] = [] if has_failures else [REFLECT]
        if len(prompt.split()) < LEAST_WORDS:
            actions.append("context-reduction")
        return actions

    async def mutate(
        self,
        prompt: str,
        action: str,
        *,
        failures: Sequence[PromptFailure] = (),
        category: Category = "none",
    ) -> MutatedPrompt:
        """Apply an action; ``stop`` leaves the prompt unchanged.

        Args:
            prompt: Prompt to change.
            action: One of ``PROMPT_ACTIONS``.
            failures: Cases that the prompt got wrong; the writer sees them.
            category: Main category of the failures.
        """
        if action == STOP:
            return MutatedPrompt(
                prompt=prompt, verdict=KEPT, reason="", diagnosis="", writer="", cost_usd=0.0
            )
        failures = [self._shown(failure) for failure in failures]
        editor = self._editor(failures)
        rng = np.random.default_rng(secrets.randbits(64))
        edit = editor.edit(
            _PARAMETER,
            cast("OperatorName", action),
            parents=(prompt,),
            observed=_observed(failures, category),
            generation=0,
            index=0,
            propensity=1.0,
            known=(prompt,),
            offered=(),
            rng=rng,
        )
        assert edit is not None  # noqa: S101 - only an edit of demonstrations can be missing
        (writing,) = await self._writer.write([edit], ask_directly, rng)
        mutation = editor.received(
            edit, writing.answer, known=(prompt,), writer=self.writer, cost_usd=writing.cost_usd,
            reason=shortened(writing.reason, 500, self._redact),
        )  # fmt: skip
        return MutatedPrompt(
            prompt=mutation.text if mutation.is_kept else None,
            **fields_of(mutation, "verdict", "reason", "diagnosis", "writer", "cost_usd"),
        )

    async def aclose(self) -> None:
        """Close the connections of models."""
        if isinstance(self._writer, ModelWriter):
            await self._writer.model.llm.aclose()

    def _shown(self, failure: PromptFailure) -> PromptFailure:
        """Return a failure as it appears in a request: without secrets, then shortened."""

        def shown(text: str) -> str:
            return shortened(text, LONGEST_SHOWN, self._redact)

        texts = {name: shown(text) for name, text in asdict(failure).items() if text is not None}
        return PromptFailure(**texts)

    def _editor(self, failures: Sequence[PromptFailure]) -> Editor:
        return Editor(
            settings=self._settings,
            task=self._task,
            parameters=(_PARAMETER,),
            cases={
                str(number): Shown(
                    input=failure.input, answer=None, expected=failure.expected, reason=""
                )
                for number, failure in enumerate(failures)
            },
            invariants=Invariants(
                held_out=held_out_texts([], []),
                max_length=self._settings.max_length,
                max_shots=self._settings.max_shots,
            ),
        )


def _observed(failures: Sequence[PromptFailure], category: Category) -> tuple[Observed, ...]:
    kind: Category = "wrong" if category == "none" else category
    return tuple(
        Observed(
            case_id=str(number),
            reward=0.0,
            answer=failure.answer,
            reason=failure.reason,
            category=kind,
        )
        for number, failure in enumerate(failures)
    )
