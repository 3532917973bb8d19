"""DSPy tuning a chat's prompt and temperature, then tested on held-out cases.

    convergence init my-chat --template openai
    convergence mock --port 8765 &
    python -m benchmarks.compared.with_dspy my-chat http://127.0.0.1:8765/v1

Uses DSPy 3.4.1 in a separate environment. User code lies between ``# begin`` and ``# end``;
``python -m benchmarks.compared.lines`` counts it. DSPy's optimizers (MIPROv2, GEPA and others) let a
model write instructions. A mock's would mean nothing, so this compares given prompts.
"""

import sys

from benchmarks.optimizer.imports import need

# begin chat
dspy = need("dspy")
import json  # noqa: E402
import random  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

folder = Path(sys.argv[1])
prompts = {path.stem: path.read_text().strip() for path in (folder / "prompts").iterdir()}
cases = [
    dspy.Example(message=case["input"]["message"], mood=case["expected"]).with_inputs("message")
    for case in json.loads((folder / "test_cases.json").read_text())
]
random.Random(7).shuffle(cases)  # noqa: S311
half = len(cases) // 2
search, held_out = cases[:half], cases[half:]


def right(example: Any, prediction: Any, _trace: Any = None) -> bool:
    """Return whether the mood is the expected one."""
    return bool(prediction.mood.strip().lower() == example.mood)


def evaluate(devset: list[Any], prompt: str, temperature: float) -> Any:
    """Return DSPy's result on the cases."""
    lm = dspy.LM(
        "openai/gpt-4o-mini", api_base=sys.argv[2], api_key="none", temperature=temperature
    )
    with dspy.context(lm=lm):
        program = dspy.Predict(dspy.Signature("message -> mood", prompts[prompt]))
        return dspy.Evaluate(devset=devset, metric=right, num_threads=4)(program)


# end


def main() -> None:
    """Evaluate a grid, then compare the best with the default on held-out cases."""
    # begin chat
    temperatures = [step / 10 for step in range(11)]
    grid = [(prompt, temperature) for prompt in sorted(prompts) for temperature in temperatures]
    best = max(grid, key=lambda setting: evaluate(search, *setting).score)
    print(best)
    # end
    # begin chat-held-out
    found, default = evaluate(held_out, *best), evaluate(held_out, "short", 0.0)
    both = zip(found.results, default.results, strict=True)
    pairs = [int(a[2]) - int(b[2]) for a, b in both]
    draws = random.Random(7)  # noqa: S311
    n = len(pairs)
    means = sorted(sum(draws.choices(pairs, k=n)) / n for _ in range(10_000))
    print(f"held out: {found.score} % and {default.score} % right")
    print(f"difference {sum(pairs) / n:+.3f} [{means[249]:+.3f}, {means[9749]:+.3f}]")
    # end


if __name__ == "__main__":
    main()
