/* ECharts components that the pages use. */
import { CustomChart, LineChart, ParallelChart, ScatterChart } from "echarts/charts";
import {
  DataZoomComponent, GridComponent, LegendComponent, ParallelComponent, TooltipComponent, VisualMapComponent,
} from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([
  CustomChart, LineChart, ParallelChart, ScatterChart, CanvasRenderer, DataZoomComponent, GridComponent,
  LegendComponent, ParallelComponent, TooltipComponent, VisualMapComponent,
]);

export { init };
