"""Texts and judgements of the rounds before one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convergence_core.sao.preferences import JudgedPair


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundHistory:
    """What was written and judged before a round."""

    pairs: tuple[JudgedPair, ...] = ()
    """Judged by the judge of today, oldest first."""
    prompts: tuple[str, ...] = ()
    """All answered prompts. No prompt is used twice."""
    audited: tuple[str, ...] = ()
    """Ids of the items that this judge was tried on."""

    def after(self, pairs: Sequence[JudgedPair], audited: Sequence[str]) -> "RoundHistory":
        """Return the history after a round.

        Args:
            pairs: judged in it.
            audited: items that the judge was tried on.
        """
        return replace(
            self,
            pairs=(*self.pairs, *pairs),
            prompts=(*self.prompts, *(pair.comparison.prompt for pair in pairs)),
            audited=(*self.audited, *audited),
        )
