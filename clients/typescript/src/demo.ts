/**
 * Training demo. `npm run demo` simulates the policy without Python; `npm run demo -- --full` starts the service and
 * trains its policy.
 */
import { type Action, type EpisodeResult, RLTrainer, type Statistics, type TrainedPolicy, wishScore } from "./index.js";

const CHANGES: Readonly<Partial<Record<Action, string>>> = {
  "try-catch-style": "If the task cannot be done, say why.",
  expansion: "Consider the background of the question.",
  "constraint-addition": "Give the result only, at most 100 words.",
  "task-decomposition": "Work in steps.",
};
const ACTIONS = Object.keys(CHANGES) as Action[];
const RATE = 0.5;

/** In-process softmax policy: one preference per change, trained by policy gradient. */
class SimulatedPolicy implements TrainedPolicy {
  private readonly preferences = new Map<Action, number>(ACTIONS.map((action) => [action, 0]));
  private mean = 0;
  private count = 0;

  async startServer(): Promise<string> {
    return "simulated";
  }

  async stopServer(): Promise<void> {}

  async update(): Promise<Statistics | null> {
    return null;
  }

  async trainEpisode(prompts: readonly string[], maxSteps = 5, number = 0): Promise<EpisodeResult> {
    const start = prompts[number % prompts.length] ?? "";
    const actions: Action[] = [];
    const scores = [wishScore(start)];
    let prompt = start;
    for (let step = 0; step < Math.min(maxSteps, 2); step++) {
      const shares = this.shares(actions);
      const action = drawn(shares);
      prompt = `${prompt} ${CHANGES[action]}`;
      const reward = wishScore(prompt) - (scores.at(-1) ?? 0);
      this.learn(shares, action, reward);
      actions.push(action);
      scores.push(wishScore(prompt));
    }
    return { start, prompt, actions, scores };
  }

  private shares(used: readonly Action[]): Map<Action, number> {
    const weights = ACTIONS.filter((action) => !used.includes(action)).map(
      (action) => [action, Math.exp(this.preferences.get(action) ?? 0)] as const,
    );
    const sum = weights.reduce((total, [, weight]) => total + weight, 0);
    return new Map(weights.map(([action, weight]) => [action, weight / sum]));
  }

  private learn(shares: Map<Action, number>, action: Action, reward: number): void {
    this.count += 1;
    this.mean += (reward - this.mean) / this.count;
    for (const [other, share] of shares) {
      const gradient = (other === action ? 1 : 0) - share;
      this.preferences.set(other, (this.preferences.get(other) ?? 0) + RATE * (reward - this.mean) * gradient);
    }
  }
}

function drawn(shares: Map<Action, number>): Action {
  let left = Math.random();
  for (const [action, share] of shares) {
    left -= share;
    if (left < 0) return action;
  }
  return [...shares.keys()].at(-1) as Action;
}

const PROMPTS = ["Answer the question of {user}.", "Sum up: {text}"];
const args = (globalThis as unknown as { process: { argv: string[] } }).process.argv;
const isFull = args.includes("--full");
const trainer = isFull ? new RLTrainer() : new RLTrainer(new SimulatedPolicy());
console.log(isFull ? "Policy of the service; the scores are a stand-in." : "Simulated: no service, no model.");
await trainer.start();
try {
  for (let round = 1; round <= 5; round++) {
    const stats = await trainer.train(PROMPTS, 40, 5, 10);
    console.log(`episodes ${(round - 1) * 40 + 1} to ${round * 40}: mean reward ${stats.avgReward.toFixed(3)}`);
  }
} finally {
  await trainer.stop();
}
