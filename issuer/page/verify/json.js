/**
 * A strict JSON reader (RFC 8259, I-JSON of RFC 7493).
 *
 * `JSON.parse` keeps the last of two members with one name, rounds numbers and accepts half a surrogate pair. This
 * reader refuses input that readers disagree about: such members (also in escaped spelling), lone surrogates, NUL, a
 * byte order mark, other encodings, and numbers beyond the limits of contract section 2.
 */

import { decodeUtf8 } from "./bytes.js";
import { FormatError } from "./errors.js";
import { Float, exactNumber } from "./numbers.js";

/** @typedef {null | boolean | number | Float | string | JsonArray | JsonObject} Json */
/** @typedef {Json[]} JsonArray */
/** It has a null prototype, so `__proto__` is an ordinary name. @typedef {{[name: string]: Json}} JsonObject */

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /NaN|-?Infinity|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;
const WORD = /true|false|null/y;
const PLAIN = /[^"\\]*/y;
const SURROGATE = /\p{Surrogate}/u;
/** @type {Record<string, Json>} */
const WORDS = { true: true, false: false, null: null };

/**
 * Read one JSON document of at most `maxBytes`. Arrays and objects may nest `maxDepth` deep.
 *
 * `number` reads the text of each number, and throws RangeError for one that it refuses. Throws FormatError with a
 * `file.*` code, and a pointer or a line and column.
 * @param {Uint8Array} raw
 * @param {{maxBytes: number, maxDepth: number, number?: (text: string) => number | Float}} limits
 * @returns {Json}
 */
export function readJson(raw, { maxBytes, maxDepth, number = exactNumber }) {
  if (raw.length > maxBytes) throw new FormatError("file.too_large", `larger than ${maxBytes} bytes`);
  const text = decodeUtf8(raw);
  if (text === null) throw new FormatError("file.encoding", "not UTF-8");
  return new Reader(text, maxDepth, number).document();
}

/**
 * Append one reference token to a JSON pointer (RFC 6901 section 4).
 * @param {string} parent
 * @param {string | number} name
 */
export const pointerTo = (parent, name) => `${parent}/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`;

/**
 * @param {unknown} value
 * @returns {value is JsonObject}
 */
export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Float);

/** Reads a text from its start; `at` is the position. A broken rule is reported only if the whole text is JSON. */
class Reader {
  /**
   * @param {string} text
   * @param {number} maxDepth
   * @param {(text: string) => number | Float} number
   */
  constructor(text, maxDepth, number) {
    this.text = text;
    this.maxDepth = maxDepth;
    this.number = number;
    this.at = 0;
    /** @type {(string | number)[]} */
    this.path = [];
    /** @type {FormatError | null} */
    this.broken = null;
  }

  document() {
    const value = this.value();
    this.take(SPACE);
    if (this.at < this.text.length) throw this.syntax("something follows the document");
    if (this.broken) throw this.broken;
    return value;
  }

  /** @returns {Json} */
  value() {
    this.take(SPACE);
    const sign = this.text[this.at];
    if (sign === "{") return this.nested(() => this.members());
    if (sign === "[") return this.nested(() => this.items());
    if (sign === '"') return this.string();
    const start = this.at;
    const word = this.take(WORD);
    if (word) return /** @type {Json} */ (WORDS[word]);
    const number = this.take(NUMBER);
    if (number) return this.numberOf(number);
    this.at = start;
    throw this.syntax("expected a value");
  }

  /**
   * @template T
   * @param {() => T} read
   */
  nested(read) {
    if (this.path.length >= this.maxDepth)
      throw new FormatError("file.too_large", `nested deeper than ${this.maxDepth}`, { pointer: this.pointer() });
    this.at++;
    this.path.push(0);
    const value = read();
    this.path.pop();
    return value;
  }

  items() {
    /** @type {Json[]} */
    const items = [];
    if (this.takes("]")) return items;
    do {
      this.path[this.path.length - 1] = items.length;
      items.push(this.value());
    } while (this.takes(","));
    this.demand("]");
    return items;
  }

  members() {
    /** @type {JsonObject} */
    const members = Object.create(null);
    if (this.takes("}")) return members;
    do {
      this.take(SPACE);
      if (this.text[this.at] !== '"') throw this.syntax("expected the name of a member, in double quotes");
      const name = this.string(this.path.length - 1);
      this.path[this.path.length - 1] = name;
      if (name in members) this.breaks("file.duplicate_key", "this member is named twice");
      this.demand(":");
      members[name] = this.value();
    } while (this.takes(","));
    this.demand("}");
    return members;
  }

  /** @param {number} [depth]  of the place where a broken rule is reported: of a name, its object's */
  string(depth = this.path.length) {
    const start = this.at++;
    this.take(PLAIN);
    while (this.text[this.at] === "\\") {
      this.at += 2;
      this.take(PLAIN);
    }
    if (this.at++ >= this.text.length) {
      this.at = start;
      throw this.syntax("a text without an end");
    }
    const value = this.unescaped(start);
    if (value.includes("\0")) this.breaks("file.encoding", "a NUL character", depth);
    if (SURROGATE.test(value)) this.breaks("file.encoding", "half of a surrogate pair", depth);
    return value;
  }

  /**
   * @param {number} start
   * @returns {string}
   */
  unescaped(start) {
    try {
      return JSON.parse(this.text.slice(start, this.at));
    } catch {
      this.at = start;
      throw this.syntax("a control character or a broken escape in a text");
    }
  }

  /** @param {string} text */
  numberOf(text) {
    try {
      return this.number(text);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.breaks("file.number", error.message);
      return 0;
    }
  }

  /**
   * Move past the match of a pattern at the position, and return it; "" without a match.
   * @param {RegExp} pattern
   */
  take(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.at += found.length;
    return found;
  }

  /** @param {string} sign */
  takes(sign) {
    this.take(SPACE);
    const found = this.text[this.at] === sign;
    if (found) this.at++;
    return found;
  }

  /** @param {string} sign */
  demand(sign) {
    if (!this.takes(sign)) throw this.syntax(`expected ${sign}`);
  }

  pointer(depth = this.path.length) {
    return this.path.slice(0, depth).reduce(pointerTo, "");
  }

  /**
   * @param {string} code
   * @param {string} rule
   * @param {number} [depth]
   */
  breaks(code, rule, depth) {
    this.broken ??= new FormatError(code, rule, { pointer: this.pointer(depth) });
  }

  /** @param {string} what */
  syntax(what) {
    const before = this.text.slice(0, this.at).split("\n");
    const column = (before.at(-1)?.length ?? 0) + 1;
    return new FormatError("file.syntax", what, { line: before.length, column });
  }
}
