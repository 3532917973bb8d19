/**
 * Client of the HTTP service of The Convergence.
 *
 * The types are those of the service's OpenAPI document (`schema.ts` is generated). `RLInterface` asks a policy of
 * prompt changes, `RLTrainer` trains one; `ServiceClient` asks for arms and gives their rewards.
 */
import createClient, { type Client } from "openapi-fetch";

import { environment, ServiceProcess } from "./process.js";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Action = Schemas["ChosenAction"]["action"];
export type ChosenAction = Schemas["ChosenAction"];
export type Mutation = Schemas["MutatedAction"];
export type State = Omit<Schemas["ActionRequest"], "embedding">;
export type MutationRequest = Omit<Schemas["MutationRequest"], "prompt">;
/** What came of an action, without the ids of the decision. */
export type Transition = Omit<Schemas["TransitionBody"], "next_state"> &
  ({ next_state: number[] } | { nextState: number[] });
export type Outcome = Pick<Schemas["ExperienceReport"], "reward"> &
  Partial<Pick<Schemas["ExperienceReport"], "terminated" | "truncated" | "final">>;
export type Statistics = Schemas["UpdateStatistics"];
export type PolicyStats = Schemas["PolicyStatsAnswer"];

/** A request that the service refused. */
export class ServiceError extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
  ) {
    super(`the service refused (${status}): ${detail}`);
    this.name = "ServiceError";
  }
}

export interface ClientOptions {
  /** Root of the service's paths. */
  url: string;
  /** The bearer token; read it from the environment. */
  token: string;
}

/** Prompt → its mean score on the same cases each time, in [0, 1]. */
export type Score = (prompt: string) => number | Promise<number>;

export interface PolicyOptions {
  /** Root of the policy's paths. Default: that of `convergence policy serve`. */
  url?: string;
  /** The bearer token. Default: `CONVERGENCE_POLICY_TOKEN`; a service on this machine may need none. */
  token?: string;
  /** Starts the service. Default: `convergence policy serve` at the port of `url`. */
  command?: readonly string[];
  /** Default: `wishScore`, a stand-in. */
  score?: Score;
}

const URL_OF_POLICY = "http://127.0.0.1:8765";
const TOKEN_OF_POLICY = "CONVERGENCE_POLICY_TOKEN";
const WISHES = [/\b(only|exactly)\b/i, /\bsteps?\b/i, /\bif\b/i, /\b(at most|limit|short|brief)/i];

/** Share of four wishes that a prompt states: a stand-in for a score of answers, which asks no model. */
export function wishScore(prompt: string): number {
  return WISHES.filter((wish) => wish.test(prompt)).length / WISHES.length;
}

interface Result<T> {
  data?: T | undefined;
  error?: unknown;
  response: Response;
}

function connected(url: string, token?: string): Client<paths> {
  if (token === "") throw new TypeError("`token` must be the bearer token, but it is empty");
  const headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
  return createClient<paths>({ baseUrl: url, headers });
}

function answered<T>({ data, error, response }: Result<T>): T {
  if (response.ok && data !== undefined) return data;
  const detail = (error as { detail?: unknown } | undefined)?.detail;
  throw new ServiceError(response.status, typeof detail === "string" ? detail : response.statusText);
}

/** Arms for requests, and their rewards. */
export class ServiceClient {
  protected readonly http: Client<paths>;

  constructor({ url, token }: ClientOptions) {
    this.http = connected(url, token);
  }

  /** Choose an arm for a request; the decision is durable then. */
  async select(system: string, body: Schemas["SelectBody"]): Promise<Schemas["Selection"]> {
    const params = { path: { system } };
    return answered(await this.http.POST("/v1/systems/{system}/select", { params, body }));
  }

  /** Give the reward of a decision; the same one again counts once. */
  async update(system: string, body: Schemas["Reward"]): Promise<Schemas["RewardOutcome"]> {
    const params = { path: { system } };
    return answered(await this.http.POST("/v1/systems/{system}/update", { params, body }));
  }

  /** List arms, those retired included. */
  async arms(system: string): Promise<Schemas["Arm"][]> {
    const params = { path: { system } };
    return answered(await this.http.GET("/v1/systems/{system}/arms", { params })).arms;
  }

  /** Put an arm on offer. */
  async offer(system: string, armId: string, body: Schemas["ArmBody"]): Promise<Schemas["Arm"]> {
    const params = { path: { system, arm_id: armId } };
    return answered(await this.http.PUT("/v1/systems/{system}/arms/{arm_id}", { params, body }));
  }

  /** Log an answer, so that people may rate it. */
  async log(body: Schemas["ReportedAnswer"]): Promise<Schemas["InteractionAnswer"]> {
    return answered(await this.http.POST("/v1/interactions", { body }));
  }

  /** Rate a logged answer from 1 to 5. */
  async rate(interactionId: string, body: Schemas["Mark"]): Promise<Schemas["RatingAnswer"]> {
    const params = { path: { interaction_id: interactionId } };
    return answered(await this.http.POST("/v1/interactions/{interaction_id}/rating", { params, body }));
  }
}

/** The policy of prompt changes. */
export class RLInterface {
  private http: Client<paths>;
  private service: ServiceProcess | undefined;
  private readonly url: string;
  private readonly token: string | undefined;
  private readonly command: readonly string[];
  private readonly score: Score;

  constructor({ url = URL_OF_POLICY, token, command, score = wishScore }: PolicyOptions = {}) {
    this.url = url;
    this.token = token ?? (environment[TOKEN_OF_POLICY] || undefined);
    const port = new URL(url).port || "8765";
    const named = this.token === undefined ? [] : ["--token", TOKEN_OF_POLICY];
    this.command = command ?? ["convergence", "policy", "serve", "--port", port, ...named];
    this.score = score;
    this.http = connected(url, this.token);
  }

  /** Start the service of `command`, use it from now on, and return its URL. */
  async startServer(): Promise<string> {
    await this.stopServer();
    const given = this.token === undefined ? {} : { [TOKEN_OF_POLICY]: this.token };
    this.service = await ServiceProcess.start(this.command, given);
    this.http = connected(this.service.url, this.token);
    return this.service.url;
  }

  /** Stop the service that this client started, after its open answers. */
  async stopServer(): Promise<void> {
    const service = this.service;
    this.service = undefined;
    this.http = connected(this.url, this.token);
    await service?.stop();
  }

  /** Say that the service lives. */
  async health(): Promise<Schemas["HealthAnswer"]> {
    return answered(await this.http.GET("/health"));
  }

  /** Return numbers of the policy. */
  async stats(): Promise<PolicyStats> {
    return answered(await this.http.GET("/stats"));
  }

  /** Choose the next change of a prompt; without an embedding `prompt` is given, and the service makes it. */
  async selectAction(embedding: number[] | null, state: State = {}): Promise<ChosenAction> {
    return answered(await this.http.POST("/select_action", { body: { ...state, embedding } }));
  }

  /** Choose the next change of a prompt, and have it written. */
  async selectMutation(prompt: string, request: MutationRequest = {}): Promise<Mutation> {
    return answered(await this.http.POST("/select_mutation", { body: { ...request, prompt } }));
  }

  /** Store an action's outcome: a transition, or a decision and its outcome, which counts once. */
  async storeExperience(experience: Transition): Promise<Schemas["ExperienceReceipt"]>;
  async storeExperience(chosen: ChosenAction, outcome: Outcome): Promise<Schemas["ExperienceReceipt"]>;
  async storeExperience(
    given: ChosenAction | Transition,
    outcome?: Outcome,
  ): Promise<Schemas["ExperienceReceipt"]> {
    const body = "decision_id" in given ? reported(given, outcome) : transition(given as Transition);
    return answered(await this.http.POST("/store_experience", { body }));
  }

  /** Learn from the steps that are ready; `null`: too few are. */
  async update(): Promise<Statistics | null> {
    return answered(await this.http.POST("/update")).statistics;
  }

  /** Return the probability of each action; nothing is kept. */
  async getDistribution(state: Schemas["PolicyQuestion"]): Promise<Record<string, number>> {
    return answered(await this.http.POST("/get_distribution", { body: state })).probabilities;
  }

  /** Save the policy under a name; return whether it was saved. */
  async saveCheckpoint(path?: string): Promise<boolean> {
    return this.isDone(await this.http.POST("/save", { body: named(path) }));
  }

  /** Go on with a saved policy; return whether it was loaded. */
  async loadCheckpoint(path?: string): Promise<boolean> {
    return this.isDone(await this.http.POST("/load", { body: named(path) }));
  }

  /** Change one of the prompts until the policy stops or the steps are done, and report each step. */
  async trainEpisode(prompts: readonly string[], maxSteps = 5, number = 0): Promise<EpisodeResult> {
    const start = prompts[number % prompts.length];
    if (start === undefined) throw new TypeError("`prompts` must hold at least one prompt, but is empty");
    const whole = (await this.stats()).max_steps;
    const steps = Math.min(maxSteps, whole);
    const actions: Action[] = [];
    let prompt = start;
    let score = await this.score(prompt);
    let episode: string | null = null;
    const scores = [score];
    for (let step = 0; step < steps; step++) {
      const state: MutationRequest = { history: [...actions], episode_id: episode, score };
      const chosen = await this.selectMutation(prompt, state);
      episode = chosen.episode_id;
      actions.push(chosen.action);
      if (chosen.action === "stop") {
        await this.storeExperience(chosen, { reward: 0, terminated: true });
        break;
      }
      const before = score;
      if (chosen.prompt !== null) {
        prompt = chosen.prompt;
        score = await this.score(prompt);
      }
      scores.push(score);
      const isLast = step === steps - 1;
      const isCut = isLast && steps < whole;
      await this.storeExperience(chosen, {
        reward: score - before,
        terminated: isLast && !isCut,
        truncated: isCut,
        final: isCut ? { prompt, history: [...actions], score } : null,
      });
    }
    return { start, prompt, actions, scores };
  }

  private isDone(result: Result<unknown>): boolean {
    if ([404, 409, 422].includes(result.response.status)) return false;
    answered(result);
    return true;
  }
}

function named(path?: string): Schemas["CheckpointBody"] {
  return path === undefined ? {} : { name: path };
}

function transition(given: Transition): Schemas["TransitionBody"] {
  const { state, action, reward, done } = given;
  return { state, action, reward, done, next_state: "nextState" in given ? given.nextState : given.next_state };
}

function reported(chosen: ChosenAction, outcome?: Outcome): Schemas["ExperienceReport"] {
  const { decision_id, episode_id, step } = chosen;
  if (outcome === undefined) throw new TypeError("`outcome` must be given beside a decision");
  if (decision_id === null) {
    throw new TypeError("`chosen` must be drawn, for nothing is learned from a deterministic action");
  }
  return { decision_id, episode_id, step, terminated: false, truncated: false, ...outcome };
}

export interface EpisodeResult {
  start: string;
  /** The last prompt. */
  prompt: string;
  actions: Action[];
  /** Of the first prompt and after each change. */
  scores: number[];
}

export interface TrainingOptions {
  numEpisodes?: number;
  episodeLength?: number;
  updateInterval?: number;
  onEpisode?: (result: EpisodeResult) => void;
}

export interface TrainingStats {
  episodes: EpisodeResult[];
  updates: Statistics[];
  /** Mean gain of an episode: its last score less its first one. */
  avgReward: number;
}

/** The part of a policy that a trainer uses. */
export type TrainedPolicy = Pick<RLInterface, "startServer" | "stopServer" | "trainEpisode" | "update">;

/** Plays episodes on prompts, and has the policy learn from them. */
export class RLTrainer {
  constructor(private readonly policy: TrainedPolicy = new RLInterface()) {}

  /** Start the policy's service. */
  async start(): Promise<void> {
    await this.policy.startServer();
  }

  /** Stop the service that `start` started. */
  async stop(): Promise<void> {
    await this.policy.stopServer();
  }

  /** Play episodes on the prompts in turn, and update the policy after every few of them. */
  async train(
    prompts: readonly string[],
    numEpisodes?: number,
    episodeLength?: number,
    updateInterval?: number,
  ): Promise<TrainingStats>;
  async train(prompts: readonly string[], options: TrainingOptions): Promise<TrainingStats>;
  async train(
    prompts: readonly string[],
    given?: number | TrainingOptions,
    length?: number,
    interval?: number,
  ): Promise<TrainingStats> {
    const options: TrainingOptions =
      typeof given === "object" ? given : { numEpisodes: given, episodeLength: length, updateInterval: interval };
    const { numEpisodes = 100, episodeLength = 5, updateInterval = 10, onEpisode } = options;
    const episodes: EpisodeResult[] = [];
    const updates: Statistics[] = [];
    let total = 0;
    for (let number = 0; number < numEpisodes; number++) {
      const result = await this.policy.trainEpisode(prompts, episodeLength, number);
      episodes.push(result);
      total += (result.scores.at(-1) ?? 0) - (result.scores[0] ?? 0);
      onEpisode?.(result);
      if (episodes.length % updateInterval === 0) {
        const statistics = await this.policy.update();
        if (statistics !== null) updates.push(statistics);
      }
    }
    return { episodes, updates, avgReward: episodes.length === 0 ? 0 : total / episodes.length };
  }
}
