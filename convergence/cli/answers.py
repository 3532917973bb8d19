"""``show`` and ``compare``: answers of candidates, case by case."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.finished_runs import finished_run
from convergence_core.errors import RunNotFoundError

if TYPE_CHECKING:
    from convergence_core.result import CaseAnswers, RunResult
    from tasks.report.comparison import Subject
    from tasks.store.tables.parquet_store import ParquetStore


def show(
    run: options.FinishedRun = None,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="ID", help="Show only this test case. Repeatable."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Most cases to show; 0: all.")
    ] = 10,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Show the answers of the defaults and the recommended settings, worst cases first.

    Prints for each test case: input, expected answer, both answers with
    differences marked, metrics and judges' reasons. Then: the prompts as a
    diff, and the edits that wrote them. --json has all cases, unless --case
    names some.
    """
    opened = locations.open_store(store, config)
    record = finished_run(opened, run)
    from convergence_core.config import parse_stored  # noqa: PLC0415 - brings pydantic
    from convergence_core.result import RunResult  # noqa: PLC0415 - as above
    from tasks.report.answers import answers_of, cases_of  # noqa: PLC0415 - brings NumPy

    result = RunResult.from_json(record.summary_json or "")
    cases, why = cases_of(record)
    configuration = parse_stored(record.config_json)
    answers = answers_of(result, opened, configuration, cases)
    if case:
        _check_named(case, answers)
        answers = tuple(row for row in answers if {row.case_id, row.name} & {*case})
    recommended = result.roles.get("recommended")
    console.emit(
        {
            "run": result.label,
            "default": None if result.baseline is None else result.baseline.params,
            "recommended": None if recommended is None else recommended.params,
            "found": None if result.best is None else result.best.params,
            "cases": answers,
            "edits": [] if result.prompts is None else result.prompts.family,
        },
        lambda: _print(result, answers, limit=0 if case else limit, is_whole=not case, why=why),
    )


def _print(
    result: "RunResult",
    answers: "Sequence[CaseAnswers]",
    *,
    limit: int,
    is_whole: bool,
    why: str,
) -> None:
    """Print cases as text.

    Args:
        result: result of the run.
        answers: answers by case, worst first.
        limit: number of cases to print; 0 means all.
        is_whole: whether these are all cases; counts and prompts are printed only then.
        why: why the test cases are unknown; empty if they are known.
    """
    from tasks.report.answers_section import answer_blocks, prompt_blocks, sides  # noqa: PLC0415
    from tasks.report.prompts_section import edit_lines  # noqa: PLC0415 - as above

    if result.best is None:
        console.say(f"{result.label} recommends nothing: no configuration got a reward.")
        return
    for line in _head(result, answers, is_whole=is_whole):
        console.answer(line)
    if why:
        console.answer(f"Inputs appear as sent, without expected answers: {why}.")
    defaults = None if result.best_is_baseline else result.baseline
    shown = answers[: limit or None]
    for block in answer_blocks(shown, *sides(result)):
        console.show_block(block)
    if defaults is not None and is_whole:
        for block in prompt_blocks(defaults.params, result.best.params, *sides(result)):
            console.show_block(block)
    if result.prompts is not None and result.prompts.family and is_whole:
        console.answer(f"\nPrompt edits: {result.prompts.sentence}", style="bold")
        for line in edit_lines(result.prompts):
            console.answer(line)
    if len(shown) < len(answers):
        console.say(
            f"\n{len(shown):,} of {len(answers):,} cases; --limit 0 shows all, --case ID one."
        )


def _head(
    result: "RunResult", answers: "Sequence[CaseAnswers]", *, is_whole: bool
) -> Iterator[str]:
    from tasks.report.phrases import best_label, named_label  # noqa: PLC0415 - with its only user

    name = best_label(result)
    yield f"{result.label}: answers, worst cases first"
    if result.facts.get("offline"):
        yield "The run was offline: a mock wrote these answers, not a real model."
    if result.best_is_baseline:
        yield f"The {name} settings are the defaults: each case has one answer."
    elif result.baseline is None:
        yield "The run has no defaults: each case has one answer."
    elif is_whole:
        if result.best is not None:
            yield f"{name}: {named_label(result.best.label, result.best.candidate_id)}"
        if result.challenger is not None:
            stays = "champion" if result.champion else "defaults"
            yield f"Keep the {stays}: held-out cases do not support the settings found."
        yield _counts(answers, name)


def _counts(cases: "Sequence[CaseAnswers]", name: str) -> str:
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - with its only user

    gaps = [round(gap, 3) for case in cases if (gap := case.gap) is not None]
    n_up, n_down = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    return (
        f"Of the {plural(len(gaps), 'case')} with both answers, the {name} settings score higher on "
        f"{n_up:,}, lower on {n_down:,} and the same on {len(gaps) - n_up - n_down:,}."
    )


def _check_named(wanted: Sequence[str], answers: "Sequence[CaseAnswers]") -> None:
    import difflib  # noqa: PLC0415 - only for a message

    known = [row.name or row.case_id for row in answers]
    for name in wanted:
        if name not in {*known, *(row.case_id for row in answers)}:
            near = difflib.get_close_matches(name, known, n=3) or known[:3]
            raise RunNotFoundError(
                f"--case must be the id of a test case of the run, but got {name!r}. "
                f"Did you mean {', '.join(near)}?"
            )


def compare(
    first: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A run, or a configuration of one run: default, recommended, or its name in the report.",
        ),
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="Run of the candidates. Default: the latest finished run."
        ),
    ] = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Compare two candidates of a run, or the recommendations of two runs.

    Uses the cases that both answered. Prints differing parameters, mean scores, their difference
    with its interval (paired by case), price and latency of an answer, and every case.
    """
    opened = locations.open_store(store, config)
    from tasks.report.comparison import compared, comparison_blocks  # noqa: PLC0415 - brings NumPy

    pair = compared(opened, *_subjects(opened, first, second, run))

    def show() -> None:
        for block in comparison_blocks(pair):
            console.show_block(block)
        name = pair.second.run
        if pair.cases:
            console.say(f"\nA case of {name} in full: convergence show {name} --case ID")

    console.emit(pair, show)


def _subjects(
    store: "ParquetStore", first: str, second: str, run: str | None
) -> "tuple[Subject, Subject]":
    """Return the two subjects: candidates of one run, or the recommendations of two runs.

    Raises:
        RunNotFoundError: a name is unknown, or the two are of different kinds.
    """
    from tasks.report.comparison import candidate_named, recommended_of  # noqa: PLC0415

    words = {"default", "recommended", "found"}
    labels = {name for record in store.runs() for name in (record.label, record.run_id)}
    if run is None and not words & {first, second} and {first, second} <= labels:
        a, b = (recommended_of(finished_run(store, name)) for name in (first, second))
        return a, b
    record = finished_run(store, run)
    pair = [candidate_named(name, record, store) for name in (first, second)]
    if pair[0] is not None and pair[1] is not None:
        return pair[0], pair[1]
    if pair == [None, None] and run is None:  # parts of runs' ids
        a, b = (recommended_of(finished_run(store, name)) for name in (first, second))
        return a, b
    unknown = next(
        name for name, subject in zip((first, second), pair, strict=True) if subject is None
    )
    raise RunNotFoundError(
        f"A and B must both be runs, or both be candidates of one run, but {unknown!r} is no "
        f"candidate of {record.label}. Name candidates as default, recommended or as in the "
        f"report (`convergence report {record.label}`), and their run with --run."
    )
