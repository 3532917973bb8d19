"""Review of proposed test cases: approval into a file, or rejection.

Games that feed ``hard_cases`` propose plays with the system as incumbent in which the critic
scored: the executed reference solved the input, and the check accepted its answer but rejected the
system's. Only a reviewer's approval creates a test case.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from convergence_core.config.games import SANDBOX, SYSTEM
from convergence_core.errors import ConfigurationError, InteractionNotFoundError
from convergence_core.feedback.records import ChatMessage, Interaction
from convergence_core.records import Case, Json, canonical_json
from tasks.inputs.cases import GAMES_TAG
from tasks.inputs.loader import Loaded, load
from tasks.inputs.storage import store_path
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.proposals import ProposedCase, proposed_cases, reviewed, save_review
from tasks.store.layout import FILE_MODE
from tasks.store.tables.parquet_store import ParquetStore

_KEY = "evaluation.test_cases.approved"


def input_of(prompt: str, cases: Sequence[Case], field: str | None) -> Json:
    """Return the input of a new case: the prompt in the other cases' shape.

    Args:
        prompt: logged prompt.
        cases: existing cases.
        field: field of the input for the prompt; ``None`` infers it from the other cases.

    Raises:
        ConfigurationError: the field cannot be inferred.
    """
    if field is not None:
        return {field: prompt}
    shapes = [case.input for case in cases]
    if all(isinstance(shape, str) for shape in shapes):
        return prompt
    names = {tuple(shape) if isinstance(shape, dict) else () for shape in shapes}
    if len(names) == 1 and len(only := names.pop()) == 1:
        return {only[0]: prompt}
    rule = "must name the field of a case's input that holds the prompt, where inputs have several"
    raise ConfigurationError.of("--field", rule, "Write e.g. `--field question`.")


def append_case(loaded: Loaded, case: dict[str, Json]) -> Path:
    """Append a case to the file of approved cases, durably; return the file.

    A case with a known id is not appended again. If the configuration would be invalid with the
    case, the file stays unchanged.

    Raises:
        ConfigurationError: the configuration names no such file, or would be invalid with the
            case.
    """
    name = loaded.configuration.evaluation.test_cases.approved
    if name is None or loaded.config_path is None:
        fix = "Add e.g. `approved: approved_cases.jsonl` below `test_cases`."
        raise ConfigurationError.of(_KEY, "must name the file that approved cases go to", fix)
    file = loaded.base_dir / name
    if case["id"] in {case.case_id for case in loaded.cases}:
        return file
    line = json.dumps(case, ensure_ascii=False) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
    with os.fdopen(descriptor, "ab") as stream:
        before = stream.tell()
        stream.write(line.encode())
        stream.flush()
        os.fsync(stream.fileno())
        try:
            load(loaded.config_path)
        except ConfigurationError:
            stream.truncate(before)
            if not before:
                file.unlink()
            raise
    return file


CRITIC, INCUMBENT = "critic", "incumbent"
MOST: Final = 200
"""Maximum number of hard cases proposed at a time, oldest first."""
_HARD: Final = f"""
    SELECT p.play_id, p.game, p.turns_json, p.round, epoch_us(g.started_at) AS at_us
    FROM game_plays p JOIN runs r USING (run_id) JOIN generations g USING (run_id, generation)
    JOIN game_coins c ON c.run_id = p.run_id AND c.generation = p.generation AND c.game = p.game
    WHERE r.name IN ($system, $system || '.games') AND c.feeds = 'hard_cases' AND c.grounded AND p.status = 'played'
      AND p.scores['{CRITIC}'] = 1
      AND json_extract_string(p.players_json, '$.{INCUMBENT}') = $player
    ORDER BY p.round, p.game, p.position"""  # noqa: S608 - constants


def hard_cases(
    store: ParquetStore, system: str, decided: Iterable[str] = ()
) -> list[ProposedCase]:
    """Return the undecided hard cases of a system's games, one per prompt.

    Args:
        store: store with the plays.
        system: name of the optimized system.
        decided: ids of decided proposals.
    """
    cases: dict[str, ProposedCase] = {}
    gone, known = set(decided), set()
    parameters = {"system": system, "player": SYSTEM}
    for row in store.rows(_HARD, parameters):
        turns = json.loads(row["turns_json"])
        answers = [(text, reply) for role, text, reply in turns if role == INCUMBENT]
        if len(answers) != 1:
            continue
        ((prompt, answer),) = answers
        if row["play_id"] in gone:
            known.add(prompt)  # decided for all plays with this prompt
        cases.setdefault(prompt, _proposed(system, row, prompt, answer, _right(turns)))
    return [case for prompt, case in cases.items() if prompt not in known][:MOST]


def _right(turns: list[list[str]]) -> str | None:
    """Return the executed reference's answer; ``None`` if the reports hold none."""
    reports = [json.loads(reply) for role, _, reply in turns if role == SANDBOX]
    value = reports[0].get("value") if reports else None
    if value is None or isinstance(value, str):
        return value
    return canonical_json(value)


def _proposed(system: str, row: Any, prompt: str, answer: str, right: str | None) -> ProposedCase:
    shown = "" if right is None else f"; the reference answers {right}"
    return ProposedCase(
        interaction=Interaction(
            interaction_id=row["play_id"],
            source="games",
            event_id=row["play_id"],
            role=INCUMBENT,
            user_id="games",
            model=SYSTEM,
            messages=(ChatMessage(role="user", content=prompt),),
            response=answer,
            created_us=int(row["at_us"]),
            system=system,
        ),
        failed=f"{row['game']}: by execution the answer is wrong{shown}",
        right=right,
    )


def proposed_for(loaded: Loaded, feedback: FeedbackStore) -> list[ProposedCase]:
    """Return a configuration's proposed test cases: from ratings, then from games.

    Both are sorted by age, oldest first.
    """
    name = loaded.configuration.api.name
    store = ParquetStore(store_path(loaded))
    return [*proposed_cases(feedback, name), *hard_cases(store, name, reviewed(feedback))]


def approve_case(
    loaded: Loaded,
    feedback: FeedbackStore,
    interaction_id: str,
    *,
    expected: str | None = None,
    field: str | None = None,
) -> tuple[str, str]:
    """Make a proposed answer's prompt a test case, durably; return its id and a sentence.

    Args:
        loaded: configuration with the file of approved cases.
        feedback: feedback of its store.
        interaction_id: id of the answer.
        expected: the right answer; ``None`` means that of a game's reference, or no expected
            answer.
        field: field of the input for the prompt; ``None`` means the only one.

    Raises:
        ConfigurationError: it names no such file, or would be invalid with the case.
        InteractionNotFoundError: the answer is not proposed.
    """
    proposal = _proposed_case(loaded, feedback, interaction_id)
    case: dict[str, Json] = {
        "id": proposal.case_id,
        "input": input_of(proposal.prompt, loaded.cases, field),
        "tags": [GAMES_TAG if proposal.failed else "feedback"],
        "description": proposal.marks,
    }
    if expected is not None or proposal.right is not None:
        case["expected"] = proposal.right if expected is None else expected
    file = append_case(loaded, case)
    save_review(feedback, interaction_id, "approved", proposal.case_id)
    use = (
        "each run uses a random part of such cases" if proposal.failed else "the next run uses it"
    )
    return proposal.case_id, f"{proposal.case_id} is in {file}; {use}."


def reject_case(loaded: Loaded, feedback: FeedbackStore, interaction_id: str) -> tuple[str, str]:
    """Reject a proposed answer durably; return its case id and a sentence.

    Raises:
        InteractionNotFoundError: the answer is not proposed.
    """
    case = _proposed_case(loaded, feedback, interaction_id)
    save_review(feedback, interaction_id, "rejected")
    return case.case_id, f"{case.case_id} is not proposed again."


def _proposed_case(loaded: Loaded, feedback: FeedbackStore, name: str) -> ProposedCase:
    for case in proposed_for(loaded, feedback):
        if case.interaction.interaction_id == name:
            return case
    raise InteractionNotFoundError(
        f"an answer that is proposed must be named, but got {name[:200]!r}. "
        "`convergence review` lists them."
    )
