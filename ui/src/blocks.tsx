/* Blocks of a report (tasks/report/blocks.py), a card for each section. */
import type { ComponentChildren } from "preact";
import { anchor, Card, Table } from "./parts";
import { PlotChart, type Plot } from "./plot";
import { marked, Texts, visible } from "./text";

type Inline = string | { is: "Code" | "LongText" | "Marked" | "WebLink"; text: string; preview?: string };
export type Block =
  | { is: "Heading"; text: string; level: 2 | 3 }
  | { is: "Paragraph"; parts: Inline[]; kind: "text" | "lead" | "note" | "caption" }
  | { is: "Bullets"; items: Inline[][] }
  | { is: "Grid"; columns: string[]; rows: Inline[][]; numeric: number[]; folded: string }
  | { is: "Texts"; rows: [string, Inline[]][] }
  | { is: "TextDiff"; lines: string[] }
  | { is: "Plots"; plots: Plot[] };

const plain = (of: Inline | undefined): string => (typeof of === "string" ? of : of?.text ?? "");
const line = (of: Inline[]): ComponentChildren => of.map((part, i) => <Piece key={i} of={part} />);

function Piece({ of }: { of: Inline }) {
  if (typeof of === "string") return <bdi class="one" dir="auto">{visible(of)}</bdi>;
  if (of.is === "Code") return <code><bdi class="one" dir="auto">{visible(of.text)}</bdi></code>;
  if (of.is === "Marked") return <mark>{visible(of.text)}</mark>;
  if (of.is === "WebLink" && of.text.startsWith("https://")) return <a href={of.text} rel="noopener noreferrer">{visible(of.text)}</a>;
  if (of.is === "WebLink") return <>{visible(of.text)}</>;
  if (of.text.length <= 60 && !of.text.includes("\n")) return <bdi class="one" dir="auto">{visible(of.text)}</bdi>;
  return <details><summary><bdi class="one" dir="auto">{visible(of.preview || `${of.text.slice(0, 60)}…`)}</bdi></summary><Texts text={of.text} label="Whole text" /></details>;
}

/** What a cell is sorted by: its number if it begins with one. */
function rank(text: string): string | number | null {
  if (text === "" || text === "–") return null;
  const found = /^[<>$\s]*([+-]?\d*\.?\d+(?:e[+-]?\d+)?)(?=$|[\s%[(])/i.exec(text.replaceAll(",", "").replaceAll("−", "-"));
  return found ? Number(found[1]) : text;
}

function Grid({ of, label }: { of: Extract<Block, { is: "Grid" }>; label: string }) {
  const table = (
    <Table
      label={marked(of.folded || label)} rows={of.rows} rowKey={(_, i) => String(i)}
      columns={of.columns.map((title, i) => ({
        key: String(i), title: marked(title), n: of.numeric.includes(i), show: (row: Inline[]) => line(row.slice(i, i + 1)),
        by: title && of.rows.length > 1 ? (row: Inline[]) => rank(plain(row[i])) : undefined,
      }))}
    />
  );
  return of.folded ? <details class="more"><summary>{visible(of.folded)}</summary>{table}</details> : table;
}

function One({ of, label, open }: { of: Block; label: string; open?: (candidate: string) => void }) {
  switch (of.is) {
    case "Heading": return <h3>{visible(of.text)}</h3>;
    case "Paragraph": return <p class={of.kind === "text" ? undefined : of.kind}>{line(of.parts)}</p>;
    case "Bullets": return <ul>{of.items.map((item, i) => <li key={i}>{line(item)}</li>)}</ul>;
    case "Grid": return <Grid of={of} label={label} />;
    case "Texts": return <dl class="params">{of.rows.map(([name, parts], i) => [<dt key={i}>{visible(name)}</dt>, <dd>{line(parts)}</dd>])}</dl>;
    case "TextDiff": return <pre class="diff">{of.lines.map((text, i) => { const Tag = text[0] === "+" ? "ins" : text[0] === "-" ? "del" : "span"; return <Tag key={i}>{visible(text)}{"\n"}</Tag>; })}</pre>;
    case "Plots": return <div class={of.plots.some((plot) => plot.heading) ? "grid small-charts" : "grid"}>{of.plots.map((plot) => <PlotChart key={plot.name} of={plot} open={open} />)}</div>;
  }
}

/** Titles of the sections. */
export const sectionTitles = (of: Block[]): string[] => of.flatMap((block) => (block.is === "Heading" && block.level === 2 ? [block.text] : []));

/** The sections, each by its heading; `from` and `to` cut the list of them. */
export function Sections({ of, from = 0, to, open }: { of: Block[]; from?: number; to?: number; open?: (candidate: string) => void }) {
  const sections: { title: string; blocks: Block[] }[] = [];
  for (const block of of) {
    if (block.is === "Heading" && block.level === 2) sections.push({ title: block.text, blocks: [] });
    else sections.at(-1)?.blocks.push(block);
  }
  return (
    <>
      {sections.slice(from, to).map((section) => (
        <Card key={section.title} id={anchor(section.title)} title={visible(section.title)}>
          <div class="blocks">{section.blocks.map((block, i) => <One key={i} of={block} label={section.title} open={open} />)}</div>
        </Card>
      ))}
    </>
  );
}
