"""Writes thoughts and predicts with them: one model, many calls, nothing decided.

A thought that fails is an entry with a reason, and no text of ours ever stands in for it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from convergence_core.errors import EvaluationFault, EvaluatorFault, InfrastructureFault
from convergence_core.ports import Completion
from convergence_core.records import Candidate, Json, canonical_json, sha256_hex
from convergence_core.rlp.commitments import Forecasts, Thought
from convergence_core.rlp.history import History
from convergence_core.rlp.regions import Proposal, proposal_of
from convergence_core.rlp.scale import UNIT, Scale
from convergence_core.rlp.strategies import STRATEGIES, Strategy
from convergence_core.space import Space
from tasks.rlp.channel_probe import ChannelProbe, UseLogprobs, probe_channels, rungs_of
from tasks.rlp.model_calls import THOUGHT, Model, ThoughtAsker
from tasks.rlp.probability_channels import Channel, Prediction, PredictionSide
from tasks.rlp.prompts import Wording
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

CUT: Final = "length"
"""``finish_reason`` of a thought that was cut off: it is not scored."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A strategy drawn by the policy."""

    index: int
    action: int
    strategy: str
    log_old: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinker:
    """Settings of who thinks."""

    model: Model
    wording: Wording
    space: Space
    thought_length: int = 2048
    """Most tokens of a thought."""
    temperature: float | None = 0.7
    """Of thoughts; ``None``: not sent."""
    use_logprobs: UseLogprobs = "auto"

    async def probe_channels(self, asker: ThoughtAsker) -> ChannelProbe:
        """Return the best rung that the server can stand on."""
        return await probe_channels(
            self.model, self.wording, asker, allowed=rungs_of(self.use_logprobs)
        )

    async def think(
        self,
        drawn: Sequence[Drawn],
        history: History,
        *,
        generation: int,
        run_id: str,
        exemplars: Sequence[Thought],
        asker: ThoughtAsker,
    ) -> tuple[Thought, ...]:
        """Write the thoughts of a generation, all at once.

        Args:
            drawn: what the policy drew.
            history: all reveals; those of this generation and later are not shown.
            generation: its number.
            run_id: part of the thoughts' ids.
            exemplars: earlier thoughts to show.
            asker: makes the calls.
        """
        known = history.as_of(generation)
        ended = await asyncio.gather(
            *(self._one(one, known, generation, run_id, exemplars, asker) for one in drawn)
        )
        return tuple(ended)

    async def _one(  # noqa: PLR0917 - of one place
        self,
        drawn: Drawn,
        history: History,
        generation: int,
        run_id: str,
        exemplars: Sequence[Thought],
        asker: ThoughtAsker,
    ) -> Thought:
        thought = Thought(
            thought_id=sha256_hex(canonical_json([run_id, generation, "thought", drawn.index]))[
                :24
            ],
            generation=generation,
            index=drawn.index,
            action=drawn.action,
            strategy=drawn.strategy,
            log_old=drawn.log_old,
        )
        if thought.is_silent:
            return thought
        messages = self.wording.thinking(_strategy(drawn.strategy), history, self.space, exemplars)
        options: dict[str, Json] = {}
        if self.temperature is not None:
            options["temperature"] = self.temperature
        call = self.model.chat(
            THOUGHT,
            messages,
            limit=self.thought_length,
            repeat=drawn.index,
            read=_text,
            **options,
        )
        prompt = canonical_json([*messages])
        thought = replace(thought, prompt=prompt, prompt_sha256=sha256_hex(prompt))
        try:
            answered = await asker.ask(call, f"thought/{drawn.index}")
        except EvaluationFault as fault:
            return replace(thought, reason=_reason(fault))
        value: Any = answered.reply.value
        text = str(value["text"])
        reason = None
        if not text.strip():
            reason = "empty: the model wrote nothing"
        elif value["finish_reason"] == CUT:
            reason = f"cut off at {self.thought_length} tokens (`thought_length`)"
        proposal = proposal_of(text, self.space) if reason is None else Proposal()
        return replace(
            thought,
            text=text,
            sha256=sha256_hex(text),
            regions=proposal.regions,
            dropped=proposal.dropped,
            committed_us=answered.ended_us,
            tokens=answered.reply.usage.completion_tokens,
            cost_usd=answered.reply.cost_usd,
            reason=reason,
        )

    async def predict(
        self,
        channel: Channel,
        candidates: Sequence[Candidate],
        thoughts: Sequence[Thought],
        history: History,
        *,
        own: Mapping[str, Sequence[Candidate]],
        generation: int,
        scale: Scale = UNIT,
        asker: ThoughtAsker,
    ) -> "Predicted":
        """Ask for the outcomes of candidates, without a thought and with each, all at once.

        What a thought proposes itself is asked apart: it shapes the draws and earns nothing.

        Args:
            channel: the rung that stands.
            candidates: whose outcome is asked.
            thoughts: those to predict with.
            history: all reveals; those of this generation and later are not shown.
            own: thought → candidates of its own proposal.
            generation: its number.
            scale: where the bins lie.
            asker: makes the calls.
        """
        known = history.as_of(generation)

        context = self.wording.context(known, self.space)
        everybody = {
            c.candidate_id: c for c in (*candidates, *(c for of in own.values() for c in of))
        }
        question = {
            name: self.wording.question(c.params, self.space, scale)
            for name, c in everybody.items()
        }

        def arm(label: str, text: str | None, asked: Sequence[Candidate]) -> PredictionSide:
            questions = {c.candidate_id: question[c.candidate_id] for c in asked}
            return PredictionSide(label=label, context=context(text), questions=questions)

        proposers = [t for t in thoughts if own.get(t.thought_id)]
        arms = [
            arm("none", None, candidates),
            *(arm(t.thought_id, t.text, candidates) for t in thoughts),
            *(arm(f"{t.thought_id}/own", t.text, own[t.thought_id]) for t in proposers),
        ]
        told = await asyncio.gather(*(channel.tell(one, asker) for one in arms))
        n = len(thoughts) + 1
        silent, spoken, proposed = told[0], told[1:n], told[n:]
        return Predicted(
            no_thought=silent.forecasts,
            forecasts={
                t.thought_id: one.forecasts for t, one in zip(thoughts, spoken, strict=True)
            },
            own={t.thought_id: one.forecasts for t, one in zip(proposers, proposed, strict=True)},
            censored={
                one.label: told_of.censored
                for one, told_of in zip(arms, told, strict=True)
                if told_of.censored
            },
            ended_us=_latest(told),
            notes=tuple(note for one in told for note in one.notes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """All arms of a generation."""

    no_thought: Forecasts
    forecasts: Mapping[str, Forecasts]
    """Thought → its forecasts."""
    own: Mapping[str, Forecasts]
    """Thought → its forecasts of candidates that it proposed itself."""
    ended_us: int | None
    """When the last of them was durable."""
    censored: Mapping[str, Mapping[str, tuple[bool, ...]]] = field(default_factory=dict)
    """Arm → subject → which of its options lay outside of what the server told."""
    notes: tuple[str, ...]

    def subjects(self) -> tuple[str, ...]:
        """Return what was predicted without a thought: nothing counts without that arm."""
        return tuple(self.no_thought)


def _text(done: Completion) -> Json:
    return {"text": done.text, "finish_reason": done.finish_reason}


def _strategy(name: str) -> Strategy:
    return STRATEGIES[name]


def _latest(told: Sequence[Prediction]) -> int | None:
    known = [one.ended_us for one in told if one.ended_us is not None]
    return max(known, default=None)


def _reason(fault: EvaluationFault) -> str:
    """Return why there is no thought, in words."""
    kind = "failed"
    if isinstance(fault, EvaluatorFault):
        kind = "not asked"
    elif not isinstance(fault, InfrastructureFault):
        kind = "refused"
    return one_line(f"{kind} ({fault.error_type}): {fault}", 300, redacted_text)


def mean_entropy(forecasts: Sequence[np.ndarray]) -> float:
    """Return the mean entropy of distributions over the greatest possible; 1 for none."""
    shares = [
        float(-np.sum(p * np.log(np.maximum(p, 1e-300))) / np.log(len(p))) for p in forecasts
    ]
    return float(np.mean(shares)) if shares else 1.0
