"""Judge that rewards the arms of a share of the answers.

Whether an answer is judged depends only on its id. If a judgement fails or the service ends first,
the decision gets no reward.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Self

from convergence_core.errors import ConfigurationError, EvaluationFault, EvaluatorFault, StoreError
from convergence_core.records import Case, Params, Reply, sha256_hex
from tasks.calls.metric_calls import PaidCall, PaidMetric
from tasks.chat.paid_answers import PaidAnswers
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_configured_judges
from tasks.inputs.loader import Loaded
from tasks.secrets.process_redaction import redacted_text
from tasks.serving.operations import performed
from tasks.serving.systems import Systems
from tasks.store.runtime.rows import Reward

MOST_WAITING: Final = 256
"""Maximum answers that wait for a judgement; further ones are not judged."""
_GRACE_S: Final = 10.0
"""Maximum seconds that judgements may take when the service ends."""
_LOGGER: Final = logging.getLogger(__name__)


class JudgedAnswers:
    """Judge of answers in the background, for one event loop.

    Args:
        judge: Judge with values in [0, 1], closed with this object.
        share: Share of the answers to judge, in (0, 1].
        paid: Caller of the judge, with the answers' ledger and limit.
        systems: Systems with the decisions.
        system: Name of the system whose arms answer.
    """

    def __init__(
        self, judge: PaidMetric, *, share: float, paid: PaidAnswers, systems: Systems, system: str
    ) -> None:
        self._judge, self._share, self._paid = judge, share, paid
        self._systems, self._system = systems, system
        self._judgements: set[asyncio.Task[None]] = set()

    @classmethod
    def of(
        cls,
        loaded: Loaded,
        environment: Environment,
        *,
        share: float,
        paid: PaidAnswers,
        systems: Systems,
    ) -> Self:
        """Return the judged answers of a configuration.

        Raises:
            ConfigurationError: the configuration does not have exactly one judge without a
                reference.
        """
        configured = loaded.configuration.evaluation.judges
        if len(configured) != 1 or any(
            judge.mode == "pairwise" or judge.expected_field for judge in configured.values()
        ):
            raise ConfigurationError.of(
                "--judge-share",
                "needs one metric of type `llm_judge`, of mode `rating` or `pass_fail` and without "
                "`expected_field`",
                "Keep one such metric under `evaluation.metrics`, or leave the option out.",
                value=", ".join(configured) or "no judge",
            )
        (judge,) = make_configured_judges(loaded, environment).values()
        system = loaded.configuration.api.name
        return cls(judge, share=share, paid=paid, systems=systems, system=system)

    def consider(
        self, interaction_id: str, decision_id: str, reply: Reply, case: Case, params: Params
    ) -> None:
        """Start judging an answer if it belongs to the share, and return immediately."""
        drawn = int(sha256_hex(interaction_id)[:13], 16) / 16**13 < self._share
        if not drawn or len(self._judgements) >= MOST_WAITING:
            return
        asker = _AnswerAsker(self._paid, interaction_id)
        judgement = asyncio.create_task(self._judged(decision_id, reply, case, params, asker))
        self._judgements.add(judgement)
        judgement.add_done_callback(self._judgements.discard)

    async def aclose(self) -> None:
        """Wait a while for judgements, then close the judge's connections; safe to call twice."""
        if self._judgements:
            await asyncio.wait(self._judgements, timeout=_GRACE_S)
        for judgement in (left := [*self._judgements]):
            judgement.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._judge.aclose()

    async def _judged(
        self, decision_id: str, reply: Reply, case: Case, params: Params, asker: "_AnswerAsker"
    ) -> None:
        try:
            numbers = await self._judge.judge(reply, case, params, asker)
            reward = Reward(
                decision_id=decision_id,
                reward=numbers[self._judge.name],
                metadata={"interaction_id": asker.interaction_id, "judge": self._judge.name},
            )
            operation = self._systems.update(self._system, reward)
            await asyncio.to_thread(performed, self._systems.store, operation)
        except (EvaluationFault, StoreError) as error:
            _LOGGER.warning(
                "the answer %s is not judged: %s", asker.interaction_id, redacted_text(str(error))
            )


@dataclass(frozen=True, slots=True)
class _AnswerAsker:
    """``Asker`` for the judge's calls about one answer."""

    paid: PaidAnswers
    interaction_id: str

    async def ask(self, call: PaidCall) -> Reply:
        """See ``Asker.ask``; each call is new."""
        return await self.paid.make(call, self.interaction_id)

    async def answer_of(self, params: Params, case: Case) -> Reply:  # noqa: ARG002 - protocol
        """Raise: only pairwise judges need another candidate's answer."""
        raise EvaluatorFault(
            "a served answer has none of the champion beside it", error_type="pairwise"
        )
