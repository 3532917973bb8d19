"""MCP server over stdio with one tool that has tunable options."""

import re

from mcp.server.mcpserver import MCPServer

ARTICLES = {
    "returns": (
        "Send it back",
        "Shoes and clothes go back within 30 days, unworn, free of charge.",
    ),
    "refunds": (
        "Your money",
        "We transfer refunds in three days once returned goods have arrived.",
    ),
    "tracking": (
        "Where is it",
        "Each parcel has a number; tracked parcels are found by the carrier.",
    ),
    "late": ("Delays", "Deliveries are late in storms. Orders that were sent cannot be stopped."),
    "cards": ("Payment", "We take cards and transfers. A card is charged when goods are sent."),
    "address": ("Moving", "Change the address of an order until its parcel is sent."),
    "hours": ("Opening hours", "The shop in town opens at nine, on Saturdays at ten."),
    "account": (
        "Your account",
        "Accounts are closed by a letter; orders stay stored for ten years.",
    ),
}
server = MCPServer("help")


def words_of(text: str, stem: int) -> list[str]:
    """Return the stems of a text's words."""
    return [word[:stem] for word in re.findall(r"[a-z]+", text.lower())]


@server.tool()
def search(query: str, stem: int = 20, title_weight: float = 1.0, shortest: int = 1) -> list[str]:
    """Return names of articles, the best first.

    Args:
        query: what is looked for.
        stem: letters of a word that count.
        title_weight: what a word of a title is worth; one of the text is worth 1.
        shortest: words of fewer letters are left out.
    """
    wanted = {word[:stem] for word in words_of(query, 99) if len(word) >= shortest}

    def worth(name: str) -> float:
        title, text = ARTICLES[name]
        in_title = len(wanted & {*words_of(title, stem)})
        return title_weight * in_title + len(wanted & {*words_of(text, stem)})

    return sorted(ARTICLES, key=lambda name: (-worth(name), name))


if __name__ == "__main__":
    server.run()  # stdio
