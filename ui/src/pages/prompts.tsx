/* Prompts: family tree of a text parameter, with each child's diff and effect. */
import { useState } from "preact/hooks";
import { useData } from "../api";
import { Diff } from "../diff";
import { Card, Empty, Show } from "../parts";
import { Link, setQuery, to } from "../router";
import { count, Interval, One, plural, reward, since, Strip, Texts } from "../text";
import type { Prompts as Data } from "../types";
import { Tabs } from "./tabs";

type Node = Data["nodes"][number];

export function Prompts({ run, query }: { run: string; query: URLSearchParams }) {
  const loaded = useData<Data>(`runs/${encodeURIComponent(run)}/prompts`, { parameter: query.get("parameter") }, run);
  document.title = "Prompts · The Convergence";
  return (
    <>
      <h1>Prompts</h1>
      <Tabs run={run} at="prompts" />
      <Show of={loaded} empty={(d) => !d.parameters.length && <Empty command="convergence init prompt --template prompt">This page shows how prompts were rewritten. This run varies no prompt.</Empty>}>
        {(d) => (
          <>
            {d.parameters.length > 1 && (
              <div class="toolbar">
                <label class="field">Parameter
                  <select value={d.parameter ?? ""} onChange={(event) => setQuery({ parameter: event.currentTarget.value })}>
                    {d.parameters.map((name) => <option key={name}>{name}</option>)}
                  </select>
                </label>
              </div>
            )}
            <p class="lead">{plural(d.nodes.length, "prompt")} for <code><One text={d.parameter} /></code>. Each stands below its parent.</p>
            <Card title="Family tree"><Tree of={d.nodes} run={run} /></Card>
          </>
        )}
      </Show>
    </>
  );
}

function Tree({ of, run }: { of: Node[]; run: string }) {
  const known = new Map(of.map((node) => [node.id, node]));
  const children = new Map<string, Node[]>();
  const roots: Node[] = [];
  for (const node of of) {
    const parent = node.parents.find((id) => known.has(id) && id !== node.id);
    if (parent) children.set(parent, [...(children.get(parent) ?? []), node]);
    else roots.push(node);
  }
  const values = of.flatMap((n) => [n.low, n.high]).filter((x): x is number => typeof x === "number");
  const range = [Math.min(...values), Math.max(...values)] as const;
  const seen = new Set<string>();
  const draw = (node: Node, parent: Node | undefined, depth: number) => {
    if (seen.has(node.id)) return null;
    seen.add(node.id);
    const below = children.get(node.id) ?? [];
    return (
      <li key={node.id}>
        <One_ node={node} parent={parent} range={range} run={run} />
        {below.length > 0 && <ul>{below.map((child) => draw(child, node, depth + 1))}</ul>}
      </li>
    );
  };
  return <ul class="tree">{roots.map((node) => draw(node, undefined, 0))}</ul>;
}

function One_({ node, parent, range, run }: { node: Node; parent?: Node; range: readonly [number, number]; run: string }) {
  const [open, setOpen] = useState(true);
  return (
    <div class="node">
      <div class="row">
        <button aria-expanded={open} onClick={() => setOpen(!open)}><One text={`${node.number ?? ""} ${since(node.text, parent?.text)}`.trim()} max={70} /></button>
        {node.tags.map((tag) => <span class="tag good" key={tag}>{tag}</span>)}
        <span class="small">{reward(node.mean)} <Interval low={node.low} high={node.high} /></span>
        <Strip mean={node.mean} low={node.low} high={node.high} base={parent?.mean} from={range[0]} to={range[1]} />
        {node.effect && node.effect.mean !== null && <span class="small">{node.effect.text.startsWith("no ") ? "" : "effect "}{node.effect.text} ({plural(node.effect.n_shared, "search case")})</span>}
        <span class="small muted">{node.operator ?? node.origin}, generation {count(node.generation)}, {plural(node.candidate_ids.length, "configuration")}</span>
      </div>
      {open && (
        <div>
          {node.failures.length > 0 && <p class="small">Written from failures: {node.failures.map((c, i) => <>{i > 0 && ", "}<Link href={`${to("runs", run, "answers")}?search=${encodeURIComponent(c.case_id)}`}><One text={c.name} max={40} /></Link></>)}</p>}
          {node.reason && <p class="small muted"><One text={node.reason} max={800} /></p>}
          {parent ? <Diff before={parent.text} after={node.text} label="Difference from the prompt above" /> : <Texts text={node.text} label="Text" />}
          {node.candidate_ids[0] && <p class="small"><Link href={`${to("runs", run, "answers")}?candidate=${encodeURIComponent(node.candidate_ids[0])}`}>Answers with this prompt</Link></p>}
        </div>
      )}
    </div>
  );
}
