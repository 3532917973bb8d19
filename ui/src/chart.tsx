/* ECharts charts in the page's colours, with image and CSV export. ECharts loads with the first chart. */
import type { EChartsType } from "echarts/core";
import { useEffect, useRef, useState } from "preact/hooks";
import { colours, dressed, type Colours } from "./option";
import { useTheme } from "./theme";

export type { Colours };

type Rows = (string | number | null)[][];

function save(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** An apostrophe prefixes formulas so that spreadsheets do not run them, as in the CLI's exports. */
export function csv(rows: Rows): string {
  const field = (value: string | number | null) => {
    if (value === null) return "";
    let text = String(value);
    if (typeof value === "string" && /^(?:\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

export function saveCsv(name: string, rows: Rows): void {
  save(`${name}.csv`, new Blob([csv(rows)], { type: "text/csv;charset=utf-8" }));
}

export interface ChartProps {
  name: string; // base name of saved files
  label: string; // description for screen readers
  height?: number;
  data: unknown; // the chart redraws when this object changes
  option: (c: Colours) => Record<string, unknown>;
  rows: () => Rows; // the chart's numbers, with a header row
  onClick?: (event: { seriesIndex?: number; dataIndex?: number; name?: string; data?: unknown; value?: unknown }) => void;
}

export function Chart(p: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<EChartsType | null>(null);
  const theme = useTheme();
  const [ready, setReady] = useState(false);
  const click = useRef(p.onClick);
  click.current = p.onClick;

  useEffect(() => {
    let gone = false;
    const resize = new ResizeObserver(() => chart.current?.resize());
    import("./echarts").then(({ init }) => {
      if (gone || !box.current) return;
      chart.current = init(box.current, undefined, { renderer: "canvas" });
      chart.current.on("click", (event) => click.current?.(event as never));
      resize.observe(box.current);
      setReady(true);
    });
    return () => {
      gone = true;
      resize.disconnect();
      chart.current?.dispose();
      chart.current = null;
    };
  }, []);

  useEffect(() => {
    if (!chart.current) return;
    const c = colours();
    const option = p.option(c);
    const zoomed = (chart.current.getOption() as { dataZoom?: { start: number; end: number }[] } | undefined)?.dataZoom;
    if (zoomed && Array.isArray(option.dataZoom)) {
      option.dataZoom = option.dataZoom.map((zoom: object, i) => ({ ...zoom, start: zoomed[i]?.start, end: zoomed[i]?.end }));
    }
    chart.current.setOption(dressed(option, c), { notMerge: true });
  }, [ready, theme, p.data]);

  const picture = () => {
    const url = chart.current?.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: colours().card });
    if (!url) return;
    const bytes = Uint8Array.from(atob(url.slice(url.indexOf(",") + 1)), (char) => char.charCodeAt(0));
    save(`${p.name}.png`, new Blob([bytes], { type: "image/png" }));
  };
  return (
    <div class="chart">
      <div class="canvas" ref={box} role="img" aria-label={p.label} style={{ height: `${p.height ?? 280}px` }} data-ready={ready ? "1" : undefined} />
      <div class="chart-tools">
        <button class="plain" onClick={picture} aria-label={`Save the picture: ${p.label}`}>Picture</button>
        <button class="plain" onClick={() => saveCsv(p.name, p.rows())} aria-label={`Save the numbers as CSV: ${p.label}`}>CSV</button>
      </div>
    </div>
  );
}
