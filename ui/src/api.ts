/* Server data: fetched once, and again when an event reports a change. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

const BASE = "/ui/api/";

export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

function problem(status: number, body: unknown): string {
  const detail = (body as { detail?: unknown; title?: unknown; error?: unknown } | null) ?? {};
  for (const text of [detail.detail, detail.error, detail.title]) if (typeof text === "string") return text;
  return `The server answered with status ${status}.`;
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(key, String(value));
  }
  const text = search.toString();
  return BASE + path + (text ? `?${text}` : "");
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  const answer = await fetch(address(path, query), { signal, headers: { Accept: "application/json" }, credentials: "same-origin" });
  return (await read(answer)) as T;
}

async function read(answer: Response): Promise<unknown> {
  // An error's body may not be JSON, but an answer's must be. An aborted answer rejects here.
  const body = answer.json() as Promise<unknown>;
  if (answer.ok) return body;
  throw new ApiError(answer.status, problem(answer.status, await body.catch(() => null)));
}

export async function post<T>(path: string, body: unknown, headers: Record<string, string> = {}): Promise<T> {
  const answer = await fetch(BASE + path, {
    method: "POST", credentials: "same-origin", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", Accept: "application/json", ...headers },
  });
  return (await read(answer)) as T;
}

export interface Loaded<T> {
  data?: T;
  error?: ApiError | Error;
  loading: boolean;
  again: () => void;
}

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Data of an address. The old data stays visible until the next answer arrives. */
export function useData<T>(path: string | null, query: Query = {}, live: string | boolean = true): Loaded<T> {
  const key = path === null ? null : address(path, query);
  const [state, set] = useState<{ key: string | null; data?: T; error?: Error; loading: boolean }>({ key, loading: key !== null });
  const running = useRef<AbortController | null>(null);
  const isStale = useRef(false);

  const load = useCallback(() => {
    running.current?.abort();
    if (path === null || key === null) return set({ key, loading: false });
    const control = new AbortController();
    running.current = control;
    isStale.current = false;
    set((old) => ({ ...old, loading: true }));
    get<T>(path, query, control.signal).then(
      // An equal answer keeps its object, so charts keep their zoom and tables their scroll position.
      (data) => set((old) => ({ key, loading: false, data: old.data !== undefined && same(old.data, data) ? old.data : data })),
      (error: Error) => {
        if (!control.signal.aborted) set((old) => ({ key, data: old.key === key ? old.data : undefined, error, loading: false }));
      },
    ).finally(() => {
      if (running.current !== control) return;
      running.current = null;
      if (isStale.current) load();
    });
  }, [key]);

  useEffect(() => {
    load();
    return () => {
      running.current?.abort();
      running.current = null;
    };
  }, [load]);
  useEffect(() => {
    if (live === false) return;
    return onChange((about) => {
      if (live !== true && about !== undefined && about !== live) return;
      // Pending requests are not aborted: otherwise slow ones would never finish during a run.
      if (running.current) isStale.current = true;
      else load();
    });
  }, [load, live]);
  return { data: state.data, error: state.key === key ? state.error : undefined, loading: state.loading || state.key !== key, again: load };
}

/* Events: one connection per page, at most one refresh a second. */
type Listener = (about?: string) => void;
const listeners = new Set<Listener>();
const states = new Set<(on: boolean) => void>();
let source: EventSource | null = null;
let pending: ReturnType<typeof setTimeout> | null = null;
const about = new Set<string | undefined>();
let connected = false;

function tell(run: string | undefined): void {
  about.add(run);
  pending ??= setTimeout(() => {
    pending = null;
    const found = [...about];
    about.clear();
    for (const one of found) for (const listener of [...listeners]) listener(one);
  }, 1_000);
}

function turn(on: boolean): void {
  connected = on;
  for (const state of states) state(on);
}

export const KINDS = ["changed", "run", "generation", "progress", "cells", "ended", "production", "overview"];

export function connect(): void {
  if (source) return;
  source = new EventSource(`${BASE}events`);
  source.onopen = () => turn(true);
  source.onerror = () => turn(false);
  const receive = (event: MessageEvent<string>) => {
    let run: string | undefined;
    try {
      run = (JSON.parse(event.data) as { run_id?: string }).run_id;
    } catch {
      run = undefined;
    }
    tell(run);
  };
  source.onmessage = receive;
  for (const kind of KINDS) source.addEventListener(kind, receive as EventListener);
}

/** Refresh the page's data, as after an event. */
export const refresh = (): void => listeners.forEach((listener) => listener());

export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export function useConnected(): boolean {
  const [on, set] = useState(connected);
  useEffect(() => {
    states.add(set);
    return () => void states.delete(set);
  }, []);
  return on;
}
