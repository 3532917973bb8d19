/* Web application: frame, routes and keyboard shortcuts. */
import { Component, render, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { connect, useConnected } from "./api";
import { Blocks } from "./blocks";
import { Modal, Problem } from "./parts";
import { Answers } from "./pages/answers";
import { Chat } from "./pages/chat";
import { Compare } from "./pages/compare";
import { Prompts } from "./pages/prompts";
import { Review } from "./pages/review";
import { Run } from "./pages/run";
import { Sql } from "./pages/sql";
import { go, Link, to, useAddress, type Address } from "./router";
import { apply, choice, choose, type Choice } from "./theme";

const KEYS: [string, string][] = [
  ["?", "show these keys"], ["g o", "Overview"], ["g p", "Production"], ["g m", "Chat"], ["g v", "Review"], ["g n", "Training"], ["g s", "SQL"],
  ["g r", "the run of this page"], ["g a", "its answers"], ["g c", "compare"], ["g t", "its prompts"],
  ["/", "search"], ["← ↑ → ↓", "move in the matrix"], ["Enter", "open the cell"], ["j k", "next and previous case of an open cell"],
  ["h l", "next and previous configuration of an open cell"], ["Esc", "close"], ["d", "dark or light"],
];

class Guard extends Component<{ children: ComponentChildren; of: string }, { error: Error | null; of: string }> {
  override state = { error: null as Error | null, of: this.props.of };
  static getDerivedStateFromProps(props: { of: string }, state: { of: string }) {
    return props.of === state.of ? null : { error: null, of: props.of };
  }
  override componentDidCatch(error: Error) {
    this.setState({ error });
  }
  override render() {
    return this.state.error ? <Problem error={this.state.error} again={() => this.setState({ error: null })} /> : this.props.children;
  }
}

const place = (page: string, of: string | undefined) => (of ? `${page}/${encodeURIComponent(of)}` : page);

function page({ path, query }: Address): ComponentChildren {
  const [first, second, third] = path;
  if (!first) return <Blocks title="Overview" path="overview" />;
  if (first === "sql") return <Sql query={query} />;
  if (first === "production") return <Blocks title="Production" path={place("production", second)} />;
  if (first === "chat") return <Chat query={query} />;
  if (first === "review") return <Review />;
  if (first === "training") return <Blocks title="Training" path={place("training", second)} />;
  if (first === "compare") return <Compare run={undefined} query={query} />;
  if (first === "runs" && second) {
    if (!third) return <Run run={second} />;
    if (third === "answers") return <Answers run={second} query={query} />;
    if (third === "compare") return <Compare run={second} query={query} />;
    if (third === "prompts") return <Prompts run={second} query={query} />;
  }
  return <p class="empty">No page has this address. <Link href="/ui/">Overview</Link></p>;
}

function typing(event: KeyboardEvent): boolean {
  const at = event.composedPath()[0];
  return at instanceof HTMLElement && (at.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName));
}

function useKeys(address: Address, help: (on: boolean) => void): void {
  const run = address.path[0] === "runs" ? address.path[1] : undefined;
  const before = useRef(0);
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (typing(event) || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.key === "?") return help(true);
      if (event.key === "/") {
        const search = document.querySelector<HTMLInputElement>("input[type=search]");
        if (search) event.preventDefault();
        return search?.focus();
      }
      if (event.key === "d") return choose(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
      if (event.key === "g") return void (before.current = event.timeStamp);
      if (event.timeStamp - before.current > 1_500) return;
      before.current = 0;
      const places: Record<string, string | undefined> = {
        o: "/ui/", p: to("production"), m: to("chat"), v: to("review"), n: to("training"), s: to("sql"), r: run && to("runs", run), a: run && to("runs", run, "answers"),
        c: run ? to("runs", run, "compare") : to("compare"), t: run && to("runs", run, "prompts"),
      };
      const place = places[event.key];
      if (place) go(place);
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, [run]);
}

function Theme() {
  const [chosen, set] = useState<Choice>(choice());
  return (
    <select
      aria-label="Colours" value={chosen}
      onChange={(event) => { const next = event.currentTarget.value as Choice; choose(next); set(next); }}
    >
      <option value="system">Auto</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
}

function App() {
  const address = useAddress();
  const [help, setHelp] = useState(false);
  const connected = useConnected();
  const main = useRef<HTMLElement>(null);
  const first = address.path[0];
  useKeys(address, setHelp);
  useEffect(connect, []);
  const place = address.path.join("/");
  const opened = useRef(place);
  useEffect(() => {
    if (opened.current !== place) main.current?.focus();
    opened.current = place;
  }, [place]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to content</a>
      <header class="top">
        <div>
          <Link href="/ui/" class="brand">
            <svg viewBox="0 0 32 32" aria-hidden="true"><path d="M3 5C13 5 15 15.2 29 15.2M3 16h26M3 27c10 0 12-10.2 26-10.2" fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" /></svg>
            The Convergence
          </Link>
          <nav aria-label="Pages">
            <Link href="/ui/" current={!first || first === "runs"}>Overview</Link>
            <Link href={to("compare")} current={first === "compare"}>Compare</Link>
            <Link href={to("production")} current={first === "production"}>Production</Link>
            <Link href={to("chat")} current={first === "chat"}>Chat</Link>
            <Link href={to("review")} current={first === "review"}>Review</Link>
            <Link href={to("training")} current={first === "training"}>Training</Link>
            <Link href={to("sql")} current={first === "sql"}>SQL</Link>
          </nav>
          <span class={connected ? "live on" : "live"} title={connected ? "Pages refresh automatically" : "No live connection; pages refresh when you open them"}>
            {connected ? "live" : "not live"}
          </span>
          <Theme />
          <button class="plain" aria-label="Keys" onClick={() => setHelp(true)}><kbd>?</kbd></button>
        </div>
      </header>
      <main id="main" tabIndex={-1} ref={main}>
        <Guard of={place}>{page(address)}</Guard>
      </main>
      {help && (
        <Modal title="Keys" close={() => setHelp(false)}>
          <dl class="params">
            {KEYS.map(([key, what]) => [<dt key={key}>{key.split(" ").map((one) => <><kbd>{one}</kbd>{" "}</>)}</dt>, <dd>{what}</dd>])}
          </dl>
        </Modal>
      )}
    </>
  );
}

apply();
render(<App />, document.getElementById("app")!);
