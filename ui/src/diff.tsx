/* Diff of two texts by words or by lines. */
import { diffLines, diffWordsWithSpace } from "diff";
import { useMemo } from "preact/hooks";
import { visible } from "./text";

const LONG = 40_000; // characters; longer texts are compared by lines

export function Diff({ before, after, label, only }: { before: string; after: string; label: string; only?: boolean }) { // only: show only the later text and its insertions
  const parts = useMemo(() => {
    const [a, b] = [before.slice(0, 200_000), after.slice(0, 200_000)];
    const options = { timeout: 400 };
    const found = a.length + b.length < LONG ? diffWordsWithSpace(a, b, options) : diffLines(a, b, options);
    return found ?? [{ value: a, removed: true, added: false }, { value: b, added: true, removed: false }];
  }, [before, after]);
  if (before === after && !only) return <p class="muted small">Both texts are the same.</p>;
  return (
    <div class="texts" tabIndex={0} role="region" aria-label={label}>
      <div class="diff" dir="auto">
        {parts.map((part, i) =>
          part.added ? <ins key={i}>{visible(part.value)}</ins>
          : part.removed ? (only ? null : <del key={i}>{visible(part.value)}</del>)
          : <span key={i}>{visible(part.value)}</span>)}
      </div>
    </div>
  );
}
