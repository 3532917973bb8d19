/* Chat: query the served model, mark answers by key or click, compare two answers, continue a conversation. */
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, useData } from "../api";
import { complete, newId, prefer, rate, unrate, type Mark, type Message } from "../completions";
import { Card, Empty, Problem, Show } from "../parts";
import { go, setQuery, to } from "../router";
import { count, One, Sentence, Time, visible } from "../text";
import type { Conversation, Conversations, Session } from "../types";

const COMMAND = "convergence serve --chat --token TALK_TOKEN=chat,update";

interface Answer { id: string; text: string; model: string; version: string | null; mark: (Mark & { label: string; reason: string | null }) | null }
interface Turn { question: string; answers: Answer[]; chosen: number; better: string | null }

/* The page discards the token when it closes. A name is not a token. */
let given = "";
const NAME = "convergence-user";

export function Chat({ query }: { query: URLSearchParams }) {
  const session = useData<Session>("session", {}, false);
  document.title = "Chat · The Convergence";
  return (
    <>
      <h1>Chat</h1>
      <Show of={session}>{(s) => <Room session={s} query={query} />}</Show>
    </>
  );
}

function Room({ session, query }: { session: Session; query: URLSearchParams }) {
  const [user, setUser] = useState(query.get("user") ?? localStorage.getItem(NAME) ?? session.chat?.user ?? "");
  const [token, setToken] = useState(given);
  const [refused, setRefused] = useState("");
  const opened = query.get("conversation");
  // A new conversation gets its address during the chat without restarting.
  const begun = useRef<string | null>(null);
  const [n, setN] = useState(0);
  if (opened !== begun.current) begun.current = null;
  const isNew = opened === begun.current;
  const chat = session.chat;
  return (
    <div class="talk">
      <div>
        {!chat && (
          <Empty command={COMMAND}>
            <p>On this page you talk to your models and rate their answers. No chat is served here: start one with these pages, or run <code>convergence chat</code> in a terminal.</p>
          </Empty>
        )}
        {chat && !token && <SignIn user={user} refused={refused} done={(name, secret) => { given = secret; setRefused(""); localStorage.setItem(NAME, name); setUser(name); setToken(secret); }} />}
        {chat?.note && <p class="notice small"><Sentence text={chat.note} /></p>}
        {(opened || (chat && token)) && (
          <Talk
            key={isNew ? `new ${n}` : opened} roles={chat?.roles ?? []} labels={chat?.labels ?? []} token={chat ? token : ""} user={user} opened={isNew ? null : opened}
            refuse={(why) => { given = ""; setToken(""); setRefused(why); }}
            wanted={query.get("role")} begin={(id) => { begun.current = id; setQuery({ conversation: id, user }); }}
          />
        )}
      </div>
      <List user={user} opened={opened} begin={chat && token ? () => { setN(n + 1); go(`${to("chat")}?user=${encodeURIComponent(user)}`); } : null} />
    </div>
  );
}

function SignIn({ user, refused, done }: { user: string; refused: string; done: (user: string, token: string) => void }) {
  const [name, setName] = useState(user);
  const [secret, setSecret] = useState("");
  return (
    <Card title="Start" note="Enter a token of the server with the scopes chat and update. This page forgets it when you close it.">
      <form class="toolbar" onSubmit={(event) => { event.preventDefault(); done(name.trim(), secret); }}>
        <label class="field">Your name <input required maxLength={200} value={name} onInput={(e) => setName(e.currentTarget.value)} /></label>
        <label class="field">Token <input type="password" autoComplete="off" required value={secret} onInput={(e) => setSecret(e.currentTarget.value)} /></label>
        <button class="primary" type="submit" disabled={!name.trim()}>Start</button>
      </form>
      {refused && <div class="notice bad" role="alert"><One text={refused} max={600} /></div>}
    </Card>
  );
}

function List({ user, opened, begin }: { user: string; opened: string | null; begin: (() => void) | null }) {
  const loaded = useData<Conversations>("conversations", { user });
  return (
    <Card title="Conversations" tools={begin && <button onClick={begin}>New conversation</button>}>
      <Show of={loaded} empty={(d) => !d.conversations.length && <p class="muted">{user ? <>No conversation of <One text={user} max={60} /> is logged.</> : "No conversation is logged yet."}</p>}>
        {(d) => (
          <ul class="plainlist">
            {d.conversations.map((one) => {
              const href = `${to("chat")}?conversation=${encodeURIComponent(one.conversation_id)}&user=${encodeURIComponent(one.user_id)}`;
              return (
                <li key={one.conversation_id + one.user_id}>
                  <a href={href} aria-current={opened === one.conversation_id ? "page" : undefined} onClick={(event) => { event.preventDefault(); go(href); }}>
                    <One text={one.title || "(empty)"} max={80} />
                  </a>
                  <p class="small muted"><One text={one.role} max={40} />, {count(one.n_answers)} answers, <Time at={one.at} /></p>
                </li>
              );
            })}
          </ul>
        )}
      </Show>
    </Card>
  );
}

function turnsOf(d: Conversation): Turn[] {
  const turns: Turn[] = [];
  let before = -1;
  for (const one of d.answers) {
    const answer: Answer = {
      id: one.interaction_id, text: one.answer, model: one.model, version: one.adapter_version,
      mark: one.mark && { ...(one.mark.rating === null ? { thumbs: one.mark.thumbs! } : { rating: one.mark.rating }), label: one.mark.label, reason: one.mark.reason },
    };
    const last = turns.at(-1);
    if (last && before === one.n_before && last.question === one.question) last.answers.push(answer);
    else turns.push({ question: one.question, answers: [answer], chosen: 0, better: null });
    before = one.n_before;
    if (one.is_better) {
      const turn = turns.at(-1)!;
      turn.chosen = turn.answers.length - 1;
      turn.better = answer.id;
    }
  }
  return turns;
}

interface TalkProps { roles: string[]; labels: string[]; token: string; user: string; opened: string | null; wanted: string | null; begin: (id: string) => void; refuse: (why: string) => void }

function Talk(p: TalkProps) {
  const id = useRef(p.opened ?? newId());
  const [role, setRole] = useState(p.wanted && p.roles.includes(p.wanted) ? p.wanted : (p.roles[0] ?? ""));
  const [turns, setTurns] = useState<Turn[]>([]);
  const [asked, setAsked] = useState("");
  const [now, setNow] = useState<{ question: string; text: string } | null>(null);
  const [error, setProblem] = useState<Error | null>(null);
  const setError = (failed: Error | null) => {
    // Ask again if the token is unknown or lacks permission.
    if (failed instanceof ApiError && (failed.status === 401 || /lacks the scope/.test(failed.message))) p.refuse(failed.message);
    else setProblem(failed);
  };
  const [note, setNote] = useState("");
  const stop = useRef<AbortController | null>(null);
  const box = useRef<HTMLTextAreaElement>(null);
  const marks = useRef<HTMLDivElement>(null);
  const may = p.token !== "" && role !== "";

  const load = () => {
    if (!p.opened) return;
    setError(null);
    get<Conversation>("conversation", { id: p.opened, user: p.user }).then((d) => { setTurns(turnsOf(d)); setRole(d.role); }, setProblem);
  };
  useEffect(load, []);
  useEffect(() => () => stop.current?.abort(), []);

  const answer = async (before: Turn[], question: string): Promise<Answer | null> => {
    const messages: Message[] = before.flatMap((turn) => [
      { role: "user" as const, content: turn.question }, { role: "assistant" as const, content: turn.answers[turn.chosen]!.text },
    ]);
    messages.push({ role: "user", content: question });
    const control = new AbortController();
    stop.current = control;
    setError(null);
    setNote("");
    setNow({ question, text: "" });
    try {
      const said = await complete({
        token: p.token, user: p.user, role, conversation: id.current, messages, signal: control.signal,
        piece: (text) => setNow((old) => old && { ...old, text: old.text + text }),
      });
      return { ...said, mark: null };
    } catch (failed) {
      if (control.signal.aborted) setNote("Stopped; that answer is not logged.");
      else setError(failed as Error);
      return null;
    } finally {
      setNow(null);
    }
  };
  const send = async () => {
    const question = asked.trim();
    if (!question || now || !may) return;
    const found = await answer(turns, question);
    if (!found) return;
    setAsked("");
    setTurns((old) => [...old, { question, answers: [found], chosen: 0, better: null }]);
    if (!turns.length && !p.opened) p.begin(id.current);
    // One key marks the latest answer, unless you are already typing.
    setTimeout(() => marks.current?.focus());
  };
  const another = async (at: number) => {
    const found = await answer(turns.slice(0, at), turns[at]!.question);
    if (found) change(at, (turn) => ({ ...turn, answers: [...turn.answers, found] }));
  };
  const change = (at: number, how: (turn: Turn) => Turn) => setTurns((old) => old.map((turn, i) => (i === at ? how(turn) : turn)));
  const choose = (at: number, one: Answer) => {
    const turn = turns[at]!;
    const others = turn.answers.filter((other) => other.id !== one.id);
    Promise.all(others.map((other) => prefer(p.token, p.user, one.id, other.id, turn.answers[0]!.id))).then(
      () => change(at, (old) => ({ ...old, chosen: old.answers.indexOf(one), better: one.id })), setError,
    );
  };
  return (
    <Card
      title={<>{p.opened ? "Conversation" : "New conversation"}{role && <> · <One text={role} max={60} /></>}</>}
      tools={!turns.length && !now && p.roles.length > 0 && !p.opened && (
        <label class="small muted">Role{" "}
          <select value={role} onChange={(event) => setRole(event.currentTarget.value)}>{p.roles.map((one) => <option key={one} value={one}>{one}</option>)}</select>
        </label>
      )}
    >
      <div role="log" aria-label="Conversation" aria-live="polite">
        {turns.map((turn, at) => (
          <section class="turn" key={at}>
            <div class="asked"><div class="text" dir="auto">{visible(turn.question)}</div></div>
            <div class={turn.answers.length > 1 ? "pair" : undefined}>
              {turn.answers.map((one, n) => (
                <div key={one.id} class={turn.answers.length > 1 && n === turn.chosen ? "said chosen" : "said"}>
                  {turn.answers.length > 1 && <h3>Answer {n + 1}{turn.better === one.id && <> <span class="tag good">better</span></>}</h3>}
                  <div class="text" dir="auto">{one.text ? visible(one.text) : <span class="muted">The answer is empty.</span>}</div>
                  <p class="small muted"><One text={one.model} max={80} />{/* Hide the model until the answer is rated, so that ratings stay blind. */}{one.mark && one.version && <> with adapter <code class="whole">{one.version}</code></>}</p>
                  {may && (
                    <Marks
                      of={one} labels={p.labels} token={p.token} user={p.user} box={at === turns.length - 1 && n === turn.answers.length - 1 ? marks : undefined}
                      failed={setError} next={() => box.current?.focus()}
                      changed={(mark) => change(at, (old) => ({ ...old, answers: old.answers.map((a) => (a.id === one.id ? { ...a, mark } : a)) }))}
                    />
                  )}
                  {!may && one.mark && <p class="small">Marked <One text={one.mark.label} /></p>}
                  {may && turn.answers.length > 1 && at === turns.length - 1 && <button disabled={turn.better === one.id} onClick={() => choose(at, one)}>Answer {n + 1} is better</button>}
                </div>
              ))}
            </div>
            {may && at === turns.length - 1 && turn.answers.length === 1 && !now && <button class="plain" onClick={() => void another(at)}>Compare with another answer</button>}
          </section>
        ))}
        {now && (
          <section class="turn">
            <div class="asked"><div class="text" dir="auto">{visible(now.question)}</div></div>
            <div class="said" aria-busy="true"><div class="text" dir="auto">{now.text ? visible(now.text) : <span class="muted">…</span>}</div></div>
          </section>
        )}
      </div>
      {note && <p class="muted small" role="status">{note}</p>}
      {error && <Problem error={error} again={p.opened && !turns.length ? load : undefined} />}
      {may ? (
        <form class="ask" onSubmit={(event) => { event.preventDefault(); void send(); }}>
          <textarea
            ref={box} rows={3} aria-label="Question" placeholder="Enter sends, Shift+Enter starts a new line" value={asked} dir="auto"
            onInput={(event) => setAsked(event.currentTarget.value)}
            onKeyDown={(event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); void send(); } }}
          />
          {/* With one key, both would share an element, and a click on the first would submit through the second. */}
          {now ? <button key="stop" type="button" onClick={() => stop.current?.abort()}>Stop</button> : <button key="send" class="primary" type="submit" disabled={!asked.trim()}>Send</button>}
        </form>
      ) : turns.length > 0 && <p class="muted small">You can read this conversation here. To continue it, start with a token of a served chat.</p>}
    </Card>
  );
}

interface MarksProps {
  of: Answer; labels: string[]; token: string; user: string; box?: { current: HTMLDivElement | null };
  changed: (mark: Answer["mark"]) => void; failed: (error: Error) => void; next: () => void;
}

/** Marks 1 to 5, thumbs, a reason and undo: by click, or by key while the group has focus. */
function Marks(p: MarksProps) {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const mark = p.of.mark;
  const give = (given: Mark, why?: string) => {
    setBusy(true);
    rate(p.token, p.user, p.of.id, given, why).then(
      (label) => { p.changed({ ...given, label, reason: why ?? null }); setReason(""); p.next(); }, p.failed,
    ).finally(() => setBusy(false));
  };
  const takeBack = () => {
    setBusy(true);
    unrate(p.token, p.user, p.of.id).then(() => p.changed(null), p.failed).finally(() => setBusy(false));
  };
  const key = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
    const stars = p.labels.findIndex((_, i) => String(i + 1) === event.key) + 1;
    if (stars) give({ rating: stars });
    else if (event.key === "+") give({ thumbs: "up" });
    else if (event.key === "-") give({ thumbs: "down" });
    else if (event.key === "Enter" && event.target === event.currentTarget) p.next();
    else return;
    event.preventDefault();
  };
  return (
    <div class="marks" role="group" aria-label="Your rating" tabIndex={-1} ref={p.box} onKeyDown={key}>
      <span class="group">
        {p.labels.map((label, i) => (
          <button key={label} title={label} aria-label={`${i + 1} ${label}`} aria-pressed={mark?.rating === i + 1} disabled={busy} onClick={() => give({ rating: i + 1 })}>{i + 1}</button>
        ))}
      </span>
      <span class="group">
        <button aria-label="Thumbs up" aria-pressed={mark?.thumbs === "up"} disabled={busy} onClick={() => give({ thumbs: "up" })}>+</button>
        <button aria-label="Thumbs down" aria-pressed={mark?.thumbs === "down"} disabled={busy} onClick={() => give({ thumbs: "down" })}>−</button>
      </span>
      {mark ? (
        <>
          <span class="small"><One text={mark.label} />{mark.reason && <>: <One text={mark.reason} max={200} /></>}</span>
          <form onSubmit={(event) => { event.preventDefault(); give(mark.rating === undefined ? { thumbs: mark.thumbs } : { rating: mark.rating }, reason.trim()); }}>
            <input aria-label="Why" placeholder="Why?" maxLength={2_000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
            <button type="submit" disabled={busy || !reason.trim()}>Add</button>
          </form>
          <button class="plain" disabled={busy} onClick={takeBack}>Undo</button>
        </>
      ) : <span class="small muted"><kbd>1</kbd>–<kbd>5</kbd> <kbd>+</kbd> <kbd>-</kbd> mark it, <kbd>Enter</kbd> skips</span>}
    </div>
  );
}
