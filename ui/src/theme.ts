/* Dark and light theme: the system's preference or your choice. */
import { useEffect, useState } from "preact/hooks";

export type Choice = "system" | "light" | "dark";
const system = matchMedia("(prefers-color-scheme: dark)");
const changed = new EventTarget();

export function choice(): Choice {
  const kept = localStorage.getItem("convergence-theme");
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function apply(): void {
  const chosen = choice();
  document.documentElement.dataset.theme = chosen === "system" ? (system.matches ? "dark" : "light") : chosen;
  changed.dispatchEvent(new Event("change"));
}

export function choose(next: Choice): void {
  localStorage.setItem("convergence-theme", next);
  apply();
}

system.addEventListener("change", apply);

/** Current theme. A component that uses it redraws when it changes. */
export function useTheme(): string {
  const [theme, set] = useState(document.documentElement.dataset.theme ?? "light");
  useEffect(() => {
    const update = () => set(document.documentElement.dataset.theme ?? "light");
    changed.addEventListener("change", update);
    return () => changed.removeEventListener("change", update);
  }, []);
  return theme;
}
