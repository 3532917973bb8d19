"""Family tree of a text parameter: prompts, their origins and their rewards."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from convergence_core.errors import QueryError
from convergence_core.ports import RunRecord
from convergence_core.prompts.state import text_id_of
from convergence_core.space import Choice
from tasks.pages.allocation import standings, tags_of
from tasks.pages.source import Page, PageSource, line_of
from tasks.report.prompts_section import effect_text
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import shortened

LONGEST = 50_000
"""Maximum characters of a prompt."""
_MUTATIONS = """
SELECT text_id, operator, parent_ids_json, failures_json, diagnosis, category, writer, effect,
       effect_se, n_shared, fixed, broken
FROM mutation_effects WHERE run_id = $run AND parameter = $parameter AND verdict = 'kept'
"""


def prompt_tree(source: PageSource, record: RunRecord, parameter: str) -> Page:
    """Return the prompts of a parameter, by default of the first text parameter.

    Raises:
        QueryError: the run has no such parameter.
    """
    space = json.loads(record.search_space_json).get("parameters", {})
    names = [name for name, parameter in space.items() if parameter.get("type") == "text"]
    if parameter and parameter not in names:
        raise QueryError(f"`parameter` must be one of {', '.join(names) or 'none'}.")
    chosen = parameter or (names[0] if names else None)
    nodes = [] if chosen is None else _nodes(source, record, chosen)
    return {"parameters": names, "parameter": chosen, "nodes": nodes}


def _nodes(source: PageSource, record: RunRecord, parameter: str) -> list[Page]:
    rows = [row for row in standings(source, record) if parameter in row["params"]]
    by_id = {row["candidate_id"]: row for row in rows}
    holders: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        holders.setdefault(str(row["params"][parameter]), []).append(row)
    written = {
        row["text_id"]: row
        for row in source.rows(_MUTATIONS, run=record.run_id, parameter=parameter)
    }
    tags = tags_of(source, record)
    space = source.space(record)
    shown = None if space is None else space.parameters.get(parameter)
    nodes = []
    for text, of in holders.items():
        first = min(of, key=lambda row: row["generation"])
        parents = {
            text_id_of(other)
            for parent_id in first["parent_ids"] or ()
            if parent_id in by_id and (other := str(by_id[parent_id]["params"][parameter])) != text
        }
        mutation = written.get(text_id_of(text))
        node = _node(text, of, sorted(parents), mutation)
        node["number"] = (
            shown.show(text) if isinstance(shown, Choice) and text in shown.choices else None
        )
        node["failures"] = [
            {"case_id": case_id, "name": source.case_name(record, case_id)}
            for case_id in json.loads((mutation or {}).get("failures_json") or "[]")
        ]
        ids = node["candidate_ids"]
        nodes.append(
            {**node, "tags": sorted({tag for tag_id in ids for tag in tags.get(tag_id, ())})}
        )
    return nodes


def _node(
    text: str,
    holders: Sequence[Mapping[str, Any]],
    parents: Sequence[str],
    mutation: Mapping[str, Any] | None,
) -> Page:
    """Return a prompt with the statistics of its best candidate."""
    best = holders[0]  # standings are best first
    first = min(holders, key=lambda row: row["generation"])
    return {
        "id": text_id_of(text),
        "parents": list(
            parents if mutation is None else json.loads(mutation["parent_ids_json"] or "[]")
        ),
        "text": shortened(text, LONGEST, redacted_text),
        "generation": first["generation"],
        "origin": first["origin"],
        "name": line_of(text, 80),
        "candidate_ids": [row["candidate_id"] for row in holders],
        "mean": best["mean"],
        "low": best["low"],
        "high": best["high"],
        "effect": _effect(mutation),
        "operator": None if mutation is None else mutation["operator"],
        "reason": None if mutation is None else line_of(mutation["diagnosis"], 1_000),
    }


def _effect(mutation: Mapping[str, Any] | None) -> Page | None:
    """Return a prompt's effect on the cases shared with its first parent."""
    if mutation is None or mutation["effect"] is None:
        return None
    same = ("n_shared", "fixed", "broken")
    return {
        "mean": mutation["effect"],
        "se": mutation["effect_se"],
        "text": effect_text(mutation["effect"], mutation["effect_se"]),
        **{name: mutation[name] for name in same},
    }
