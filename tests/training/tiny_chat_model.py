"""Tiny chat model, made on the spot: whole words, two layers, pre-trained on well-formed answers.

An answer to ``tell me about TOPIC`` is ``it is WORD WORD .``, each word drawn from twelve.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.training.jobs import TrainingRow

TOPICS = ("rain", "bread", "trains", "chess", "bees", "wool", "tides", "copper")
GOOD = ("bright", "calm", "clear", "kind", "quick", "warm")
BAD = ("dull", "grey", "harsh", "loud", "slow", "stale")
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>"}
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' <eos> ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)


def asked(topic: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": f"tell me about {topic}"},)


def answer(rng: np.random.Generator) -> str:
    return f"it is {' '.join(str(word) for word in rng.choice(GOOD + BAD, 2))} ."


def n_good(text: str) -> int:
    return sum(word in GOOD for word in text.split())


def make(folder: Path, steps: int = 150) -> Path:
    """Write a model and its tokenizer in Hugging Face's form; a second or two."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    words = [
        *SPECIAL.values(),
        "user",
        "assistant",
        "system",
        "tell",
        "me",
        "about",
        "it",
        "is",
        ".",
    ]
    vocabulary = {word: i for i, word in enumerate([*words, *TOPICS, *GOOD, *BAD])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=inner, **SPECIAL)
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
            tie_word_embeddings=True, pad_token_id=0, bos_token_id=2, eos_token_id=3,
        )
    )  # fmt: skip
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        texts = []
        for topic in rng.choice(TOPICS, 16):
            whole = [*asked(topic), {"role": "assistant", "content": answer(rng)}]
            texts.append(tokenizer.apply_chat_template(whole, tokenize=False))
        ids = torch.tensor([tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rated_rows(n: int, seed: int = 0) -> tuple[TrainingRow, ...]:
    """Return answers whose target is higher the more good words they have."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        topic = str(rng.choice(TOPICS))
        text = answer(rng)
        target = (n_good(text) + 0.5) / 3
        rows.append(
            TrainingRow(messages=asked(topic), response=text, target=target, key=f"row-{i:03d}")
        )
    return tuple(rows)
