"""Ten thousand prompts through the filters: CPU, memory, and what each filter dropped."""

import resource
import time
from typing import Final

import numpy as np

from convergence_core.config.optimization import SaoConfig
from convergence_core.sao.filters import FILTERS, FilterChain, HeldOut
from convergence_core.sao.preferences import Answer, Comparison

N_PROMPTS: Final = 10_000
N_WORDS: Final = 40
COPIES: Final = 0.1
"""Share of prompts that copy an earlier one with one word changed."""
LEAKS: Final = 0.01
"""Share of prompts that hold a held-out case."""


class Words:
    """Texts of words drawn by Zipf's law from twenty thousand, one at a time."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def text(self, n_words: int) -> list[str]:
        """Return a text of so many words."""
        ranks = self._rng.zipf(1.3, size=n_words) + self._rng.integers(0, 3000, n_words)
        return [f"word{rank % 20_000:05d}" for rank in ranks]


def filtering(n: int = N_PROMPTS) -> tuple[float, float, dict[str, int], int]:
    """Return CPU seconds of the filters, MiB gained, counters and prompts kept."""
    rng = np.random.default_rng(0)
    words = Words(rng)
    held_out = [" ".join(words.text(N_WORDS)) for _ in range(200)]
    before = _peak_mib()
    sieve = FilterChain(SaoConfig(), HeldOut(held_out))
    earlier: list[str] = []
    kept, cpu = 0, 0.0
    for k in range(n):
        prompt, u = words.text(N_WORDS), rng.random()
        if earlier and u < COPIES:
            prompt = earlier[int(rng.integers(len(earlier)))].split()
            prompt[int(rng.integers(N_WORDS))] = f"changed{k}"
        elif u < COPIES + LEAKS:
            prompt = ["please", *held_out[k % 200].split()][:N_WORDS]
        earlier.append(" ".join(prompt))
        comparison = Comparison(
            prompt=earlier[-1],
            first=Answer(text=" ".join(words.text(60)), author="a"),
            second=Answer(text=" ".join(words.text(60)), author="b"),
            kind="candidates",
            persona=k,
        )
        begin = time.process_time()
        kept += sieve.before_judging(comparison) is None
        cpu += time.process_time() - begin
    counters = {str(name): sieve.counters[name] for name in FILTERS if sieve.counters[name]}
    return cpu, _peak_mib() - before, counters, kept


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report() -> None:
    """Print the measurement."""
    cpu, mib, counters, kept = filtering()
    print(f"\n{N_PROMPTS:,} prompts of {N_WORDS} words, two answers of 60 each\n")
    print("| CPU, s | memory gained, MiB | process, MiB | kept | dropped |")
    print("|---|---|---|---|---|")
    told = ", ".join(f"{name} {count:,}" for name, count in counters.items())
    print(f"| {cpu:.1f} | {mib:.0f} | {_peak_mib():.0f} | {kept:,} | {told} |")
