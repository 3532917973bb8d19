/* Plots of report.html, drawn at their declarations in the page's colours. */
import { CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { GridComponent, LegendScrollComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { colours, dressed, option, type Plot } from "./option";

use([CustomChart, LineChart, ScatterChart, CanvasRenderer, GridComponent, LegendScrollComponent, TooltipComponent]);

const charts = [...document.querySelectorAll<HTMLElement>("[data-plot]")].map((box) => {
  const plot = JSON.parse(box.dataset.plot!) as Plot;
  let chart: ReturnType<typeof init> | undefined;
  const draw = () => chart?.setOption(dressed(option(plot, colours()), colours()), { notMerge: true });
  // A folded section has no width, so its charts are drawn when it opens.
  new ResizeObserver(() => {
    if (!box.clientWidth) return;
    if (chart) return chart.resize();
    chart = init(box, undefined, { renderer: "canvas" });
    draw();
  }).observe(box);
  return draw;
});
const redraw = () => charts.forEach((draw) => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
