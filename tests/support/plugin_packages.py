"""Packages that offer plugins, as an installer leaves them in a folder of the import path."""

from collections.abc import Mapping
from pathlib import Path


def install(
    folder: Path,
    package: str,
    code: str,
    entries: Mapping[str, Mapping[str, str]],
    *,
    version: str = "1.0",
) -> None:
    """Write a package of one module into a folder that is, or will be, on ``sys.path``.

    Args:
        folder: of the import path.
        package: name of the distribution; its module is called so, with underscores.
        code: of the module.
        entries: group of entry points → name → name in the module.
        version: of the distribution.
    """
    module = package.replace("-", "_")
    information = folder / f"{module}-{version}.dist-info"
    information.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", encoding="utf-8"
    )
    lines = [
        line
        for group, names in entries.items()
        for line in (
            f"[{group}]",
            *(f"{name} = {module}:{function}" for name, function in names.items()),
        )
    ]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


ECHO = '''
import asyncio

from convergence.plugins import (
    CandidateFault, ConfigurationError, InfrastructureFault, Reply, Usage, WorstCase,
)


class Echo:
    """Answers with its case's question, so many times."""

    provider = "echo"

    def __init__(self, context):
        unknown = context.options.keys() - {"suffix"}
        if unknown:
            raise ConfigurationError.of(
                f"api.plugin_options.{min(unknown)}", "is not a known key", "Write `suffix`."
            )
        self.context = context
        self.n_closed = 0

    def request(self, params, case):
        return {"times": params["k"], "question": case.input["q"]}

    def worst_case(self, params, case):
        return WorstCase(usd=0.01, tokens=100)

    async def call(self, params, case):
        question = case.input["q"]
        if question == "refuse":
            raise CandidateFault("no answer to that", error_type="refused")
        if question == "overload":
            raise InfrastructureFault("come back later", error_type="http_429", retry_after_s=0.0)
        if question == "cut":
            raise ConnectionResetError("the line is cut")
        if question == "crash":
            raise KeyError("a bug")
        if question == "key":
            raise ValueError(f"the key {self.context.secret()} is wrong")
        if question == "hang":
            await asyncio.sleep(3600)
        value = {"nan": float("nan"), "set": {1}, "text": "no reply"}.get(question)
        if question == "text":
            return value
        cost = {"free": None, "debt": -1.0, "ruin": float("inf")}.get(question, 0.001)
        text = question * params["k"] + self.context.options.get("suffix", "")
        return Reply(
            value=text if value is None else value, latency_ms=0.01, cost_usd=cost,
            usage=Usage(prompt_tokens=3, completion_tokens=4),
        )

    async def aclose(self):
        self.n_closed += 1


def make_echo(context):
    return Echo(context)


def make_length(context):
    longest = context.options.get("longest", 10)

    def length(result, expected):
        return min(1.0, len(result) / longest)

    return length
'''
"""A package with a target and a metric."""

ECHO_ENTRIES = {
    "convergence.targets": {"echo": "make_echo"},
    "convergence.metrics": {"length": "make_length"},
}
