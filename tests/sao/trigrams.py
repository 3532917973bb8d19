"""A word-trigram model refit on its own samples: how text collapses, in seconds.

Real text is that of the running interpreter's docstrings, so thresholds must be ratios.
"""

import inspect
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from convergence_core.judges.texts import words_of

N_PER_ROUND = 1_500
END = ""


@cache
def sentences() -> tuple[str, ...]:
    """Return distinct sentences of 6 to 30 words out of the standard library, in a fixed order."""
    found: dict[str, None] = {}
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in {"antigravity", "this", "idlelib", "turtledemo"}:
            continue
        for text in re.findall(r'"""(.*?)"""', _source(name), re.DOTALL):
            for sentence in re.split(r"(?<=[.!?])\s+|\n\s*\n", inspect.cleandoc(text)):
                n = len(words_of(sentence))
                if 6 <= n <= 30:
                    found.setdefault(" ".join(sentence.split()), None)
    return tuple(found)


def _source(name: str) -> str:
    spec = find_spec(name)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return ""
    return Path(spec.origin).read_text(encoding="utf-8", errors="replace")


class Trigrams:
    """Counts of the next word after two."""

    def __init__(self, texts: list[str]) -> None:
        counts: dict[tuple[str, str], dict[str, int]] = {}
        for text in texts:
            words = [END, END, *words_of(text), END]
            for a, b, c in zip(words, words[1:], words[2:], strict=False):
                after = counts.setdefault((a, b), {})
                after[c] = after.get(c, 0) + 1
        self._next = {
            key: (list(after), np.array(list(after.values()), np.float64))
            for key, after in counts.items()
        }

    def write(self, n: int, temperature: float, rng: np.random.Generator) -> list[str]:
        """Return ``n`` sentences of at most 40 words."""
        sharpened = {
            key: (words, np.cumsum(weights ** (1.0 / temperature)))
            for key, (words, weights) in self._next.items()
        }
        written = []
        for _ in range(n):
            a, b, said = END, END, []
            draws = rng.random(40)
            for u in draws:
                words, sums = sharpened[a, b]
                a, b = b, words[int(np.searchsorted(sums, u * sums[-1], side="right"))]
                if b == END:
                    break
                said.append(b)
            written.append(" ".join(said))
        return written


def split(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return (texts to learn from, held-out prompts)."""
    texts = sentences()
    order = rng.permutation(len(texts))
    held = [texts[i] for i in order[:200]]
    return [texts[i] for i in order[200:]], held
