/* One cell: sent prompt, answer, metrics, judge's reasons, cost and attempts, or a diff against another cell. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useData } from "../api";
import { Diff } from "../diff";
import { Drawer, Figure, Show, Status } from "../parts";
import { setQuery } from "../router";
import { count, marked, ms, One, plural, reward, Texts, three, Time, usd, Value } from "../text";
import type { Answers, CellDetail } from "../types";

type Repeat = CellDetail["repeats"][number];

interface Props {
  run: string; one: string; candidate: string; against: string | null; columns: Map<number, Answers["candidates"][number]>;
  step: (dr: number, dc: number) => void; close: () => void;
}

export function CellDrawer(p: Props) {
  const path = `runs/${encodeURIComponent(p.run)}/cell`;
  const loaded = useData<CellDetail>(path, { candidate: p.candidate, case: p.one }, p.run);
  const other = useData<CellDetail>(p.against ? path : null, { candidate: p.against, case: p.one }, p.run);
  const step = useRef(p.step);
  step.current = p.step;
  // Runs in the layout phase: an effect would lose keys pressed after the first paint.
  useLayoutEffect(() => {
    const key = (event: KeyboardEvent) => {
      const at = event.target;
      if (event.metaKey || event.ctrlKey || event.altKey || (at instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName))) return;
      const steps: Record<string, [number, number]> = { j: [1, 0], k: [-1, 0], l: [0, 1], h: [0, -1] };
      const found = steps[event.key];
      if (found) step.current(...found);
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const tools = (
    <span class="group">
      <button aria-label="Previous case" title="k" onClick={() => p.step(-1, 0)}>↑</button>
      <button aria-label="Next case" title="j" onClick={() => p.step(1, 0)}>↓</button>
      <button aria-label="Previous configuration" title="h" onClick={() => p.step(0, -1)}>←</button>
      <button aria-label="Next configuration" title="l" onClick={() => p.step(0, 1)}>→</button>
    </span>
  );
  return (
    <Drawer title={<>Case <code><One text={p.one} max={60} /></code></>} close={p.close} tools={tools}>
      <Show of={loaded}>
        {(d) => (
          <>
            <p><code><One text={d.candidate.name} max={120} /></code> <span class="tag">{d.kind}</span></p>
            <label class="field">Compare with
              <select value={p.against ?? ""} onChange={(event) => setQuery({ against: event.currentTarget.value || null })}>
                <option value="">none</option>
                {[...p.columns.values()].slice(0, 200).filter((c) => c.candidate_id !== p.candidate).map((c) => (
                  <option key={c.candidate_id} value={c.candidate_id}>{marked(c.name.slice(0, 90))} · {reward(c.mean)}</option>
                ))}
              </select>
            </label>
            <h3>Case</h3>
            <Texts text={d.input} label="Input of the case" />
            {d.expected !== null && <><h3>Expected</h3><Texts text={d.expected} label="Expected" /></>}
            {p.against && other.error && <p class="muted small">The other configuration did not run on this case.</p>}
            <Repeats of={d} other={other.error ? undefined : other.data} />
            <details>
              <summary>Parameters of the configuration</summary>
              <dl class="params">
                {Object.entries(d.candidate.params).map(([name, value]) => [<dt key={name}><One text={name} /></dt>, <dd><Value value={value} /></dd>])}
              </dl>
            </details>
          </>
        )}
      </Show>
    </Drawer>
  );
}

function Repeats({ of, other }: { of: CellDetail; other?: CellDetail }) {
  const [at, setAt] = useState(0);
  const one = of.repeats[Math.min(at, of.repeats.length - 1)];
  const beside = other?.repeats[Math.min(at, other.repeats.length - 1)];
  if (!one) return <p class="empty">This configuration did not run on this case.</p>;
  return (
    <>
      {of.repeats.length > 1 && (
        <p class="group" role="group" aria-label="Repeats">
          {of.repeats.map((r, i) => <button key={r.eval_id} aria-pressed={i === at} onClick={() => setAt(i)}>{i + 1}: {reward(r.reward)}</button>)}
        </p>
      )}
      <Evaluation of={one} />
      {beside && other && (
        <>
          <h3>Compared with <code><One text={other.candidate.name} max={70} /></code>: reward {reward(beside.reward)} there, {reward(one.reward)} here</h3>
          <Diff before={beside.answer ?? ""} after={one.answer ?? ""} label="Difference of the answers" />
          <h3>Prompts compared</h3>
          <Diff before={written(beside.prompt)} after={written(one.prompt)} label="Difference of the prompts" />
        </>
      )}
    </>
  );
}

interface Message { role: string; content: string }

/** Messages of a sent chat request; null if it is not a chat or was truncated. */
function messagesOf(prompt: string | null): Message[] | null {
  if (!prompt?.startsWith("{")) return null;
  try {
    const request = JSON.parse(prompt) as { body?: { messages?: unknown }; messages?: unknown };
    const found = request.body?.messages ?? request.messages;
    if (!Array.isArray(found) || !found.length) return null;
    return found.map((one: { role?: unknown; content?: unknown }) => ({
      role: String(one.role ?? ""), content: typeof one.content === "string" ? one.content : JSON.stringify(one.content ?? one, null, 1),
    }));
  } catch {
    return null;
  }
}

const written = (prompt: string | null): string => messagesOf(prompt)?.map((m) => `${m.role}: ${m.content}`).join("\n\n") ?? prompt ?? "";

function Prompt({ of }: { of: Repeat }) {
  const whole = of.prompt_url ? `/ui/api/${of.prompt_url}` : undefined;
  const messages = messagesOf(of.prompt);
  if (!messages) return <Texts text={of.prompt} label="Prompt as sent" whole={whole} />;
  return (
    <>
      {messages.map((m, i) => (
        <div key={i} class="message">
          <p class="small muted"><One text={m.role} /></p>
          <Texts text={m.content} label={`Message ${i + 1} of the prompt`} />
        </div>
      ))}
      <details class="small"><summary>The whole request</summary><Texts text={of.prompt} label="The whole request" whole={whole} /></details>
    </>
  );
}

function Evaluation({ of }: { of: Repeat }) {
  return (
    <>
      <div class="figures">
        <Figure value={of.reward === null ? "missing" : reward(of.reward)}>reward <Status status={of.status} /></Figure>
        <Figure value={ms(of.latency_ms)}>latency{of.cached && ", of the original call"}</Figure>
        <Figure value={usd(of.cost_usd)}>{of.cached ? "answered from the journal" : "paid"}</Figure>
        <Figure value={`${count(of.tokens_in)} / ${count(of.tokens_out)}`}>tokens in / out</Figure>
      </div>
      {of.error && <div class="notice bad"><b>{of.fault ? `Fault of the ${of.fault}` : "Error"}</b><div class="text" dir="auto"><One text={of.error} max={4_000} /></div></div>}
      <h3>Answer</h3>
      <Texts text={of.answer} label="Answer" whole={of.answer_url ? `/ui/api/${of.answer_url}` : undefined} />
      {of.thinking && <details class="small"><summary>Thinking before the answer, not scored</summary><Texts text={of.thinking} label="Thinking" whole={of.thinking_url ? `/ui/api/${of.thinking_url}` : undefined} /></details>}
      {of.recording_url?.startsWith("https://") && <p class="small"><a href={of.recording_url} rel="noopener noreferrer">Recording of the session</a></p>}
      {of.metrics.length > 0 && (
        <dl class="params">
          {of.metrics.map((m) => [<dt key={m.name}><One text={m.name} /></dt>, <dd>{m.value === null ? "–" : three(m.value)} {m.unit}</dd>])}
        </dl>
      )}
      {of.judgements.length > 0 && (
        <>
          <h3>Judge's reasons</h3>
          {of.judgements.map((j, i) => (
            <div key={i}>
              <p class="small muted"><One text={j.metric} /> {j.order && <>· <One text={j.order} /></>} {j.value !== null && <>· {three(j.value)}</>}</p>
              <Texts text={j.reason} label={`Reason of ${j.metric}`} />
            </div>
          ))}
        </>
      )}
      <h3>Prompt as sent</h3>
      <Prompt of={of} />
      <h3>{plural(of.attempts.length, "attempt")}</h3>
      {of.attempts.length > 0 && (
        <div class="overflow" tabIndex={0} role="region" aria-label="Attempts">
          <table>
            <thead><tr><th scope="col">Attempt</th><th scope="col">Purpose</th><th scope="col">State</th><th scope="col">Model</th><th scope="col" class="n">Took</th><th scope="col" class="n">USD</th><th scope="col">Started</th></tr></thead>
            <tbody>
              {of.attempts.map((a, i) => (
                <tr key={i}>
                  <td>{a.attempt}</td><td>{a.purpose}</td><td>{a.state}{a.error_type && <> · <One text={a.error_type} /></>}</td><td><One text={a.model} /></td>
                  <td class="n">{ms(a.ms)}</td><td class="n">{usd(a.cost_usd)}</td><td><Time at={a.started_at} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
