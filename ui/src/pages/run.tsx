/* Run: result, search history and cost. */
import { useState } from "preact/hooks";
import { useData } from "../api";
import { sectionTitles, Sections, WhyNot, type BlockPage } from "../blocks";
import { anchor, Card, Empty, Show, Table, type Column } from "../parts";
import { Link, setQuery, to } from "../router";
import { count, Interval, One, reward, Strip } from "../text";
import type { Allocation, Candidate, Leaderboard } from "../types";
import { AllocationMap } from "./allocation";
import { ParallelChart, SliceCharts } from "./run_charts";
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

export function Run({ run }: { run: string }) {
  const base = `runs/${encodeURIComponent(run)}`;
  const loaded = useData<BlockPage>(base, {}, run);
  const leaderboard = useData<Leaderboard>(`${base}/leaderboard`, {}, run);
  const allocation = useData<Allocation>(`${base}/allocation`, {}, run);
  const [picked, setPicked] = useState<string[]>([]);
  const pick = (id: string) => setPicked((old) => (old.includes(id) ? old.filter((one) => one !== id) : [...old.slice(-1), id]));
  const open = (id: string) => setQueryAnswers(run, id, null);
  document.title = `${loaded.data?.title ?? "Run"} · The Convergence`;
  return (
    <>
      <h1><One text={loaded.data?.title ?? run} max={120} /></h1>
      <Tabs run={run} at="" />
      <Show of={loaded}>
        {(d) => (
          <>
            <WhyNot of={d.blocks} />
            <Sections of={d.blocks} to={1} />
            <nav class="contents small" aria-label="Sections">
              {sectionTitles(d.blocks).map((title) => <a key={title} href={`#${anchor(title)}`}>{title}</a>)}
            </nav>
            <Sections of={d.blocks} from={1} to={2} open={open} />
          </>
        )}
      </Show>
      {leaderboard.data && leaderboard.data.rows.length > 0 && (
        <Card title="Leaderboard" note={leaderboard.data.note}>
          <div class="row" style={{ marginBottom: ".6rem" }}>
            {picked.length === 2
              ? <Link class="button" href={`${to("runs", run, "compare")}?a=${encodeURIComponent(picked[0]!)}&b=${encodeURIComponent(picked[1]!)}`}>Compare the two</Link>
              : <span class="muted small">Choose two to compare them.</span>}
            <a class="button" href={`/ui/api/${base}/table.csv?of=leaderboard`} download>CSV</a>
          </div>
          <Table columns={candidateColumns(run, leaderboard.data.rows, picked, pick)} rows={leaderboard.data.rows} label="Leaderboard" tall rowKey={(r) => r.candidate_id} />
        </Card>
      )}
      <div class="section" />
      {allocation.data && allocation.data.candidates.length > 0 && allocation.data.cases.length > 0 && (
        <Card title="Evaluations per configuration"><AllocationMap of={allocation.data} open={(candidate, one) => setQueryAnswers(run, candidate, one)} /></Card>
      )}
      {leaderboard.data && leaderboard.data.rows.length > 1 && leaderboard.data.parameters.length > 0 && (
        <>
          <Card title="Parallel coordinates" note="One line is one configuration. Drag along an axis to choose a range; drag it again to move it.">
            <ParallelChart of={leaderboard.data} />
          </Card>
          <Card title="Slices" note="Each point is one configuration: its value of one parameter, and its reward with the interval.">
            <SliceCharts of={leaderboard.data} open={open} />
          </Card>
        </>
      )}
      {loaded.data && <Sections of={loaded.data.blocks} from={2} open={open} />}
      {leaderboard.data && !leaderboard.data.rows.length && <Empty>No generation is finished yet. Configurations and scores appear here automatically.</Empty>}
    </>
  );
}

function setQueryAnswers(run: string, candidate: string, one: string | null): void {
  history.pushState(null, "", to("runs", run, "answers"));
  setQuery({ candidate, case: one, open: one ? "1" : null });
}
