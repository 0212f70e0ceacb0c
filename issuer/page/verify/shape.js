/**
 * Shapes of values: the type of each member, and which members are required or allowed.
 *
 * A shape takes a value that a strict reader returned, and throws FormatError (`file.schema`, `file.unknown_member`)
 * with the pointer of the first member that does not fit.
 */

import { FormatError } from "./errors.js";
import { isObject, pointerTo } from "./json.js";
import { Float } from "./numbers.js";

/** @typedef {(value: unknown) => void} Shape */
/** @typedef {{shape: Shape, optional: true}} Optional */

/** @param {unknown} value */
function kindOf(value) {
  if (value === null || value === undefined) return "nothing (null)";
  if (typeof value === "boolean") return "true or false";
  if (typeof value === "string") return "text";
  if (typeof value === "number") return Number.isInteger(value) ? "a whole number" : "a number";
  if (value instanceof Float) return "a number";
  return Array.isArray(value) ? "a list" : "a map";
}

/** @param {string} detail */
const misfit = (detail) => new FormatError("file.schema", detail);

/**
 * @param {string} wanted
 * @param {unknown} value
 */
const unexpected = (wanted, value) => misfit(`expected ${wanted}, got ${kindOf(value)}`);

/**
 * Check a part of a value by its shape, so that an error has its pointer.
 * @param {string | number} name
 * @param {Shape} shape
 * @param {unknown} value
 */
function tryPart(name, shape, value) {
  try {
    shape(value);
  } catch (error) {
    throw error instanceof FormatError ? error.within(pointerTo("", name)) : error;
  }
}

/** @type {Shape} */
export const anything = () => {};

/**
 * Text with a length within limits, in Unicode code points.
 * @param {{min?: number, max?: number}} [bounds]
 * @returns {Shape}
 */
export const text =
  ({ min = 0, max = Infinity } = {}) =>
  (value) => {
    if (typeof value !== "string") throw unexpected("text", value);
    if (value.length < min) throw misfit(`expected text of length >= ${min}`);
    if (value.length > max && [...value].length > max) throw misfit(`expected text of length <= ${max}`);
  };

/** A name or URL in a file that people write. */
export const shortText = text({ min: 1, max: 512 });

/**
 * A number that is spelled as a whole number.
 * @param {{min?: number, max?: number}} [bounds]
 * @returns {Shape}
 */
export const integer =
  ({ min = -Infinity, max = Infinity } = {}) =>
  (value) => {
    if (typeof value !== "number" || !Number.isInteger(value)) throw unexpected("a whole number", value);
    if (value < min) throw misfit(`expected a whole number >= ${min}`);
    if (value > max) throw misfit(`expected a whole number <= ${max}`);
  };

/**
 * A number in any spelling.
 * @param {{min?: number}} [bounds]
 * @returns {Shape}
 */
export const number =
  ({ min = -Infinity } = {}) =>
  (value) => {
    if (typeof value !== "number" && !(value instanceof Float)) throw unexpected("a number", value);
    if ((value instanceof Float ? value.value : value) < min) throw misfit(`expected a number >= ${min}.0`);
  };

/** @type {Shape} */
export const flag = (value) => {
  if (typeof value !== "boolean") throw unexpected("true or false", value);
};

/**
 * One given whole number, such as a version.
 * @param {number} wanted
 * @returns {Shape}
 */
export const exactly = (wanted) => (value) => {
  integer()(value);
  if (value !== wanted) throw misfit(`invalid enum value ${value}`);
};

/**
 * One of the given words.
 * @param {...string} words
 * @returns {Shape}
 */
export const oneOf =
  (...words) =>
  (value) => {
    text()(value);
    if (!words.includes(String(value))) throw misfit(`invalid enum value '${value}'; it is one of ${words.join(", ")}`);
  };

/**
 * @param {Shape} item
 * @param {{min?: number, max?: number}} [bounds]
 * @returns {Shape}
 */
export const list =
  (item, { min = 0, max = Infinity } = {}) =>
  (value) => {
    if (!Array.isArray(value)) throw unexpected("a list", value);
    value.forEach((each, index) => tryPart(index, item, each));
    if (value.length < min) throw misfit(`expected a list of length >= ${min}`);
    if (value.length > max) throw misfit(`expected a list of length <= ${max}`);
  };

/**
 * A map with any names.
 * @param {Shape} item
 * @param {Shape} [name]
 * @returns {Shape}
 */
export const map =
  (item, name = anything) =>
  (value) => {
    if (!isObject(value)) throw unexpected("a map", value);
    for (const [key, each] of Object.entries(value)) {
      tryPart(key, item, each);
      name(key);
    }
  };

/**
 * A shape that is chosen by the kind of the value.
 * @param {string} words  the kinds, for people
 * @param {(value: unknown) => Shape | undefined} choose
 * @returns {Shape}
 */
export const either = (words, choose) => (value) => {
  const shape = choose(value);
  if (!shape) throw unexpected(words, value);
  shape(value);
};

/**
 * A member that may be absent.
 * @param {Shape} shape
 * @returns {Optional}
 */
export const optional = (shape) => ({ shape, optional: true });

/**
 * A map with these members; if `closed`, others are refused.
 * @param {Record<string, Shape | Optional>} members
 * @param {{closed?: boolean}} [how]
 * @returns {Shape}
 */
export const object = (members, { closed = false } = {}) => {
  const shapes = new Map(Object.entries(members).map(([name, of]) => [name, typeof of === "function" ? of : of.shape]));
  const required = Object.keys(members).filter((name) => typeof members[name] === "function");
  return (value) => {
    if (!isObject(value)) throw unexpected("a map", value);
    for (const [name, each] of Object.entries(value))
      tryPart(name, shapes.get(name) ?? (closed ? unknown : anything), each);
    const missing = required.find((name) => !(name in value));
    if (missing !== undefined) throw misfit(`object missing required field \`${missing}\``);
  };
};

/** @type {Shape} */
const unknown = () => {
  throw new FormatError("file.unknown_member", "this member is not known here");
};
