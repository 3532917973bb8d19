"""Adapters as a trainer saves them, small enough for tests, and marks to learn from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convergence_core.feedback.adapter_records import GateCheck, TrainedMark
from convergence_core.feedback.records import Rating
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import open_marks
from tests.feedback.answers import answer

PASSED = GateCheck(
    name="kl", passed=True, value=0.5, low=0.4, high=0.6, threshold=1.5, unit="nat", words="KL is small."
)  # fmt: skip


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """Return two low-rank matrices of one layer, as PEFT names them."""
    rng = np.random.default_rng(seed)
    layer = "base_model.model.model.layers.0.self_attn.q_proj"
    return {
        f"{layer}.lora_A.weight": rng.normal(size=(2, 8)).astype(np.float32),
        f"{layer}.lora_B.weight": rng.normal(size=(8, 2)).astype(np.float32),
    }


def safetensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Return tensors in the form of safetensors: header length, JSON header, values."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "int64": "I64"}[values.dtype.name]
        end = len(body) + values.nbytes
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [len(body), end]}
        body += values.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def saved_adapter(folder: Path, seed: int = 0) -> Path:
    """Save an adapter as PEFT does; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_model.safetensors").write_bytes(safetensors(weights(seed)))
    config = {
        "peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "tiny",
        "target_modules": ["q_proj"], "task_type": "CAUSAL_LM",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def rated(store: FeedbackStore, name: str, value: int = 4, user: str = "ann") -> TrainedMark:
    """Log an answer, rate it and return the mark."""
    store.log(answer(name, is_shared=True))
    store.rate(Rating(interaction_id=name, user_id=user, rating=value))
    (found,) = (
        mark
        for mark, _, _ in open_marks(store, "assistant")
        if (mark.interaction_id, mark.user_id) == (name, user)
    )
    return found


def registered(
    adapters: AdapterStore, source: Path, *marks: TrainedMark, role: str = "assistant",
    parent: str | None = None,
) -> str:  # fmt: skip
    """Register an adapter that passed its check; return its version."""
    version = adapters.register(
        source, role=role, base_model="tiny", objective="qrpo", marks=marks, parent=parent
    )
    adapters.record_checks(version, [PASSED])
    return version


def activated(adapters: AdapterStore, source: Path, *marks: TrainedMark, **more: Any) -> str:
    """Register an adapter and activate it; return its version."""
    version = registered(adapters, source, *marks, **more)
    adapters.activate(version, "gate")
    return version
