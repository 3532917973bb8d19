"""Texts and judgements of the rounds before one."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from convergence_core.judges.coverage import WINDOW
from convergence_core.sao.preferences import JudgedPair


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundHistory:
    """What was written and judged before a round."""

    pairs: tuple[JudgedPair, ...] = ()
    """Judged by the judge of today, oldest first."""
    prompts: tuple[str, ...] = ()
    """All answered prompts, imported ones too. No prompt is used twice."""
    texts: tuple[str, ...] = ()
    """Prompts and answers that were written last, at most a window of coverage, oldest first: those of
    rounds that raised no alarm of it."""
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
            texts=(*self.texts, *texts_of(wide(pairs)))[-WINDOW:],
            audited=(*self.audited, *audited),
        )


def wide(pairs: Iterable[JudgedPair]) -> list[JudgedPair]:
    """Return pairs of rounds that raised no alarm of coverage."""
    return [pair for pair in pairs if not pair.is_collapsed]


def texts_of(pairs: Iterable[JudgedPair]) -> list[str]:
    """Return prompts and answers in the order in which they were written, each as often as it was.

    Where a prompt was answered more than twice, it and its answers stand in several pairs, one after
    another.

    Args:
        pairs: judged.
    """
    texts: list[str] = []
    for _, group in groupby(pairs, key=_prompt_of):
        met: Counter[str] = Counter()
        for pair in group:
            if not met:
                texts.append(pair.comparison.prompt)
            answers = Counter((pair.comparison.first.text, pair.comparison.second.text))
            # Two answers of one pair may be equal; an answer that was met in another pair is the same.
            texts += (answers - met).elements()
            met |= answers
    return texts


def _prompt_of(pair: JudgedPair) -> tuple[int, int | None, str]:
    return pair.round_number, pair.comparison.persona, pair.comparison.prompt
