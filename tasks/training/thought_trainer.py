"""Trainer of thoughts, rewarded by how much more likely they make what follows.

Reinforcement learning pre-training (RLP, arXiv 2510.01265) with an adapter: one model writes a thought to a
prompt and predicts, with the thought before it, what came after. A thought that says nothing of what comes
earns 0. The adapter before it, lagging behind, predicts without a thought: were it the same weights, to
predict badly without thoughts would be a way to earn.

Departures: what follows is a text, not one token; advantages are clipped; the passes over the thoughts of a
step end once the policy has moved by ``MOST_KL`` from that which wrote them.

Notation
    x    what follows;  c a thought;  G thoughts to one prompt
    r    log p(x | c) - log p0(x), nats: p0 the lagging weights, without a thought (eq. 5)
    A    G/(G-1) (r - mean r), over the thoughts to one prompt (eq. 7)
    rho  probability of a token of a thought over that when it was written
    loss  -mean over thoughts of 1/|c| sum_u min(rho_u A, clip(rho_u, 1 - e, 1 + e) A) (eq. 8)
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch

from convergence_core.rlp.advantage import group_advantages
from tasks.training import job_folder
from tasks.training.jobs import TrainingRow, TrainingSettings, TrainingStep, predicting
from tasks.training.tokenized_rows import Ids, end_token, prompt_ids, text_ids

Tensor: TypeAlias = torch.Tensor

LAG: Final = 0.999
"""Share of the lagging weights that each step keeps (the paper's tau)."""
CLIP: Final = 0.2
"""e, which the paper does not state."""
N_PASSES: Final = 2
"""Over the thoughts of a step."""
MOST_KL: Final = 0.05
"""Mean divergence per token from the policy that wrote the thoughts, nats."""
STATE: Final = "thoughts.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenThought:
    """A thought to the prompt of a row."""

    row: TrainingRow
    prompt: Ids
    tokens: Ids
    """With the token of its end, unless it was cut."""
    text: str


def clipped_loss(logps: Tensor, old: Tensor, mask: Tensor, advantages: Tensor) -> Tensor:
    """Return the loss of some thoughts; see the module.

    Args:
        logps: of the thoughts' tokens, shape (n thoughts, width).
        old: the same when they were written.
        mask: 1 where a token is, 0 where there is none.
        advantages: shape (n thoughts,).
    """
    ratio = ((logps - old) * mask).exp()
    a = advantages[:, None]
    gain = torch.minimum(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a)
    return -((gain * mask).sum(-1) / mask.sum(-1)).mean()  # (RLP eq. 8)


class ThoughtTrainer:
    """Model with an adapter that learns to think."""

    def __init__(
        self,
        *,
        model: Any,
        tokenizer: Any,
        rows: Sequence[TrainingRow],
        settings: TrainingSettings,
        folder: Path,
        report: Callable[[TrainingStep], None],
        wants_pause: Callable[[], bool],
    ) -> None:
        """Prepare.

        Args:
            model: with an adapter that is trained.
            tokenizer: of the model.
            rows: in the order in which they are read.
            settings: of the job.
            folder: of the job.
            report: is told of each step.
            wants_pause: asked after each step.
        """
        self.model = model
        self._tokenizer, self._rows, self._settings = tokenizer, rows, settings
        self._folder, self._report, self._wants_pause = folder, report, wants_pause
        self._end = end_token(tokenizer)
        self._parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(), lr=settings.learning_rate, weight_decay=0.0
        )
        self._lagging: dict[str, Tensor] = {}

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        """Train to the last step, or to a pause.

        Raises:
            ValueError: a loss is no number.
        """
        self.model.eval()  # nothing is drawn but thoughts
        self._lagging = {
            n: p.detach().clone() for n, p in self._parameters.items()
        }  # phi <- theta
        first = 1
        if resume_from_checkpoint is not None:
            first = self._restored(Path(resume_from_checkpoint)) + 1
        settings = self._settings
        for step in range(first, settings.steps + 1):
            result = self._step(step)
            job_folder.add_step(self._folder, result)
            self._report(result)
            pauses = self._wants_pause()
            if pauses or step % settings.checkpoint_steps == 0:
                self._save(step)
            if pauses:
                return

    def _step(self, step: int) -> TrainingStep:
        settings = self._settings
        rng = np.random.default_rng(
            [settings.seed, step]
        )  # of the step alone: a resumed one is the same
        torch.manual_seed(int(rng.integers(2**62)))
        rows = self._drawn(step)
        thoughts = self._written(rows)
        rewards = self._rewards(rows, thoughts)  # (n rows, n thoughts)
        advantages = np.concatenate([group_advantages(r, 1.0) for r in rewards])  # (eq. 7)
        rate = settings.learning_rate * (1 - (step - 1) / settings.steps)
        loss, kl = self._updated(thoughts, advantages, rate, rng)
        if not math.isfinite(loss):
            raise ValueError(f"the loss of step {step} is {loss}: the learning rate is too high")
        with torch.no_grad():
            for name, lagging in self._lagging.items():  # phi <- tau phi + (1 - tau) theta
                lagging.lerp_(self._parameters[name], 1 - LAG)
        return TrainingStep(step=step, loss=loss, kl_nats=kl, gain_nats=float(rewards.mean()))

    def _drawn(self, step: int) -> list[TrainingRow]:
        """Return the rows of a step: all in turn, each time in another order."""
        n, size = len(self._rows), self._settings.batch_size
        drawn = []
        for k in range((step - 1) * size, step * size):
            order = np.random.default_rng([self._settings.seed, 0, k // n]).permutation(n)
            drawn.append(self._rows[order[k % n]])
        return drawn

    def _written(self, rows: Sequence[TrainingRow]) -> list[WrittenThought]:
        """Sample thoughts, those to one row beside each other."""
        settings = self._settings
        written = []
        for row in rows:
            prompt = prompt_ids(self._tokenizer, row.messages)
            room = min(settings.thought_tokens, settings.max_seq_length - len(prompt))
            ids = torch.tensor([prompt])
            with torch.no_grad():
                out = self.model.generate(
                    input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True,
                    temperature=settings.thought_temperature, top_k=0, top_p=1.0,
                    num_return_sequences=settings.n_thoughts, max_new_tokens=room,
                    eos_token_id=self._end, pad_token_id=self._end,
                )  # fmt: skip
            for token_ids in out[:, len(prompt) :].tolist():
                tokens = (
                    token_ids[: token_ids.index(self._end) + 1]
                    if self._end in token_ids
                    else token_ids
                )
                text = self._tokenizer.decode(tokens, skip_special_tokens=True).strip()
                written.append(WrittenThought(row=row, prompt=prompt, tokens=tokens, text=text))
        return written

    def _rewards(
        self, rows: Sequence[TrainingRow], thoughts: Sequence[WrittenThought]
    ) -> np.ndarray:
        """Return r of each thought, shape (n rows, n thoughts)."""
        with_thought = self._outcome_logps([(thought.row, thought.text) for thought in thoughts])
        with self._lagged():
            without = self._outcome_logps([(row, None) for row in rows])
        gained: np.ndarray = with_thought.reshape(len(rows), -1) - without[:, None]  # (eq. 5)
        return gained

    def _outcome_logps(self, outcomes: Sequence[tuple[TrainingRow, str | None]]) -> np.ndarray:
        """Return log p(what follows) by the weights in use, nats, shape (n asked,)."""
        pairs = [
            (
                prompt_ids(self._tokenizer, predicting(row, thought)),
                [*text_ids(self._tokenizer, row.response), self._end],
            )
            for row, thought in outcomes
        ]
        log_probs = []
        size = self._settings.batch_size
        with torch.no_grad():
            for start in range(0, len(pairs), size):
                logps, mask = self._logps(pairs[start : start + size], 1.0)
                log_probs += (logps * mask).sum(-1).tolist()
        return np.array(log_probs)

    def _logps(
        self, pairs: Sequence[tuple[Ids, Ids]], temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of the tokens after each prompt and where they are, (n, width)."""
        width, n_after = max(len(a) + len(b) for a, b in pairs), max(len(b) for _, b in pairs)
        ids = torch.zeros(len(pairs), width, dtype=torch.long)
        attention = torch.zeros_like(ids)
        after = torch.zeros(len(pairs), n_after, dtype=torch.long)
        mask = torch.zeros(len(pairs), n_after)
        places = torch.zeros(len(pairs), n_after, dtype=torch.long)
        for i, (prompt, tokens) in enumerate(pairs):
            whole, n = len(prompt) + len(tokens), len(tokens)
            ids[i, :whole] = torch.tensor([*prompt, *tokens])
            attention[i, :whole] = 1
            after[i, :n] = torch.tensor(tokens)
            mask[i, :n] = 1
            places[i, :n] = torch.arange(len(prompt) - 1, whole - 1)
        logits = self.model(input_ids=ids, attention_mask=attention, use_cache=False).logits
        scaled = logits[torch.arange(len(pairs))[:, None], places] / temperature
        chosen = scaled.float().log_softmax(-1).gather(-1, after[..., None])[..., 0]
        return chosen, mask

    def _updated(
        self,
        thoughts: Sequence[WrittenThought],
        advantages: np.ndarray,
        rate: float,
        rng: np.random.Generator,
    ) -> tuple[float, float]:
        """Take the passes of a step; return mean loss and divergence of its minibatches."""
        settings, size = self._settings, self._settings.batch_size
        pairs = [(thought.prompt, thought.tokens) for thought in thoughts]
        temperature = settings.thought_temperature
        with torch.no_grad():
            old = [self._logps([pair], temperature)[0][0] for pair in pairs]
        losses, kls = [], []
        for _ in range(N_PASSES):
            order = rng.permutation(len(pairs))
            for start in range(0, len(pairs), size):
                chosen = order[start : start + size]
                logps, mask = self._logps([pairs[i] for i in chosen], temperature)
                before = torch.nn.utils.rnn.pad_sequence(
                    [old[i] for i in chosen], batch_first=True
                )
                given = torch.tensor(advantages[chosen], dtype=torch.float32)
                loss = clipped_loss(logps, before, mask, given)
                moved = (logps - before).detach() * mask
                kls.append(float(((moved.exp() - 1 - moved) * mask).sum() / mask.sum()))
                losses.append(float(loss.detach()))
                if kls[-1] > MOST_KL or not math.isfinite(losses[-1]):
                    return float(np.mean(losses)), float(np.mean(kls))
                self._optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(
                    self._parameters.values(), settings.max_gradient_norm
                )
                for group in self._optimizer.param_groups:
                    group["lr"] = rate
                self._optimizer.step()
        return float(np.mean(losses)), float(np.mean(kls))

    @contextmanager
    def _lagged(self) -> Iterator[None]:
        """Predict by the lagging weights."""
        now = {n: p.detach().clone() for n, p in self._parameters.items()}
        self._put(self._lagging)
        try:
            yield
        finally:
            self._put(now)

    def _put(self, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(weights[name])

    def _save(self, step: int) -> None:
        path = self._folder / f"{job_folder.CHECKPOINT}{step}"
        self.model.save_pretrained(path, save_embedding_layers=False)
        state = {
            "step": step,
            "weights": {n: p.detach() for n, p in self._parameters.items()},
            "lagging": self._lagging,
            "optimizer": self._optimizer.state_dict(),
        }
        torch.save(state, path / STATE)
        job_folder.complete_checkpoint(self._folder, step)

    def _restored(self, checkpoint: Path) -> int:
        state = torch.load(checkpoint / STATE, weights_only=True)
        self._put(state["weights"])
        self._lagging = state["lagging"]
        self._optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])
