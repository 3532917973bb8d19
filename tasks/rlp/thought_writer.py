"""Calls of RLP: thoughts, and predictions with them.

A thought that fails is an entry with a reason, and no text of ours ever stands in for it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from convergence_core.config.optimization import RlpConfig
from convergence_core.errors import EvaluationFault, EvaluatorFault, InfrastructureFault
from convergence_core.ports import Completion
from convergence_core.records import Candidate, Json, canonical_json, sha256_hex
from convergence_core.rlp.bins import TENTHS, RewardBins
from convergence_core.rlp.commitments import NO_THOUGHT_ARM, Forecasts, Thought
from convergence_core.rlp.history import TrialHistory
from convergence_core.rlp.regions import Proposal, proposal_of
from convergence_core.rlp.strategies import STRATEGIES
from convergence_core.space import Space
from tasks.rlp.channel_probe import ChannelProbe, allowed_channels, probe_channels
from tasks.rlp.model_calls import THOUGHT, Model, ThoughtAsker
from tasks.rlp.probability_channels import PredictionSide, ProbabilityChannel
from tasks.rlp.prompts import RlpPrompts
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line

CUT: Final = "length"
"""``finish_reason`` of a thought that was cut off: it is not scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """All arms of a generation."""

    no_thought: Forecasts = field(default_factory=dict)
    """Its subjects are those of all: nothing counts without this arm."""
    forecasts: Mapping[str, Forecasts] = field(default_factory=dict)
    """Thought → its forecasts."""
    own: Mapping[str, Forecasts] = field(default_factory=dict)
    """Thought → its forecasts of candidates that it proposed itself."""
    censored: Mapping[str, Mapping[str, tuple[bool, ...]]] = field(default_factory=dict)
    """Arm → subject → which of its options lay outside of what the server told."""
    ended_us: int | None = None
    """When the last of them was durable."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtWriter:
    """The model that writes thoughts and predicts with them."""

    model: Model
    wording: RlpPrompts = field(default_factory=RlpPrompts)
    settings: RlpConfig = field(default_factory=RlpConfig)

    async def probe_channels(self, asker: ThoughtAsker) -> ChannelProbe:
        """Return the best probability channel that the server has."""
        allowed = allowed_channels(self.settings.use_logprobs)
        return await probe_channels(self.model, self.wording, asker, allowed=allowed)

    async def write(
        self,
        drawn: Sequence[Thought],
        history: TrialHistory,
        space: Space,
        *,
        exemplars: Sequence[Thought],
        asker: ThoughtAsker,
    ) -> tuple[Thought, ...]:
        """Write the thoughts of a generation, all at once.

        Args:
            drawn: without their texts.
            history: all trials; those of the thoughts' generation and later are not shown.
            space: where candidates lie.
            exemplars: earlier thoughts to show.
            asker: makes the calls.
        """
        written = await asyncio.gather(
            *(
                self._written(draft, history.as_of(draft.generation), space, exemplars, asker)
                for draft in drawn
            )
        )
        return tuple(written)

    async def _written(
        self,
        thought: Thought,
        history: TrialHistory,
        space: Space,
        exemplars: Sequence[Thought],
        asker: ThoughtAsker,
    ) -> Thought:
        if thought.is_no_op:
            return thought
        limit, temperature = self.settings.thought_length, self.settings.temperature
        strategy = STRATEGIES[thought.strategy]
        messages = self.wording.thinking(strategy, history, space, exemplars)
        options: dict[str, Json] = {} if temperature is None else {"temperature": temperature}
        call = self.model.chat(
            THOUGHT, messages, limit=limit, repeat=thought.index, read=_text, **options
        )
        prompt = canonical_json([*messages])
        thought = replace(thought, prompt=prompt, prompt_sha256=sha256_hex(prompt))
        try:
            answered = await asker.ask(call, f"thought/{thought.index}")
        except EvaluationFault as fault:
            return replace(thought, reason=_reason(fault))
        value: Any = answered.reply.value
        text = str(value["text"])
        reason = None
        if not text.strip():
            reason = "empty: the model wrote nothing"
        elif value["finish_reason"] == CUT:
            reason = f"cut off at {limit} tokens (`thought_length`)"
        proposal = proposal_of(text, space) if reason is None else Proposal()
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
        channel: ProbabilityChannel,
        candidates: Sequence[Candidate],
        thoughts: Sequence[Thought],
        history: TrialHistory,
        space: Space,
        *,
        points_of: Mapping[str, Sequence[Candidate]],
        bins: RewardBins = TENTHS,
        asker: ThoughtAsker,
    ) -> Predictions:
        """Ask for the outcomes of candidates, without a thought and with each, all at once.

        What a thought proposes itself is asked apart: it shapes the draws and earns nothing.

        Args:
            channel: where predictions are read.
            candidates: whose outcome is asked.
            thoughts: those to predict with.
            history: all trials that may be shown.
            space: where candidates lie.
            points_of: thought → candidates of its own proposal.
            bins: of the rewards.
            asker: makes the calls.
        """
        context = self.wording.context(history, space)
        every = [*candidates, *(c for listed in points_of.values() for c in listed)]
        question = {
            c.candidate_id: self.wording.question(c.params, space, bins)
            for c in {c.candidate_id: c for c in every}.values()
        }

        def side(label: str, text: str | None, points: Sequence[Candidate]) -> PredictionSide:
            questions = {c.candidate_id: question[c.candidate_id] for c in points}
            return PredictionSide(label=label, context=context(text), questions=questions)

        proposers = [t for t in thoughts if points_of.get(t.thought_id)]
        sides = [
            side(NO_THOUGHT_ARM, None, candidates),
            *(side(t.thought_id, t.text, candidates) for t in thoughts),
            *(side(f"{t.thought_id}/own", t.text, points_of[t.thought_id]) for t in proposers),
        ]
        predictions = await asyncio.gather(*(channel.predict(side, asker) for side in sides))
        n = len(thoughts) + 1
        ends = [
            prediction.ended_us for prediction in predictions if prediction.ended_us is not None
        ]
        return Predictions(
            no_thought=predictions[0].forecasts,
            forecasts={
                t.thought_id: prediction.forecasts
                for t, prediction in zip(thoughts, predictions[1:n], strict=True)
            },
            own={
                t.thought_id: prediction.forecasts
                for t, prediction in zip(proposers, predictions[n:], strict=True)
            },
            censored={
                side.label: prediction.censored
                for side, prediction in zip(sides, predictions, strict=True)
                if prediction.censored
            },
            ended_us=max(ends, default=None),
            notes=tuple(note for prediction in predictions for note in prediction.notes),
        )


def _text(done: Completion) -> Json:
    return {"text": done.text, "finish_reason": done.finish_reason}


def _reason(fault: EvaluationFault) -> str:
    """Return why there is no thought, in words."""
    kind = "failed"
    if isinstance(fault, EvaluatorFault):
        kind = "not asked"
    elif not isinstance(fault, InfrastructureFault):
        kind = "refused"
    return one_line(f"{kind} ({fault.error_type}): {fault}", 300, redacted_text)
