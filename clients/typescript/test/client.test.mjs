// The client against a real service: its URL and token stand in POLICY_URL and POLICY_TOKEN.
import assert from "node:assert/strict";
import { test } from "node:test";

import { RLInterface, RLTrainer, ServiceClient, ServiceError } from "../dist/index.js";

const options = { url: process.env.POLICY_URL, token: process.env.POLICY_TOKEN };
const policy = new RLInterface(options);

test("an action is chosen, its outcome stored once, and its probabilities sum to 1", async () => {
  assert.equal((await policy.health()).status, "ok");
  const chosen = await policy.selectAction(null, { prompt: "Answer the question, please." });
  assert.equal(chosen.step, 0);
  assert.equal((await policy.storeExperience(chosen, { reward: 0.5, terminated: true })).status, "stored");
  assert.equal((await policy.storeExperience(chosen, { reward: 0.5, terminated: true })).status, "duplicate");
  await assert.rejects(
    policy.storeExperience(chosen, { reward: 0.7, terminated: true }),
    (error) => error instanceof ServiceError && error.status === 409 && /another outcome/.test(error.detail),
  );
  const shares = await policy.getDistribution({ prompt: "Answer the question." });
  const sum = Object.values(shares).reduce((total, one) => total + one, 0);
  assert.ok(Math.abs(sum - 1) < 1e-5);
  const greedy = await policy.selectAction(null, { prompt: "Answer it.", deterministic: true });
  await assert.rejects(policy.storeExperience(greedy, { reward: 0 }), TypeError);
});

test("a trainer plays episodes, updates the policy and saves it", async () => {
  const score = (prompt) => (prompt.includes("result only") ? 1 : 0.5);
  const trainer = new RLTrainer(new RLInterface({ ...options, score }));
  const seen = [];
  const { episodes, updates, avgReward } = await trainer.train(["Answer the question of {user}.", "Sum up: {text}"], {
    numEpisodes: 10,
    updateInterval: 5,
    onEpisode: (one) => seen.push(one),
  });
  assert.deepEqual(seen, episodes);
  assert.deepEqual(episodes.slice(0, 2).map((one) => one.start.slice(0, 3)), ["Ans", "Sum"]);
  for (const one of episodes) {
    assert.ok(one.actions.at(-1) === "stop" || one.actions.length === 5);
    assert.equal(new Set(one.actions).size, one.actions.length);
  }
  assert.ok(updates.length > 0);
  assert.equal((await policy.stats()).policy_version, updates.length);
  const gains = episodes.map((one) => one.scores.at(-1) - one.scores[0]);
  assert.ok(Math.abs(avgReward - gains.reduce((total, one) => total + one) / 10) < 1e-9);
  const short = await policy.trainEpisode(["Answer it now, please."], 1);
  assert.equal(short.actions.length, 1);
  assert.equal(await policy.loadCheckpoint("latest"), false);
  assert.equal(await policy.saveCheckpoint(), true);
  assert.equal(await policy.saveCheckpoint("first"), true);
  assert.equal(await policy.saveCheckpoint("../first"), false);
  assert.deepEqual((await policy.stats()).checkpoints, ["first", "latest"]);
  assert.equal(await policy.loadCheckpoint("first"), true);
  assert.equal(await policy.loadCheckpoint("second"), false);
  await assert.rejects(policy.trainEpisode([]), TypeError);
});

test("arms are offered, chosen and rewarded, and an answer is rated", async () => {
  const service = new ServiceClient(options);
  for (const name of ["a", "b"]) await service.offer("bot", name, { params: { model: name } });
  assert.equal((await service.arms("bot")).length, 2);
  const chosen = await service.select("bot", { user_id: "u1" });
  const told = await service.update("bot", { user_id: "u1", decision_id: chosen.decision_id, reward: 1 });
  assert.equal(told.status, "ok");
  const logged = await service.log({
    user_id: "u1",
    model: "m",
    messages: [{ role: "user", content: "2 + 2?" }],
    response: "4",
  });
  assert.equal((await service.rate(logged.interaction_id, { user_id: "u1", rating: 4 })).label, "4 Excellent");
});

test("a wrong token and an empty one are refused", async () => {
  const wrong = new RLInterface({ ...options, token: "x".repeat(40) });
  await assert.rejects(wrong.stats(), (error) => error instanceof ServiceError && error.status === 401);
  assert.throws(() => new RLInterface({ ...options, token: "" }), TypeError);
});
