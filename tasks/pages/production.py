"""Production of a system: arms, shares, rewards, regret, evidence, alarms, ramps."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from convergence_core.errors import NoArmsError, RunNotFoundError
from convergence_core.records import fields_of
from convergence_core.result.number_text import plural, whole_percent
from tasks.pages.source import Page, PageSource, line_of, time_of
from tasks.report.phrases import clean, ledgers, moment, settings_text
from tasks.serving.answers import Arm
from tasks.serving.systems import Systems
from tasks.store.runtime.promotions import champion_of, champions, looks, previous_champion
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
_HOUR_US = 3_600 * 10**6
MOST_HOURS = 24 * 90


def systems(source: PageSource) -> Page:
    """Return the systems that serve requests."""
    runtime = source.runtime()
    known = [] if runtime is None else runtime.systems()
    names = sorted({system for system, _ in known})
    return {
        "systems": [
            {
                "system": name,
                "sentence": plural(sum(s == name for s, _ in known), "kind", "kinds")
                + " of agents",
            }
            for name in names
        ],
        "command": None if names else BEGIN if source.runs() else "convergence optimize",
    }


def production(source: PageSource, system: str) -> Page:
    """Return how a system's arms fare.

    Raises:
        RunNotFoundError: nothing is known of it.
    """
    runtime = source.runtime()
    served = None if runtime is None else Systems(runtime)
    gates = None if served is None else served.gates(system)
    if runtime is None or served is None or gates is None:
        raise RunNotFoundError(
            f"system {clean(system)!r} has served no request. See `convergence promote`."
        )
    champion = champion_of(runtime, system)
    names = _names(source, served, system)
    arms = _arms(runtime, served, system, gates["evidence"], champion, names=names)
    can_roll_back = previous_champion(runtime, system) is not None
    return {
        "system": system,
        "live": _live(source, champion, arms),
        "can_roll_back": can_roll_back,
        "sentences": [*_sentences(gates, names), *ledgers(looks(runtime, system)).values()],
        "champion": None
        if champion is None
        else {"candidate_id": champion.candidate_id, "name": source.champion_name(champion)},
        "arms": arms,
        "history": _history(runtime, system),
        **_watched(runtime, system, names),
        "promotions": [
            {
                "at": time_of(champion.created_us),
                "sentence": f"{source.champion_name(champion)}: {_named(names, champion.reason)}",
            }
            for champion in champions(runtime, system)
        ],
    }


def _live(source: PageSource, champion: Champion | None, arms: Sequence[Page]) -> str:
    """Return what is live, since when, at which share of the requests, with how many rewards."""
    if champion is None:
        active = sum(arm["status"] != "retired" for arm in arms)
        return f"Nothing was promoted yet: {plural(active, 'arm')} share the requests."
    text = f"Live since {moment(champion.created_us)}: {source.champion_name(champion)}"
    serving = [arm for arm in arms if arm["is_champion"]]
    if not serving or serving[0]["share"] is None:
        return f"{text}. It has served no request yet."
    share, n = whole_percent(serving[0]["share"]), sum(arm["n"] for arm in serving)
    return f"{text}, with {share} of the requests, {plural(n, 'reward')}."


def _names(source: PageSource, served: Systems, system: str) -> dict[str, str]:
    """Return arm → its name as in the run that offered it, else its id, or its values if that is a hash."""
    names = {}
    for arm in _arms_of(served, system):
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


def _watched(runtime: RuntimeStore, system: str, names: Mapping[str, str]) -> Page:
    """Return alarms, and guards over promotions."""
    return {
        "drift": [
            {"sentence": _named(names, alarm.sentence), "at": time_of(alarm.created_us)}
            for alarm in alarms(runtime, system)
        ],
        "guards": [
            {"sentence": guard.sentence({k: clean(v) for k, v in names.items()})}
            for _, guard in guards_of(runtime, system)
        ],
    }


def _arms(
    runtime: RuntimeStore,
    served: Systems,
    system: str,
    evidence: Mapping[str, Mapping[str, Any]],
    champion: Any,
    *,
    names: Mapping[str, str],
) -> list[Page]:
    counts = {(kind, arm): n for kind, arm, *n in runtime.fetch(_DECISIONS, (system,))}
    totals = {kind: int(total) for (kind, _), (_, total) in counts.items()}
    rows = []
    for arm in _arms_of(served, system):
        shown = evidence.get(arm.agent_type, {})
        places = {arm_id: place for place, arm_id in enumerate(shown.get("arms", ()))}
        at = places.get(arm.arm_id)
        n_decided, _ = counts.get((arm.agent_type, arm.arm_id), (0, 0))
        total = totals.get(arm.agent_type)
        is_champion = champion is not None and dict(champion.params) == dict(arm.params)
        rows.append(
            {
                "candidate_id": champion.candidate_id if is_champion else arm.arm_id,
                "name": _name(names, arm.arm_id),
                "is_champion": is_champion,
                "share": n_decided / total if total else None,
                "n_decisions": n_decided,
                **fields_of(arm, "n", "mean"),
                "log_e": None if at is None else shown["log_e"][at],
                **{name: shown.get(name) for name in ("log_threshold", "n_to_verdict")},
                "verdict": _verdict(shown, at),
                "status": "retired" if arm.retired else "active",
            }
        )
    return rows


def _arms_of(served: Systems, system: str) -> Sequence[Arm]:
    try:
        return served.arms(system)
    except NoArmsError:
        return ()


def _name(names: Mapping[str, str], arm_id: str) -> str:
    return clean(names.get(arm_id, arm_id))


def _named(names: Mapping[str, str], text: str) -> str:
    return re.sub(r"\b[0-9a-f]{16}\b", lambda match: _name(names, match[0]), line_of(text) or "")


def _verdict(shown: Mapping[str, Any], at: int | None) -> str | None:
    if at is None:
        return None
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


def _history(runtime: RuntimeStore, system: str) -> list[Page]:
    rows: Sequence[Any] = runtime.fetch(_HOURLY, (system,))[-MOST_HOURS:]
    return [
        {"at": time_of(int(hour) * _HOUR_US), "n": n, "reward": mean} for hour, n, mean in rows
    ]
