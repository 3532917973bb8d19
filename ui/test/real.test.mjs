// The pages over the server and a store that a real run wrote: ADDRESS with its one-time token, RUN, READER (a token
// without the scope admin); while it goes on another run is made in the same store.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { launch, serious, settled, tooWide } from "./browser.mjs";

const { ADDRESS, RUN, READER } = process.env;
const BASE = ADDRESS.replace(/\?.*/, "");
let browser;
let context;
let page;
const problems = [];
before(async () => {
  browser = await launch();
  context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on("pageerror", (error) => problems.push(error.message));
  page.on("console", (message) => message.type() === "error" && !/status of 40[0-9]/.test(message.text()) && problems.push(message.text()));
  page.on("request", (request) => /^(data|blob):/.test(request.url()) || request.url().startsWith(new URL(BASE).origin) || problems.push(request.url()));
  page.on("dialog", (dialog) => { problems.push(`dialog: ${dialog.message()}`); void dialog.dismiss(); });
  await page.goto(ADDRESS);
  await settled(page);
});
after(() => browser?.close());

const go = async (path) => {
  await page.goto(BASE + path);
  await settled(page);
};
const fine = async (name) => {
  assert.deepEqual(await serious(page), [], name);
  assert.ok((await tooWide(page)) <= 0, `${name} scrolls sideways`);
  assert.deepEqual(problems, [], name);
};
const saved = async (act) => {
  const [download] = await Promise.all([page.waitForEvent("download"), act()]);
  return readFileSync(await download.path());
};

test("a run that begins is seen without a reload, and its end", async () => {
  await page.evaluate(() => { globalThis.unchanged = true; });
  await page.waitForSelector("tr:nth-child(2)");
  await page.waitForFunction(() => /running/.test(document.querySelector("main").innerText));
  await page.waitForFunction(() => !/running/.test(document.querySelector("main").innerText), undefined, { timeout: 90_000 });
  assert.equal(await page.evaluate(() => globalThis.unchanged), true);
  await fine("Overview");
});

test("the run shows verdict, curve, leaderboard and map; charts are saved", async () => {
  await go(`runs/${RUN}`);
  for (const title of ["Result", "Search by generation", "Leaderboard", "Evaluations per configuration", "Parameter effects", "Parallel coordinates", "Slices"]) {
    await page.waitForSelector(`h2:has-text('${title}')`);
  }
  await page.waitForSelector(".canvas[data-ready]");
  const picture = await saved(() => page.click("button[aria-label^='Save the picture: Mean reward by generation']"));
  assert.deepEqual([...picture.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
  const numbers = (await saved(() => page.click("button[aria-label^='Save the numbers as CSV: Mean reward by generation']"))).toString();
  assert.equal(numbers.trim().split("\n").length, 6); // head, two generations on each of two lines, the final test
  assert.match((await saved(() => page.click("section:has(h2:text-is('Leaderboard')) a:has-text('CSV')"))).toString(), /candidate_id/);
  await fine("Run");
});

test("a cell of the map opens its answer; texts are texts", async () => {
  await go(`runs/${RUN}`);
  await page.click("canvas.map", { position: { x: 4, y: 4 } });
  await page.waitForSelector(".drawer >> text=Prompt as sent");
  await page.waitForSelector(".drawer >> text=<script>alert(1)</script>");
  await page.waitForSelector(".drawer .mark >> text=RLO");
  assert.equal(await page.evaluate(() => document.querySelectorAll("main script, .drawer textarea, [href^='javascript']").length), 0);
  const whole = await saved(() => page.click(".drawer a:has-text('Download the whole text')"));
  assert.ok(whole.length > 5_000_000);
  await fine("Cell");
});

test("answers are searched and filtered", async () => {
  await go(`runs/${RUN}/answers`);
  await page.fill("input[type=search]", "no answer says this");
  await page.waitForSelector("text=No test case matches");
  await page.click("text=Show all");
  await page.waitForSelector(".matrix");
  await page.click("button:has-text('Worst')");
  await page.waitForFunction(() => /filter=worst/.test(location.search));
  await fine("Answers");
});

test("two configurations are chosen in the leaderboard and compared", async () => {
  await go(`runs/${RUN}`);
  await page.check("tbody tr:nth-child(1) input[type=checkbox]");
  await page.check("tbody tr:nth-child(2) input[type=checkbox]");
  await page.click("text=Compare the two");
  await page.waitForSelector("h2:has-text('Parameters that differ')");
  await page.waitForSelector("text=B minus A");
  await fine("Compare");
});

test("what two runs recommend is compared", async () => {
  await go("compare");
  await page.waitForSelector("main label.field:first-child option:nth-child(3)", { state: "attached" }); // both runs
  const runs = await page.$$eval("main label.field:first-child option", (all) => all.map((one) => one.value).filter((value) => value && !value.includes(":")));
  await page.selectOption("main label.field:nth-child(1) select", runs[0]);
  await page.selectOption("main label.field:nth-child(2) select", runs[1]);
  await page.waitForSelector("text=B minus A");
  assert.match(page.url(), new RegExp(`a=${runs[0]}&b=${runs[1]}`));
  await fine("Compare runs");
});

test("a promotion without the scope is refused with the reason", async () => {
  await go("production");
  await page.waitForSelector("h2:has-text('Arms')");
  await page.click("text=Promote…");
  await page.fill("input[type=password]", READER);
  await page.click("text=Continue");
  const name = await page.innerText("dialog label:has-text('To confirm') code");
  await page.fill("dialog label:has-text('To confirm') input", name);
  await page.click("dialog button[type=submit]");
  await page.waitForSelector("dialog >> text=lacks the scope admin");
  await page.keyboard.press("Escape");
  await fine("Production");
});

test("each documented question has an answer, and an own one as CSV", async () => {
  await go("sql");
  const questions = await page.$$eval(".questions button", (all) => all.length);
  assert.equal(questions, 10);
  for (let i = 0; i < questions; i++) {
    const answer = page.waitForResponse((response) => /\/api\/sql\?/.test(response.url()));
    await page.click(`.questions li:nth-child(${i + 1}) button`);
    assert.equal((await answer).status(), 200, `question ${i + 1}`);
  }
  await page.waitForSelector("text=/\\d+ rows?/");
  assert.ok((await saved(() => page.click(".toolbar a:has-text('CSV')"))).length > 10);
  await fine("SQL");
});

test("prompts and an address that is no page say so", async () => {
  await go(`runs/${RUN}/prompts`);
  await page.waitForSelector("text=This run varies no prompt");
  await fine("Prompts");
  await page.goto(`${BASE}nothing/here`);
  await page.waitForSelector("text=No page has this address");
});
