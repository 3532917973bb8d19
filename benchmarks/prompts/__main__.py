"""Command line of the benchmark of written prompts; see the package."""

import argparse
import json
import os
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.prompts.hill_climb import climb
from benchmarks.prompts.records import add_rows, read_rows, table
from benchmarks.prompts.world import N_ASKED, gap_closed, quality

OPTIMIZERS = ("choice", "climb", "noise", "lies", "ours")
RIVALS = ("capo", "gepa", "mipro")
ARMS = ("together", "prompt first", "knobs first")


def best_prompt(name: str, seed: int, n_calls: int) -> str:
    """Return the prompt that an optimizer hands over."""
    if name == "climb":
        return climb(seed, n_calls)
    if name in RIVALS:
        from benchmarks.prompts import rivals  # noqa: PLC0415 - needs what its environment holds

        return rivals.RIVALS[name](seed, n_calls)
    from benchmarks.prompts.ours import optimize  # noqa: PLC0415 - rivals' environments lack it

    if name == "choice":
        return optimize(seed, n_calls, None)
    return optimize(seed, n_calls, "honest" if name == "ours" else name)  # type: ignore[arg-type]  # a temper


def run_joint(options: argparse.Namespace) -> None:
    """Run the arms of the joint world and print their table."""
    from benchmarks.prompts import joint  # noqa: PLC0415 - rivals' environments lack the engine

    for seed in range(options.first, options.first + options.seeds):
        for arm in options.arms:
            found = joint.tune(arm, seed)
            gap = joint.joint_gap_closed(found)
            row: dict[str, object] = {"optimizer": arm, "seed": seed, "gap_closed": gap}
            row |= {"n_calls": joint.N_EVALUATIONS, "quality": joint.joint_quality(found)}
            add_rows(options.out, [{**row, "prompt": json.dumps(found)}])
            print(f"{arm} {seed}: {gap:.3f}", flush=True)
    print(table(read_rows(options.out), joint.ARMS[0]))


def main() -> None:
    """Run optimizers, or print the table of what they reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument(
        "--opts", nargs="+", choices=[*OPTIMIZERS, *RIVALS], default=["ours", "climb"]
    )
    run.add_argument("--seeds", type=int, default=30)
    run.add_argument("--first", type=int, default=0)
    run.add_argument("--calls", type=int, default=N_ASKED)
    run.add_argument("--out", type=Path, default=Path("build/prompts.csv"))
    report = commands.add_parser("report")
    report.add_argument("path", type=Path)
    report.add_argument("--reference", default="ours")
    joint = commands.add_parser("joint")
    joint.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    joint.add_argument("--seeds", type=int, default=20)
    joint.add_argument("--first", type=int, default=0)
    joint.add_argument("--out", type=Path, default=Path("build/joint.csv"))
    options = parser.parse_args()
    if options.command == "report":
        print(table(read_rows(options.path), options.reference))
        return
    print(describe_machine(), flush=True)
    if options.command == "joint":
        run_joint(options)
        return
    for seed in range(options.first, options.first + options.seeds):
        for name in options.opts:
            text = best_prompt(name, seed, options.calls)
            row: dict[str, object] = {"optimizer": name, "seed": seed, "n_calls": options.calls}
            row |= {"gap_closed": gap_closed(text), "quality": quality(text), "prompt": text}
            add_rows(options.out, [row])
            print(f"{name} {seed}: {gap_closed(text):.3f}", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of a library that is left open would wait
