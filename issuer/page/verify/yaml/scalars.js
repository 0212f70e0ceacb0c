/**
 * The text of scalars: plain, quoted and block, on one line or several (YAML 1.2.2, 7.3 and 8.1).
 *
 * Each function takes the source and the position where the scalar begins, and returns its text and its end. `parent`
 * is the column of the block collection around it, or -1: further lines must be deeper than that.
 */

/** @typedef {import("./source.js").Source} Source */
/** @typedef {{text: string, end: number}} Scanned */

// Characters that cannot begin plain text. YAML allows - ? : before a letter; this reader accepts only -.
const INDICATOR = /^[-?:,[\]{}#&*!|>'"%@`]/;
/** @type {Record<string, string>} */
const PROPERTIES = {
  "&": "an anchor (&name): leave it out",
  "!": "an explicit tag (!tag): leave it out",
  "*": "an alias (*name): write the value out",
  "?": "a key after a question mark",
};
const DOCUMENT = /^(?:---|\.\.\.)(?![^ \t\n])/;

/** @type {Record<string, string>} */
const ESCAPES = {
  0: "\0", a: "\x07", b: "\b", t: "\t", "\t": "\t", n: "\n", v: "\v", f: "\f", r: "\r", e: "\x1b", " ": " ", '"': '"',
  "/": "/", "\\": "\\", N: "\x85", _: "\xa0", L: "\u2028", P: "\u2029",
};
/** @type {Record<string, number>} */
const HEX_LENGTHS = { x: 2, u: 4, U: 8 };

/**
 * Scan quoted text. Throws Beyond if readers may join its lines in different ways.
 * @param {Source} source
 * @param {number} start  of the quote
 * @param {number} parent
 * @returns {Scanned}
 */
export function quoted(source, start, parent) {
  const { text } = source;
  const quote = text[start];
  const run = quote === '"' ? /[^"\\\n]*/y : /[^'\n]*/y;
  let value = "";
  for (let at = start + 1; ; ) {
    run.lastIndex = at;
    const plain = /** @type {RegExpExecArray} */ (run.exec(text))[0];
    value += plain;
    at += plain.length;
    if (at >= text.length) throw source.beyond("a quote that is never closed", start);
    if (text[at] === "\n") {
      const line = nextLine(source, at, parent);
      value = value.slice(0, value.length - plain.length + bareLength(plain, " \t")) + line.joint;
      at = line.at;
    } else if (text.startsWith("\\\n", at)) {
      at = joined(source, at, parent);
    } else if (text[at] === "\\") {
      const escape = escaped(source, at);
      value += escape.text;
      at = escape.end;
    } else if (quote === "'" && text[at + 1] === "'") {
      value += "'";
      at += 2;
    } else {
      return { text: value, end: at + 1 };
    }
  }
}

/**
 * Return the length of a text without these characters at its end. A regular expression needs quadratic time for that.
 * @param {string} text
 * @param {string} signs
 */
function bareLength(text, signs) {
  let end = text.length;
  while (end && signs.includes(text[end - 1])) end--;
  return end;
}

/**
 * Remove the spaces at the end.
 * @param {string} text
 */
export const withoutSpaces = (text) => text.slice(0, bareLength(text, " "));

/**
 * @param {Source} source
 * @param {number} at  of the backslash
 * @returns {Scanned}
 */
function escaped(source, at) {
  const sign = source.text[at + 1];
  const length = HEX_LENGTHS[sign];
  if (!length) {
    const text = ESCAPES[sign];
    if (text === undefined) throw source.beyond("an escape that this reader does not know", at);
    return { text, end: at + 2 };
  }
  const digits = source.text.slice(at + 2, at + 2 + length);
  const code = /^[0-9a-fA-F]+$/.test(digits) && digits.length === length ? Number.parseInt(digits, 16) : -1;
  if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    throw source.beyond("an escape that is not a character", at);
  return { text: String.fromCodePoint(code), end: at + 2 + length };
}

/**
 * Skip an escaped line end, which adds no text. Readers disagree about an empty line below it.
 * @param {Source} source
 * @param {number} at  of the backslash
 * @param {number} parent
 */
function joined(source, at, parent) {
  const line = nextLine(source, at + 1, parent);
  if (line.joint !== " ") throw source.beyond("an empty line below an escaped line end", at);
  return line.at;
}

/**
 * Go over line ends within a scalar to the next line with content: one line end is a space, each further one is a line
 * end.
 * @param {Source} source
 * @param {number} end  of the line
 * @param {number} parent
 * @returns {{joint: string, at: number}}
 */
function nextLine(source, end, parent) {
  const { text } = source;
  let breaks = 0;
  let at = end;
  let column = 0;
  for (; text[at] === "\n"; breaks++) {
    const spaces = spacesAt(text, at + 1);
    [at, column] = [at + 1 + spaces, spaces];
  }
  if (at < text.length) demandLine(source, at, column, parent);
  return { joint: breaks === 1 ? " " : "\n".repeat(breaks - 1), at };
}

/**
 * @param {Source} source
 * @param {number} at
 * @param {number} column
 * @param {number} parent
 */
function demandLine(source, at, column, parent) {
  if (source.text[at] === "\t") throw source.beyond("a tab at the beginning of a line", at);
  if (column <= parent) throw source.beyond("a line that is indented too little", at);
  if (column === 0 && DOCUMENT.test(source.text.slice(at, at + 4)))
    throw source.beyond("a document marker within a text", at);
}

/**
 * @param {string} text
 * @param {number} at
 */
export function spacesAt(text, at) {
  let end = at;
  while (text[end] === " ") end++;
  return end - at;
}

/**
 * Throw Beyond if this position cannot begin plain text that this reader accepts.
 * @param {Source} source
 * @param {number} at
 */
export function demandPlain(source, at) {
  const { text } = source;
  if (!INDICATOR.test(text[at])) return;
  if (text[at] === "-" && /[^ \t\n,[\]{}]/.test(text[at + 1] ?? "\n")) return;
  throw source.beyond(PROPERTIES[text[at]] ?? `${text[at]} where a value should be`, at);
}

/**
 * Return the end of plain text on its line: at a comment, at a colon before a space, or at an indicator in a flow
 * collection.
 * @param {Source} source
 * @param {number} start
 * @param {boolean} inFlow
 */
export function plainEnd(source, start, inFlow) {
  const stop = inFlow ? /[ ]#|:(?=[ \n,?[\]{}]|$)|[,[\]{}?\n\t]/g : /[ ]#|:(?=[ \n]|$)|[\n\t]/g;
  stop.lastIndex = start;
  const end = stop.exec(source.text)?.index ?? source.text.length;
  if (source.text[end] === "\t") throw source.beyond("a tab outside of quotes", end);
  if (source.text[end] === "?") throw source.beyond("a question mark between brackets", end);
  return end;
}

/**
 * Scan plain text with the deeper lines that continue it. `demandPlain` has accepted its first character.
 * @param {Source} source
 * @param {number} start
 * @param {number} parent
 * @param {boolean} [inFlow]  in brackets, where it may be a key and ends at other signs
 * @returns {Scanned}
 */
export function plain(source, start, parent, inFlow = false) {
  const { text } = source;
  let value = "";
  for (let at = start, joint = ""; ; ) {
    const end = plainEnd(source, at, inFlow);
    if (text[end] === ":" && (!inFlow || /[,?[\]{}]/.test(text[end + 1] ?? "")))
      throw source.beyond("a colon where a key is not allowed", end);
    const line = withoutSpaces(text.slice(at, end));
    value += joint + line;
    const next = text[end] === "\n" ? lineBelow(text, end, parent) : null;
    if (value === "-") throw source.beyond("a lone -", start);
    if (!next || (inFlow && /[,[\]{}:]/.test(text[next.at]))) return { text: value, end: at + line.length };
    if (text[next.at] === "\t") throw source.beyond("a tab at the beginning of a line", next.at);
    demandLine(source, next.at, next.column, parent);
    ({ at, joint } = next);
  }
}

/**
 * Return the next line with content if it continues the plain text: it is deeper than the parent and not a comment.
 * @param {string} text
 * @param {number} end
 * @param {number} parent
 */
function lineBelow(text, end, parent) {
  let [at, breaks, column] = [end, 0, 0];
  for (; text[at] === "\n"; breaks++) {
    column = spacesAt(text, at + 1);
    at += 1 + column;
  }
  const goesOn = at < text.length && column > parent && text[at] !== "#" && !DOCUMENT.test(text.slice(at, at + 4));
  return goesOn ? { at, column, joint: breaks === 1 ? " " : "\n".repeat(breaks - 1) } : null;
}

const HEADER = /[|>](?:([-+])([1-9])?|([1-9])([-+])?)?(?=[ \n])/y;

/**
 * Scan a block scalar: literal after |, folded after >. It ends before the first line that is indented less.
 * @param {Source} source
 * @param {number} start  of its sign
 * @param {number} parent
 * @returns {Scanned}
 */
export function block(source, start, parent) {
  const { text } = source;
  HEADER.lastIndex = start;
  const header = HEADER.exec(text);
  if (!header) throw source.beyond("a block scalar header that this reader does not know", start);
  const chomping = header[1] ?? header[4] ?? "";
  const increment = Number(header[2] ?? header[3] ?? 0);
  const headEnd = start + header[0].length;
  const comment = /[ ]*(?:[ ]#[^\n]*)?\n/y;
  comment.lastIndex = headEnd;
  if (!comment.test(text)) throw source.beyond("text after a block scalar header", headEnd);
  const first = comment.lastIndex;
  const indent = increment ? Math.max(parent, 0) + increment : detected(source, first, parent);
  const { lines, end } = blockLines(source, first, indent);
  return { text: chomped(text[start] === "|" ? lines.join("\n") : folded(lines), lines, chomping), end };
}

/**
 * Return the indentation of a block scalar: the indentation of its first line with content.
 * @param {Source} source
 * @param {number} first
 * @param {number} parent
 */
function detected(source, first, parent) {
  const { text } = source;
  let [at, longest] = [first, 0];
  const above = spacesAt(text, first);
  let column = above;
  while (text[at + column] === "\n") {
    longest = Math.max(longest, column);
    at += column + 1;
    column = spacesAt(text, at);
  }
  if (longest > column) throw source.beyond("an empty line has more spaces than the block text below it", first);
  if (at > first && above > 0 && column > above) throw source.beyond("an empty line above block text has spaces", first);
  if (text[at + column] === "\t") throw source.beyond("a tab before block text", at + column);
  return Math.max(column, parent + 1, 1);
}

/**
 * Read lines up to the first that is indented less, including empty lines at the end.
 * @param {Source} source
 * @param {number} first
 * @param {number} indent
 */
function blockLines(source, first, indent) {
  const { text } = source;
  const lines = [];
  let at = first;
  for (let end; at < text.length; at = end + 1) {
    end = text.indexOf("\n", at);
    const spaces = spacesAt(text, at);
    const isEmpty = text[at + spaces] === "\n" && spaces < indent;
    if (text[at + spaces] === "\t" && spaces < indent) throw source.beyond("a tab before block text", at + spaces);
    if (spaces < indent && !isEmpty && at + spaces < text.length) break;
    if (end < 0) throw source.beyond("block text without a line break at its end", at);
    lines.push(isEmpty ? "" : text.slice(at + indent, end));
  }
  return { lines, end: at };
}

/**
 * Join the lines of a folded block scalar. Two lines that do not begin with a space are joined by a space, or by the
 * empty lines between them.
 * @param {string[]} lines
 */
function folded(lines) {
  let value = "";
  let before = /** @type {string | null} */ (null); // the last line with content
  let empty = 0;
  for (const line of lines) {
    if (line === "") {
      empty++;
      continue;
    }
    const isText = before !== null && !/^[ \t]/.test(before) && !/^[ \t]/.test(line);
    value += before === null ? "" : isText ? (empty ? "" : " ") : "\n";
    value += "\n".repeat(empty) + line;
    [before, empty] = [line, 0];
  }
  return value;
}

/**
 * End a block scalar with one line end, with none (-), or with all (+).
 * @param {string} value
 * @param {string[]} lines
 * @param {string} chomping
 */
function chomped(value, lines, chomping) {
  const empty = lines.length - 1 - lines.findLastIndex((line) => line !== "");
  const isText = empty < lines.length;
  const bare = value.slice(0, bareLength(value, "\n"));
  if (chomping === "-") return bare;
  if (chomping === "+") return bare + "\n".repeat(empty + Number(isText));
  return isText ? `${bare}\n` : "";
}
