/* Answers: cases by configurations, any size. A cell opens its request, answer and ratings. */
import { useCallback, useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { get, onChange, useData } from "../api";
import { Diff } from "../diff";
import { Matrix, type Cell } from "../matrix";
import { Card, Empty, Figure, Problem, Show } from "../parts";
import { setQuery } from "../router";
import { inputLine, interval, marked, ms, One, plural, reward, Texts, usd, Value, visible } from "../text";
import type { AnswerCell, Answers as Data, Candidate, CaseAnswer, Comparison, Leaderboard } from "../types";
import { CellDrawer } from "./cell";
import { Tabs } from "./tabs";

const TILE = [40, 60] as const; // cases, configurations
const KEPT = 120; // maximum cached tiles

const FILTERS = [["all", "All"], ["failed", "Failed"], ["worst", "Worst"], ["disagreement", "Largest disagreement"]] as const;

type Case = Data["cases"][number];
type Column = Data["candidates"][number];

/** Visible parts of the matrix, fetched tile by tile. */
class Tiles {
  readonly cases = new Map<number, Case>();
  readonly columns = new Map<number, Column>();
  readonly tiles = new Map<string, (AnswerCell | null)[][]>();
  readonly asked = new Set<string>();

  constructor(readonly base: string, readonly query: Record<string, string>, readonly update: () => void, readonly failed: (error: Error) => void) {}

  cell(row: number, column: number): AnswerCell | null | undefined {
    const tile = this.tiles.get(`${Math.floor(row / TILE[0])},${Math.floor(column / TILE[1])}`);
    return tile?.[row % TILE[0]]?.[column % TILE[1]];
  }

  want(rows: [number, number], columns: [number, number]): void {
    for (let r = Math.floor(rows[0] / TILE[0]); r <= Math.floor(rows[1] / TILE[0]); r++) {
      for (let c = Math.floor(columns[0] / TILE[1]); c <= Math.floor(columns[1] / TILE[1]); c++) void this.load(r, c);
    }
  }

  async load(r: number, c: number): Promise<void> {
    const key = `${r},${c}`;
    if (this.asked.has(key)) return;
    this.asked.add(key);
    try {
      this.put(await get<Data>(this.base, {
        ...this.query, case_from: r * TILE[0], n_cases: TILE[0], candidate_from: c * TILE[1], n_candidates: TILE[1],
      }));
    } catch (error) {
      this.asked.delete(key);
      this.failed(error as Error);
    }
  }

  put(found: Data): void {
    found.cases.forEach((one, i) => this.cases.set(found.case_from + i, one));
    found.candidates.forEach((one, i) => this.columns.set(found.candidate_from + i, one));
    const key = `${Math.floor(found.case_from / TILE[0])},${Math.floor(found.candidate_from / TILE[1])}`;
    this.asked.add(key);
    this.tiles.delete(key);
    this.tiles.set(key, found.cells);
    while (this.tiles.size > KEPT) {
      const oldest = this.tiles.keys().next().value!;
      this.tiles.delete(oldest);
      this.asked.delete(oldest);
    }
    this.update();
  }
}

export function Answers({ run, query }: { run: string; query: URLSearchParams }) {
  const base = `runs/${encodeURIComponent(run)}/answers`;
  const filter = query.get("filter") ?? "all";
  const search = query.get("search") ?? "";
  const only = query.get("only") ?? "";
  const settings = { filter, search, only };
  const isWhole = Boolean(search || filter !== "all" || query.get("view") || query.get("case"));
  const first = useData<Data>(base, { ...settings, case_from: 0, n_cases: TILE[0], candidate_from: 0, n_candidates: TILE[1] }, false);
  document.title = "Answers · The Convergence";
  return (
    <>
      <h1>Answers</h1>
      <Tabs run={run} at="answers" />
      <Filters filter={filter} search={search} />
      <Show
        of={first}
        empty={(d) => (d.n_cases === 0 || d.n_candidates === 0) && (
          search || filter !== "all" ? <Empty>No test case matches. <button onClick={() => setQuery({ filter: null, search: null, view: "all" })}>Show all</button></Empty>
          : <Empty>This page shows the answers side by side. No evaluation is stored yet; evaluations appear as the run makes them.</Empty>
        )}
      >
        {(d) => !isWhole ? <Leading run={run} n={d.n_candidates} /> : <Loaded key={`${run}|${filter}|${search}`} run={run} base={base} first={d} settings={settings} query={query} again={first.again} />}
      </Show>
    </>
  );
}

/** Defaults, recommended or best configuration, and runner-up. The first two are compared first. */
export function leaders(rows: Candidate[]): (Candidate | undefined)[] {
  const tagged = (tag: string) => rows.find((row) => row.tags.includes(tag));
  const base = tagged("default");
  const best = tagged("found") ?? [tagged("recommended"), ...rows].find((row) => row && row !== base);
  return [base, best, rows.find((row) => row !== base && row !== best && row.rank !== null)];
}

type Shown = { id: string; name: string; kind: string; input: string | null; expected: string | null; cells: (CaseAnswer | undefined)[] };

/** Answers side by side, starting with the best configuration's worst case. */
function Leading({ run, n }: { run: string; n: number }) {
  const [most, setMost] = useState(20);
  const board = useData<Leaderboard>(`runs/${encodeURIComponent(run)}/leaderboard`, {}, false);
  const columns = leaders(board.data?.rows ?? []);
  const [base, best, third] = columns;
  const pair = (a?: Candidate, b?: Candidate) => useData<Comparison>(a && b ? "compare" : null, { a: `${run}:${a?.candidate_id}`, b: `${run}:${b?.candidate_id}` }, run);
  const [one, two] = [pair(base, best), pair(best, third)];
  const rows = useMemo(() => {
    const found = new Map<string, Shown>();
    for (const [data, at] of [[one.data, 0], [two.data, 1]] as const) {
      for (const c of data?.cases ?? []) {
        const row = found.get(c.case_id) ?? { id: c.case_id, name: c.name, kind: c.kind, input: c.input, expected: c.expected, cells: [] };
        row.cells[at] ??= c.a;
        row.cells[at + 1] ??= c.b;
        found.set(c.case_id, row);
      }
    }
    const key = (row: Shown) => row.cells[1]?.reward ?? 2;
    return [...found.values()].sort((x, y) => key(x) - key(y) || (y.cells[0]?.reward ?? 0) - (x.cells[0]?.reward ?? 0));
  }, [one.data, two.data]);
  const titles = ["default", best?.tags.includes("found") ? "found" : "recommended", "runner-up"];
  const all = <button onClick={() => setQuery({ view: "all" })}>All {plural(n, "configuration")}</button>;
  return (
    <>
      {(one.error ?? two.error ?? board.error) && <Problem error={(one.error ?? two.error ?? board.error)!} />}
      <p class="row spread"><span class="small muted">Lowest score of the {titles[1]} settings first. Differences from the default answer are marked.</span>{all}</p>
      {!rows.length && (one.loading || two.loading || board.loading) && <p class="empty" role="status">Reading the store…</p>}
      {!rows.length && !one.loading && !two.loading && !board.loading && <Empty>No two configurations have answered the same test case yet. {all}</Empty>}
      {rows.length > 0 && (
        <div class="answers summary">
          {columns.map((column, i) => column && <Summary key={titles[i]} title={titles[i]!} column={column} of={i === 2 ? two.data : one.data} at={i ? "b" : "a"} rival={i === 2 ? titles[1] : undefined} />)}
        </div>
      )}
      {rows.slice(0, most).map((row) => (
        <Card key={row.id} title={<><One text={row.name} max={60} /> <small class="muted">{row.kind}</small></>}>
          <p><One text={inputLine(row.input ?? "")} max={600} /></p>
          {row.expected !== null && <p class="small muted">Expected: <One text={row.expected} max={300} /></p>}
          <div class="answers">
            {columns.map((column, i) => column && <Answer key={titles[i]} column={column} title={titles[i]!} of={row.cells[i]} base={i ? row.cells[0]?.text : null} open={() => setQuery({ case: row.id, candidate: column.candidate_id }, false)} />)}
          </div>
        </Card>
      ))}
      {rows.length > most && <p class="small muted">{most} of {plural(rows.length, "case")}. <button class="plain" onClick={() => setMost(most + 50)}>Show more</button></p>}
    </>
  );
}

/** Latency and cost of an answer. */
function spent(of: Pick<CaseAnswer, "latency_ms" | "cost_usd">): string {
  return `${ms(of.latency_ms)}, ${of.cost_usd === null ? "price unknown" : usd(of.cost_usd)}`;
}

/** A column's mean score on shared cases, cost and latency per answer, and differing settings. */
function Summary({ title, column, of, at, rival }: { title: string; column: Candidate; of: Comparison | null | undefined; at: "a" | "b"; rival?: string }) {
  if (!of) return null;
  return (
    <Figure value={reward(of.best?.[at] ?? null)}>
      <b class="name" title={column.candidate_id}>{title}{column.name !== title && <>: <One text={column.name} max={60} /></>}</b>
      {of.best && <>mean score on {plural(of.best.n_cases, "case")} ({of.best.kind}){rival && `, where ${rival} has ${reward(of.best.a)}`}; </>}
      {spent(of.per_answer[at])} an answer
      {of.parameters.slice(0, 8).map((p) => <div key={p.name}><One text={p.name} max={40} />: <Value value={p[at]} other={at === "b" ? p.a : undefined} /></div>)}
    </Figure>
  );
}

function Answer({ column, title, of, base, open }: { column: Candidate; title: string; of: Shown["cells"][number]; base: string | null | undefined; open: () => void }) {
  return (
    <div class={of ? "answer" : "answer unasked"}>
      <p class="small"><b title={`${marked(column.name)} (${column.candidate_id})`}>{title}</b></p>
      {!of ? <p class="muted small">Not run on this case.</p>
        : of.text === null ? <p class="muted small">No answer is stored.</p>
        : base !== null && base !== undefined ? <Diff only before={base} after={of.text} label={`Answer of ${title}`} />
        : <Texts text={of.text} label={`Answer of ${title}`} />}
      {of && <p class="row spread"><span><b>{of.reward === null ? "no score" : reward(of.reward)}</b> <small class="muted">{spent(of)}</small></span><button class="plain" onClick={open}>Details</button></p>}
    </div>
  );
}

function Filters({ filter, search }: { filter: string; search: string }) {
  const [text, setText] = useState(search);
  useEffect(() => setText(search), [search]);
  const wait = useRef<ReturnType<typeof setTimeout>>(undefined);
  const input = (value: string) => {
    setText(value);
    clearTimeout(wait.current);
    wait.current = setTimeout(() => setQuery({ search: value || null }), 350);
  };
  return (
    <div class="toolbar" role="search">
      <span class="group" role="group" aria-label="Filter">
        {FILTERS.map(([key, name]) => (
          <button key={key} aria-pressed={filter === key} onClick={() => setQuery({ filter: key === "all" ? null : key })}>{name}</button>
        ))}
      </span>
      <input
        type="search" aria-label="Search in prompts, answers and cases" placeholder="Search in prompts and answers  /" value={text}
        onInput={(event) => input(event.currentTarget.value)}
      />
    </div>
  );
}

function Loaded(p: { run: string; base: string; first: Data; settings: Record<string, string>; query: URLSearchParams; again: () => void }) {
  const [version, redraw] = useReducer((n: number) => n + 1, 0);
  const [error, setError] = useState<Error | null>(null);
  const frame = useRef(0);
  const tiles = useMemo(() => {
    const update = () => {
      cancelAnimationFrame(frame.current);
      frame.current = requestAnimationFrame(() => redraw(0));
    };
    const made = new Tiles(p.base, p.settings, update, setError);
    made.put(p.first);
    return made;
  }, [p.first]);
  useEffect(() => onChange((about) => {
    if (about === undefined || about === p.run) p.again();
  }), [p.again, p.run]);
  const want = useCallback((rows: [number, number], columns: [number, number]) => tiles.want(rows, columns), [tiles]);
  const open = p.query.get("case") && p.query.get("candidate") ? [p.query.get("case")!, p.query.get("candidate")!] as const : null;
  const baseline = p.query.get("against");

  const show = (row: number, column: number) => {
    const [one, candidate] = [tiles.cases.get(row), tiles.columns.get(column)];
    if (one && candidate) setQuery({ case: one.case_id, candidate: candidate.candidate_id }, false);
  };
  const where = useMemo(() => {
    if (!open) return null;
    const row = [...tiles.cases].find(([, c]) => c.case_id === open[0])?.[0];
    const column = [...tiles.columns].find(([, c]) => c.candidate_id === open[1])?.[0];
    return row === undefined || column === undefined ? null : [row, column] as [number, number];
  }, [open?.[0], open?.[1], tiles, tiles.tiles.size]);

  const step = (dr: number, dc: number) => {
    if (!where) return;
    let [r, c] = where;
    for (let i = 0; i < 400; i++) {
      [r, c] = [r + dr, c + dc];
      if (r < 0 || c < 0 || r >= p.first.n_cases || c >= p.first.n_candidates) return;
      const cell = tiles.cell(r, c);
      if (cell) return show(r, c);
      if (cell === undefined) return tiles.want([r, r], [c, c]);
    }
  };
  const cell = useCallback((row: number, column: number): Cell | null | undefined => {
    const found = tiles.cell(row, column);
    if (!found) return found;
    const bad = found.fault !== null || found.status !== "ok";
    const where = `case ${marked(tiles.cases.get(row)?.name ?? "")}, ${marked(tiles.columns.get(column)?.name.slice(0, 120) ?? "")}`;
    return {
      text: found.reward === null ? "missing" : found.reward.toFixed(2), tone: found.reward, failed: bad,
      label: `${where}: ${found.reward === null ? "missing" : `reward ${reward(found.reward)}`}${bad ? `, ${found.status}` : ""}${found.n > 1 ? `, ${found.n} repeats` : ""}`,
    };
  }, [tiles]);
  return (
    <>
      {error && <Problem error={error} />}
      <p class="small muted">
        {plural(p.first.n_cases, "test case")} by {plural(p.first.n_candidates, "configuration")}, best first. <button class="plain" onClick={() => setQuery({ view: null, filter: null, search: null })}>Only the best</button> A number is a mean reward over repeats;
        a hatched cell was not run; a red border is a failure. Arrows move, Enter opens.
      </p>
      <Matrix
        label="Answers: test cases by configurations" nRows={p.first.n_cases} nColumns={p.first.n_candidates} cell={cell} want={want} open={show}
        current={where} columnWidth={92} version={version}
        corner={<>case ↓ configuration →</>}
        headLabel={(c) => { const one = tiles.columns.get(c); return one ? `${marked(one.name.slice(0, 300))}: ${reward(one.mean)} ${interval(one.low, one.high)}` : ""; }}
        head={(c) => { const one = tiles.columns.get(c); return one ? <><span class="clip">{visible(one.name)}</span><br />{reward(one.mean)}<br /><small>{one.tags[0] ?? ""}</small></> : null; }}
        side={(r) => { const one = tiles.cases.get(r); return one ? <span title={marked(one.case_id)}>{visible(one.name)} · <One text={inputLine(one.title)} max={44} /></span> : null; }}
      />
      {open && (
        <CellDrawer
          run={p.run} one={open[0]} candidate={open[1]} against={baseline} columns={tiles.columns}
          step={step} close={() => setQuery({ case: null, candidate: null, against: null, open: null }, false)}
        />
      )}
    </>
  );
}
