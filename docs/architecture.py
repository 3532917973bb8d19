"""Picture and room list of docs/architecture.md, generated from the import graph.

    python -m docs.build

writes both. A test compares them with the tree.
"""

import ast
import re
from html import escape
from pathlib import Path

from docs.import_graph import floors, modules, rooms, tree

PAGE = Path(__file__).parent / "architecture.md"
PICTURE = Path(__file__).parent / "pictures/architecture.svg"

LAYERS = {
    "convergence": "the front door",
    "deployments": "when and where",
    "flows": "the story of a run",
    "tasks": "touches the world",
    "convergence_core": "decides, without I/O",
}
"""Package → role, from the top. Each package imports only from those below it."""

WIDTH, LEFT, BOX, GAP, BAND = 1220, 190, 106, 8, 18
"""Layout in pixels: picture width, left edge of boxes, box width, box gap and band gap."""
HEIGHT_OF_BOX = 28


def sentence(module: str) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(tree(module)) or "").split("\n")[0]


def _floors_of(package: str) -> list[list[str]]:
    """Return a package's rooms by height, highest first, without the package's name."""
    found = [
        [room.partition(".")[2] for room in floor if not room.endswith(".__main__")]
        for floor in floors(rooms(package))
    ]
    return [floor for floor in reversed(found) if floor]


def _box(x: int, y: int, name: str) -> list[str]:
    """Return a room's box. Folders have a frame, single modules do not."""
    frame = f'<rect x="{x}" y="{y}" width="{BOX}" height="{HEIGHT_OF_BOX}" rx="5"/>'
    middle = f'x="{x + BOX // 2}" y="{y + 19}"'
    return [frame, f'<text {middle} text-anchor="middle">{escape(name)}</text>']


def picture() -> str:
    """Return docs/pictures/architecture.svg: layers as bands, rooms as boxes on floors."""
    per_row = (WIDTH - LEFT - 10) // (BOX + GAP)
    parts: list[str] = []
    y = 10
    for package, role in LAYERS.items():
        rows = [
            floor[at : at + per_row]
            for floor in _floors_of(package)
            for at in range(0, len(floor), per_row)
        ]
        height = len(rows) * (HEIGHT_OF_BOX + GAP) + GAP
        parts += [
            f'<rect class="band" x="8" y="{y}" width="{WIDTH - 16}" height="{height}" rx="8"/>',
            f'<text class="layer" x="20" y="{y + 23}">{package}</text>',
        ]
        # One floor leaves no second line, so the role stands next to the name.
        if len(rows) > 1:
            parts.append(f'<text class="role" x="20" y="{y + 41}">{role}</text>')
        for index, row in enumerate(rows):
            top = y + GAP + index * (HEIGHT_OF_BOX + GAP)
            for column, name in enumerate(row):
                parts += _box(LEFT + column * (BOX + GAP), top, name)
        y += height + BAND
    alternative = escape(
        "Five layers from the top: "
        + ", ".join(f"{name} ({role})" for name, role in LAYERS.items())
        + ". Each room stands above the rooms that it imports."
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - BAND + 10}" '
            f'font-family="system-ui, sans-serif" font-size="12" role="img" '
            f'aria-label="{alternative}">',
            "<style>rect{fill:#fff;stroke:#2563eb;stroke-width:1.2}"
            ".band{fill:#f1f5f9;stroke:#94a3b8}text{fill:#0f172a}"
            ".layer{font-size:15px;font-weight:600}.role{fill:#475569}</style>",
            f'<rect width="{WIDTH}" height="{y}" style="fill:#fff;stroke:none"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def list_of_rooms() -> str:
    """Return the rooms by layer, each with its docstring's first line."""
    lines = []
    for package, role in LAYERS.items():
        lines.append(f"**{package}**: {role}\n")
        for room in sorted(rooms(package)):
            if room.endswith(".__main__"):
                continue
            path = modules()[room]
            home = path.parent if path.name == "__init__.py" else path
            place = home.relative_to(PAGE.parents[1]).as_posix()
            what = sentence(room).rstrip(".").replace("``", "`")
            lines.append(f"- [{place.partition('/')[2]}](../{place}): {what}")
        lines.append("")
    return "\n".join(lines).rstrip()


def page() -> str:
    """Return docs/architecture.md with the current list of rooms."""
    text = PAGE.read_text(encoding="utf-8")
    block = f"<!-- rooms -->\n{list_of_rooms()}\n<!-- end of rooms -->"
    return re.sub(r"<!-- rooms -->.*<!-- end of rooms -->", lambda _: block, text, flags=re.DOTALL)
