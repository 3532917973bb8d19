/* The parts of ECharts that the pages draw with. */
import { BarChart, CustomChart, HeatmapChart, LineChart, ParallelChart, ScatterChart } from "echarts/charts";
import {
  DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, ParallelComponent, TooltipComponent, VisualMapComponent,
} from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([
  BarChart, CustomChart, HeatmapChart, LineChart, ParallelChart, ScatterChart, CanvasRenderer, DataZoomComponent, GridComponent,
  LegendComponent, MarkLineComponent, ParallelComponent, TooltipComponent, VisualMapComponent,
]);

export { init };
