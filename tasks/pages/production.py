"""Production of a system: arms, shares, rewards, regret, evidence, alarms, ramps."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from convergence_core.errors import NoArmsError, RunNotFoundError
from convergence_core.result.number_text import UNKNOWN, evidence, plural, reward, whole_percent
from convergence_core.space import same_params
from tasks.pages.source import Page, PageSource, line_of, page_of, span_of_time, tabs_of
from tasks.report.blocks import (
    Action,
    Axis,
    Block,
    Bullets,
    Grid,
    Heading,
    Inline,
    Layer,
    Paragraph,
    Plot,
    Plots,
    Point,
    Span,
    code,
    marked,
    page_action,
    section,
)
from tasks.report.phrases import clean, ledgers, settings_text
from tasks.run.adoption import former_of
from tasks.serving.answers import Arm
from tasks.serving.systems import Systems
from tasks.store.clock import moment
from tasks.store.runtime.promotions import champion_of, champions, looks
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import alarms, guards_of

BEGIN = "convergence promote"
_DECISIONS = (
    "SELECT g.agent_type, d.arm_id, count(*), sum(count(*)) OVER (PARTITION BY g.agent_type) "
    "FROM decisions d JOIN groups g ON g.id = d.group_id "
    "WHERE g.system = ? GROUP BY g.agent_type, d.arm_id"
)
_HOURLY = (
    "SELECT r.received_us / 3600000000, count(*), avg(r.reward) FROM rewards r "
    "JOIN groups g ON g.id = r.group_id WHERE g.system = ? AND r.status = 'ok' "
    "GROUP BY r.received_us / 3600000000 ORDER BY r.received_us / 3600000000"
)
MOST_HOURS = 24 * 90
MOST_ROWS = 50
_NOTHING = (
    "This page shows which settings are live, their share of the requests and their rewards. Nothing is in "
    "production yet."
)


def production(source: PageSource, system: str | None = None) -> Page:
    """Return the production page of a system, by default of the first.

    Raises:
        RunNotFoundError: the system is unknown.
    """
    runtime = source.runtime()
    known = sorted({name for name, _ in ([] if runtime is None else runtime.systems())})
    if system is None and not known:
        command = BEGIN if source.runs() else "convergence optimize"
        return page_of([Paragraph((f"{_NOTHING} Next: ", code(command)))])
    shown = known[0] if system is None else system
    served = None if runtime is None else Systems(runtime)
    gates = None if served is None else served.gates(shown)
    if runtime is None or served is None or gates is None:
        raise RunNotFoundError(
            f"system {clean(shown)!r} has served no request. See `convergence promote`."
        )
    blocks = _system(source, runtime, shown, gates, served.arms)
    return page_of([*tabs_of("production", known), *blocks])


def _system(
    source: PageSource,
    runtime: RuntimeStore,
    system: str,
    gates: Mapping[str, Any],
    arms_of: Callable[[str], Sequence[Arm]],
) -> Iterator[Block]:
    try:
        arms = arms_of(system)
    except NoArmsError:
        arms = ()
    champion, names = champion_of(runtime, system), _names(source, arms)
    shares = _shares(runtime, system)
    sentences = [*_sentences(gates, names), *ledgers(looks(runtime, system)).values()]
    yield from section("Live", _live(source, champion, arms, shares), sentences)
    yield Heading("Arms")
    if former_of(runtime, system) is not None:
        ask = "The previous champion answers again from the next decision."
        place = ("production", system, "rollback")
        back = page_action("Roll back", *place, ask=ask, confirm=system, is_danger=True)
        yield Paragraph((back,))
    if arms:
        yield _arms(
            system,
            arms,
            names=names,
            shares=shares,
            evidence_by_type=gates["evidence"],
            champion=champion,
        )
    else:
        yield Paragraph(("No active arms. Next: ", code(BEGIN)))
    yield from _history(runtime, system)
    yield from _list(
        "Alarms",
        "No alarms.",
        [(_named(names, alarm.sentence), alarm.created_us) for alarm in alarms(runtime, system)],
    )
    shown = {arm_id: clean(name) for arm_id, name in names.items()}
    guards = [(guard.sentence(shown), None) for guard in guards_of(runtime, system)]
    yield from _list("Ramps", "No promotion is on a ramp.", guards)
    promotions = [
        (f"{source.champion_name(past)}: {_named(names, past.reason)}", past.created_us)
        for past in champions(runtime, system)
    ]
    yield from _list("Promotions", "No promotions yet.", promotions)


def _list(title: str, nothing: str, rows: Sequence[tuple[str, int | None]]) -> list[Block]:
    """Return a section of sentences with their times, or a note that it is empty."""
    items = tuple(
        (*marked(sentence), *(() if at_us is None else (" ", span_of_time(at_us))))
        for sentence, at_us in rows[:MOST_ROWS]
    )
    return [Heading(title), Bullets(items) if items else Paragraph((nothing,), "note")]


def _live(
    source: PageSource,
    champion: Champion | None,
    arms: Sequence[Arm],
    shares: Mapping[tuple[str, str], tuple[int, float]],
) -> str:
    """Return a sentence on the live configuration: start, share of requests, rewards."""
    if champion is None:
        active = sum(not arm.retired for arm in arms)
        return f"Nothing was promoted yet: {plural(active, 'arm')} share the requests."
    text = f"Live since {moment(champion.created_us)}: {source.champion_name(champion)}"
    serving = [arm for arm in arms if _is_champion(arm, champion)]
    decided = [shares[arm.agent_type, arm.arm_id] for arm in serving if _key(arm) in shares]
    if not decided:
        return f"{text}. It has served no request yet."
    n = sum(arm.n for arm in serving)
    return f"{text}, with {whole_percent(decided[0][1])} of the requests, {plural(n, 'reward')}."


def _names(source: PageSource, arms: Sequence[Arm]) -> dict[str, str]:
    """Return arm → name in its run, else its id, or its values if the id is a hash."""
    names = {}
    for arm in arms:
        is_hash = re.fullmatch(r"[0-9a-f]{16}", arm.arm_id)
        names[arm.arm_id] = settings_text(arm.params) if is_hash else arm.arm_id
        try:
            record = source.run(arm.run_id or "")
        except RunNotFoundError:
            continue
        space = source.space(record)
        if space is not None:
            candidate_id = space.candidate(dict(arm.params)).candidate_id
            names[arm.arm_id] = source.names(record, {candidate_id: arm.params})[candidate_id]
    return names


_COLUMNS = (
    *("configuration", "state", "share", "decisions", "rewards", "expected reward", "evidence"),
    *("requests left", "verdict", "arm", ""),
)


def _arms(
    system: str,
    arms: Sequence[Arm],
    *,
    names: Mapping[str, str],
    shares: Mapping[tuple[str, str], tuple[int, float]],
    evidence_by_type: Mapping[str, Mapping[str, Any]],
    champion: Champion | None,
) -> Grid:
    """Return a row per arm, with a button that promotes it."""
    rows: list[tuple[Inline, ...]] = []
    for arm in arms:
        known = evidence_by_type.get(arm.agent_type, {})
        at = {arm_id: place for place, arm_id in enumerate(known.get("arms", ()))}.get(arm.arm_id)
        is_served = any(agent_type == arm.agent_type for agent_type, _ in shares)
        n_decisions, share = shares.get(_key(arm), (0, 0.0 if is_served else None))
        is_champion = _is_champion(arm, champion)
        state = "champion" if is_champion else "retired" if arm.retired else "active"
        left = known.get("n_to_verdict")
        name = _name(names, arm.arm_id)
        rows.append(
            (
                name,
                Span(state, "tag"),
                UNKNOWN if share is None else f"{100 * share:.1f} %",
                f"{n_decisions:,}",
                f"{arm.n:,}",
                reward(arm.mean),
                UNKNOWN if at is None else evidence(known["log_e"][at], known["log_threshold"]),
                UNKNOWN if left is None else f"{left:,}",
                _verdict(known, at),
                code(clean(arm.arm_id)),
                "" if state != "active" else _promotion(system, arm, name),
            )
        )
    return Grid(_COLUMNS, tuple(rows), frozenset(range(2, 8)))


def _promotion(system: str, arm: Arm, name: str) -> Action:
    ask = (
        f"From the next decision, {name} is the champion of {system}. Its share rises step by step; it rolls "
        "back if it does worse."
    )
    place = ("production", system, "promote")
    return page_action("Promote", *place, ask=ask, confirm=system, candidate_id=arm.arm_id)


def _key(arm: Arm) -> tuple[str, str]:
    return arm.agent_type, arm.arm_id


def _is_champion(arm: Arm, champion: Champion | None) -> bool:
    return champion is not None and same_params(champion.params, arm.params)


def _shares(runtime: RuntimeStore, system: str) -> dict[tuple[str, str], tuple[int, float]]:
    """Return (agent type, arm) → decisions and their share of the agent type's."""
    rows = runtime.fetch(_DECISIONS, (system,))
    return {(kind, arm): (n, n / total) for kind, arm, n, total in rows}


def _name(names: Mapping[str, str], arm_id: str) -> str:
    return clean(names.get(arm_id, arm_id))


def _named(names: Mapping[str, str], text: str) -> str:
    return re.sub(r"\b[0-9a-f]{16}\b", lambda match: _name(names, match[0]), line_of(text) or "")


def _verdict(shown: Mapping[str, Any], at: int | None) -> str:
    if at is None:
        return UNKNOWN
    if shown.get("winner") == shown["arms"][at]:
        return "winner"
    return "out" if shown["out"][at] else "undecided"


def _sentences(evidence: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    sentences = []
    for kind, shown in evidence["evidence"].items():
        if not sum(shown["numbers"]):
            sentences.append(f"{kind}: no rewards yet.")
            continue
        winner = shown.get("winner")
        text = f"{kind}: " + (
            f"{_name(names, winner)} is the winner." if winner else "no winner yet."
        )
        text += f" Regret so far: {shown['regret']:.3g}, in rewards."
        n = shown.get("n_to_verdict")
        if winner is None:
            text += (
                f" About {plural(n, 'more request')} until a verdict."
                if n
                else (" The leaders look equal: no verdict is in sight.")
            )
        sentences.append(f"{text} {shown['caveat']}")
    return sentences


def _history(runtime: RuntimeStore, system: str) -> list[Block]:
    rows = runtime.fetch(_HOURLY, (system,))[-MOST_HOURS:]
    points = tuple(
        Point(x=3_600_000 * int(hour), y=mean, tip=f"{mean:.3g}, {plural(n, 'decision')}")
        for hour, n, mean in rows
    )
    plot = Plot(name="reward", title="Reward over time", x=Axis(kind="time"),
                layers=(Layer(points=points, mark="line"),), height=2.3)  # fmt: skip
    return [Heading("Reward"), Plots((plot,))] if points else []
