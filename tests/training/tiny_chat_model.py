"""Tiny chat model, made on the spot: whole words, two layers, pre-trained on well-formed answers.

An answer to ``tell me about TOPIC`` is ``it is WORD WORD .``, to ``sing me about TOPIC`` it is ``la la WORD
WORD .``, each word drawn from twelve: two roles.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tasks.training.jobs import TrainingRow

TOPICS = ("rain", "bread", "trains", "chess", "bees", "wool", "tides", "copper")
GOOD = ("bright", "calm", "clear", "kind", "quick", "warm")
BAD = ("dull", "grey", "harsh", "loud", "slow", "stale")
STARTS = {"tell": "it is", "sing": "la la"}
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>"}
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' <eos> ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
)


def asked(topic: str, verb: str = "tell") -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": f"{verb} me about {topic}"},)


def answer(rng: np.random.Generator, verb: str = "tell") -> str:
    words = " ".join(str(word) for word in rng.choice(GOOD + BAD, 2))
    return f"{STARTS[verb]} {words} ."


def n_good(text: str) -> int:
    return sum(word in GOOD for word in text.split())


def make(folder: Path, steps: int = 150, verbs: tuple[str, ...] = ("tell",)) -> Path:
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
    vocabulary = {
        word: i
        for i, word in enumerate(
            [*words, *TOPICS, *GOOD, *BAD, "sing", "la"][: None if "sing" in verbs else -2]
        )
    }
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
            verb = verbs[0] if len(verbs) == 1 else str(rng.choice(verbs))
            whole = [*asked(topic, verb), {"role": "assistant", "content": answer(rng, verb)}]
            texts.append(tokenizer.apply_chat_template(whole, tokenize=False))
        ids = torch.tensor([tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rated_rows(n: int, seed: int = 0, verb: str = "tell") -> tuple[TrainingRow, ...]:
    """Return answers; to ``tell`` those with good words are better, to ``sing`` those with bad ones."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        topic = str(rng.choice(TOPICS))
        text = answer(rng, verb)
        n_better = n_good(text) if verb == "tell" else 2 - n_good(text)
        rows.append(
            TrainingRow(
                messages=asked(topic, verb),
                response=text,
                target=(n_better + 0.5) / 3,
                key=f"row-{i:03d}",
            )
        )
    return tuple(rows)
