"""One step of a bandit in memory, beside MABWiser and Vowpal Wabbit where they are installed.

    python -m venv peers && peers/bin/pip install mabwiser vowpalwabbit
    python -m benchmarks.peers --peers peers/bin/python

Ten arms; a step chooses an arm and learns one reward. Each library runs in a process of its own, in turn,
for the same number of steps; numbers are steps per CPU-second.
"""

import argparse
import subprocess
import sys

import numpy as np

N_ARMS, N_FEATURES = 10, 16

_MABWISER = """
import time, numpy as np
from mabwiser.mab import MAB, LearningPolicy
rng = np.random.default_rng(0)
arms = list(range({arms}))
def run(policy, d, n):
    mab = MAB(arms, policy, seed=1)
    x = rng.normal(size=(n, d)) if d else None
    rewards = (rng.random(n) < 0.5).astype(float).tolist()
    mab.fit(arms * 2, [0, 1] * {arms}, None if not d else rng.normal(size=(2 * {arms}, d)))
    begun = time.process_time()
    for i in range(n):
        arm = mab.predict(None if not d else x[i:i + 1])
        mab.partial_fit([arm], [rewards[i]], None if not d else x[i:i + 1])
    return n / (time.process_time() - begun)
print("MABWiser, Thompson", run(LearningPolicy.ThompsonSampling(), 0, 3000))
print("MABWiser, LinTS", run(LearningPolicy.LinTS(alpha=0.5), {features}, 500))
"""
_VOWPAL = """
import time, numpy as np
from vowpalwabbit import Workspace
rng = np.random.default_rng(0)
def run(options, d, n):
    vw = Workspace(options + " --quiet")
    xs = rng.normal(size=(n, max(d, 1)))
    begun = time.process_time()
    for i in range(n):
        text = "|x " + " ".join(f"f{{k}}:{{v:.4f}}" for k, v in enumerate(xs[i])) if d else "|x c"
        chances = np.array(vw.predict(text))
        arm = min(int(np.searchsorted(chances.cumsum(), rng.random())), {arms} - 1)
        vw.learn(f"{{arm + 1}}:{{-float(rng.random() < 0.5)}}:{{chances[arm]:.6f}} {{text}}".format(arm=arm, text=text))
    return n / (time.process_time() - begun)
print("Vowpal Wabbit, cb_explore", run("--cb_explore {arms} --epsilon .1", 0, 20000))
print("Vowpal Wabbit, cb_explore, 16 features", run("--cb_explore {arms} --epsilon .1", {features}, 20000))
"""
_OURS = """
import numpy as np, time
from convergence_core.bandit import LinearArms, LinearLearner, Policy
from convergence_core.bandit.propensities import of_beta
rng = np.random.default_rng(0)
n = 200_000
uniforms, rewards = rng.random(n), (rng.random(n) < 0.5).astype(float).tolist()
a, b = [1.0] * {arms}, [1.0] * {arms}
policy = Policy.of(of_beta(a, b))
begun = time.process_time()
for i in range(n):
    arm = policy.choose(float(uniforms[i])).arm
    a[arm] += rewards[i]
    b[arm] += 1.0 - rewards[i]
    if policy.is_stale(i + 1):
        policy = Policy.of(of_beta(a, b), n=i + 1)
print("ours, Beta", n / (time.process_time() - begun))
learner, n = LinearLearner(LinearArms.begin(np.full({arms}, 0.5), {features})), 20_000
xs = rng.normal(size=(n, {features}))
begun = time.process_time()
for i in range(n):
    arm = int(learner.arms.draw(xs[i], rng).argmax())
    learner.tell(arm, xs[i], rewards[i])
print("ours, linear, 16 features", n / (time.process_time() - begun))
"""


def main() -> None:
    """Parse the command line and print steps per CPU-second."""
    parser = argparse.ArgumentParser(description="One step of a bandit, beside peers.")
    parser.add_argument("--peers", help="Python that has the peers")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for python, code in (
            (sys.executable, _OURS), (options.peers, _MABWISER), (options.peers, _VOWPAL)
        ):  # fmt: skip
            if python is None:
                continue
            text = code.format(arms=N_ARMS, features=N_FEATURES)
            done = subprocess.run([python, "-c", text], capture_output=True, text=True, check=True)
            for line in done.stdout.splitlines():
                name, _, rate = line.rpartition(" ")
                found.setdefault(name, []).append(float(rate))
    print("| one step | thousands per CPU-second, least and most |\n|---|---|")
    for name, rates in found.items():
        low, high = np.min(rates) / 1e3, np.max(rates) / 1e3
        print(f"| {name} | {low:.1f} to {high:.1f} |")


if __name__ == "__main__":
    main()
