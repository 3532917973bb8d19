"""Rewards that thoughts of runs predicted, as rows to learn thinking from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from convergence_core.ports import RunRecord
from convergence_core.rlp.bins import RewardBins
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.strategies import STRATEGIES
from convergence_core.search.study_state import StudyState
from convergence_core.space.text_variants import widened
from tasks.exports.run_winner import loaded_of
from tasks.rlp.factory import described
from tasks.rlp.learner import RLP
from tasks.rlp.prompts import RlpPrompts, prompt
from tasks.store import ParquetStore
from tasks.training.jobs import PLACE

_OUTCOMES: Final = """
    SELECT DISTINCT t.generation, t.agent_id, p.subject, p.observed, c.low, c.high
    FROM thoughts t JOIN predictions p USING (run_id, generation, thought_id)
         JOIN (SELECT run_id, generation, min(low) AS low, max(high) AS high FROM commitments
               WHERE low IS NOT NULL GROUP BY ALL) c USING (run_id, generation)
    WHERE t.run_id = $run_id AND NOT p.is_rescored AND p.estimator <> 'pairwise'
    ORDER BY ALL"""
"""What was predicted by thoughts of each strategy, in the bins of its generation."""


def thought_outcomes(
    store: ParquetStore, record: RunRecord, config: Path | None = None
) -> Iterator[dict[str, str]]:
    """Yield what thoughts were asked for, how their predictor is asked, and what came.

    Prompts are made as the run made them, of what was known before each generation. Earlier notes that
    were shown beside the trials are left out: they were another model's.

    Args:
        store: of the run.
        record: of the run.
        config: the configuration; ``None``: where the run found it.

    Raises:
        ConfigurationError: the configuration cannot be read.
    """
    checkpoint = store.checkpoint(record.run_id)
    state = None if checkpoint is None else StudyState.from_checkpoint(checkpoint)
    if state is None or RLP not in state.learned:
        return
    loaded = loaded_of(record, config)
    space = widened(loaded.space, state.variants, state.vectors)
    members = state.search.archive.members
    params_of = {name: member.candidate.params for name, member in members.items()}
    history = RlpState.from_json(state.learned[RLP], params_of).history
    wording = RlpPrompts(described(loaded.configuration))
    rows: list[dict[str, Any]] = store.rows(_OUTCOMES, {"run_id": record.run_id})
    for row in rows:
        strategy, params = STRATEGIES.get(row["agent_id"]), params_of.get(row["subject"])
        if strategy is None or params is None:  # of a plug-in, or of an older version
            continue
        known = history.as_of(row["generation"])
        messages: list[dict[str, Any]] = wording.thinking(strategy, known, space, ())
        question = wording.question(params, space, RewardBins(row["low"], row["high"]))
        yield {
            "think": "\n\n".join(message["content"] for message in messages),
            "predict": prompt(wording.context(known, space)(PLACE), question),
            "follows": str(row["observed"]),
        }
