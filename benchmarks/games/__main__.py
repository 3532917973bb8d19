"""The command line; see the package."""

import argparse
from typing import Final

from benchmarks.games.ablation import report_costs, report_finds
from benchmarks.games.cost import report_cost
from benchmarks.games.learned import report_learned
from benchmarks.games.society import report_society
from benchmarks.machine import describe_machine

PARTS: Final = {
    "cost": report_cost,
    "learned": report_learned,
    "society": report_society,
    "finds": report_finds,
    "harms": report_costs,
}
QUICK: Final = ("cost", "learned", "society")
"""What takes a minute or less; the others take ten."""

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; else {', '.join(QUICK)}")
    chosen = parser.parse_args().parts or QUICK
    unknown = sorted(set(chosen) - PARTS.keys())
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    print(describe_machine())
    for part in chosen:
        PARTS[part]()
