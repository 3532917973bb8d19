/* Map of candidates and cases: one point per pair, brighter the more often it was evaluated. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { saveCsv } from "../chart";
import { useTheme } from "../theme";
import { count, One, plural, reward } from "../text";
import type { Allocation } from "../types";

type By = "n" | "reward";

function rgb(name: string): [number, number, number] {
  const canvas = document.createElement("canvas").getContext("2d")!;
  canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const hex = String(canvas.fillStyle);
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)) as [number, number, number];
}

export function AllocationMap({ of, open }: { of: Allocation; open: (candidate: string, one: string) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useTheme();
  const [by, setBy] = useState<By>("n");
  const [at, setAt] = useState<[number, number]>([0, 0]);
  const [nc, nk] = [of.candidates.length, of.cases.length];
  const grid = useMemo(() => {
    const n = new Uint16Array(nc * nk);
    const r = new Float32Array(nc * nk).fill(Number.NaN);
    of.candidate.forEach((c, i) => {
      const place = of.case[i]! * nc + c;
      n[place] = of.n[i]!;
      const x = of.reward[i];
      if (x !== null && x !== undefined) r[place] = x;
    });
    return { n, r, most: of.n.reduce((a, b) => Math.max(a, b), 1) };
  }, [of]);

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const [none, most, card] = [rgb("--faint"), rgb("--accent"), rgb("--warn")];
    const image = context.createImageData(nc, nk);
    for (let i = 0; i < nc * nk; i++) {
      const missing = by === "reward" && grid.n[i]! > 0 && Number.isNaN(grid.r[i]!);
      const share = by === "n" ? (grid.n[i]! ? 0.35 + (0.65 * grid.n[i]!) / grid.most : 0) : grid.n[i]! && !missing ? 0.12 + 0.88 * grid.r[i]! : 0;
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = missing ? card[k]! : none[k]! + (most[k]! - none[k]!) * share;
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }, [grid, by, theme]);

  const place = (event: MouseEvent): [number, number] => {
    const box = canvas.current!.getBoundingClientRect();
    return [
      Math.min(nc - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * nc))),
      Math.min(nk - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * nk))),
    ];
  };
  const key = (event: KeyboardEvent) => {
    const step: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const found = step[event.key];
    if (found) {
      event.preventDefault();
      setAt(([c, k]) => [Math.min(nc - 1, Math.max(0, c + found[0])), Math.min(nk - 1, Math.max(0, k + found[1]))]);
    } else if (event.key === "Enter") go(at);
  };
  const go = ([c, k]: [number, number]) => {
    if (grid.n[k * nc + c]) open(of.candidates[c]!.candidate_id, of.cases[k]!);
  };
  const [c, k] = at;
  const n = grid.n[k * nc + c] ?? 0;
  const r = grid.r[k * nc + c];
  return (
    <>
      <div class="row spread small">
        <span class="group" role="group" aria-label="Colour">
          <button aria-pressed={by === "n"} onClick={() => setBy("n")}>How often</button>
          <button aria-pressed={by === "reward"} onClick={() => setBy("reward")}>Reward</button>
        </span>
        <button
          class="plain"
          onClick={() => saveCsv("allocation", [["configuration", "candidate_id", "case_id", "n", "reward"], ...of.candidate.map((one, i) => [of.candidates[one]!.name, of.candidates[one]!.candidate_id, of.cases[of.case[i]!]!, of.n[i]!, of.reward[i] ?? null])])}
        >
          CSV
        </button>
      </div>
      <canvas
        ref={canvas} class="map" width={nc} height={nk} tabIndex={0} role="application"
        aria-label={`Map of ${nc} configurations and ${nk} test cases: arrows move, Enter opens the answer`}
        style={{ height: `${Math.min(420, Math.max(90, nk * 8))}px` }}
        onMouseMove={(event) => setAt(place(event))} onClick={(event) => go(place(event))} onKeyDown={key}
      />
      <p class="small muted" aria-live="polite" style={{ minHeight: "3.1em" }}>
        Across: {plural(nc, "configuration")}, best first. Down: {plural(nk, "test case")}.{" "}
        <code><One text={of.candidates[c]?.name} max={60} /></code>, case <code title={of.cases[k]}><One text={of.case_names[k]} max={40} /></code>:{" "}
        {n ? <>{plural(n, "evaluation")}, reward {Number.isNaN(r) ? "missing" : reward(r)}</> : "not run"}. Most: {count(grid.most)}.
      </p>
    </>
  );
}
