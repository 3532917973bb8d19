/* Report blocks (tasks/report/blocks.py), a card for each section, and the pages made of them. */
import type { ComponentChildren } from "preact";
import { useData } from "./api";
import { anchor, Card, Figure, Show, Status, Table } from "./parts";
import type { Plot } from "./option";
import { PlotChart } from "./plot";
import { Link } from "./router";
import { marked, One, Sentence, Strip, Texts, Time, visible } from "./text";
import { useWhyNot, Write } from "./write";

type Action = { is: "Action"; text: string; path: string; ask: string; confirm: string; body: Record<string, string>; is_danger: boolean };
type Inline = string | { is: "Span"; text: string; look: "code" | "long" | "marked" | "link" | "tag" | "time"; more: string } | Action;
export type Block =
  | { is: "Heading"; text: string; level: 2 | 3 }
  | { is: "Paragraph"; parts: Inline[]; kind: "text" | "lead" | "note" | "caption" | "tabs" }
  | { is: "Bullets"; items: Inline[][] }
  | { is: "Grid"; columns: string[]; rows: Inline[][]; numeric: number[]; folded: string }
  | { is: "Texts"; rows: [string, Inline[]][] }
  | { is: "TextDiff"; lines: string[] }
  | { is: "Plots"; plots: Plot[] };
export interface BlockPage { title?: string; blocks: Block[] }

const plain = (of: Inline | undefined): string => (typeof of === "string" ? of : of?.text ?? "");
const line = (of: Inline[]): ComponentChildren => of.map((part, i) => <Piece key={i} of={part} />);

function Piece({ of }: { of: Inline }) {
  if (typeof of === "string") return <bdi class="one" dir="auto">{visible(of)}</bdi>;
  if (of.is === "Action") return <Button of={of} />;
  switch (of.look) {
    case "code": return <code><bdi class="one" dir="auto">{visible(of.text)}</bdi></code>;
    case "marked": return <mark>{visible(of.text)}</mark>;
    case "tag": return <Status status={of.text} title={of.more} />;
    case "time": return <Time at={of.text} />;
    case "link":
      if (of.more) return <Link href={`/ui/${of.more}`}><Sentence text={of.text} /></Link>;
      return of.text.startsWith("https://") ? <a href={of.text} rel="noopener noreferrer">{visible(of.text)}</a> : <>{visible(of.text)}</>;
  }
  if (of.text.length <= 60 && !of.text.includes("\n")) return <bdi class="one" dir="auto">{visible(of.text)}</bdi>;
  return <details><summary><bdi class="one" dir="auto">{visible(of.more || `${of.text.slice(0, 60)}…`)}</bdi></summary><Texts text={of.text} label="Whole text" /></details>;
}

/** Links to a page's siblings. If the address names none, the first is shown. */
function Tabs({ of }: { of: Inline[] }) {
  const tabs = of.flatMap((part) => (typeof part !== "string" && part.is === "Span" ? [{ text: part.text, href: `/ui/${part.more}` }] : []));
  const at = Math.max(0, tabs.findIndex((tab) => tab.href === location.pathname));
  return <nav class="tabs" aria-label="Sisters of the page">{tabs.map((tab, i) => <Link key={tab.href} href={tab.href} current={i === at}><One text={tab.text} max={60} /></Link>)}</nav>;
}

/** Buttons that change something. The page reloads its blocks when an event reports the change. */
function Button({ of }: { of: Action }) {
  const hidden = useWhyNot() !== null;
  return <Write name={of.text} path={of.path} body={of.body} confirm={of.confirm} ask={of.ask} danger={of.is_danger} hidden={hidden} />;
}

const isWritten = (of: Inline[]): boolean => of.some((part) => typeof part !== "string" && part.is === "Action");

/** Explains why the buttons of these blocks are missing. */
export function WhyNot({ of }: { of: Block[] }) {
  const why = useWhyNot();
  const has = of.some((block) => (block.is === "Paragraph" && isWritten(block.parts)) || (block.is === "Bullets" && block.items.some(isWritten)) || (block.is === "Grid" && block.rows.some(isWritten)));
  return why !== null && has ? <p class="muted small"><Sentence text={why} /></p> : null;
}

const SECONDS: Record<string, number> = { h: 3600, min: 60, s: 1, ms: 0.001 };

/** Sort key of a cell: its time in seconds, or its leading number. */
function rank(text: string): string | number | null {
  if (text === "" || text === "–") return null;
  const time = /^(?:[\d.,]+ (?:h|min|s|ms)(?: |$))+/.exec(text)?.[0];
  if (time) return [...time.replaceAll(",", "").matchAll(/([\d.]+) (\w+)/g)].reduce((sum, part) => sum + Number(part[1]) * SECONDS[part[2]!]!, 0);
  const found = /^[<>$\s]*([+-]?\d*\.?\d+(?:e[+-]?\d+)?)(?=$|[\s%[(])/i.exec(text.replaceAll(",", "").replaceAll("−", "-"));
  return found ? Number(found[1]) : text;
}

/** Interval ends of a column's cells, written as mean [low, high]; null if a cell has none. */
function ends(rows: Inline[][], column: number): ([number, number, number] | null)[] {
  const number = (text: string | undefined) => Number(text?.replace("−", "-"));
  return rows.map((row) => {
    const found = /^([+−-]?[\d.]+) \[([+−-]?[\d.]+), ([+−-]?[\d.]+)\]$/.exec(plain(row[column]));
    return found && [number(found[1]), number(found[2]), number(found[3])];
  });
}

function Grid({ of, label }: { of: Extract<Block, { is: "Grid" }>; label: string }) {
  const strips = of.columns.map((_, i) => {
    const all = ends(of.rows, i);
    const known = all.flatMap((one) => one ?? []);
    return known.length > 3 ? new Map(of.rows.map((row, k) => [row, all[k] && <Strip mean={all[k][0]} low={all[k][1]} high={all[k][2]} from={Math.min(...known)} to={Math.max(...known)} />])) : undefined;
  });
  const table = (
    <Table
      label={marked(of.folded || label)} rows={of.rows} rowKey={(_, i) => String(i)}
      columns={of.columns.map((title, i) => ({
        key: String(i), title: marked(title), n: of.numeric.includes(i), show: (row: Inline[]) => <>{line(row.slice(i, i + 1))}{strips[i]?.get(row)}</>,
        by: title && of.rows.length > 1 ? (row: Inline[]) => rank(plain(row[i])) : undefined,
      }))}
    />
  );
  return of.folded ? <details class="more"><summary>{visible(of.folded)}</summary>{table}</details> : table;
}

function Shown({ of, label, open }: { of: Block; label: string; open?: (candidate: string) => void }) {
  switch (of.is) {
    case "Heading": return <h3>{visible(of.text)}</h3>;
    case "Paragraph":
      if (of.kind === "tabs") return <Tabs of={of.parts} />;
      return <p class={of.kind === "text" ? undefined : of.kind}>{line(of.parts)}</p>;
    case "Bullets": return <ul>{of.items.map((item, i) => <li key={i}>{line(item)}</li>)}</ul>;
    case "Grid": return <Grid of={of} label={label} />;
    case "Texts": return <dl class="params">{of.rows.map(([name, parts], i) => [<dt key={i}>{visible(name)}</dt>, <dd>{line(parts)}</dd>])}</dl>;
    case "TextDiff": return <pre class="diff">{of.lines.map((text, i) => { const Tag = text[0] === "+" ? "ins" : text[0] === "-" ? "del" : "span"; return <Tag key={i}>{visible(text)}{"\n"}</Tag>; })}</pre>;
    case "Plots": return <div class={of.plots.some((plot) => plot.heading) ? "grid small-charts" : "grid"}>{of.plots.map((plot) => <PlotChart key={plot.name} of={plot} open={open} />)}</div>;
  }
}

/** Section titles. */
export const sectionTitles = (of: Block[]): string[] => of.flatMap((block) => (block.is === "Heading" && block.level === 2 ? [block.text] : []));

/** Content before the first heading, with a one-row table as figures. */
const Head = ({ of }: { of: Block[] }) => (
  <div class="blocks head">
    {of.map((block, i) => (block.is === "Grid" && block.rows.length === 1
      ? <div class="figures" key={i}>{block.columns.map((title, k) => <Figure key={k} value={line(block.rows[0]!.slice(k, k + 1))}><One text={title} max={120} /></Figure>)}</div>
      : <Shown key={i} of={block} label="" />))}
  </div>
);

/** Sections by heading, sliced by `from` and `to`. Section 0 is the content before the first heading. */
export function Sections({ of, from = 0, to, open }: { of: Block[]; from?: number; to?: number; open?: (candidate: string) => void }) {
  const sections: { title: string; blocks: Block[] }[] = [{ title: "", blocks: [] }];
  for (const block of of) {
    if (block.is === "Heading" && block.level === 2) sections.push({ title: block.text, blocks: [] });
    else sections.at(-1)!.blocks.push(block);
  }
  return (
    <>
      {sections.slice(from, to).map((section) => (section.title ? (
        <Card key={section.title} id={anchor(section.title)} title={visible(section.title)}>
          <div class="blocks">{section.blocks.map((block, i) => <Shown key={i} of={block} label={section.title} open={open} />)}</div>
        </Card>
      ) : section.blocks.length > 0 && <Head key="" of={section.blocks} />))}
    </>
  );
}

/** Page of blocks from the server. */
export function Blocks({ title, path }: { title: string; path: string }) {
  const loaded = useData<BlockPage>(path);
  document.title = `${title} · The Convergence`;
  return (
    <>
      <h1>{title}</h1>
      <Show of={loaded}>
        {(d) => (
          <>
            <WhyNot of={d.blocks} />
            <Sections of={d.blocks} />
          </>
        )}
      </Show>
    </>
  );
}
