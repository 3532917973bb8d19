"""User code for each prompt optimizer. ``rivals`` starts it in a folder with ``setup.json``."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.optimizer.imports import need

ROOT = Path(__file__).parents[2]


def ask(setup: Any, model: str, messages: list[Any]) -> str:
    """Return a model's answer."""
    body = json.dumps({"model": model, "messages": messages, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(setup["url"] + "/chat/completions", body, headers)  # noqa: S310
    with urllib.request.urlopen(request) as reply:  # noqa: S310
        return str(json.load(reply)["choices"][0]["message"]["content"])


def ours(setup: Any) -> None:
    """Run the command line, or resume after a kill."""
    import yaml  # noqa: PLC0415 - not everybody's

    from convergence.__main__ import main  # noqa: PLC0415 - as above

    if not Path("optimization.yaml").exists():
        template = ROOT / "convergence/templates/prompt/optimization.yaml"
        tree = yaml.safe_load(template.read_text(encoding="utf-8"))
        tree["api"] |= {"endpoint": setup["url"], "auth": {"type": "none"}}
        tree["api"]["request"]["options"]["model"] = "task"
        tree["search_space"]["parameters"]["prompt"] |= {
            "variants": [setup["start"]], "default": setup["start"],
        }  # fmt: skip
        tree["llm"] = {"model": "openai/writer", "endpoint": setup["url"]}
        tree["prompts"].pop("max_share_usd")
        tree["budget"] = {"max_calls": setup["n_calls"]}
        cases = [{"input": {"message": text}, "expected": mood} for text, mood in setup["cases"]]
        Path("test_cases.json").write_text(json.dumps(cases))
        Path("optimization.yaml").write_text(yaml.safe_dump(tree))
        sys.argv[1:] = ["optimize"]
    else:
        sys.argv[1:] = ["resume"]
    main()


def gepa(setup: Any) -> None:
    """Optimize with standalone gepa."""
    cases = [
        {"input": text, "answer": mood, "additional_context": {}} for text, mood in setup["cases"]
    ]
    result = need("gepa").optimize(
        seed_candidate={"prompt": setup["start"]}, trainset=cases[:10], valset=cases[10:],
        task_lm=lambda messages: ask(setup, "task", messages),
        reflection_lm=lambda text: ask(setup, "writer", [{"role": "user", "content": str(text)}]),
        max_metric_calls=setup["n_calls"], run_dir="gepa-run", seed=7,
    )  # fmt: skip
    print(result.best_candidate, max(result.val_aggregate_scores))


def dspy_program(setup: Any) -> tuple[Any, Any, Any, Any]:
    """Return DSPy, the program, its cases and the writer's model."""
    dspy = need("dspy")
    task, writer = (
        dspy.LM(f"openai/{name}", api_base=setup["url"], api_key="none")
        for name in ("task", "writer")
    )
    dspy.configure(lm=task)
    program = dspy.Predict(dspy.Signature("message -> mood", setup["start"]))
    cases = [dspy.Example(message=m, mood=a).with_inputs("message") for m, a in setup["cases"]]
    return dspy, program, cases, writer


def right(example: Any, prediction: Any, *_: Any) -> float:
    """Return whether the mood is the expected one."""
    return float(prediction.mood.strip().lower() == example.mood)


def dspy_gepa(setup: Any) -> None:
    """Optimize a DSPy program by reflection."""
    dspy, program, cases, writer = dspy_program(setup)
    optimizer = dspy.GEPA(
        metric=right, max_metric_calls=setup["n_calls"], reflection_lm=writer, log_dir="gepa-run",
        seed=7,
    )  # fmt: skip
    print(
        optimizer.compile(program, trainset=cases[:10], valset=cases[10:]).signature.instructions
    )


def dspy_mipro(setup: Any) -> None:
    """Propose instructions and demonstrations for a DSPy program."""
    dspy, program, cases, writer = dspy_program(setup)
    optimizer = dspy.MIPROv2(
        metric=right, prompt_model=writer, auto=None, num_candidates=4, seed=7, log_dir="mipro-run",
    )  # fmt: skip
    compiled = optimizer.compile(
        program, trainset=cases[:10], valset=cases[10:], num_trials=12, minibatch=False, seed=7
    )
    print(compiled.signature.instructions)


def capo(setup: Any) -> None:
    """Cross over and rephrase prompts with promptolution."""
    from importlib import import_module  # noqa: PLC0415 - with its only user

    pandas = need("pandas")
    task_model, writer = (
        import_module("promptolution.llms").APILLM(setup["url"], name, "none")
        for name in ("task", "writer")
    )
    frame = pandas.DataFrame(setup["cases"], columns=["x", "y"])
    task = import_module("promptolution.tasks").ClassificationTask(
        frame, "Tell the mood of a message.", eval_strategy="sequential_block", n_subsamples=5
    )
    moods = sorted({*frame["y"]})
    predictor = import_module("promptolution.predictors").FirstOccurrencePredictor(
        task_model, moods
    )
    optimizer = import_module("promptolution.optimizers").CAPO(
        predictor, task, writer, initial_prompts=[setup["start"], setup["start"] + " Be brief."],
        crossovers_per_iter=2, upper_shots=2,
    )  # fmt: skip
    print(optimizer.optimize(n_steps=5)[0])


def opik(setup: Any) -> None:
    """Write meta prompts with Opik."""
    library = need("opik_optimizer")
    library.constants.ENABLE_EVALUATE_ON_DICT_ITEMS = True  # needs no backend
    items = [
        {"id": str(i), "message": text, "mood": mood}
        for i, (text, mood) in enumerate(setup["cases"])
    ]

    class Moods(need("opik").Dataset):  # type: ignore[misc]
        name, id, project_name = "moods", "1", None

        def __init__(self) -> None:
            """Skip the backend."""

        def get_items(self, nb_samples: int | None = None, **_: Any) -> list[dict[str, str]]:
            return items[:nb_samples]

    def correct(dataset_item: Any, llm_output: str) -> float:
        return float(llm_output.strip().lower() == dataset_item["mood"])

    options = {"api_base": setup["url"], "api_key": "none"}
    prompt = library.ChatPrompt(
        system=setup["start"], user="{message}", model="openai/task", model_parameters=options
    )
    optimizer = library.MetaPromptOptimizer(
        model="openai/writer", model_parameters=options, seed=7
    )
    print(optimizer.optimize_prompt(prompt, Moods(), correct, max_trials=setup["n_calls"] // 20))


RUNS = {
    "ours": ours, "gepa": gepa, "dspy-gepa": dspy_gepa, "dspy-mipro": dspy_mipro, "capo": capo,
    "opik": opik,
}  # fmt: skip

if __name__ == "__main__":
    RUNS[sys.argv[1]](json.loads(Path("setup.json").read_text(encoding="utf-8")))
