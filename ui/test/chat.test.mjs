// The chat page over a real service, whose provider echoes: ADDRESS with its one-time token, TALKER, READER.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, serious, settled, tooWide } from "./browser.mjs";

const { ADDRESS, TALKER, READER } = process.env;
const BASE = ADDRESS.replace(/\?.*/, "");
let browser, page, problems, context;
before(async () => {
  browser = await launch();
  ({ page, problems, context } = await open(browser, ADDRESS));
  await page.goto(`${BASE}chat`);
  await settled(page);
});
after(() => browser?.close());

const begin = async (token) => {
  await page.fill("input[type=password]", token);
  await page.click("button:text-is('Start')");
};
const ask = async (text) => {
  await page.fill("textarea", text);
  await page.keyboard.press("Enter");
};
const answered = (n) => page.waitForFunction((n) => document.querySelectorAll(".said:not([aria-busy])").length === n, n);
const fine = async (name) => {
  assert.deepEqual(await serious(page), [], name);
  assert.ok((await tooWide(page)) <= 0, `${name} scrolls sideways`);
  assert.deepEqual(problems, [], name);
};

test("a token without the scope is refused, and asked for again", async () => {
  await page.waitForSelector("text=It only echoes.");
  assert.equal(await page.inputValue("input:not([type=password])"), "ada");
  await begin(READER);
  await ask("Hi?");
  await page.waitForSelector("[role=alert] >> text=This token lacks the scope chat.");
  await fine("Start");
});

test("an answer is marked by one key, with a reason, and the mark is taken back", async () => {
  await begin(TALKER);
  await page.selectOption("label:has-text('Role') select", "pirate");
  await ask("<script>window.hacked=1</script> one");
  await page.waitForFunction(() => document.activeElement.className === "marks");
  assert.match(page.url(), /conversation=[0-9a-f]{32}&user=ada/);
  assert.match(await page.innerText(".said .text"), /<script>window.hacked=1<\/script> one/);
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  await page.keyboard.press("4");
  await page.waitForSelector(".marks >> text=4 Excellent");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "TEXTAREA");
  await page.fill("input[aria-label=Why]", "short");
  await page.click(".marks button:text-is('Add')");
  await page.waitForSelector(".marks >> text=4 Excellent: short");
  await page.click("text=Undo");
  await page.waitForSelector(".marks >> text=skips");
  await page.click("button[aria-label='Thumbs down']");
  await page.waitForSelector(".marks >> text=thumbs down");
});

test("two answers are compared, and the conversation goes on with the better one", async () => {
  await page.click("text=Compare with another answer");
  await answered(2);
  await page.click("text=Answer 2 is better");
  await page.waitForSelector("h3:has-text('Answer 2') .tag:text-is('better')");
  await fine("Pair");
  await ask("two");
  await answered(3);
  await page.keyboard.press("Enter"); // skips the mark
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "TEXTAREA");
});

test("an answer that is stopped is not logged", async () => {
  await ask("wait");
  await page.click("button:text-is('Stop')");
  await page.waitForSelector("text=Stopped; that answer is not logged.");
  assert.equal(await page.inputValue("textarea"), "wait");
});

test("the conversation has an address; without the token it can be read, dark and narrow", async () => {
  await page.waitForSelector(".plainlist a:has-text('one')");
  await page.setViewportSize({ width: 390, height: 844 });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.reload();
  await answered(3);
  assert.match(await page.innerText("main"), /Marked thumbs down/);
  assert.equal(await page.locator("h3:has-text('Answer 2') .tag:text-is('better')").count(), 1);
  assert.equal(await page.locator("textarea").count(), 0);
  await fine("Read");
  await begin(TALKER);
  await page.waitForSelector("textarea");
  await page.click("text=New conversation");
  await answered(0);
  await context.close();
});
