"""Guard of held-out cases: no model sees 13 consecutive words of one."""

from collections.abc import Iterable, Sequence

from convergence_core.errors import ConvergenceError
from convergence_core.sao.filters import N_RUN, held_out_runs


class HeldOutError(ConvergenceError, ValueError):
    """A prompt would show a held-out case to a model."""

    exit_code = 2


class HeldOutGuard:
    """Guard against held-out text in prompts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = held_out_runs(texts)

    def check(self, prompts: Sequence[str]) -> None:
        """Check that prompts share nothing with held-out texts.

        Raises:
            HeldOutError: a prompt holds 13 consecutive words of a text, or the whole of a short
                one.
        """
        for i, prompt in enumerate(prompts):
            if self._texts.leak_into(prompt):
                raise HeldOutError(
                    f"prompt {i + 1} of {len(prompts)} shares {N_RUN} words in a row with a held-out "
                    "case, or holds a short one whole; no model may get it"
                )
