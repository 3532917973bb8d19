"""Contextual arms against linear Thompson sampling, on seven request streams.

    python -m benchmarks.contextual --seeds 6

Cumulative regret of 2,500 requests, means over seeds with standard errors. Every peer gets what it cannot learn here:
numbers standardised by their true moments, and one-hot categories. ``LinTS`` has one ridge regression per arm with
prior precision 1 and a normal-inverse-gamma posterior (S. Agrawal, N. Goyal, 2013; C. Riquelme et al., 2018, sec. 3).
``VW`` is a bag of five policies over features and their pairs; it requires ``vowpalwabbit``. We chose the exploration
scale, .5, on clicks, users and logistic, but had seen the other streams.
"""

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row, with_error
from convergence_core.bandit.contextual import ContextualArms
from convergence_core.bandit.features import Feature
from convergence_core.bandit.propensities import Floats, Policy

N = 2_500
Context = dict[str, Feature]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Requests and each arm's expected rewards."""

    contexts: Sequence[Context]
    means: Floats
    """Expected reward of each arm, (N, n_arms)."""
    users: Sequence[str | None] = (None,) * N
    sd: float | None = None
    """Standard deviation of a reward; ``None`` means rewards are 0 or 1."""

    def reward(self, t: int, arm: int, rng: np.random.Generator) -> float:
        """Draw an arm's reward in [0, 1]."""
        mean = self.means[t, arm]
        if self.sd is None:
            return float(rng.random() < mean)
        return float(np.clip(rng.normal(mean, self.sd), 0.0, 1.0))


def named(values: Floats, prefix: str = "x") -> list[Context]:
    """Return numeric contexts from values, (N, d)."""
    return [{f"{prefix}{j}": float(v) for j, v in enumerate(x)} for x in values]


def clicks(rng: np.random.Generator) -> Stream:
    """Click rates of 1 to 8 % by segment; four arms."""
    rates = rng.uniform(0.01, 0.08, size=(4, 4))
    segment = rng.integers(4, size=N)
    return Stream(contexts=[{"segment": f"s{s}"} for s in segment], means=rates[segment])


def xor(rng: np.random.Generator, n: int = 2) -> Stream:
    """The best of two arms depends on the parity of n bits."""
    bits = rng.integers(2, size=(N, n))
    odd = bits.sum(axis=1) % 2
    contexts: list[Context] = [{f"b{j}": bool(b) for j, b in enumerate(x)} for x in bits]
    return Stream(contexts=contexts, means=np.where(odd[:, None] == [0, 1], 0.3, 0.7))


def tokens(rng: np.random.Generator) -> Stream:
    """Token counts, seconds and shares: numbers of very different sizes; three arms."""
    prompt = rng.lognormal(7.0, 1.0, size=N)
    answer = rng.lognormal(5.0, 0.6, size=N)
    share = rng.random(N)
    z = np.stack(
        [np.ones(N), *((v - v.mean()) / v.std() for v in (prompt, answer, share))], axis=1
    )
    weights = np.hstack((np.full((3, 1), 0.6), rng.normal(0.0, 0.06, size=(3, 3))))
    contexts: list[Context] = [
        {"prompt_tokens": float(p), "answer_tokens": float(a), "code_share": float(s)}
        for p, a, s in zip(prompt, answer, share, strict=True)
    ]
    return Stream(contexts=contexts, means=np.clip(z @ weights.T, 0.0, 1.0), sd=0.1)


def users(rng: np.random.Generator, n: int = 30) -> Stream:
    """Each user has individual rates; three arms."""
    rates = rng.beta(2.0, 2.0, size=(n, 3))
    who = rng.integers(n, size=N)
    return Stream(contexts=[{}] * N, means=rates[who], users=[f"u{u}" for u in who])


def logistic(rng: np.random.Generator) -> Stream:
    """Eight features and five arms in a logistic model."""
    x = rng.normal(size=(N, 8))
    return Stream(contexts=named(x), means=expit(x @ rng.normal(0.0, 0.6, size=(8, 5))))


def quadratic(rng: np.random.Generator) -> Stream:
    """Each of three arms is best near one value of the first of two numbers, whose origins differ."""
    x = rng.uniform(50.0, 150.0, size=(N, 2))
    near = -(((x[:, :1] - [70.0, 100.0, 130.0]) / 40.0) ** 2)
    return Stream(contexts=named(x), means=np.clip(0.75 + 0.3 * near, 0.05, 0.95))


STREAMS: dict[str, Callable[[np.random.Generator], Stream]] = {
    "clicks": clicks,
    "xor": xor,
    "tokens": tokens,
    "users": users,
    "logistic": logistic,
    "quadratic": quadratic,
    "parity of three": lambda rng: xor(rng, 3),
}


def design(stream: Stream, *, pairs: bool = False, with_users: bool = False) -> Floats:
    """Return the design matrix, (N, d), with numbers standardised over all requests."""
    values = {name for c in stream.contexts for name in c.items() if isinstance(name[1], str)}
    numbers = sorted({k for c in stream.contexts for k, v in c.items() if not isinstance(v, str)})
    raw = np.array([[float(c[k]) for k in numbers] for c in stream.contexts]).reshape(N, -1)  # type: ignore[arg-type]
    parts = [(raw - raw.mean(axis=0)) / raw.std(axis=0)] if numbers else []
    parts += [
        np.array([[c[k] == v] for c in stream.contexts], dtype=float) for k, v in sorted(values)
    ]
    main = np.hstack(parts) if parts else np.empty((N, 0))
    columns = [np.ones((N, 1)), main]
    if pairs:
        every = itertools.combinations_with_replacement(range(main.shape[1]), 2)
        columns += [main[:, [i]] * main[:, [j]] for i, j in every]
    if with_users:
        names = sorted({user for user in stream.users if user is not None})
        columns.append(np.array([[u == n for n in names] for u in stream.users], dtype=float))
    return np.hstack(columns)


def lin_ts(stream: Stream, rng: np.random.Generator, **of: bool) -> float:
    """Return the regret of linear Thompson sampling with unknown variance."""
    x = design(stream, **of)
    n_arms, d = stream.means.shape[1], x.shape[1]
    inverse, b = np.tile(np.eye(d), (n_arms, 1, 1)), np.zeros((n_arms, d))
    shape, squares = np.full(n_arms, 2.0), np.zeros(n_arms)
    weights, regret = b.copy(), 0.0
    for t, z in enumerate(x):
        spread = 0.5 + 0.5 * np.maximum(squares - (weights * b).sum(axis=1), 0.0)
        variance = spread / rng.gamma(shape)
        sd = np.sqrt(variance * (inverse @ z @ z))
        arm = int(rng.normal(weights @ z, sd).argmax())
        r = stream.reward(t, arm, rng)
        regret += stream.means[t].max() - stream.means[t, arm]
        direction = inverse[arm] @ z
        inverse[arm] -= np.outer(direction, direction) / (1.0 + z @ direction)
        b[arm] += r * z
        weights[arm] = inverse[arm] @ b[arm]
        shape[arm] += 0.5
        squares[arm] += r * r
    return regret


def no_context(stream: Stream, rng: np.random.Generator) -> float:
    """Return the regret of Thompson sampling with Beta posteriors."""
    n_arms = stream.means.shape[1]
    alpha, beta, regret = np.ones(n_arms), np.ones(n_arms), 0.0
    for t in range(N):
        arm = int(rng.beta(alpha, beta).argmax())
        reward = stream.reward(t, arm, rng)
        alpha[arm], beta[arm] = alpha[arm] + reward, beta[arm] + 1.0 - reward
        regret += stream.means[t].max() - stream.means[t, arm]
    return regret


def ours(stream: Stream, rng: np.random.Generator) -> float:
    """Return the regret of contextual arms as the product serves them."""
    n_arms = stream.means.shape[1]
    arms, regret = ContextualArms(np.full(n_arms, np.nan), np.ones(n_arms)), 0.0
    for t, (context, user) in enumerate(zip(stream.contexts, stream.users, strict=True)):
        policy = Policy.of(arms.posterior(context, user).propensities, explore=0.002)
        arm = policy.choose(float(rng.random()))
        arms.tell(arm, stream.reward(t, arm, rng), context, user)
        regret += stream.means[t].max() - stream.means[t, arm]
    return regret


def vowpal(stream: Stream, rng: np.random.Generator) -> float:
    """Return the regret of Vowpal Wabbit: a bag of five policies with doubly robust estimates."""
    n_arms, regret = stream.means.shape[1], 0.0
    model = importlib.import_module("vowpalwabbit").Workspace(
        f"--cb_explore {n_arms} --bag 5 --cb_type dr --quiet -q :: --random_seed {rng.integers(1 << 30)}"
    )
    x = design(stream)[:, 1:]
    for t, z in enumerate(x):
        user = stream.users[t]
        features = " ".join(f"f{j}:{v:.5f}" for j, v in enumerate(z) if v)
        text = f"| {features} {'' if user is None else f'user={user}'}"
        shares = np.asarray(model.predict(text))
        arm = int(rng.choice(n_arms, p=shares / shares.sum()))
        cost = -stream.reward(t, arm, rng)
        regret += stream.means[t].max() - stream.means[t, arm]
        model.learn(f"{arm + 1}:{cost}:{shares[arm]} {text}")
    model.finish()
    return regret


METHODS: Mapping[str, Callable[[Stream, np.random.Generator], float]] = {
    "ours": ours,
    "LinTS": lin_ts,
    "LinTS, pairs": lambda stream, rng: lin_ts(stream, rng, pairs=True),
    "LinTS, users": lambda stream, rng: lin_ts(stream, rng, with_users=True),
    "no context": no_context,
    "VW": vowpal,
}


def main() -> None:
    """Print the regret of each method on each stream."""
    arguments = options(__doc__, seeds=6, only=tuple(STREAMS), methods=tuple(METHODS))
    methods = [
        m for m in arguments.methods if m != "VW" or importlib.util.find_spec("vowpalwabbit")
    ]
    print(f"\n{describe_machine()}\n")
    print(header("stream", *methods))
    for name in arguments.only:
        regrets: dict[str, list[float]] = {method: [] for method in methods}
        for seed in range(arguments.seeds):
            stream = STREAMS[name](np.random.default_rng(seed))
            for method in methods:
                regrets[method].append(
                    METHODS[method](stream, np.random.default_rng(1_000 + seed))
                )
        print(row(name, *(with_error(values, ".1f") for values in regrets.values())), flush=True)


if __name__ == "__main__":
    main()
