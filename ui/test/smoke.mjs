// One page opens over planted answers, without an error or a request to elsewhere.
import assert from "node:assert/strict";
import { launch, open, settled } from "./browser.mjs";
import { planted } from "./planted.mjs";

const server = planted({ hostile: true });
const browser = await launch();
try {
  const { page, problems } = await open(browser, `${await server.open()}runs/01JRUN/answers`);
  await settled(page);
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  assert.deepEqual(problems, []);
  console.log("opened");
} finally {
  await browser.close();
  server.close();
}
