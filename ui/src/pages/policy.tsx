/* Policy: which policy of prompt changes serves and why, what each earned against evaluations, what it did, refusals. */
import { useData } from "../api";
import { Sections, type Block } from "../blocks";
import { Empty, Show } from "../parts";
import { Link, to } from "../router";
import { One } from "../text";
import type { PolicySystems } from "../types";

export function Policy({ system }: { system: string | undefined }) {
  const list = useData<PolicySystems>("policy");
  document.title = "Policy · The Convergence";
  const shown = (d: PolicySystems) => system ?? d.systems[0]!;
  return (
    <>
      <h1>Policy of prompt changes</h1>
      <Show of={list} empty={(d) => !d.systems.length && <Empty command={d.commands[0]}>This page shows how the policy that edits prompts learns. No training round was played yet.</Empty>}>
        {(d) => (
          <>
            <nav class="tabs" aria-label="Systems">
              {d.systems.map((s) => <Link key={s} href={to("policy", s)} current={shown(d) === s}><One text={s} max={60} /></Link>)}
            </nav>
            <System key={shown(d)} system={shown(d)} />
          </>
        )}
      </Show>
    </>
  );
}

function System({ system }: { system: string }) {
  return <Show of={useData<{ blocks: Block[] }>(`policy/${encodeURIComponent(system)}`)}>{(d) => <Sections of={d.blocks} />}</Show>;
}
