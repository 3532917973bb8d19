"""What is exported trains: TRL takes it as it is, and the loss of a tiny random model falls."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convergence_core.sao.formats import row_of
from convergence_core.sao.preferences import Answer, Comparison, JudgedPair, Judgement
from tasks.sao.dataset import Dataset, export

pytest.importorskip("trl", reason="needs the extra `local` (pip install '.[local]')")

pytestmark = [
    pytest.mark.slow,
    # Warnings of other people's packages are theirs.
    pytest.mark.filterwarnings("ignore"),
]

SPECIAL = {f"{name}_token": f"<{name}>" for name in ("pad", "unk", "bos", "eos")}
_GOOD = ["first", "second", "third", "step", "office", "form"]
_BAD = ["perhaps", "somehow", "whatever", "maybe", "unclear", "sorry"]


def pairs(n: int) -> list[JudgedPair]:
    """Return pairs whose chosen answers use other words than the rejected ones."""
    rng = np.random.default_rng(0)

    def text(words: list[str]) -> str:
        return " ".join(str(w) for w in rng.choice(words, 12))

    return [
        JudgedPair(
            comparison=Comparison(
                prompt=f"what about case number {k}",
                first=Answer(text=text(_GOOD), author="a"),
                second=Answer(text=text(_BAD), author="b"),
                kind="candidates",
            ),
            judgement=Judgement(p12=0.9, p21=0.8),
            dropped_by=None,
            round_number=0,
            position=k,
        )
        for k in range(n)
    ]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    found = pairs(64)
    dataset = Dataset(pairs=tuple(found), evidence=())
    path = tmp_path_factory.mktemp("export") / "rows.jsonl"
    export(dataset, path, "trl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def tokenizer_of(texts: list[str]) -> Any:
    """Return a tokenizer of whole words with a plain chat template, made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for text in texts for word in text.split()})
    special = [*SPECIAL.values(), "user", "assistant", "system"]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys([*special, *words]))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk_token"]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **SPECIAL)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' <eos> ' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant ' }}{% endif %}"
    )
    return tokenizer


def tiny(rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Return a randomly initialised model of a few thousand parameters, and its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tokenizer_of([m["content"] for row in rows for side in row.values() for m in side])
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=128,
            pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip
    return model, tokenizer


def losses_of(trainer: Any) -> list[float]:
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


COMMON: dict[str, Any] = {
    "per_device_train_batch_size": 8, "max_steps": 24, "learning_rate": 5e-3, "logging_steps": 4,
    "report_to": "none", "use_cpu": True, "save_strategy": "no", "max_length": 64, "seed": 0,
}  # fmt: skip


def test_trl_returns_the_rows_unchanged_and_rebuilds_them(rows):
    from trl import maybe_extract_prompt

    for row in rows:
        assert maybe_extract_prompt(dict(row)) == row
        both = {side: row["prompt"] + row[side] for side in ("chosen", "rejected")}
        assert maybe_extract_prompt(dict(both)) == row
    assert rows[0] == row_of(pairs(1)[0], "trl")


def test_a_tiny_model_learns_from_the_export_by_dpo(rows, tmp_path: Path):
    from datasets import Dataset as Rows
    from trl import DPOConfig, DPOTrainer

    model, tokenizer = tiny(rows)
    trainer = DPOTrainer(
        model=model,
        ref_model=copy.deepcopy(model),  # else it is looked for by its name
        args=DPOConfig(output_dir=str(tmp_path), beta=0.1, **COMMON),
        train_dataset=Rows.from_list(rows),
        processing_class=tokenizer,
    )
    found = losses_of(trainer)
    assert found[0] < np.log(2) + 0.05  # what an untrained pair begins at
    assert found[-1] < 0.5 * found[0], found


def test_a_tiny_model_learns_from_the_export_by_simpo(rows, tmp_path: Path):
    from datasets import Dataset as Rows
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    model, tokenizer = tiny(rows)
    trainer = CPOTrainer(
        model=model,
        args=CPOConfig(
            output_dir=str(tmp_path), loss_type="simpo", cpo_alpha=0.0, beta=10.0,
            simpo_gamma=3.0, **COMMON,
        ),
        train_dataset=Rows.from_list(rows),
        processing_class=tokenizer,
    )  # fmt: skip
    import torch

    n = torch.tensor([12.0])
    chosen, rejected = torch.tensor([-30.0]), torch.tensor([-36.0])
    told, *_ = trainer.cpo_loss(chosen / n, rejected / n)
    # -log sigma(beta/|y_w| log M(y_w|x) - beta/|y_l| log M(y_l|x) - gamma) (eq. 4.7), beta 10, gamma 3.
    assert float(told) == pytest.approx(np.logaddexp(0.0, -(-25.0 + 30.0 - 3.0)), abs=1e-5)
    found = losses_of(trainer)
    assert found[-1] < 0.5 * found[0], found
