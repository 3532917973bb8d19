"""Cost at 95 % of the best model's quality on the recorded exam, with and without routing by case.

    python -m benchmarks.router --resamples 200

Nine models answered 100 problems at eleven temperatures; the mean over temperatures is a model's quality on a problem.
The router knows a problem's two tags and number. A regression on the other nine tenths of the problems predicts
quality, and each problem goes to the model with the highest quality minus price times cost. Random mixes are lotteries
over models, and lotteries also join the points of several prices. The oracle knows each problem's qualities. Intervals
resample problems and refit.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row
from convergence_core.bandit.contextual import ContextualArms
from convergence_core.bandit.features import Feature, case_contexts, request_features
from convergence_core.bandit.propensities import Floats
from convergence_core.records import Case

EXAM = Path(__file__).parents[1] / "data/recorded-exam"
PRICES = [0.0, *np.geomspace(0.01, 100.0, 60)]
"""Prices: quality given up per dollar saved."""
SHARE = 0.95
Contexts = Sequence[Mapping[str, Feature]]


def read_exam() -> tuple[list[Case], Floats, Floats]:
    """Return the problems, and the quality and US dollars of each problem and model, (100, 9)."""
    rows = map(json.loads, (EXAM / "cases.jsonl").read_text(encoding="utf-8").splitlines())
    cases = [Case(case_id=r.pop("id"), **{**r, "tags": tuple(r["tags"])}) for r in rows]
    models: dict[str, list[tuple[Floats, Floats]]] = {}
    for line in (EXAM / "answers.jsonl").read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if run["technique"] == "chain_of_thought":
            right = [a == case.expected for a, case in zip(run["answers"], cases, strict=True)]
            prices = [run[f"usd_per_million_tokens_{of}"] / 1e6 for of in ("in", "out")]
            usd = prices @ np.array([run["tokens_in"], run["tokens_out"]])
            models.setdefault(run["model"], []).append((np.array(right, dtype=float), usd))
    quality, usd = np.array([np.mean(runs, axis=0) for runs in models.values()]).transpose(1, 2, 0)
    return cases, quality, usd


def cost_at(points: Floats, target: float) -> float:
    """Return the minimum cost of a lottery over points (cost, quality) that reaches a quality."""
    below, above = points[points[:, 1] < target], points[points[:, 1] >= target]
    mixed = [c + (d - c) * (target - q) / (p - q) for c, q in below for d, p in above if d > c]
    return float(min([*above[:, 0], *mixed], default=np.nan))


def routed(values: Floats, quality: Floats, usd: Floats, cost: Floats) -> Floats:
    """Return cost and quality of choosing by value minus price times cost, for each price."""
    picks = [(np.arange(len(usd)), (values - price * cost).argmax(axis=1)) for price in PRICES]
    return np.array([(usd[pick].mean(), quality[pick].mean()) for pick in picks])


def costs(drawn: np.ndarray, contexts: Contexts, quality: Floats, usd: Floats) -> list[float]:
    """Return each method's cost on the sampled problems. Folds split problems, not samples."""
    q, c = quality[drawn], usd[drawn]
    predicted, price = np.empty_like(q), np.empty_like(q)
    fold = np.random.default_rng(0).permutation(len(quality))[drawn] % 10
    for part in range(10):
        out, rest = np.flatnonzero(fold == part), np.flatnonzero(fold != part)
        arms = ContextualArms.of_table([contexts[drawn[i]] for i in rest], q[rest])
        for i in out:
            predicted[i] = arms.posterior(contexts[drawn[i]]).mean_sd[0]
        price[out] = c[rest].mean(axis=0)
    singles = np.stack([c.mean(axis=0), q.mean(axis=0)], axis=1)
    target = SHARE * singles[:, 1].max()
    enough = singles[singles[:, 1] >= target, 0].min()
    curves = (singles, routed(predicted, q, c, price), routed(q, q, c, c))
    best = singles[singles[:, 1].argmax(), 0]
    return [best, enough, *(cost_at(curve, target) for curve in curves)]


def main() -> None:
    """Print the cost per problem of each method, with intervals."""
    arguments = options(__doc__, resamples=200)
    cases, quality, usd = read_exam()
    contexts = [request_features(context) for context in case_contexts(cases)]
    rng, n = np.random.default_rng(0), len(cases)
    drawn = [np.arange(n), *rng.integers(n, size=(arguments.resamples, n))]
    values, *draws = np.array([costs(d, contexts, quality, usd) for d in drawn])
    low, high = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    print(f"\n{describe_machine()}\n")
    print(header("method", "USD a problem", "95 % interval"))
    names = ("best model", "cheapest single model", "random mix", "routed by case", "oracle")
    for name, value, least, most in zip(names, values, low, high, strict=True):
        print(row(name, f"{value:.4f}", f"{least:.4f} to {most:.4f}"))
    low, high = np.nanpercentile([draw[3] / draw[2] for draw in draws], [2.5, 97.5])
    print(row("routed over mix", f"{values[3] / values[2]:.2f}", f"{low:.2f} to {high:.2f}"))


if __name__ == "__main__":
    main()
