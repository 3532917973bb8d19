/* Invisible marks: bidirectional, zero-width and control characters, except tab and line ends. */
export const MARKS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/u;
export const NAMES: Record<string, string> = {
  "\u001b": "ESC", "\u0000": "NUL", "\u200b": "ZWSP", "\u200c": "ZWNJ", "\u200d": "ZWJ", "\u200e": "LRM",
  "\u200f": "RLM", "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF", "\u202d": "LRO", "\u202e": "RLO",
  "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI", "\ufeff": "BOM", "\u00ad": "SHY",
};

/** Text with each mark replaced by its name, for titles, labels and choices, which cannot hold elements. */
export function marked(text: string): string {
  if (!MARKS.test(text)) return text;
  return [...text].map((char) => (MARKS.test(char) ? `[${NAMES[char] ?? `U+${char.codePointAt(0)!.toString(16)}`}]` : char)).join("");
}
