/* The pages of one run. */
import { Link, to } from "../router";

export function Tabs({ run, at }: { run: string; at: "" | "answers" | "compare" | "prompts" }) {
  const pages = [["", "Run"], ["answers", "Answers"], ["compare", "Compare"], ["prompts", "Prompts"]] as const;
  return (
    <nav class="tabs" aria-label="Pages of the run">
      {pages.map(([place, name]) => (
        <Link key={place} href={place ? to("runs", run, place) : to("runs", run)} current={place === at}>{name}</Link>
      ))}
    </nav>
  );
}
