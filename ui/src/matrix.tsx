/* Virtualized matrix: the document holds only visible cells. Arrow keys move, Enter opens. */
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { Component } from "preact";
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";

export interface Cell {
  text: string;
  tone: number | null; // 0 to 1; null means no reward
  failed?: boolean;
  label: string; // for screen readers
}

export interface MatrixProps {
  label: string;
  nRows: number;
  nColumns: number;
  cell: (row: number, column: number) => Cell | null | undefined; // null: not evaluated; undefined: not loaded
  head: (column: number) => ComponentChildren;
  side: (row: number) => ComponentChildren;
  headLabel: (column: number) => string;
  corner: ComponentChildren;
  want?: (rows: [number, number], columns: [number, number]) => void;
  open: (row: number, column: number) => void;
  pick?: (column: number) => void;
  current?: [number, number] | null;
  columnWidth?: number;
  version: number; // changes when cells change
}

const ROW = 30;
const HEAD = 74;
const WINDOW = 64; // maximum visible rows and columns; their elements are recycled while scrolling

function useVirtual(box: { current: HTMLElement | null }, count: number, size: number, horizontal: boolean, padding: number) {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const options = {
    count, horizontal, overscan: 2, estimateSize: () => size, paddingStart: padding, scrollPaddingStart: padding,
    getScrollElement: () => box.current, scrollToFn: elementScroll, observeElementRect, observeElementOffset,
    onChange: () => again(0),
  };
  const [virtual] = useState(() => new Virtualizer<HTMLElement, Element>(options));
  virtual.setOptions(options);
  useEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => virtual._willUpdate());
  useLayoutEffect(() => virtual.measure(), [size, count]);
  return virtual;
}

export function Matrix(p: MatrixProps) {
  const box = useRef<HTMLDivElement>(null);
  const narrow = typeof innerWidth === "number" && innerWidth < 700;
  const side = narrow ? 108 : 210;
  const width = p.columnWidth ?? 62;
  const rows = useVirtual(box, p.nRows, ROW, false, HEAD);
  const columns = useVirtual(box, p.nColumns, width, true, side);
  const [at, setAt] = useState<[number, number]>(p.current ?? [0, 0]);
  const shownRows = rows.getVirtualItems();
  const shownColumns = columns.getVirtualItems();

  const [r0, r1] = [shownRows[0]?.index ?? 0, shownRows.at(-1)?.index ?? -1];
  const [c0, c1] = [shownColumns[0]?.index ?? 0, shownColumns.at(-1)?.index ?? -1];
  useEffect(() => {
    if (r1 >= r0 && c1 >= c0) p.want?.([r0, r1], [c0, c1]);
  }, [r0, r1, c0, c1, p.want]);
  useEffect(() => {
    if (p.current) setAt(p.current);
  }, [p.current?.[0], p.current?.[1]]);

  const move = (dr: number, dc: number) => {
    const next: [number, number] = [
      Math.min(Math.max(at[0] + dr, 0), p.nRows - 1), Math.min(Math.max(at[1] + dc, 0), p.nColumns - 1),
    ];
    setAt(next);
    rows.scrollToIndex(next[0], { align: "auto" });
    columns.scrollToIndex(next[1], { align: "auto" });
  };
  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, shownRows.length - 4);
    const steps: Record<string, [number, number]> = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-page, 0], PageDown: [page, 0],
      Home: [0, -p.nColumns], End: [0, p.nColumns],
    };
    const step = steps[event.key];
    if (step) {
      event.preventDefault();
      move(...step);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      p.open(...at);
    }
  };
  const choose = useRef((_row: number, _column: number) => undefined as void);
  const openAt = useRef(p.open);
  openAt.current = p.open;
  useMemo(() => {
    choose.current = (row, column) => {
      setAt([row, column]);
      openAt.current(row, column);
    };
  }, []);
  const active = p.cell(...at);
  return (
    <>
      <div
        class="matrix" ref={box} tabIndex={0} role="grid" aria-label={p.label} aria-rowcount={p.nRows} aria-colcount={p.nColumns}
        aria-activedescendant="cell-at" onKeyDown={key}
        style={{ height: `min(70vh, ${HEAD + ROW * p.nRows + 18}px)` }}
      >
        <div class="plane" role="presentation" style={{ width: `${columns.getTotalSize()}px`, height: `${rows.getTotalSize()}px` }}>
          <div class="head" role="row" style={{ top: 0, height: `${HEAD}px`, zIndex: 4 }}>
            <div class="corner" role="columnheader" style={{ left: 0, width: `${side}px`, height: `${HEAD}px`, zIndex: 5 }}>{p.corner}</div>
            {shownColumns.map((c) => (
              <div
                key={c.index % WINDOW} class="headcell" role="columnheader" title={p.headLabel(c.index)} onClick={() => p.pick?.(c.index)}
                style={{ left: `${c.start}px`, top: 0, width: `${width}px`, height: `${HEAD}px` }}
              >
                {p.head(c.index)}
              </div>
            ))}
          </div>
          {shownRows.map((r) => (
            <Line
              key={r.index % WINDOW} row={r.index} top={r.start} columns={shownColumns} from={c0} until={c1} width={width} sideWidth={side}
              here={at[0] === r.index ? at[1] : -1} version={p.version} cell={p.cell} side={p.side} choose={choose.current}
            />
          ))}
        </div>
      </div>
      <p class="visually-hidden" aria-live="polite">{active ? active.label : ""}</p>
    </>
  );
}

interface LineProps {
  row: number; top: number; columns: { index: number; start: number; key: unknown }[]; from: number; until: number; width: number; sideWidth: number;
  here: number; version: number; cell: MatrixProps["cell"]; side: MatrixProps["side"]; choose: (row: number, column: number) => void;
}

/** One row, redrawn only when its content changes. */
class Line extends Component<LineProps> {
  override shouldComponentUpdate(next: LineProps) {
    const p = this.props;
    return (
      p.row !== next.row || p.top !== next.top || p.from !== next.from || p.until !== next.until || p.here !== next.here ||
      p.version !== next.version || p.cell !== next.cell || p.width !== next.width || p.sideWidth !== next.sideWidth
    );
  }

  override render() {
    const p = this.props;
    return (
      <div class="line" role="row" aria-rowindex={p.row + 1} style={{ top: `${p.top}px` }}>
        <div class="side sidecell" role="rowheader" style={{ width: `${p.sideWidth}px` }}>{p.side(p.row)}</div>
        {p.columns.map((c) => {
          const cell = p.cell(p.row, c.index);
          const tone = cell?.tone === null || cell?.tone === undefined ? "" : ` t${Math.round(cell.tone * 10)}`;
          const kind = cell === null ? " unasked" : cell === undefined ? " loading" : cell.tone === null ? " missing" : "";
          return (
            <div
              key={c.index % WINDOW} id={p.here === c.index ? "cell-at" : undefined} role="gridcell"
              class={`cell${tone}${kind}${cell?.failed ? " failed" : ""}${p.here === c.index ? " current" : ""}`}
              style={`left:${c.start}px;width:${p.width}px`}
              onClick={() => p.choose(p.row, c.index)}
            >
              {cell?.text ?? ""}
            </div>
          );
        })}
      </div>
    );
  }
}
