/**
 * RFC 8785 (JCS): the canonical text of a JSON value, and digests of its UTF-8 bytes.
 *
 * JCS writes numbers and texts as JavaScript does, and sorts members by their UTF-16 code units, as `sort()` does.
 */

import { hex, sha256, utf8 } from "./bytes.js";
import { Float } from "./numbers.js";

/** @typedef {import("./json.js").Json} Json */

/**
 * Return a value's canonical text. Throws RangeError for a number that is not finite and for half a surrogate pair.
 * @param {Json | undefined} value  an absent value is written as null
 */
export const canonical = (value) => write(value, (float) => writeNumber(float.value));

/**
 * Return JSON that reads back as the same value, including a `Float`: `20.0` keeps its point.
 * @param {Json} value
 */
export const jsonText = (value) => write(value, (float) => `${float.value}.0`);

/**
 * @param {Json | undefined} value
 * @param {(float: Float) => string} writeFloat
 * @returns {string}
 */
function write(value, writeFloat) {
  if (value === null || value === undefined || typeof value === "boolean") return String(value ?? null);
  if (typeof value === "number") return writeNumber(value);
  if (typeof value === "string") return writeText(value);
  if (value instanceof Float) return writeFloat(value);
  if (Array.isArray(value)) return `[${value.map((item) => write(item, writeFloat)).join(",")}]`;
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${writeText(name)}:${write(value[name], writeFloat)}`).join(",")}}`;
}

/** @param {number} value */
function writeNumber(value) {
  if (!Number.isFinite(value)) throw new RangeError("a number that is not finite has no canonical form");
  return String(value);
}

/** @param {string} text */
function writeText(text) {
  if (/\p{Surrogate}/u.test(text)) throw new RangeError("half of a surrogate pair has no canonical form");
  return JSON.stringify(text);
}

/**
 * Return the digest of a value: `sha256:<64 lowercase hex>` over its canonical bytes.
 * @param {Json} value
 */
export const digest = (value) => digestOf(utf8(canonical(value)));

/**
 * Return the digest of bytes.
 * @param {Uint8Array} raw
 */
export const digestOf = async (raw) => `sha256:${hex(await sha256(raw))}`;
