"""Prompts and judgements of earlier rounds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convergence_core.sao.preferences import JudgedPair


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundHistory:
    """Prompts and judgements from before a round."""

    pairs: tuple[JudgedPair, ...] = ()
    """Pairs of the current judge, oldest first."""
    prompts: tuple[str, ...] = ()
    """All answered prompts; each is used only once."""
    audited: tuple[str, ...] = ()
    """Ids of the audit items of this judge."""

    def after(self, pairs: Sequence[JudgedPair], audited: Sequence[str]) -> "RoundHistory":
        """Return the history after a round.

        Args:
            pairs: Pairs judged in it.
            audited: Ids of its audit items.
        """
        return replace(
            self,
            pairs=(*self.pairs, *pairs),
            prompts=(*self.prompts, *(pair.comparison.prompt for pair in pairs)),
            audited=(*self.audited, *audited),
        )
