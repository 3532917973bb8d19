"""Training rows as tokens: a prompt and one or two responses, and batches of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tasks.training.jobs import TrainingRow

Ids = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedRow:
    """One row."""

    prompt: Ids
    responses: tuple[Ids, ...]
    """The response, or the better and the worse one; each ends with the end token."""
    target: float
    weight: float


def tokenized(tokenizer: Any, rows: Sequence[TrainingRow], max_length: int) -> list[TokenizedRow]:
    """Return the rows as tokens; those whose prompts are too long are left out.

    A response that does not fit is cut: its log-probability is that of what is left.
    """
    end = end_token(tokenizer)
    tokenized_rows = []
    for row in rows:
        prompt = prompt_ids(tokenizer, row.messages)
        room = max_length - len(prompt)
        if room < 1:
            continue
        texts = [row.response] if row.rejected is None else [row.response, row.rejected]
        responses = tuple([*text_ids(tokenizer, text), end][:room] for text in texts)
        tokenized_rows.append(
            TokenizedRow(prompt=prompt, responses=responses, target=row.target, weight=row.weight)
        )
    return tokenized_rows


def prompt_ids(tokenizer: Any, messages: Sequence[dict[str, str]]) -> Ids:
    """Return the tokens of a chat, up to the start of the answer."""
    text = tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=True, tokenize=False
    )
    return text_ids(tokenizer, text)


def text_ids(tokenizer: Any, text: str) -> Ids:
    """Return the tokens of a text, without special tokens around it."""
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def end_token(tokenizer: Any) -> int:
    """Return the token with which the chat template ends an answer."""
    messages = [{"role": "user", "content": "a"}]
    whole = tokenizer.apply_chat_template(
        [*messages, {"role": "assistant", "content": "b"}], tokenize=False
    )
    special = set(tokenizer.all_special_ids)
    last = [token for token in text_ids(tokenizer, whole) if token in special]
    return int(last[-1]) if last else int(tokenizer.eos_token_id)


def batch(rows: Sequence[TokenizedRow], references: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return tensors of rows: all first responses, then all second ones, padded on the right.

    Args:
        rows: Rows with the same number of responses each.
        references: Log-probabilities of each row's responses, nats.
    """
    n = len(rows[0].responses)
    pairs = [(row.prompt, row.responses[i]) for i in range(n) for row in rows]
    width = max(len(prompt) + len(response) for prompt, response in pairs)
    ids = torch.zeros(len(pairs), width, dtype=torch.long)  # (n responses, width)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, (prompt, response) in enumerate(pairs):
        whole = torch.tensor([*prompt, *response])
        ids[i, : len(whole)] = whole
        mask[i, : len(whole)] = 1
        labels[i, len(prompt) : len(whole)] = whole[len(prompt) :]
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": labels,
        "reference": torch.tensor([reference[i] for i in range(n) for reference in references]),
        "target": torch.tensor([row.target for row in rows]),
        "weight": torch.tensor([row.weight for row in rows]),
    }
