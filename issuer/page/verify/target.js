/**
 * The target form of an entry (contract section 3), which the content digest covers: without token members and `value`,
 * with sorted metrics and without nulls. All other members count, known or not.
 */

import { utf8 } from "./bytes.js";
import { digest } from "./canonical.js";
import { FormatError } from "./errors.js";
import { isObject, pointerTo } from "./json.js";
import { Float } from "./numbers.js";

/** @typedef {import("./json.js").Json} Json */
/** @typedef {import("./json.js").JsonObject} JsonObject */

const UNBOUND = new Set(["verify_token", "verifyToken", "value"]);

/**
 * Drop nulls from maps, bottom-up, and maps that became empty by this; a map that was `{}` stays.
 *
 * Throws FormatError (`file.rule`) for a null in a list, and for a map in a list that would become empty.
 * @param {Json} value
 * @param {string} [pointer]
 * @param {boolean} [inList]
 * @returns {Json}
 */
export function dropNulls(value, pointer = "", inList = false) {
  if (Array.isArray(value)) return value.map((item, index) => dropNulls(item, pointerTo(pointer, index), true));
  if (value === null && inList) throw nothing("a null in a list", pointer);
  if (!isObject(value)) return value;
  const kept = object();
  for (const [name, item] of Object.entries(value)) {
    const left = dropNulls(item, pointerTo(pointer, name));
    if (left !== null) kept[name] = left;
  }
  if (Object.keys(kept).length || !Object.keys(value).length) return kept;
  if (inList) throw nothing("a map of nulls in a list", pointer);
  return null;
}

/**
 * @param {string} what
 * @param {string} pointer
 */
const nothing = (what, pointer) =>
  new FormatError("file.rule", `${what} has no canonical form: leave it out`, { pointer });

/** @returns {JsonObject} */
const object = () => Object.create(null);

/**
 * Return the target form of an entry without nulls; its numbers are JavaScript numbers.
 * @param {JsonObject} entry
 * @returns {JsonObject}
 */
export function targetForm(entry) {
  const form = object();
  for (const [name, item] of Object.entries(entry)) if (!UNBOUND.has(name)) form[name] = withPlainNumbers(item);
  if (Array.isArray(form.metrics)) form.metrics = form.metrics.toSorted(byName);
  return form;
}

/**
 * Turn every `Float` into a number, because the spelling no longer matters.
 * @param {Json} value
 * @returns {Json}
 */
export function withPlainNumbers(value) {
  if (value instanceof Float) return value.value;
  if (Array.isArray(value)) return value.map(withPlainNumbers);
  if (!isObject(value)) return value;
  const plain = object();
  for (const [name, item] of Object.entries(value)) plain[name] = withPlainNumbers(item);
  return plain;
}

/**
 * Compare metrics by id and slice, bytewise.
 * @param {Json} one
 * @param {Json} other
 */
const byName = (one, other) =>
  compareBytes(nameOf(one, "metric_id"), nameOf(other, "metric_id")) ||
  compareBytes(nameOf(one, "slice"), nameOf(other, "slice"));

/**
 * @param {Json} metric
 * @param {string} member
 */
const nameOf = (metric, member) => utf8(isObject(metric) ? String(metric[member] ?? "") : "");

/**
 * @param {Uint8Array} one
 * @param {Uint8Array} other
 */
function compareBytes(one, other) {
  const differs = one.findIndex((byte, at) => byte !== other[at]);
  return differs < 0 ? one.length - other.length : (one[differs] ?? 0) - (other[differs] ?? -1);
}

/**
 * Return the digest of an entry in its target form.
 * @param {JsonObject} form
 */
export const contentDigest = (form) => digest(form);
