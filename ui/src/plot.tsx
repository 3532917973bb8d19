/* Chart of a plot declaration. */
import { Chart } from "./chart";
import { option, type Axis, type Plot } from "./option";
import { marked, visible } from "./text";

function rows(of: Plot): (string | number | null)[][] {
  const named = (axis: Axis | undefined, value: number | string) => axis?.names?.[Math.round(Number(value))] ?? value;
  return [
    ["marks", of.x?.title || "x", of.y?.title || "y", "x low", "x high", "y low", "y high", "text"],
    ...of.layers.filter((layer) => layer.mark !== "band").flatMap((layer) => layer.points.map((p) => [
      layer.label ?? "", named(of.x, p.x), named(of.y, p.y), ...(p.x_ends ?? [null, null]), ...(p.y_ends ?? [null, null]), p.tip ?? "",
    ])),
  ];
}

export function PlotChart({ of, open }: { of: Plot; open?: (candidate: string) => void }) {
  const chart = (
    <Chart
      name={of.name} label={marked(of.title)} height={Math.round((of.height ?? 3) * 96)} data={of} option={(c) => option(of, c)} rows={() => rows(of)}
      onClick={(event) => { const id = (event.data as { id?: string } | undefined)?.id; if (id) open?.(id); }}
    />
  );
  return of.heading ? <div><h3><code>{visible(of.heading)}</code></h3>{chart}</div> : chart;
}
