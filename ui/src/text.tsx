/* Texts of models and cases shown as data, and uniform numbers, times and intervals. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { marked, MARKS, NAMES } from "./marks";

export { marked };

const SHOWN = 20_000;

/** Text split at its marks, each shown by name: a list of children, never HTML. */
export function visible(text: string): ComponentChildren {
  if (!MARKS.test(text)) return text;
  const out: ComponentChildren[] = [];
  let plain = "";
  let marks = 0;
  for (const char of text) {
    // A joiner inside an emoji or an Indic word is legitimate.
    if (!MARKS.test(char) || marks > 2_000) {
      plain += char;
      continue;
    }
    if (plain) out.push(plain);
    plain = "";
    marks += 1;
    const code = char.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
    out.push(<span class="mark" title={`U+${code}`}>{NAMES[char] ?? `U+${code}`}</span>);
  }
  if (plain) out.push(plain);
  return out;
}

/** A case's input without the JSON braces and first key that all cases share. */
export const inputLine = (title: string) => title.replace(/^\{"[\w -]{1,40}":\s*"?/, "").replace(/"?\}$/, "");

/** Text on one line, from its first new word if it shares a long beginning with another. */
export function since(text: string, other: unknown): string {
  const [words, others] = [text, typeof other === "string" ? other : ""].map((one) => one.trim().split(/\s+/)) as [string[], string[]];
  let n = 0;
  while (n < words.length && words[n] === others[n]) n++;
  const isAlike = n < words.length && words.slice(0, n).join(" ").length > 20;
  return isAlike ? `… ${words.slice(n).join(" ")}` : words.join(" ");
}

/** One line of foreign text, isolated in its own direction. */
export function One({ text, max = 160 }: { text: string | null | undefined; max?: number }) {
  const whole = text ?? "";
  const cut = whole.length > max ? `${whole.slice(0, max)}…` : whole;
  return <bdi class="one" dir="auto" title={whole.length > max ? marked(whole.slice(0, 2_000)) : undefined}>{visible(cut)}</bdi>;
}

/** Sentence from the server, with commands and names in backticks. */
export function Sentence({ text }: { text: string | null | undefined }) {
  const parts = (text ?? "").slice(0, 4_000).split(/`([^`\n]+)`/);
  return <bdi class="one" dir="auto">{parts.map((part, i) => (i % 2 ? <code key={i} class={part.length < 24 ? "whole" : undefined}>{visible(part)}</code> : visible(part)))}</bdi>;
}

/** Whole text in a box. A long one is cut, with a button for more. */
export function Texts({ text, label, whole }: { text: string | null | undefined; label: string; whole?: string }) {
  const [shown, setShown] = useState(SHOWN);
  if (text === null || text === undefined) return <p class="muted small">Nothing is stored.</p>;
  if (text === "") return <p class="muted small">The text is empty.</p>;
  return (
    <>
      <div class="texts" tabIndex={0} role="region" aria-label={label}>
        <div class="text" dir="auto">{visible(text.slice(0, shown))}</div>
      </div>
      {text.length > shown && (
        <p class="small muted">
          {count(shown)} of {count(text.length)} characters.{" "}
          <button class="plain" onClick={() => setShown(shown * 5)}>Show more</button>
        </p>
      )}
      {whole && <p class="small"><a href={whole} download>Download the whole text</a></p>}
    </>
  );
}

const plain = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });

export const count = (n: number | null | undefined): string => (n === null || n === undefined ? "–" : plain.format(n));

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Reward or other number in [0, 1] with three decimals, as in the report. */
export const reward = (x: number | null | undefined): string => (x === null || x === undefined ? "–" : x.toFixed(3).replace("-", "−"));

export function signed(x: number | null | undefined, digits = 3): string {
  if (x === null || x === undefined) return "–";
  return `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;
}

/** Dollar amount as in the reports: small amounts keep two significant digits. */
export function usd(x: number | null | undefined): string {
  if (x === null || x === undefined) return "unknown";
  const size = Math.abs(x);
  const digits = x === 0 || size >= 0.995 ? 2 : Math.max(2, 1 - Math.floor(Math.log10(size)));
  return `$${x.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** Three significant digits, as for measured numbers in the reports. */
export const three = (x: number): string => String(Number(x.toPrecision(3)));

export function ms(x: number | null | undefined): string {
  if (x === null || x === undefined) return "–";
  return x >= 1_000 ? `${three(x / 1_000)} s` : `${three(x)} ms`;
}

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** Local time; the title gives seconds and the zone. */
export function Time({ at }: { at: string | null | undefined }) {
  if (!at) return <>–</>;
  const date = new Date(/[zZ]|[+-]\d\d:?\d\d$/.test(at) ? at : `${at.replace(" ", "T")}Z`);
  if (Number.isNaN(date.getTime())) return <One text={at} />;
  return <time dateTime={date.toISOString()} title={date.toString()}>{clock.format(date)}</time>;
}

/** Interval bounds as in the reports, with signs if they bound a difference. */
export function interval(low: number | null | undefined, high: number | null | undefined, sign = false): string {
  if (low === null || low === undefined || high === null || high === undefined) return "";
  return sign ? `[${signed(low)}, ${signed(high)}]` : `[${reward(low)}, ${reward(high)}]`;
}

export function Interval({ low, high, sign }: { low?: number | null; high?: number | null; sign?: boolean }) {
  const text = interval(low, high, sign);
  return text ? <span class="ci">{text}</span> : null;
}

/** One-line plot of mean and interval on [from, to]. A dashed line marks the reference. */
export function Strip(p: { mean?: number | null; low?: number | null; high?: number | null; base?: number | null; from: number; to: number }) {
  if (p.mean === null || p.mean === undefined || p.to <= p.from) return null;
  const x = (v: number) => 4 + (136 * (Math.min(Math.max(v, p.from), p.to) - p.from)) / (p.to - p.from);
  return (
    <svg class="strip" viewBox="0 0 144 14" aria-hidden="true">
      {p.base !== null && p.base !== undefined && <line class="base" x1={x(p.base)} x2={x(p.base)} y1="0" y2="14" />}
      {p.low !== null && p.low !== undefined && p.high !== null && p.high !== undefined && (
        <line x1={x(p.low)} x2={x(p.high)} y1="7" y2="7" />
      )}
      <circle cx={x(p.mean)} cy="7" r="3.5" />
    </svg>
  );
}

/** Parameter value: short ones as code, long ones folded and starting where they differ from another. */
export function Value({ value, other }: { value: unknown; other?: unknown }) {
  const text = typeof value === "string" ? value : value === null || value === undefined ? "–" : JSON.stringify(value);
  if (text.length <= 80 && !text.includes("\n")) return <code><One text={text} /></code>;
  return (
    <details>
      <summary><One text={since(text, other)} max={70} /></summary>
      <Texts text={text} label="Value" />
    </details>
  );
}
