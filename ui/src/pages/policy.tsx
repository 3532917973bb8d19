/* Policy: which policy of prompt changes serves and why, what each earned against evaluations, what it did, refusals. */
import { useData } from "../api";
import { Chart, type Colours } from "../chart";
import { Card, Empty, Show, Table } from "../parts";
import { Link, to } from "../router";
import { count, evidence, interval, One, signed, Strip } from "../text";
import type { PolicyName, PolicyOf, PolicySystems } from "../types";

const NAMES: Record<PolicyName, string> = { ppo: "PPO", bandit: "bandit", sequence: "fixed sequence" };

export function Policy({ system }: { system: string | undefined }) {
  const list = useData<PolicySystems>("policy");
  document.title = "Policy · The Convergence";
  const shown = (d: PolicySystems) => system ?? d.systems[0]!;
  return (
    <>
      <h1>Policy of prompt changes</h1>
      <Show of={list} empty={(d) => !d.systems.length && <Empty command={d.commands[0]}>This page shows how the policy that edits prompts learns. No training round was played yet.</Empty>}>
        {(d) => (
          <>
            <nav class="tabs" aria-label="Systems">
              {d.systems.map((s) => <Link key={s} href={to("policy", s)} current={shown(d) === s}><One text={s} max={60} /></Link>)}
            </nav>
            <System key={shown(d)} system={shown(d)} />
          </>
        )}
      </Show>
    </>
  );
}

function System({ system }: { system: string }) {
  const loaded = useData<PolicyOf>(`policy/${encodeURIComponent(system)}`);
  return (
    <Show of={loaded}>
      {(d) => (
        <>
          <div class="verdict">{d.sentences.map((s, i) => <p key={i}><One text={s} max={1_000} /></p>)}</div>
          <Card title="Gate" note="The policy learned by PPO serves where both decisions are promote. Differences of an episode's reward, with a 95 % interval that holds at any look.">
            {d.verdicts.length === 0 ? <p class="muted">It has not looked yet.</p> : (
              <Table
                label="Verdicts" rows={d.verdicts} rowKey={(v) => v.baseline}
                columns={[
                  { key: "b", title: "Beside", show: (v) => NAMES[v.baseline] },
                  { key: "d", title: "Decision", show: (v) => <span class={`tag ${v.decision === "promote" ? "good" : ""}`}>{v.decision}</span> },
                  { key: "n", title: "Episodes", n: true, show: (v) => count(v.n) },
                  { key: "m", title: "PPO less baseline", show: (v) => <>{signed(v.mean)} <span class="ci">{interval(v.low, v.high, true)}</span><Strip mean={v.mean} low={v.low} high={v.high} base={0} from={-1} to={1} /></> },
                  { key: "e", title: "Evidence", show: (v) => evidence(v.log_e, v.log_threshold) },
                ]}
              />
            )}
          </Card>
          <Curve of={d} />
          <Card title="Actions by category" note="The category of a prompt is the text parameter that it is a text of. Shares are of all actions of the policy on that category.">
            <Table
              label="Actions by category" rows={d.shares} rowKey={(s) => `${s.category} ${s.policy} ${s.action}`}
              columns={[
                { key: "c", title: "Category", by: (s) => s.category, show: (s) => <code><One text={s.category} /></code> },
                { key: "p", title: "Policy", by: (s) => s.policy, show: (s) => NAMES[s.policy] },
                { key: "a", title: "Action", by: (s) => s.action, show: (s) => <code>{s.action}</code> },
                { key: "n", title: "Times", n: true, by: (s) => s.n, show: (s) => count(s.n) },
                { key: "s", title: "Share", n: true, by: (s) => s.share, show: (s) => `${(100 * s.share).toFixed(1)} %` },
              ]}
            />
          </Card>
          <Card title="Refused texts" note="Texts that were written and break a rule: they are not scored, and the prompt stays as it is.">
            {d.refused.length === 0 ? <p class="muted">No written text was refused.</p> : (
              <Table
                label="Refused texts" rows={d.refused} rowKey={(r) => `${r.action} ${r.verdict}`}
                columns={[
                  { key: "a", title: "Action", by: (r) => r.action, show: (r) => <code>{r.action}</code> },
                  { key: "v", title: "Reason", by: (r) => r.verdict, show: (r) => <One text={r.verdict.replaceAll("_", " ")} /> },
                  { key: "n", title: "Refused", n: true, by: (r) => r.n, show: (r) => count(r.n) },
                  { key: "w", title: "Written", n: true, by: (r) => r.n_written, show: (r) => count(r.n_written) },
                ]}
              />
            )}
          </Card>
        </>
      )}
    </Show>
  );
}

function Curve({ of }: { of: PolicyOf }) {
  const names = (Object.keys(NAMES) as PolicyName[]).filter((name) => of.curve.some((p) => p.policy === name));
  const option = (c: Colours) => ({
    tooltip: { trigger: "axis", valueFormatter: (v: number) => signed(v) },
    legend: { data: names.map((name) => NAMES[name]), textStyle: { color: c.muted } },
    xAxis: { type: "value", name: "evaluations", nameLocation: "middle", nameGap: 24, min: 0, splitLine: { show: false } },
    yAxis: { type: "value", scale: true, name: "mean reward" },
    series: names.flatMap((name, at) => {
      const own = of.curve.filter((p) => p.policy === name);
      const line = (what: "mean" | "low" | "high") => own.map((p) => [p.n_evaluations, p[what]]);
      return [
        { name: NAMES[name], type: "line", color: c.series[at], symbolSize: 5, data: line("mean") },
        ...(["low", "high"] as const).map((end) => ({ name: `${NAMES[name]}, ${end}`, type: "line", color: c.series[at], symbol: "none", lineStyle: { width: 1, type: "dotted" }, data: line(end) })),
      ];
    }),
  });
  return (
    <Card title="Mean reward against evaluations" note="Of each policy's episodes so far, with its 95 % interval (t, over episodes). All began with the same prompts and cases.">
      {of.curve.length === 0 ? <p class="muted">No episode was played.</p> : (
        <Chart
          name="policy" height={280} label="Mean reward of each policy against evaluations" data={of} option={option}
          rows={() => [["policy", "n_evaluations", "n_episodes", "mean", "low", "high"], ...of.curve.map((p) => [p.policy, p.n_evaluations, p.n_episodes, p.mean, p.low, p.high])]}
        />
      )}
    </Card>
  );
}
