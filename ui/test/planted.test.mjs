// The pages over planted answers: sizes and texts that a short run does not have.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { launch, nodes, open, serious, settled, tooWide } from "./browser.mjs";
import { planted } from "./planted.mjs";

const PAGES = {
  Overview: "", Run: "runs/01JRUN", Answers: "runs/01JRUN/answers", Matrix: "runs/01JRUN/answers?view=all",
  Cell: "runs/01JRUN/answers?case=case-0003&candidate=3fc8b00000000000&against=3fa9c10000000000",
  Compare: "runs/01JRUN/compare?a=3fa9c10000000000&b=3fc8b00000000000", Prompts: "runs/01JRUN/prompts",
  Production: "production", Training: "training", Chat: "chat?conversation=c1&user=ada", Review: "review", SQL: "sql?q=SELECT+1",
};
let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

async function over(options, run) {
  const server = planted(options);
  const base = await server.open();
  try {
    await run(base, server);
  } finally {
    server.close();
  }
}

describe("every page", () => {
  for (const [name, path] of Object.entries(PAGES)) {
    test(`${name} has nothing serious for axe, light and dark, wide and narrow`, () => over({}, async (base) => {
      for (const [width, colorScheme] of [[1440, "light"], [390, "dark"]]) {
        const { page, problems, context } = await open(browser, base + path, { width, colorScheme });
        await settled(page);
        assert.deepEqual(await serious(page), []);
        assert.ok((await tooWide(page)) <= 0, `${name} scrolls sideways at ${width} px`);
        assert.deepEqual(problems, []);
        await context.close();
      }
    }));

    test(`${name} shows hostile texts as texts`, () => over({ hostile: true }, async (base) => {
      for (const width of [1440, 390]) {
        const { page, problems, context } = await open(browser, base + path, { width });
        await settled(page);
        assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
        assert.equal(await page.evaluate(() => document.querySelectorAll("main script, main img, [href^='javascript']").length), 0);
        assert.doesNotMatch(await page.evaluate(() => document.querySelector("#app").textContent), /[\u202e\u001b]/u);
        assert.ok((await tooWide(page)) <= 0, `${name} scrolls sideways at ${width} px`);
        assert.deepEqual(problems, []);
        await context.close();
      }
    }));
  }

  test("an empty store says the next command", () => over({ empty: true }, async (base) => {
    for (const [path, command] of [["", "convergence optimize"], ["production", "convergence serve"], ["training", "convergence init tutor --template local-chat"], ["chat", "convergence serve --chat"], ["review", "--config optimization.yaml"]]) {
      const { page, context } = await open(browser, base + path);
      await settled(page);
      assert.match(await page.innerText("main"), new RegExp(command));
      await context.close();
    }
  }));
});

describe("the matrix", () => {
  test("of 2,000 × 500 holds at most 2,000 nodes while it is scrolled", () => over({ nCandidates: 2000, nCases: 500 }, async (base) => {
    const { page, problems, context } = await open(browser, `${base}runs/01JRUN/answers?view=all`);
    await settled(page);
    let most = await nodes(page);
    await page.hover(".matrix");
    for (let i = 0; i < 30; i++) {
      await page.mouse.wheel(i % 3 === 2 ? 900 : 0, 600);
      await page.waitForTimeout(60);
      most = Math.max(most, await nodes(page));
    }
    await page.evaluate(() => document.querySelector(".matrix").scrollTo(60_000, 9_000));
    await page.waitForFunction(() => /0\.\d\d/.test(document.querySelector(".matrix").innerText));
    assert.ok(most <= 2_000, `${most} nodes`);
    assert.deepEqual(problems, []);
    await context.close();
  }));

  test("is walked by keys; Enter opens, j goes on, Esc closes and gives the focus back", () => over({}, async (base) => {
    const { page, context } = await open(browser, `${base}runs/01JRUN/answers?view=all`);
    await settled(page);
    await page.focus(".matrix");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".drawer >> text=case-0002");
    assert.match(page.url(), /case=case-0002&candidate=3fc8b0/);
    await page.keyboard.press("j");
    await page.waitForSelector(".drawer >> text=case-0003");
    await page.keyboard.press("Escape");
    await page.waitForSelector(".drawer", { state: "detached" });
    assert.equal(await page.evaluate(() => document.activeElement.className), "matrix");
    await page.goBack();
    await page.waitForSelector(".drawer >> text=case-0003");
    await context.close();
  }));

  test("is filtered and searched, and the address says so", () => over({}, async (base) => {
    const { page, context } = await open(browser, `${base}runs/01JRUN/answers?view=all`);
    await settled(page);
    await page.keyboard.press("/");
    await page.keyboard.type("case-0007");
    await page.waitForSelector("text=1 test case by");
    assert.match(page.url(), /search=case-0007/);
    await page.fill("input[type=search]", "");
    await page.click("text=Failed");
    await page.waitForFunction(() => /filter=failed/.test(location.search));
    await page.reload();
    await settled(page);
    assert.equal(await page.getAttribute("button:has-text('Failed')", "aria-pressed"), "true");
    await context.close();
  }));

  test("shows an answer of 5 MB in part", () => over({ long: true }, async (base) => {
    const { page, context } = await open(browser, base + PAGES.Cell.replace(/&against.*/, ""));
    await settled(page);
    assert.match(await page.innerText(".drawer"), /of 5,000,000 characters/);
    assert.ok((await page.evaluate(() => document.body.textContent.length)) < 200_000);
    await context.close();
  }));
});

describe("people", () => {
  test("see the keys, go by keys, and choose colours that stay", () => over({}, async (base) => {
    const { page, context } = await open(browser, base);
    await settled(page);
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open] >> text=move in the matrix");
    assert.deepEqual(await serious(page), []);
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog[open]", { state: "detached" });
    await page.keyboard.press("g");
    await page.keyboard.press("s");
    await page.waitForSelector("h1:has-text('SQL')");
    await page.selectOption("select[aria-label=Colours]", "dark");
    await page.reload();
    assert.equal(await page.getAttribute("html", "data-theme"), "dark");
    await context.close();
  }));

  test("save a chart as picture and as CSV", () => over({}, async (base) => {
    const { page, context } = await open(browser, `${base}runs/01JRUN`);
    await page.waitForSelector(".canvas[data-ready]");
    const take = async (name) => {
      const [download] = await Promise.all([page.waitForEvent("download"), page.click(`button[aria-label^="${name}: Mean reward by generation"]`)]);
      return readFileSync(await download.path());
    };
    const picture = await take("Save the picture");
    assert.deepEqual([...picture.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    assert.ok(picture.length > 5_000);
    assert.match((await take("Save the numbers as CSV")).toString(), /^marks,generation,mean reward,x low/);
    await context.close();
  }));

  test("see a run go on without a reload", () => over({ running: true }, async (base, server) => {
    const { page, context } = await open(browser, `${base}runs/01JRUN`);
    await settled(page);
    assert.match(await page.innerText("main"), /Generation 3 of 8/);
    server.state.generation = 5;
    server.tell({ run_id: "01JRUN" });
    await page.waitForSelector("text=Generation 5 of 8");
    await context.close();
  }));

  test("live through bodies that end midway: aborted by leaving, cut by the server, held while the run goes on", () => over({ running: true }, async (base, server) => {
    const { page, problems, context } = await open(browser, `${base}runs/01JRUN`);
    const errors = () => problems.filter((one) => one.startsWith("exception"));
    await settled(page);
    server.state.torn = "held";
    const asked = server.state.asked.length;
    server.tell({ run_id: "01JRUN" });
    await page.waitForTimeout(1_500);
    server.tell({ run_id: "01JRUN" });
    await page.waitForTimeout(1_500);
    const paths = server.state.asked.slice(asked);
    assert.equal(new Set(paths).size, paths.length, "an event asks again while an answer is on its way");
    await page.click("nav >> text=Production");
    server.state.torn = null;
    await page.click("nav >> text=Overview");
    await page.click("main >> text=support-answers-7f3a");
    await page.waitForSelector("text=Generation 3 of 8");
    server.state.torn = "cut";
    server.tell({ run_id: "01JRUN" });
    await page.waitForSelector("[role=alert] >> text=Try again");
    assert.match(await page.innerText("main"), /Generation 3 of 8/);
    server.state.torn = null;
    server.state.generation = 5;
    server.tell({ run_id: "01JRUN" });
    await page.waitForSelector("text=Generation 5 of 8");
    assert.doesNotMatch(await page.innerText("main"), /Cannot read|Try again/);
    assert.deepEqual(errors(), []);
    await context.close();
  }));

  test("are asked twice before a promotion, and told why it was refused", () => over({}, async (base, server) => {
    const { page, context } = await open(browser, `${base}production`);
    await settled(page);
    await page.click("text=Promote…");
    await page.fill("input[type=password]", "wrong");
    await page.click("text=Continue");
    assert.ok(await page.isDisabled("dialog button[type=submit]"));
    assert.ok(!server.state.asked.includes("production/support-answers/promote"));
    await page.fill("dialog label:has-text('To confirm') input", "support-answers");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog >> text=has not the scope admin");
    await context.close();
  }));

  test("see why an adapter was refused, and the loss of each round", () => over({}, async (base, server) => {
    const { page, problems, context } = await open(browser, `${base}training`);
    await settled(page);
    await page.click("text=1 of 4 checks not passed");
    await page.waitForSelector("details[open] tr:has-text('no') >> text=[0.35, 0.47]");
    await page.waitForSelector(".canvas[data-ready][aria-label='Loss of each step, assistant-0001']");
    await page.click("text=Roll back…");
    await page.fill("input[type=password]", "wrong");
    await page.click("text=Continue");
    await page.fill("dialog label:has-text('To confirm') input", "assistant");
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog >> text=has not the scope admin");
    assert.ok(server.state.asked.includes("training/assistant/rollback"));
    assert.deepEqual(problems, []);
    await context.close();
  }));

  test("are told why buttons are missing, asked once for all of them", () => over({ whyNot: "No token may write." }, async (base, server) => {
    for (const path of ["runs/01JRUN", "production", "training"]) {
      const { page, context } = await open(browser, base + path);
      const asked = server.state.asked.length;
      await page.waitForSelector("main >> text=No token may write.");
      await settled(page);
      assert.equal(await page.locator("main button:has-text('…')").count(), 0);
      assert.ok(server.state.asked.slice(asked).filter((one) => one === "session").length <= 1);
      await context.close();
    }
  }));

  test("sort times by their length", () => over({}, async (base) => {
    const { page, context } = await open(browser, `${base}training`);
    await settled(page);
    const table = page.locator("table:has(th:has-text('took'))");
    await table.locator("th:has-text('took') button").click();
    const took = await table.locator("tbody td:nth-child(2)").allInnerTexts();
    const rising = ["59.0 s", "2 min 7 s", "1 h 2 min"];
    assert.ok([rising, [...rising].reverse()].some((order) => order.join() === took.join()), took.join());
    await context.close();
  }));

  test("decide about a proposed case, and keep the token for the next one only", () => over({}, async (base) => {
    const { page, problems, context } = await open(browser, `${base}review`);
    await settled(page);
    await page.click("text=Approve…");
    await page.selectOption("dialog select", "tone");
    await page.fill("dialog textarea", "In March.");
    await page.fill("dialog input[type=password]", "wrong");
    assert.deepEqual(await serious(page), []);
    await page.click("dialog button[type=submit]");
    await page.waitForSelector("dialog >> text=has not the scope admin");
    await page.click("dialog >> text=Cancel");
    await page.click("text=Reject…");
    assert.equal(await page.inputValue("dialog input[type=password]"), "");
    assert.deepEqual(problems, []);
    await context.close();
  }));

  test("write SQL with an editor, see the answer and its fault", () => over({}, async (base) => {
    const { page, problems, context } = await open(browser, `${base}sql`);
    await settled(page);
    await page.click(".cm-content");
    await page.keyboard.type("SELECT name FROM leaderboard");
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector("text=30 rows");
    assert.match(page.url(), /q=SELECT/);
    await page.keyboard.press("Control+a");
    await page.keyboard.type("DROP TABLE runs");
    await page.keyboard.press("Control+Enter");
    await page.waitForSelector("text=Only one SELECT is answered");
    assert.deepEqual(problems, []);
    await context.close();
  }));
});
