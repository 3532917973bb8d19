"""Recorded and replayed answers of language models. A case is one test question."""

import csv
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.optimizer.spaces import Point, Space, categorical, real
from benchmarks.optimizer.tasks.base import DATA, CaseTask

WEIGHTS = (0.6, 0.3, 0.1)
"""Weights of score, speed and price in the reward of ``jhu-util``."""
_WITH_TECHNIQUES = "gpt-35-turbo"
"""The only model recorded with several prompting techniques."""
_TECHNIQUE = "chain_of_thought"


class ExamTask(CaseTask):
    """Model, temperature and prompting technique on 100 multiple-choice questions, with real answers.

    A temperature maps to the nearest recorded one. With ``is_utility``, the reward weighs score, speed
    and price by ``WEIGHTS``; the latter two are 1 minus the log's position between minimum and maximum.
    """

    suite = "llm"

    def __init__(self, *, is_utility: bool) -> None:
        with np.load(DATA / "jhu" / "comprehensive_100.npz") as file:
            table = {name: file[name] for name in file.files}
        models, techniques = table["model"].tolist(), table["technique"].tolist()
        decis = [round(10 * t) for t in table["temperature"].tolist()]
        rows = {key: i for i, key in enumerate(zip(models, techniques, decis, strict=True))}
        rewards = table["score"].astype(float)
        if is_utility:
            score, speed, price = WEIGHTS
            rewards = score * rewards
            rewards = rewards + speed * (1 - _log_place(table["seconds"]))[:, None]
            rewards = rewards + price * (1 - _log_place(table["usd"]))[:, None]
        self._rows, self._rewards = rows, rewards
        technique = categorical("prompt", *sorted(set(techniques)))
        super().__init__(
            "llm:jhu-util" if is_utility else "llm:jhu-acc",
            Space(
                [
                    categorical("model", *sorted(set(models))),
                    real("temperature", 0.0, 1.0),
                    replace(technique, parent="model", parent_values=(_WITH_TECHNIQUES,)),
                ]
            ),
        )
        self.n_cases = rewards.shape[1]

    def _row(self, point: Point) -> np.ndarray:
        technique = point.get("prompt", _TECHNIQUE)
        key = (point["model"], technique, round(float(point["temperature"]) * 10))
        row: np.ndarray = self._rewards[self._rows[key]]
        return row

    def evaluate_cases(
        self, point: Point, cases: Sequence[int], rng: np.random.Generator
    ) -> list[float]:
        """Return the recorded rewards. A repeated case gives the same answer."""
        del rng
        row = self._row(point)
        return [float(row[case]) for case in cases]

    def true(self, point: Point) -> float:
        """Return the mean over all questions."""
        return float(self._row(point).mean())


def _log_place(numbers: np.ndarray) -> np.ndarray:
    """Return positions of logs between minimum and maximum; unknown values get the median."""
    is_known = numbers > 0
    logs = np.log(numbers[is_known])
    places = np.empty(len(numbers))
    places[is_known] = (logs - logs.min()) / (logs.max() - logs.min())
    places[~is_known] = np.median(places[is_known])
    return places


class PromptTask(CaseTask):
    """Prompt template and model, with each pair's real accuracy over 100 samples.

    Individual answers are unpublished, so a case is a Bernoulli draw with that accuracy.
    """

    suite = "llm"
    n_cases = 100

    def __init__(self, benchmark: str, task: str) -> None:
        path = DATA / "multi_prompt" / benchmark / f"{task}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
        complete = [line for line in lines if all(line)]
        models = [name.replace("_acc", "") for name in header[1:]]
        templates = [f"t{line[0]}" for line in complete]
        self.accuracy = np.array([[float(x) for x in line[1:]] for line in complete])
        """Accuracy of each template with each model, (n_templates, n_models)."""
        self._model = {model: i for i, model in enumerate(models)}
        self._template = {template: i for i, template in enumerate(templates)}
        super().__init__(
            f"llm:prompt-{task}",
            Space([categorical("model", *models), categorical("template", *templates)]),
        )

    def true(self, point: Point) -> float:
        """Return the published accuracy."""
        row, column = self._template[str(point["template"])], self._model[str(point["model"])]
        return float(self.accuracy[row, column])

    def evaluate_cases(
        self, point: Point, cases: Sequence[int], rng: np.random.Generator
    ) -> list[float]:
        """Return right (1) or wrong (0) for each case."""
        return [float(hit) for hit in rng.random(len(cases)) < self.true(point)]
