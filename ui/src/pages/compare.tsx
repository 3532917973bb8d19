/* Compare: two configurations of one run, or what two runs hand over. */
import { useState } from "preact/hooks";
import { useData } from "../api";
import { saveCsv } from "../chart";
import { Diff } from "../diff";
import { Card, Empty, Figure, Show, Table } from "../parts";
import { PlotChart, type Plot, type Point } from "../plot";
import { Link, setQuery, to } from "../router";
import { count, inputLine, Interval, marked, ms, One, reward, Sentence, signed, Texts, three, usd, Value } from "../text";
import type { Comparison, Leaderboard, Overview, Side } from "../types";
import { leaders } from "./answers";
import { Tabs } from "./tabs";

export function Compare({ run, query }: { run: string | undefined; query: URLSearchParams }) {
  const board = useData<Leaderboard>(run ? `runs/${encodeURIComponent(run)}/leaderboard` : null);
  const runs = useData<Overview>(run ? null : "overview");
  const latest = runs.data?.runs.find((r) => r.status !== "running" && r.best);
  const [base, best, third] = leaders(board.data?.rows ?? []);
  const names = run ? [base ?? best, base ? best : third].map((c) => c?.candidate_id) : latest && ["default", "recommended"].map((name) => `${latest.run_id}:${name}`);
  const isChosen = query.has("a") || query.has("b");
  const [a, b] = isChosen ? [query.get("a") ?? "", query.get("b") ?? ""] : [names?.[0] ?? "", names?.[1] ?? ""];
  const full = (side: string) => (run && side ? `${run}:${side}` : side);
  const loaded = useData<Comparison>(a && b ? "compare" : null, { a: full(a), b: full(b) });
  document.title = "Compare · The Convergence";
  return (
    <>
      <h1>Compare</h1>
      {run && <Tabs run={run} at="compare" />}
      <Choose run={run} a={a} b={b} rows={board.data} runs={runs.data} />
      {a && b ? <Show of={loaded}>{(d) => <Result of={d} />}</Show> : <Empty command={run || runs.data?.runs.length ? null : "convergence optimize"}>This page shows where two {run ? "configurations" : "runs"} differ, case by case. {run || runs.data?.runs.length ? "Choose both." : "This store holds no run yet."}</Empty>}
    </>
  );
}

function Choose({ run, a, b, rows, runs }: { run: string | undefined; a: string; b: string; rows?: Leaderboard; runs?: Overview }) {
  const choices: [string, string][] = run
    ? (rows?.rows ?? []).slice(0, 300).map((r) => [r.candidate_id, `${marked(r.name.slice(0, 80))} · ${reward(r.mean)}`])
    : (runs?.runs ?? []).map((r) => [r.run_id, `${marked(r.label)} · ${r.status}`]);
  // A run and one of its settings, as `promote` writes them: RUN:default.
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

export function amount(x: number | null, unit: string | null): string {
  if (x === null) return unit === "USD" ? "unknown" : "–";
  return unit === "USD" ? usd(x) : unit === "ms" ? ms(x) : `${three(x)}${unit ? ` ${unit}` : ""}`;
}

function Head({ of, letter }: { of: Side; letter: string }) {
  return (
    <Figure value={<>{letter} {reward(of.mean)}</>}>
      <Interval low={of.low} high={of.high} />
      <div title={of.candidate_id}><One text={of.name} max={90} /></div>
      <div><Link href={to("runs", of.run_id)}><One text={of.run_label} max={60} /></Link></div>
    </Figure>
  );
}

function Result({ of }: { of: Comparison }) {
  const [only, setOnly] = useState(false);
  const cases = only ? of.cases.filter((c) => c.difference) : of.cases;
  const differences = [...of.cases].filter((c) => c.difference !== null).sort((x, y) => x.difference! - y.difference!);
  const dots = differences.map((c, x): Point => ({ x: x + 1, y: c.difference!, y_ends: [Math.min(0, c.difference!), Math.max(0, c.difference!)], tip: `case ${c.name.slice(0, 40)}: ${reward(c.a)} → ${reward(c.b)}, ${signed(c.difference)}` }));
  const plot: Plot = {
    name: "difference-by-case", title: "Difference of the reward by test case", height: 2.3, x: { title: "test cases, in order of the difference", kind: "whole" }, y: { title: "B minus A" },
    layers: [{ points: dots.filter((p) => p.y < 0), colour: "default" }, { points: dots.filter((p) => p.y >= 0) }],
  };
  return (
    <>
      <div class="verdict">
        <p><Sentence text={of.verdict} /></p>
        {of.gate && <p class="muted"><Sentence text={of.gate} /></p>}
      </div>
      {of.sentences.map((s, i) => <p key={i} class="muted"><Sentence text={s} /></p>)}
      <div class="figures">
        <Head of={of.a} letter="A" />
        <Head of={of.b} letter="B" />
        {of.difference && (
          <Figure value={signed(of.difference.mean)}>
            B minus A <Interval low={of.difference.low} high={of.difference.high} sign />, {Math.round(of.difference.level * 100)} % interval over {count(of.difference.n_cases)} paired cases ({of.difference.kind})
          </Figure>
        )}
        {of.per_answer.filter((p) => p.a !== null || p.b !== null).map((p) => (
          <Figure key={p.name} value={<>{amount(p.a, p.unit)} → {amount(p.b, p.unit)}</>}>{p.name.replace(/_(ms|usd)$/, "")} of an answer, A → B</Figure>
        ))}
      </div>
      <Card title="Parameters that differ">
        {of.parameters.length === 0 ? <p class="muted">None: both have the same values.</p> : (
          <Table
            label="Parameters that differ" rows={of.parameters} rowKey={(r) => r.name}
            columns={[
              { key: "n", title: "Parameter", show: (r) => <code><One text={r.name} /></code> },
              { key: "a", title: "A", show: (r) => <Value value={r.a} /> },
              { key: "b", title: "B", show: (r) => <Value value={r.b} /> },
              { key: "d", title: "", show: (r) => typeof r.a === "string" && typeof r.b === "string" && r.a.length + r.b.length > 90 ? <details><summary>Diff</summary><Diff before={r.a} after={r.b} label={`Difference of ${r.name}`} /></details> : null },
            ]}
          />
        )}
      </Card>
      {differences.length > 1 && (
        <Card title="Difference by case">
          <PlotChart of={plot} />
        </Card>
      )}
      <Card
        title="Cases"
        tools={
          <span class="row">
            <button aria-pressed={only} onClick={() => setOnly(!only)}>Only those that differ</button>
            <button class="plain" onClick={() => saveCsv("comparison", [["case_id", "kind", "first", "second", "difference", "input", "first_answer", "second_answer"], ...cases.map((c) => [c.case_id, c.kind, c.a, c.b, c.difference, c.input, c.a_answer, c.b_answer])])}>CSV</button>
          </span>
        }
      >
        <Table
          label="Cases" tall rows={cases} rowKey={(r) => `${r.role}-${r.case_id}`}
          columns={[
            { key: "c", title: "Case", by: (r) => r.case_id, show: (r) => <><span title={marked(r.case_id)}><One text={r.name} max={40} /></span><div class="small muted"><One text={inputLine(r.input ?? "")} max={120} /></div></> },
            { key: "kind", title: "Kind", by: (r) => r.kind, show: (r) => r.kind },
            { key: "a", title: "A", n: true, by: (r) => r.a, show: (r) => reward(r.a) },
            { key: "b", title: "B", n: true, by: (r) => r.b, show: (r) => reward(r.b) },
            { key: "d", title: "Difference", n: true, by: (r) => r.difference, show: (r) => signed(r.difference) },
            {
              key: "t", title: "Answers", show: (r) => r.a_answer === null && r.b_answer === null ? null : (
                <details>
                  <summary><One text={r.b_answer ?? r.a_answer} max={60} /></summary>
                  {r.a_answer !== null && r.b_answer !== null ? <Diff before={r.a_answer} after={r.b_answer} label="Difference of the answers" /> : <Texts text={r.b_answer ?? r.a_answer} label="Answer" />}
                </details>
              ),
            },
          ]}
        />
      </Card>
    </>
  );
}
