// Debian's Chromium over one address, and what every page is held to.
import { chromium } from "playwright-core";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

export async function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
}

/** A page whose errors, refusals of the policy and requests to elsewhere are kept. */
export async function open(browser, address, { width = 1440, height = 900, ...rest } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, acceptDownloads: true, ...rest });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const problems = [];
  page.on("pageerror", (error) => problems.push(`exception: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !/status of 40[0-9]/.test(message.text())) problems.push(message.text());
  });
  page.on("request", (request) => {
    const to = request.url();
    if (!to.startsWith(new URL(address).origin) && !/^(data|blob):/.test(to)) problems.push(`request to ${to}`);
  });
  await page.goto(address);
  return { page, problems, context };
}

/** Serious and critical findings of axe; Playwright evaluates past the page's policy. */
export async function serious(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}

export const settled = async (page) => {
  await page.waitForSelector("h1");
  await page.waitForFunction(() => !document.body.innerText.includes("Reading the store…"));
  await page.waitForTimeout(400);
};

export const nodes = (page) => page.evaluate(() => document.querySelectorAll("*").length);
export const tooWide = (page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
