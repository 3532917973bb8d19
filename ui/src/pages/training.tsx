/* Training: the adapters of a role, their checks, rounds, rewards of its answers, raters; activate and roll back. */
import { useState } from "preact/hooks";
import { useData } from "../api";
import { Card, Empty, Show, Status, Table } from "../parts";
import { PlotChart, type Layer, type Plot, type Point } from "../plot";
import { Link, to } from "../router";
import { count, interval, One, plural, seconds, Sentence, signed, Strip, three, Time } from "../text";
import type { Adapter, Measured, RoleTraining, Session, TrainedRoles, TrainingRound } from "../types";
import { Write } from "../write";

export function Training({ role }: { role: string | undefined }) {
  const list = useData<TrainedRoles>("training");
  document.title = "Training · The Convergence";
  const shown = (d: TrainedRoles) => role ?? d.roles[0]!;
  return (
    <>
      <h1>Training</h1>
      <Show of={list} empty={(d) => !d.roles.length && <Begin of={d} />}>
        {(d) => (
          <>
            <nav class="tabs" aria-label="Roles">
              {d.roles.map((r) => <Link key={r} href={to("training", r)} current={shown(d) === r}><One text={r} max={60} /></Link>)}
            </nav>
            <Role key={shown(d)} role={shown(d)} list={d} />
            <Card title="Raters" note="Bias relative to the average rater, from answers with several ratings.">
              {d.sentences.length === 0 ? <p class="muted">No two raters rated the same answer.</p> : (
                <ul>{d.sentences.map((s, i) => <li key={i}><One text={s} max={1_000} /></li>)}</ul>
              )}
            </Card>
          </>
        )}
      </Show>
    </>
  );
}

function Begin({ of }: { of: TrainedRoles }) {
  return (
    <Empty>
      <p>This page shows what models learn from ratings. No answer is rated yet. <Sentence text={of.advice} /></p>
      <ol>{of.commands.map((one) => <li key={one}><code>{one}</code></li>)}</ol>
    </Empty>
  );
}

function Role({ role, list }: { role: string; list: TrainedRoles }) {
  const base = `training/${encodeURIComponent(role)}`;
  const loaded = useData<RoleTraining>(base);
  const session = useData<Session>("session", {}, false);
  return (
    <Show of={loaded}>
      {(d) => (
        <>
          <div class="verdict">{d.sentences.map((s, i) => <p key={i}><One text={s} max={600} /></p>)}</div>
          {session.data?.why_not && <p class="muted small"><Sentence text={session.data.why_not} /></p>}
          <Adapters of={d} list={list} base={base} hidden={Boolean(session.data?.why_not)} done={loaded.again} />
          {d.live_tests.length > 1 && (
            <Card title="Earlier tests on live traffic" note="Blinded: a random assignment decides for each conversation whether the new adapter or the previous one answers.">
              <ul>{d.live_tests.slice(1).map((t, i) => <li key={i}><One text={t.sentence} max={600} /> <span class="muted small"><Time at={t.at} /></span></li>)}</ul>
            </Card>
          )}
          <Course of={d} />
          <AnsweredBy of={d} />
          <Rounds of={d} list={list} />
        </>
      )}
    </Show>
  );
}

function Adapters({ of, list, base, hidden, done }: { of: RoleTraining; list: TrainedRoles; base: string; hidden: boolean; done: () => void }) {
  const tools = of.active && (
    <Write
      name="Roll back" danger hidden={hidden} path={`${base}/rollback`} confirm={of.role} done={done}
      ask={`The previous adapter, or the base model, answers again instead of ${of.active}.`}
    />
  );
  return (
    <Card title="Adapters" tools={tools} note="An adapter answers only if it passes every check. A check without a measurement does not pass.">
      {of.adapters.length === 0 ? <Empty command={list.commands.at(-1)}>No adapter was trained; the base model answers. <Sentence text={list.advice} /></Empty> : (
        <ul class="plainlist">{of.adapters.map((one) => <OneAdapter key={one.version} one={one} base={base} hidden={hidden} done={done} />)}</ul>
      )}
    </Card>
  );
}

function OneAdapter({ one, base, hidden, done }: { one: Adapter; base: string; hidden: boolean; done: () => void }) {
  const failed = one.checks.filter((check) => !check.passed).length;
  const [open, setOpen] = useState(["active", "candidate", "undecided"].includes(one.status));
  return (
    <li>
      <div class="row spread">
        <span>
          <code><One text={one.version} /></code>{" "}
          <span class={`tag ${{ active: "good", rejected: "failed", undecided: "warn", stale: "warn", rolled_back: "warn" }[one.status] ?? ""}`} title={one.meaning}>{one.status.replace("_", " ")}</span>
        </span>
        {one.may_activate && (
          <Write
            name="Activate" hidden={hidden} path={`${base}/activate`} body={{ version: one.version }} confirm={one.version} done={done}
            ask={`${one.version} will answer; the current adapter becomes inactive.`}
          />
        )}
      </div>
      <p class="small"><One text={one.sentence} max={600} /></p>
      <p class="small muted"><One text={one.origin} max={600} /></p>
      {one.checks.length === 0 ? <p class="small muted">Not checked yet.</p> : (
        <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>{failed ? `${failed} of ${one.checks.length} checks not passed` : `${one.checks.length} checks passed`}</summary>
          <Table
            label={`Checks of ${one.version}`} rows={one.checks} rowKey={(c) => c.name}
            columns={[
              { key: "p", title: "Passed", show: (c) => <span class={`tag ${c.passed ? "good" : "failed"}`}>{c.passed ? "yes" : "no"}</span> },
              { key: "name", title: "Check", show: (c) => <code>{c.name}</code> },
              { key: "v", title: "Measured", n: true, show: (c) => (c.value_text ?? "–").replace("-", "−") },
              { key: "i", title: "95 % interval", n: true, show: (c) => (c.low === null || c.high === null ? "" : <span class="ci">[{measured(c.low)}, {measured(c.high)}]</span>) },
              { key: "l", title: "Limit", n: true, show: (c) => (c.limit === null ? "" : measured(c.limit)) },
              { key: "u", title: "Unit", show: (c) => <One text={c.unit} /> },
              { key: "s", title: "Verdict", show: (c) => <span class="small"><One text={c.sentence} max={1_000} /></span> },
            ]}
          />
        </details>
      )}
    </li>
  );
}

const measured = (x: number | null): string => (x === null ? "–" : three(x).replace("-", "−"));

function Course({ of }: { of: RoleTraining }) {
  const points = of.course.flatMap((p): Point[] => p.mean === null ? [] : [{ x: p.at, y: p.mean, y_ends: p.low === null || p.high === null ? null : [p.low, p.high], tip: `${plural(p.n, "rating")}: ${signed(p.mean, 2)} ${interval(p.low, p.high, true)}` }]);
  const plot: Plot = {
    name: "rewards", title: "Mean reward of consecutive ratings over time", height: 2.5, x: { kind: "time" }, y: { low: -1, high: 1 },
    layers: [
      { points, mark: "band" }, { points, mark: "line" },
      ...of.activations.map((a): Layer => ({ mark: "line", colour: "muted", weight: "faint", is_dashed: true, points: [{ x: a.at, y: -1 }, { x: a.at, y: 1, tip: `${a.version} is activated` }] })),
    ],
  };
  return (
    <Card title="Ratings over time" note="Mean reward of consecutive ratings, of −1 to 1, with its 95 % interval; dashed lines are activations.">
      {points.length === 0 ? <p class="muted">No answer of this role is rated.</p> : (
        <PlotChart of={plot} />
      )}
    </Card>
  );
}

function AnsweredBy({ of }: { of: RoleTraining }) {
  const mean = (m: Measured, unit: (x: number) => string) => (m.mean === null ? "–" : <>{unit(m.mean)} {m.low !== null && m.high !== null && <span class="ci">[{unit(m.low)}, {unit(m.high)}]</span>}</>);
  return (
    <Card title="Answers by adapter" note="Means with 95 % intervals over what was measured. Adapters answered at different times: a difference may have other causes, too.">
      {of.answered_by.length === 0 ? <p class="muted">No answer of this role is logged.</p> : (
        <Table
          label="Answers by adapter" rows={of.answered_by} rowKey={(r) => r.version ?? ""}
          columns={[
            { key: "v", title: "Adapter", show: (r) => (r.version ? <code class="whole"><One text={r.version} /></code> : "none") },
            { key: "n", title: "Answers", n: true, by: (r) => r.n_answers, show: (r) => count(r.n_answers) },
            { key: "m", title: "Ratings", n: true, by: (r) => r.reward.n, show: (r) => count(r.reward.n) },
            { key: "r", title: "Mean reward", by: (r) => r.reward.mean, show: (r) => <>{signed(r.reward.mean, 2)} <span class="ci">{interval(r.reward.low, r.reward.high, true)}</span><Strip {...r.reward} base={0} from={-1} to={1} /></> },
            { key: "l", title: "Tokens of an answer", n: true, by: (r) => r.n_output_tokens.mean, show: (r) => mean(r.n_output_tokens, three) },
            { key: "t", title: "Time per answer", n: true, by: (r) => r.latency_s.mean, show: (r) => mean(r.latency_s, seconds) },
          ]}
        />
      )}
    </Card>
  );
}

function Rounds({ of, list }: { of: RoleTraining; list: TrainedRoles }) {
  const first = of.rounds.find((one) => one.losses.length > 1)?.round_id;
  const [chosen, choose] = useState<string | undefined>(undefined);
  const shown = of.rounds.find((one) => one.round_id === (chosen ?? first));
  return (
    <Card title="Training rounds">
      {of.rounds.length === 0 ? <Empty command={list.commands.at(-1)}>No round yet.</Empty> : (
        <>
          {shown && shown.losses.length > 1 && <Loss key={shown.round_id} of={shown} />}
          <Table
            label="Training rounds" rows={of.rounds} rowKey={(r) => r.round_id}
            columns={[
              { key: "at", title: "Started", by: (r) => r.started_at, show: (r) => <Time at={r.started_at} /> },
              { key: "s", title: "Status", show: (r) => <Status status={r.status} /> },
              { key: "v", title: "Adapter", show: (r) => (r.version ? <code class="whole"><One text={r.version} /></code> : "–") },
              { key: "o", title: "Objective", show: (r) => <One text={r.objective} /> },
              { key: "n", title: "Rows", n: true, by: (r) => r.n_rows, show: (r) => count(r.n_rows) },
              { key: "k", title: "Steps", n: true, by: (r) => r.n_steps, show: (r) => count(r.n_steps) },
              { key: "kl", title: "KL, nats per answer", n: true, by: (r) => r.kl_estimate, show: (r) => (r.kl_estimate === null ? "–" : three(r.kl_estimate)) },
              { key: "t", title: "Took", n: true, show: (r) => r.took ?? "–" },
              { key: "c", title: "CPU", n: true, by: (r) => r.cpu_s, show: (r) => seconds(r.cpu_s) },
              { key: "w", title: "Result", show: (r) => <span class="small"><One text={r.reason} max={600} /></span> },
              { key: "l", title: "", show: (r) => (r.losses.length > 1 ? <button aria-pressed={shown?.round_id === r.round_id} aria-label={`Loss of the round of ${r.started_at}`} onClick={() => choose(r.round_id)}>Loss</button> : null) },
            ]}
          />
        </>
      )}
    </Card>
  );
}

function Loss({ of }: { of: TrainingRound }) {
  const title = `Loss of each step, ${of.version ?? of.objective}`;
  const points = of.losses.map(([x, y]) => ({ x, y, tip: `step ${x}: ${three(y)}` }));
  return (
    <>
      <p class="small muted"><One text={title} />: of the objective, without penalty</p>
      <PlotChart of={{ name: "loss", title, height: 2.3, x: { title: "step", kind: "whole" }, y: { title: "loss" }, layers: [{ points, mark: "line" }] }} />
    </>
  );
}
