/* Actions that change something: confirmed twice, with a token that the page discards. */
import { useEffect, useState } from "preact/hooks";
import { ApiError, get, post, refresh } from "./api";
import { Modal } from "./parts";
import { One } from "./text";
import type { Done, Session } from "./types";

export interface WriteProps {
  name: string; // button label
  path: string;
  body?: Record<string, unknown>;
  confirm: string; // word to type as second confirmation
  ask: string;
  hidden?: boolean;
  danger?: boolean;
}

let session: Promise<Session> | null = null;

/** Reason why changes are disabled, if any; fetched once for all buttons. */
export function useWhyNot(): string | null {
  const [why, setWhy] = useState<string | null>(null);
  useEffect(() => {
    session ??= get<Session>("session");
    session.then((known) => setWhy(known.why_not), () => { session = null; });
  }, []);
  return why;
}

/** Button that opens a dialog for the token and the typed confirmation. */
export function Write(p: WriteProps) {
  const [open, setOpen] = useState(false);
  if (p.hidden) return null;
  return (
    <>
      <button class={p.danger ? "danger" : undefined} onClick={() => setOpen(true)}>{p.name}…</button>
      {open && <Asking {...p} close={() => setOpen(false)} />}
    </>
  );
}

function Asking(p: WriteProps & { close: () => void }) {
  const [token, setToken] = useState("");
  const [typed, setTyped] = useState("");
  const [step, setStep] = useState<1 | 2>(1);
  const [state, setState] = useState<{ busy?: boolean; error?: string; done?: string }>({});
  const send = async () => {
    setState({ busy: true });
    try {
      const session = await get<Session>("session");
      const done = await post<Done>(p.path, { ...p.body, confirm: typed }, {
        Authorization: `Bearer ${token}`, "X-Convergence-CSRF": session.csrf,
      });
      setState({ done: done.sentence });
      refresh();
    } catch (error) {
      setState({ error: error instanceof ApiError || error instanceof Error ? error.message : String(error) });
    }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (step === 1) setStep(2);
    else void send();
  };
  return (
    <Modal title={p.name} close={p.close}>
      {state.done ? <p role="status"><One text={state.done} max={1_000} /></p> : (
        <form onSubmit={submit}>
          <p>{p.ask}</p>
          <label class="field">Token with the scope admin
            <input type="password" autoComplete="off" required value={token} onInput={(e) => setToken(e.currentTarget.value)} disabled={step === 2} />
          </label>
          {step === 2 && (
            <label class="field" style={{ marginTop: ".7rem" }}>
              <span style={{ color: "inherit" }}>To confirm, type <code>{p.confirm}</code></span>
              <input autoComplete="off" spellcheck={false} required value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
            </label>
          )}
          {state.error && <div class="notice bad" role="alert"><One text={state.error} max={2_000} /></div>}
          <div class="toolbar">
            <button class="primary" type="submit" disabled={state.busy || !token || (step === 2 && typed !== p.confirm)}>
              {step === 1 ? "Continue" : p.name}
            </button>
            <button type="button" onClick={p.close}>Cancel</button>
          </div>
        </form>
      )}
    </Modal>
  );
}
