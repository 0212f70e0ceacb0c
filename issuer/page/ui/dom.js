// Functions that draw elements, for every page. Untrusted text never becomes markup or changes the text direction.
import { showTime } from "./times.js";

const MOST = 4000; // the most characters of one text
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** Escape invisible and misleading characters: control characters, line ends, marks of direction. @param {unknown} value */
export function visible(value) {
  const text = String(value);
  const short = text.length > MOST ? `${text.slice(0, MOST)}… (${text.length.toLocaleString("en")} characters)` : text;
  return short.replace(HIDDEN, (sign) => {
    const code = sign.codePointAt(0) ?? 0;
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

/** A part of an element: a node, or text for `visible`; null and undefined are left out. @typedef {Node | string | number | null | undefined} Part */
/** The tag of "p.quiet". @template {string} Kind @typedef {Kind extends `${infer Tag}.${string}` ? Tag : Kind} TagOf */
/** The element of a tag. @template {string} Tag @typedef {Tag extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag] : HTMLElement} ElementOf */

/**
 * Make an element. Strings among the children are text, escaped by `visible`.
 * @template {string} Kind
 * @param {Kind} kind a tag with classes: "p.quiet"
 * @param {...(Part | {[name: string]: string})} parts attributes, and children
 */
export function el(kind, ...parts) {
  const [tag, ...classes] = kind.split(".");
  const made = /** @type {ElementOf<TagOf<Kind>>} */ (document.createElement(tag));
  if (classes.length) made.className = classes.join(" ");
  for (const part of parts) {
    if (part === null || part === undefined || part === "") continue;
    if (part instanceof Node) made.append(part);
    else if (typeof part === "object") for (const [name, value] of Object.entries(part)) made.setAttribute(name, value);
    else made.append(visible(part));
  }
  return made;
}

/** Isolate untrusted text from the direction of the text around it. @param {unknown} value */
export const said = (value) => el("bdi", visible(value));

/** @param {unknown} value */
export const code = (value) => el("code", said(value));

/**
 * Return the element with this id in the page's markup. With `kind`, check its class.
 * @template {HTMLElement} [Kind=HTMLElement]
 * @param {string} id @param {new () => Kind} [kind]
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof (kind ?? HTMLElement))) throw new TypeError(`this page has no such element: ${id}`);
  return /** @type {Kind} */ (found);
}

/** Draw facts as pairs of a name and a value. Pairs without a value are left out. @param {[string, Part][]} pairs */
export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return rows.length ? el("dl.facts", ...rows.flatMap(([name, value]) => [el("dt", name), el("dd", asNode(value))])) : "";
}

/** @param {Part} value */
const asNode = (value) => (value instanceof Node ? value : said(value));

/** Draw a time in the reader's zone, with UTC; nothing for null. @param {number | null} seconds Unix seconds */
export function moment(seconds) {
  if (seconds === null) return "";
  const at = new Date(seconds * 1000);
  if (Number.isNaN(at.getTime())) return said(seconds);
  const time = el("time", { datetime: at.toISOString() });
  showTime(time, at);
  return time;
}

/** Draw a link without a referrer. A URL other than https stays text. @param {string} url @param {string} text */
export function link(url, text) {
  return /^https:\/\/[A-Za-z0-9.-]+(:\d+)?(\/|$)/.test(url)
    ? el("a", { href: url, rel: "noreferrer nofollow noopener" }, text)
    : said(text);
}

/**
 * Draw a table with a header for each column. The roles are explicit: on a phone a row's last cell is below the others
 * (style.css), and a browser drops the implicit roles of cells with another layout.
 * @param {string} caption @param {string[]} heads @param {HTMLElement[][]} rows cells
 */
export function table(caption, heads, rows) {
  const row = { role: "row" };
  const named = heads.map((name, index) => el(rows[0]?.[index]?.classList.contains("number") ? "th.number" : "th", { scope: "col", role: "columnheader" }, name));
  const head = el("thead", { role: "rowgroup" }, el("tr", row, ...named));
  const body = el("tbody", { role: "rowgroup" }, ...rows.map((cells) => el("tr", row, ...cells)));
  for (const cell of body.querySelectorAll("th, td")) cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
  return el("div.wide", el("table", { role: "table" }, el("caption", caption), head, body));
}

const SIGNS = { good: "✓", bad: "✗", open: "?", none: "–" };

/** Draw the cell with the result of a check: a sign, a word, a colour. @param {"good"|"bad"|"open"|"none"} kind @param {string} word */
export function result(kind, word) {
  return el(`td.result.${kind}`, el("span.sign", { "aria-hidden": "true" }, SIGNS[kind]), word);
}

/** @param {"good"|"bad"|"open"|""} kind @param {...Part} parts */
export const note = (kind, ...parts) => el(kind ? `div.note.${kind}` : "div.note", ...parts);

/** Replace the content of a place. @param {Element} place @param {...(Node|string)} parts */
export function show(place, ...parts) {
  place.replaceChildren(...parts.filter((part) => part !== ""));
}

/**
 * Take the files that are dropped on an element. Elsewhere on the page a dropped file has no effect, except on a file input:
 * it must not open in place of the page. The browser handles dragged text as usual.
 * @param {HTMLElement} place @param {(files: File[]) => void} take
 */
export function onDrop(place, take) {
  place.addEventListener("dragenter", () => place.classList.add("over"));
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  for (const name of /** @type {const} */ (["dragenter", "dragover", "drop"])) {
    addEventListener(name, (event) => {
      const { target, dataTransfer } = event;
      if (!dataTransfer?.types.includes("Files")) return;
      const isOn = target instanceof Node && place.contains(target);
      if (isOn || !(target instanceof HTMLInputElement && target.type === "file")) event.preventDefault();
      if (name !== "drop") return;
      place.classList.remove("over");
      if (isOn && dataTransfer.files.length) take([...dataTransfer.files]);
    });
  }
}
