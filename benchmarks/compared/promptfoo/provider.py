"""promptfoo target: the help desk, with parameters from the provider's ``config``."""

from typing import Any

from help_desk import answer  # type: ignore[import-not-found]


def call_api(prompt: str, options: dict[str, Any], _context: dict[str, Any]) -> dict[str, Any]:
    """Answer one question."""
    known = ("method", "ngram", "title_weight", "drop_stop_words", "min_score")
    knobs = {name: value for name, value in options["config"].items() if name in known}
    return {"output": answer(prompt, **knobs)}
