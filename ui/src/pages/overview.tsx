/* Overview: systems, their champions, their runs, and what needs a person. */
import { useData } from "../api";
import { Card, Empty, Show, Status, Table, type Column } from "../parts";
import { Link, to } from "../router";
import { count, Interval, One, plural, reward, Sentence, Strip, Time, usd } from "../text";
import type { Overview as Data, RunRow } from "../types";

export function Spent({ run }: { run: RunRow }) {
  const share = run.max_usd ? (run.spent_usd ?? 0) / run.max_usd : run.max_calls ? (run.n_calls ?? 0) / run.max_calls : null;
  const text = run.max_usd
    ? `${usd(run.spent_usd)} of ${usd(run.max_usd)}`
    : run.max_calls ? `${count(run.n_calls)} of ${plural(run.max_calls, "call")}` : run.spent_usd === null ? plural(run.n_calls ?? 0, "call") : usd(run.spent_usd);
  return (
    <>
      {text}
      {share !== null && <div class="bar" role="img" aria-label={`${Math.round(share * 100)} % of the budget`}><i style={{ width: `${Math.min(100, share * 100)}%` }} /></div>}
    </>
  );
}

function columns(rows: RunRow[]): Column<RunRow>[] {
  const values = rows.flatMap((r) => [r.best?.low, r.best?.high, r.best?.mean]).filter((x): x is number => typeof x === "number");
  const [from, until] = [Math.min(...values), Math.max(...values)];
  return [
    { key: "run", title: "Run", by: (r) => r.label, show: (r) => <><Link href={to("runs", r.run_id)}><One text={r.label} max={60} /></Link> <Link class="small" href={to("runs", r.run_id, "answers")}>Answers</Link></> },
    {
      key: "best", title: "Reward, with its interval", by: (r) => r.best?.mean,
      show: (r) => r.best && r.best.mean !== null ? (
        <><span>{reward(r.best.mean)}</span> <Interval {...r.best} /><Strip {...r.best} from={from} to={until} />{r.best_on && <span class="small muted">on {r.best_on}</span>}</>
      ) : <span class="muted">–</span>,
    },
    { key: "name", title: "Configuration", show: (r) => <code><One text={r.best_name} max={60} /></code> },
    { key: "status", title: "Status", by: (r) => r.status, show: (r) => <Status status={r.status} /> },
    { key: "spent", title: "Spent", by: (r) => r.spent_usd, show: (r) => <Spent run={r} /> },
    { key: "generations", title: "Generations", n: true, by: (r) => r.n_generations, show: (r) => count(r.n_generations) },
    { key: "started", title: "Started", by: (r) => r.started_at, show: (r) => <Time at={r.started_at} /> },
  ];
}

export function Overview() {
  const loaded = useData<Data>("overview");
  document.title = "Overview · The Convergence";
  return (
    <>
      <h1>Overview</h1>
      <Show
        of={loaded}
        empty={(d) => !d.runs.length && !d.systems.length && (
          <Empty command={d.next_command}>This page lists runs, systems and what needs you. This store holds no run yet.</Empty>
        )}
      >
        {(d) => (
          <>
            <p class="lead">{plural(d.runs.length, "run")} of {plural(d.systems.length, "system")} in <code><One text={d.store} /></code></p>
            {d.needs.length > 0 && (
              <Card title="Needs your attention">
                <ul>
                  {d.needs.map((need, i) => (
                    <li key={i}>
                      {need.run_id ? <Link href={to("runs", need.run_id)}><Sentence text={need.sentence} /></Link>
                      : need.system ? <Link href={to("production", need.system)}><Sentence text={need.sentence} /></Link>
                      : need.kind === "review" ? <Link href={to("review")}><Sentence text={need.sentence} /></Link>
                      : <Sentence text={need.sentence} />}
                      {need.command && <> <code><One text={need.command} max={300} /></code></>}
                    </li>
                  ))}
                </ul>
              </Card>
            )}
            <div class="figures">
              {d.systems.map((s) => (
                <div class="figure" key={s.system}>
                  <b><One text={s.system} max={40} /></b>
                  <span>{plural(s.n_runs, "run")}</span>
                  <span>{s.champion ? <>Champion <code><One text={s.champion.name} max={80} /></code></> : "No champion yet: the defaults are in production"}</span>
                  {s.in_production && <span><Link href={to("production", s.system)}>In production</Link></span>}
                </div>
              ))}
            </div>
            <Card title="Runs">
              <Table columns={columns(d.runs)} rows={d.runs} label="Runs" rowKey={(r) => r.run_id} />
            </Card>
          </>
        )}
      </Show>
    </>
  );
}
