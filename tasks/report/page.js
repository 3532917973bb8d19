// Sorting, filtering, larger plots and a switch of colours. Without script the tables say the same.
// Texts of others enter by textContent alone.
"use strict";
(() => {
  const make = (tag, properties = {}, ...parts) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...parts);
    return element;
  };

  // -- tables

  const SECONDS = { h: 3600, min: 60, s: 1, ms: 0.001 };

  const number = (text) => {
    const time = text.match(/^(?:[\d.,]+ (?:h|min|s|ms)(?: |$))+/)?.[0];
    if (time) {
      const parts = [...time.replaceAll(",", "").matchAll(/([\d.]+) (\w+)/g)];
      return parts.reduce((sum, [, value, unit]) => sum + Number(value) * SECONDS[unit], 0);
    }
    const plain = text.replaceAll(",", "").replaceAll("\u2212", "-");
    const found = plain.match(/^[<>$\s]*([+-]?\d*\.?\d+(?:e[+-]?\d+)?)(?=$|[\s%[(])/i);
    return found ? Number(found[1]) : null;
  };

  const compared = (a, b) => {
    if (a === "" || a === "\u2013") return b === "" || b === "\u2013" ? 0 : 1; // unknown last
    if (b === "" || b === "\u2013") return -1;
    const [x, y] = [number(a), number(b)];
    return x !== null && y !== null ? x - y : a.localeCompare(b, undefined, { numeric: true });
  };

  const sortable = (table) => {
    const body = table.tBodies[0];
    const first = [...body.rows];
    const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
    heads.forEach((head, column) => {
      const name = head.textContent;
      const button = make("button", { type: "button", className: "sort", title: "Sort" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = { none: "descending", descending: "ascending", ascending: "none" }[head.ariaSort ?? "none"];
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (next !== "none") head.ariaSort = next;
        const text = (row) => row.cells[column]?.textContent.trim() ?? "";
        const sign = next === "descending" ? -1 : 1;
        const isKnown = (row) => !["", "\u2013"].includes(text(row));
        const rows = next === "none" ? first : [...first].sort((a, b) =>
          isKnown(a) && isKnown(b) ? sign * compared(text(a), text(b)) : compared(text(a), text(b)));
        body.append(...rows);
        button.title = next === "none" ? "Sort" : `Sorted by ${name}, ${next}`;
      });
    });
  };

  const filterable = (table) => {
    const rows = [...table.tBodies[0].rows];
    const field = make("input", { type: "search", placeholder: "Filter rows" });
    field.setAttribute("aria-label", "Filter rows of the table below");
    const count = make("output");
    field.addEventListener("input", () => {
      const wanted = field.value.trim().toLowerCase();
      const kept = rows.filter((row) => {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        return !row.hidden;
      });
      count.textContent = wanted ? `${kept.length} of ${rows.length} rows` : "";
    });
    table.parentElement.before(make("div", { className: "filter" }, field, count));
  };

  for (const table of document.querySelectorAll("main table")) {
    const n = table.tBodies[0].rows.length;
    if (n > 1) sortable(table);
    if (n > 7) filterable(table);
  }

  // -- plots

  const dialog = make("dialog", { className: "zoom" });
  const close = make("button", { type: "button", textContent: "Close" });
  let home = null;
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => home?.querySelector(".larger").before(dialog.querySelector("[data-plot]")));
  dialog.append(make("form", { method: "dialog" }, close));
  document.body.append(dialog);

  for (const figure of document.querySelectorAll("figure.plot")) {
    const button = make("button", { type: "button", className: "larger", textContent: "Enlarge" });
    button.addEventListener("click", () => {
      home = figure;
      dialog.prepend(figure.querySelector("[data-plot]"));
      dialog.showModal();
    });
    figure.append(button);
  }

  // -- colours

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const theme = make("button", { type: "button", className: "theme" });
  const name = () => {
    const isDark = (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
    theme.textContent = isDark ? "Light" : "Dark";
    return isDark;
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = name() ? "light" : "dark";
    name();
  });
  dark.addEventListener("change", name);
  name();
  document.querySelector("header").append(theme);
})();
