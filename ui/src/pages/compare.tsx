/* Compare: two configurations of one run, or the results of two runs. */
import { useData } from "../api";
import { Sections, type BlockPage } from "../blocks";
import { Empty, Show } from "../parts";
import { setQuery } from "../router";
import { marked, reward } from "../text";
import type { Leaderboard, Runs } from "../types";
import { leaders } from "./answers";
import { Tabs } from "./tabs";

export function Compare({ run, query }: { run: string | undefined; query: URLSearchParams }) {
  const board = useData<Leaderboard>(run ? `runs/${encodeURIComponent(run)}/leaderboard` : null);
  const runs = useData<Runs>(run ? null : "runs");
  const latest = runs.data?.runs.find((r) => r.status !== "running" && r.best);
  const [base, best, third] = leaders(board.data?.rows ?? []);
  const names = run ? [base ?? best, base ? best : third].map((c) => c?.candidate_id) : latest && ["default", "recommended"].map((name) => `${latest.run_id}:${name}`);
  const isChosen = query.has("a") || query.has("b");
  const [a, b] = isChosen ? [query.get("a") ?? "", query.get("b") ?? ""] : [names?.[0] ?? "", names?.[1] ?? ""];
  const full = (side: string) => (run && side ? `${run}:${side}` : side);
  const loaded = useData<BlockPage>(a && b ? "compare" : null, { a: full(a), b: full(b) });
  document.title = "Compare · The Convergence";
  return (
    <>
      <h1>Compare</h1>
      {run && <Tabs run={run} at="compare" />}
      <Choose run={run} a={a} b={b} rows={board.data} runs={runs.data} />
      {a && b ? <Show of={loaded}>{(d) => <Sections of={d.blocks} />}</Show> : <Empty command={run || runs.data?.runs.length ? null : "convergence optimize"}>This page shows where two {run ? "configurations" : "runs"} differ, case by case. {run || runs.data?.runs.length ? "Choose both." : "This store holds no run yet."}</Empty>}
    </>
  );
}

function Choose({ run, a, b, rows, runs }: { run: string | undefined; a: string; b: string; rows?: Leaderboard; runs?: Runs }) {
  const choices: [string, string][] = run
    ? (rows?.rows ?? []).slice(0, 300).map((r) => [r.candidate_id, `${marked(r.name.slice(0, 80))} · ${reward(r.mean)}`])
    : (runs?.runs ?? []).map((r) => [r.run_id, `${marked(r.label)} · ${r.status}`]);
  // A run and one of its configurations, in the syntax of `promote`: RUN:default.
  const chosen = (id: string) => {
    const [of = "", settings] = id.split(":");
    const label = runs?.runs.find((r) => r.run_id === of)?.label ?? of;
    return settings ? `${label}: ${settings}` : label;
  };
  const side = (name: "a" | "b", value: string, title: string) => (
    <label class="field">{title}
      <select value={value} onChange={(event) => setQuery({ a: a || null, b: b || null, [name]: event.currentTarget.value || null })}>
        <option value="">choose</option>
        {value && !choices.some(([id]) => id === value) && <option value={value}>{marked(chosen(value).slice(0, 60))}</option>}
        {choices.map(([id, text]) => <option key={id} value={id}>{text}</option>)}
      </select>
    </label>
  );
  return (
    <div class="toolbar">
      {side("a", a, "A")}
      {side("b", b, "B")}
      <button onClick={() => setQuery({ a: b || null, b: a || null })} disabled={!a && !b}>Swap</button>
    </div>
  );
}
