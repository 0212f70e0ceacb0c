// What every page is drawn with. A stranger's text becomes text, never markup, and turns no direction.
import { showTime } from "./times.js";

const MOST = 4000; // characters of one text, whatever is in it
const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** Escape what is not seen, or turns what is: control characters, line ends, marks of direction. @param {unknown} value */
export function visible(value) {
  const text = String(value);
  const short = text.length > MOST ? `${text.slice(0, MOST)}… (${text.length.toLocaleString("en")} characters)` : text;
  return short.replace(HIDDEN, (sign) => {
    const code = sign.codePointAt(0) ?? 0;
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\U${code.toString(16).padStart(8, "0")}`;
  });
}

/** What an element is made of: a node as it is, text by `visible`, and nothing of what is absent. @typedef {Node | string | number | null | undefined} Part */
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

/** A stranger's text, apart from what is around it. @param {unknown} value */
export const said = (value) => el("bdi", visible(value));

/** @param {unknown} value */
export const code = (value) => el("code", said(value));

/**
 * The element of this id, which the page's markup has; where the code needs one of a kind, it names it.
 * @template {HTMLElement} [Kind=HTMLElement]
 * @param {string} id @param {new () => Kind} [kind]
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof (kind ?? HTMLElement))) throw new TypeError(`this page has no such element: ${id}`);
  return /** @type {Kind} */ (found);
}

/** Facts as pairs of a name and what it is; pairs without a value are left out. @param {[string, Part][]} pairs */
export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return rows.length ? el("dl.facts", ...rows.flatMap(([name, value]) => [el("dt", name), el("dd", asNode(value))])) : "";
}

/** @param {Part} value */
const asNode = (value) => (value instanceof Node ? value : said(value));

/** A moment in the reader's own zone, and in UTC beside it; nothing of none. @param {number | null} seconds Unix seconds */
export function moment(seconds) {
  if (seconds === null) return "";
  const at = new Date(seconds * 1000);
  if (Number.isNaN(at.getTime())) return said(seconds);
  const time = el("time", { datetime: at.toISOString() });
  showTime(time, at);
  return time;
}

/** A link that says nothing of where it came from; what is not https stays text. @param {string} url @param {string} text */
export function link(url, text) {
  return /^https:\/\/[A-Za-z0-9.-]+(:\d+)?(\/|$)/.test(url)
    ? el("a", { href: url, rel: "noreferrer nofollow noopener" }, text)
    : said(text);
}

/**
 * A table with a header for each column. On a phone a row's last cell stands below the others (style.css), so that the
 * roles are said: a browser forgets them where cells are laid out otherwise.
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

/** The cell that says how a check came out: a sign, a word, a colour. @param {"good"|"bad"|"open"|"none"} kind @param {string} word */
export function result(kind, word) {
  return el(`td.result.${kind}`, el("span.sign", { "aria-hidden": "true" }, SIGNS[kind]), word);
}

/** @param {"good"|"bad"|"open"|""} kind @param {...Part} parts */
export const note = (kind, ...parts) => el(kind ? `div.note.${kind}` : "div.note", ...parts);

/** Put this in the place of what stood there. @param {Element} place @param {...(Node|string)} parts */
export function show(place, ...parts) {
  place.replaceChildren(...parts.filter((part) => part !== ""));
}

/**
 * Take the files that are dropped on an element. Beside it a file does not open in place of the page: it is dropped on an
 * input for files, or nowhere. A text that is dragged goes where the browser puts it.
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
