"""Tiny chat model trained on demand: 190,000 weights for one small world.

A two-layer Llama with a byte-level vocabulary of 512, trained for some seconds on given dialogues, and
written as a Hugging Face folder. Its output on anything else is meaningless.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tasks.store.layout import make_folder

VOCABULARY: Final = 512
CONTEXT: Final = 256
N_STEPS: Final = 600
BATCH: Final = 32
RATE: Final = 5e-3
SPECIALS: Final = ("<pad>", "<end>", "<user>", "<assistant>", "<system>")
TEMPLATE: Final = (
    "{% for message in messages %}"
    "{% if message['role'] != 'system' %}<{{ message['role'] }}>{{ message['content'] }}<end>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""System messages are left out: the model never saw one."""


def make_tiny_chat_model(
    folder: Path, dialogues: Sequence[tuple[str, str]], *, seed: int = 0
) -> None:
    """Train a model on questions with their answers and write its folder; takes some seconds.

    Args:
        folder: is made; must not exist.
        dialogues: questions with answers.
        seed: of the weights and of the order.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

    tokenizer = _tokenizer([text for pair in dialogues for text in pair])
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            initializer_range=0.1,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    _train(model, tokenizer, dialogues, seed)
    made = folder.with_name(f".{folder.name}.{os.getpid()}")
    make_folder(made)
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)
    made.rename(folder)


def _tokenizer(texts: Sequence[str]) -> Any:
    """Return a byte-level tokenizer of some texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE(unk_token=None))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bare.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare,
        pad_token="<pad>",  # noqa: S106 - a token of text
        eos_token="<end>",  # noqa: S106 - as above
        padding_side="left",
        model_max_length=CONTEXT,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _train(model: Any, tokenizer: Any, dialogues: Sequence[tuple[str, str]], seed: int) -> None:
    """Train all weights on the answers."""
    import torch

    rows = []
    for question, answer in dialogues:
        prompt = tokenizer.encode(f"<user>{question}<end><assistant>", add_special_tokens=False)
        rows.append((prompt, tokenizer.encode(f"{answer}<end>", add_special_tokens=False)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=N_STEPS)
    order = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(N_STEPS):
        batch = [rows[i] for i in torch.randint(len(rows), (BATCH,), generator=order).tolist()]
        width = max(len(prompt) + len(answer) for prompt, answer in batch)
        ids = torch.full((BATCH, width), tokenizer.pad_token_id)
        labels = torch.full((BATCH, width), -100)
        for i, (prompt, answer) in enumerate(batch):
            n, end = len(prompt), len(prompt) + len(answer)
            ids[i, :end] = torch.tensor([*prompt, *answer])
            labels[i, n:end] = torch.tensor(answer)
        mask = (ids != tokenizer.pad_token_id).long()
        loss = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
