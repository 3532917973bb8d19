"""Weights of adapters: what cannot be loaded, or changes nothing, is refused with the reason."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.store.feedback.adapter_weights import weights_problem
from tests.feedback.adapters import safetensors, saved_adapter, weights

A, B = weights()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved_adapter(tmp_path / "adapter")


def write(folder: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors))


def test_what_a_trainer_saves_has_no_problem(folder: Path):
    assert weights_problem(folder) is None
    write(folder, {A: weights()[A].astype(np.float16), B: weights()[B].astype(np.float16)})
    assert weights_problem(folder) is None


def test_weights_that_change_nothing_are_refused(folder: Path):
    write(folder, {A: weights()[A], B: np.zeros((8, 2), np.float32)})
    assert weights_problem(folder) == "every lora_B is zero, so it would change nothing"
    write(folder, {})
    assert weights_problem(folder) == "adapter_model.safetensors holds no weights"


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({A: weights()[A]}, "must have both lora_A and lora_B"),
        ({A: np.ones((3, 8), np.float32), B: np.ones((8, 3), np.float32)}, "must have the rank 2"),
        ({A: np.ones((2, 8), np.float32), B: np.ones((8, 3), np.float32)}, "and lora_B 3"),
        ({A: np.ones(16, np.float32), B: weights()[B]}, "must be a matrix"),
        ({A: np.ones((0, 8), np.float32), B: weights()[B]}, "must be a matrix"),
        ({**weights(), "lm_head.weight": np.ones((2, 2), np.float32)}, "must be a matrix lora_A"),
        ({A: np.ones((2, 8), np.int64), B: weights()[B]}, "'F64', 'F32', 'F16' or 'BF16'"),
    ],
)
def test_wrong_shapes_and_types_are_refused(
    folder: Path, tensors: dict[str, np.ndarray[Any, Any]], words: str
):
    write(folder, tensors)
    assert words in str(weights_problem(folder))


def test_a_file_that_is_cut_off_anywhere_is_refused(folder: Path):
    file = folder / "adapter_model.safetensors"
    whole = file.read_bytes()
    for n in (0, 4, 8, 40, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:n])
        assert weights_problem(folder) is not None, n
    file.write_bytes(whole + b"\0")
    assert "must have" in str(weights_problem(folder))


@pytest.mark.parametrize(
    "header",
    [
        b"[]", b"{", b'{"a": 1}', b'{"a": {"dtype": "F32"}}', b"[" * 100_000,
        b'{"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
        b'{"a": {"dtype": "F32", "shape": [99999999999, 99999999999], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]},'
        b' "b": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}}',
    ],
    ids=range(11),
)  # fmt: skip
def test_odd_headers_are_refused(folder: Path, header: bytes):
    data = len(header).to_bytes(8, "little") + header + b"\0" * 4
    (folder / "adapter_model.safetensors").write_bytes(data)
    problem = weights_problem(folder)
    assert problem is not None
    assert len(problem) < 300


def test_a_header_that_claims_to_be_huge_is_not_read(folder: Path):
    file = folder / "adapter_model.safetensors"
    for length in (2**63, 200_000_000):
        file.write_bytes(length.to_bytes(8, "little"))
        os.truncate(file, 8 + 300_000_000 if length < 2**40 else 64)  # sparse
        assert "is cut off, or not a safetensors file" in str(weights_problem(folder))
