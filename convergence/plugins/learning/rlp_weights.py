"""RLP on open weights, as the paper trains them: needs PyTorch (``pip install "…[training]"``).

One network theta writes a thought c and predicts what follows with it; a slow copy phi never sees a
thought (arXiv 2510.01265, section 2 and its equations 5, 7 and 8)::

    r(c)  = log p_theta(x | prefix, c) - log p_phi(x | prefix)          no gradient, nats
    A_i   = G / (G - 1) (r_i - mean r)                                 of a prefix's G thoughts
    loss  = - mean_i 1/|c_i| sum_u min(rho_u A_i, clip(rho_u, 1 - e_l, 1 + e_h) A_i)
    phi  <- tau phi + (1 - tau) theta                                  after each step

The sum runs over the tokens of thoughts alone: nothing is learned from the outcome but the reward.
rho is the ratio to the policy that the thoughts were drawn from, tempered as they were drawn. The
paper states no values for e_l and e_h; ours are the usual .2.

Texts are token ids throughout. The model is any causal one: rows are padded on the right, which
what stands before them cannot see.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

Tokens: TypeAlias = Sequence[int]
Logits: TypeAlias = Callable[[Any, torch.Tensor], torch.Tensor]
"""The model and ids (n, length) → logits (n, length, vocabulary)."""


def plain_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return logits (n, length, vocabulary), also of a model that wraps them, as transformers do."""
    found = model(ids)
    logits: torch.Tensor = getattr(found, "logits", found)
    return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsConfig:
    """Numbers of the training; defaults are the paper's (section 9 and table S.1)."""

    begin: tuple[int, ...]
    """Tokens between prefix and thought."""
    end: int
    """The token that ends a thought; one that is cut off is closed with it."""
    n_thoughts: int = 16
    """G, thoughts of each prefix; at least 2."""
    thought_length: int = 2048
    """Most tokens of a thought, its end not counted."""
    temperature: float = 0.7
    """Of thoughts."""
    decay: float = 0.999
    """tau, of the slow copy."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    n_epochs: int = 1
    """Steps on the same thoughts; with 1, every rho is 1."""
    pad: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers without meaning.

        Raises:
            ValueError: one of them is out of range.
        """
        for name, value, is_right, rule in (
            ("n_thoughts", self.n_thoughts, self.n_thoughts >= 2, "at least 2"),
            ("thought_length", self.thought_length, self.thought_length >= 1, "at least 1"),
            ("temperature", self.temperature, self.temperature > 0, "above 0"),
            ("decay", self.decay, 0 <= self.decay <= 1, "in [0, 1]"),
            ("clip_low", self.clip_low, 0 < self.clip_low < 1, "in (0, 1)"),
            ("clip_high", self.clip_high, self.clip_high > 0, "above 0"),
            ("n_epochs", self.n_epochs, self.n_epochs >= 1, "at least 1"),
        ):
            if not is_right:
                raise ValueError(f"`{name}` must be {rule}, but got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsStep:
    """What one step did."""

    loss: float
    """Before it."""
    mean_gain: float
    """Mean reward of its thoughts, nats."""
    gains: np.ndarray = field(repr=False)
    """Reward of every thought, (n_prefixes, G), nats."""
    thoughts: tuple[tuple[tuple[int, ...], ...], ...] = field(repr=False)
    """The thoughts, without their end, by prefix."""


class WeightsTrainer:
    """Trains a causal language model to write thoughts that predict."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        config: WeightsConfig,
        *,
        seed: int = 0,
        logits: Logits = plain_logits,
    ) -> None:
        """Begin with the slow copy equal to the model.

        Args:
            model: theta; trained in place.
            optimizer: over its parameters; the paper's learning rate is 1e-6, constant.
            config: numbers of the training.
            seed: of the thoughts that are drawn.
            logits: how the model is asked.
        """
        self.model = model
        self.slow = copy.deepcopy(model).requires_grad_(False)
        self._optimizer = optimizer
        self._config = config
        self._logits = logits
        self._generator = torch.Generator().manual_seed(seed)

    def step(self, prefixes: Sequence[Tokens], outcomes: Sequence[Tokens]) -> WeightsStep:
        """Think before each prefix's outcome, pay the thoughts, and take a step.

        Args:
            prefixes: token ids, none empty.
            outcomes: what followed each prefix, token ids, none empty.

        Raises:
            ValueError: there are none, or not as many outcomes as prefixes, or one is empty.
        """
        if not prefixes or len(prefixes) != len(outcomes):
            raise ValueError(
                f"as many outcomes as prefixes are needed, and one at least, but got "
                f"{len(prefixes)} and {len(outcomes)}"
            )
        if not all(prefixes) or not all(outcomes):
            raise ValueError("no prefix and no outcome may be empty")
        n, g = len(prefixes), self._config.n_thoughts
        starts = [[*p, *self._config.begin] for p in prefixes for _ in range(g)]
        thoughts = self._think(starts)
        gains = self._gains(prefixes, outcomes, starts, thoughts).reshape(n, g)
        centred = gains - gains.mean(axis=1, keepdims=True)
        advantages = torch.as_tensor((g / (g - 1.0) * centred).reshape(-1), dtype=torch.float32)
        with torch.no_grad():
            old = self._log_policy(starts, thoughts)
        first = None
        for _ in range(self._config.n_epochs):
            loss = self._loss(starts, thoughts, old, advantages)
            first = float(loss.detach()) if first is None else first
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        self._follow()
        assert first is not None  # noqa: S101 - there is an epoch
        shown = [tuple(tuple(c) for c in thoughts[i * g : (i + 1) * g]) for i in range(n)]
        return WeightsStep(
            loss=first, mean_gain=float(gains.mean()), gains=gains, thoughts=tuple(shown)
        )

    def gain(self, prefix: Tokens, outcome: Tokens, thought: Tokens) -> float:
        """Return r(c) of a given thought, nats (eq. 5)."""
        start = [[*prefix, *self._config.begin]]
        return float(self._gains([prefix], [outcome], start, [[*thought]])[0])

    def _think(self, starts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return one thought for each start, drawn token by token from the tempered model."""
        with torch.no_grad():
            thoughts: list[list[int]] = [[] for _ in starts]
            open_ones = list(range(len(starts)))
            for _ in range(self._config.thought_length):
                rows = [[*starts[i], *thoughts[i]] for i in open_ones]
                ids = self._padded(rows)
                last = torch.tensor([len(row) - 1 for row in rows])
                logits = self._logits(self.model, ids)[torch.arange(len(rows)), last]
                p = torch.softmax(logits.float() / self._config.temperature, dim=-1)
                drawn = torch.multinomial(p.cpu(), 1, generator=self._generator)[:, 0].tolist()
                still_open = []
                for i, token in zip(open_ones, drawn, strict=True):
                    if token != self._config.end:
                        thoughts[i].append(int(token))
                        still_open.append(i)
                open_ones = still_open
                if not open_ones:
                    break
            return thoughts

    def _gains(
        self,
        prefixes: Sequence[Tokens],
        outcomes: Sequence[Tokens],
        starts: Sequence[Sequence[int]],
        thoughts: Sequence[Sequence[int]],
    ) -> np.ndarray:
        with torch.no_grad():
            each = len(starts) // len(prefixes)
            expected = [outcome for outcome in outcomes for _ in range(each)]
            told = [[*s, *c, self._config.end] for s, c in zip(starts, thoughts, strict=True)]
            with_thought = self._log_likelihood(self.model, told, expected)
            silent = self._log_likelihood(self.slow, prefixes, outcomes).repeat_interleave(each)
            return np.asarray((with_thought - silent).cpu().numpy(), np.float64)

    def _log_likelihood(
        self, model: Any, before: Sequence[Tokens], after: Sequence[Tokens]
    ) -> torch.Tensor:
        """Return the log-probability of each text after the one before it, (n,)."""
        logs, inside = self._token_logs(model, before, after, 1.0)
        return (logs * inside).sum(dim=1)

    def _log_policy(
        self, starts: Sequence[Tokens], thoughts: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log pi of each token of each thought, its end included, and which those are."""
        ended = [self._closed(thought) for thought in thoughts]
        return self._token_logs(self.model, starts, ended, self._config.temperature)

    def _closed(self, thought: Sequence[int]) -> list[int]:
        """Return the tokens that were drawn: one that was cut off has drawn no end."""
        was_cut = len(thought) == self._config.thought_length
        return [*thought] if was_cut else [*thought, self._config.end]

    def _token_logs(
        self, model: Any, before: Sequence[Tokens], after: Sequence[Tokens], temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log p of each token of ``after`` and a mask, (n, longest) each."""
        ids = self._padded([[*b, *a] for b, a in zip(before, after, strict=True)])
        logs = torch.log_softmax(self._logits(model, ids[:, :-1]).float() / temperature, dim=-1)
        token_logs = logs.gather(2, ids[:, 1:, None])[:, :, 0]  # of token t + 1 at t
        place = torch.arange(ids.shape[1] - 1, device=ids.device)[None]
        first = torch.tensor([len(b) - 1 for b in before], device=ids.device)[:, None]
        size = torch.tensor([len(a) for a in after], device=ids.device)[:, None]
        return token_logs, ((place >= first) & (place < first + size)).float()

    def _loss(
        self,
        starts: Sequence[Tokens],
        thoughts: Sequence[Sequence[int]],
        old: tuple[torch.Tensor, torch.Tensor],
        advantages: torch.Tensor,
    ) -> torch.Tensor:
        """Return the clipped objective's negative (eq. 8)."""
        logs, inside = self._log_policy(starts, thoughts)
        rho = torch.exp(logs - old[0])
        low, high = 1.0 - self._config.clip_low, 1.0 + self._config.clip_high
        paid = advantages.to(logs.device)[:, None]
        gained = torch.minimum(rho * paid, rho.clamp(low, high) * paid) * inside
        return -(gained.sum(dim=1) / inside.sum(dim=1)).mean()

    def _follow(self) -> None:
        """Follow: phi <- tau phi + (1 - tau) theta; buffers are copied."""
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.model.parameters(), strict=True):
                slow.lerp_(fast, 1.0 - self._config.decay)
            for slow, fast in zip(self.slow.buffers(), self.model.buffers(), strict=True):
                slow.copy_(fast)

    def _padded(self, rows: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(len(row) for row in rows)
        padded = [[*row, *(self._config.pad,) * (longest - len(row))] for row in rows]
        device = next(self.model.parameters()).device
        return torch.tensor(padded, dtype=torch.long, device=device)
