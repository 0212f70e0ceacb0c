/**
 * The meaning of a plain scalar (contract section 3). It is a number, `true`, `false`, `null` or text only if PyYAML,
 * ruamel.yaml, js-yaml and yaml all read it so. Any other scalar is refused, with advice what to write.
 */

import { exactNumber, Float } from "../numbers.js";

// The forms of a plain scalar in the order in which they are tried. A scalar without a form is text to all readers.
/** @type {[string, RegExp][]} */
const FORMS = [
  // The same decimal number to all four readers; for PyYAML, exponents need a point and a sign (YAML 1.1).
  ["number", /^(?:[-+]?(?:0|[1-9][0-9]*|[0-9]+\.[0-9]*(?:[eE][-+][0-9]+)?)|\.[0-9]+(?:[eE][-+][0-9]+)?)$/],
  ["hexadecimal", /^0x[0-9a-fA-F]+$/],
  ["constant", /^(?:true|false|null)$/],
  ["empty", /^~?$/],
  ["word", /^(?:yes|no|on|off|true|false|null)$/iu],
  // A number to at least one reader: in any base, with separators, base 60, or not finite.
  ["numeric", /^[-+]?(?:0[bo][0-7_]*|0x[0-9a-f_]*|[0-9][0-9_]*(?::[0-9_]+)*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?)$/iu],
  ["numeric", /^[-+]?(?:\.[0-9_]+(?:e[-+]?[0-9]+)?|\.[iıİ]nf|\.nan)$/iu],
  ["timestamp", /^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?$/],
  ["sign", /^(?:=|<<)$/],
];
/** @type {Record<string, boolean | null>} */
const CONSTANTS = { true: true, false: false, null: null };
/** @type {Record<string, string>} */
const ADVICE = {
  empty: 'an empty value: write "" for empty text, null for nothing, or leave the member out',
  word: "readers disagree about this word: write true, false or null in lower case, or quote it",
  timestamp: "readers disagree about a bare date: put it in double quotes",
  sign: "readers disagree about this sign: put it in double quotes",
};

/** @param {string} text */
const formOf = (text) => FORMS.find(([, form]) => form.test(text))?.[0];

/**
 * Say whether every reader reads plain text as text.
 * @param {string} text
 */
export const isText = (text) => formOf(text) === undefined;

/**
 * Resolve a plain scalar.
 * @param {string} text
 * @returns {{value: string | number | Float | boolean | null} | {code: string, detail: string}}  or why it is refused
 */
export function resolve(text) {
  const form = formOf(text);
  if (form === undefined) return { value: text };
  if (form === "constant") return { value: CONSTANTS[text] };
  if (form === "hexadecimal") return hexadecimal(text);
  if (form === "numeric")
    return { code: "file.scalar", detail: `readers disagree about this number: ${otherSpelling(text)}` };
  if (form !== "number") return { code: "file.scalar", detail: ADVICE[form] };
  try {
    return { value: exactNumber(text) };
  } catch (error) {
    return { code: "file.number", detail: /** @type {RangeError} */ (error).message };
  }
}

/** @param {string} text */
function hexadecimal(text) {
  const value = Number(text);
  return Number.isSafeInteger(value)
    ? { value }
    : { code: "file.number", detail: "an integer beyond 2^53 - 1, which readers round differently" };
}

/**
 * Return the spelling to use for a decimal number that only some readers read as one.
 * @param {string} text
 */
function otherSpelling(text) {
  const none = "write a plain decimal number, or put it in double quotes if it is text";
  if (!/^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$/.test(text)) return none;
  try {
    const value = exactNumber(text);
    return `write ${numberText(value instanceof Float ? value.value : value)}, or put it in double quotes if it is text`;
  } catch {
    return none;
  }
}

/**
 * Return the text of a number that all four readers read back as the same double: `20.9`, `0.00002`, `1.0e-7`.
 * @param {number} value
 */
export function numberText(value) {
  const text = String(value);
  if (!text.includes("e")) return text;
  const [mantissa, exponent] = text.split("e");
  return `${mantissa.includes(".") ? mantissa : `${mantissa}.0`}e${exponent}`;
}
