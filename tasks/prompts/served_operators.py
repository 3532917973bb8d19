"""Operators chosen by the learned policy in runs whose gate has passed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.errors import PolicyCheckpointError
from convergence_core.feedback.text_features import HASHED_NGRAMS, hashed_ngrams
from convergence_core.policy import (
    N_PROGRESS,
    PROMPT_ACTIONS,
    Offer,
    PolicyIdentity,
    PPOState,
    PromptEpisode,
    choose,
    unpack,
)
from convergence_core.policy.gate import PPO, serving_sentences
from convergence_core.prompts.failures import Category
from convergence_core.prompts.policy import OperatorShares
from tasks.store.policy.checkpoint_files import CheckpointFiles
from tasks.store.policy.experience_store import ExperienceStore, has_policy
from tasks.store.policy.round_store import RoundStore

SERVED_TAG: Final = "prompt_policy"
"""Tag of a run whose edits the learned policy chooses: its version."""


def served_tag(path: Path, system: str) -> dict[str, str]:
    """Return the tag of a new run of a system; empty: its gate has not passed.

    Args:
        path: folder of the store.
        system: whose prompts.

    Raises:
        StoreError: the store cannot be read.
    """
    if not (path / "store.json").is_file() or not has_policy(path):
        return {}
    with ExperienceStore(path) as store:
        looks, latest = RoundStore(store).latest_gate(system), store.latest_version()
    passed = bool(looks) and looks[0].serves == PPO and latest is not None
    return {SERVED_TAG: str(latest.version)} if passed and latest is not None else {}


def served_operators(path: Path, tags: Mapping[str, str]) -> OperatorShares | None:
    """Return how the policy that a run was begun with chooses; ``None``: it was begun without one.

    Args:
        path: folder of the store.
        tags: of the run.

    Raises:
        PolicyCheckpointError: the version is not kept any more, or is of another embedding.
    """
    version = tags.get(SERVED_TAG)
    if version is None:
        return None
    data = CheckpointFiles(path).read_version(int(version))
    identity = PolicyIdentity(embedding=HASHED_NGRAMS, actions=PROMPT_ACTIONS)
    state, config, _ = unpack(data, identity)
    return _shares_of(state, config.input_dim - N_PROGRESS)


def chooser_sentences(path: Path, system: str, tags: Mapping[str, str]) -> str:
    """Return who chose the edits of a run and why, in sentences.

    Args:
        path: folder of the store.
        system: whose prompts.
        tags: of the run.

    Raises:
        StoreError: the store cannot be read.
    """
    chooser = "Edits were chosen by Thompson sampling over operators"
    if (version := tags.get(SERVED_TAG)) is not None:
        try:
            served_operators(path, tags)
        except PolicyCheckpointError as error:
            return f"{chooser}; {explained(error)}."
        chooser = f"Edits were chosen by version {version} of the policy learned by PPO, among the operators that it knows"
    elif not (path / "store.json").is_file() or not has_policy(path):
        return f"{chooser}: no policy of prompt changes was trained."
    with ExperienceStore(path) as store:
        looks = RoundStore(store).latest_gate(system)
    if not looks:
        return f"{chooser}: no policy of prompt changes was trained for this system."
    reasons = " ".join(serving_sentences(looks[0].serves, looks[0].reason))
    return f"{chooser}. The latest look at policies of prompt changes: {reasons}"


def _shares_of(state: PPOState, embedding_dim: int) -> OperatorShares:
    def shares(
        parent: str, category: Category, operators: Sequence[OperatorName]
    ) -> dict[OperatorName, float]:
        embedding = hashed_ngrams(parent, embedding_dim)
        applicable = [name for name in operators if name in PROMPT_ACTIONS]
        if not applicable or not embedding.any():
            return {}
        episode = PromptEpisode(category=category)
        excluded = [name for name in PROMPT_ACTIONS if name not in applicable]
        offer = Offer(
            observations=episode.observation(embedding)[None],
            legal=episode.legal(excluded)[None],
        )
        (p,) = choose(state.networks, offer).probabilities.astype(np.float64)
        # Whether to stop is the run's to say: its generations end it.
        chances = {name: float(p[PROMPT_ACTIONS.index(name)]) for name in applicable}
        total = sum(chances.values())
        return {name: chance / total for name, chance in chances.items()} if total > 0.0 else {}

    return shares


def explained(error: PolicyCheckpointError) -> str:
    """Return why a run continues without the policy that it was begun with."""
    return f"the learned policy chooses no edits in this run, Thompson sampling does: {error}"
