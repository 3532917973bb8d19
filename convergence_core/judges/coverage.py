"""Coverage of synthetic texts: measures of collapse, alarms, their consequences.

What a system writes and then learns from narrows: words repeat, rare subjects vanish, texts become
copies (arXiv 2411.16905, §2.2 names the risk; thresholds are ours). ``measure`` says how varied a window
of texts is, ``Alarms`` what follows.

A full window alarms when its Vendi score or distinct-2 falls below 70 % of the reference, its held-out
coverage falls by .10, or more than 10 % of its texts are duplicates. The reference is the first full
window: there are seldom 200 real prompts, and they have no answers to compare with.

An alarm ends the rounds of a system until a person releases it (``released``); the next round then asks
other personas. Only texts of rounds without an alarm enter the window.

Four measures of a set of texts, each a number that collapse moves:

* Vendi score (Friedman & Dieng 2023): exp(-sum lambda_i ln lambda_i), lambda the eigenvalues of K/n,
  K the cosine of hashed 1- and 2-gram counts (CRC-32 mod 1,024): how many different texts there are.
* distinct-2: share of distinct bigrams among the last 8,000, or as many as the reference had: more
  bigrams always repeat more.
* Duplicate share: texts that repeat an earlier one, equal up to case and punctuation.
* Held-out coverage: share of real held-out prompts whose nearest synthetic text is as near as the
  nearest real one is to a real one in the median.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from convergence_core.judges.texts import normalized, words_of

N_BUCKETS: Final = 1024
WINDOW: Final = 200
"""Number of the latest texts that are measured."""
MOST_BIGRAMS: Final = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Measures of one window."""

    n_texts: int
    vendi: float
    distinct_2: float
    n_bigrams: int
    """Behind ``distinct_2``."""
    duplicate_share: float
    held_out: float | None
    """``None`` if there are fewer than three held-out prompts."""

    @property
    def is_sufficient(self) -> bool:
        """Whether the window is full."""
        return self.n_texts >= WINDOW


def measure(
    texts: Sequence[str],
    held_out: Sequence[str] = (),
    *,
    most_bigrams: int = MOST_BIGRAMS,
) -> Coverage:
    """Return the measures of the last texts.

    Args:
        texts: in the order in which they were written; bigrams may reach back beyond the window.
        held_out: real prompts that no model here was shown.
        most_bigrams: those of the reference that the measures are compared with.
    """
    last = texts[-WINDOW:]
    grams = last_bigrams(texts, most_bigrams)
    return Coverage(
        n_texts=len(last),
        vendi=vendi(last),
        distinct_2=len(set(grams)) / len(grams) if grams else 1.0,
        n_bigrams=len(grams),
        duplicate_share=duplicate_share(last),
        held_out=held_out_coverage(last, held_out),
    )


def hashed_counts(texts: Sequence[str]) -> np.ndarray:
    """Return counts of hashed 1- and 2-grams, (n, N_BUCKETS)."""
    counts = np.zeros((len(texts), N_BUCKETS))
    places: dict[str, int] = {}
    for row, text in enumerate(texts):
        words = words_of(text)
        for gram in (*words, *_bigrams(words)):
            place = places.get(gram)
            if place is None:
                place = places[gram] = zlib.crc32(gram.encode()) % N_BUCKETS
            counts[row, place] += 1.0
    return counts


def vendi(texts: Sequence[str]) -> float:
    """Return the Vendi score, in [1, n]; 0 for no text."""
    if not texts:
        return 0.0
    unit = _unit(hashed_counts(texts))
    values = np.linalg.eigvalsh(unit @ unit.T / len(texts))
    # An empty text is like none, not even itself; the weights still add up to 1.
    values = values[values > 1e-12]
    if not len(values):
        return 1.0
    shares = values / values.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def last_bigrams(texts: Sequence[str], most: int = MOST_BIGRAMS) -> list[str]:
    """Return the last bigrams, at most so many, whole texts from the last one backwards."""
    grams: list[str] = []
    for text in reversed(texts):
        if len(grams) >= most:
            break
        grams += _bigrams(words_of(text))
    return grams[:most]


def duplicate_share(texts: Sequence[str]) -> float:
    """Return the share of texts that repeat an earlier one, in [0, 1)."""
    return 1.0 - len({normalized(text) for text in texts}) / len(texts) if texts else 0.0


def held_out_coverage(texts: Sequence[str], held_out: Sequence[str]) -> float | None:
    """Return the share of held-out prompts that synthetic texts come near to.

    ``None`` if fewer than three prompts.
    """
    if len(held_out) < 3:
        return None
    real = _unit(hashed_counts(held_out))
    among = real @ real.T
    np.fill_diagonal(among, -math.inf)
    near_enough = float(np.median(among.max(axis=1)))
    if not texts:
        return 0.0
    nearest = (real @ _unit(hashed_counts(texts)).T).max(axis=1)
    return float(np.mean(nearest >= near_enough - 1e-12))


def _unit(counts: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(counts, axis=1, keepdims=True)
    return np.asarray(counts / np.where(norms > 0, norms, 1.0), np.float64)


def _bigrams(words: Sequence[str]) -> list[str]:
    return [f"{a} {b}" for a, b in pairwise(words)]


LEAST_SHARE: Final = 0.7
"""Least share of the reference's Vendi score and distinct-2."""
MOST_LOSS: Final = 0.10
"""Largest loss of held-out coverage."""
MOST_DUPLICATES: Final = 0.10
ELSEWHERE: Final = 0.382
"""Share of all personas by which an alarm moves the walk."""


def why_alarm(window: Coverage, reference: Coverage) -> str | None:
    """Return the reason for an alarm; ``None`` if there is none, or fewer texts than in the reference."""
    if window.n_texts < reference.n_texts:
        return None
    for name, now, first, form in (
        ("Vendi score", window.vendi, reference.vendi, ".1f"),
        ("distinct-2", window.distinct_2, reference.distinct_2, ".2f"),
    ):
        if now < LEAST_SHARE * first:
            return f"{name} {now:{form}}, of {first:{form}} at first"
    if (
        window.held_out is not None
        and reference.held_out is not None
        # Shares of whole counts: a loss of exactly .10 alarms whatever its floats say.
        and window.held_out <= reference.held_out - MOST_LOSS + 1e-9
    ):
        return f"held-out coverage {window.held_out:.2f}, of {reference.held_out:.2f} at first"
    if window.duplicate_share > MOST_DUPLICATES:
        return f"{window.duplicate_share:.0%} of the texts are duplicates"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """Alarms so far, and how many of them a person has looked into."""

    reference: Coverage | None = None
    """``None`` if no window was full yet."""
    n_alarms: int = 0
    n_released: int = 0
    """Alarms that a person has looked into."""
    why: str | None = None
    """The last alarm."""

    @property
    def is_stopped(self) -> bool:
        """Whether an alarm waits for a person, so that no further round is run."""
        return self.n_alarms > self.n_released

    @property
    def moved(self) -> float:
        """How far alarms have moved the walk of personas, as a share of all personas, in [0, 1)."""
        return self.n_alarms * ELSEWHERE % 1.0

    def window(self, texts: Sequence[str], held_out: Sequence[str] = ()) -> Coverage:
        """Return the measures of the last texts, comparable with the reference.

        Args:
            texts: prompts and answers, in the order in which they were written.
            held_out: real prompts that no model here was shown.
        """
        reference = self.reference
        most = MOST_BIGRAMS if reference is None else max(1, reference.n_bigrams)
        return measure(texts, held_out, most_bigrams=most)

    def after(self, window: Coverage) -> "Alarms":
        """Return the state after a round."""
        reference = self.reference or window
        if not reference.is_sufficient:
            return self
        why = why_alarm(window, reference)
        return replace(
            self,
            reference=reference,
            n_alarms=self.n_alarms + (why is not None),
            why=why or self.why,
        )

    def released(self, n: int) -> "Alarms":
        """Return the state once a person has looked into ``n`` alarms."""
        return replace(self, n_released=max(self.n_released, min(n, self.n_alarms)))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Alarms":
        """Rebuild a state from ``asdict``; in earlier versions an alarm could pass without a person."""
        n_alarms, reference = value["n_alarms"], value["reference"]
        has_passed = not value.get("is_stopped", True) and n_alarms - value["n_released"] < 3
        return cls(
            reference=None
            if reference is None
            else Coverage(**{name: reference[name] for name in Coverage.__dataclass_fields__}),
            n_alarms=n_alarms,
            n_released=n_alarms if has_passed else value["n_released"],
            why=value["why"],
        )
