"""Ways in which real servers report wrong probabilities; a probe must find them out.

::

    off_by_one          echo, prompt_logprobs: each word's is read off the row before its own
    temperature         log-probabilities depend on the temperature asked for
    ignore              echo and log-probabilities are ignored without a word
    stale               behind a shared beginning, the probabilities are those of the prompt before
    no_prompt_logprobs  a chat with vLLM's prompt_logprobs is refused, as OpenAI refuses it
"""

from typing import Literal, get_args

FaultMode = Literal[
    "off_by_one",
    "temperature",
    "ignore",
    "stale",
    "no_prompt_logprobs",
]
FAULT_MODES: tuple[FaultMode, ...] = get_args(FaultMode)
