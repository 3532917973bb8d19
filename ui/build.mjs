// Builds src/ into convergence/ui/static, and the plotting code of report.html into tasks/report/plots.js. The same
// sources and package-lock.json give the same bytes.
//
//   node build.mjs [OUT [PLOTS]]
//
// OUT is the output folder and PLOTS the plotting file. The defaults are the paths that the wheel ships.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [given, plots = given ? undefined : join(here, "..", "tasks", "report", "plots.js")] = process.argv.slice(2);
const out = resolve(given ?? join(here, "..", "convergence", "ui", "static"));
const common = {
  absWorkingDir: here,
  bundle: true,
  target: "es2022",
  minify: true,
  legalComments: "none", // the licences are in LICENSES.txt
  charset: "utf8",
  define: { "process.env.NODE_ENV": '"production"' },
  logLevel: "warning",
};
const about = (name) => JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8"));

if (plots) {
  const banner = ["echarts", "zrender", "tslib"].map((name) => `${name} ${about(name).version} (${about(name).license})`).join(", ");
  await build({ ...common, entryPoints: ["src/report.ts"], outfile: resolve(plots), format: "iife", banner: { js: `/* Built from ui/src/report.ts with ${banner}. */` } });
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const result = await build({
  ...common,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  outdir: out,
  splitting: true,
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  chunkNames: "[name]-[hash]",
  metafile: true,
});
copyFileSync(join(here, "src", "index.html"), join(out, "index.html"));
copyFileSync(join(here, "src", "icon.svg"), join(out, "icon.svg"));

const packages = new Map();
for (const [path, { bytesInOutput }] of Object.values(result.metafile.outputs).flatMap((o) => Object.entries(o.inputs))) {
  const found = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
  if (found) packages.set(found[1], (packages.get(found[1]) ?? 0) + bytesInOutput);
}
const licences = [...packages.keys()].sort().filter((name) => packages.get(name) > 0).map((name) => {
  const folder = join(here, "node_modules", name);
  const texts = readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((file) => file.isFile() && !`${file.parentPath}/`.includes(`${name}/node_modules/`))
    .map((file) => relative(folder, join(file.parentPath, file.name)))
    .filter((file) => /^(licen[cs]es?\/|licen[cs]e|copying|notice)/i.test(file))
    .sort();
  const body = texts.map((file) => readFileSync(join(folder, file), "utf8").trim()).join("\n\n");
  return `${name} ${about(name).version} (${about(name).license})\n${"=".repeat(60)}\n${body || `License: ${about(name).license}`}\n`;
});
writeFileSync(
  join(out, "LICENSES.txt"),
  `What the files of this folder bundle, and the licence of each package.\n\n${licences.join("\n\n")}`,
);
if (process.env.UI_SIZES) {
  for (const [name, bytes] of [...packages].sort((a, b) => b[1] - a[1])) console.log(`${bytes}\t${name}`);
}
