/* SQL: documented questions, an editor, and the answer as table and chart. */
import { useEffect, useRef, useState } from "preact/hooks";
import { address, get, useData } from "../api";
import { Chart, type Colours } from "../chart";
import type { Editor } from "../editor";
import { Card, Problem, Show, Table } from "../parts";
import { setQuery } from "../router";
import { count, ms, One, plural } from "../text";
import type { Questions, SqlResult } from "../types";

export function Sql({ query }: { query: URLSearchParams }) {
  const questions = useData<Questions>("sql/questions", {}, false);
  const [text, setText] = useState(query.get("q") ?? "");
  const [given, setGiven] = useState({ text }); // text set in the editor; typed text stays in the editor
  const [result, setResult] = useState<{ sql: string; data?: SqlResult; error?: Error; busy: boolean } | null>(null);
  document.title = "SQL · The Convergence";
  const run = (sql: string) => {
    if (!sql.trim()) return;
    setQuery({ q: sql });
    setResult((old) => ({ sql, data: old?.data, busy: true }));
    get<SqlResult>("sql", { q: sql }).then(
      (data) => setResult({ sql, data, busy: false }),
      (error: Error) => setResult({ sql, error, busy: false }),
    );
  };
  useEffect(() => {
    const asked = query.get("q");
    if (asked) run(asked);
  }, []);
  const choose = (sql: string) => {
    setText(sql);
    setGiven({ text: sql });
    run(sql);
  };
  return (
    <>
      <h1>SQL</h1>
      <p class="lead">One read-only statement over the store's tables.</p>
      <div class="grid sql">
        <div>
          <SqlEditor given={given} change={setText} run={run} tables={questions.data?.tables ?? {}} />
          <div class="toolbar">
            <button class="primary" onClick={() => run(text)} disabled={!text.trim() || result?.busy}>Run <kbd>Ctrl Enter</kbd></button>
            {result?.data && <a class="button" href={address("sql.csv", { q: result.sql })} download>CSV</a>}
            {result?.busy && <span class="muted" role="status">Asking…</span>}
          </div>
        </div>
        <Card title="Questions">
          <Show of={questions}>
            {(d) => <ol class="questions">{d.questions.map((q) => <li key={q.title}><button class="plain" onClick={() => choose(q.sql)}><One text={q.title} max={200} /></button></li>)}</ol>}
          </Show>
        </Card>
      </div>
      {result?.error && <Problem error={result.error} />}
      {result?.data && <Result of={result.data} />}
    </>
  );
}

function SqlEditor(p: { given: { text: string }; change: (text: string) => void; run: (text: string) => void; tables: Record<string, string[]> }) {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const now = useRef(p);
  now.current = p;
  useEffect(() => {
    let gone = false;
    import("../editor").then(({ open }) => {
      if (gone || !box.current) return;
      editor.current = open(box.current, now.current.given.text, (text) => now.current.change(text), (text) => now.current.run(text));
      editor.current.tables(now.current.tables);
    });
    return () => {
      gone = true;
      editor.current?.close();
    };
  }, []);
  useEffect(() => editor.current?.set(p.given.text), [p.given]);
  useEffect(() => editor.current?.tables(p.tables), [p.tables]);
  return <div class="editor" ref={box} />;
}

const name = (value: unknown) => (value === null ? "" : String(value));

function Result({ of }: { of: SqlResult }) {
  const numbers = of.columns.map((c, i) => (/INT|DOUBLE|FLOAT|DECIMAL|HUGE|i64|i32|f64/i.test(c.type) ? i : -1)).filter((i) => i >= 0);
  const others = of.columns.map((_, i) => i).filter((i) => !numbers.includes(i));
  const [x, setX] = useState<number | null>(null);
  const [y, setY] = useState<number | null>(null);
  const atX = x ?? others[0] ?? 0;
  const atY = y ?? numbers.find((i) => i !== atX) ?? numbers[0];
  const rows = of.rows.map((values, i) => ({ values, i }));
  const line = numbers.includes(atX);
  const drawn = of.rows.slice(0, 2_000);
  const option = (c: Colours) => ({
    tooltip: { trigger: "axis" },
    xAxis: line ? { type: "value", scale: true, splitLine: { show: false } } : { type: "category", data: drawn.map((r) => name(r[atX]).slice(0, 60)), axisLabel: { formatter: (t: string) => t.slice(0, 14) } },
    yAxis: { type: "value", name: of.columns[atY ?? 0]?.name, scale: line },
    dataZoom: [{ type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }],
    series: [{ type: line ? "scatter" : "bar", data: drawn.map((r) => (line ? [r[atX], r[atY ?? 0]] : r[atY ?? 0])), color: c.accent, barMaxWidth: 34, symbolSize: 6 }],
  });
  return (
    <>
      <p class="small muted">{plural(of.n_rows, "row")}{of.cut && ", cut at the limit"}, {ms(of.ms)}</p>
      {of.rows.length > 0 && (
        <Card title="Table">
          <Table
            label="Answer" tall first={100} rows={rows} rowKey={(r) => String(r.i)}
            columns={of.columns.map((c, i) => ({
              key: String(i), title: c.name, n: numbers.includes(i), by: (r: { values: SqlResult["rows"][number] }) => r.values[i] as string | number | null,
              show: (r: { values: SqlResult["rows"][number] }) => {
                const v = r.values[i];
                if (v === null || v === undefined) return <span class="muted">NULL</span>;
                if (typeof v === "number") return Number.isInteger(v) ? count(v) : String(Number(v.toPrecision(6)));
                return <One text={String(v)} max={200} />;
              },
            }))}
          />
        </Card>
      )}
      {of.rows.length > 1 && atY !== undefined && (
        <Card
          title="Chart"
          tools={
            <span class="row small">
              <label>across <select value={atX} onChange={(e) => setX(Number(e.currentTarget.value))}>{of.columns.map((c, i) => <option key={i} value={i}>{c.name}</option>)}</select></label>
              <label>up <select value={atY} onChange={(e) => setY(Number(e.currentTarget.value))}>{numbers.map((i) => <option key={i} value={i}>{of.columns[i]!.name}</option>)}</select></label>
            </span>
          }
        >
          <Chart name="query" label="Chart of the answer" data={`${atX},${atY},${of.ms},${of.n_rows}`} option={option} rows={() => [of.columns.map((c) => c.name), ...of.rows.map((r) => r.map((v) => (typeof v === "boolean" ? String(v) : v)))]} />
        </Card>
      )}
    </>
  );
}
