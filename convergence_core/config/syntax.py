"""PyYAML's syntax errors in words that say what to do; never with a piece of the file."""

import yaml

RULES: tuple[tuple[str, str, str], ...] = (
    ("'\\t'", "lines must be indented by spaces, not tabs", "Replace each tab by two spaces."),
    ("undefined alias", "an alias must follow its anchor", "Define it with `&name` before."),
    ("duplicate anchor", "an anchor must be defined once", "Give the second one another name."),
    (
        "single document",
        "the file must hold one YAML document",
        "Remove the `---` that begins a second one.",
    ),
    (
        "but found another document",
        "the file must hold one YAML document",
        "Remove the `---` that begins a second one.",
    ),
    (
        "mapping values are not allowed",
        "a `:` must follow a key at the beginning of a line",
        "Check the indentation, or put the text in quotes if it holds `: `.",
    ),
    (
        "could not find expected ':'",
        "a key must be followed by `:`",
        "Add the `:`, or check the indentation and the quotes above.",
    ),
    (
        "expected <block end>",
        "keys of one mapping must be indented alike",
        "Align the line with its neighbours, or close the bracket or quote above.",
    ),
    (
        "invalid Unicode character escape code",
        "an escape must be that of a character, not of half a pair",
        "Write the character itself, or its code as `\\U` and eight digits.",
    ),
    *(
        (
            sign,
            "a backslash in double quotes must begin an escape of YAML",
            "Double the backslash, or put the text in single quotes.",
        )
        for sign in ("unknown escape character", "hexdecimal number")
    ),
    (
        "quoted scalar",
        "a quoted text must end with its quote",
        "Add the missing quote at the end of the text.",
    ),
    (
        "flow",
        "a `[` or `{` must be closed and its items separated by commas",
        "Add the missing `,`, `]` or `}`.",
    ),
    (
        "cannot start any token",
        "a text must not begin with a character that YAML reserves (`@`, a backtick, `%`)",
        "Put the text in quotes.",
    ),
)


def explain(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str]:
    """Return rule and fix for a syntax error; never a piece of the file, it may be secret."""
    told = f"{error.problem or ''} {error.context or ''}"
    mark = error.problem_mark
    if mark is not None:
        lines = text.splitlines()
        line = lines[mark.line] if mark.line < len(lines) else ""
        indent = line[: len(line) - len(line.lstrip())]
        if "\t" in indent:
            return RULES[0][1:]
    for sign, rule, fix in RULES:
        if sign in told:
            return rule, fix
    return "the file must be valid YAML", "Check indentation, quotes and brackets here and above."
