"""Budget of one learner within the run's, and calls that it pays for."""

from dataclasses import dataclass

from convergence_core.errors import EvaluationFault, EvaluatorFault
from convergence_core.ports import WorstCase
from tasks.calls.metric_calls import PaidCall
from tasks.calls.session import AskStandalone
from tasks.rlp.model_calls import Answered


@dataclass(slots=True)
class SubBudget:
    """What one learner may still cost."""

    limit_usd: float | None
    """``None``: no limit of its own."""
    spent_usd: float = 0.0
    owner: str = "thoughts"
    key: str = "society.rlp.max_share_usd"
    """Of the configuration, which sets the limit."""

    def reserve(self, worst: WorstCase) -> float:
        """Set aside a call's worst case; return it.

        Raises:
            EvaluatorFault: the limit is spent.
        """
        usd = worst.usd or 0.0
        if self.limit_usd is not None and self.spent_usd + usd > self.limit_usd:
            raise EvaluatorFault(
                f"the share of {self.owner} in `budget.max_usd` is spent ({self.spent_usd:.4f} of "
                f"{self.limit_usd:.4f} USD; `{self.key}`)",
                error_type="budget",
            )
        self.spent_usd += usd
        return usd

    def settle(self, reserved: float, paid: float | None) -> None:
        """Give back what a call did not cost; an unknown price counts as the worst case."""
        if paid is not None:
            self.spent_usd += paid - reserved


class RunAsker:
    """Makes calls within a session, on behalf of one generation."""

    def __init__(
        self, ask: AskStandalone, generation: int, budget: SubBudget, *, scope: str | None = None
    ) -> None:
        self._ask, self._generation, self._budget = ask, generation, budget
        self._scope = f"g{generation}" if scope is None else scope

    async def ask(self, call: PaidCall, label: str) -> Answered:
        """See ``ThoughtAsker``."""
        reserved = self._budget.reserve(call.worst)
        paid: float | None = 0.0
        try:
            reply, ended_us = await self._ask(
                call, label=f"{self._scope}/{label}", generation=self._generation
            )
            paid = reply.cost_usd
        except EvaluationFault as fault:
            paid = 0.0 if fault.billed is None else fault.billed.cost_usd
            raise
        finally:
            self._budget.settle(reserved, paid)
        return Answered(reply=reply, ended_us=ended_us)
