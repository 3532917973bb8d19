"""Registry of tasks and task sets."""

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from functools import cache, partial

from benchmarks.optimizer.tasks.base import CaseTask, Task
from benchmarks.optimizer.tasks.functions import FUNCTIONS, FunctionTask
from benchmarks.optimizer.tasks.live import LiveTask
from benchmarks.optimizer.tasks.replay import ExamTask, PromptTask
from benchmarks.optimizer.tasks.simulated import KINDS, SimulatedTask
from benchmarks.optimizer.tasks.surrogates import SurrogateTask
from benchmarks.optimizer.tasks.tables import TableTask

__all__ = ["SETS", "TASKS", "CaseTask", "PromptTask", "Task", "choose", "get_task"]

_SCENARIO = {"xgboost": "rbv2_xgboost", "rpart": "rbv2_rpart", "lcbench": "lcbench"}
_LMENTRY = (
    "all_words_from_category", "ends_with_word", "homophones", "less_letters", "more_letters",
    "rhyming_word", "word_before",
)  # fmt: skip

SPLIT: Mapping[str, tuple[str, ...]] = {
    "tuning": (
        "yahpoN:xgboost-23", "yahpoN:xgboost-1067", "yahpoN:xgboost-300",
        "yahpoN:lcbench-126026", "yahpoN:lcbench-168868", "yahpoN:rpart-1489",
        "yahpo0:xgboost-1067", "yahpo0:lcbench-126026",
        "tab:hpolib-slice_localization", "tab:hpobench-vehicle", "tab:hpobench-phoneme",
        "tab:nasbench201-cifar10",
        "skl:CASH-wine",
        "llm:prompt-ends_with_word", "llm:prompt-word_before", "llm:prompt-navigate",
        "llm:prompt-geometric_shapes", "llm:prompt-disambiguation_qa",
        "llm:prompt-less_letters",
        *(f"sim:{kind}" for kind in KINDS),
    ),
    "public": (
        "yahpoN:xgboost-12", "yahpoN:xgboost-1501", "yahpoN:xgboost-40499",
        "yahpoN:lcbench-167168", "yahpoN:lcbench-189873", "yahpoN:rpart-14",
        "yahpo0:xgboost-1501", "yahpo0:xgboost-40499", "yahpo0:lcbench-189873",
        "tab:hpolib-protein_structure", "tab:hpobench-credit_g", "tab:hpobench-australian",
        "tab:nasbench201-cifar100",
        "skl:CASH-digits", "skl:CASH-breast_cancer", "skl:DT-digits",
        "llm:jhu-acc", "llm:jhu-util", "llm:prompt-rhyming_word", "llm:prompt-homophones",
        "llm:prompt-movie_recommendation", "llm:prompt-snarks",
    ),
    "unseen": (
        "yahpoN:xgboost-1479", "yahpoN:xgboost-31", "yahpoN:lcbench-189909",
        "yahpoN:lcbench-7593", "yahpoN:rpart-1063", "yahpo0:xgboost-31",
        "tab:hpolib-naval_propulsion", "tab:hpobench-kc1", "tab:hpobench-segment",
        "tab:nasbench201-imagenet",
        "skl:DT-breast_cancer",
        "llm:prompt-more_letters", "llm:prompt-all_words_from_category",
        "llm:prompt-causal_judgement", "llm:prompt-ruin_names",
        "llm:prompt-penguins_in_a_table", "llm:prompt-hyperbaton",
    ),
}  # fmt: skip
"""``tuning`` serves to choose settings, ``public`` to report; no setting was chosen on ``unseen``."""


def _llm(name: str) -> tuple[str, ...]:
    return tuple(task for task in SPLIT[name] if task.startswith("llm:"))


SETS: Mapping[str, tuple[str, ...]] = {
    **SPLIT,
    "mini": (
        "yahpoN:xgboost-12", "yahpoN:lcbench-167168", "tab:hpobench-credit_g",
        "tab:nasbench201-cifar100", "skl:CASH-breast_cancer", "llm:jhu-acc",
        "llm:prompt-movie_recommendation", "llm:prompt-homophones",
    ),
    "llm": _llm("public"),
    "unseen-llm": _llm("unseen"),
    "cases": (*(f"sim:{kind}" for kind in KINDS), *_llm("public"), *_llm("unseen")),
    "functions": tuple(
        f"{kind}:{name}-{f.n_dims}" for kind in FunctionTask.kinds for name, f in FUNCTIONS.items()
    ),
}  # fmt: skip
"""The split and its subsets: ``mini`` and ``llm`` of ``public``, ``unseen-llm`` of ``unseen``."""


def _maker(name: str) -> Callable[[], Task]:
    suite, _, rest = name.partition(":")
    kind, _, data_set = rest.partition("-")
    match suite, kind:
        case "yahpoN" | "yahpo0", _:
            is_noisy = suite == "yahpoN"
            return partial(SurrogateTask, _SCENARIO[kind], data_set, is_noisy=is_noisy)
        case (("fn0" | "fnN" | "fnT"), _):
            return partial(FunctionTask, suite, kind)
        case "sim", _:
            return partial(SimulatedTask, rest)
        case (("tab" | "skl"), _):
            return partial(TableTask if suite == "tab" else LiveTask, kind, data_set)
        case "llm", "jhu":
            return partial(ExamTask, is_utility=data_set == "util")
        case _:
            benchmark = "LMentry" if data_set in _LMENTRY else "BBH"
            return partial(PromptTask, benchmark, data_set)


TASKS: Mapping[str, Callable[[], Task]] = {
    name: _maker(name) for names in (*SPLIT.values(), SETS["functions"]) for name in names
}
"""Name → task maker."""


@cache
def get_task(name: str) -> Task:
    """Return the named task. Its only state is the data it has read."""
    task = TASKS[name]()
    assert task.name == name, f"{task.name} is registered as {name}"
    return task


def choose(names: Iterable[str]) -> list[str]:
    """Return the tasks that match sets, names or patterns such as ``llm:*``, each once.

    Raises:
        ValueError: If one of them matches no task.
    """
    chosen: dict[str, None] = {}
    for name in names:
        found = SETS.get(name) or [task for task in TASKS if fnmatch(task, name)]
        if not found:
            raise ValueError(f"`{name}` is no task: use one of {', '.join(SETS)}, or a name")
        chosen.update(dict.fromkeys(found))
    return list(chosen)
