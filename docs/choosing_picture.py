"""Draw the picture of docs/how-it-chooses.md with the real engine, on a function of one number.

    python -m docs.choosing_picture

Left: rewards of candidates evaluated on different cases, raw and adjusted for case difficulty.
Middle: the posterior and five draws. Right: the candidates that fill a generation's slots.
"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convergence_core.evidence import Archive, Member
from convergence_core.posterior import SpaceModel
from convergence_core.posterior.space_model import FittedEvidence
from convergence_core.records import Candidate
from convergence_core.space import Float, Space
from tasks.report import figures
from tasks.report.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE = Path(__file__).parent / "pictures/how-it-chooses.png"
SPACE = Space(parameters={"temperature": Float(min=0.0, max=1.0)})
N_CASES, CHUNK, N_PLACES = 15, 5, 16


def value(x: float) -> float:
    """Return the true mean reward."""
    return float(0.45 + 0.3 * np.exp(-(((x - 0.68) / 0.22) ** 2)) - 0.1 * x)


def evidence() -> Archive:
    """Evaluate nine candidates on five cases each, in three generations with separate cases."""
    rng = np.random.default_rng(11)
    hardness = 0.15 * rng.standard_normal(N_CASES)
    hardness -= hardness.mean()
    members = {}
    for i, x in enumerate((0.05, 0.4, 0.92, 0.2, 0.55, 0.8, 0.3, 0.62, 0.98)):
        candidate = SPACE.candidate({"temperature": x})
        cases = CHUNK * (i // 3) + np.arange(CHUNK)
        rewards = value(x) + hardness[cases] + 0.14 * rng.standard_normal(CHUNK)
        again = {(f"c{j:02d}", 0): float(r) for j, r in zip(cases, rewards, strict=True)}
        if (
            i % 3 == 1
        ):  # one candidate per generation gets further cases, which link the generations
            more = (cases + CHUNK) % N_CASES
            rewards = value(x) + hardness[more] + 0.14 * rng.standard_normal(CHUNK)
            again |= {(f"c{j:02d}", 0): float(r) for j, r in zip(more, rewards, strict=True)}
        members[candidate.candidate_id] = Member(
            candidate=candidate, generation=i // 3, rewards=dict(sorted(again.items()))
        )
    return Archive(members)


def draw(figure: "Figure") -> None:
    """Draw the three panels."""
    archive = evidence()
    fitted = SpaceModel(space=SPACE).fit(archive)
    assert fitted.learned is not None
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1.3, 1])
    known = np.array([float(m.candidate.params["temperature"]) for m in archive])
    _evidence(left, archive, fitted.learned, known)
    grid = [SPACE.candidate({"temperature": float(x)}) for x in np.linspace(0, 1, 101)]
    others = [c for c in grid if c.candidate_id not in archive]
    everyone: list[Candidate] = [member.candidate for member in archive] + others
    beliefs = fitted.posterior(everyone)
    drawn = beliefs.draws(np.random.default_rng(4), N_PLACES)
    xs = np.array([float(c.params["temperature"]) for c in everyone])
    order = len(known) + np.argsort(xs[len(known) :])  # known ones also have their effect
    low, high = beliefs.interval(0.9)
    middle.fill_between(
        xs[order], low[order], high[order], color=COLOURS["winner"], alpha=0.15, linewidth=0
    )
    middle.plot(xs[order], beliefs.mean[order], color=COLOURS["winner"])
    for one in drawn[:5]:
        middle.plot(xs[order], one[order], color=COLOURS["dot"], linewidth=0.8)
        top = int(np.argmax(one))
        colour = COLOURS["winner"] if top < len(known) else COLOURS["default"]
        middle.plot([xs[top]], [one[top]], "o", color=colour, markersize=6)
    middle.set_title("2. Posterior, and five draws of it")
    middle.set_xlabel("temperature")
    _places(right, xs, drawn, len(known))


def _evidence(axes: "Axes", archive: Archive, learned: FittedEvidence, known: np.ndarray) -> None:
    raw = [sum(m.rewards.values()) / m.n for m in archive]
    freed = learned.effects.mean
    xs = np.linspace(0, 1, 101)
    axes.plot(xs, [value(x) for x in xs], color=COLOURS["line"], linewidth=3, label="truth")
    for x, a, b in zip(known, raw, freed, strict=True):
        axes.plot([x, x], [a, b], color=COLOURS["muted"], linewidth=0.8)
    axes.plot(
        known, raw, "o", color=COLOURS["dot"], markerfacecolor=COLOURS["paper"], label="observed"
    )
    axes.plot(known, freed, "o", color=COLOURS["winner"], label="without case effects")
    axes.set_title("1. Mean rewards")
    axes.set_xlabel("temperature")
    axes.legend(loc="upper left", fontsize=7.5)


def _places(axes: "Axes", xs: np.ndarray, drawn: np.ndarray, n_known: int) -> None:
    """Give each draw's slot to its highest candidate: a known one at most twice, a new one once."""
    wins: Counter[int] = Counter()
    for one in drawn:
        for i in np.argsort(-one):
            if wins[int(i)] < (2 if i < n_known else 1):
                wins[int(i)] += 1
                break
    for i, n in wins.items():
        colour = COLOURS["winner"] if i < n_known else COLOURS["default"]
        axes.bar([xs[i]], [n * CHUNK], width=0.007, color=colour)
    axes.plot([], [], color=COLOURS["winner"], linewidth=5, label="known candidates")
    axes.plot([], [], color=COLOURS["default"], linewidth=5, label="new candidates")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 14)
    axes.set_title("3. Cells of the next generation")
    axes.set_xlabel("temperature")
    axes.legend(loc="upper left", fontsize=7.5)


def main() -> None:
    """Write the picture."""
    PICTURE.write_bytes(figures.png(figures.figure(draw, width=10.4, height=3.1), dpi=110))


if __name__ == "__main__":
    main()
