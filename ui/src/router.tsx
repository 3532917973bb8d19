/* Routing: the address holds the page and its settings, so you can share it. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

export interface Address {
  path: string[]; // decoded parts after /ui
  query: URLSearchParams;
}

const changed = new EventTarget();

export function read(): Address {
  const path = location.pathname.replace(/^\/ui\/?/, "").split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { path, query: new URLSearchParams(location.search) };
}

export function go(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  changed.dispatchEvent(new Event("change"));
}

/** Set settings in this page's address; null or "" removes one. */
export function setQuery(values: Record<string, string | null>, replace = true): void {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(values)) {
    if (value === null || value === "") query.delete(key);
    else query.set(key, value);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), replace);
}

export function useAddress(): Address {
  const [address, set] = useState(read);
  useEffect(() => {
    const update = () => set(read());
    addEventListener("popstate", update);
    changed.addEventListener("change", update);
    return () => {
      removeEventListener("popstate", update);
      changed.removeEventListener("change", update);
    };
  }, []);
  return address;
}

export const to = (...parts: string[]): string => `/ui/${parts.map(encodeURIComponent).join("/")}`;

export function Link(p: { href: string; children: ComponentChildren; current?: boolean; class?: string; label?: string }) {
  const click = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(p.href);
    scrollTo(0, 0);
  };
  return (
    <a href={p.href} class={p.class} aria-current={p.current ? "page" : undefined} aria-label={p.label} onClick={click}>
      {p.children}
    </a>
  );
}
