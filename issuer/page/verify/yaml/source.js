/** A YAML text: its limits, its lines, and places in it. */

import { decodeUtf8 } from "../bytes.js";
import { Beyond, FormatError } from "../errors.js";

const MAX_BYTES = 1024 * 1024;
const LF = 10;
const LOW_SURROGATE = 0xdc00 >> 10;
// Line breaks to only some readers (npm's yaml does not accept a lone CR), a byte order mark, control and
// non-characters.
const DISPUTED = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)/;

/** The text, with LF line ends. Places are counted as in Python: lines and columns from 1, columns in characters. */
export class Source {
  /** @type {number[]} */
  #lineStarts = [];
  /** @type {number[]} */
  #pairEnds = [];

  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  /**
   * Decode bytes. Throws FormatError if they are too large, not UTF-8, or have a character that readers disagree about.
   * @param {Uint8Array} raw
   */
  static read(raw) {
    if (raw.length > MAX_BYTES) throw new FormatError("file.too_large", `larger than ${MAX_BYTES} bytes`);
    const text = decodeUtf8(raw);
    if (text === null) throw new FormatError("file.encoding", "not UTF-8", { line: lineOfFault(raw), column: 1 });
    const source = new Source(text);
    const found = DISPUTED.exec(text);
    if (found) {
      const detail = `${nameOf(found[0])}: leave it out or escape it in double quotes`;
      throw new FormatError("file.encoding", detail, source.place(found.index));
    }
    return new Source(text.replaceAll("\r\n", "\n"));
  }

  /**
   * @param {number} index  in the text, in JavaScript's units
   * @returns {{line: number, column: number}}
   */
  place(index) {
    if (!this.#lineStarts.length) this.#scan();
    const line = countUpTo(this.#lineStarts, index);
    const start = this.#lineStarts[line - 1];
    const pairs = countUpTo(this.#pairEnds, index) - countUpTo(this.#pairEnds, start);
    return { line, column: index - start - pairs + 1 };
  }

  /** Note where lines begin and surrogate pairs end: counting characters anew for each place takes quadratic time. */
  #scan() {
    this.#lineStarts.push(0);
    for (let index = 0; index < this.text.length; ) {
      const code = this.text.charCodeAt(index++);
      if (code === LF) this.#lineStarts.push(index);
      else if (code >> 10 === LOW_SURROGATE) this.#pairEnds.push(index);
    }
  }

  /**
   * @param {string} what
   * @param {number} index
   */
  beyond(what, index) {
    return new Beyond(what, this.place(index));
  }
}

/**
 * Return how many of these ascending numbers are at most `most`.
 * @param {number[]} numbers
 * @param {number} most
 */
function countUpTo(numbers, most) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= most) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Return the first line that is not UTF-8; a line feed is never inside a character.
 * @param {Uint8Array} raw
 */
function lineOfFault(raw) {
  for (let line = 1, start = 0; ; line++) {
    const end = raw.indexOf(LF, start);
    if (decodeUtf8(raw.subarray(start, end < 0 ? raw.length : end)) === null) return line;
    start = end + 1;
  }
}

/** @param {string} sign */
function nameOf(sign) {
  if (sign === "\ufeff") return "a byte order mark";
  if (sign === "\r") return "a carriage return without a line feed";
  return `the character U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}
