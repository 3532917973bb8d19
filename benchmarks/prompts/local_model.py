"""The template ``local-llm`` on the model of this machine: written prompts, held out, against those without shots.

    OMP_NUM_THREADS=1 python -m benchmarks.prompts.local_model --task city

The prompt that a run hands over is scored exactly; the best prompt without demonstrations, chosen on the search's
cases, leniently: its answer need only contain the word, within the run's limit of tokens and within one that lets it speak
out. Both answer the same held-out cases, so what is gained is paired by case.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.machine import describe_machine, options
from convergence.templates import plan_files
from convergence_core.search.recommend import mean_interval
from tasks.inputs.loader import load
from tasks.run.assessment import assess, open_assessment

ROOMY: Final = 32
"""Tokens in which an answer without demonstrations has come to its point."""
FILES: Final = {"sentiment": "optimization.yaml", "city": "city.yaml"}
WITHOUT_SHOTS: Final = """
    select p.value as text, avg(m.value) as named from metrics m join parameters p using (run_id, candidate_id)
    where p.parameter = 'prompt' and m.role = 'search' and m.metric = 'named' and not contains(p.value, '<shots>')
    group by all order by named desc limit 8
"""
"""The best prompts without demonstrations, by the cases that each was asked."""


def written(folder: Path, task: str) -> Path:
    """Write the template; return the task's configuration."""
    for path, text in plan_files("local-llm").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder / FILES[task]


def convergence(folder: Path, *words: str) -> Any:
    """Return the JSON that a command prints.

    Raises:
        CalledProcessError: it failed; its own words are on standard error.
    """
    command = [sys.executable, "-m", "convergence", *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def answered(
    config: Path, text: str, metric: str, max_tokens: int | None = None
) -> dict[str, float]:
    """Return test case → what a metric says of the answer to a prompt; known answers are not asked again.

    Args:
        config: of the task.
        text: the prompt.
        metric: its name.
        max_tokens: of an answer; ``None``: as in the run.
    """
    mapping = yaml.safe_load(config.read_text("utf-8"))
    if max_tokens is not None:
        mapping["api"]["request"]["options"]["max_tokens"] = max_tokens
    prompt = mapping["search_space"]["parameters"]["prompt"]
    prompt |= {"variants": [text], "default": text, "mutate": False}
    changed = config.with_name("one.yaml")
    changed.write_text(yaml.safe_dump(mapping), encoding="utf-8")
    run = open_assessment(load(changed))
    try:
        found = assess(run)
    finally:
        run.close()
    return {
        one.case_id: one.second.metrics[metric] for one in found.cases if one.second is not None
    }


def told(values: Mapping[str, float], lowest: float = 0.0) -> str:
    """Return the mean of some cases and its 95 % interval."""
    found = mean_interval(values, lowest=lowest)
    assert found is not None
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"


def main() -> None:
    """Run a task; print what its prompt reaches, and what it gains."""
    task = options(__doc__, task="sentiment").task
    print(describe_machine(), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        config = written(Path(scratch), task)
        result = convergence(config.parent, "optimize", config.name, "--json")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_min = (used.ru_utime + used.ru_stime) / 60
        print(f"{task}: {result['verdict']['sentence']} {cpu_min:.1f} CPU minutes", flush=True)
        held = {case.case_id for case in load(config).holdout_cases}
        best = str(result["winner"]["params"]["prompt"])
        exact = of(held, answered(config, best, "correct"))
        print(
            f"handed over, exact, {len(exact)} held-out cases: {told(exact)}\n{best}\n", flush=True
        )
        texts = [
            row["text"]
            for row in convergence(config.parent, "query", WITHOUT_SHOTS, "--format", "json")
        ]
        for max_tokens in (None, ROOMY):
            plain = {text: answered(config, text, "named", max_tokens) for text in texts}
            seen = {
                text: sum(v for c, v in own.items() if c not in held)
                for text, own in plain.items()
            }
            other = max(texts, key=seen.__getitem__)
            named = of(held, plain[other])
            gained = told({case: exact[case] - named[case] for case in exact}, -1.0)
            limit = "the run's limit of" if max_tokens is None else f"{max_tokens}"
            print(f"the best of {len(texts)} without demonstrations, within {limit} tokens:")
            print(f"lenient {told(named)}; gained over it {gained}\n{other}\n", flush=True)


def of(cases: Collection[str], values: Mapping[str, float]) -> dict[str, float]:
    """Return what belongs to some cases."""
    return {case: value for case, value in values.items() if case in cases}


if __name__ == "__main__":
    main()
