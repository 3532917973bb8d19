/** Service process started by this program. Requires Node.js. */

interface Stream {
  setEncoding(encoding: string): void;
  on(event: "data", listener: (text: string) => void): void;
}

interface Child {
  exitCode: number | null;
  stdout: Stream;
  stderr: Stream;
  kill(signal: string): boolean;
  once(event: "exit" | "error", listener: (reason: unknown) => void): void;
}

type Spawn = (command: string, args: string[], options: object) => Child;
type Environment = Record<string, string | undefined>;

/** This program's environment variables; empty in a browser. */
export const environment: Environment =
  (globalThis as { process?: { env: Environment } }).process?.env ?? {};

export class ServiceProcess {
  private constructor(
    private readonly child: Child,
    readonly url: string,
  ) {}

  /** Start a command and wait until it prints the URL that it serves. */
  static async start(command: readonly string[], more: Environment = {}): Promise<ServiceProcess> {
    const [program, ...args] = command;
    if (program === undefined) throw new TypeError("`command` must name a program, but it is empty");
    // A variable hides the module from bundlers that build for a browser.
    const name: string = "node:child_process";
    const { spawn } = (await import(name)) as { spawn: Spawn };
    const child = spawn(program, args, { env: { ...environment, ...more }, stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    const url = await new Promise<string>((resolve, reject) => {
      const refuse = (reason: unknown): void => {
        reject(new Error(`\`${command.join(" ")}\` must start a service, but it ended (${reason}). ${text.slice(-2_000)}`));
      };
      for (const stream of [child.stdout, child.stderr]) {
        stream.setEncoding("utf8");
        // Read to the end: a full pipe would stop the service.
        stream.on("data", (piece) => {
          text = (text + piece).slice(-10_000);
          const address = /http:\/\/\S+/.exec(text);
          if (stream === child.stdout && address !== null) resolve(address[0]);
        });
      }
      child.once("error", refuse);
      child.once("exit", refuse);
    });
    return new ServiceProcess(child, url);
  }

  /** Stop the service, once it has sent every pending answer. */
  async stop(): Promise<void> {
    if (this.child.exitCode !== null) return;
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGTERM");
    await ended;
  }
}
