"""Optuna on three small tasks: a function's parameters, a chat's prompt and temperature, held-out tests.

    convergence init my-function --template function
    convergence init my-chat --template openai
    convergence mock --port 8765 &
    python -m benchmarks.compared.with_optuna function my-function
    python -m benchmarks.compared.with_optuna chat my-chat http://127.0.0.1:8765/v1

Uses Optuna 5.0.0 in a separate environment. User code for a task lies between ``# begin`` with the
task's name and ``# end``; ``python -m benchmarks.compared.lines`` counts it.
"""

import sys

from benchmarks.optimizer.imports import need

# begin function chat
optuna = need("optuna")
# end
optuna.logging.set_verbosity(optuna.logging.WARNING)

# begin function chat
import json  # noqa: E402
import random  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

folder = Path(sys.argv[2])
cases = json.loads((folder / "test_cases.json").read_text())
random.Random(7).shuffle(cases)  # noqa: S311
half = len(cases) // 2
search, held_out = cases[:half], cases[half:]
# end


def tune_function() -> None:
    """Tune the help desk's parameters, then evaluate on held-out cases."""
    # begin function
    sys.path.insert(0, str(folder))
    from help_desk import answer  # type: ignore[import-not-found]  # noqa: PLC0415

    def right(case: dict[str, Any], **knobs: Any) -> bool:
        return bool(answer(case["input"]["question"], **knobs) == case["expected"])

    def objective(trial: Any) -> float:
        knobs = {
            "method": trial.suggest_categorical("method", ["words", "letters"]),
            "title_weight": trial.suggest_float("title_weight", 0.1, 10.0, log=True),
            "drop_stop_words": trial.suggest_categorical("drop_stop_words", [True, False]),
            "min_score": trial.suggest_float("min_score", 0.0, 0.5),
        }
        if knobs["method"] == "letters":
            knobs["ngram"] = trial.suggest_int("ngram", 2, 6)
        return sum(right(case, **knobs) for case in search) / len(search)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=7))
    study.enqueue_trial(
        {"method": "words", "title_weight": 1.0, "drop_stop_words": False, "min_score": 0.0}
    )
    study.optimize(objective, n_trials=60)
    print(study.best_params, study.best_value)
    # end
    # begin function-held-out
    found = [right(case, **study.best_params) for case in held_out]
    default = [right(case) for case in held_out]
    say_difference(found, default)
    # end


def choose_prompt() -> None:
    """Choose the chat's prompt and temperature, then evaluate on held-out cases."""
    # begin chat
    import urllib.request  # noqa: PLC0415

    url = sys.argv[3] + "/chat/completions"
    prompts = {path.stem: path.read_text().strip() for path in (folder / "prompts").iterdir()}

    def right(case: dict[str, Any], prompt: str, temperature: float) -> bool:
        system = {"role": "system", "content": prompts[prompt]}
        user = {"role": "user", "content": case["input"]["message"]}
        body = {"model": "gpt-4o-mini", "temperature": temperature, "messages": [system, user]}
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
        with urllib.request.urlopen(asked, timeout=30) as reply:  # noqa: S310
            text = json.load(reply)["choices"][0]["message"]["content"]
        return bool(text.strip().lower() == case["expected"])

    def objective(trial: Any) -> float:
        prompt = trial.suggest_categorical("prompt", sorted(prompts))
        temperature = trial.suggest_float("temperature", 0.0, 1.0, step=0.1)
        return sum(right(case, prompt, temperature) for case in search) / len(search)

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=7))
    study.enqueue_trial({"prompt": "short", "temperature": 0.0})
    study.optimize(objective, n_trials=20)
    print(study.best_params, study.best_value)
    # end
    # begin chat-held-out
    found = [right(case, **study.best_params) for case in held_out]
    default = [right(case, "short", 0.0) for case in held_out]
    say_difference(found, default)
    # end


def say_difference(found: list[bool], default: list[bool]) -> None:
    """Print the paired difference with its bootstrap interval."""
    # begin function-held-out chat-held-out
    pairs = [a - b for a, b in zip(found, default, strict=True)]
    draws = random.Random(7)  # noqa: S311
    n = len(pairs)
    means = sorted(sum(draws.choices(pairs, k=n)) / n for _ in range(10_000))
    print(f"held out: {sum(found)} and {sum(default)} of {n} right")
    print(f"difference {sum(pairs) / n:+.3f} [{means[249]:+.3f}, {means[9749]:+.3f}]")
    # end


if __name__ == "__main__":
    {"function": tune_function, "chat": choose_prompt}[sys.argv[1]]()
