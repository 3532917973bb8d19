// A server of planted answers in the shapes of src/types.ts, of any size, with hostile texts: what the pages are
// driven over where a real store would be too small or too tame.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const STATIC = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "convergence", "ui", "static");
const TYPES = { ".js": "text/javascript", ".css": "text/css", ".html": "text/html; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain" };
export const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
export const HOSTILE = `<script>window.hacked=1</script><img src=x onerror="window.hacked=1"> [link](javascript:window.hacked=1) \u202Eevil\u202C \u001b[31mred\u001b[0m \u0000 ${"W".repeat(400)}`;

const noise = (i, salt = 0) => { const x = Math.sin(i * 12.9898 + salt * 78.233) * 43758.5453; return x - Math.floor(x); };

export function planted({ nCandidates = 40, nCases = 24, hostile = false, empty = false, long = false, running = false, whyNot = null } = {}) {
  const state = { generation: 3, running, asked: [], torn: null }; // torn: bodies end midway: "held" open or "cut"
  const bad = (text) => (hostile ? `${text} ${HOSTILE}` : text);
  const id = (i) => (0x3fa9c1 + i * 7919).toString(16).padStart(6, "0") + "0".repeat(10);
  const models = ["small", "medium", "large"];
  const prompts = ["Answer in one word.", "Answer in one sentence, and name the rule that you used.", "Think first. Then answer in one word, and nothing else."];
  const params = (i) => ({ model: models[i % 3], temperature: Number((noise(i, 1) * 1.2).toFixed(2)), top_k: 1 + (i * 3) % 20, prompt: prompts[i % prompts.length] });
  const name = (i) => bad(i === 0 ? `${id(i).slice(0, 6)} defaults` : `${id(i).slice(0, 6)} model=${models[i % 3]} temperature=${params(i).temperature}`);
  const mean = (i) => 0.86 - (i / nCandidates) * 0.4;
  const interval = (i) => ({ mean: mean(i), low: mean(i) - 0.03 - noise(i) * 0.05, high: Math.min(1, mean(i) + 0.03 + noise(i) * 0.05) });
  const caseId = (k) => `case-${String(k + 1).padStart(4, "0")}`;
  const cell = (k, i) => {
    if (noise(k * 31 + i, 3) < Math.min(0.75, i / nCandidates)) return null;
    const failed = noise(k + i * 17, 5) < 0.04;
    const missing = noise(k + i * 13, 7) < 0.01;
    return { reward: missing ? null : failed ? 0 : Number(Math.min(1, Math.max(0, mean(i) + (noise(k, 9) - 0.5) * 0.5)).toFixed(3)), status: failed ? "error" : "ok", n: 1 + (k + i) % 2, fault: failed ? "candidate" : missing ? "infrastructure" : null };
  };
  const heading = (text, level = 2) => ({ is: "Heading", text, level });
  const span = (look, text, more = "") => ({ is: "Span", text, look, more });
  const p = (kind, ...parts) => ({ is: "Paragraph", parts, kind });
  const list = (...items) => ({ is: "Bullets", items });
  const grid = (columns, rows, numeric = [], folded = "") => ({ is: "Grid", columns, rows, numeric, folded });
  const plots = (...all) => ({ is: "Plots", plots: all });
  const action = (text, path, confirm, body = {}) => ({ is: "Action", text, path, confirm, body, ask: bad("It happens at once."), is_danger: false });
  const shown = (i) => { const { mean, low, high } = interval(i); return `${mean.toFixed(3)} [${low.toFixed(3)}, ${high.toFixed(3)}]`; };
  const runs = () => [["01JRUN", bad("support-answers-7f3a"), state.running ? "running" : "done", 1], ["01JOLD", "support-answers-22c1", "done", 6], ["01JSEA", "search-9b02", "interrupted", 9]];
  const report = () => {
    const curve = Array.from({ length: state.generation + 6 }, (_, g) => ({ x: g, y: 0.86 - 0.22 / (g + 1), y_ends: [0.74 - 0.1 / (g + 1), 0.95 - 0.22 / (g + 1)], tip: bad(`generation ${g}`) }));
    const effects = models.map((m, i) => ({ x: 0.65 + i * 0.05, y: i, x_ends: [0.62 + i * 0.05, 0.68 + i * 0.05], tip: bad(m) }));
    const front = [1, 3, 5, 8].map((i) => ({ x: 0.5 - i * 0.04, y: mean(i), x_ends: [0.1, 0.6], y_ends: [mean(i) - 0.03, mean(i) + 0.03], tip: name(i), candidate_id: id(i) }));
    return [
      heading("Result"),
      { is: "Paragraph", kind: "lead", parts: [bad("Better than the defaults: +0.084 [+0.041, +0.127] on 48 held-out cases.")] },
      { is: "Paragraph", kind: "text", parts: ["Next: ", span("code", bad("convergence promote support-answers"))] },
      { is: "Grid", columns: ["test case", "default", "scores"], rows: [0, 1].map((k) => [bad(caseId(k)), span("long", bad("Yes, within 30 days. ".repeat(9))), `0.${k}00`]), numeric: [2], folded: "" },
      heading("Search by generation"),
      plots(
        { name: "learning_curve", title: "Mean reward by generation", x: { title: "generation", kind: "whole" }, y: { title: "mean reward" }, layers: [{ points: curve, mark: "band" }, { points: curve.map((p) => ({ ...p, y_ends: null })), mark: "line", label: "recommended so far (search)" }, { points: curve.map((p) => ({ ...p, y: p.y - 0.1, y_ends: null, tip: "" })), mark: "line", colour: "dot", is_dashed: true, label: "average of the generation (search)" }] },
        { name: "spend", title: "Calls by generation", x: { title: "generation", kind: "whole" }, y: { title: "calls so far", kind: "whole", low: 0 }, right: { title: "USD so far", low: 0 }, layers: [{ points: curve.map((p) => ({ ...p, y: 130 * (p.x + 1), y_ends: null })), mark: "steps", colour: "dot", label: "calls so far" }, { points: curve.map((p) => ({ ...p, y: 0.2 * (p.x + 1), y_ends: null })), mark: "steps", colour: "default", is_right: true, label: "USD so far" }] },
      ),
      { is: "Grid", columns: ["generation", "calls so far"], rows: curve.map((p) => [String(p.x), String(130 * (p.x + 1))]), numeric: [0, 1], folded: "9 generations in numbers" },
      heading("Parameter effects"),
      plots({ name: "effect0", title: "Mean reward by model", heading: bad("model"), height: 2.3, y: { names: models.map(bad) }, layers: [{ points: [{ x: 0.7, y: -0.5 }, { x: 0.7, y: 2.5 }], mark: "line", colour: "muted", weight: "faint", is_dashed: true }, { points: effects }, { points: effects.slice(0, 1), is_hollow: true }] }),
      heading("The front of trade-offs"),
      plots({ name: "front", title: "The front of trade-offs with its intervals", x: { title: bad("cost") }, y: { title: "reward" }, layers: [{ points: front, label: "on the front" }, { points: front.map((p) => ({ ...p, y: p.y - 0.05, x_ends: null, y_ends: null })), colour: "dot", weight: "faint", label: "dominated" }] }),
      heading("What thoughts were worth"),
      { is: "Bullets", items: [[bad("Thoughts made outcomes likelier by 0.021 nats on average.")], [span("marked", bad("marked")), span("link", bad("https://example.org/")), span("link", "javascript:window.hacked=1")]] },
      heading(bad("rewrite"), 3),
      { is: "TextDiff", lines: [bad("@@ -1 +1 @@"), bad("-Answer."), bad("+Answer in one word.")] },
      { is: "Texts", rows: [[bad("prompt"), [bad("Think first.")]]] },
    ];
  };
  const api = {
    overview: () => ({ blocks: empty ? [p("text", "This store holds no run yet. Next: ", span("code", "convergence optimize"))] : [
      p("note", "3 runs of 2 systems in ", span("code", "/data/results")),
      heading("Needs your attention"),
      list([span("link", bad("support-answers: 3fc8b0 passed the promotion gate and waits for a person."), "runs/01JRUN"), " ", span("code", "convergence promote support-answers")], [span("link", "support-answers: the mean reward of all arms fell.", "production/support-answers")]),
      heading("Systems"),
      grid(["system", "runs", "champion"], [[span("link", "support-answers", "production/support-answers"), "2", span("code", name(1))], ["search", "1", "none yet: the defaults are in production"]], [1]),
      heading("Runs"),
      grid(["run", "", "reward, with its interval", "configuration", "status", "spent", "generations", "started"], runs().map(([id, label, status, i]) => [span("link", label, `runs/${id}`), span("link", "answers", `runs/${id}/answers`), shown(i), span("code", name(i)), span("tag", status), "$1.84 of $5.00 (36.8 %)", "3", span("time", "2026-11-24T03:00:00Z")]), [6]),
    ] }),
    runs: () => ({ runs: runs().map(([run_id, label, status, i]) => ({ run_id, label, status, best: interval(i) })) }),
    "": () => ({ title: bad("support-answers-7f3a"), blocks: [
      p("text", span("tag", state.running ? "running" : "done"), " support-answers, started ", span("time", "2026-11-24T03:00:00Z"), " ", action(state.running ? "Stop" : "Resume", "runs/01JRUN/stop", "support-answers-7f3a")),
      grid([bad("reward of prompt 2, on held-out cases"), "spent", "configurations in 3 generations, 24 test cases", "evaluations, 31 failed, 4 missing"], [[shown(1), "$1.84 of $5.00 (36.8 %)", String(nCandidates), String(nCandidates * nCases)]]),
      p("note", "Why it ended: max_generations: 8 generations are done"),
      ...(state.running ? [heading("Progress"), p("text", `Generation ${state.generation} of 8: 312 evaluations settled.`)] : []),
      ...report(),
    ] }),
    leaderboard: () => ({ level: 0.95, note: "Posterior means with 95 % intervals, adjusted for the cases that each configuration was asked.", parameters: [{ name: "model", kind: "choice" }, { name: "temperature", kind: "float" }, { name: "top_k", kind: "int" }, { name: "prompt", kind: "choice" }], rows: Array.from({ length: nCandidates }, (_, i) => ({ rank: i + 1, candidate_id: id(i), name: name(i), params: params(i), ...interval(i), n_cells: Math.round(nCases * (1 - 0.7 * i / nCandidates)), n_cases: nCases, n_failed: Math.round(noise(i) * 3), origin: i ? ["sample", "mutation", "crossover"][i % 3] : "default", generation: i % 8, metrics: { exact: mean(i), latency_ms: 400 + 900 * noise(i), cost_usd: 0.001 + 0.004 * noise(i, 2) }, tags: i === 0 ? ["default"] : i === 1 ? ["recommended"] : [] })) }),
    allocation: () => { const out = { candidates: [], cases: Array.from({ length: nCases }, (_, k) => caseId(k)), case_names: Array.from({ length: nCases }, (_, k) => `row ${k + 1}`), candidate: [], case: [], n: [], reward: [] }; for (let i = 0; i < nCandidates; i++) { out.candidates.push({ candidate_id: id(i), name: name(i) }); for (let k = 0; k < nCases; k++) { const c = cell(k, i); if (c) { out.candidate.push(i); out.case.push(k); out.n.push(c.n); out.reward.push(c.reward); } } } return out; },
    answers: (q) => {
      let cases = Array.from({ length: nCases }, (_, k) => k);
      if (q.get("filter") === "failed") cases = cases.filter((k) => Array.from({ length: Math.min(40, nCandidates) }, (_, i) => cell(k, i)).some((c) => c?.fault));
      if (q.get("filter") === "worst") cases.sort((a, b) => noise(a, 9) - noise(b, 9));
      if (q.get("search")) cases = cases.filter((k) => `${caseId(k)} may a customer return it ${k}`.includes(q.get("search")));
      const [k0, nk, i0, ni] = ["case_from", "n_cases", "candidate_from", "n_candidates"].map((key) => Number(q.get(key) ?? 0));
      const ks = cases.slice(k0, k0 + nk);
      const is = Array.from({ length: Math.max(0, Math.min(ni, nCandidates - i0)) }, (_, j) => i0 + j);
      return { n_cases: empty ? 0 : cases.length, n_candidates: nCandidates, case_from: k0, candidate_from: i0, cases: ks.map((k) => ({ case_id: caseId(k), name: bad(caseId(k)), role: k % 5 ? "search" : "holdout", title: bad(`May a customer return it after ${k} days?`), mean: 0.7 })), candidates: is.map((i) => ({ candidate_id: id(i), name: name(i), ...interval(i), tags: i === 0 ? ["default"] : [] })), cells: ks.map((k) => is.map((i) => cell(k, i))) };
    },
    cell: (q) => {
      const i = Math.max(0, Array.from({ length: nCandidates }, (_, j) => id(j)).indexOf(q.get("candidate")));
      const answer = long ? "Yes. ".repeat(1_000_000) : `Yes, within ${30 + i} days, if the seal is whole.`;
      return { candidate: { candidate_id: id(i), name: name(i), params: params(i) }, case_id: q.get("case"), case_name: q.get("case"), role: "search", kind: "search", input: bad("May a customer return opened headphones after 20 days?"), expected: "Yes, within 30 days.", repeats: [0, 1].map((r) => ({ eval_id: `e${r}`, replicate: r, generation: 2, status: "ok", reward: r ? 1 : 0.5, error: null, fault: null, cached: r === 1, prompt: JSON.stringify({ body: { messages: [{ role: "system", content: params(i).prompt }, { role: "user", content: bad("May a customer return opened headphones after 20 days?") }] } }), answer: bad(answer), prompt_bytes: 200, answer_bytes: answer.length, prompt_url: null, answer_url: long ? "/ui/api/x" : null, metrics: [{ name: "exact", value: 0.5, unit: null }], judgements: [{ metric: "helpful", order: "answer first", value: 0.8, reason: bad("It names the rule and the period.") }, { metric: "helpful", order: "answer second", value: 0.6, reason: bad("The condition is not in the rules.") }], tokens_in: 180, tokens_out: 22, cost_usd: r ? 0 : 0.00042, latency_ms: 812, attempts: [{ attempt: 1, purpose: "evaluation", state: "failed", model: "medium", error_type: "http_429", cost_usd: 0, started_at: "2026-11-24T03:10:00Z", ms: 120 }, { attempt: 2, purpose: "evaluation", state: "done", model: "medium", error_type: null, cost_usd: 0.00042, started_at: "2026-11-24T03:10:02Z", ms: 812 }] })) };
    },
    compare: () => ({ blocks: [
      { is: "Heading", text: bad("A: defaults; B: recommended"), level: 2 }, { is: "Paragraph", parts: ["On the 24 search cases that both answered, B's mean reward is above A's by +0.062 [+0.018, +0.106]."], kind: "lead" },
      { is: "Grid", columns: ["mean reward on", "A", "B", "B minus A"], rows: [["held-out cases", "0.610", "0.672", "+0.062 [+0.018, +0.106]"]], numeric: [1, 2, 3], folded: "" },
      { is: "Heading", text: "Parameters that differ", level: 2 }, { is: "Grid", columns: ["parameter", "A", "B"], rows: [[span("code", "model"), span("code", bad("small")), span("code", "large")]], numeric: [], folded: "" },
    ], cases: Array.from({ length: Math.min(nCases, 200) }, (_, k) => ({ case_id: caseId(k), name: bad(caseId(k)), kind: "search", expected: bad("Yes, within 30 days."), input: bad("May a customer return it?"), a: { reward: Number(noise(k, 2).toFixed(2)), text: bad("Yes, within 30 days."), latency_ms: 820 + k, cost_usd: 0.0021 }, b: { reward: Number(Math.min(1, noise(k, 2) + noise(k, 4) * 0.3 - 0.1).toFixed(2)), text: bad("Yes, within 14 days, with a receipt."), latency_ms: null, cost_usd: null } })), best: { kind: "held out", n_cases: nCases, a: 0.61, b: 0.672 }, per_answer: { a: { latency_ms: 820, cost_usd: 0.0021 }, b: { latency_ms: 640, cost_usd: 0.0034 } }, parameters: ["model", "temperature", "prompt"].map((p) => ({ name: p, a: params(0)[p], b: params(1)[p] })) }),
    prompts: () => ({ parameters: ["prompt"], parameter: "prompt", nodes: [0, 1, 2, 3, 4].map((i) => ({ id: `p${i}`, parents: i ? [`p${(i - 1) >> 1}`] : [], text: bad(`${prompts[Math.min(2, i % 3)]} Rule ${i}.`), generation: i, origin: i ? "mutation" : "default", name: name(i), candidate_ids: [id(i)], ...interval(i), effect: i ? { mean: 0.02, text: "+0.020 ± 0.030", n_shared: 24 } : null, operator: i ? "rewrite" : null, number: `#${i + 1}`, failures: i ? [{ case_id: caseId(i), name: bad(caseId(i)) }] : [], reason: null, tags: i === 0 ? ["default"] : [] })) }),
    production: () => ({ blocks: empty ? [p("text", "Nothing is in production yet. Next: ", span("code", "convergence serve optimization.yaml"))] : [
      p("tabs", span("link", "support-answers", "production/support-answers"), span("link", bad("search"), "production/search")),
      heading("Live"), p("lead", bad("Live since 2026-11-23 08:00:00 UTC: large · prompt 2, with 70 % of the requests, 4,000 rewards.")), list(["2 challengers get requests."]),
      heading("Arms"), p("text", action("Roll back", "production/support-answers/rollback", "support-answers")),
      grid(["configuration", "state", "share", "decisions", "evidence", "arm", ""], [1, 2, 3].map((i) => [name(i), span("tag", i === 1 ? "champion" : "active"), `${[0, 70, 20, 10][i]} %`, "4,100", "3.2 of 20", span("code", id(i)), i === 1 ? "" : action("Promote", "production/support-answers/promote", "support-answers", { candidate_id: id(i) })]), [2, 3, 4]),
      heading("Reward"), plots({ name: "reward", title: "Reward over time", x: { kind: "time" }, y: {}, height: 2.3, layers: [{ mark: "line", points: Array.from({ length: 60 }, (_, t) => ({ x: Date.UTC(2026, 10, 20, t), y: 0.8 + noise(t) * 0.1, tip: bad(`hour ${t}`) })) }] }),
      heading("Alarms"), list([bad("The mean reward of all arms fell."), " ", span("time", "2026-11-22T10:00:00Z")]),
    ] }),
    review: () => ({ why_not: empty ? "Cases are approved into the file of a configuration: name it with `--config optimization.yaml`." : null, system: empty ? null : "support", fields: ["question", "tone"], n_proposed: empty ? 0 : 2, proposed: empty ? [] : [1, 2].map((k) => ({ interaction_id: `a${k}`, case_id: `feedback-a${k}`, prompt: bad("When do I prune roses?"), answer: bad("In October."), marks: bad("1 Poor: wrong month"), role: bad("gardener"), model: bad("small"), adapter_version: "gardener-0001", at: "2026-11-24T10:00:00Z" })), decided: empty ? [] : [{ interaction_id: "a0", decision: "approved", case_id: "feedback-a0", at: "2026-11-23T10:00:00Z" }] }),
    conversations: () => ({ conversations: empty ? [] : [1, 2].map((k) => ({ conversation_id: `c${k}`, user_id: "ada", role: bad("gardener"), n_answers: 3, at: "2026-11-24T10:00:00Z", title: bad("When do I prune roses?") })) }),
    conversation: () => ({ conversation_id: "c1", user_id: "ada", role: bad("gardener"), answers: [0, 0, 1].map((before, k) => ({ interaction_id: `a${k}`, question: bad(before ? "And tulips?" : "When do I prune roses?"), n_before: before, answer: bad("In March, when the forsythia blooms."), model: bad("small"), adapter_version: k ? "gardener-0001" : null, at: "2026-11-24T10:00:00Z", is_better: k === 1, mark: k === 2 ? null : { rating: 4, thumbs: null, label: "4 Excellent", reason: bad("short") } })) }),
    training: () => ({ blocks: empty ? [p("text", "No answer is rated yet."), list(...["convergence init tutor --template local-chat", "convergence chat", "convergence train"].map((one) => [span("code", one)]))] : [
      p("tabs", span("link", "assistant", "training/assistant"), span("link", bad("gardener"), "training/gardener")),
      heading("Now"), p("lead", "assistant-0002 answers for the role assistant."), list([bad("72 answers, 70 rated.")]),
      heading("Adapters"), p("text", { ...action("Roll back", "training/assistant/rollback", "assistant"), is_danger: true }),
      ...["rejected", "active", "inactive"].flatMap((status, i) => {
        const checks = ["weights", "kl", "reward", "server"].map((one) => [span("tag", status === "rejected" && one === "kl" ? "no" : "yes"), span("code", one), one === "kl" ? "0.41 [0.35, 0.47] nat" : "0.41", "1.5", bad(`${one} is judged; the answers must stay close to the incumbent's.`)]);
        return [
          heading(`assistant-000${3 - i}`, 3),
          p("text", span("tag", status, bad("its meaning")), bad(` assistant-000${3 - i} is ${status}: passed every check`), ...(status === "inactive" ? [" ", action("Activate", "training/assistant/activate", "assistant-0001")] : [])),
          grid(["passed", "check", "measured [95 % interval]", "limit", "verdict"], checks, [3], status === "active" ? "" : status === "rejected" ? "1 of 4 checks not passed" : "4 checks passed"),
        ];
      }),
      heading("Ratings over time"), plots({ name: "rewards", title: "Mean reward of consecutive ratings over time", height: 2.5, x: { kind: "time" }, y: { low: -1, high: 1 }, layers: [{ mark: "band", points: Array.from({ length: 9 }, (_, t) => ({ x: Date.UTC(2026, 10, 20, 4 * t), y: 0.1 * t, y_ends: [0.1 * t - 0.3, 0.1 * t + 0.3] })) }, { mark: "line", colour: "muted", is_dashed: true, points: [{ x: Date.UTC(2026, 10, 20, 9), y: -1 }, { x: Date.UTC(2026, 10, 20, 9), y: 1, tip: bad("assistant-0001 is activated") }] }] }),
      heading("Answers by adapter"), grid(["adapter", "answers", "mean reward"], [["none", "24", "−0.300 [−0.500, −0.100]"], [span("code", "assistant-0002"), "24", "+0.300 [+0.100, +0.500]"]], [1, 2]),
      heading("Training rounds"), plots(...[3, 1].map((k) => ({ name: `loss-r${k}`, title: `Loss of each step, assistant-000${k}`, heading: bad(`assistant-000${k}`), height: 2.3, x: { title: "step", kind: "whole" }, y: { title: "loss" }, layers: [{ mark: "line", points: Array.from({ length: 60 }, (_, s) => ({ x: s + 1, y: 1 / (1 + s), tip: `step ${s + 1}` })) }] }))),
      grid(["started", "took", "status", "adapter", "rows", "result"], [3, 2, 1].map((k) => [span("time", "2026-11-20T08:00:00Z"), ["", "59.0 s", "1 h 2 min", "2 min 7 s"][k], span("tag", k === 3 ? "failed" : "done"), span("code", `assistant-000${k}`), "36", bad("passed every check")]), [4]),
      heading("Raters"), list([bad("ann (rating): +0.25 [+0.10, +0.40] against the average rater, noise 0.31, 72 marks, 36 of them shared")]),
    ] }),
    session: () => ({ csrf: "c", can_write: false, why_not: whyNot, chat: null, store: "/data/results", version: "0.1.0" }),
    "sql/questions": () => ({ questions: [{ title: "Which configurations are best?", sql: "SELECT name, mean, low, high FROM leaderboard ORDER BY mean DESC" }, { title: "What did each model cost?", sql: "SELECT model, sum(cost_usd) AS usd\nFROM attempts\nGROUP BY model" }], tables: { runs: ["run_id", "name"], attempts: ["model", "cost_usd"] } }),
    sql: (q) => q.get("q").includes("DROP") ? { $status: 400, detail: "Only one SELECT is answered." } : { columns: [{ name: "name", type: "VARCHAR" }, { name: "mean", type: "DOUBLE" }], rows: Array.from({ length: 30 }, (_, i) => [name(i % nCandidates), mean(i % nCandidates)]), n_rows: 30, cut: false, ms: 4.2 },
  };
  const listeners = new Set();
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://x");
    response.setHeader("Content-Security-Policy", POLICY);
    const path = decodeURIComponent(url.pathname);
    if (path === "/ui/api/events") {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(": here\n\n");
      listeners.add(response);
      return request.on("close", () => listeners.delete(response));
    }
    if (path.startsWith("/ui/api/")) {
      const rest = path.slice(8).replace(/^runs\/[^/]+\/?/, "");
      state.asked.push(rest);
      if (request.method === "POST") return json(response, 403, { detail: "This token has not the scope admin." });
      const found = api[rest];
      const body = found?.(url.searchParams);
      return body === undefined ? json(response, 404, { detail: "Nothing is here." }) : json(response, body.$status ?? 200, body);
    }
    const file = path.startsWith("/ui/static/") ? normalize(path.slice(11)) : "index.html";
    try {
      const body = readFileSync(join(STATIC, file));
      response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  const json = (response, status, body) => {
    const text = JSON.stringify(body);
    response.writeHead(status, { "Content-Type": "application/json" });
    if (!state.torn) return response.end(text);
    response.write(text.slice(0, text.length / 2), () => state.torn === "cut" && setImmediate(() => response.destroy()));
  };
  return {
    state,
    tell: (data) => listeners.forEach((one) => one.write(`event: generation\ndata: ${JSON.stringify(data)}\n\n`)),
    open: () => new Promise((done) => server.listen(0, "127.0.0.1", () => done(`http://127.0.0.1:${server.address().port}/ui/`))),
    close: () => { listeners.forEach((one) => one.end()); server.closeAllConnections(); server.close(); },
  };
}
