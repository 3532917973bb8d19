/* Review: approve or reject test cases proposed from bad ratings. The page discards the token when it closes. */
import { useState } from "preact/hooks";
import { get, post, useData } from "../api";
import { Card, Empty, Modal, Show, Table } from "../parts";
import { count, One, plural, Sentence, Texts, Time } from "../text";
import type { Done, Proposed, Review as Data, Session } from "../types";

let given = "";

export function Review() {
  const loaded = useData<Data>("review");
  const session = useData<Session>("session", {}, false);
  const [told, setTold] = useState("");
  document.title = "Review · The Convergence";
  const done = (sentence: string) => {
    setTold(sentence);
    loaded.again();
  };
  return (
    <>
      <h1>Review</h1>
      <p class="lead">Answers that people rated 1, 2 or thumbs down. Approved answers become test cases of the next run.</p>
      <Show of={loaded}>
        {(d) => (
          <>
            {d.why_not && <p class="notice"><Sentence text={d.why_not} /></p>}
            {session.data?.why_not && <p class="muted small"><Sentence text={session.data.why_not} /></p>}
            {told && <p class="notice" role="status"><One text={told} max={1_000} /></p>}
            {d.system !== null && (
              <Card title={<>{plural(d.n_proposed, "proposed test case")} for <One text={d.system} max={80} /></>} note={d.n_proposed > d.proposed.length ? `The oldest ${count(d.proposed.length)} are shown.` : undefined}>
                {d.proposed.length === 0 ? <Empty command="convergence chat">No answer rated 1, 2 or thumbs down waits for a decision.</Empty> : (
                  <ul class="plainlist">{d.proposed.map((one) => <Case key={one.interaction_id} one={one} of={d} done={done} />)}</ul>
                )}
              </Card>
            )}
            {d.decided.length > 0 && (
              <Card title="Decided">
                <Table
                  label="Decided" rows={d.decided} rowKey={(r) => r.interaction_id} first={20}
                  columns={[
                    { key: "at", title: "When", by: (r) => r.at, show: (r) => <Time at={r.at} /> },
                    { key: "d", title: "Decision", show: (r) => <span class={`tag ${r.decision === "approved" ? "good" : ""}`}>{r.decision}</span> },
                    { key: "c", title: "Answer", show: (r) => <code><One text={r.case_id ?? r.interaction_id} max={120} /></code> },
                  ]}
                />
              </Card>
            )}
          </>
        )}
      </Show>
    </>
  );
}

type Decision = "approve" | "reject";

function Case({ one, of, done }: { one: Proposed; of: Data; done: (sentence: string) => void }) {
  const [open, setOpen] = useState<Decision | null>(null);
  return (
    <li>
      <div class="row spread">
        <span><One text={one.marks} max={1_000} /></span>
        <span class="row">
          {!of.why_not && <button onClick={() => setOpen("approve")}>Approve…</button>}
          <button class="danger" onClick={() => setOpen("reject")}>Reject…</button>
        </span>
      </div>
      <div class="case">
        <div><h3>Asked</h3><Texts text={one.prompt} label="Asked" /></div>
        <div><h3>Answered</h3><Texts text={one.answer} label="Answered" /></div>
      </div>
      <p class="small muted">
        <One text={one.role} max={60} />, <One text={one.model} max={80} />{one.adapter_version && <> with adapter <code class="whole">{one.adapter_version}</code></>}, <span title={one.interaction_id}><Time at={one.at} /></span>
      </p>
      {open && <Decide one={one} of={of} what={open} close={() => setOpen(null)} done={(sentence) => { setOpen(null); done(sentence); }} />}
    </li>
  );
}

function Decide(p: { one: Proposed; of: Data; what: Decision; close: () => void; done: (sentence: string) => void }) {
  const [token, setToken] = useState(given);
  const [expected, setExpected] = useState("");
  const [field, setField] = useState(p.of.fields[0] ?? "");
  const [state, setState] = useState<{ busy?: boolean; error?: string }>({});
  const name = p.what === "approve" ? "Approve" : "Reject";
  const send = async (event: Event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      const session = await get<Session>("session");
      const body = {
        interaction_id: p.one.interaction_id, confirm: p.one.interaction_id,
        ...(p.what === "approve" && expected ? { expected } : {}), ...(p.what === "approve" && field ? { field } : {}),
      };
      const found = await post<Done>(`review/${p.what}`, body, { Authorization: `Bearer ${token}`, "X-Convergence-CSRF": session.csrf });
      given = token;
      p.done(found.sentence);
    } catch (error) {
      setState({ error: (error as Error).message });
    }
  };
  return (
    <Modal title={name} close={p.close}>
      <form class="decide" onSubmit={(event) => void send(event)}>
        <p>{p.what === "approve" ? "Its prompt becomes a test case in the file of approved cases." : "The page does not propose it again. The answer and its ratings stay."}</p>
        {p.what === "approve" && (
          <label class="field">The right answer, if a metric needs one
            <textarea rows={3} value={expected} dir="auto" onInput={(event) => setExpected(event.currentTarget.value)} />
          </label>
        )}
        {p.what === "approve" && p.of.fields.length > 0 && (
          <label class="field">Field of the input that holds the prompt
            <select value={field} onChange={(event) => setField(event.currentTarget.value)}>{p.of.fields.map((one) => <option key={one} value={one}>{one}</option>)}</select>
          </label>
        )}
        <label class="field">Token with the scope admin
          <input type="password" autoComplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        {state.error && <div class="notice bad" role="alert"><One text={state.error} max={2_000} /></div>}
        <div class="toolbar">
          <button class="primary" type="submit" disabled={state.busy || !token}>{name}</button>
          <button type="button" onClick={p.close}>Cancel</button>
        </div>
      </form>
    </Modal>
  );
}
