/* Response types of /ui/api. Sentences come from the server; null means unknown. */

export interface Interval { mean: number | null; low: number | null; high: number | null }
export type Params = Record<string, unknown>;

// GET overview, runs/{run_id}, production[/{system}], training[/{role}]: BlockPage of blocks.tsx
// GET runs: newest first
export interface Runs { runs: { run_id: string; label: string; status: string; best: Interval | null }[] }

// GET runs/{run_id}/leaderboard
export interface Leaderboard { rows: Candidate[]; parameters: Parameter[]; level: number; note: string | null }
export interface Candidate {
  rank: number | null; candidate_id: string; name: string; params: Params; mean: number | null; low: number | null; high: number | null;
  n_cells: number; n_cases: number | null; n_failed: number; origin: string; generation: number | null; metrics: Record<string, number | null>;
  tags: string[]; // defaults, recommended, champion, in the report's words
}
export interface Parameter { name: string; kind: string; values?: unknown[] | null; names?: Record<string, string>; low?: number | null; high?: number | null; log?: boolean }

// GET runs/{run_id}/allocation: cells holds the columns candidate index, case index, n, reward
export interface Allocation { candidates: { candidate_id: string; name: string }[]; cases: string[]; case_names: string[]; candidate: number[]; case: number[]; n: number[]; reward: (number | null)[] }

// GET runs/{run_id}/answers?filter=all|failed|worst|disagreement&search=&case_from=&n_cases=&candidate_from=&n_candidates=
export interface Answers {
  n_cases: number; n_candidates: number; // after the filter
  cases: { case_id: string; name: string; role: string; title: string; mean: number | null }[]; // of this page
  candidates: { candidate_id: string; name: string; mean: number | null; low: number | null; high: number | null; tags: string[] }[];
  case_from: number; candidate_from: number;
  cells: (AnswerCell | null)[][]; // [case][candidate] of this page; null: not evaluated
}
export interface AnswerCell { reward: number | null; status: string; n: number; fault: string | null }

// GET runs/{run_id}/cell?candidate=&case=
export interface CellDetail {
  candidate: { candidate_id: string; name: string; params: Params }; case_id: string; role: string; kind: string;
  input: string | null; expected: string | null;
  repeats: {
    eval_id: string; replicate: number; generation: number | null; status: string; reward: number | null; error: string | null; fault: string | null; cached: boolean;
    prompt: string | null; answer: string | null; prompt_bytes: number | null; answer_bytes: number | null; prompt_url: string | null; answer_url: string | null; thinking: string | null; thinking_url: string | null; recording_url: string | null;
    metrics: { name: string; value: number | null; unit: string | null }[];
    judgements: { metric: string; order: string | null; value: number | null; reason: string | null }[];
    tokens_in: number | null; tokens_out: number | null; cost_usd: number | null; latency_ms: number | null;
    attempts: { attempt: number; purpose: string; state: string; model: string | null; error_type: string | null; cost_usd: number | null; started_at: string | null; ms: number | null }[];
  }[];
}

// GET compare?a=RUN[:CANDIDATE]&b=RUN[:CANDIDATE]: with {blocks: Block[]} of blocks.tsx, and the cases of both
export interface Comparison {
  cases: { case_id: string; name: string; kind: string; input: string | null; expected: string | null; a: CaseAnswer; b: CaseAnswer }[];
  best: { kind: string; n_cases: number; a: number; b: number } | null; // mean rewards on the most trustworthy cases of both
  per_answer: Record<"a" | "b", { latency_ms: number | null; cost_usd: number | null }>;
  parameters: { name: string; a: unknown; b: unknown }[]; // those that differ
}
export interface CaseAnswer { reward: number | null; text: string | null; latency_ms: number | null; cost_usd: number | null }

// GET runs/{run_id}/prompts?parameter=
export interface Prompts {
  parameters: string[]; parameter: string | null;
  nodes: { id: string; parents: string[]; text: string; generation: number | null; origin: string; name: string; candidate_ids: string[]; mean: number | null; low: number | null; high: number | null; effect: { mean: number | null; text: string; n_shared: number } | null; operator: string | null; reason: string | null; number: string | null; failures: { case_id: string; name: string }[]; tags: string[] }[];
}

// GET conversations?user= and conversation?id=&user=
export interface Conversations { conversations: { conversation_id: string; user_id: string; role: string; n_answers: number; at: string; title: string | null }[] } // latest first
export interface Conversation {
  conversation_id: string; user_id: string; role: string;
  answers: {
    interaction_id: string; question: string; n_before: number; answer: string; model: string; adapter_version: string | null; at: string; is_better: boolean;
    mark: { rating: number | null; thumbs: "up" | "down" | null; label: string; reason: string | null } | null;
  }[];
}

// GET review; POST review/approve {interaction_id, confirm, expected?, field?} and /reject {interaction_id, confirm}
export interface Review {
  why_not: string | null; system: string | null; fields: string[]; n_proposed: number;
  proposed: Proposed[]; // oldest first
  decided: { interaction_id: string; decision: string; case_id: string | null; at: string }[]; // latest first
}
export interface Proposed { interaction_id: string; case_id: string; prompt: string; answer: string; marks: string; role: string; model: string; adapter_version: string | null; at: string }

// POST training/{role}/activate {version, confirm} and /rollback {confirm}

// POST production/{system}/promote {candidate_id, confirm} and /rollback {confirm}; POST runs/{id}/stop, /resume {confirm}
// Authorization: Bearer TOKEN, X-Convergence-CSRF: value of GET session
export interface Session { csrf: string; can_write: boolean; why_not: string | null; chat: { roles: string[]; user: string; note: string | null; labels: string[] } | null; store: string; version: string }
export interface Done { sentence: string }

// GET sql/questions, GET sql?q=&limit= (and sql.csv?q=)
export interface Questions { questions: { title: string; sql: string }[]; tables: Record<string, string[]> }
export interface SqlResult { columns: { name: string; type: string }[]; rows: (string | number | boolean | null)[][]; n_rows: number; cut: boolean; ms: number }

// GET runs/{run_id}/table.csv?of=leaderboard|evaluations|…; GET events (server-sent): {"run_id": …}
