/**
 * Client of the HTTP service of The Convergence.
 *
 * The types are those of the service's OpenAPI document (`schema.ts` is generated). `RLInterface` asks a policy of
 * prompt changes, `RLTrainer` trains one; `ServiceClient` asks for arms and gives their rewards.
 */
import createClient, { type Client } from "openapi-fetch";

import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Action = Schemas["ActionAnswer"]["action"];
export type ChosenAction = Schemas["ActionAnswer"];
export type Mutation = Schemas["MutationAnswer"];
export type State = Omit<Schemas["ActionBody"], "embedding">;
export type MutationRequest = Omit<Schemas["MutationBody"], "prompt">;
export type Outcome = Pick<Schemas["ExperienceBody"], "reward"> &
  Partial<Pick<Schemas["ExperienceBody"], "terminated" | "truncated" | "final">>;
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

interface Result<T> {
  data?: T | undefined;
  error?: unknown;
  response: Response;
}

function connected(options: ClientOptions): Client<paths> {
  if (!options.token) throw new TypeError("`token` must be the bearer token, but it is empty");
  const headers = { Authorization: `Bearer ${options.token}` };
  return createClient<paths>({ baseUrl: options.url, headers });
}

function answered<T>({ data, error, response }: Result<T>): T {
  if (response.ok && data !== undefined) return data;
  const detail = (error as { detail?: unknown } | undefined)?.detail;
  throw new ServiceError(response.status, typeof detail === "string" ? detail : response.statusText);
}

/** Arms for requests, and their rewards. */
export class ServiceClient {
  protected readonly http: Client<paths>;

  constructor(options: ClientOptions) {
    this.http = connected(options);
  }

  /** Choose an arm for a request; the decision is durable then. */
  async select(system: string, body: Schemas["SelectBody"]): Promise<Schemas["Selection"]> {
    const params = { path: { system } };
    return answered(await this.http.POST("/v1/systems/{system}/select", { params, body }));
  }

  /** Give the reward of a decision; the same one again counts once. */
  async update(system: string, body: Schemas["UpdateBody"]): Promise<Schemas["RewardOutcome"]> {
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
  async log(body: Schemas["InteractionBody"]): Promise<Schemas["InteractionAnswer"]> {
    return answered(await this.http.POST("/v1/interactions", { body }));
  }

  /** Rate a logged answer from 1 to 5. */
  async rate(interactionId: string, body: Schemas["RatingBody"]): Promise<Schemas["RatingAnswer"]> {
    const params = { path: { interaction_id: interactionId } };
    return answered(await this.http.POST("/v1/interactions/{interaction_id}/rating", { params, body }));
  }
}

/** The policy of prompt changes. */
export class RLInterface {
  private readonly http: Client<paths>;

  constructor(options: ClientOptions) {
    this.http = connected(options);
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

  /** Report what came of an action, durably; the same again counts once. */
  async storeExperience(chosen: ChosenAction, outcome: Outcome): Promise<Schemas["ExperienceAnswer"]> {
    const { decision_id, episode_id, step } = chosen;
    if (decision_id === null) {
      throw new TypeError("`chosen` must be drawn, for nothing is learned from a deterministic action");
    }
    const ends = { terminated: false, truncated: false, ...outcome };
    const body = { decision_id, episode_id, step, ...ends };
    return answered(await this.http.POST("/store_experience", { body }));
  }

  /** Learn from the steps that are ready; `null`: too few are. */
  async update(): Promise<Statistics | null> {
    return answered(await this.http.POST("/update")).statistics;
  }

  /** Return the probability of each action; nothing is kept. */
  async getDistribution(state: Schemas["StateBody"]): Promise<Record<string, number>> {
    return answered(await this.http.POST("/get_distribution", { body: state })).probabilities;
  }

  /** Save the policy under a name; return whether it was saved. */
  async save(name: string): Promise<boolean> {
    return this.isDone(await this.http.POST("/save", { body: { name } }));
  }

  /** Go on with a saved policy; return whether it was loaded. */
  async load(name: string): Promise<boolean> {
    return this.isDone(await this.http.POST("/load", { body: { name } }));
  }

  private isDone(result: Result<unknown>): boolean {
    if ([404, 409, 422].includes(result.response.status)) return false;
    answered(result);
    return true;
  }
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
  episodes?: number;
  episodeLength?: number;
  updateInterval?: number;
  onEpisode?: (result: EpisodeResult) => void;
}

/** Plays episodes on prompts, and has the policy learn from them. */
export class RLTrainer {
  constructor(
    private readonly policy: RLInterface,
    /** Prompt → its mean score on the same cases each time, in [0, 1]. */
    private readonly score: (prompt: string) => number | Promise<number>,
  ) {}

  /** Change one of the prompts until the policy stops or the steps are done, and report each step. */
  async trainEpisode(prompts: readonly string[], maxSteps = 5, number = 0): Promise<EpisodeResult> {
    const start = prompts[number % prompts.length];
    if (start === undefined) throw new TypeError("`prompts` must hold one text or more");
    const whole = (await this.policy.stats()).max_steps;
    const steps = Math.min(maxSteps, whole);
    const actions: Action[] = [];
    let prompt = start;
    let score = await this.score(prompt);
    let episode: string | null = null;
    const scores = [score];
    for (let step = 0; step < steps; step++) {
      const state: MutationRequest = { history: [...actions], episode_id: episode, score, chooser: "ppo" };
      const chosen = await this.policy.selectMutation(prompt, state);
      episode = chosen.episode_id;
      actions.push(chosen.action);
      if (chosen.action === "stop") {
        await this.policy.storeExperience(chosen, { reward: 0, terminated: true });
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
      await this.policy.storeExperience(chosen, {
        reward: score - before,
        terminated: isLast && !isCut,
        truncated: isCut,
        final: isCut ? { prompt, history: [...actions], score } : null,
      });
    }
    return { start, prompt, actions, scores };
  }

  /** Play episodes on the prompts in turn, and update the policy after every few of them. */
  async train(
    prompts: readonly string[],
    { episodes = 100, episodeLength = 5, updateInterval = 10, onEpisode }: TrainingOptions = {},
  ): Promise<{ episodes: EpisodeResult[]; updates: Statistics[] }> {
    const played: EpisodeResult[] = [];
    const updates: Statistics[] = [];
    for (let number = 0; number < episodes; number++) {
      const result = await this.trainEpisode(prompts, episodeLength, number);
      played.push(result);
      onEpisode?.(result);
      if (played.length % updateInterval === 0) {
        const statistics = await this.policy.update();
        if (statistics !== null) updates.push(statistics);
      }
    }
    return { episodes: played, updates };
  }
}
