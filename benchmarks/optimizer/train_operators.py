"""Training of the policy that chooses breeding operators, on half of the 22 public tasks.

    python -m benchmarks.optimizer.train_operators --updates 24 --out operators.safetensors

Each update plays every training task by seeds of its own, which no evaluation uses, with ten generations of
ten evaluations, and learns from all of their choices at once. No data set is in both halves.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.optimizer.emphasis import ACTIONS, EmphasisStep
from benchmarks.optimizer.operators import IDENTITY, SETTINGS
from benchmarks.optimizer.opponents.base import Setup
from benchmarks.optimizer.opponents.ours import OursOnCases, OursOnValues, make_ours
from benchmarks.optimizer.running import NOISE_SEED, Progress, step
from benchmarks.optimizer.tasks import SETS, get_task
from convergence_core.policy import PPOState, Rollout, improve, pack
from convergence_core.policy.network import ActorCritic
from convergence_core.search.meta_optimizer.gains import entry_of

TRAINED_ON = (
    "yahpoN:xgboost-12",
    "yahpoN:xgboost-1501",
    "yahpo0:xgboost-1501",
    "yahpoN:lcbench-189873",
    "yahpo0:lcbench-189873",
    "tab:hpolib-protein_structure",
    "tab:hpobench-credit_g",
    "llm:jhu-acc",
    "llm:jhu-util",
    "llm:prompt-rhyming_word",
    "llm:prompt-movie_recommendation",
)
HELD_OUT = tuple(name for name in SETS["all"] if name not in TRAINED_ON)
FIRST_SEED = 1_000
"""Of training; those of evaluation begin at 0."""
BUDGET, BATCH = 100, 10


def play(task_name: str, seed: int, networks: ActorCritic) -> list[EmphasisStep]:
    """Return the choices of one run."""
    task = get_task(task_name)
    opponent = make_ours(Setup.of(task, seed=seed, batch=BATCH, budget=BUDGET), "")
    assert isinstance(opponent, OursOnValues | OursOnCases)
    opponent.run.choose_by(networks)
    rng, progress = np.random.default_rng(NOISE_SEED + seed), Progress()
    for _ in range(BUDGET // BATCH):
        step(opponent, task, BATCH, rng, progress)
    steps = entry_of(opponent.run.state.memory)["steps"]
    return [EmphasisStep.from_json(one) for one in steps] if isinstance(steps, list) else []


def rollout_of(runs: list[list[EmphasisStep]], version: int) -> Rollout:
    """Return runs of equal length side by side; each is an episode that ends with the run."""

    def stacked(name: str) -> np.ndarray:
        return np.stack([[getattr(one, name) for one in run] for run in runs], axis=1)

    ended = np.zeros((len(runs[0]), len(runs)), dtype=bool)
    ended[-1] = True
    return Rollout(
        version=version,
        observations=stacked("state").astype(np.float32),
        legal=stacked("legal"),
        actions=stacked("action"),
        log_probs=stacked("log_prob").astype(np.float32),
        values=stacked("value").astype(np.float32),
        rewards=stacked("reward").astype(np.float32),
        terminated=ended,
        truncated=np.zeros_like(ended),
        final_values=np.zeros(ended.shape, np.float32),
        last_values=np.zeros(len(runs), np.float32),
    )


def train(n_updates: int, out: Path) -> None:
    """Train a policy; its checkpoint is written after each update."""
    rng = np.random.default_rng(0)
    state = PPOState.begin(SETTINGS, rng)
    for update in range(n_updates):
        runs = [play(name, FIRST_SEED + update, state.networks) for name in TRAINED_ON]
        length = min(len(run) for run in runs)
        rollout = rollout_of([run[:length] for run in runs], state.version)
        state, found = improve(state, rollout, SETTINGS, rng)
        counts = np.bincount(rollout.actions.ravel(), minlength=len(ACTIONS))
        shares = ", ".join(
            f"{name} {n / counts.sum():.0%}" for name, n in zip(ACTIONS, counts, strict=True)
        )
        print(
            f"update {update}: return {rollout.rewards.sum(axis=0).mean():.3f}, entropy "
            f"{found.entropy:.2f}, KL {found.kl:.3f}, {shares}; CPU {time.process_time():.0f} s",
            flush=True,
        )
        out.write_bytes(pack(state, SETTINGS, IDENTITY, dict(rng.bit_generator.state)))


def main() -> None:
    """Read the command line, and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    train(options.updates, options.out)


if __name__ == "__main__":
    main()
