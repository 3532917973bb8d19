"""Answers of a local model with adapters: as PEFT computes them, apart from each other, refused where broken."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra `local` (pip install '.[local]')")

from tasks.models.files import LocalModel, ModelFiles  # noqa: E402 - after what they need
from tasks.models.generation import Generator  # noqa: E402
from tasks.models.model_process import ModelSettings, answer_batch, load_generator  # noqa: E402
from tasks.models.requests import ChatAnswer, ChatRequest, ModelRequest, ScoreRequest  # noqa: E402
from tests.models.tiny_adapters import make_adapter, make_model, spoil  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HEAD = {"role": "system", "content": "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("adapters")
    return [make_adapter(root / f"assistant-{seed:04}", seed) for seed in range(6)]


@pytest.fixture
def generator(tiny: Path) -> Generator:
    return load_generator(ModelSettings(folder=tiny, gguf=None, n_threads=1))


def chat(text: str, adapter: Path | None = None, **more: Any) -> ChatRequest:
    settings = {
        "max_tokens": 12, "temperature": 0.0, "top_p": 1.0, "top_k": None, "stop": (), "seed": None,
    }  # fmt: skip
    messages = (HEAD, {"role": "user", "content": text})
    return ChatRequest(messages=messages, adapter=adapter, **{**settings, **more})


def answered(generator: Generator, *requests: ModelRequest) -> list[ChatAnswer]:
    return answer_batch(generator, [*requests], 60.0, on_text=lambda part: None)


def texts(generator: Generator, *requests: ModelRequest) -> list[str]:
    found = answered(generator, *requests)
    assert {one.finish_reason for one in found} <= {"stop", "length"}, found
    return [one.text for one in found]


def test_an_answer_depends_on_its_adapter_alone(generator: Generator, adapters: list[Path]):
    """Whatever is loaded, cached or asked beside it."""
    asked = [
        chat(f"w{i} w{i + 7} w{i + 20}", adapter)
        for i in range(4)
        for adapter in (None, *adapters[:2])
    ]
    alone = [texts(generator, one)[0] for one in asked]
    assert len({tuple(alone[i::3]) for i in range(3)}) == 3  # they do differ
    assert texts(generator, *asked) == alone
    others = [chat("w9", adapter) for adapter in adapters]
    assert texts(generator, *others, *reversed(asked))[6:] == alone[::-1]
    assert texts(generator, *asked) == alone


@pytest.mark.parametrize("more", [{}, {"use_rslora": True}, {"alpha_pattern": {"up_proj": 7}}])
def test_numbers_are_those_of_peft(tiny: Path, tmp_path: Path, generator: Generator, more: Any):
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    folder = make_adapter(tmp_path / "a-0001", 5, **more)
    base = AutoModelForCausalLM.from_pretrained(tiny)
    model = peft.PeftModel.from_pretrained(base, folder)
    generator.use(folder)
    ids = torch.tensor([[4, 9, 12, 30, 5]])
    with torch.inference_mode():
        ours = generator._model(input_ids=ids).logits
        assert torch.allclose(ours, model(input_ids=ids).logits, atol=1e-5)
        generator.use(None)
        with model.disable_adapter():
            assert torch.equal(generator._model(input_ids=ids).logits, model(input_ids=ids).logits)
        assert not torch.allclose(ours, generator._model(input_ids=ids).logits, atol=1e-2)


def test_scores_are_the_probabilities_that_an_answer_was_drawn_with(
    generator: Generator, adapters: list[Path]
):
    asked = [chat(f"w{i} w6", adapters[0], logprobs=True, max_tokens=8) for i in range(20)]
    found = zip(asked, answered(generator, *asked), strict=True)
    # Special tokens that were written are no part of the text.
    request, one = next((r, a) for r, a in found if len(a.text.split()) == a.completion_tokens > 3)
    messages = request.messages
    made = [
        ScoreRequest(messages=messages, response=one.text, adapter=adapter)
        for adapter in (adapters[0], None)
    ]
    own, base = answered(generator, *made)
    assert (own.finish_reason, own.error) == ("scored", "")
    assert one.logprobs is not None
    assert own.logprobs is not None
    assert own.logprobs[: len(one.logprobs)] == pytest.approx(one.logprobs, abs=1e-4)
    assert base.logprobs != own.logprobs
    (total,) = answered(generator, ScoreRequest(messages=messages, response=""))
    assert total.logprobs is not None
    assert len(total.logprobs) == 1  # the end alone
    assert 0 < math.exp(total.logprobs[0]) < 1
    (long,) = answered(generator, ScoreRequest(messages=messages, response="w1 " * 600))
    assert (long.finish_reason, "512" in long.error) == ("context", True)


WEIGHTS = "adapter_model.safetensors"


def cut(folder: Path, share: float) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: int(share * len(data))])


def drop(folder: Path, part: str) -> None:
    """Leave out the matrices whose names hold a part."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / WEIGHTS)
    save_file({key: tensors[key] for key in tensors if part not in key}, folder / WEIGHTS)


def write_config(folder: Path, text: str) -> None:
    (folder / "adapter_config.json").write_text(text)


BROKEN: dict[str, tuple[dict[str, Any], Callable[[Path], object], str]] = {
    "NaN": ({}, lambda folder: spoil(folder, math.nan), "that are not finite"),
    "infinite": ({}, lambda folder: spoil(folder, math.inf), "that are not finite"),
    "half a file": ({}, lambda folder: cut(folder, 0.5), "cannot be read"),
    "empty file": ({}, lambda folder: cut(folder, 0), "cannot be read"),
    "no weights": ({}, lambda folder: drop(folder, ""), "holds no weights"),
    "rank 0": ({"rank": 0}, lambda _: None, "with a rank r of at least 1"),
    "no B": ({}, lambda folder: drop(folder, "q_proj.lora_B"), "lacks a matrix of"),
    "other width": ({"width": 16}, lambda _: None, "belongs to another model: the matrices of"),
    "other kind": ({"peft_type": "IA3"}, lambda _: None, "a wrong `peft_type`, \"IA3\": Input should be 'LORA'"),
    "DoRA": ({"use_dora": True}, lambda _: None, "is of another kind: plain LoRA has no use_dora"),
    "trained bias": ({"bias": "all"}, lambda _: None, "plain LoRA has no bias"),
    "alpha": ({"lora_alpha": "x"}, lambda _: None, "a wrong `lora_alpha`, \"x\": Input should be a valid number"),
    "infinite alpha": ({"lora_alpha": math.inf}, lambda _: None, "a wrong `lora_alpha`"),
    "huge alpha": ({"lora_alpha": 1e300}, lambda _: None, "makes numbers of"),
    "list of patterns": ({"alpha_pattern": [1]}, lambda _: None, "a wrong `alpha_pattern`, a list of 1: "),
    "alpha of a pattern": ({"alpha_pattern": {"q": None}}, lambda _: None, "a wrong `alpha_pattern`, nothing: "),
    "no pattern": ({"alpha_pattern": {"[": 1}}, lambda _: None, "must be a regular expression: unterminated"),
    "flags of a pattern": ({"alpha_pattern": {"(?i)q": 1}}, lambda _: None, "must be a regular expression: global"),
    "list": ({}, lambda folder: write_config(folder, "[1]"), "a wrong `adapter_config.json`, a list of 1: "),
    "no JSON": ({}, lambda folder: write_config(folder, "{"), "a wrong `adapter_config.json`, "),
    "deep JSON": ({}, lambda folder: write_config(folder, "[" * 100_000), "a wrong `adapter_config.json`, "),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_adapter_is_refused_with_what_is_wrong_and_changes_no_other_answer(
    tmp_path: Path, generator: Generator, kind: str
):
    settings, break_it, words = BROKEN[kind]
    folder = make_adapter(tmp_path / "a-0001", 1, **settings)
    break_it(folder)
    alone = texts(generator, chat("w1"))
    broken, base = answered(generator, chat("w1", folder), chat("w1"))
    assert (broken.finish_reason, broken.text) == ("adapter", "")
    assert broken.error.startswith("the adapter a-0001 ")
    assert words in broken.error
    assert len(broken.error) < 300
    assert str(tmp_path) not in broken.error
    assert base.text == alone[0]


def test_alpha_is_the_rank_where_it_is_not_given(tmp_path: Path, generator: Generator):
    given = make_adapter(tmp_path / "a-0001", 1, lora_alpha=2)
    left = make_adapter(tmp_path / "a-0002", 1, lora_alpha=None, alpha_pattern=None)
    assert texts(generator, chat("w1 w2", given)) == texts(generator, chat("w1 w2", left))


def test_pieces_are_the_answer_and_come_before_it(generator: Generator, adapters: list[Path]):
    asked = [
        chat("w5 w6", adapters[1], stream=True, max_tokens=20),
        chat("w8", stream=True, max_tokens=20, stop=("w7 w", "w12")),
        chat("w8 w9", max_tokens=20),
        chat("w2", stream=True, max_tokens=20, temperature=1.0, seed=3),
    ]
    told: dict[int, list[str]] = {i: [] for i in range(4)}
    found = answer_batch(generator, asked, 60.0, lambda part: told[part[0]].append(part[1]))
    assert ["".join(told[i]) for i in (0, 1, 3)] == [found[i].text for i in (0, 1, 3)]
    assert told[2] == []
    assert len(told[0]) > 5
    first, whole = found[0].first_token_ms, found[0].latency_ms
    assert first is not None
    assert first < whole
    assert found[2].first_token_ms is None


def test_a_process_answers_with_adapters_streams_and_scores(
    tiny: Path, adapters: list[Path], tmp_path: Path
):
    copied = Path(shutil.copytree(adapters[0], tmp_path / "assistant-0000"))
    model = LocalModel(ModelFiles(folder=tiny, gguf=None))
    try:
        pieces: list[str] = []
        asked = chat("w1 w2", copied, stream=True)
        first = model.ask(asked, 60.0, pieces.append).result(600)
        assert "".join(pieces) == first.text
        base = model.ask(chat("w1 w2"), 60.0).result(60)
        assert base.text != first.text
        shutil.rmtree(copied)  # it was read, and its name never stands for another
        assert model.ask(asked, 60.0).result(60).text == first.text
        gone = model.ask(chat("w1", tmp_path / "assistant-0001"), 60.0).result(60)
        assert (gone.finish_reason, gone.text) == ("adapter", "")
        scored = model.ask(
            ScoreRequest(messages=asked.messages, response=first.text), 60.0
        ).result(60)
        assert scored.finish_reason == "scored"
        assert scored.completion_tokens == len(scored.logprobs or ()) > 0
    finally:
        model.close()
