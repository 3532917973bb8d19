/* The pages of one run. */
import { useData } from "../api";
import { Link, to } from "../router";
import { One } from "../text";
import type { Runs } from "../types";

export function Tabs({ run, at }: { run: string; at: "" | "answers" | "compare" | "prompts" }) {
  const pages = [["", "Run"], ["answers", "Answers"], ["compare", "Compare"], ["prompts", "Prompts"]] as const;
  const runs = useData<Runs>(at === "" ? null : "runs", { of: run }, false);
  const label = runs.data?.runs[0]?.label ?? run;
  return (
    <>
    {at !== "" && <p class="lead"><Link href={to("runs", run)}><One text={label} max={80} /></Link></p>}
    <nav class="tabs" aria-label="Pages of the run">
      {pages.map(([place, name]) => (
        <Link key={place} href={place ? to("runs", run, place) : to("runs", run)} current={place === at}>{name}</Link>
      ))}
    </nav>
    </>
  );
}
