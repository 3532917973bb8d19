/* Production: the arms of a system, their evidence, alarms and ramps; promote and roll back. */
import { useData } from "../api";
import { Card, Empty, Show, Table } from "../parts";
import { PlotChart, type Plot } from "../plot";
import { Link, to } from "../router";
import { count, evidence, marked, One, plural, reward, Sentence, three, Time } from "../text";
import type { Production as Data, ProductionList, Session } from "../types";
import { Write } from "../write";

export function Production({ system }: { system: string | undefined; query: URLSearchParams }) {
  const list = useData<ProductionList>("production");
  document.title = "Production · The Convergence";
  return (
    <>
      <h1>Production</h1>
      <Show of={list} empty={(d) => !d.systems.length && <Empty command={d.command ?? "convergence serve"}>This page shows which settings are live, their share of the requests and their rewards. Nothing is in production yet.</Empty>}>
        {(d) => (
          <>
            <nav class="tabs" aria-label="Systems">
              {d.systems.map((s) => <Link key={s.system} href={to("production", s.system)} current={(system ?? d.systems[0]?.system) === s.system}><One text={s.system} /></Link>)}
            </nav>
            <System key={system ?? d.systems[0]!.system} system={system ?? d.systems[0]!.system} />
          </>
        )}
      </Show>
    </>
  );
}

function System({ system }: { system: string }) {
  const base = `production/${encodeURIComponent(system)}`;
  const loaded = useData<Data>(base);
  const session = useData<Session>("session", {}, false);
  return (
    <Show of={loaded}>
      {(d) => {
        return (
          <>
            <div class="verdict">
              <p><b><Sentence text={d.live} /></b></p>
              {d.sentences.map((s, i) => <p key={i} class="muted"><Sentence text={s} /></p>)}
            </div>
            {session.data?.why_not && <p class="muted small"><Sentence text={session.data.why_not} /></p>}
            <Card
              title="Arms"
              tools={<Write name="Roll back" hidden={!d.can_roll_back || Boolean(session.data?.why_not)} danger path={`${base}/rollback`} confirm={system} ask="The previous champion answers again from the next decision." done={loaded.again} />}
            >
              {d.arms.length === 0 ? <Empty command="convergence promote">No active arms.</Empty> : (
                <Table
                  label="Arms" rows={d.arms} rowKey={(a) => a.candidate_id}
                  columns={[
                    { key: "name", title: "Configuration", show: (a) => <><span title={marked(a.candidate_id)}><One text={a.name} max={80} /></span>{a.is_champion && <> <span class="tag good">champion</span></>}{a.status && <> <span class="tag">{a.status}</span></>}</> },
                    { key: "share", title: "Share", n: true, by: (a) => a.share, show: (a) => a.share === null ? "–" : `${(100 * a.share).toFixed(1)} %` },
                    { key: "n", title: "Decisions", n: true, by: (a) => a.n_decisions, show: (a) => count(a.n_decisions) },
                    { key: "rewards", title: "Rewards", n: true, by: (a) => a.n, show: (a) => count(a.n) },
                    { key: "mean", title: "Expected reward", by: (a) => a.mean, show: (a) => reward(a.mean) },
                    { key: "e", title: "Evidence", by: (a) => a.log_e, show: (a) => a.log_e === null ? "–" : a.log_threshold === null ? three(Math.exp(a.log_e)) : <>{evidence(a.log_e, a.log_threshold)}{<><div class="bar"><i style={{ width: `${Math.max(0, Math.min(100, (100 * a.log_e) / a.log_threshold))}%` }} /></div></>}</> },
                    { key: "left", title: "Requests left", n: true, by: (a) => a.n_to_verdict, show: (a) => count(a.n_to_verdict) },
                    { key: "v", title: "Verdict", show: (a) => <One text={a.verdict} max={200} /> },
                    { key: "w", title: "", show: (a) => a.is_champion || a.status === "retired" || session.data?.why_not ? null : <Write name="Promote" path={`${base}/promote`} body={{ candidate_id: a.candidate_id }} confirm={system} ask={`From the next decision, ${a.name} is the champion of ${system}. Its share rises step by step; it rolls back if it does worse.`} done={loaded.again} /> },
                  ]}
                />
              )}
            </Card>
            {d.history.length > 1 && <History of={d} />}
            <div class="grid">
              <List title="Alarms" rows={d.drift} none="No alarms." />
              <List title="Ramps" rows={d.guards} none="No promotion is on a ramp." />
              <List title="Promotions" rows={d.promotions} none="No promotions yet." />
            </div>
          </>
        );
      }}
    </Show>
  );
}

function History({ of }: { of: Data }) {
  const plot: Plot = {
    name: "reward", title: "Reward over time", height: 2.3, x: { kind: "time" }, y: {},
    layers: [{ mark: "line", points: of.history.map((h) => ({ x: h.at, y: h.reward, tip: `${three(h.reward)}, ${plural(h.n, "decision")}` })) }],
  };
  return <Card title="Reward"><PlotChart of={plot} /></Card>;
}

function List({ title, rows, none }: { title: string; rows: { sentence: string; at?: string | null }[]; none: string }) {
  return (
    <Card title={title}>
      {rows.length === 0 ? <p class="muted">{none}</p> : (
        <ul>{rows.slice(0, 50).map((r, i) => <li key={i}><Sentence text={r.sentence} /> {r.at && <span class="muted small"><Time at={r.at} /></span>}</li>)}</ul>
      )}
    </Card>
  );
}
