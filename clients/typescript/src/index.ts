/**
 * Client for The Convergence's HTTP service.
 *
 * Types come from the service's OpenAPI document (`schema.ts` is generated). `RLInterface` calls a policy of prompt
 * changes, `RLTrainer` trains one, and `ServiceClient` chooses arms and reports their rewards.
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
/** Outcome of an action, without the decision's ids. */
export type Transition = Omit<Schemas["TransitionBody"], "next_state"> &
  ({ next_state: number[] } | { nextState: number[] });
export type Outcome = Pick<Schemas["ExperienceReport"], "reward"> &
  Partial<Pick<Schemas["ExperienceReport"], "terminated" | "truncated" | "final">>;
export type Statistics = Schemas["UpdateStatistics"];
export type PolicyStats = Schemas["PolicyStatsAnswer"];

/** Request that the service rejected. */
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
  /** Base URL of the service. */
  url: string;
  /** Bearer token; read it from the environment. */
  token: string;
}

/** Return a prompt's mean score in [0, 1], on the same cases each time. */
export type Score = (prompt: string) => number | Promise<number>;

export interface PolicyOptions {
  /** Base URL of the policy. Default: the URL of `convergence policy serve`. */
  url?: string;
  /** Bearer token. Default: `CONVERGENCE_POLICY_TOKEN`. A local service may need none. */
  token?: string;
  /** Command that starts the service. Default: `convergence policy serve` on the port of `url`. */
  command?: readonly string[];
  /** Scores prompts. Default: the mock `wishScore`. */
  score?: Score;
}

const URL_OF_POLICY = "http://127.0.0.1:8765";
const TOKEN_OF_POLICY = "CONVERGENCE_POLICY_TOKEN";
const WISHES = [/\b(only|exactly)\b/i, /\bsteps?\b/i, /\bif\b/i, /\b(at most|limit|short|brief)/i];

/** Mock score: the share of four wishes that a prompt states. It calls no model. */
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

/** Client that chooses arms for requests and reports their rewards. */
export class ServiceClient {
  protected readonly http: Client<paths>;

  constructor({ url, token }: ClientOptions) {
    this.http = connected(url, token);
  }

  /** Choose an arm for a request and store the decision durably. */
  async select(system: string, body: Schemas["SelectBody"]): Promise<Schemas["Selection"]> {
    const params = { path: { system } };
    return answered(await this.http.POST("/v1/systems/{system}/select", { params, body }));
  }

  /** Report a decision's reward. A repeated report counts once. */
  async update(system: string, body: Schemas["Reward"]): Promise<Schemas["RewardOutcome"]> {
    const params = { path: { system } };
    return answered(await this.http.POST("/v1/systems/{system}/update", { params, body }));
  }

  /** List all arms, including retired ones. */
  async arms(system: string): Promise<Schemas["Arm"][]> {
    const params = { path: { system } };
    return answered(await this.http.GET("/v1/systems/{system}/arms", { params })).arms;
  }

  /** Activate an arm. */
  async offer(system: string, armId: string, body: Schemas["ArmBody"]): Promise<Schemas["Arm"]> {
    const params = { path: { system, arm_id: armId } };
    return answered(await this.http.PUT("/v1/systems/{system}/arms/{arm_id}", { params, body }));
  }

  /** Log an answer so that people can rate it. */
  async log(body: Schemas["ReportedAnswer"]): Promise<Schemas["InteractionAnswer"]> {
    return answered(await this.http.POST("/v1/interactions", { body }));
  }

  /** Rate a logged answer from 1 to 5. */
  async rate(interactionId: string, body: Schemas["Mark"]): Promise<Schemas["RatingAnswer"]> {
    const params = { path: { interaction_id: interactionId } };
    return answered(await this.http.POST("/v1/interactions/{interaction_id}/rating", { params, body }));
  }
}

/** Client for a policy of prompt changes. */
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

  /** Start the service with `command`, switch this client to it and return its URL. */
  async startServer(): Promise<string> {
    await this.stopServer();
    const given = this.token === undefined ? {} : { [TOKEN_OF_POLICY]: this.token };
    this.service = await ServiceProcess.start(this.command, given);
    this.http = connected(this.service.url, this.token);
    return this.service.url;
  }

  /** Stop the service that this client started, once it has finished its pending answers. */
  async stopServer(): Promise<void> {
    const service = this.service;
    this.service = undefined;
    this.http = connected(this.url, this.token);
    await service?.stop();
  }

  /** Check that the service is running. */
  async health(): Promise<Schemas["HealthAnswer"]> {
    return answered(await this.http.GET("/health"));
  }

  /** Return the policy's statistics. */
  async stats(): Promise<PolicyStats> {
    return answered(await this.http.GET("/stats"));
  }

  /** Choose a prompt's next change. If you pass `prompt` without an embedding, the service computes it. */
  async selectAction(embedding: number[] | null, state: State = {}): Promise<ChosenAction> {
    return answered(await this.http.POST("/select_action", { body: { ...state, embedding } }));
  }

  /** Choose a prompt's next change and have the service write the changed prompt. */
  async selectMutation(prompt: string, request: MutationRequest = {}): Promise<Mutation> {
    return answered(await this.http.POST("/select_mutation", { body: { ...request, prompt } }));
  }

  /** Store a transition, or a decision's outcome. A decision counts once. */
  async storeExperience(experience: Transition): Promise<Schemas["ExperienceReceipt"]>;
  async storeExperience(chosen: ChosenAction, outcome: Outcome): Promise<Schemas["ExperienceReceipt"]>;
  async storeExperience(
    given: ChosenAction | Transition,
    outcome?: Outcome,
  ): Promise<Schemas["ExperienceReceipt"]> {
    const body = "decision_id" in given ? reported(given, outcome) : transition(given as Transition);
    return answered(await this.http.POST("/store_experience", { body }));
  }

  /** Update the policy from the ready steps. Return `null` if there are too few. */
  async update(): Promise<Statistics | null> {
    return answered(await this.http.POST("/update")).statistics;
  }

  /** Return each action's probability without storing anything. */
  async getDistribution(state: Schemas["PolicyQuestion"]): Promise<Record<string, number>> {
    return answered(await this.http.POST("/get_distribution", { body: state })).probabilities;
  }

  /** Save the policy under a name; return whether it was saved. */
  async saveCheckpoint(path?: string): Promise<boolean> {
    return this.isDone(await this.http.POST("/save", { body: named(path) }));
  }

  /** Load a saved policy; return whether it was loaded. */
  async loadCheckpoint(path?: string): Promise<boolean> {
    return this.isDone(await this.http.POST("/load", { body: named(path) }));
  }

  /** Change one of the prompts until the policy stops or the step limit is reached. Report each step. */
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
  /** Final prompt. */
  prompt: string;
  actions: Action[];
  /** Scores of the first prompt and after each change. */
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
  /** Mean gain per episode: last score minus first score. */
  avgReward: number;
}

/** Policy methods that a trainer uses. */
export type TrainedPolicy = Pick<RLInterface, "startServer" | "stopServer" | "trainEpisode" | "update">;

/** Trainer that plays episodes on prompts and updates the policy from them. */
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

  /** Play episodes on the prompts in turn, and update the policy every few episodes. */
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
