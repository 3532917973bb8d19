"""Guard of held-out cases: no model is shown 13 consecutive words of one."""

from collections.abc import Iterable, Sequence

from convergence_core.errors import ConvergenceError
from convergence_core.sao.filters import N_RUN, held_out_runs


class HeldOutError(ConvergenceError, ValueError):
    """A held-out case would be shown to a model."""

    exit_code = 2


class HeldOutGuard:
    """The texts that no prompt may hold: held-out cases."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = held_out_runs(texts)

    def check(self, prompts: Sequence[str]) -> None:
        """Let prompts pass that share nothing with the texts.

        Raises:
            HeldOutError: one holds 13 words in a row of a text, or the whole of a short one.
        """
        for i, prompt in enumerate(prompts):
            if self._texts.leak_into(prompt):
                raise HeldOutError(
                    f"prompt {i + 1} of {len(prompts)} shares {N_RUN} words in a row with a held-out "
                    "case, or holds a short one whole; no model may get it"
                )
