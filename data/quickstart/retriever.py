"""Search the standard library's documentation: the function that the quick start tunes.

A question is scored against four fields of each document (name, signature, summary, body) with one
of bm25s's BM25 variants; the fields' scores are added under weights. Feedback may then add the
telling words of the first results to the question (pseudo-relevance feedback: Rocchio 1971 without
the negative part, with tf-idf weights over the summaries).

What is slow is built once and kept: the corpus per process, the counts per way of cutting text into
tokens, the index per (tokens, variant, k1, b, delta). Everything is a pure function of the text and
the settings; threads may call `search` together, and it serves them in turn.

Notation: tf term frequency, df document frequency, l_d length of document d in tokens, l_avg its
mean, N number of documents; k1, b, delta as in Kamphuis et al. 2020, whose formulas are bm25s's.
"""

import difflib
import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import bm25s
import numpy as np
import numpy.typing as npt
import Stemmer
from bm25s.scoring import _select_idf_scorer, _select_tfc_scorer
from bm25s.stopwords import STOPWORDS_EN

Variant = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]
Tokenizer = Literal["word", "identifier", "both", "char"]
StemmerName = Literal["none", "porter", "english"]
Expansion = Literal["none", "feedback"]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

FIELDS = ("name", "signature", "summary", "body")
N_FEEDBACK_DOCUMENTS = 5
# A generation's candidates must fit together, or each would be built again for every question.
N_KEPT_INDEXES = 64
N_KEPT_COUNTS = 64
CORPUS_TIMEOUT_S = 120

# A search is hundreds of numpy calls of microseconds: threads side by side would pass the interpreter
# lock about for half of their time. In turns they are faster, and nothing is built twice.
_ONE_AT_A_TIME = threading.RLock()

_WORD = re.compile(r"(?u)\b\w\w+\b")  # bm25s's own pattern
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W_A-Za-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be tuned. Defaults are bm25s's own, all fields alike, without expansion."""

    variant: Variant = "lucene"
    """Formula of the score."""
    k1: float = 1.5
    """How slowly repeated words stop counting; above 0."""
    b: float = 0.75
    """How much long documents are held back, in [0, 1]."""
    delta: float = 0.5
    """Shift of the term frequency, at least 0; bm25l only (in bm25s, the delta of bm25+ is added
    to every document alike and moves no ranking)."""
    tokenizer: Tokenizer = "word"
    """Words, the parts of identifiers (`OrderedDict` -> ordered, dict), both, or character
    n-grams."""
    char_ngram: int = 4
    """Length of the character n-grams; tokenizer char only."""
    word_ngram: int = 1
    """Longest run of neighbouring words that is a token, 1 or 2; not with tokenizer char."""
    stemmer: StemmerName = "none"
    """Snowball stemmer that cuts endings off."""
    removes_stop_words: bool = True
    """Whether bm25s's English stop words are dropped."""
    name_weight: float = 1.0
    """Weight of the dotted name and its aliases, at least 0."""
    signature_weight: float = 1.0
    """Weight of how the object is called, at least 0."""
    summary_weight: float = 1.0
    """Weight of the docstring's first paragraph, at least 0."""
    body_weight: float = 1.0
    """Weight of the rest of the docstring, at least 0."""
    expansion: Expansion = "none"
    """Whether words of the first results are added to the question."""
    expansion_terms: int = 10
    """How many words are added, at least 1; expansion feedback only."""
    expansion_weight: float = 0.3
    """Weight of all added words together, relative to the question's; expansion feedback only."""
    top_k: int = 10
    """How many results are returned, at least 1."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value outside its range."""
        choices = {
            "variant": get_args(Variant),
            "tokenizer": get_args(Tokenizer),
            "stemmer": get_args(StemmerName),
            "expansion": get_args(Expansion),
            "word_ngram": (1, 2),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"`{name}` must be one of {allowed}, but got {getattr(self, name)!r}."
                )
        for name in ("delta", *(f"{field}_weight" for field in FIELDS), "expansion_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must be at least 0, but got {getattr(self, name)!r}.")
        for name in ("char_ngram", "expansion_terms", "top_k"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"`{name}` must be at least 1, but got {getattr(self, name)!r}.")
        if not self.k1 > 0:
            raise ValueError(f"`k1` must be above 0, but got {self.k1!r}.")
        if not 0 <= self.b <= 1:
            raise ValueError(f"`b` must be in [0, 1], but got {self.b!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """How text is cut into tokens: all that the counts depend on. `length` is the n-grams'."""

    tokenizer: Tokenizer
    length: int
    stemmer: StemmerName
    removes_stop_words: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """The documents and, per field, the words of all of them in a row."""

    names: tuple[str, ...]
    sha256: str
    vocabulary: tuple[str, ...]
    """Every distinct word as written, the ids' meaning."""
    field_to_words: Mapping[str, Ints]  # (n_words_of_field,)
    field_to_documents: Mapping[str, Ints]
    """The document of each word."""  # (n_words_of_field,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How often each token stands in each document of one field, sorted by token, then document.

    Tokens are numbers: token t, or the pair (t, u) of neighbours as n_tokens * (t + 1) + u.
    """

    tokens: Ints
    """The distinct tokens, ascending."""  # (n_distinct,)
    starts: Ints
    """Where each token's postings begin; one more at the end."""  # (n_distinct + 1,)
    documents: npt.NDArray[np.int32]  # (n_postings,)
    frequencies: Floats  # (n_postings,)
    lengths: Floats
    """Tokens per document."""  # (n_documents,)

    def positions(self, tokens: Iterable[int]) -> list[int]:
        """Return the places in `tokens` of those that occur in this field."""
        wanted = np.fromiter(tokens, dtype=np.int64)
        found = np.searchsorted(self.tokens, wanted)
        inside = found < len(self.tokens)
        found, wanted = found[inside], wanted[inside]
        return found[self.tokens[found] == wanted].tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable:
    """The corpus under one way of cutting text."""

    settings: TokenSettings
    token_to_id: Mapping[str, int]
    field_to_counts: Mapping[str, Counts]


def search(request: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the dotted names of the best documents for `request["question"]`, best first.

    Args:
        request: A test case's input: `{"question": "..."}`.
        params: Fields of `Settings`; those left out keep their default, and those that the others
            make inactive have no effect.

    Raises:
        ValueError: A parameter is unknown or out of range, or the question is missing.
    """
    question = request.get("question")
    if not isinstance(question, str):
        raise ValueError(f"`question` must be text, but got {question!r}.")
    settings = _settings(params)
    with _ONE_AT_A_TIME:
        best = _best(_scores(question, settings), settings.top_k)
        return {"result": [corpus().names[i] for i in best]}


def corpus_sha256() -> str:
    """Return the hash of the documents: it differs where Python's version or build does."""
    return corpus().sha256


def _settings(params: Mapping[str, Any]) -> Settings:
    known = [field.name for field in fields(Settings)]
    for name in params:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}."
            raise ValueError(f"`{name}` is not a parameter of the retriever; {hint}")
    settings = Settings(**params)
    # bm25s would leave rounding noise of an inactive delta in the scores.
    return settings if settings.variant == "bm25l" else replace(settings, delta=0.0)


# --- the corpus -----------------------------------------------------------------------------------


def corpus() -> Corpus:
    """Return this Python's documents, read once per process.

    Raises:
        RuntimeError: The interpreter that reads the library failed.
    """
    with _ONE_AT_A_TIME:
        return _read_corpus()


@functools.lru_cache(maxsize=1)
def _read_corpus() -> Corpus:
    script = Path(__file__).with_name("corpus.py")
    done = subprocess.run(  # noqa: S603 - our own script, this interpreter
        [sys.executable, "-I", "-S", "-X", "utf8", str(script)],
        capture_output=True,
        check=False,
        timeout=CORPUS_TIMEOUT_S,
        env={**os.environ, "TERM": "dumb"},  # some terminals make readline print at import
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} failed: {done.stderr.decode(errors='replace').strip()}")
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    word_to_id: dict[str, int] = {}
    field_to_words, field_to_documents = {}, {}
    for field in FIELDS:
        words: list[int] = []
        lengths = []
        for document in documents:
            text = document[field]
            if field == "name":
                text = " ".join([text, *document["aliases"]])
            found = _WORD.findall(text)
            lengths.append(len(found))
            words += [word_to_id.setdefault(word, len(word_to_id)) for word in found]
        field_to_words[field] = np.array(words, dtype=np.int64)
        field_to_documents[field] = np.repeat(np.arange(len(documents)), lengths)
    return Corpus(
        names=tuple(document["name"] for document in documents),
        sha256=hashlib.sha256(done.stdout).hexdigest(),
        vocabulary=tuple(word_to_id),
        field_to_words=field_to_words,
        field_to_documents=field_to_documents,
    )


# --- tokens ---------------------------------------------------------------------------------------


def _token_settings(settings: Settings) -> TokenSettings:
    is_char = settings.tokenizer == "char"
    return TokenSettings(
        tokenizer=settings.tokenizer,
        length=settings.char_ngram if is_char else settings.word_ngram,
        stemmer=settings.stemmer,
        removes_stop_words=settings.removes_stop_words,
    )


def _tokens_of_words(words: Iterable[str], settings: TokenSettings) -> list[list[str]]:
    """Return the tokens that each word becomes: none, one or several."""
    stop_words = frozenset(STOPWORDS_EN) if settings.removes_stop_words else frozenset()
    cut = [
        [piece for piece in _pieces(word, settings.tokenizer) if piece not in stop_words]
        for word in words
    ]
    if settings.stemmer != "none":
        stem = Stemmer.Stemmer(settings.stemmer).stemWord  # not shared: it is not thread-safe
        cut = [[stem(piece) for piece in pieces] for pieces in cut]
    if settings.tokenizer == "char":
        cut = [
            [gram for piece in pieces for gram in _grams(piece, settings.length)] for pieces in cut
        ]
    return cut


def _pieces(word: str, tokenizer: Tokenizer) -> list[str]:
    whole = word.lower()
    if tokenizer in {"word", "char"}:
        return [whole]
    parts = [part.lower() for part in _PART.findall(word) if len(part) > 1]
    if tokenizer == "identifier":
        return parts
    return [whole, *(part for part in parts if part != whole)]


def _grams(word: str, length: int) -> list[str]:
    padded = f"<{word}>"
    return [padded[i : i + length] for i in range(max(1, len(padded) - length + 1))]


@functools.lru_cache(maxsize=N_KEPT_COUNTS)
def _table(settings: TokenSettings) -> TokenTable:
    """Cut the vocabulary, not the text: each distinct word is cut and stemmed once."""
    text = corpus()
    token_to_id: dict[str, int] = {}
    cut = [
        [token_to_id.setdefault(token, len(token_to_id)) for token in tokens]
        for tokens in _tokens_of_words(text.vocabulary, settings)
    ]
    counts_per_word = np.array([len(tokens) for tokens in cut], dtype=np.int64)
    flat = np.array([token for tokens in cut for token in tokens], dtype=np.int64)
    first = np.cumsum(counts_per_word) - counts_per_word
    has_pairs = settings.tokenizer != "char" and settings.length > 1
    field_to_counts = {}
    for field in FIELDS:
        words = text.field_to_words[field]
        repeats = counts_per_word[words]
        # The tokens of word w are flat[first[w] : first[w] + counts_per_word[w]].
        offsets = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        tokens = flat[np.repeat(first[words], repeats) + offsets]
        documents = np.repeat(text.field_to_documents[field], repeats)
        if has_pairs:
            within = documents[1:] == documents[:-1]
            pairs = len(token_to_id) * (tokens[:-1] + 1) + tokens[1:]
            tokens = np.concatenate([tokens, pairs[within]])
            documents = np.concatenate([documents, documents[1:][within]])
        field_to_counts[field] = _count(tokens, documents, len(text.names))
    return TokenTable(settings=settings, token_to_id=token_to_id, field_to_counts=field_to_counts)


def _count(tokens: Ints, documents: Ints, n_documents: int) -> Counts:
    # One sort of (token, document) as a single number gives postings, counts and distinct tokens.
    postings, frequencies = np.unique(tokens * n_documents + documents, return_counts=True)
    owners = postings // n_documents
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    return Counts(
        tokens=owners[starts],
        starts=np.append(starts, len(owners)),
        documents=(postings - owners * n_documents).astype(np.int32),
        frequencies=frequencies.astype(np.float32),
        lengths=np.bincount(documents, minlength=n_documents).astype(np.float32),
    )


def _tokens_of_question(question: str, table: TokenTable) -> list[int]:
    """Cut a question as the documents were; tokens that no document has are dropped."""
    cut = _tokens_of_words(_WORD.findall(question), table.settings)
    ids = [table.token_to_id.get(token, -1) for tokens in cut for token in tokens]
    pairs = []
    if table.settings.tokenizer != "char" and table.settings.length > 1:
        n_tokens = len(table.token_to_id)
        pairs = [n_tokens * (t + 1) + u for t, u in itertools.pairwise(ids) if min(t, u) >= 0]
    return [token for token in ids if token >= 0] + pairs


# --- the index ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=N_KEPT_INDEXES)
def _index(
    token_settings: TokenSettings, variant: Variant, k1: float, b: float, delta: float
) -> Mapping[str, bm25s.BM25]:
    return {
        field: _field_index(counts, variant, k1, b, delta)
        for field, counts in _table(token_settings).field_to_counts.items()
    }


def _field_index(
    counts: Counts, variant: Variant, k1: float, b: float, delta: float
) -> bm25s.BM25:
    """Fill a bm25s index from counts: the numbers `BM25.index` finds, without its loop over text.

    As there, postings hold the score less that of an absent term; what an absent term adds is the
    same for all documents, so we leave it out, and documents without a match stay at 0.
    """
    index = bm25s.BM25(k1=k1, b=b, delta=delta, method=variant)
    n_documents = len(counts.lengths)
    l_avg = float(counts.lengths.mean(dtype=np.float64))
    df = np.diff(counts.starts)
    distinct_df, which = np.unique(df, return_inverse=True)
    idf_of = _select_idf_scorer(variant)
    idf = np.array([idf_of(int(n), N=n_documents) for n in distinct_df])[which]  # (n_distinct,)
    tfc_of = functools.partial(_select_tfc_scorer(variant), l_avg=l_avg, k1=k1, b=b, delta=delta)
    tfc = tfc_of(tf_array=counts.frequencies, l_d=counts.lengths[counts.documents])
    if variant in index.methods_requiring_nonoccurrence:
        tfc = tfc - tfc_of(tf_array=0.0, l_d=l_avg)
    index.nonoccurrence_array = None
    index.scores = {
        "data": (np.repeat(idf, df) * tfc).astype(np.float32),
        "indices": counts.documents,
        "indptr": counts.starts,
        "num_docs": n_documents,
    }
    return index


# --- scores ---------------------------------------------------------------------------------------


def _scores(question: str, settings: Settings) -> Floats:
    table = _table(_token_settings(settings))
    tokens = _tokens_of_question(question, table)
    scores = _weighted_scores(tokens, table, settings)
    if settings.expansion == "feedback" and settings.expansion_weight > 0:
        added = _feedback_tokens(tokens, scores, table, settings.expansion_terms)
        if added:
            weight = settings.expansion_weight * len(tokens) / len(added)
            scores = scores + np.float32(weight) * _weighted_scores(added, table, settings)
    return scores


def _weighted_scores(tokens: list[int], table: TokenTable, settings: Settings) -> Floats:
    index = _index(table.settings, settings.variant, settings.k1, settings.b, settings.delta)
    scores = np.zeros(len(corpus().names), dtype=np.float32)
    for field, field_index in index.items():
        weight = getattr(settings, f"{field}_weight")
        found = table.field_to_counts[field].positions(tokens)
        if weight > 0 and found:
            scores += np.float32(weight) * field_index.get_scores_from_ids(found)
    return scores


def _feedback_tokens(
    tokens: list[int], scores: Floats, table: TokenTable, n_tokens: int
) -> list[int]:
    """Return the tokens of the first results' summaries with the highest summed tf * idf."""
    counts = table.field_to_counts["summary"]
    n_documents = len(counts.lengths)
    is_first = np.zeros(n_documents, dtype=bool)
    is_first[_best(scores, N_FEEDBACK_DOCUMENTS)] = True
    postings = np.flatnonzero(is_first[counts.documents])
    owners = np.searchsorted(counts.starts, postings, side="right") - 1
    places, which = np.unique(owners, return_inverse=True)
    tf = np.bincount(which, weights=counts.frequencies[postings])  # (n_places,)
    df = counts.starts[places + 1] - counts.starts[places]  # (n_places,)
    weights = tf * np.log(n_documents / df)
    weights[np.isin(places, counts.positions(tokens))] = 0.0
    order = np.argsort(-weights, kind="stable")[:n_tokens]
    return counts.tokens[places[order[weights[order] > 0]]].tolist()  # type: ignore[no-any-return]


def _best(scores: Floats, n: int) -> list[int]:
    """Return the documents with the `n` highest scores above 0, ties in the order of names."""
    n = min(n, len(scores))
    threshold = np.partition(scores, -n)[-n]
    candidates = np.flatnonzero((scores >= threshold) & (scores > 0))
    order = np.argsort(-scores[candidates], kind="stable")
    return candidates[order][:n].tolist()  # type: ignore[no-any-return]
