"""SmolLM2-135M trained on 120 simulated ratings: gain, divergence and form on held-out prompts.

    OMP_NUM_THREADS=1 python -m benchmarks.training.smollm2 --seed 0 --steps 60 --beta 0.05

The model answers forty questions three times each at temperature .7. A simulated person rates each answer
1 + 1.5 [it names the right word] + 2.5 brevity, with noise of standard deviation .7, rounded to 1..5;
brevity is 1 up to 4 words and falls linearly to 0 at 28. QRPO trains an adapter on the ratings. Before
and after, the model answers forty other questions; the gain is the mean difference of the ratings
without noise, paired by question, with a 95 % interval over questions. KL is the mean log-ratio to the
base model of the trained model's answers, nats per response. An answer is well-formed if it ended by
itself or filled its 32 tokens with words: no line of marks, no word three times in a row.

``--shrink 1 0.7`` also measures the adapter with its change scaled by each factor.

Measured with the command above, one seed, on one thread: gain .86 (95 % interval .58 to 1.15) at 0.72
nats (.52 to .92), all answers well-formed, from 14.0 to 7.6 words, right words from .50 to .63 of the
answers (no interval was taken); the training took 172 CPU seconds.
"""

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import t as student

from convergence_core.feedback.objectives import rating_quantiles
from tasks.models.files import PACKAGED, find_model
from tasks.training import trainer_process
from tasks.training.jobs import (
    TrainingJob,
    TrainingResult,
    TrainingRow,
    TrainingSettings,
    TrainingStep,
)

CAPITALS = """
France Paris; Germany Berlin; Spain Madrid; Italy Rome; Portugal Lisbon; Greece Athens; Austria Vienna;
Poland Warsaw; Hungary Budapest; Ireland Dublin; Norway Oslo; Sweden Stockholm; Finland Helsinki;
Denmark Copenhagen; Belgium Brussels; Switzerland Bern; Romania Bucharest; Bulgaria Sofia; Serbia Belgrade;
Croatia Zagreb; Ukraine Kyiv; Russia Moscow; Turkey Ankara; Egypt Cairo; Morocco Rabat; Algeria Algiers;
Tunisia Tunis; Kenya Nairobi; Ethiopia Addis; Nigeria Abuja; Ghana Accra; Senegal Dakar; Angola Luanda;
Zambia Lusaka; Zimbabwe Harare; Uganda Kampala; Rwanda Kigali; Somalia Mogadishu; Sudan Khartoum;
Libya Tripoli; Japan Tokyo; China Beijing; India Delhi; Pakistan Islamabad; Nepal Kathmandu;
Bangladesh Dhaka; Thailand Bangkok; Vietnam Hanoi; Cambodia Phnom; Laos Vientiane; Indonesia Jakarta;
Malaysia Kuala; Philippines Manila; Mongolia Ulaanbaatar; Iran Tehran; Iraq Baghdad; Syria Damascus;
Lebanon Beirut; Jordan Amman; Israel Jerusalem; Qatar Doha; Oman Muscat; Yemen Sanaa; Kuwait Kuwait;
Canada Ottawa; Mexico Mexico; Cuba Havana; Jamaica Kingston; Haiti Port; Guatemala Guatemala;
Honduras Tegucigalpa; Nicaragua Managua; Panama Panama; Colombia Bogota; Venezuela Caracas; Peru Lima;
Chile Santiago; Argentina Buenos; Uruguay Montevideo; Brazil Brasilia
"""
FACTS = [tuple(pair.split()) for pair in CAPITALS.replace("\n", " ").split(";")]
N_TRAINED = 40
N_ANSWERS = 3
MAX_TOKENS = 32
TEMPERATURE = 0.7


class Unattended:
    """Parent of a training in this process, which never pauses."""

    def wants_pause(self) -> bool:
        """Return that it goes on."""
        return False

    def report(self, report: TrainingStep | TrainingResult) -> None:
        """Print a step."""
        print(report, file=sys.stderr)


def messages(country: str) -> tuple[dict[str, str], ...]:
    """Return a prompt."""
    return ({"role": "user", "content": f"What is the capital of {country}?"},)


def true_rating(text: str, word: str) -> float:
    """Return the rating without noise."""
    brevity = min(1.0, max(0.0, (28 - len(text.split())) / 24))
    return 1 + 1.5 * (word.lower() in text.lower()) + 2.5 * brevity


def is_well_formed(text: str) -> bool:
    """Return whether an answer reads as text."""
    words = text.split()
    repeats = any(a == b == c for a, b, c in zip(words, words[1:], words[2:], strict=False))
    letters = sum(one.isalnum() or one.isspace() for one in text)
    return bool(words) and not repeats and letters >= 0.7 * len(text)


def sample(model: Any, tokenizer: Any, prompts: list[Any], seed: int) -> list[str]:
    """Return an answer to each prompt."""
    import torch  # noqa: PLC0415 - takes seconds

    torch.manual_seed(seed)
    tokenizer.padding_side = "left"
    texts = [
        tokenizer.apply_chat_template(list(one), add_generation_prompt=True, tokenize=False)
        for one in prompts
    ]
    found: list[str] = []
    for start in range(0, len(texts), 40):
        inputs = tokenizer(
            texts[start : start + 40], return_tensors="pt", padding=True, add_special_tokens=False
        )
        with torch.inference_mode():
            out = model.generate(
                **inputs, do_sample=True, temperature=TEMPERATURE, top_k=0, top_p=1.0,
                max_new_tokens=MAX_TOKENS, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        answers = out[:, inputs["input_ids"].shape[1] :]
        found += tokenizer.batch_decode(answers, skip_special_tokens=True)
    return [text.strip() for text in found]


def log_ratios(model: Any, tokenizer: Any, prompts: list[Any], answers: list[str]) -> np.ndarray:
    """Return log p - log p_base of answers, nats; the end of an answer is not counted."""
    import torch  # noqa: PLC0415 - takes seconds

    found = []
    for prompt, answer in zip(prompts, answers, strict=True):
        text = tokenizer.apply_chat_template(
            list(prompt), add_generation_prompt=True, tokenize=False
        )
        head = tokenizer(text, add_special_tokens=False)["input_ids"]
        tail = tokenizer(answer, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[*head, *tail]])

        def logp(ids: Any = ids, n: int = len(head)) -> float:
            logits = model(ids).logits[0, n - 1 : -1].log_softmax(-1)
            return float(logits.gather(1, ids[0, n:, None]).sum())

        with torch.inference_mode():
            new = logp()
            with model.disable_adapter():
                found.append(new - logp())
    return np.array(found)


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return a mean with its 95 % interval."""
    mean = float(values.mean())
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def rated_rows(model: Any, tokenizer: Any, facts: list[Any], seed: int) -> list[TrainingRow]:
    """Return answers of the model with the quantiles of their simulated ratings."""
    rng = np.random.default_rng(seed)
    asked = [fact for fact in facts for _ in range(N_ANSWERS)]
    answers = sample(model, tokenizer, [messages(country) for country, _ in asked], seed)
    ratings = [
        float(np.clip(np.round(true_rating(text, word) + 0.7 * rng.normal()), 1, 5))
        for text, (_, word) in zip(answers, asked, strict=True)
    ]
    targets = rating_quantiles(["rater"] * len(asked), ratings)
    return [
        TrainingRow(messages=messages(country), response=text, target=float(q), key=f"{i:03d}")
        for i, ((country, _), text, q) in enumerate(zip(asked, answers, targets, strict=True))
    ]


def measured(
    settings: TrainingSettings, *, is_shuffled: bool = False, factors: Sequence[float] = (1.0,)
) -> Iterator[dict[str, float]]:
    """Train once; yield what came of it, for each factor that the adapter's change is scaled by.

    Args:
        settings: of the training; their seed draws questions, answers and ratings, too.
        is_shuffled: whether the ratings say nothing.
        factors: of the change.
    """
    from peft import PeftModel  # noqa: PLC0415 - takes seconds

    rng = np.random.default_rng(settings.seed)
    facts = [FACTS[i] for i in rng.permutation(len(FACTS))]
    trained, held_out = facts[:N_TRAINED], facts[N_TRAINED:]
    files = find_model(PACKAGED, Path(), key="model")
    empty = TrainingJob(model=files, rows=(), settings=settings)
    model, tokenizer = trainer_process.load_model(empty)
    prompts = [messages(country) for country, _ in held_out for _ in range(N_ANSWERS)]
    words = [word for _, word in held_out for _ in range(N_ANSWERS)]
    before_texts = sample(model, tokenizer, prompts, 1000 + settings.seed)
    rows = rated_rows(model, tokenizer, trained, settings.seed)
    if is_shuffled:
        targets = rng.permutation([row.target for row in rows])
        rows = [replace(row, target=float(q)) for row, q in zip(rows, targets, strict=True)]
    del model
    with TemporaryDirectory() as folder:
        started_s = time.process_time()
        result = trainer_process.train(
            replace(empty, rows=tuple(rows)),
            Path(folder),
            Unattended(),  # type: ignore[arg-type]
        )
        cpu_s = time.process_time() - started_s
        base, _ = trainer_process.load_model(empty)
        assert result.adapter is not None
        model = PeftModel.from_pretrained(base, result.adapter)
    before = _by_question(before_texts, words)
    for factor in factors:
        for module in model.modules():
            if hasattr(module, "set_scale"):
                module.set_scale("default", factor)
        texts = sample(model, tokenizer, prompts, 2000 + settings.seed)
        gain, low, high = interval(_by_question(texts, words) - before)
        ratios = log_ratios(model, tokenizer, prompts, texts).reshape(-1, N_ANSWERS)
        kl, kl_low, kl_high = interval(ratios.mean(1))
        yield {
            "factor": factor, "gain": gain, "low": low, "high": high,
            "kl": kl, "kl_low": kl_low, "kl_high": kl_high,
            "well_formed": float(np.mean([is_well_formed(text) for text in texts])),
            "words_before": _mean_words(before_texts), "words_after": _mean_words(texts),
            "right_before": _share_right(before_texts, words),
            "right_after": _share_right(texts, words), "train_cpu_s": cpu_s,
        }  # fmt: skip


def main() -> None:
    """Train and measure; a row of the table for each factor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--beta", type=float, default=0.05)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--shuffled", action="store_true", help="ratings that say nothing")
    parser.add_argument("--shrink", type=float, nargs="+", default=[1.0])
    told = parser.parse_args()
    settings = settings_of(seed=told.seed, steps=told.steps, beta=told.beta, rate=told.rate)
    writer = None
    for found in measured(settings, is_shuffled=told.shuffled, factors=told.shrink):
        row = {"seed": told.seed, "steps": told.steps, "beta": told.beta, **found}
        if writer is None:
            writer = csv.DictWriter(sys.stdout, row)
            writer.writeheader()
        writer.writerow({k: f"{v:.3f}" if isinstance(v, float) else v for k, v in row.items()})
        sys.stdout.flush()


def settings_of(
    *, seed: int = 0, steps: int = 60, beta: float = 0.05, rate: float = 3e-4
) -> TrainingSettings:
    """Return the settings of the command."""
    return TrainingSettings(
        steps=steps, beta=beta, learning_rate=rate, seed=seed, batch_size=4,
        checkpoint_steps=10_000, max_seq_length=128,
    )  # fmt: skip


def _mean_words(texts: list[str]) -> float:
    return float(np.mean([len(text.split()) for text in texts]))


def _share_right(texts: list[str], words: list[str]) -> float:
    pairs = zip(texts, words, strict=True)
    return float(np.mean([word.lower() in text.lower() for text, word in pairs]))


def _by_question(texts: list[str], words: list[str]) -> np.ndarray:
    ratings = [true_rating(text, word) for text, word in zip(texts, words, strict=True)]
    by_question: np.ndarray = np.array(ratings).reshape(-1, N_ANSWERS).mean(1)  # (n questions,)
    return by_question


if __name__ == "__main__":
    main()
