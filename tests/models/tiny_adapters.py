"""A random model of some thousand weights, and adapters that make it answer otherwise."""

import json
from pathlib import Path
from typing import Any

WORDS = [f"w{i}" for i in range(60)]
SPECIAL = ["<pad>", "<unk>", "<bos>", "<end>", "user", "assistant", "system"]
N_LAYERS = 2
WIDTH = 32


def make_model(folder: Path) -> Path:
    """Write the model in Hugging Face's form."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL[1]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<end>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' <end> ' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=64,
        num_hidden_layers=N_LAYERS, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, initializer_range=0.3,
        pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_adapter(
    folder: Path, seed: int, *, rank: int = 2, width: int = WIDTH, **config: Any
) -> Path:
    """Write a random adapter in PEFT's layout, large enough that answers differ."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    tensors = {}
    for layer in range(N_LAYERS):
        for part, n_out in (("self_attn.q_proj", width), ("mlp.up_proj", 64)):
            path = f"base_model.model.model.layers.{layer}.{part}"
            tensors[f"{path}.lora_A.weight"] = torch.randn(rank, width) * 0.3
            tensors[f"{path}.lora_B.weight"] = torch.randn(n_out, rank) * 0.3
    written = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "up_proj"], "base_model_name_or_path": "tiny", **config,
    }  # fmt: skip
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(written))
    return folder


def spoil(folder: Path, value: float) -> Path:
    """Put a number into an adapter's weights."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "adapter_model.safetensors")
    next(iter(tensors.values()))[0, 0] = value
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder
