"""A store with ratings, adapters, checks and rounds of a role, as a few days of training leave it."""

import itertools
from pathlib import Path

from convergence_core.feedback.activation_gate import CONDITIONS
from convergence_core.feedback.adapter_records import GateCheck
from convergence_core.feedback.records import Rating
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.training_rounds import TrainingRounds, open_marks
from tests.feedback.adapters import saved_adapter
from tests.feedback.answers import answer

START_US = 1_767_323_045_000_000
"""2026-01-02 03:04:05 UTC."""
HOUR_US = 3_600 * 10**6


def write_trained_store(folder: Path, root: Path, *, n_each: int = 24) -> None:
    """Write answers of the base model and of two adapters, rated better each time.

    The first adapter is inactive, the second active, a third one rejected.
    """
    ticks = itertools.count()
    with FeedbackStore(root, now_us=lambda: START_US + next(ticks) * HOUR_US // 4) as store:
        adapters, rounds = AdapterStore(store), TrainingRounds(store)
        version: str | None = None
        for number in range(3):
            for k in range(n_each):
                name = f"a{number}-{k}"
                at_us = store.now_us()
                store.log(
                    answer(name, prompt=f"Question {k}?", created_us=at_us, latency_s=1.5 + k % 3,
                           n_output_tokens=40 - 10 * number, adapter_version=version,
                           is_shared=True, cost_usd=0.0)
                )  # fmt: skip
                stars = min(5, 1 + number + (k * 7) % 4)
                store.rate(Rating(interaction_id=name, user_id="ann", rating=stars))
                if k % 2:
                    store.rate(
                        Rating(interaction_id=name, user_id="ben", rating=max(1, stars - 1))
                    )
            round_id = rounds.begin("assistant", "qrpo", n_rows=n_each, settings={"steps": 60})
            marks = [mark for mark, _, used in open_marks(store, "assistant") if not used]
            found = adapters.register(
                saved_adapter(folder / f"trained-{number}", number), role="assistant",
                base_model="smollm2-135m-instruct", objective="qrpo", marks=marks, parent=version,
            )  # fmt: skip
            is_good = number < 2
            adapters.record_checks(found, planted_checks(is_good=is_good))
            if is_good:
                adapters.activate(found, "training")
                version = found
            else:
                adapters.reject(found, "kl was not passed", "training")
            rounds.end(
                round_id, "done", version=found,
                metrics={
                    "n_steps": 60, "losses": [1 / (1 + 0.1 * step) for step in range(60)],
                    "kl_estimate": 0.4 + number, "cpu_s": 210.5, "peak_bytes": 2_100_000_000,
                },
                reason=f"{found} passed every check" if is_good else f"{found} did not pass 1 check",
            )  # fmt: skip


def planted_checks(*, is_good: bool) -> list[GateCheck]:
    """Return a verdict of each check; a bad one is too far from the incumbent."""
    numbers = {"kl": (0.41, 0.35, 0.47, 1.5, "nat"), "reward": (0.52, 0.2, 0.84, 0.0, "reward")}
    return [
        GateCheck(
            name=name,
            passed=is_good or name != "kl",
            **dict(
                zip(
                    ("value", "low", "high", "threshold", "unit"),
                    numbers.get(name, (None, None, None, None, "")),
                    strict=True,
                )
            ),  # type: ignore[arg-type]
            words=f"{name} is {'passed' if is_good or name != 'kl' else 'not passed'}; {condition}.",
        )
        for name, condition in CONDITIONS.items()
    ]
