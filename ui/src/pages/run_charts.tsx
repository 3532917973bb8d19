/* Charts of a run. */
import { useMemo } from "preact/hooks";
import { Chart, type Colours } from "../chart";
import type { Plot, Point } from "../option";
import { PlotChart } from "../plot";
import { interval, reward } from "../text";
import type { Candidate, Leaderboard, Parameter } from "../types";

const short = (text: string, n = 40) => (text.length > n ? `${text.slice(0, n)}…` : text);

function isNumeric(p: Parameter, rows: Candidate[]): boolean {
  const values = rows.map((r) => r.params[p.name]).filter((v) => v !== undefined && v !== null);
  return values.length > 0 && values.every((v) => typeof v === "number");
}

const word = (p: Parameter, r: Candidate): string => {
  const v = r.params[p.name];
  return v === undefined ? "not active" : typeof v === "string" ? p.names?.[v] ?? v : JSON.stringify(v);
};

export function ParallelChart({ of }: { of: Leaderboard }) {
  const rows = useMemo(() => of.rows.filter((r) => r.mean !== null).slice(0, 400), [of]);
  const parameters = of.parameters.filter((p) => new Set(rows.map((r) => word(p, r))).size > 1).slice(0, innerWidth < 700 ? 4 : 10);
  if (!parameters.length) return <p class="muted small">All configurations have the same values.</p>;
  const means = rows.map((r) => r.mean!);
  const option = (c: Colours) => ({
    tooltip: { formatter: (f: { dataIndex: number }) => { const r = rows[f.dataIndex]; return r ? `${short(r.name, 70)}\nreward ${reward(r.mean)} ${interval(r.low, r.high)}` : ""; } },
    visualMap: { show: false, min: Math.min(...means), max: Math.max(...means), dimension: parameters.length, inRange: { color: [c.dot, c.accent] } },
    parallel: { left: 40, right: 60, top: 40, bottom: 24, parallelAxisDefault: { nameTextStyle: { color: c.muted, fontSize: 11 }, axisLine: { lineStyle: { color: c.dot } }, axisLabel: { color: c.muted, fontSize: 10 }, areaSelectStyle: { width: 14, color: c.accent, opacity: 0.25, borderWidth: 0 } } },
    parallelAxis: [
      ...parameters.map((p, i) => {
        const numeric = isNumeric(p, rows);
        const values = [...new Set(rows.map((r) => word(p, r)))];
        return { dim: i, name: short(p.name, 18), ...(numeric ? { type: "value", scale: true } : { type: "category", data: values, axisLabel: { formatter: (t: string) => short(t, 14), color: c.ink, fontSize: 10, backgroundColor: c.card, padding: [1, 3], borderRadius: 3 } }) };
      }),
      { dim: parameters.length, name: "reward", type: "value", scale: true },
    ],
    series: [{ type: "parallel", lineStyle: { width: 1.2, opacity: 0.5 }, data: rows.map((r) => [...parameters.map((p) => (isNumeric(p, rows) ? (r.params[p.name] as number) : word(p, r))), r.mean]) }],
  });
  return <Chart name="parallel-coordinates" height={320} label="Parallel coordinates of configurations and their rewards" data={of} option={option} rows={() => [["candidate_id", ...parameters.map((p) => p.name), "mean"], ...rows.map((r) => [r.candidate_id, ...parameters.map((p) => word(p, r)), r.mean])]} />;
}

export function SliceCharts({ of, open }: { of: Leaderboard; open: (id: string) => void }) {
  const rows = useMemo(() => of.rows.filter((r) => r.mean !== null).slice(0, 1_000), [of]);
  const parameters = of.parameters.filter((p) => new Set(rows.map((r) => word(p, r))).size > 1).slice(0, 12);
  return <div class="grid small-charts">{parameters.map((p) => <Slice key={p.name} of={p} rows={rows} open={open} />)}</div>;
}

function Slice({ of, rows, open }: { of: Parameter; rows: Candidate[]; open: (id: string) => void }) {
  const numeric = isNumeric(of, rows);
  const names = numeric ? [] : [...new Set(rows.map((r) => word(of, r)))];
  const points = rows.filter((r) => !numeric || r.params[of.name] !== undefined).map((r): Point => {
    const ends: [number, number] | null = rows.length <= 120 && r.low !== null && r.high !== null ? [r.low, r.high] : null;
    const tip = `${short(r.name, 60)}\n${short(word(of, r))}\nreward ${reward(r.mean)} ${interval(r.low, r.high)}`;
    return numeric
      ? { x: r.params[of.name] as number, y: r.mean!, y_ends: ends, tip, candidate_id: r.candidate_id }
      : { x: r.mean!, y: names.indexOf(word(of, r)), x_ends: ends, tip, candidate_id: r.candidate_id };
  });
  const plot: Plot = {
    name: `slice-${of.name}`, title: `Reward by ${of.name}`, heading: of.name, height: 2.2, x: numeric ? { kind: of.log ? "log" : "number" } : {}, y: numeric ? { title: "reward" } : { names: names.map((name) => name.replace(/\s+/g, " ")) },
    layers: [{ points }],
  };
  return <PlotChart of={useMemo(() => plot, [of, rows])} open={open} />;
}
