/* Plot declarations (tasks/report/blocks.py): data and encoding, which one function turns into an ECharts option. */
import { marked } from "./marks";

export interface Colours {
  ink: string; muted: string; line: string; card: string; accent: string; other: string; dot: string; faint: string;
  series: string[];
}

export function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(name).trim();
  const dark = document.documentElement.dataset.theme === "dark";
  return {
    ink: of("--ink"), muted: of("--muted"), line: of("--line"), card: of("--card"), accent: of("--accent"),
    other: of("--default"), dot: of("--dot"), faint: of("--faint"),
    series: dark
      ? ["#66cdb0", "#f0a368", "#8fb4f0", "#d9a0d6", "#c9c46a", "#e98a8a", "#9aa7b4"]
      : ["#1b6a57", "#b4581a", "#3563a8", "#8a4a86", "#7a7410", "#b3403a", "#5b6675"],
  };
}

export interface Axis { title?: string; kind?: "number" | "whole" | "log" | "time"; names?: string[]; low?: number | null; high?: number | null }
type Ends = [number, number] | null;
export interface Point { x: number | string; y: number; x_ends?: Ends; y_ends?: Ends; tip?: string; candidate_id?: string }
export interface Layer {
  points: Point[]; mark?: "dots" | "line" | "steps" | "band"; colour?: "winner" | "default" | "dot" | "ink" | "muted"; label?: string;
  shape?: "circle" | "rect" | "diamond"; weight?: "faint" | "plain" | "strong"; is_hollow?: boolean; is_dashed?: boolean; is_right?: boolean;
}
export interface Plot { name: string; title: string; x?: Axis; y?: Axis; right?: Axis | null; layers: Layer[]; heading?: string; height?: number } // height in inches

const MOST_MARKED = 40; // maximum points for a line to show markers
const SIZES = { faint: 5, plain: 7, strong: 11 };
const short = (text: string, n: number) => (text.length > n ? `${text.slice(0, n)}…` : text);

function axis(of: Axis = {}, side: "x" | "y", c: Colours) {
  const n = of.names?.length ?? 0;
  if (n) {
    const customValues = of.names!.map((_, at) => at);
    return {
      type: "value", inverse: side === "y", min: -0.6, max: n - 0.4, splitLine: { show: false }, axisTick: { show: false, customValues },
      axisLabel: { color: c.ink, lineHeight: 13, customValues, hideOverlap: n > 12, formatter: (at: number) => (of.names![at] ?? "").split("\n").map((line) => short(marked(line), 24)).join("\n") },
    };
  }
  return {
    type: of.kind === "log" ? "log" : of.kind === "time" ? "time" : "value", name: of.title, scale: true, min: of.low ?? undefined, max: of.high ?? undefined,
    axisLine: { onZero: false, lineStyle: { color: c.line } }, ...(of.kind === "whole" ? { minInterval: 1 } : {}), axisLabel: of.low == null ? {} : { formatter: (x: number) => Number(x.toPrecision(3)).toLocaleString() },
    ...(side === "x" ? { nameLocation: "middle", nameGap: 26, splitLine: { show: false } } : {}),
  };
}

/** Intervals on one axis, each drawn as a line. */
function whiskers(of: Layer, ends: "x_ends" | "y_ends", colour: string) {
  const data = of.points.flatMap((p) => {
    const at = p[ends];
    return at ? [ends === "x_ends" ? [at[0], p.y, at[1], p.y] : [p.x, at[0], p.x, at[1]]] : [];
  });
  if (!data.length) return [];
  return [{
    type: "custom", silent: true, data, z: 1, encode: { x: [0, 2], y: [1, 3] }, tooltip: { show: false },
    renderItem: (_: unknown, api: { value: (i: number) => number; coord: (p: number[]) => [number, number] }) => {
      const [[x1, y1], [x2, y2]] = [api.coord([api.value(0), api.value(1)]), api.coord([api.value(2), api.value(3)])];
      return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1.5, opacity: 0.75 } };
    },
  }];
}

/** Two stacked lines with a filled band between them. */
function band(points: Point[], colour: string, at: number) {
  const known = points.filter((p) => p.y_ends);
  const edge = { type: "line", stack: `band${at}`, symbol: "none", lineStyle: { opacity: 0 }, silent: true, stackStrategy: "all", tooltip: { show: false } };
  return [
    { ...edge, data: known.map((p) => [p.x, p.y_ends![0]]) },
    { ...edge, data: known.map((p) => [p.x, p.y_ends![1] - p.y_ends![0]]), areaStyle: { color: colour, opacity: 0.15 } },
  ];
}

function series(of: Layer, c: Colours, at: number): object[] {
  const colour = { winner: c.accent, default: c.other, dot: c.dot, ink: c.ink, muted: c.muted }[of.colour ?? "winner"];
  const isFaint = of.weight === "faint";
  if (of.mark === "band") return band(of.points, colour, at);
  const marks = {
    name: of.label || undefined, data: of.points.map((p) => ({ value: [p.x, p.y], tip: p.tip, id: p.candidate_id })), yAxisIndex: of.is_right ? 1 : 0,
    symbol: of.shape ?? "circle", symbolSize: SIZES[of.weight ?? "plain"], color: colour,
  };
  if (of.mark === "line" || of.mark === "steps") {
    return [{
      ...marks, type: "line", step: of.mark === "steps" ? "middle" : false, symbolSize: 5, lineStyle: { width: isFaint ? 1 : of.is_dashed ? 1.5 : 2, type: of.is_dashed ? "dashed" : "solid" },
      showSymbol: of.mark === "line" && of.points.length <= MOST_MARKED && of.points.some((p) => p.tip),
    }];
  }
  const look = of.is_hollow ? { color: c.card, borderColor: colour, borderWidth: 1.5 } : { color: colour, opacity: isFaint ? 0.55 : 1 };
  return [...whiskers(of, "x_ends", colour), ...whiskers(of, "y_ends", colour), { ...marks, type: "scatter", itemStyle: look }];
}

export function option(of: Plot, c: Colours): Record<string, unknown> {
  const labels = of.layers.flatMap((layer) => (layer.label ? [layer.label] : []));
  const isAlongX = !of.y?.names?.length && of.layers.some((layer) => layer.mark === "line" || layer.mark === "steps");
  type Mark = { data?: { tip?: string } };
  const isLarge = !of.heading && !of.y?.names?.length;
  return {
    legend: labels.length > 1 ? { data: labels } : undefined,
    tooltip: {
      trigger: isAlongX ? "axis" : "item",
      formatter: (found: Mark | Mark[]) => [found].flat().flatMap((mark) => (mark.data?.tip ? [short(marked(mark.data.tip), 200)] : [])).join("\n"),
    },
    dataZoom: isLarge ? [{ type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false }] : undefined,
    xAxis: axis(of.x, "x", c),
    yAxis: of.right ? [axis(of.y, "y", c), { ...axis(of.right, "y", c), splitLine: { show: false }, nameTextStyle: { color: c.muted, align: "right" } }] : axis(of.y, "y", c),
    grid: { left: 8, right: 18, top: (labels.length > 1 ? 26 : 4) + (of.y?.title || of.right ? 26 : 6), bottom: of.x?.title ? 30 : 8, containLabel: true },
    series: of.layers.flatMap((layer, at) => series(layer, c, at)),
  };
}

/** ECharts option in the page's colours and font. */
export function dressed(option: Record<string, unknown>, c: Colours): Record<string, unknown> {
  const axis = {
    axisLine: { lineStyle: { color: c.line } }, axisTick: { show: false }, axisLabel: { color: c.muted, hideOverlap: true },
    nameTextStyle: { color: c.muted }, splitLine: { lineStyle: { color: c.faint } },
  };
  const vertical = { ...axis, nameTextStyle: { color: c.muted, align: "left" } };
  const dress = (a: unknown, axis: object): unknown => (Array.isArray(a) ? a.map((one) => dress(one, axis)) : a ? { ...axis, ...(a as object), axisLabel: { color: c.muted, hideOverlap: true, ...((a as { axisLabel?: object }).axisLabel ?? {}) } } : a);
  return {
    color: c.series, backgroundColor: "transparent", animation: false, aria: { enabled: false },
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: c.ink },
    grid: { left: 8, right: 18, top: 28, bottom: 8, containLabel: true },
    ...option,
    tooltip: {
      renderMode: "richText", confine: true, backgroundColor: c.card, borderColor: c.line,
      textStyle: { color: c.ink, fontSize: 12 }, ...((option.tooltip as object | undefined) ?? {}),
    },
    legend: option.legend ? { textStyle: { color: c.muted }, icon: "roundRect", itemHeight: 4, itemWidth: 14, top: 0, left: 0, type: "scroll", ...(option.legend as object) } : undefined,
    ...(option.xAxis ? { xAxis: dress(option.xAxis, axis) } : {}),
    ...(option.yAxis ? { yAxis: dress(option.yAxis, vertical) } : {}),
  };
}
