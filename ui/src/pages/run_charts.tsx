/* Charts of a run. */
import { useMemo } from "preact/hooks";
import { Chart, type Colours } from "../chart";
import { interval, reward, usd } from "../text";
import type { Candidate, Curve, Effects, Front, FrontPoint, Leaderboard, Parameter, Spend } from "../types";

const zoom = [{ type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }];

/** Vertical interval of each point: [x, low, high]. */
function whiskers(data: (number | null)[][], colour: string) {
  return {
    type: "custom", silent: true, data, z: 1, encode: { x: 0, y: [1, 2] }, tooltip: { show: false },
    renderItem: (_: unknown, api: { value: (i: number) => number; coord: (p: number[]) => number[] }) => {
      const [x, low] = api.coord([api.value(0), api.value(1)]) as [number, number];
      const high = api.coord([api.value(0), api.value(2)])[1]!;
      return { type: "line", shape: { x1: x, y1: low, x2: x, y2: high }, style: { stroke: colour, lineWidth: 1.2, opacity: 0.6 } };
    },
  };
}

const short = (text: string, n = 40) => (text.length > n ? `${text.slice(0, n)}…` : text);

export function LearningCurve({ of }: { of: Curve }) {
  const option = (c: Colours) => {
    const x = (i: number) => of.points[i]!.cumulative_calls ?? of.points.slice(0, i + 1).reduce((sum, p) => sum + p.n_evaluations, 0);
    const at = (k: keyof Curve["points"][number]) => of.points.map((p, i) => [x(i), p[k]]);
    return {
      legend: { data: ["best mean", "mean of all evaluated"] },
      tooltip: {
        trigger: "axis",
        formatter: (found: { dataIndex: number }[]) => {
          const p = of.points[found[0]?.dataIndex ?? 0];
          return p ? `generation ${p.generation}, ${p.n_evaluations} evaluations\nbest mean ${reward(p.best_mean)} ${interval(p.low, p.high)}\nmean of all evaluated ${reward(p.asked_mean)}${p.cumulative_usd === null ? "" : `\n${usd(p.cumulative_usd)} so far`}` : "";
        },
      },
      dataZoom: zoom,
      xAxis: { type: "value", name: "calls so far", nameLocation: "middle", nameGap: 24, splitLine: { show: false } },
      yAxis: { type: "value", name: "reward", scale: true },
      grid: { left: 8, right: 18, top: 54, bottom: 26, containLabel: true },
      series: [
        { name: "low", type: "line", stack: "band", data: at("low"), lineStyle: { opacity: 0 }, symbol: "none", tooltip: { show: false }, silent: true, stackStrategy: "all" },
        {
          name: "high", type: "line", stack: "band", symbol: "none", lineStyle: { opacity: 0 }, areaStyle: { color: c.accent, opacity: 0.15 }, silent: true, stackStrategy: "all",
          data: of.points.map((p, i) => [x(i), p.high !== null && p.low !== null ? p.high - p.low : null]),
        },
        { name: "best mean", type: "line", data: at("best_mean"), symbolSize: 5, lineStyle: { width: 2 }, color: c.accent },
        { name: "mean of all evaluated", type: "line", data: at("asked_mean"), symbolSize: 3, lineStyle: { width: 1, type: "dashed" }, color: c.other },
      ],
    };
  };
  const header = ["generation", "n_evaluations", "cumulative_calls", "best_mean", "low", "high", "asked_mean", "cumulative_usd"] as const;
  return <Chart name="learning-curve" label="Learning curve: best mean reward by calls, with its interval" data={of} option={option} rows={() => [[...header], ...of.points.map((p) => header.map((k) => p[k]))]} />;
}

export function SpendChart({ of }: { of: Spend }) {
  const unknown = of.by_generation.every((g) => !g.cost_usd);
  const option = (c: Colours) => ({
    tooltip: { trigger: "axis", valueFormatter: (x: number) => (unknown ? String(x) : usd(x)) },
    xAxis: { type: "category", data: of.by_generation.map((g) => (g.generation === null ? "final test" : String(g.generation))), name: "generation", nameLocation: "middle", nameGap: 24 },
    yAxis: { type: "value", name: unknown ? "calls" : "USD" },
    grid: { left: 8, right: 18, top: 30, bottom: 26, containLabel: true },
    series: [{ name: unknown ? "calls" : "USD", type: "bar", data: of.by_generation.map((g) => (unknown ? g.n_calls : g.cost_usd)), color: c.accent, barMaxWidth: 26 }],
  });
  return <Chart name="spend" height={180} label={unknown ? "Calls by generation" : "USD by generation"} data={of} option={option} rows={() => [["generation", "cost_usd", "n_calls"], ...of.by_generation.map((g) => [g.generation, g.cost_usd, g.n_calls])]} />;
}

export function EffectCharts({ of }: { of: Effects }) {
  return (
    <div class="grid small-charts">
      {of.effects.map((e) => <EffectChart key={e.parameter} of={e} />)}
    </div>
  );
}

function EffectChart({ of }: { of: Effects["effects"][number] }) {
  const numbers = of.points.every((p) => typeof p.value === "number");
  const option = (c: Colours) => {
    const x = (i: number) => (numbers ? (of.points[i]!.value as number) : i);
    return {
      tooltip: { trigger: "item", formatter: (f: { dataIndex: number }) => { const p = of.points[f.dataIndex]!; return `${short(p.label)}\n${reward(p.mean)} ${interval(p.low, p.high)}`; } },
      xAxis: numbers ? { type: "value", scale: true, splitLine: { show: false } } : { type: "category", data: of.points.map((p) => p.label), axisLabel: { formatter: (t: string) => short(t, 14) } },
      yAxis: { type: "value", name: "mean reward", scale: true },
      series: [
        whiskers(of.points.map((p, i) => [x(i), p.low, p.high]), c.dot),
        { type: numbers ? "line" : "scatter", data: of.points.map((p, i) => (numbers ? [x(i), p.mean] : p.mean)), symbolSize: 8, color: c.accent, markLine: { silent: true, symbol: "none", data: of.average === undefined ? [] : [{ yAxis: of.average }], label: { show: false }, lineStyle: { color: c.other, type: "dashed" } } },
      ],
    };
  };
  return (
    <div>
      <h3><code>{of.parameter}</code>{of.share !== null && <span class="muted small"> {Math.round(of.share * 100)} % of what parameters explain</span>}</h3>
      <Chart name={`effect-${of.parameter}`} height={210} label={`Mean reward by ${of.parameter}, with intervals; the dashed line is the average`} data={of} option={option} rows={() => [["value", "mean", "low", "high"], ...of.points.map((p) => [p.label, p.mean, p.low, p.high])]} />
    </div>
  );
}

function isNumeric(p: Parameter, rows: Candidate[]): boolean {
  const values = rows.map((r) => r.params[p.name]).filter((v) => v !== undefined && v !== null);
  return values.length > 0 && values.every((v) => typeof v === "number");
}

const word = (v: unknown): string => (v === undefined ? "not active" : typeof v === "string" ? v : JSON.stringify(v));

export function ParallelChart({ of }: { of: Leaderboard }) {
  const rows = useMemo(() => of.rows.filter((r) => r.mean !== null).slice(0, 400), [of]);
  const parameters = of.parameters.filter((p) => new Set(rows.map((r) => word(r.params[p.name]))).size > 1).slice(0, innerWidth < 700 ? 4 : 10);
  if (!parameters.length) return <p class="muted small">All configurations have the same values.</p>;
  const means = rows.map((r) => r.mean!);
  const option = (c: Colours) => ({
    tooltip: { formatter: (f: { dataIndex: number }) => { const r = rows[f.dataIndex]; return r ? `${short(r.name, 70)}\nreward ${reward(r.mean)} ${interval(r.low, r.high)}` : ""; } },
    visualMap: { show: false, min: Math.min(...means), max: Math.max(...means), dimension: parameters.length, inRange: { color: [c.dot, c.accent] } },
    parallel: { left: 40, right: 60, top: 40, bottom: 24, parallelAxisDefault: { nameTextStyle: { color: c.muted, fontSize: 11 }, axisLine: { lineStyle: { color: c.dot } }, axisLabel: { color: c.muted, fontSize: 10 }, areaSelectStyle: { width: 14, color: c.accent, opacity: 0.25, borderWidth: 0 } } },
    parallelAxis: [
      ...parameters.map((p, i) => {
        const numeric = isNumeric(p, rows);
        const values = [...new Set(rows.map((r) => word(r.params[p.name])))];
        return { dim: i, name: short(p.name, 18), ...(numeric ? { type: "value", scale: true } : { type: "category", data: values, axisLabel: { formatter: (t: string) => short(t, 14), color: c.ink, fontSize: 10, backgroundColor: c.card, padding: [1, 3], borderRadius: 3 } }) };
      }),
      { dim: parameters.length, name: "reward", type: "value", scale: true },
    ],
    series: [{ type: "parallel", lineStyle: { width: 1.2, opacity: 0.5 }, data: rows.map((r) => [...parameters.map((p) => (isNumeric(p, rows) ? (r.params[p.name] as number) : word(r.params[p.name]))), r.mean]) }],
  });
  return <Chart name="parallel-coordinates" height={320} label="Parallel coordinates of configurations and their rewards" data={of} option={option} rows={() => [["candidate_id", ...parameters.map((p) => p.name), "mean"], ...rows.map((r) => [r.candidate_id, ...parameters.map((p) => word(r.params[p.name])), r.mean])]} />;
}

export function SliceCharts({ of, open }: { of: Leaderboard; open: (id: string) => void }) {
  const rows = useMemo(() => of.rows.filter((r) => r.mean !== null).slice(0, 1_000), [of]);
  const parameters = of.parameters.filter((p) => new Set(rows.map((r) => word(r.params[p.name]))).size > 1).slice(0, 12);
  return <div class="grid small-charts">{parameters.map((p) => <Slice key={p.name} of={p} rows={rows} open={open} />)}</div>;
}

function Slice({ of, rows, open }: { of: Parameter; rows: Candidate[]; open: (id: string) => void }) {
  const numeric = isNumeric(of, rows);
  const values = [...new Set(rows.map((r) => word(r.params[of.name])))];
  const shown = rows.filter((r) => !numeric || r.params[of.name] !== undefined);
  const x = (r: Candidate) => (numeric ? (r.params[of.name] as number) : values.indexOf(word(r.params[of.name])));
  const option = (c: Colours) => ({
    tooltip: { trigger: "item", formatter: (f: { dataIndex: number }) => { const r = shown[f.dataIndex]; return r ? `${short(r.name, 60)}\n${short(word(r.params[of.name]))}\nreward ${reward(r.mean)} ${interval(r.low, r.high)}` : ""; } },
    xAxis: numeric ? { type: of.log ? "log" : "value", scale: true, splitLine: { show: false } } : { type: "category", data: values, axisLabel: { formatter: (t: string) => short(t, 14) } },
    yAxis: { type: "value", name: "reward", scale: true },
    dataZoom: zoom,
    series: [
      ...(shown.length <= 120 ? [whiskers(shown.map((r) => [x(r), r.low, r.high]), c.dot)] : []),
      { type: "scatter", data: shown.map((r) => [x(r), r.mean]), symbolSize: 6, color: c.accent, itemStyle: { opacity: 0.75 } },
    ],
  });
  return (
    <div>
      <h3><code>{of.name}</code></h3>
      <Chart
        name={`slice-${of.name}`} height={210} label={`Reward by ${of.name}`} data={rows} option={option}
        onClick={(f) => { const r = shown[f.dataIndex ?? -1]; if (r) open(r.candidate_id); }}
        rows={() => [["candidate_id", of.name, "mean", "low", "high"], ...shown.map((r) => [r.candidate_id, word(r.params[of.name]), r.mean, r.low, r.high])]}
      />
    </div>
  );
}

export function FrontChart({ of, open }: { of: Front; open: (id: string) => void }) {
  const [x, y] = [of.objectives[0]!, of.objectives[1]!];
  const point = (p: FrontPoint) => [p.means[x.name] ?? null, p.means[y.name] ?? null];
  const named = (o: typeof x) => `${o.name}${o.unit ? `, ${o.unit}` : ""} (${o.direction} is better)`;
  const ranked = [...of.points].sort((a, b) => (a.means[x.name] ?? 0) - (b.means[x.name] ?? 0));
  const tip = (p?: FrontPoint) => p ? `${short(p.name, 60)}\n${of.objectives.map((o) => `${o.name} ${p.means[o.name]?.toPrecision(4) ?? "–"} [${p.lows[o.name]?.toPrecision(4) ?? "–"}, ${p.highs[o.name]?.toPrecision(4) ?? "–"}]`).join("\n")}` : "";
  const option = (c: Colours) => ({
    legend: { data: ["front", "dominated"] },
    tooltip: { trigger: "item", formatter: (f: { seriesName: string; dataIndex: number }) => tip((f.seriesName === "front" ? ranked : of.dominated)[f.dataIndex]) },
    xAxis: { type: "value", scale: true, name: named(x), nameLocation: "middle", nameGap: 26, splitLine: { show: false } },
    yAxis: { type: "value", scale: true, name: named(y), nameTextStyle: { align: "left", color: c.muted } },
    grid: { left: 8, right: 18, top: 56, bottom: 30, containLabel: true }, dataZoom: zoom,
    series: [
      { name: "front", type: "line", step: false, data: ranked.map(point), symbolSize: 9, lineStyle: { type: "dashed", width: 1 }, color: c.accent },
      { name: "dominated", type: "scatter", data: of.dominated.map(point), symbolSize: 5, color: c.dot },
    ],
  });
  return <Chart name="front" height={340} label={`Front of ${x.name} and ${y.name}`} data={of} option={option} onClick={(f) => { const p = ((f.seriesIndex ?? 0) === 0 ? ranked : of.dominated)[f.dataIndex ?? -1]; if (p) open(p.candidate_id); }} rows={() => [["candidate_id", "on_front", ...of.objectives.map((o) => o.name)], ...[...of.points, ...of.dominated].map((p, i) => [p.candidate_id, i < of.points.length ? 1 : 0, ...of.objectives.map((o) => p.means[o.name] ?? null)])]} />;
}
