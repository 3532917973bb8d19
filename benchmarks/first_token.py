"""Time to the first token of a local model's answer, with and without a training beside it.

    OMP_NUM_THREADS=1 python -m benchmarks.first_token --requests 40

A training is a process of niceness 19 that multiplies matrices on as many threads as there are cores. It is
stopped and goes on from one request to the next, so that whatever else the machine does is in both columns.
The interval of the ratio is a bootstrap over pairs of requests.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tasks.models.files import PACKAGED, find_model
from tasks.models.local_model import LocalModel
from tasks.models.model_process import ChatRequest

BURNER = "import os; os.nice(19)\nimport numpy as np\na = np.ones((1024, 1024), np.float32)\nwhile True: a @ a"
N_TOKENS = 8
N_DRAWS = 4_000
SETTLED_S = 0.3
"""What the burner needs to go on, or to end its last product."""


def first_token_s(model: LocalModel, question: str) -> float:
    """Return the seconds from the question to the first piece of the answer."""
    times: list[float] = []
    request = ChatRequest(
        messages=(
            {"role": "system", "content": "You are a helpful assistant. Answer shortly."},
            {"role": "user", "content": question},
        ),
        max_tokens=N_TOKENS, temperature=0.0, top_p=1.0, top_k=None, stop=(), seed=None, stream=True,
    )  # fmt: skip
    asked_s = time.monotonic()
    model.ask(request, 120.0, lambda _: times.append(time.monotonic())).result()
    return times[0] - asked_s


def measure(model: LocalModel, n: int) -> np.ndarray:
    """Return times of ``n`` pairs of requests: without and with a training, (n, 2)."""
    threads = {"OMP_NUM_THREADS": str(os.cpu_count()), "OPENBLAS_NUM_THREADS": str(os.cpu_count())}
    burner = subprocess.Popen([sys.executable, "-c", BURNER], env={**os.environ, **threads})
    found = np.zeros((n, 2))
    try:
        for i in range(n):
            for j in (0, 1) if i % 2 else (1, 0):
                burner.send_signal(signal.SIGCONT if j else signal.SIGSTOP)
                time.sleep(SETTLED_S)
                found[i, j] = first_token_s(
                    model, f"What is the number after {7 * i + j}, and why?"
                )
    finally:
        burner.kill()
        burner.wait()
    return found


def ratio(times: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of the 95th percentiles, with over without, and its 95 % interval."""
    rng = np.random.default_rng(0)
    drawn = times[rng.integers(len(times), size=(N_DRAWS, len(times)))]  # (draws, n, 2)
    ratios = np.divide(*np.quantile(drawn, 0.95, axis=1).T[::-1])
    value = float(np.divide(*np.quantile(times, 0.95, axis=0)[::-1]))
    low, high = np.quantile(ratios, [0.025, 0.975])
    return value, float(low), float(high)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=40, help="pairs of requests")
    parser.add_argument("--model", default=PACKAGED, help="packaged name, or a path")
    given = parser.parse_args()
    model = LocalModel(find_model(given.model, Path(), key="--model"))
    try:
        first_token_s(model, "Hello?")  # the weights are read
        times = measure(model, given.requests)
    finally:
        model.close()
    for name, column in zip(("without", "with a training"), times.T, strict=True):
        p50, p95 = np.quantile(column, [0.5, 0.95])
        print(f"{name:16} median {p50 * 1000:6.0f} ms   p95 {p95 * 1000:6.0f} ms")
    value, low, high = ratio(times)
    print(f"p95 with / without: {value:.2f} [{low:.2f}, {high:.2f}], {len(times)} pairs")


if __name__ == "__main__":
    main()
