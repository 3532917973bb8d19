/* Shared parts of the pages: page states, tables, drawers. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, post, type Loaded } from "./api";
import { One, visible } from "./text";

/** Page content while loading, when empty, or after an error. */
export function Show<T>({ of, children, empty }: { of: Loaded<T>; children: (data: T) => ComponentChildren; empty?: (data: T) => ComponentChildren }) {
  if (of.data === undefined) {
    if (of.error) return <Problem error={of.error} again={of.again} />;
    return <p class="empty" role="status">Reading the store…</p>;
  }
  const nothing = empty?.(of.data);
  return (
    <>
      {of.error && <Problem error={of.error} again={of.again} />}
      {nothing || children(of.data)}
    </>
  );
}

export function Problem({ error, again }: { error: Error; again?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <div class="text">{visible(error.message.slice(0, 4_000))}</div>
      {error instanceof ApiError && error.status === 401 ? <SignIn /> : again && <> <button class="plain" onClick={again}>Try again</button></>}
    </div>
  );
}

function SignIn() {
  const [token, setToken] = useState("");
  const [refused, setRefused] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    post("session", {}, { Authorization: `Bearer ${token}` }).then(() => location.reload(), (error: Error) => setRefused(error.message));
  };
  return (
    <form class="toolbar" onSubmit={submit}>
      <label class="field">Token <input type="password" autoComplete="off" required value={token} onInput={(e) => setToken(e.currentTarget.value)} /></label>
      <button type="submit">Start</button>
      {refused && <span><One text={refused} max={600} /></span>}
    </form>
  );
}

export function Empty({ children, command }: { children: ComponentChildren; command?: string | null }) {
  return (
    <div class="empty">
      {children}
      {command && <> Next: <code>{command}</code></>}
    </div>
  );
}

/** Address of a section within its page. */
export const anchor = (title: string): string => title.toLowerCase().replace(/\W+/g, "-");

export function Card(p: { title: ComponentChildren; tools?: ComponentChildren; note?: ComponentChildren; children: ComponentChildren; id?: string }) {
  return (
    <section class="card" id={p.id ?? (typeof p.title === "string" ? anchor(p.title) : undefined)}>
      <header>
        <h2>{p.title}</h2>
        {p.tools}
      </header>
      {p.note && <p class="muted small">{p.note}</p>}
      {p.children}
    </section>
  );
}

export function Figure({ value, children }: { value: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="figure">
      <b>{value}</b>
      <div class="about">{children}</div>
    </div>
  );
}

export interface Column<R> {
  key: string;
  title: string;
  show: (row: R) => ComponentChildren;
  by?: (row: R) => string | number | null | undefined; // sort key; without it the column cannot be sorted
  n?: boolean; // numeric column
}

/** Sortable table. Long tables show their first rows and a link to more. */
export function Table<R>(p: { columns: Column<R>[]; rows: R[]; label: string; tall?: boolean; first?: number; rowKey: (row: R, i: number) => string }) {
  const [order, setOrder] = useState<{ key: string; down: boolean } | null>(null);
  const [shown, setShown] = useState(p.first ?? 50);
  const rows = useMemo(() => {
    const by = p.columns.find((column) => column.key === order?.key)?.by;
    if (!order || !by) return p.rows;
    const sign = order.down ? -1 : 1;
    return [...p.rows].sort((a, b) => {
      const [x, y] = [by(a), by(b)];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return x < y ? -sign : sign;
    });
  }, [p.rows, order, p.columns]);
  const sort = (key: string, number: boolean | undefined) =>
    setOrder((old) => (old?.key === key ? { key, down: !old.down } : { key, down: Boolean(number) }));
  return (
    <div class={p.tall ? "scroll tall" : "scroll"} tabIndex={0} role="region" aria-label={p.label}>
      <table>
        <thead>
          <tr>
            {p.columns.map((c) => (
              <th key={c.key} scope="col" class={c.n ? "n" : undefined} aria-sort={order?.key === c.key ? (order.down ? "descending" : "ascending") : undefined}>
                {c.by ? <button onClick={() => sort(c.key, c.n)}>{c.title}{order?.key === c.key ? (order.down ? " ↓" : " ↑") : ""}</button> : c.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, shown).map((row, i) => (
            <tr key={p.rowKey(row, i)}>
              {p.columns.map((c) => <td key={c.key} class={c.n ? "n" : undefined}>{c.show(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > shown && (
        <p class="small muted" style={{ padding: "0 1.15rem" }}>
          {shown} of {rows.length} rows. <button class="plain" onClick={() => setShown(shown + 200)}>Show more</button>
        </p>
      )}
    </div>
  );
}

/** Side panel that holds the focus until Esc closes it. */
export function Drawer({ title, close, children, tools }: { title: ComponentChildren; close: () => void; children: ComponentChildren; tools?: ComponentChildren }) {
  const panel = useRef<HTMLDivElement>(null);
  const done = useRef(close);
  done.current = close;
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    panel.current?.focus();
    const key = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
        event.preventDefault();
        done.current();
      }
      if (event.key !== "Tab" || !panel.current) return;
      const all = [...panel.current.querySelectorAll<HTMLElement>("a[href],button:not(:disabled),input,select,textarea,summary,[tabindex='0']")];
      const [first, last] = [all[0], all.at(-1)];
      if (!first || !last) return;
      if (event.shiftKey && (document.activeElement === first || document.activeElement === panel.current)) {
        event.preventDefault();
        last.focus();
      } else if (!event.shiftKey && document.activeElement === last) {
        event.preventDefault();
        first.focus();
      }
    };
    document.addEventListener("keydown", key);
    return () => {
      document.removeEventListener("keydown", key);
      before?.focus?.();
    };
  }, []);
  return (
    <>
      <button class="backdrop" tabIndex={-1} aria-label="Close" onClick={close} />
      <div class="drawer" role="dialog" aria-modal="true" aria-label="Details" tabIndex={-1} ref={panel}>
        <div class="row spread">
          <h2>{title}</h2>
          <div class="row">
            {tools}
            <button onClick={close}>Close <kbd>Esc</kbd></button>
          </div>
        </div>
        {children}
      </div>
    </>
  );
}

/** Native browser dialog, open while mounted. */
export function Modal({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (!box.current?.open) box.current?.showModal();
  }, []);
  return (
    <dialog ref={box} onClose={close} aria-label={title}>
      <div class="row spread">
        <h2>{title}</h2>
        <button class="plain" onClick={close}>Close</button>
      </div>
      {children}
    </dialog>
  );
}

/** State → CSS class; style.css styles other states by name. */
const TONES: Record<string, string> = { champion: "good", active: "good", yes: "good", no: "failed", rejected: "failed", undecided: "warn", stale: "warn", "rolled back": "warn" };

export function Status({ status, title }: { status: string; title?: string }) {
  return <span class={`tag ${TONES[status] ?? (/^[a-z]+$/.test(status) ? status : "")}`} title={title || undefined}>{visible(status)}</span>;
}
