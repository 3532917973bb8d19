// Pictures of every page over planted answers: node test/pictures.mjs FOLDER [PAGES [ADDRESS RUN [CELL,COMPARISON [window]]]]
// A page may bring its path, NAME=PATH. With CHAT_TOKEN set, the page Chat is signed in with it.
import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
import { planted } from "./planted.mjs";

const out = process.argv[2];
mkdirSync(out, { recursive: true });
const server = process.argv[4] ? null : planted();
const first = process.argv[4] ?? (await server.open()); // with its one-time token
const base = first.replace(/\?.*/, "");
const run = process.argv[5] ?? "01JRUN";
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const pages = {
  overview: "", run: "runs/" + run, answers: "runs/" + run + "/answers", cell: "runs/" + run + "/answers?case=case-0003&candidate=3fc8b00000000000&against=3fa9c10000000000",
  compare: "runs/" + run + "/compare?a=3fa9c10000000000&b=3fc8b00000000000", prompts: "runs/" + run + "/prompts", production: "production", training: "training", chat: "chat?conversation=c1&user=ada", review: "review", sql: "sql?q=SELECT+candidate_id,+posterior_mean+FROM+leaderboard",
};
if (process.argv[6]) [pages.cell, pages.compare] = process.argv[6].split(",").map((end) => `runs/${run}/${end}`);
const wanted = (process.argv[3] && process.argv[3] !== "all" ? process.argv[3].split(",") : Object.keys(pages)).map((one) => {
  const at = one.indexOf("=");
  if (at < 0) return one;
  pages[one.slice(0, at)] = one.slice(at + 1);
  return one.slice(0, at);
});
const signed = await browser.newContext();
await (await signed.newPage()).goto(first);
const storageState = await signed.storageState();
for (const [width, height] of [[1440, 1000], [390, 844]]) {
  for (const scheme of ["light", "dark"]) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, storageState });
    const page = await context.newPage();
    page.on("console", (m) => ["error", "warning"].includes(m.type()) && console.log(m.type(), m.text()));
    page.on("pageerror", (e) => console.log("PAGE ERROR", e.message));
    for (const name of wanted) {
      await page.goto(base + pages[name]);
      await page.getByText("Reading the store").waitFor({ state: "hidden" });
      await page.waitForTimeout(900);
      if (name === "chat" && process.env.CHAT_TOKEN) {
        await page.getByLabel("Token").fill(process.env.CHAT_TOKEN);
        await page.getByRole("button", { name: "Start", exact: true }).click();
        await page.waitForTimeout(900);
      }
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) console.log(`${name} ${width}: ${wide} px too wide`);
      await page.screenshot({ path: `${out}/${name}-${width}-${scheme}.png`, fullPage: name !== "cell" && !process.argv[7] });
    }
    await context.close();
  }
}
await browser.close();
server?.close();
