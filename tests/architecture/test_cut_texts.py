"""Texts are cut by ``tasks.secrets.redaction`` alone, which takes secrets out of them first."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("convergence", "convergence_core", "deployments", "flows", "tasks")
CUTTER = "tasks/secrets/redaction.py"
SHORTEST = 20
"""Shorter slices are of prefixes and digests."""

_TEXT_NAMES = frozenset(
    [
        "answer",
        "body",
        "content",
        "detail",
        "details",
        "example",
        "line",
        "message",
        "output",
        "prompt",
        "reason",
        "refusal",
        "reply",
        "said",
        "stderr",
        "stdout",
        "text",
        "told",
        "trace",
        "words",
        "why",
    ]
)
_TEXT_MAKERS = frozenset(
    [
        "as_text",
        "ascii",
        "canonical_json",
        "decode",
        "dumps",
        "format",
        "format_exception",
        "format_exc",
        "format_map",
        "join",
        "read_text",
        "repr",
        "str",
        "strip",
        "rstrip",
        "lstrip",
        "replace",
    ]
)
_PRECISION = re.compile(r"\.\d+s?$")
"""Of a text: numbers name their form as well, ``.3f``."""
_CUTTERS = frozenset({"shorten", "aRepr"})

ALLOWED = {
    "convergence/cli/arms.py": {"json.dumps(arm.params)[:60]", "text[:80]"},
    "convergence/optimize/inputs.py": {"repr(section)[:80]"},
    "tasks/inputs/case_files.py": {"text[:_SAMPLE]"},
    "tasks/mock/protocol.py": {"repr(value)[:60]"},
    "convergence/plugins/learning/rlp.py": {"text[:80]"},
    "convergence/runtime/functions.py": {"repr(defect['input'])[:80]"},
    "convergence_core/evidence.py": {"str(value)[:80]"},
    "convergence_core/bandit/drift.py": {"str(value)[:80]"},
    "convergence_core/bandit/features.py": {"text[:MOST_OF_TEXT]"},
    "convergence_core/field_types.py": {"text[:MOST_OF_TEXT]"},
    "tasks/models/text_embedder.py": {"text[:MOST_CHARACTERS]"},
    "convergence_core/config/evaluation_rules.py": {"str(error)[:80]"},
    "convergence_core/config/source.py": {"text[:40]"},
    "convergence_core/config/secrecy.py": {"text[:_MAX_SHOWN - 2]"},
    "convergence_core/gate/best_arm_test.py": {"str(value)[:80]"},
    "convergence_core/rlp/reply.py": {
        "' '.join(_storable(str(value)).split())[:60]",
        "_storable(notes).strip()[:MOST_NOTES]",
    },
    "tasks/rlp/prompts.py": {"text[:MOST_TEXT - 1]"},
    "convergence_core/search/sampler.py": {"str(value)[:80]"},
    "convergence_core/space/builder.py": {"text[:60]"},
    "convergence_core/space/parameters.py": {"str(value)[:40]", "text[:LONGEST_SHOWN - 1]"},
    "convergence_core/space/space.py": {"str(value)[:60]", "str(params[name])[:60]"},
    "convergence_core/search/study_state.py": {"str(value)[:80]"},
    "tasks/store/runtime/runtime_store.py": {"canonical_json(dict(arm.params))[:200]"},
    "tasks/serving/offers.py": {"text[16:20]", "text[20:]"},
}  # fmt: skip
"""What is cut and is no answer, error or output of others: values of a configuration, which was
checked to hold no secret, states and digests of our own, texts of which only features are kept, and
what the store keeps redacted."""


def is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        return name in _TEXT_MAKERS
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in _TEXT_NAMES


def is_long(bound: ast.expr | None) -> bool:
    if isinstance(bound, ast.UnaryOp):
        bound = bound.operand
    if isinstance(bound, ast.BinOp):
        return is_long(bound.left)
    if isinstance(bound, ast.Constant):
        return isinstance(bound.value, int) and bound.value >= SHORTEST
    name = bound.attr if isinstance(bound, ast.Attribute) else getattr(bound, "id", "")
    return name.isupper() or name in ("limit", "length", "most", "width")


def cuts(tree: ast.AST) -> Iterator[str]:
    """Yield the expressions that cut texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            part = node.slice
            if is_text(node.value) and (is_long(part.upper) or is_long(part.lower)):
                yield ast.unparse(node)
        elif isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            parts = getattr(node.format_spec, "values", [])
            if any(_PRECISION.search(str(getattr(part, "value", ""))) for part in parts):
                yield ast.unparse(node)
        elif isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in _CUTTERS:
                yield ast.unparse(node)


def test_the_forms_of_a_cut_are_found():
    forms = [
        "str(error)[:300]", "f'{a}: {b}'[:200]", "' '.join(words)[:MOST]", "body[:2000]",
        "fault.details[-500:]", "text[:limit - 1]", "textwrap.shorten(a, 80)", "f'{text:.200}'",
    ]  # fmt: skip
    assert [form for form in forms if not [*cuts(ast.parse(form))]] == []
    assert [*cuts(ast.parse("digest[:24]; text[:2]; rows[:MOST]; f'{x:.3f} {x:,}'"))] == []


def test_texts_are_cut_in_one_place():
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = file.relative_to(ROOT).as_posix()
            if name != CUTTER and (those := {*cuts(ast.parse(file.read_text()))}):
                found[name] = those
    strange = {
        name: left for name, those in found.items() if (left := those - ALLOWED.get(name, set()))
    }
    assert strange == {}, (
        "texts are cut here that may hold a secret; use `shortened` or `one_line` of "
        "tasks.secrets.redaction, which redact first"
    )
