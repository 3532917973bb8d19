/* The server's /v1 paths: streamed answers, marks, comparisons. Tokens are not stored. */
import { ApiError } from "./api";

export interface Message { role: "user" | "assistant"; content: string }
export interface Said { id: string; text: string; model: string; version: string | null }

const MOST_BYTES = 60_000; // the server limits a body to 64 KiB

/** Unique name that also works without a secure origin. */
export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function ask(path: string, token: string, method: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const answer = await fetch(path, {
    method, signal, credentials: "omit", body: body === undefined ? undefined : JSON.stringify(body),
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` },
  });
  if (answer.ok) return answer;
  const told = (await answer.json().catch(() => null)) as { detail?: unknown } | null;
  const detail = told?.detail;
  throw new ApiError(answer.status, typeof detail === "string" ? detail : `The server answered with status ${answer.status}.`);
}

/** Last messages that fit into a body, in whole turns. The final message is always included. */
export function fitting(messages: Message[]): Message[] {
  const size = (from: number) => new TextEncoder().encode(JSON.stringify(messages.slice(from))).length;
  let from = 0;
  while (from < messages.length - 1 && size(from) > MOST_BYTES) from += 2;
  return messages.slice(from);
}

export interface Asked { token: string; user: string; role: string; conversation: string; messages: Message[]; signal: AbortSignal; piece: (text: string) => void }

/** Request an answer and stream it. The answer is logged by the time this returns. */
export async function complete(p: Asked): Promise<Said> {
  const body = { model: p.role, user: p.user, stream: true, metadata: { conversation_id: p.conversation }, messages: fitting(p.messages) };
  const answer = await ask("/v1/chat/completions", p.token, "POST", body, p.signal);
  const said: Said = { id: answer.headers.get("X-Interaction-Id") ?? "", text: "", model: "", version: null };
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let ended = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const events = (rest + value).split("\n\n");
    rest = events.pop()!;
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") {
        ended = true;
        continue;
      }
      const read = JSON.parse(data) as { model?: string; system_fingerprint?: string | null; error?: { message: string }; choices?: { delta: { content?: string } }[] };
      if (read.error) throw new Error(read.error.message);
      said.model = read.model ?? said.model;
      said.version = read.system_fingerprint ?? said.version;
      const piece = read.choices?.[0]?.delta.content ?? "";
      said.text += piece;
      if (piece) p.piece(piece);
    }
  }
  if (!ended) throw new Error("The connection closed before the answer was complete; it is not logged.");
  return said;
}

export interface Mark { rating?: number; thumbs?: "up" | "down" }

/** Mark an answer; return the server's confirmation. */
export async function rate(token: string, user: string, id: string, mark: Mark, reason?: string): Promise<string> {
  const kind = mark.rating === undefined ? "thumbs" : "rating";
  const body = { ...mark, user_id: user, source: "web", event_id: newId(), ...(reason ? { reason } : {}) };
  const answer = await ask(`/v1/interactions/${encodeURIComponent(id)}/${kind}`, token, "POST", body);
  return ((await answer.json()) as { label: string }).label;
}

export async function unrate(token: string, user: string, id: string): Promise<void> {
  await ask(`/v1/interactions/${encodeURIComponent(id)}/rating?user_id=${encodeURIComponent(user)}`, token, "DELETE");
}

export async function prefer(token: string, user: string, chosen: string, rejected: string, first: string): Promise<void> {
  await ask("/v1/comparisons", token, "POST", { chosen_id: chosen, rejected_id: rejected, first_id: first, user_id: user, source: "web", event_id: newId() });
}
