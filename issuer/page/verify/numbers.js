/**
 * Numbers by the rules of the contract (section 2): read as the nearest double, within limits of digits and size.
 *
 * A member that must be a whole number must be spelled as one, so `20.0` is refused there. JavaScript's numbers lose
 * the spelling, so a whole number that was spelled with a point or an exponent is a `Float`; every other one is a
 * number.
 */

const MAX_SIGNIFICANT_DIGITS = 17;

/** A whole number that was spelled with a point or an exponent. */
export class Float {
  /** @param {number} value */
  constructor(value) {
    this.value = value;
  }
}

/**
 * @param {unknown} value
 * @returns {number | undefined} undefined if it is not a number
 */
export function plainNumber(value) {
  if (typeof value === "number") return value;
  return value instanceof Float ? value.value : undefined;
}

/**
 * Return a decimal number as the nearest double; `-0` becomes 0. The caller has checked its grammar.
 *
 * Throws RangeError that names the broken rule: more than 17 significant digits, over- or underflow, a whole number
 * beyond 2^53 - 1 in any spelling.
 * @param {string} text
 */
export function exactNumber(text) {
  const [, whole = "", fraction = ""] = /^[-+]?([0-9]*)\.?([0-9]*)/.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  if (digits.length > MAX_SIGNIFICANT_DIGITS)
    throw new RangeError(`more than ${MAX_SIGNIFICANT_DIGITS} significant digits`);
  const value = Number(text) + 0; // -0 + 0 is 0
  if (!Number.isFinite(value)) throw new RangeError("not finite as a double");
  if (value === 0 && digits) throw new RangeError("too small for a double");
  if (!Number.isInteger(value)) return value;
  if (!Number.isSafeInteger(value))
    throw new RangeError("an integer beyond 2^53 - 1, which readers round differently");
  return /^[-+]?[0-9]+$/.test(text) ? value : new Float(value);
}
