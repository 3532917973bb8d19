"""Alarms of coverage, and what they do.

A full window alarms when its Vendi score or distinct-2 falls below 70 % of the reference, its held-out
coverage falls by .10, or more than 10 % of its texts are duplicates. The reference is the first full
window: there are seldom 200 real prompts, and they have no answers to be compared with.

An alarm stops all rows. Rounds of prompts alone go on, with 30 % real anchors, a temperature higher by .2
(at most 1.2) and personas from elsewhere; after two clean ones rows come again. After the third alarm
nothing goes on until a person says so (``released``).

Prompts alone are compared with prompts alone: those that had been written when the first window was full,
at most 200. A window of prompts holds as many as that reference, since a Vendi score and a share of
distinct bigrams grow and fall with the number of texts. With two answers each it is some 70 prompts, with
eight 20 to 40. The prompts of the round that alarmed are in it until newer ones have replaced them. The
window of prompts and answers holds texts of rounds without an alarm alone: it goes on where it was clean.
Filters see no prompt that nobody answers, so copies among these count, while those among others are dropped
before they are pairs.

Anchors only slow a collapse (in the trigram fixture: Vendi 16 instead of 6 after eight rounds), which is
why an alarm stops the rows rather than mending them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from convergence_core.judges.coverage.measures import MOST_BIGRAMS, WINDOW, Coverage, measure

LEAST_SHARE: Final = 0.7
"""Of the reference's Vendi score and distinct-2."""
MOST_LOSS: Final = 0.10
"""Of held-out coverage."""
MOST_DUPLICATES: Final = 0.10
ANCHORS: Final = 0.3
"""Share of real texts shown while an alarm lasts."""
WARMER: Final = 0.2
"""What an alarm adds to the temperature."""
MOST_TEMPERATURE: Final = 1.2
CLEAN_ROUNDS: Final = 2
"""Rounds without an alarm after which rows come again."""
MOST_ALARMS: Final = 3
"""Alarms after which a person must act."""
ELSEWHERE: Final = 0.382
"""Share of all personas by which an alarm moves the walk."""


def why_alarm(found: Coverage, reference: Coverage) -> str | None:
    """Return what a window alarms about; ``None``: nothing, or it holds fewer texts than the reference."""
    if found.n_texts < reference.n_texts:
        return None
    for name, now, first, form in (
        ("Vendi score", found.vendi, reference.vendi, ".1f"),
        ("distinct-2", found.distinct_2, reference.distinct_2, ".2f"),
    ):
        if now < LEAST_SHARE * first:
            return f"{name} {now:{form}}, of {first:{form}} at first"
    if (
        found.held_out is not None
        and reference.held_out is not None
        # Shares of whole counts: a loss of exactly .10 alarms whatever its floats say.
        and found.held_out <= reference.held_out - MOST_LOSS + 1e-9
    ):
        return f"held-out coverage {found.held_out:.2f}, of {reference.held_out:.2f} at first"
    if found.duplicate_share > MOST_DUPLICATES:
        return f"{found.duplicate_share:.0%} of the texts are duplicates"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Measures of what was written last."""

    texts: Coverage
    """Of prompts and answers."""
    prompts: Coverage
    """Of prompts alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """What alarms have done so far."""

    reference: Coverage | None = None
    """``None``: no window was full yet."""
    prompts: Coverage | None = None
    """The reference of prompts alone; ``None``: there is none yet, nor in states of earlier versions."""
    n_alarms: int = 0
    n_released: int = 0
    """Alarms that a person has looked into."""
    is_stopped: bool = False
    n_clean: int = 0
    """Rounds without an alarm since rows stopped."""
    why: str | None = None
    """The last alarm."""

    @property
    def is_off(self) -> bool:
        """Whether nothing goes on until a person acts."""
        return self.n_alarms - self.n_released >= MOST_ALARMS

    @property
    def gives_rows(self) -> bool:
        """Whether pairs are made and kept."""
        return not self.is_stopped and not self.is_off

    @property
    def anchor_share(self) -> float:
        """Share of real texts to be shown."""
        return ANCHORS if self.is_stopped else 0.0

    @property
    def moved(self) -> float:
        """How far the walk of personas was moved, as a share of all personas, in [0, 1)."""
        return self.n_alarms * ELSEWHERE % 1.0

    def temperature(self, usual: float) -> float:
        """Return the temperature to write with."""
        return max(usual, min(MOST_TEMPERATURE, usual + WARMER)) if self.is_stopped else usual

    def windows(
        self, texts: Sequence[str], prompts: Sequence[str], held_out: Sequence[str] = ()
    ) -> Windows:
        """Return the measures of what was written last, as they are to be compared.

        Args:
            texts: prompts and answers, in the order in which they were written.
            prompts: prompts alone, those of rounds of prompts alone too.
            held_out: real prompts that nobody has shown to a model here.
        """
        reference = self.prompts
        return Windows(
            texts=measure(texts, held_out, most_bigrams=_bigrams_for(self.reference)),
            prompts=measure(
                prompts,
                held_out,
                most_bigrams=_bigrams_for(reference),
                window=WINDOW if reference is None else max(1, reference.n_texts),
            ),
        )

    def after(self, seen: Windows) -> "Alarms":
        """Return the state after a round.

        A round with rows is told by its window of prompts and answers, one without by that of prompts.
        """
        if self.is_off:
            return self
        return self._after_prompts(seen) if self.is_stopped else self._after_rows(seen)

    def _after_rows(self, seen: Windows) -> "Alarms":
        reference = self.reference or seen.texts
        if not reference.is_sufficient:
            return self
        why = why_alarm(seen.texts, reference)
        known = replace(self, reference=reference)
        if why is None or self.reference is None:
            # A collapse in the first window is one already, but what else should be the reference?
            known = replace(known, prompts=self.prompts or seen.prompts)
        if why is None:
            return known
        return replace(known, n_alarms=self.n_alarms + 1, is_stopped=True, n_clean=0, why=why)

    def _after_prompts(self, seen: Windows) -> "Alarms":
        # States of earlier versions have nothing but the window of prompts and answers.
        reference = self.prompts or self.reference
        why = None if reference is None else why_alarm(seen.prompts, reference)
        if why is not None:
            # One lasting collapse is one alarm: a round that is not clean begins anew.
            return replace(self, n_clean=0, why=f"{why} (prompts alone)")
        n_clean = self.n_clean + 1
        return replace(
            self,
            n_clean=0 if n_clean >= CLEAN_ROUNDS else n_clean,
            is_stopped=n_clean < CLEAN_ROUNDS,
        )

    def released(self, n: int) -> "Alarms":
        """Return the state once a person has looked into ``n`` alarms."""
        return replace(self, n_released=max(self.n_released, min(n, self.n_alarms)))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Alarms":
        """Rebuild a state from ``asdict``; those of earlier versions have no ``prompts``."""
        windows = {
            name: None if value.get(name) is None else Coverage(**value[name])
            for name in ("reference", "prompts")
        }
        return cls(**{**value, **windows})


def _bigrams_for(reference: Coverage | None) -> int:
    return MOST_BIGRAMS if reference is None else max(1, reference.n_bigrams)
