/* CodeMirror for SQL, loaded by the page that needs it. A shadow root adopts its style sheet; the page's security
 * policy would block a style element. */
import { autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { sql, StandardSQL } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState } from "@codemirror/state";
import { drawSelection, EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export interface Editor {
  set(text: string): void;
  tables(tables: Record<string, string[]>): void;
  close(): void;
}

const look = EditorView.theme({
  "&": { color: "var(--ink)", fontSize: "14px", minHeight: "9rem" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--ink)", padding: "10px 0", minHeight: "9rem" },
  ".cm-line": { padding: "0 12px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px", borderRadius: "8px" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--wash)" },
  ".cm-tooltip": { background: "var(--card)", border: "1px solid var(--line)", color: "var(--ink)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { background: "var(--accent)", color: "var(--accent-ink)" },
});
const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--default)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--default)" },
  { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
]);

export function open(box: HTMLElement, text: string, change: (text: string) => void, run: (text: string) => void): Editor {
  const root = box.shadowRoot ?? box.attachShadow({ mode: "open" });
  const language = new Compartment();
  const view = new EditorView({
    root, parent: root as unknown as Element,
    state: EditorState.create({
      doc: text,
      extensions: [
        history(), drawSelection(), bracketMatching(), autocompletion(), EditorView.lineWrapping, look, syntaxHighlighting(colours),
        // A browser that replaces a selection writes inline styles, which the page's policy blocks.
        EditorView.domEventHandlers({
          beforeinput(event, v) {
            if (event.inputType !== "insertText" || event.data === null || v.composing || v.state.selection.main.empty) return false;
            event.preventDefault();
            v.dispatch({ ...v.state.replaceSelection(event.data), userEvent: "input.type", scrollIntoView: true });
            return true;
          },
        }),
        language.of(sql({ dialect: StandardSQL })), EditorView.contentAttributes.of({ "aria-label": "SQL" }),
        // Tab leaves the editor, as it does everywhere on the page.
        keymap.of([{ key: "Mod-Enter", run: (v) => (run(v.state.doc.toString()), true) }, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        EditorView.updateListener.of((update) => update.docChanged && change(update.state.doc.toString())),
      ],
    }),
  });
  return {
    set(next) {
      if (next !== view.state.doc.toString()) view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } });
    },
    tables(schema) {
      view.dispatch({ effects: language.reconfigure(sql({ dialect: StandardSQL, schema })) });
    },
    close: () => view.destroy(),
  };
}
