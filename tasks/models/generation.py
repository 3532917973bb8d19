"""Batched generation with a causal language model: shared prefixes, sampling.

Prompts with a common prefix share its keys and values: the model reads the prefix once for all
rows of a batch, and the newest prefixes are cached for later batches. Rows are padded between
prefix and rest, so that all end in the same column. A finished row leaves the batch.

An answer at temperature 0 does not depend on the other rows. Sums in other shapes differ in their
last bits, which matters only if two tokens are almost equally likely. So a row that met a gap
below ``NEAR_TIE`` between its two largest logits is answered again alone, without cache or
padding.

Rows of a call have one adapter. Keys and values depend on it, so each adapter has its own
prefixes.
"""

import copy
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import torch

from tasks.models.lora import AdapterError, Lora
from tasks.models.requests import ChatRequest

NEAR_TIE: Final = 1e-3
"""Logit difference whose sign rounding may flip; errors of a batch are about 1e-5."""
MAX_CACHE_BYTES: Final = 512 << 20
"""Maximum bytes of keys and values in one batch; more rows wait for the next batch."""
N_PREFIXES: Final = 4
"""Maximum cached prefixes."""
N_ADAPTERS: Final = 4
"""Maximum cached adapters."""
MIN_PREFIX: Final = 8
"""Minimum tokens of a shared prefix; a shorter one does not justify a separate pass."""
CHUNK: Final = 512
"""Tokens of a prefix per pass, which bounds the attention matrix."""

Ids = tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Row:
    """One answer during its generation."""

    prompt: Ids
    head: Ids
    """Prompt's start before its last message; rows with the same head share a batch."""
    request: ChatRequest
    """Request with its sampling settings."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each token at temperature 1, nats; empty if not requested."""
    finish_reason: str | None = None
    """``stop``, ``length`` or ``timeout``; ``None`` while unfinished."""
    text: str = ""
    near_tie: bool = False
    ended_s: float = 0.0
    generator: torch.Generator | None = None
    on_text: Callable[[str], object] | None = None
    """Called with each final piece of the text; ``None`` without streaming."""
    told: str = ""
    """Text already streamed."""
    begun_s: float | None = None
    """Time of the first streamed piece, in seconds; ``None`` before it."""
    is_alone: bool = False
    """Whether the row is answered for the second time, alone."""

    def tell(self) -> None:
        """Stream the text that is final and not yet streamed.

        An unfinished row withholds text that may be half a character or part of a stop word. It
        also withholds everything after a near tie, because it is answered again.
        """
        if self.on_text is None or (self.near_tie and not self.is_alone):
            return
        end = len(self.text)
        if self.finish_reason is None:
            longest = max(map(len, self.request.stop), default=1)
            end = min(len(self.text.rstrip("\ufffd")), len(self.text) - longest + 1)
        if end > len(self.told) and self.text.startswith(self.told):
            self.begun_s = self.begun_s or time.monotonic()
            piece, self.told = self.text[len(self.told) : end], self.text[:end]
            self.on_text(piece)


class Generator:
    """A model and its tokenizer; one thread uses it."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model = model
        self._tokenizer = tokenizer
        config = model.config
        n_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self._token_bytes = 2 * config.num_hidden_layers * n_heads * width * 4
        self.context_tokens: int = config.max_position_embeddings
        self._ends = _end_tokens(model, tokenizer)
        self._adapters: OrderedDict[Path, Lora] = OrderedDict()
        self._adapter: Path | None = None
        self._prefixes: OrderedDict[tuple[Path | None, Ids], Any] = OrderedDict()

    def use(self, adapter: Path | None) -> None:
        """Answer with an adapter from now on; ``None`` selects the base model.

        Recent adapters are cached, because the adapter in a folder never changes.

        Raises:
            AdapterError: it cannot be loaded; nothing has changed.
        """
        if adapter == self._adapter:
            return
        if adapter is not None and adapter not in self._adapters:
            self._adapters[adapter] = Lora(adapter, self._model)
        if self._adapter is not None:
            self._adapters[self._adapter].detach()
        self._adapter = adapter
        if adapter is not None:
            self._adapters[adapter].attach()
            self._adapters.move_to_end(adapter)
        while len(self._adapters) > N_ADAPTERS:
            gone, _ = self._adapters.popitem(last=False)
            for key in [key for key in self._prefixes if key[0] == gone]:
                del self._prefixes[key]

    def row(self, request: ChatRequest) -> Row:
        """Return an unanswered row for a chat."""
        messages = request.messages
        prompt = self._encode(messages, is_whole=True)
        head = self._encode(messages[:-1], is_whole=False) if len(messages) > 1 else ()
        return Row(prompt=prompt, head=_shared([prompt, (*head, -1)]), request=request)

    def _encode(self, messages: Sequence[dict[str, str]], *, is_whole: bool) -> Ids:
        """Return the tokens of a chat, up to the start of the answer if it is whole."""
        text = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=is_whole, tokenize=False
        )
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def score(self, messages: Sequence[dict[str, str]], response: str) -> list[float]:
        """Return the log-probability of each token of an answer and of its end, at temperature 1, nats.

        Raises:
            ValueError: chat and answer are longer than the model's context.
        """
        prompt = self._encode(messages, is_whole=True)
        response_ids = self._tokenizer(response, add_special_tokens=False)["input_ids"]
        tokens = (*response_ids, self._tokenizer.eos_token_id)
        n = len(prompt) + len(tokens)
        if n > self.context_tokens:
            raise ValueError(
                f"prompt and answer have {n} tokens, more than the model's {self.context_tokens}"
            )
        with torch.inference_mode():
            logits = self._model(
                input_ids=torch.tensor([prompt + tokens]),
                use_cache=False,
                logits_to_keep=len(tokens) + 1,
            ).logits[0, :-1]  # (tokens, vocabulary)
            self._check_finite(logits)
            log_probs = logits.float().log_softmax(-1)[torch.arange(len(tokens)), list(tokens)]
        return [float(number) for number in log_probs]

    def answer(self, rows: Sequence[Row], deadline_s: float) -> None:
        """Fill in the answers of rows, with the current adapter.

        Args:
            rows: Rows with any prompts; a call with common prefixes is fastest.
            deadline_s: Deadline by ``time.monotonic``; rows unfinished then end as ``timeout``.

        Raises:
            RuntimeError: PyTorch fails, or the model's numbers are not finite.
        """
        ordered = sorted(rows, key=lambda row: (row.head, row.prompt))
        with torch.inference_mode():
            for _, group in groupby(ordered, key=lambda row: row.head):
                waiting = [*group]
                while waiting:
                    n = self._fitting(waiting)
                    self._batch(waiting[:n], deadline_s)
                    waiting = waiting[n:]
            for row in rows:
                if row.near_tie and row.finish_reason != "timeout":
                    self._alone(row, deadline_s)

    def _fitting(self, rows: Sequence[Row]) -> int:
        """Return how many leading rows fit into one batch."""
        longest = 0
        for n, row in enumerate(rows, start=1):
            longest = max(longest, len(row.prompt) + row.request.max_tokens)
            if n * longest * self._token_bytes > MAX_CACHE_BYTES:
                return max(1, n - 1)
        return len(rows)

    def _batch(self, rows: Sequence[Row], deadline_s: float) -> None:
        prefix = rows[0].head if len(rows) == 1 else _shared([row.prompt for row in rows])
        cache, n_prefix = self._read_prefix(prefix)
        rests = [row.prompt[n_prefix:] for row in rows]
        width = max(map(len, rests))
        ids = torch.tensor(
            [[0] * (width - len(rest)) + list(rest) for rest in rests]
        )  # (rows, width)
        real = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rests])
        mask = torch.cat([torch.ones(len(rows), n_prefix, dtype=torch.long), real], dim=1)
        positions = n_prefix + (real.cumsum(1) - 1).clamp(min=0)
        if cache is not None:
            cache.batch_repeat_interleave(len(rows))
        self._decode([*rows], ids, mask, positions, cache=cache, deadline_s=deadline_s)

    def _alone(self, row: Row, deadline_s: float) -> None:
        """Answer a row again as if it were the only request."""
        row.tokens, row.logprobs, row.finish_reason, row.text = [], [], None, ""
        row.is_alone = True
        ids = torch.tensor([row.prompt])
        positions = torch.arange(len(row.prompt))[None]
        self._decode(
            [row], ids, torch.ones_like(ids), positions, cache=None, deadline_s=deadline_s
        )

    def _decode(
        self,
        rows: list[Row],
        ids: torch.Tensor,
        mask: torch.Tensor,
        positions: torch.Tensor,
        *,
        cache: Any,
        deadline_s: float,
    ) -> None:
        """Generate until every row is finished; all rows end in the last column of ``ids``."""
        while rows:
            out = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                cache=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache, logits = out.cache, out.logits[:, -1].float()  # (rows, vocabulary)
            self._check_finite(logits)
            is_late = time.monotonic() > deadline_s
            tokens = [self._next(row, logits[i]) for i, row in enumerate(rows)]
            for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
                if row.request.logprobs and token not in self._ends:
                    row.logprobs.append(float(logits[i].log_softmax(-1)[token]))
                self._extend(row, token, is_late=is_late)
            open_ = [i for i, row in enumerate(rows) if row.finish_reason is None]
            if len(open_) < len(rows):
                rows, tokens = [rows[i] for i in open_], [tokens[i] for i in open_]
                kept = torch.tensor(open_, dtype=torch.long)
                mask, positions = mask[kept], positions[kept]
                if open_:
                    cache.batch_select_indices(kept)
            ids = torch.tensor(tokens, dtype=torch.long)[:, None]
            positions = positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones(len(rows), 1, dtype=torch.long)], dim=1)

    def _check_finite(self, logits: torch.Tensor) -> None:
        """Check that the logits of the next tokens are finite.

        Raises:
            AdapterError: a number is not finite, with an adapter.
            RuntimeError: a number is not finite, without an adapter.
        """
        if bool(torch.isfinite(logits).all()):
            return
        if self._adapter is not None:
            name = self._adapter.name
            raise AdapterError(
                f"the adapter {name} makes numbers of the model that are not finite"
            )
        raise RuntimeError("the model's numbers are not finite")

    def _extend(self, row: Row, token: int, *, is_late: bool) -> None:
        """Add a token to an answer, and finish the answer if it ends there."""
        if token in self._ends:
            row.finish_reason = "stop"
        else:
            row.tokens.append(token)
            row.text = self._tokenizer.decode(
                row.tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            cuts = [at for word in row.request.stop if (at := row.text.find(word)) >= 0]
            if cuts:
                row.text, row.finish_reason = row.text[: min(cuts)], "stop"
            elif len(row.tokens) >= row.request.max_tokens:
                row.finish_reason = "length"
        if row.finish_reason is None and is_late:
            row.finish_reason = "timeout"
        if row.finish_reason is not None:
            row.ended_s = time.monotonic()
        row.tell()

    def _next(self, row: Row, logits: torch.Tensor) -> int:
        """Return the next token of a row."""
        request = row.request
        if request.temperature <= 0:
            best, at = logits.topk(2)
            row.near_tie |= bool(best[0] - best[1] < NEAR_TIE)
            return int(at[0])
        if row.generator is None:
            row.generator = torch.Generator()
            if request.seed is None:
                row.generator.seed()
            else:
                row.generator.manual_seed(request.seed)
        p, order = torch.softmax(logits / request.temperature, dim=-1).sort(descending=True)
        if request.top_k is not None:
            p[request.top_k :] = 0.0
        p[p.cumsum(0) - p > request.top_p] = 0.0  # the most likely token always stays
        drawn = torch.multinomial(p, 1, generator=row.generator)
        return int(order[drawn])

    # -- prefixes

    def _read_prefix(self, prefix: Ids) -> tuple[Any, int]:
        """Return a prefix's cache for one row and its length; (None, 0) if it is too short."""
        from transformers import DynamicCache  # noqa: PLC0415 - takes seconds

        if len(prefix) < MIN_PREFIX:
            return None, 0
        key = (self._adapter, prefix)
        if key not in self._prefixes:
            cache = DynamicCache(config=self._model.config)
            prefixes = [kept for adapter, kept in self._prefixes if adapter == self._adapter]
            nearest = max(prefixes, key=lambda kept: len(_shared([kept, prefix])), default=())
            n = len(_shared([nearest, prefix]))
            if n >= MIN_PREFIX:
                cache = copy.deepcopy(self._prefixes[self._adapter, nearest])
                cache.crop(n - len(nearest) if n < len(nearest) else n)
            else:
                n = 0
            for start in range(n, len(prefix), CHUNK):
                ids = torch.tensor([prefix[start : start + CHUNK]])
                positions = torch.arange(start, start + ids.shape[1])[None]
                self._model(
                    input_ids=ids,
                    position_ids=positions,
                    cache=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
            self._prefixes[key] = cache
            while len(self._prefixes) > N_PREFIXES:
                self._prefixes.popitem(last=False)
        self._prefixes.move_to_end(key)
        return copy.deepcopy(self._prefixes[key]), len(prefix)


def _shared(prompts: Sequence[Ids]) -> Ids:
    """Return the common prefix of all prompts, without the last token of the shortest."""
    first, last = min(prompts), max(prompts)
    n = 0
    most = min(map(len, prompts)) - 1
    while n < most and first[n] == last[n]:
        n += 1
    return first[:n]


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end an answer."""
    tokens: set[int] = set()
    for holder in (model.config, model.generation_config, tokenizer):
        ends = getattr(holder, "eos_token_id", None)
        tokens.update(ends if isinstance(ends, list) else () if ends is None else (ends,))
    return frozenset(tokens)
