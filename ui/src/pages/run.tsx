/* Run: what was found, how the search came there, what it paid. */
import { useState } from "preact/hooks";
import { useData, type Loaded } from "../api";
import { Card, Empty, Figure, Show, Status, Table, type Column } from "../parts";
import { Link, setQuery, to } from "../router";
import { count, Interval, One, plural, reward, seconds, Sentence, signed, Strip, Texts, Time, usd, Value } from "../text";
import type { Allocation, Candidate, Curve, Effects, Front, Leaderboard, Preferences, Run as Data, Spend, Thoughts } from "../types";
import { Write } from "../write";
import { AllocationMap } from "./allocation";
import { EffectCharts, FrontChart, LearningCurve, ParallelChart, SliceCharts, SpendChart } from "./run_charts";
import { Spent } from "./overview";
import { Tabs } from "./tabs";

function candidateColumns(run: string, rows: Candidate[], picked: string[], pick: (id: string) => void): Column<Candidate>[] {
  const values = rows.flatMap((r) => [r.low, r.high]).filter((x): x is number => typeof x === "number");
  const [from, until] = [Math.min(...values), Math.max(...values)];
  const base = rows.find((r) => r.tags.some((tag) => tag.startsWith("default")))?.mean;
  const metrics = [...new Set(rows.flatMap((r) => Object.keys(r.metrics)))].slice(0, 4);
  return [
    {
      key: "pick", title: "Compare",
      show: (r) => <input type="checkbox" aria-label={`Compare ${r.name}`} checked={picked.includes(r.candidate_id)} onChange={() => pick(r.candidate_id)} />,
    },
    { key: "rank", title: "Rank", n: true, by: (r) => r.rank, show: (r) => count(r.rank) },
    {
      key: "name", title: "Configuration", by: (r) => r.name,
      show: (r) => (
        <>
          <Link href={`${to("runs", run, "answers")}?candidate=${encodeURIComponent(r.candidate_id)}`}><code><One text={r.name} max={90} /></code></Link>
          {r.tags.map((tag) => <> <span class="tag good" key={tag}>{tag}</span></>)}
        </>
      ),
    },
    {
      key: "mean", title: "Reward, with its interval", by: (r) => r.mean,
      show: (r) => <>{reward(r.mean)} <Interval low={r.low} high={r.high} /><Strip mean={r.mean} low={r.low} high={r.high} base={base} from={from} to={until} /></>,
    },
    { key: "cells", title: "Evaluations", n: true, by: (r) => r.n_cells, show: (r) => count(r.n_cells) },
    { key: "failed", title: "Failed", n: true, by: (r) => r.n_failed, show: (r) => count(r.n_failed) },
    ...metrics.map((name): Column<Candidate> => ({
      key: `m-${name}`, title: name, n: true, by: (r) => r.metrics[name],
      show: (r) => { const x = r.metrics[name]; return x === null || x === undefined ? "–" : Math.abs(x) >= 100 ? count(x) : x.toPrecision(3); },
    })),
    { key: "origin", title: "Origin", by: (r) => r.origin, show: (r) => r.origin },
    { key: "generation", title: "Generation", n: true, by: (r) => r.generation, show: (r) => count(r.generation) },
  ];
}

function Part<T>({ of, title, note, children, has }: { of: Loaded<T>; title: string; note?: (d: T) => string | null | undefined; has: (d: T) => boolean; children: (d: T) => preact.ComponentChildren }) {
  if (of.data === undefined || !has(of.data)) return null;
  return <Card title={title} note={note?.(of.data)}>{children(of.data)}</Card>;
}

function Sentences({ of }: { of: string[] }) {
  return <>{of.map((sentence, i) => <p key={i}><Sentence text={sentence} /></p>)}</>;
}

export function Run({ run }: { run: string; query: URLSearchParams }) {
  const base = `runs/${encodeURIComponent(run)}`;
  const loaded = useData<Data>(base, {}, run);
  const curve = useData<Curve>(`${base}/curve`, {}, run);
  const leaderboard = useData<Leaderboard>(`${base}/leaderboard`, {}, run);
  const allocation = useData<Allocation>(`${base}/allocation`, {}, run);
  const effects = useData<Effects>(`${base}/effects`, {}, run);
  const front = useData<Front>(`${base}/front`, {}, run);
  const spend = useData<Spend>(`${base}/spend`, {}, run);
  const thoughts = useData<Thoughts>(`${base}/thoughts`, {}, run);
  const preferences = useData<Preferences>(`${base}/preferences`, {}, run);
  const [picked, setPicked] = useState<string[]>([]);
  const pick = (id: string) => setPicked((old) => (old.includes(id) ? old.filter((one) => one !== id) : [...old.slice(-1), id]));
  document.title = `${loaded.data?.label ?? "Run"} · The Convergence`;
  return (
    <>
      <h1><One text={loaded.data?.label ?? run} max={120} /></h1>
      <Tabs run={run} at="" />
      <Show of={loaded}>
        {(d) => (
          <>
            <p class="lead row">
              <Status status={d.status} /> <span><One text={d.system} /></span>
              <span>began <Time at={d.started_at} /></span>
              {d.ended_at && <span>ended <Time at={d.ended_at} /></span>}
              <Write
                name={d.status === "running" ? "Stop" : "Resume"} path={`${base}/${d.status === "running" ? "stop" : "resume"}`}
                confirm={d.label} hidden={!["running", "stopped", "interrupted", "failed"].includes(d.status)}
                ask={d.status === "running"
                  ? "The run ends after the evaluations under way; what is known so far is kept, and it can be resumed."
                  : "The run goes on where it ended, within what is left of its budget."}
                done={loaded.again}
              />
            </p>
            {(d.verdict || d.next_step) && (
              <div class="verdict">
                {d.verdict && <p><Sentence text={d.verdict} /></p>}
                {d.next_step && <p class="muted"><Sentence text={d.next_step} /></p>}
                {d.command && <p><code><One text={d.command} max={600} /></code></p>}
              </div>
            )}
            {d.sentences.length > 0 && <details class="more"><summary>How this was judged</summary><Sentences of={d.sentences} /></details>}
            {d.progress && d.status === "running" && (
              <Card title="Progress">
                <p>
                  {d.progress.sentence ? <One text={d.progress.sentence} max={600} /> : (
                    <>Generation {count(d.progress.generation)}{d.progress.max_generations ? ` of ${count(d.progress.max_generations)}` : ""}</>
                  )}
                  {" "}{d.progress.n_planned ? `${count(d.progress.n_settled)} of ${count(d.progress.n_planned)} evaluations.` : `${plural(d.progress.n_settled, "evaluation")}.`}
                  {d.progress.seconds_left !== null && <> About {seconds(d.progress.seconds_left)} left.</>}
                </p>
                {d.progress.n_planned ? <div class="bar"><i style={{ width: `${Math.min(100, (100 * d.progress.n_settled) / d.progress.n_planned)}%` }} /></div> : null}
              </Card>
            )}
            <div class="figures">
              {d.best && d.best.mean !== null && <Figure value={reward(d.best.mean)}>reward of <One text={d.best_name} max={60} />, <Interval {...d.best} />{d.best_on && `, on ${d.best_on}`}</Figure>}
              <Figure value={<Spent run={d} />}>spent</Figure>
              <Figure value={count(d.n_candidates)}>configurations in {plural(d.n_generations, "generation")}, {plural(d.n_cases, "test case")}</Figure>
              <Figure value={count(d.n_evaluations)}>evaluations, {count(d.n_failed)} failed, {count(d.n_missing)} missing</Figure>
            </div>
            {d.reason && <p class="muted small">Why it ended: <One text={d.reason} max={1_000} /></p>}
          </>
        )}
      </Show>
      <div class="grid">
        <Part of={curve} title="Learning curve" note={(c) => c.note} has={(c) => c.points.length > 0}>{(c) => <LearningCurve of={c} />}</Part>
        <Part of={spend} title="Spent" has={(s) => s.rows.length > 0}>
          {(s) => (
            <>
              <Sentences of={s.sentences} />
              {s.by_generation.length > 1 && <SpendChart of={s} />}
              <Table
                label="Spent by purpose" rows={s.rows} rowKey={(_, i) => String(i)}
                columns={[
                  { key: "purpose", title: "Purpose", show: (r) => r.purpose },
                  { key: "model", title: "Model", show: (r) => <One text={r.model ?? r.provider} max={40} /> },
                  { key: "calls", title: "Calls", n: true, by: (r) => r.n_calls, show: (r) => count(r.n_calls) },
                  { key: "failed", title: "Failed", n: true, by: (r) => r.n_failed, show: (r) => count(r.n_failed) },
                  { key: "in", title: "Tokens in", n: true, by: (r) => r.tokens_in, show: (r) => count(r.tokens_in) },
                  { key: "out", title: "Tokens out", n: true, by: (r) => r.tokens_out, show: (r) => count(r.tokens_out) },
                  { key: "usd", title: "USD", n: true, by: (r) => r.cost_usd, show: (r) => usd(r.cost_usd) },
                ]}
              />
            </>
          )}
        </Part>
      </div>
      <Part of={leaderboard} title="Leaderboard" note={(l) => l.note} has={(l) => l.rows.length > 0}>
        {(l) => (
          <>
            <div class="row" style={{ marginBottom: ".6rem" }}>
              {picked.length === 2
                ? <Link class="button" href={`${to("runs", run, "compare")}?a=${encodeURIComponent(picked[0]!)}&b=${encodeURIComponent(picked[1]!)}`}>Compare the two</Link>
                : <span class="muted small">Choose two to compare them.</span>}
              <a class="button" href={`/ui/api/${base}/table.csv?of=leaderboard`} download>CSV</a>
            </div>
            <Table columns={candidateColumns(run, l.rows, picked, pick)} rows={l.rows} label="Leaderboard" tall rowKey={(r) => r.candidate_id} />
          </>
        )}
      </Part>
      <div class="section" />
      <Part of={allocation} title="Who got how many evaluations" has={(a) => a.candidates.length > 0 && a.cases.length > 0}>
        {(a) => <AllocationMap of={a} open={(candidate, one) => setQueryAnswers(run, candidate, one)} />}
      </Part>
      {effects.data && effects.data.effects.length > 0 && (
        <Card title="What the parameters do"><Sentences of={effects.data.sentences} /><EffectCharts of={effects.data} /></Card>
      )}
      {leaderboard.data && leaderboard.data.rows.length > 1 && leaderboard.data.parameters.length > 0 && (
        <>
          <Card title="Parallel coordinates" note="One line is one configuration. Drag along an axis to choose a range; drag it again to move it.">
            <ParallelChart of={leaderboard.data} />
          </Card>
          <Card title="Slices" note="Each point is one configuration: its value of one parameter, and its reward with the interval.">
            <SliceCharts of={leaderboard.data} open={(id) => setQueryAnswers(run, id, null)} />
          </Card>
        </>
      )}
      <Part of={front} title="Front" note={(f) => f.sentence} has={(f) => f.points.length > 0 && f.objectives.length > 1}>
        {(f) => <FrontChart of={f} open={(id) => setQueryAnswers(run, id, null)} />}
      </Part>
      <Part of={thoughts} title="Thoughts" has={(t) => t.rows.length > 0}>
        {(t) => (
          <>
            <Sentences of={t.sentences} />
            <Table
              label="Thoughts" tall rows={t.rows} rowKey={(r) => `${r.generation}-${r.thought_id}`}
              columns={[
                { key: "g", title: "Generation", n: true, by: (r) => r.generation, show: (r) => count(r.generation) },
                { key: "s", title: "Strategy", by: (r) => r.strategy, show: (r) => <One text={r.strategy} /> },
                { key: "t", title: "Thought", show: (r) => r.text ? <details><summary><One text={r.text} max={110} /></summary><Texts text={r.text} label="Thought" /></details> : <span class="muted"><One text={r.reason ?? "no text"} /></span> },
                { key: "gain", title: "Information gain, nats", n: true, by: (r) => r.gain, show: (r) => r.gain === null ? <span class="muted">–</span> : <>{signed(r.gain)} {r.gain_se !== null && <span class="ci">± {r.gain_se.toFixed(3)}</span>}</> },
                { key: "res", title: "Resolution, nats", n: true, by: (r) => r.resolution, show: (r) => signed(r.resolution) },
                { key: "n", title: "Outcomes", n: true, by: (r) => r.n_outcomes, show: (r) => count(r.n_outcomes) },
                { key: "usd", title: "USD", n: true, by: (r) => r.cost_usd, show: (r) => usd(r.cost_usd) },
              ]}
            />
          </>
        )}
      </Part>
      <Part of={preferences} title="Preference rounds" has={(p) => p.rounds.length > 0}>
        {(p) => (
          <>
            <Sentences of={p.sentences} />
            <Table
              label="Preference rounds" rows={p.rounds} rowKey={(r) => String(r.generation)}
              columns={[
                { key: "g", title: "Before generation", n: true, show: (r) => count(r.generation) },
                { key: "p", title: "Prompts", n: true, show: (r) => count(r.n_prompts) },
                { key: "pairs", title: "Preferences", n: true, show: (r) => count(r.n_pairs) },
                { key: "trust", title: "Trust", n: true, show: (r) => reward(r.trust) },
                { key: "s", title: "", show: (r) => <One text={r.sentence} max={400} /> },
              ]}
            />
          </>
        )}
      </Part>
      {leaderboard.data?.rows[0] && <Best row={leaderboard.data.rows[0]} />}
      {leaderboard.data && !leaderboard.data.rows.length && <Empty>No generation is finished yet. Configurations and scores appear here by themselves.</Empty>}
    </>
  );
}

function Best({ row }: { row: Candidate }) {
  return (
    <Card title={<>Values of <One text={row.name} max={80} /></>}>
      <dl class="params">
        {Object.entries(row.params).map(([name, value]) => [<dt key={name}><One text={name} /></dt>, <dd><Value value={value} /></dd>])}
      </dl>
    </Card>
  );
}

function setQueryAnswers(run: string, candidate: string, one: string | null): void {
  history.pushState(null, "", to("runs", run, "answers"));
  setQuery({ candidate, case: one, open: one ? "1" : null });
}
