"""What a recommendation costs: CPU and memory against the number of observations, in 20 dimensions.

    python -m benchmarks.recommendation

The posterior is fitted before, as it is at the end of a run.
"""

import argparse
import resource
import time

import numpy as np

from convergence_core.evidence.archive import Archive, Member
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import make_surrogate
from convergence_core.space import Float, Space

N_NUMBERS = 20
GENERATION = 20
NOISE_SD = 0.05


def searched(space: Space, n: int) -> SearchState:
    """Return the state after n evaluations at random of a noisy bowl, each of another candidate."""
    rng, members = np.random.default_rng(0), dict[str, Member]()
    for i, x in enumerate(rng.random((n, N_NUMBERS))):
        names = zip(space.parameters, x, strict=True)
        candidate = space.candidate({name: round(float(value), 4) for name, value in names})
        reward = 0.9 - float(((x - 0.3) ** 2).mean()) + NOISE_SD * rng.standard_normal()
        members[candidate.candidate_id] = Member(
            candidate=candidate,
            generation=i // GENERATION,
            rewards={("only", 0): min(1.0, max(0.0, reward))},
        )
    return SearchState(archive=Archive(members))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print a row for each number of observations, ascending, since a peak never falls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", nargs="+", type=int, default=[50, 5000])
    space = Space(parameters={f"x{i:02}": Float(min=0.0, max=1.0) for i in range(N_NUMBERS)})
    for n in sorted(parser.parse_args().observations):
        state, surrogate = searched(space, n), make_surrogate(space)
        surrogate.fit(state.archive)
        before, began = _peak_mb(), time.process_time()
        recommend(state, rng=np.random.default_rng(0), surrogate=surrogate)
        seconds = time.process_time() - began
        print(f"{n:6} observations: {seconds:.2f} s CPU, + {_peak_mb() - before:.0f} MB")


if __name__ == "__main__":
    main()
