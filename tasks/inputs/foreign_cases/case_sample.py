"""Stratified sample of distinct test cases, in one pass and bounded memory."""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

import orjson

from tasks.inputs.foreign_cases.case_forms import ForeignCase
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

MAX_STRATA = 1_000
"""Values beyond these share one stratum."""
OTHER = "(others)"


def allocate(counts: Mapping[str, int], size: int) -> dict[str, int]:
    """Return how many of each stratum to take: alike of all, and all of those that have fewer.

    The level L with sum of min(count, L) = size; what no whole L gives goes to the first by name.

    Args:
        counts: stratum → distinct cases.
        size: how many in all.
    """
    left, taken = size, dict.fromkeys(counts, 0)
    open_strata = sorted(counts, key=lambda name: (counts[name], name))
    while open_strata and left:
        level = left // len(open_strata)
        smallest = open_strata[0]
        if counts[smallest] <= level:
            taken[smallest] = counts[smallest]
            left -= counts[smallest]
            open_strata.pop(0)
            continue
        for rank, name in enumerate(sorted(open_strata)):
            taken[name] = level + (rank < left - level * len(open_strata))
        break
    return taken


class CaseSample:
    """The kept cases of a stream.

    Each distinct case has a priority, a hash of its content and the seed, and of each stratum those
    of lowest priority stay: the same cases give the same sample in any order.
    """

    def __init__(self, size: int | None, seed: int = 0) -> None:
        """Take at most ``size`` cases; ``None``: all."""
        self.counts: Counter[str] = Counter()
        """Stratum → distinct cases."""
        self.n_repeated = 0
        self._size = size
        self._key = f"cases:{seed}".encode()
        self._seen: set[int] = set()
        self._kept: dict[str, list[tuple[int, int, ForeignCase]]] = {}
        self._n_kept = 0

    def add(self, case: ForeignCase, stratum: str = "") -> None:
        """Offer a case; one whose input and expected answer were there counts as repeated."""
        content = orjson.dumps([_squeezed(case.input), _squeezed(case.expected)])
        digest = blake2b(content, digest_size=8, key=self._key).digest()
        priority = int.from_bytes(digest, "big")
        if priority in self._seen:
            self.n_repeated += 1
            return
        self._seen.add(priority)
        if stratum not in self.counts and len(self.counts) >= MAX_STRATA:
            stratum = OTHER
        self.counts[stratum] += 1
        number = len(self._seen)
        # A heap whose first is the one of highest priority number, which goes first.
        kept = self._kept.setdefault(stratum, [])
        if self._size is None or len(kept) < self._size:
            heapq.heappush(kept, (-priority, -number, replace(case, facts={})))
            self._n_kept += 1
        elif -priority > kept[0][0]:
            heapq.heapreplace(kept, (-priority, -number, replace(case, facts={})))
        if self._size is not None and self._n_kept > 4 * self._size + MAX_STRATA:
            self._shrink()

    def _shrink(self) -> None:
        """Drop what no final sample can hold: the level of ``allocate`` only falls."""
        assert self._size is not None  # noqa: S101 - the caller has asked
        level = max(allocate(self.counts, self._size).values())
        for kept in self._kept.values():
            while len(kept) > level:
                heapq.heappop(kept)
        self._n_kept = sum(map(len, self._kept.values()))

    def cases(self) -> list[tuple[str, ForeignCase]]:
        """Return the sample, stratum and case, in the order in which they came."""
        n_all = sum(self.counts.values())
        size = n_all if self._size is None else min(self._size, n_all)
        taken = allocate(self.counts, size)
        found = [
            (-number, stratum, case)
            for stratum, kept in self._kept.items()
            for _, number, case in heapq.nlargest(taken[stratum], kept)
        ]
        found.sort(key=lambda one: one[0])
        return [(stratum, case) for _, stratum, case in found]


def stratum_of(case: ForeignCase, name: str | None) -> str:
    """Return the value of a fact, shortened; empty where nothing was asked for or known."""
    if name is None:
        return ""
    value = case.facts.get(name)
    return "" if value is None else _shown(str(value))


@lru_cache(maxsize=4 * MAX_STRATA)
def _shown(value: str) -> str:
    """Return the name of a stratum as it may be printed."""
    return one_line(value, 200, redacted_text)


def _squeezed(value: object) -> object:
    """Return a text with white space as single spaces, so that layout makes no new case."""
    return " ".join(value.split()) if isinstance(value, str) else value
